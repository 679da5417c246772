"""The operator's files that teach the analyst; reloaded when one changes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.config.file_watcher import FileStates, FileWatcher, read_text
from copilot_runtime.extensions.analyst.prompt.examples import (
    CheckSql,
    SqlExample,
    check_examples,
    parse_examples,
)
from copilot_runtime.extensions.analyst.prompt.hints import SchemaHints, parse_hints
from copilot_runtime.extensions.analyst.prompt.skills import Skill, find_skill_files, load_skills
from copilot_runtime.extensions.analyst.semantic.catalog import FILES as METRICS
from copilot_runtime.extensions.analyst.semantic.catalog import MetricCatalog
from copilot_runtime.extensions.analyst.semantic.definition import CatalogFile, parse_catalog

HINTS = ("schema_hints.yaml", "schema_hints.yml")
EXAMPLES = "sql_examples"
SKILLS = "skills"

_MOST_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextFiles:
    """The content of the operator's files, and the built-in skills."""

    skills: Mapping[str, Skill] = field(default_factory=dict[str, Skill])
    examples: Sequence[SqlExample] = ()
    hints: SchemaHints = field(default_factory=SchemaHints)
    catalog: MetricCatalog = field(default_factory=MetricCatalog)

    def __len__(self) -> int:
        """Count skills, examples, metrics, and tables with hints."""
        counts = (len(self.examples), len(self.hints.tables), len(self.catalog))
        return len(self.skills) + sum(counts)


class ContextFolder:
    """Reads `schema_hints.yaml`, metrics, `sql_examples/*.yaml` and `skills/` in a folder.

    Examples may also be in one file `sql_examples.yaml`.

    All of them are optional, and so is the folder. Skills may also be in `skills` next to the
    folder's parent, as in `custom/skills` for `custom/config`. A malformed skill is skipped. Other
    mistakes are an error when the server starts; later, the previous content is kept, and the log
    names the line.
    """

    def __init__(self, path: Path | str, *, interval: float | None = None) -> None:
        self.path = Path(path)
        self.files = ContextFiles()
        """The content at the last read."""
        self._check: CheckSql | None = None
        self._watcher: FileWatcher[ContextFiles] = FileWatcher(
            self.path,
            self._find_files,
            self._read,
            "hints, metrics, examples and skills",
            interval=interval,
        )

    async def load(self, check: CheckSql | None = None) -> ContextFiles:
        """Read all files now. Raises `ConfigurationFailed` with a list of all mistakes.

        `check` guards and binds the SQL of examples, and raises `CopilotError` if it cannot run.
        """
        self.files = self._read(self._watcher.look())
        return await self.check(check)

    async def refresh(self, check: CheckSql | None = None) -> ContextFiles:
        """Return the content of the files; reload them if one has changed.

        Without `check`, the previous check is used.
        """
        files = await self._watcher.refresh()
        if files is not None:
            self.files = files
            await self.check(check)
        return self.files

    async def check(self, check: CheckSql | None = None) -> ContextFiles:
        """Mark the examples whose SQL no longer fits the data, for example after a refresh."""
        self._check = check or self._check
        if self._check is not None and self.files.examples:
            files = self.files
            examples = await check_examples(files.examples, self._check)
            if self.files is files:
                self.files = replace(files, examples=examples)
        return self.files

    def _find_files(self) -> Sequence[Path]:
        hints = [self.path / name for name in HINTS if (self.path / name).is_file()]
        folder = self.path / EXAMPLES
        names = ("*.yaml", "*.yml")
        examples = [file for name in names for file in sorted(folder.glob(name))]
        beside = find_skill_files(self.path.parent / SKILLS) if self.path.name == "config" else []
        metrics = [self.path / name for name in METRICS]
        single = [*metrics, self.path / f"{EXAMPLES}.yaml", self.path / f"{EXAMPLES}.yml"]
        files = [*hints[:1], *single, *examples, *beside, *find_skill_files(self.path / SKILLS)]
        return [file for file in files if file.is_file()]

    def _read(self, states: FileStates) -> ContextFiles:
        problems: list[str] = []
        hints = SchemaHints()
        examples: list[SqlExample] = []
        skills: list[Path] = []
        metrics: list[tuple[str, CatalogFile]] = []
        for file, (_, size) in states.items():
            try:
                if file.suffix == ".md":
                    skills.append(file)
                elif size > _MOST_BYTES:
                    problems.append(f"{file}:1: the file is larger than {_MOST_BYTES // 1024} kB.")
                elif EXAMPLES in (file.parent.name, file.stem):
                    examples += parse_examples(read_text(file), str(file))
                elif file.name in METRICS:
                    metrics.append((str(file), parse_catalog(read_text(file), str(file))))
                else:
                    hints = parse_hints(read_text(file), str(file))
            except ConfigurationFailed as error:
                problems.append(error.message)
        if problems:
            raise ConfigurationFailed("\n".join(problems))
        return ContextFiles(
            skills=load_skills(skills),
            examples=examples,
            hints=hints,
            catalog=MetricCatalog.join(metrics),
        )
