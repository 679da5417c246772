"""The delimiter of a table in text."""

import csv
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from copilot_runtime.base.shapes import Record, has_no_texts

_DELIMITERS = "\t;|,\1\x1f^~"
"""In this order where two fit: a comma may be in numbers and sentences."""
_NOTES = 10
"""Notes below a table of few rows, if its values are in quotation marks."""
_ALONE = re.compile(r"\"?[+-]?(?:[\d.' ]*\d,\d+|\d{1,3}(?:,\d{3})+\.\d+)\"?")
"""A line with a single number: `1,5` or `1,234.50`."""
_NUMBER = re.compile(r"\s*[+-]?\d[\d.,' ]*")


def find_delimiter(lines: Sequence[str], escape: str = '"') -> tuple[str, float]:
    """Return the delimiter with which most records have the same number of values.

    The second value is their share of all records: 0 if the lines have no delimiter. A delimiter
    that fits all lines but titles and notes is better than one that fits more lines.
    """
    below = [line for line in lines[1:] if "," in line]
    is_titled = len(lines) > 2 and ", " in lines[0] and "," not in lines[1]
    has_name = is_titled or "," not in next(iter(lines), "")
    if below and has_name and all(_ALONE.fullmatch(line.strip()) for line in below):
        return ";", 0.0  # numbers below one name
    # commas in the lines of one column are those of sentences
    best = next((it for it in _DELIMITERS if not any(it in line for line in lines)), ",")
    most, found = (False, 0.0), 0.0
    for delimiter in _DELIMITERS:
        if delimiter in "^~" and any(delimiter not in line for line in lines if line.strip()):
            continue
        if delimiter == "," and most > (False, 0.5) and _has_commas_in_numbers(lines, best, escape):
            break
        records = _read_records(lines, delimiter, escape)
        if not records:
            continue
        widths = [*map(len, records)]
        is_prose = _is_in_sentences(lines, delimiter)
        if is_prose and widths[0] == 1 and not _has_numbers(records):
            continue
        width, count = Counter(widths).most_common(1)[0]
        notes = _NOTES if any(f'"{delimiter}"' in line for line in lines[:_NOTES]) else 0
        rows = 0 if is_prose else _count_rows(widths, _find_columns(widths, notes), notes)
        share = (rows or count) / len(widths)
        rank = (True, float(rows)) if rows else (False, share)
        if (rows or width > 1) and rank > most:
            best, most, found = delimiter, rank, share
    return best, found


def find_width(widths: Sequence[int]) -> int:
    """Return the number of values of most records but titles and notes.

    Of two that are equally frequent, it is the first.
    """
    width = _find_columns(widths, _NOTES)
    return width if _count_rows(widths, width, _NOTES) else Counter(widths).most_common(1)[0][0]


def _read_records(lines: Sequence[str], delimiter: str, escape: str) -> list[Record]:
    """Return the records that are not empty."""
    records: list[Record] = []
    with suppress(csv.Error):  # a value without an end
        records += (it for it in open_reader(lines, delimiter, escape) if any(it))
    return records


def _find_columns(widths: Sequence[int], notes: int) -> int:
    """Return the most frequent number of values above 1, if it may be that of a table; or 1."""
    counts = Counter(widths)
    ranks = {it: (_count_rows(widths, it, notes), count) for it, count in counts.items() if it > 1}
    return max(ranks, key=ranks.__getitem__, default=1)


def _has_numbers(records: Sequence[Record]) -> bool:
    """Return whether a column other than the first has numbers below its first text."""
    rows = [record for record in records if len(record) > 1]
    return any(has_no_texts(rows[1:], at) for at in range(1, max(map(len, rows), default=0)))


def _count_rows(widths: Sequence[int], width: int, most_notes: int) -> int:
    """Return the number of rows of a table with titles above it and notes below it.

    It is 0 if fewer than nine of ten records between them have its width, or too few. There may be
    `most_notes`, or as many as rows.
    """
    rows = [at for at, it in enumerate(widths) if it == width]
    if width < 2 or len(rows) < 2:
        return 0
    titles, notes = rows[0], len(widths) - rows[-1] - 1
    most = max(len(rows), most_notes)
    is_whole = len(rows) >= 0.9 * (len(widths) - titles - notes)
    return len(rows) if is_whole and titles <= 5 * len(rows) and notes <= most else 0


def _is_in_sentences(lines: Sequence[str], delimiter: str) -> bool:
    """Return whether most commas or semicolons stand before a space."""
    if delimiter not in ",;":
        return False
    count = sum(line.count(delimiter) for line in lines)
    return 2 * sum(line.count(f"{delimiter} ") for line in lines) > count


def _has_commas_in_numbers(lines: Sequence[str], delimiter: str, escape: str) -> bool:
    """Return whether all commas of records with several values are in numbers."""
    try:
        records = [*open_reader(lines, delimiter, escape)]
    except csv.Error:
        return False
    cells = (cell for record in records if len(record) > 1 for cell in record if "," in cell)
    return all(map(_NUMBER.fullmatch, cells))


def open_reader(
    lines: Iterable[str], delimiter: str, escape: str = '"', *, is_strict: bool = False
) -> Any:
    """Return the records of lines; a strict reader raises `csv.Error` for a malformed one.

    `escape` is the character before a quotation mark in a value: another one, or a backslash.
    """
    is_doubled = escape == '"'
    return csv.reader(
        lines,
        delimiter=delimiter,
        doublequote=is_doubled,
        escapechar=None if is_doubled else escape,
        strict=is_strict,
    )
