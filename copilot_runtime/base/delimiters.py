"""The delimiter of a table in text."""

import csv
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

_DELIMITERS = "\t;|,"
"""In this order where two fit: a comma may be in numbers and sentences."""
_FRACTION = re.compile(r"\s*\"?[+-]?[\d.' ]*\d,\d+\"?\s*")


def find_delimiter(lines: Sequence[str], escape: str = '"') -> tuple[str, float]:
    """Return the delimiter with which most records have the same number of values.

    The second value is their share of all records: 0 if the lines have no delimiter.
    """
    below = [line for line in lines[1:] if line.strip()]
    if below and "," not in lines[0] and all(map(_FRACTION.fullmatch, below)):
        return ";", 0.0  # fractions below one name
    best, most = ",", 0.0
    for delimiter in _DELIMITERS:
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
