"""Where the columns of a CSV file are: its delimiter, its header, and the lines before it."""

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

_SAMPLE = 256 * 1024
_DELIMITERS = "\t;|,"
"""In this order where two fit: a comma may be in numbers and sentences."""

_SEPARATOR_LINE = re.compile(r'"?sep=(.)"?\s*')
"""The first line of files that Excel should open."""

_YEAR = re.compile(r"(?:19|20)\d\d(?:[-/.](?:0?[1-9]|1[0-2]))?")
_DATE = re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}(?:[T ].*)?")
_NUMBER = re.compile(r"[-+(]?[^\w\s]?\s?\d[\d\s.,'\u2019]*(?:[eE][-+]?\d+)?\s?[^\w\s]?\)?")

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


def find_layout(path: Path) -> Layout:
    """Return the layout of a file in UTF-8, by its first lines.

    Raises `ValueError` if it is empty.
    """
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        head = file.read(_SAMPLE)
    escape = "\\" if '\\"' in head and '""' not in head else '"'
    is_whole = len(head) < _SAMPLE
    before = 0
    if separator := _SEPARATOR_LINE.match(head):
        head, before = head[separator.end() :], 1
        delimiter = separator[1]
    else:
        delimiter = _find_delimiter(head, escape, is_whole=is_whole)
    records = [*_read(head, delimiter, escape, is_whole=is_whole)]
    filled = [(line, record) for line, record in records if any(record)]
    if not filled:
        raise ValueError("the file is empty")
    width = _find_width([record for _, record in filled])
    first = next((at for at, (_, one) in enumerate(filled) if not _is_title(one, width)), 0)
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


def open_reader(
    lines: Iterable[str], delimiter: str, escape: str, *, is_strict: bool = False
) -> Any:
    """Return the records of lines; a strict reader raises `csv.Error` for a malformed one."""
    is_doubled = escape == '"'
    return csv.reader(
        lines,
        delimiter=delimiter,
        doublequote=is_doubled,
        escapechar=None if is_doubled else escape,
        strict=is_strict,
    )


def _find_delimiter(head: str, escape: str, *, is_whole: bool) -> str:
    """Return the delimiter with which most records have the same number of values."""
    best, most = ",", 0.0
    for delimiter in _DELIMITERS:
        records = [
            record for _, record in _read(head, delimiter, escape, is_whole=is_whole) if any(record)
        ]
        if not records:
            continue
        width = _find_width(records)
        share = sum(len(record) == width for record in records) / len(records)
        if width > 1 and share > most:
            best, most = delimiter, share
    return best


def _find_width(records: Sequence[Record]) -> int:
    """Return the most frequent number of values; of two that are equally frequent, the first."""
    return Counter(map(len, records)).most_common(1)[0][0]


def _read(
    head: str, delimiter: str, escape: str, *, is_whole: bool
) -> Iterator[tuple[int, Record]]:
    """Yield the records with their last lines, without one that is cut off."""
    lines = head.splitlines(keepends=True)
    reader = open_reader(lines if is_whole else lines[:-1], delimiter, escape)
    try:
        for record in reader:
            yield reader.line_num, record
    except csv.Error:  # a value without an end
        return


def _is_title(record: Record, width: int) -> bool:
    """Return whether a record stands above the table: it has one value, of several columns."""
    return sum(map(bool, record)) == 1 and width > 1 and (len(record) == 1 or width > 2)


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
