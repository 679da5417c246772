"""The shapes of values in texts: which of them are numbers and dates, and which may be names."""

import re
from collections.abc import Sequence
from typing import Literal

_YEAR = re.compile(r"(?:19|20)\d\d(?:[-/.](?:0?[1-9]|1[0-2]))?")
_DATE = re.compile(
    r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}(?:[T ].*)?|\d{1,2}:\d{2}(?::\d{2}.*)?(?: [AaPp][Mm])?"
    r"|\d{1,2}[ -][A-Za-z]{3,9}[ -]\d{4}.*|[A-Za-z]{3,9} \d{1,2}, \d{4}.*"
)
_NUMBER = re.compile(
    r"(?i:true|false)|[-+(]?[^\w\s]?\s?\d[\d\s.,'\u2019]*(?:[eE][-+]?\d+)?\s?[^\w\s]?\)?"
)
_MISSING = frozenset(("-", "n/a", "na", "nan", "null", "none", "."))
"""Texts that stand for a value that is missing, in lower case."""

PAGE_NUMBER = (
    "(?i)[-\u2013\\s]*(?:(?:page|seite|p[a\u00e1]gin[ae]|p[a\u00e1]g\\.|p\\.|s\\.|sida|side|strona|str\\."
    "|\u0441\u0442\u0440\u0430\u043d\u0438\u0446\u0430|\u0441\u0442\u0440\\.)\\s*[0-9]{1,5}"
    "(?:\\s*(?:of|von|de|di|af|av|van|z|sur|\u0438\u0437|/)\\s*[0-9]{1,5})?"
    "|\u7b2c?\\s*[0-9]{1,5}\\s*(?:\u9875|(?:/\\s*[0-9]{1,5}\\s*)?\u30da\u30fc\u30b8))[-\u2013\\s]*"
)
"""A regular expression of `Page 1 of 2`, as it stands between rows; DuckDB understands it, too."""
_PAGE_NUMBER = re.compile(PAGE_NUMBER)
RULE = r"[-=_+|:\s]*(?:---|===|___|:--|--:)[-=_+|:\s]*"
"""A regular expression of a line of dashes; DuckDB understands it, too."""
_RULE = re.compile(r"[-=_+|:\s]*")
RULES = ("---", "===", "___", ":--", "--:")
DITTO = "\u3003"
"""The mark that stands for the value above it; others, such as `"`, are values, too."""

_SPACES = " \t\n\r\u00a0\ufeff"
"""Spaces, and the mark at the beginning of a file, which may stand around the names of columns."""

Record = Sequence[str]
Shape = Literal["empty", "year", "date", "number", "text"]


def names_values(first: Record, below: Sequence[Record], *, is_other: bool = False) -> bool:
    """Return whether a record names columns: it has texts, and those below one have others.

    Of a table of another width than that above it, all values may be texts.
    """
    names = list_names(first)
    return len(names) > 1 and (is_other or any(has_no_texts(below, at) for at in names))


def repeats(names: Record, record: Record) -> bool:
    """Return whether a record is the names of columns again, but for spaces around them."""
    if not names or len(record) != len(names):
        return False
    if record[0].strip(_SPACES) != names[0].strip(_SPACES):  # as in most rows
        return False
    return all(a.strip(_SPACES) == b.strip(_SPACES) for a, b in zip(names, record, strict=True))


def list_names(record: Record) -> Sequence[int]:
    """Return the columns of a record that have values; none if one of them is no name."""
    found = [at for at, cell in enumerate(record) if cell.strip()]
    texts = (record[at].strip() for at in found)
    are_names = all(find_shape(it) == "text" and not is_missing(it) for it in texts)
    return found if are_names else ()


def has_no_texts(records: Sequence[Record], at: int) -> bool:
    """Return whether a column has values, and none of them is a text."""
    shapes = find_shapes(records, at)
    return bool(shapes) and "text" not in shapes


def is_missing(text: str) -> bool:
    """Return whether a text stands for a value that is missing, such as `n/a`."""
    return text.strip().lower() in _MISSING


def is_page_number(text: str) -> bool:
    """Return whether a text is a page number, such as `Page 1 of 2`."""
    is_short = len(text) <= 60  # the pattern takes quadratic time
    return is_short and bool(_PAGE_NUMBER.fullmatch(text))


def is_rule(record: Record) -> bool:
    """Return whether a record is a line of dashes, as below the header of a printed table."""
    first = next(filter(None, record), "").lstrip()[:1]
    text = "".join(record) if first and first in "-=_+|:" else ""
    return any(it in text for it in RULES) and bool(_RULE.fullmatch(text))


def find_shapes(records: Sequence[Record], at: int) -> set[Shape]:
    """Return the shapes of the values of a column."""
    shapes: set[Shape] = {find_shape(row[at]) for row in records if at < len(row)}
    shapes.discard("empty")
    return shapes


def find_shape(cell: str) -> Shape:
    """Return the shape of a value."""
    cell = cell.strip()
    if not cell:
        return "empty"
    if _YEAR.fullmatch(cell):
        return "year"
    if _DATE.fullmatch(cell):
        return "date"
    return "number" if _NUMBER.fullmatch(cell) else "text"
