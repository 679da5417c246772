"""The delimiter of a table in text."""

import csv
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

_DELIMITERS = "\t;|,"
"""In this order where two fit: a comma may be in numbers and sentences."""
_ALONE = re.compile(r"\s*\"?[+-]?(?:[\d.' ]*\d,\d+|\d{1,3}(?:,\d{3})+\.\d+)\"?\s*")
"""A line with a single number: `1,5` or `1,234.50`."""
_NUMBER = re.compile(r"\s*[+-]?\d[\d.,' ]*")


def find_delimiter(lines: Sequence[str], escape: str = '"') -> tuple[str, float]:
    """Return the delimiter with which most records have the same number of values.

    The second value is their share of all records: 0 if the lines have no delimiter.
    """
    below = [line for line in lines[1:] if "," in line]
    if below and "," not in lines[0] and all(map(_ALONE.fullmatch, below)):
        return ";", 0.0  # numbers below one name
    # commas in the lines of one column are those of sentences
    best, most = next((it for it in _DELIMITERS if not any(it in line for line in lines)), ","), 0.0
    for delimiter in _DELIMITERS:
        if delimiter == "," and most > 0.5 and _has_commas_in_numbers(lines, best, escape):
            break
        widths: Counter[int] = Counter()
        try:
            for record in open_reader(lines, delimiter, escape):
                widths[len(record)] += any(record)
        except csv.Error:  # a value without an end
            pass
        if not widths.total():
            continue
        width, count = widths.most_common(1)[0]
        share = count / widths.total()
        if width > 1 and share > most:
            best, most = delimiter, share
    return best, most


def _has_commas_in_numbers(lines: Sequence[str], delimiter: str, escape: str) -> bool:
    try:
        records = [*open_reader(lines, delimiter, escape)]
    except csv.Error:
        return False
    cells = (cell for record in records for cell in record if "," in cell)
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
