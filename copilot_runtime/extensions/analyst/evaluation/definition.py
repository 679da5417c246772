"""Evaluation questions with their expected answers, as read from files."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.config.yaml_model import list_lines, parse_yaml_model
from copilot_runtime.extensions.scenarios.definition import Script

Expectation = Literal["rows", "refusal", "clarification"]
Trust = Literal["verified", "derived", "free_sql"]

DEFAULT_TOLERANCE = 1e-4

_ENDINGS = (".yml", ".yaml")
_LARGEST = 4_000_000


def _read_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Texts = Annotated[list[str], BeforeValidator(_read_list)]


class EvaluationQuestion(BaseModel):
    """A question, and the criteria for its answer."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    question: Annotated[str, Field(min_length=1)]
    name: str = ""
    """The name; by default the question."""
    expect: Expectation = "rows"
    """The kind of the expected answer: the rows of `sql`, a refusal because the data cannot tell,
    or a clarification."""
    sql: str = ""
    """The reference query, whose rows the answer must return."""
    ordered: bool = False
    """`True` if the order of rows matters."""
    tolerance: Annotated[float, Field(ge=0)] = DEFAULT_TOLERANCE
    """Numeric tolerance: absolute, or relative to the larger number."""
    extra_columns: bool = True
    """`True` if the answer may have columns that the reference lacks."""
    trust: Trust | None = None
    """The minimum trust level of the answer."""
    contains: Texts = []
    """Text that the answer must contain, case-insensitively."""
    excludes: Texts = []
    """Text that the answer must not contain."""
    dataset: str = ""
    agent_name: str = ""
    user: str = ""
    """The user for row filters, in the answer and in the reference."""
    script: Script = ()
    """The answers of a scripted model; without it, the analyst's own model is used."""
    tags: Texts = []
    skip: str = ""
    """The reason why this question is skipped."""

    @model_validator(mode="after")
    def _check_sql(self) -> "EvaluationQuestion":
        if self.expect == "rows" and not self.sql:
            raise ValueError("'sql' is missing: what the answer is compared with")
        if self.expect != "rows" and self.sql:
            raise ValueError(f"'sql' has no use where a {self.expect} is expected")
        return self

    @property
    def title(self) -> str:
        """The question's title in reports."""
        return self.name or self.question


class QuestionFile(BaseModel):
    """A file of questions."""

    model_config = ConfigDict(extra="forbid")

    questions: list[EvaluationQuestion] = []


@dataclass(frozen=True, slots=True)
class QuestionPlace:
    """A question and its position in a file."""

    path: str
    line: int
    question: EvaluationQuestion

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


def load_questions(paths: Sequence[Path]) -> list[QuestionPlace]:
    """Return the questions of files and folders, ordered by file name.

    Raises `ConfigurationFailed` with the mistakes of all files, each as `file:line: …`.
    """
    found: list[QuestionPlace] = []
    problems: list[str] = []
    for file in dict.fromkeys(it for path in paths for it in _list_files(path)):
        try:
            found += _read_file(file)
        except ConfigurationFailed as error:
            problems.append(error.message)
    if problems:
        raise ConfigurationFailed("\n".join(problems))
    return found


def parse_questions(text: str, source: str) -> list[QuestionPlace]:
    """Return the questions of a YAML text. Raises `ConfigurationFailed`."""
    file = parse_yaml_model(QuestionFile, text, source)
    lines = list_lines(text, "questions")
    return [
        QuestionPlace(source, line, one) for line, one in zip(lines, file.questions, strict=True)
    ]


def _list_files(path: Path) -> Sequence[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise ConfigurationFailed(
            f"There is no file or folder '{path}'.",
            hint="`copilot-runtime analyst init` writes an example: tests/questions.yaml.",
        )
    return sorted(_walk(path))


def _walk(folder: Path) -> Iterator[Path]:
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(it for it in folders if it[0] not in "._")
        yield from (Path(root, name) for name in names if name.endswith(_ENDINGS))


def _read_file(path: Path) -> list[QuestionPlace]:
    try:
        if path.stat().st_size > _LARGEST:
            raise ConfigurationFailed(f"{path}:1: the file has more than {_LARGEST:,} bytes.")
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigurationFailed(f"{path}:1: the file is not UTF-8 text.") from None
    except OSError as error:
        raise ConfigurationFailed(f"{path}:1: {error.strerror or error}.") from error
    return parse_questions(text, path.as_posix())
