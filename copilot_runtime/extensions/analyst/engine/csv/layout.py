"""Where the columns of a CSV file are: its delimiter, its header, and the lines before it."""

import csv
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from copilot_runtime.base.delimiters import find_delimiter, open_reader

_SAMPLE = 256 * 1024
_HEAD = 30
"""Lines that may stand above the header."""

_SEPARATOR_LINE = re.compile(r'"?sep=(.)"?\s*')
"""The first line of files that Excel should open."""

_YEAR = re.compile(r"(?:19|20)\d\d(?:[-/.](?:0?[1-9]|1[0-2]))?")
_DATE = re.compile(
    r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}(?:[T ].*)?|\d{1,2}:\d{2}(?::\d{2}.*)?(?: [AaPp][Mm])?"
    r"|\d{1,2}[ -][A-Za-z]{3,9}[ -]\d{4}.*|[A-Za-z]{3,9} \d{1,2}, \d{4}.*"
)
_NUMBER = re.compile(
    r"(?i:true|false)|[-+(]?[^\w\s]?\s?\d[\d\s.,'\u2019]*(?:[eE][-+]?\d+)?\s?[^\w\s]?\)?"
)

Record = Sequence[str]
_Shape = Literal["empty", "year", "date", "number", "text"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How the lines of a file are read."""

    delimiter: str
    escape: str
    """The character that escapes a quotation mark: another one, or a backslash."""
    skipped: int
    """Lines before the first one with values."""
    names: tuple[str, ...]
    """One for each column; those without a name are `column0`, `column1`, ..."""
    unnamed: frozenset[int] = frozenset()
    """The columns to which the file gives no name."""
    notes: tuple[str, ...] = ()
    """Sentences about doubtful choices."""


def find_layout(path: Path, delimiter: str = "") -> Layout:
    """Return the layout of a file in UTF-8, by its first lines, with the delimiter if it is known.

    Raises `ValueError` if it is empty.
    """
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        head = file.read(_SAMPLE)
    escape = "\\" if '\\"' in head and '""' not in head else '"'
    is_whole = len(head) < _SAMPLE
    before = 0
    if not delimiter and (separator := _SEPARATOR_LINE.match(head)):
        head, before = head[separator.end() :], 1
        delimiter = separator[1]
    lines = head.splitlines(keepends=True)
    lines = lines if is_whole else lines[:-1]
    delimiter = delimiter or find_delimiter(lines, escape)[0]
    records = [*_read(lines, delimiter, escape)]
    filled = [(line, record) for line, record in records if any(record)]
    if not filled:
        raise ValueError("the file is empty")
    width = _find_width([record for _, record in filled])
    first = _find_first([record for _, record in filled], width)
    notes: list[str] = []
    if first:
        notes.append("Lines above the header are left out.")
    line, header = filled[first]
    below = [record for _, record in filled[first + 1 :]]
    if not _is_header(header, below):
        notes.append("The file has no header: its columns have numbers.")
        start = filled[first - 1][0] if first else 0
        count = max(width, len(header))
        return Layout(
            delimiter=delimiter,
            escape=escape,
            skipped=before + start,
            names=_name_columns([""] * count),
            unnamed=frozenset(range(count)),
            notes=tuple(notes),
        )
    if below and all(len(row) == len(header) + 1 and row[-1] for row in below):
        header = ["", *header]
        notes.append("The header has no name for the first column.")
    return Layout(
        delimiter=delimiter,
        escape=escape,
        skipped=before + line,
        names=_name_columns(header),
        unnamed=frozenset(at for at, name in enumerate(header) if not name.strip()),
        notes=tuple(notes),
    )


def _find_width(records: Sequence[Record]) -> int:
    """Return the most frequent number of values; of two that are equally frequent, the first."""
    return Counter(map(len, records)).most_common(1)[0][0]


def _read(lines: Sequence[str], delimiter: str, escape: str) -> Iterator[tuple[int, Record]]:
    """Yield the records with their last lines, without one that is cut off."""
    reader = open_reader(lines, delimiter, escape)
    try:
        for record in reader:
            yield reader.line_num, record
    except csv.Error:  # a value without an end
        return


def _find_first(records: Sequence[Record], width: int) -> int:
    """Return the position of the record with the names of most columns, or of the first values."""
    for at, record in enumerate(records[:_HEAD]):
        is_narrow = len(record) < width or width > 2
        if not is_narrow or sum(map(bool, record)) >= max(2, 0.6 * width):
            if at and _is_header(record, records[at + 1 :]):
                return at
            break
    return next((at for at, record in enumerate(records) if not _is_title(record, width)), 0)


def _is_title(record: Record, width: int) -> bool:
    """Return whether a record stands above the table: it has one text, of several columns."""
    values = [cell for cell in record if cell]
    is_one = len(values) == 1 and width > 1 and (len(record) == 1 or width > 2)
    return is_one and _find_shape(values[0]) == "text"


def _is_header(first: Record, below: Sequence[Record]) -> bool:
    """Return whether a record names the columns: years and dates may be names, numbers are not."""
    for at, cell in enumerate(first):
        shape = _find_shape(cell)
        if shape == "number":
            return False
        if shape in ("year", "date"):
            shapes = {_find_shape(row[at]) for row in below if at < len(row)} - {"empty"}
            if not shapes or shapes <= {"year", "date"} or (shape == "date" and "date" in shapes):
                return False
    return True


def _find_shape(cell: str) -> _Shape:
    cell = cell.strip()
    if not cell:
        return "empty"
    if _YEAR.fullmatch(cell):
        return "year"
    if _DATE.fullmatch(cell):
        return "date"
    return "number" if _NUMBER.fullmatch(cell) else "text"


def _name_columns(cells: Record) -> tuple[str, ...]:
    """Return a name for each column; no two differ in case alone."""
    names: list[str] = []
    used: set[str] = set()
    for at, cell in enumerate(cells):
        base = " ".join(cell.split()) or f"column{at}"
        name, number = base, 1
        while name.lower() in used:
            name, number = f"{base}_{number}", number + 1
        used.add(name.lower())
        names.append(name)
    return tuple(names)
