"""Evaluation questions as read from files, and the comparison of rows with the expected ones."""

import math
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.config.file_watcher import read_text
from copilot_runtime.config.yaml_model import list_lines, parse_yaml_model
from copilot_runtime.extensions.scenarios.definition import Script
from copilot_runtime.extensions.scenarios.values import format_value, shorten

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
    except OSError as error:
        raise ConfigurationFailed(f"{path}:1: {error.strerror or error}.") from error
    return parse_questions(read_text(path).removeprefix("\ufeff"), path.as_posix())


Rows = Sequence[Sequence[Any]]

_MOST_MAPPINGS = 200
"""Maximum number of column mappings that are tried."""
_MOST_GREEDY = 400
"""Maximum number of rows for the pairwise comparison."""


def compare_tables(
    names: Sequence[str],
    expected: Rows,
    found_names: Sequence[str],
    found: Rows,
    *,
    is_ordered: bool = False,
    tolerance: float = 1e-4,
    may_have_more: bool = True,
) -> str | None:
    """Describe the first difference between two tables, or return `None` if they are equal."""
    if len(expected) != len(found):
        return f"expected {_count(len(expected), 'row')}, found {len(found):,}"
    more = len(found_names) - len(names)
    if more < 0 or (more and not may_have_more):
        return f"expected {_count(len(names), 'column')}, found {len(found_names)}"
    if not expected:
        return None
    reference = [[_plain(cell) for cell in row] for row in expected]
    answer = [[_plain(cell) for cell in row] for row in found]
    for columns in _list_mappings(names, reference, found_names, answer, tolerance):
        rows = [[row[at] for at in columns] for row in answer]
        is_same = _same_order if is_ordered else _same_set
        if is_same(reference, rows, tolerance):
            return None
    return _describe(names, reference, found_names, answer, is_ordered, tolerance)


def equal_cells(one: Any, other: Any, tolerance: float) -> bool:
    """Return `True` if two cells are equal, numbers within the tolerance."""
    if _is_number(one) and _is_number(other):
        return math.isclose(one, other, rel_tol=tolerance, abs_tol=tolerance)
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _list_mappings(
    names: Sequence[str],
    reference: Rows,
    found_names: Sequence[str],
    answer: Rows,
    tolerance: float,
) -> Iterator[Sequence[int]]:
    """Yield mappings of the expected columns: by name first, then by their values."""
    choices: list[list[int]] = []
    for at, name in enumerate(names):
        values = sorted((row[at] for row in reference), key=_order)
        fits = [
            place
            for place in range(len(found_names))
            if all(
                equal_cells(one, other, tolerance)
                for one, other in zip(
                    values, sorted((row[place] for row in answer), key=_order), strict=True
                )
            )
        ]
        fits.sort(key=lambda place, name=name: found_names[place].casefold() != name.casefold())
        choices.append(fits)
    yield from islice(_combine(choices), _MOST_MAPPINGS)


def _combine(choices: Sequence[Sequence[int]], start: tuple[int, ...] = ()) -> Iterator[list[int]]:
    if len(start) == len(choices):
        yield [*start]
        return
    for place in choices[len(start)]:
        if place not in start:
            yield from _combine(choices, (*start, place))


def _same_order(reference: Rows, rows: Rows, tolerance: float) -> bool:
    return all(
        _equal_rows(one, other, tolerance) for one, other in zip(reference, rows, strict=True)
    )


def _same_set(reference: Rows, rows: Rows, tolerance: float) -> bool:
    """Return `True` if both have the same rows with the same multiplicity, in any order."""
    groups: Mapping[Any, tuple[list[Any], list[Any]]] = defaultdict(lambda: ([], []))
    for side, values in enumerate((reference, rows)):
        for row in values:
            key = tuple(repr(cell) for cell in row if not _is_number(cell))
            groups[key][side].append(row)
    return all(_match(one, other, tolerance) for one, other in groups.values())


def _match(reference: list[Any], rows: list[Any], tolerance: float) -> bool:
    if len(reference) != len(rows):
        return False
    pairs = zip(sorted(reference, key=_order_row), sorted(rows, key=_order_row), strict=True)
    if all(_equal_rows(one, other, tolerance) for one, other in pairs):
        return True
    if len(reference) > _MOST_GREEDY:
        return False
    left = [*rows]
    for row in reference:
        place = next((at for at, it in enumerate(left) if _equal_rows(row, it, tolerance)), None)
        if place is None:
            return False
        del left[place]
    return True


def _equal_rows(one: Sequence[Any], other: Sequence[Any], tolerance: float) -> bool:
    return all(equal_cells(it, its, tolerance) for it, its in zip(one, other, strict=True))


def _describe(
    names: Sequence[str],
    reference: Rows,
    found_names: Sequence[str],
    answer: Rows,
    is_ordered: bool,
    tolerance: float,
) -> str:
    """Describe a missing row, and the unexpected row in its place."""
    places = [
        next((at for at, it in enumerate(found_names) if it.casefold() == name.casefold()), at)
        for at, name in enumerate(names)
    ]
    rows = [[row[at] for at in places] for row in answer]
    if is_ordered and _same_set(reference, rows, tolerance):
        return "the rows are the same, in another order"
    left = [*rows]
    for row in reference:
        place = next((at for at, it in enumerate(left) if _equal_rows(row, it, tolerance)), None)
        if place is None:
            first = left[0] if left else rows[0]
            return f"expected {_write(row)}, found {_write(first)}"
        del left[place]
    return "the columns are not those of the reference"


def _plain(cell: Any) -> Any:
    """Return a cell in the form that both sides share."""
    if isinstance(cell, bool) or cell is None:
        return cell
    if isinstance(cell, int | float):
        return None if isinstance(cell, float) and math.isnan(cell) else cell
    if isinstance(cell, str):
        text = cell.removesuffix("T00:00:00").removesuffix(" 00:00:00")
        return text if text != cell else _read_number(cell)
    return format_value(cell)


def _read_number(text: str) -> Any:
    """Decode a number that JSON has no literal for; return other text unchanged."""
    digits = text.lstrip("-").replace(".", "", 1)
    return float(text) if len(digits) > 15 and digits.isascii() and digits.isdigit() else text


def _is_number(cell: Any) -> bool:
    return isinstance(cell, int | float) and not isinstance(cell, bool)


def _order(cell: Any) -> tuple[int, float, str]:
    return (0, float(cell), "") if _is_number(cell) else (1, 0.0, repr(cell))


def _order_row(row: Sequence[Any]) -> list[tuple[int, float, str]]:
    return [_order(cell) for cell in row]


def _write(row: Sequence[Any]) -> str:
    return shorten(format_value([*row]))


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"
