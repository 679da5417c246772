"""The operator's files that teach the analyst, examples of SQL among them; kept up to date."""

import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, field_validator

from copilot_runtime.base.errors import ConfigurationFailed, CopilotError
from copilot_runtime.config.file_watcher import FileStates, FileWatcher, read_text
from copilot_runtime.config.yaml_model import find_line, parse_yaml_model
from copilot_runtime.extensions.analyst.prompt.hints import SchemaHints, parse_hints
from copilot_runtime.extensions.analyst.prompt.skills import (
    CONTEXT,
    Skill,
    find_skill_files,
    find_triggers,
    fold,
    load_skills,
)
from copilot_runtime.extensions.analyst.prompt.untrusted import quote_block, quote_line
from copilot_runtime.extensions.analyst.semantic.catalog import FILES as METRICS
from copilot_runtime.extensions.analyst.semantic.catalog import MetricCatalog
from copilot_runtime.extensions.analyst.semantic.definition import CatalogFile, parse_catalog

MOST_EXAMPLES = 3
"""Default number of examples per request."""

LIMIT = 5
"""Maximum number of examples per request."""

CheckSql = Callable[[str], Awaitable[object]]
"""Guards and binds SQL. Raises `CopilotError` if it cannot run."""

_MOST_SQL = 4_000
_DOCUMENT_START = re.compile(r"\A---[ \t]*(\r?\n|\Z)")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlExample:
    """A question, its SQL, and trigger words of similar questions."""

    description: str
    sql: str
    triggers: Sequence[str] = ()
    """Trigger words; without any, it is an example for every question."""
    agent: str | None = None
    """Restricts it to questions about this `agent_name`."""
    source: str = ""
    """The file and line."""
    problem: str = ""
    """The error of its SQL: stale examples are not sent to models."""

    @property
    def is_stale(self) -> bool:
        """`True` if the SQL no longer fits the data."""
        return bool(self.problem)


class _Item(BaseModel):
    model_config = ConfigDict(extra="forbid")

    sql: str = Field(min_length=1, max_length=_MOST_SQL)
    description: str = Field(default="", max_length=1_000)
    question: str = Field(default="", max_length=1_000)
    triggers: list[str] = []
    agent: str | None = None
    name: str = ""

    @field_validator("triggers")
    @classmethod
    def _require_words(cls, value: list[str]) -> list[str]:
        if not all(fold(item) for item in value):
            raise ValueError("a trigger is empty")
        return value


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    examples: list[_Item] = []
    agent_examples: dict[str, list[_Item]] = {}


def parse_examples(text: str, source: str) -> Sequence[SqlExample]:
    """Return the examples of a file: `examples`, and `agent_examples` by `agent_name`.

    A file that is a list contains `examples`. Raises `ConfigurationFailed` with the line of each
    mistake.
    """
    text = _DOCUMENT_START.sub("\n", text.removeprefix("\ufeff"))
    is_list = _is_list(text)
    body = "examples:\n" + text if is_list else text
    shift = 1 if is_list else 0
    file = parse_yaml_model(_File, body, source, first_line=1 - shift)

    def make(item: _Item, path: Sequence[int | str], agent: str | None) -> SqlExample:
        line = find_line(body, path) - shift
        return SqlExample(
            description=item.description or item.question,
            sql=item.sql.strip(),
            triggers=tuple(dict.fromkeys(item.triggers)),
            agent=item.agent or agent,
            source=f"{source}:{line}",
        )

    found = [make(item, ["examples", at], None) for at, item in enumerate(file.examples)]
    for agent, items in file.agent_examples.items():
        found += [make(item, ["agent_examples", agent, at], agent) for at, item in enumerate(items)]
    return found


async def check_examples(examples: Iterable[SqlExample], check: CheckSql) -> Sequence[SqlExample]:
    """Return the examples, marking those whose SQL cannot run as stale and logging each."""
    results: list[SqlExample] = []
    for example in examples:
        problem = ""
        try:
            await check(example.sql)
        except CopilotError as error:
            problem = quote_line(error.message, 300)
            if problem != example.problem:
                logger.warning("The example of SQL in %s is stale: %s", example.source, problem)
        results.append(replace(example, problem=problem))
    return results


def select_examples(
    message: str,
    context: Sequence[str],
    examples: Iterable[SqlExample],
    *,
    agent_name: str | None = None,
    limit: int = MOST_EXAMPLES,
) -> Sequence[SqlExample]:
    """Return the examples for a question: those of the agent first, otherwise in file order."""
    recent = [message, *[*context][-CONTEXT:]]
    fitting = [
        example
        for example in examples
        if not example.is_stale
        and example.agent in (None, agent_name)
        and (not example.triggers or find_triggers(example.triggers, recent))
    ]
    ranked = sorted(fitting, key=lambda example: (example.agent is None, not example.triggers))
    return ranked[: max(0, min(limit, LIMIT))]


def render_examples(examples: Iterable[SqlExample]) -> str:
    """Return examples as SQL, each with its question as a comment."""
    return "\n\n".join(
        f"-- {quote_line(example.description or 'Example', 300)}\n{quote_block(example.sql)}"
        for example in examples
    )


def _is_list(text: str) -> bool:
    import yaml

    try:
        return isinstance(yaml.compose(text, yaml.SafeLoader), yaml.SequenceNode)
    except (yaml.YAMLError, ValueError, RecursionError):
        return False


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
