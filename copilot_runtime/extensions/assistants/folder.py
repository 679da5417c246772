"""The assistants of a folder, reloaded when a file changes."""

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from copilot_runtime.api.identity import SelectNames
from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.base.jsonvalue import JsonObject
from copilot_runtime.config.file_watcher import FileStates, FileWatcher, read_text
from copilot_runtime.extensions.assistants.definition import (
    MAX_SIZE,
    SUFFIX,
    AssistantDefinition,
    check_references,
    parse_assistant,
)
from copilot_runtime.extensions.assistants.template import check_template

Definitions = Mapping[str, AssistantDefinition]


class AssistantFolder:
    """Reads `*.agent.md` in a folder and its subfolders.

    Errors fail the server's start. Later, the previous assistants stay in use, and the log names
    the line. `select_names` returns the names that a user may use, all by default; `interval` is
    the minimum time between two checks for changed files, in seconds.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        select_names: SelectNames | None = None,
        interval: float | None = None,
    ) -> None:
        self.path = Path(path)
        self._select_names = select_names
        self.definitions: Definitions = {}
        """The assistants by name."""
        self.on_change: Callable[[], None] = lambda: None
        """Called after the assistants were reloaded."""
        self._watcher = FileWatcher(
            self.path, self._find_files, self._read, "assistants", interval=interval
        )

    def load(self) -> Definitions:
        """Read all files. Raises `ConfigurationFailed` with all errors."""
        self.definitions = self._read(self._watcher.look())
        return self.definitions

    def describe_resources(self) -> Mapping[str, JsonObject]:
        """Return the content of the resource of each assistant, by name."""
        return {name: one.describe_resource() for name, one in self.definitions.items()}

    async def refresh(self) -> bool:
        """Reload changed files, and return whether there were any."""
        definitions = await self._watcher.refresh()
        if definitions is None:
            return False
        self.definitions = definitions
        self.on_change()
        return True

    async def select(self, user: str | None) -> Definitions:
        """Return the assistants that a user may use, without hand-offs to others."""
        definitions = self.definitions
        if self._select_names is None:
            return definitions
        names = await self._select_names([*definitions], user)
        if len(names) == len(definitions):
            return definitions
        return {name: _drop_handoffs(definitions[name], names) for name in names}

    def _find_files(self) -> Sequence[Path]:
        """Return the files. Raises `ConfigurationFailed` if the folder does not exist."""
        if not self.path.is_dir():
            raise ConfigurationFailed(
                f"There is no folder of assistants '{self.path}'.",
                hint=f"Make it, with a file such as writer{SUFFIX} in it.",
            )
        return sorted(self.path.rglob(f"*{SUFFIX}"))

    def _read(self, states: FileStates) -> Definitions:
        found: dict[str, tuple[Path, AssistantDefinition]] = {}
        problems: list[str] = []
        if not states:
            raise ConfigurationFailed(
                f"The folder '{self.path}' has no assistants.",
                hint=f"Their files end in {SUFFIX}, such as writer{SUFFIX}.",
            )
        for file, (_, size) in states.items():
            if size > MAX_SIZE:
                problems.append(f"{file}:1: the file is larger than {MAX_SIZE // 1024} kB.")
                continue
            try:
                text = read_text(file)
                definition = parse_assistant(text, str(file))
                check_template(definition.body, str(file), definition.body_line)
            except ConfigurationFailed as error:
                problems.append(error.message)
                continue
            if (other := found.get(definition.name)) is not None:
                problems.append(f"{file}:1: {other[0]} has the name {definition.name!r}, too.")
            found[definition.name] = (file, definition)
        definitions = {name: definition for name, (_, definition) in found.items()}
        if not problems:
            check_references([*definitions.values()])
            return definitions
        raise ConfigurationFailed("\n".join(problems))


def _drop_handoffs(definition: AssistantDefinition, names: Collection[str]) -> AssistantDefinition:
    """Return an assistant with only the hand-offs to certain others."""
    handoffs = tuple(one for one in definition.handoffs if one.agent in names)
    return definition.model_copy(update={"handoffs": handoffs})
