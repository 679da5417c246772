"""Where the columns of a table of texts are: its delimiter, its header, and the lines around it."""

import csv
import io
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, NamedTuple

from copilot_runtime.base.delimiters import find_delimiter, open_reader

SAMPLE = 256 * 1024
"""Number of characters at the beginning of a file that show its layout."""
_HEAD = 30
"""Lines that may stand above the header."""

SEPARATOR_LINE = re.compile(r'"?sep=(.)"?[ \t]*(?:\r?\n|\r|\Z)')
"""The first line of files that Excel should open."""

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

_UNSEEN = "\u200b\u200c\u200d\u200e\u200f\u2060\ufeff"
"""Invisible characters, which come with copied text."""

_REMARK = re.compile(
    r"(?:[*\u2020\u2021\u00a7\u00b9\u00b2\u00b3]+|\(?\d{1,2}\)|\[\d{1,2}\]|\u00a9)\s*\w"
    r"|(?:notes?|sources?|remarks?|legend|footnotes?|quellen?|hinweise?|anmerkung(?:en)?|stand"
    r"|notas?|fuentes?|remarques?|fontes?|opmerking(?:en)?|bron|uwagi?|\u017ar\u00f3d\u0142o"
    r"|\u0438\u0441\u0442\u043e\u0447\u043d\u0438\u043a|\u043f\u0440\u0438\u043c\u0435\u0447\u0430\u043d\u0438\u0435"
    r"|\u6ce8|\u51fa\u5178|\u6765\u6e90)\s*\d{0,2}\s*[:.\uff1a].*\w",
    re.IGNORECASE,
)
"""The beginning of a note below a table."""
_SENTENCE = re.compile(r"(?:\S+\s+){4,}\S+[.!]|.{12,}\u3002", re.DOTALL)

Record = Sequence[str]
_Line = tuple[int, Record]
"""The last line of a record, and its values."""
_Shape = Literal["empty", "year", "date", "number", "text"]


class TablePlace(NamedTuple):
    """Where a further table is in a file. Lines count from 1."""

    start: int
    """The line at which it begins, with its title."""
    skipped: int
    """The line of its header, or the last one before its values."""
    header: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How the lines of a file are read."""

    delimiter: str
    escape: str
    """The character that escapes a quotation mark: another one, or a backslash."""
    skipped: int
    """Lines before the first one with values."""
    header: tuple[str, ...]
    """The names of the columns as the file has them; empty if it has none."""
    names: tuple[str, ...]
    """One for each column; those without a name are `column0`, `column1`, ..."""
    unnamed: frozenset[int] = frozenset()
    """The columns to which the file gives no name."""
    has_comments: bool = False
    """`True` if the file begins with comments; there may be others between its lines."""
    is_folded: bool = False
    """`True` if a value before those of the table has several lines."""
    others: tuple[TablePlace, ...] = ()
    """Further tables below."""
    notes: tuple[str, ...] = ()
    """Sentences about doubtful choices."""


@dataclass(frozen=True, slots=True)
class Header:
    """The names of the columns of a table."""

    position: int
    """That of their last record, or of the first one with values if the table has no header."""
    cells: tuple[str, ...]
    """A text for each column; empty if the table has no header."""
    is_joined: bool = False
    """`True` if it is of two records, such as names and their units."""
    has_index: bool = False
    """`True` if the file gives no name to the first column, as programs for statistics do."""


def find_layout(head: str, delimiter: str = "", *, is_whole: bool = True) -> Layout:
    """Return the layout of a file by its first characters, with the delimiter if it is known.

    Raises `ValueError` if it is empty.
    """
    escape = "\\" if '\\"' in head and '""' not in head else '"'
    before = 0
    if not delimiter and (separator := SEPARATOR_LINE.match(head)):
        head, before = head[separator.end() :], 1
        delimiter = separator[1]
    lines = [*io.StringIO(head, newline="")]
    lines = lines if is_whole else lines[:-1]
    uncommented = [line for line in lines if not line.startswith("#")]
    delimiter = delimiter or find_delimiter(uncommented or lines, escape)[0]
    records = [*_read(lines, delimiter, escape)]
    filled = [(line, record) for line, record in records if any(record)]
    if not filled:
        raise ValueError("the file is empty")
    plain = [it for it in filled if not is_comment(it[1])]
    has_comments = bool(plain) and is_comment(filled[0][1])
    filled = plain if has_comments else filled
    own, others = _split(filled, _find_starts(records))
    header = find_header([record for _, record in own])
    line, first = own[header.position]
    notes: list[str] = []
    if header.position > header.is_joined or has_comments:
        notes.append("Lines above the header are left out.")
    if header.is_joined:
        notes.append("Two rows of names are joined.")
    if header.cells:
        names, skipped = header.cells, line
        if header.has_index:
            notes.append(
                "The header has no name for the first column, or else there are commas in numbers."
            )
    else:
        notes.append("The file has no header: its columns have numbers.")
        skipped = own[header.position - 1][0] if header.position else 0
        width = _find_width([record for _, record in own])
        names = ("",) * max(width, len(first))
    return Layout(
        delimiter=delimiter,
        escape=escape,
        skipped=before + skipped,
        has_comments=has_comments,
        is_folded=sum(it <= skipped for it, _ in records) < skipped,
        header=header.cells,
        names=_name_columns(names),
        unnamed=frozenset(at for at, name in enumerate(names) if not name.strip()),
        others=tuple(_locate(part, before) for part in others if part[0][0] > line),
        notes=tuple(notes),
    )


def _split(
    records: Sequence[_Line], starts: Sequence[int]
) -> tuple[list[_Line], list[list[_Line]]]:
    """Return the records of the first table, and those of each of the others."""
    parts: list[list[_Line]] = [[] for _ in range(len(starts) + 1)]
    for line, record in records:
        parts[bisect_right(starts, line)].append((line, record))
    if len(parts[0]) < 2 or max(len(record) for _, record in parts[0]) < 3:
        parts[0] = [*records]  # it may be about the file, such as its author
    return parts[0], parts[1:]


def _locate(records: Sequence[_Line], before: int) -> TablePlace:
    """Return where a table is, by its records with values."""
    header = find_header([record for _, record in records])
    position = header.position if header.cells else header.position - 1
    skipped = records[position][0] if position >= 0 else records[0][0] - 1
    return TablePlace(before + records[0][0], before + skipped, header.cells)


def find_header(records: Sequence[Record]) -> Header:
    """Return the header of a table by its first records with values."""
    first = _find_first(records, _find_width(records))
    cells, below = tuple(records[first]), records[first + 1 :]
    if not _is_header(cells, below) or _is_repeated(cells, below):
        return Header(first, ())
    if below and all(len(row) == len(cells) + 1 and row[-1] for row in below):
        return Header(first, ("", *cells), has_index=True)
    if below and _is_second_header(cells, below[0], below[1:]):
        return Header(first + 1, _join_names(cells, below[0]), is_joined=True)
    return Header(first, cells)


def count_remarks(records: Sequence[Record]) -> int:
    """Return how many records at the end are notes below the table: texts in its first column.

    None are if the row above them begins with such a text, too, as in a table of comments.
    """
    count = 0
    for at, record in enumerate(reversed(records), 1):
        values = [cell.strip() for cell in record if cell.strip()]
        if not values:
            continue
        is_first = bool(record[0].strip()) and is_remark(values[0])
        if len(values) > 1 or not is_first:
            return 0 if is_first else count
        count = at
    return count


def is_remark(text: str) -> bool:
    """Return whether a text is a note, such as `* provisional` or `Source: census`."""
    return bool(_REMARK.match(text) or _SENTENCE.fullmatch(text))


def is_comment(record: Record) -> bool:
    """Return whether a record is a comment, such as `# made by a till`."""
    return record[0].startswith("#") and sum(map(bool, record)) == 1


def _find_width(records: Sequence[Record]) -> int:
    """Return the most frequent number of values; of two that are equally frequent, the first."""
    return Counter(map(len, records)).most_common(1)[0][0]


def _read(lines: Sequence[str], delimiter: str, escape: str) -> Iterator[_Line]:
    """Yield the records with their last lines, without one that is cut off."""
    reader = open_reader(lines, delimiter, escape)
    try:
        for record in reader:
            yield reader.line_num, record
    except csv.Error:  # a value without an end
        return


def _find_starts(records: Sequence[_Line]) -> list[int]:
    """Return the lines at which tables begin below an empty line and another table.

    They begin with the names of columns, above which there may be a title.
    """
    starts: list[int] = []
    begin = width = 0
    for has_values, group in groupby(records, key=lambda it: any(it[1])):
        if not has_values:
            continue
        lines, rows = zip(*group, strict=True)
        titles = next((at for at, row in enumerate(rows) if sum(map(bool, row)) > 1), len(rows))
        begin = begin or lines[0]
        if titles == len(rows):
            continue
        first, below = rows[titles], rows[titles + 1 :]
        is_other = len(first) != width and {len(row) for row in below} == {len(first)}
        if width and _names_values(first, below, is_other=is_other):
            starts.append(begin)
        begin, width = 0, len(first)
    return starts


def _names_values(first: Record, below: Sequence[Record], *, is_other: bool = False) -> bool:
    """Return whether a record names columns: it has texts, and those below one have others.

    Of a table of another width than that above it, all values may be texts.
    """
    names = _list_names(first)
    return len(names) > 1 and (is_other or any(_has_no_texts(below, at) for at in names))


def _list_names(record: Record) -> Sequence[int]:
    """Return the columns of a record that have values; none if one of them is no name."""
    found = [at for at, cell in enumerate(record) if cell.strip()]
    texts = (record[at].strip() for at in found)
    are_names = all(_find_shape(it) == "text" and it.lower() not in _MISSING for it in texts)
    return found if are_names else ()


def _has_no_texts(records: Sequence[Record], at: int) -> bool:
    shapes = _find_shapes(records, at)
    return bool(shapes) and "text" not in shapes


def _find_shapes(records: Sequence[Record], at: int) -> set[_Shape]:
    shapes: set[_Shape] = {_find_shape(row[at]) for row in records if at < len(row)}
    shapes.discard("empty")
    return shapes


def _find_first(records: Sequence[Record], width: int) -> int:
    """Return the position of the record with the names of most columns, or of the first values."""
    for at, record in enumerate(records[:_HEAD]):
        is_alone = sum(map(bool, record)) == 1 and at + 1 < len(records)
        is_title = is_alone and _names_values(records[at + 1], records[at + 2 :])
        is_narrow = len(record) < width or width > 2 or is_title
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
            shapes = _find_shapes(below, at)
            if not shapes or shapes <= {"year", "date"} or (shape == "date" and "date" in shapes):
                return False
    return True


def _is_second_header(first: Record, second: Record, below: Sequence[Record]) -> bool:
    """Return whether the record below a header has names, too: texts above other values.

    It has none for the first column.
    """
    if len(first) != len(second) or not first[0].strip() or second[0].strip():
        return False
    names = _list_names(second)
    return bool(names) and all(_has_no_texts(below, at) for at in names)


def _join_names(first: Record, second: Record) -> tuple[str, ...]:
    """Return the names of two records, of which those in the first may span several columns."""
    names: list[str] = []
    above = ""
    for name, below in zip(first, second, strict=True):
        above = name if name.strip() or not below.strip() else above
        names.append(f"{above} {below}".strip())
    return tuple(names)


def _is_repeated(first: Record, below: Sequence[Record]) -> bool:
    """Return whether a record is one of the rows: of these, more than a third have a text of it.

    Rows with most of its texts do not count: they are the header again.
    """
    cells = [(at, cell) for at, cell in enumerate(first) if cell.strip()]
    counts = [sum(at < len(row) and row[at] == cell for at, cell in cells) for row in below]
    rows = [count for count in counts if count * 2 <= len(cells)]
    return len(cells) > 1 and sum(map(bool, rows)) * 3 > len(rows)


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
        base = " ".join(cell.strip(_UNSEEN).split()) or f"column{at}"
        name, number = base, 1
        while name.lower() in used:
            name, number = f"{base}_{number}", number + 1
        used.add(name.lower())
        names.append(name)
    return tuple(names)
