"""Where the columns of a table of texts are: its delimiter, its header, and the lines around it."""

import csv
import io
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from copilot_runtime.base.boundaries import Line, find_boundaries
from copilot_runtime.base.delimiters import find_delimiter, find_width, open_reader
from copilot_runtime.base.shapes import (
    RULES,
    Record,
    find_shape,
    find_shapes,
    has_no_texts,
    is_rule,
    list_names,
    names_values,
)

SAMPLE = 256 * 1024
"""Number of characters at the beginning of a file that show its layout."""
_HEAD = 30
"""Lines that may stand above the header."""

SEPARATOR_LINE = re.compile(r'"?sep=(.)"?[ \t]*(?:\r?\n|\r|\Z)')
"""The first line of files that Excel should open."""

_UNSEEN = "\0\u200b\u200c\u200d\u200e\u200f\u2060\ufeff"
"""Invisible characters, which come with copied text."""

_REMARK = re.compile(
    r"\(?\d+ (?:rows?|records?)(?: selected| affected| returned)?\)?\.?$|completion time:"
    r"|(?:[*\u2020\u2021\u00a7\u00b9\u00b2\u00b3]+|\(?\d{1,2}\)|\[\d{1,2}\]|\u00a9)\s*\w"
    r"|(?:notes?|sources?|remarks?|legend|footnotes?|quellen?|hinweise?|anmerkung(?:en)?|stand"
    r"|notas?|fuentes?|remarques?|fontes?|opmerking(?:en)?|bron|uwagi?|\u017ar\u00f3d\u0142o"
    r"|\u0438\u0441\u0442\u043e\u0447\u043d\u0438\u043a|\u043f\u0440\u0438\u043c\u0435\u0447\u0430\u043d\u0438\u0435"
    r"|\u6ce8|\u51fa\u5178|\u6765\u6e90)\s*(?:\d{1,2}\s*)?[:.\uff1a].*\w",
    re.IGNORECASE,
)
"""The beginning of a note below a table."""
_PAGE = re.compile(
    r"\s*(?:<(?:!doctype|html|head|body|table|\?xml)\b|[\[{]\s*[{\"]\s*[\"\w]|PK\x03\x04)",
    re.IGNORECASE,
)
"""The beginning of other formats, which programs name `.csv` or `.xls`."""
_DIGITS = re.compile(r"\d+")
_ESCAPED = re.compile(r'\\"(?![,;\t|\r\n]|\Z)')
"""A quotation mark within a value, and not behind a path that ends in a backslash."""
_PAIR = re.compile(r"\d+,\d+")
_ALIGNED = re.compile(r"\S {2,}\S+ {2,}\S")
_SENTENCE = re.compile(r"(?:\S+\s+){4,}\S+[.!]|.{12,}\u3002", re.DOTALL)


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
    has_rules: bool = False
    """`True` if lines of dashes stand between the others."""
    has_comments: bool = False
    """`True` if the file begins with comments; there may be others between its lines."""
    is_folded: bool = False
    """`True` if a value before those of the table has several lines."""
    starts: tuple[int, ...] = ()
    """The lines at which further tables begin, with their titles. Lines count from 1."""
    doubts: tuple[int, ...] = ()
    """The lines that may begin another table, or be rows with texts in place of numbers."""
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
    escape = "\\" if _ESCAPED.search(head) and '""' not in head else '"'
    before = 0
    if not delimiter and (separator := SEPARATOR_LINE.match(head)):
        head, before = head[separator.end() :], 1
        delimiter = separator[1]
    lines = [*io.StringIO(head, newline="")]
    if not is_whole and not (lines := lines[:-1]):
        raise ValueError(f"its first line has more than {SAMPLE:,} characters")
    if _PAGE.match(head):
        raise ValueError("it is HTML, XML, JSON or packed")
    may_have_rules = any(it in head for it in RULES)
    plain_lines = [
        line for line in lines if not (line.startswith("#") or (may_have_rules and is_rule([line])))
    ]
    delimiter = delimiter or find_delimiter(plain_lines or lines, escape)[0]
    read = [*_read(lines, delimiter, escape)]
    records = [it for it in read if not is_rule(it[1])] if may_have_rules else read
    filled = [(line, record) for line, record in records if any(record)]
    if not filled:
        raise ValueError("the file is empty")
    plain = [it for it in filled if not is_comment(it[1])]
    has_comments = bool(plain) and is_comment(filled[0][1])
    filled = plain if has_comments else filled
    boundaries = [*find_boundaries(records)]
    starts = [it.line for it in boundaries if it.is_certain]
    begin, end = _find_first_table(filled, starts)
    own = [record for _, record in filled[begin:end]]
    header = find_header(own)
    position = begin + header.position
    line, first = filled[position]
    names, skipped = header.cells, line
    if not names:
        skipped = filled[position - 1][0] if position else 0
        names = ("",) * max(find_width([*map(len, own)]), len(first))
    return Layout(
        delimiter=delimiter,
        escape=escape,
        skipped=before + skipped,
        has_rules=len(records) < len(read),
        has_comments=has_comments,
        is_folded=sum(it <= skipped for it, _ in read) < skipped,
        header=header.cells,
        names=_name_columns(names),
        unnamed=frozenset(at for at, name in enumerate(names) if not name.strip()),
        starts=tuple(before + it for it in starts if it > line),
        doubts=tuple(before + it.line for it in boundaries if not it.is_certain and it.line > line),
        notes=tuple(_describe(header, own, position > header.is_joined or has_comments)),
    )


def _describe(header: Header, records: Sequence[Record], is_below: bool) -> Iterator[str]:
    """Yield sentences about what is not certain about a header."""
    if is_below:
        yield "Lines above the header are left out."
    if header.is_joined:
        yield "Two rows of names are joined."
    if header.has_index:
        yield "The header has no name for the first column, or else there are commas in numbers."
    if not header.cells:
        yield "The file has no header: its columns have numbers."
    if len(header.cells) == 1:
        yield from _describe_only_name(header.cells[0])
        if any(_PAIR.fullmatch(record[0]) for record in records):
            yield "Each line is one value: its commas are those of fractions."
    if _has_twins(header.cells):
        yield (
            "The names of the columns are there twice, as those of two tables beside each other: "
            "the second ones have numbers."
        )


def _find_first_table(records: Sequence[Line], starts: Sequence[int]) -> tuple[int, int]:
    """Return the positions of the records of the first table, which may end where others begin.

    Those above the first start may be about the file, such as its author: alone if they have
    different widths, else as rows above the header.
    """
    ends = [bisect_left(records, (it,)) for it in starts] + [len(records)] * 2
    above = [record for _, record in records[: ends[0]]]
    widths = {len(record) for record in above if sum(map(bool, record)) > 1}
    if not starts or len(above) < 2:
        return 0, len(records)
    width = max(widths, default=0)
    next_width = max(len(record) for _, record in records[ends[0] : ends[1]])
    if width < next_width and _has_labels(above):
        return ends[0], ends[1]
    if width < 3:
        if next_width <= width:
            return 0, ends[0]
        rows = [record for record in above if sum(map(bool, record)) > 1]  # below a title
        is_table = len(above) > _HEAD or (bool(rows) and names_values(rows[0], rows[1:]))
        return (0, len(records)) if is_table else (ends[0], ends[1])
    return (0, ends[0]) if len(widths) == 1 or len(above) > 5 else (ends[0], ends[1])


def _has_labels(records: Sequence[Record]) -> bool:
    """Return whether records are values with labels, such as `Account:`, and no table."""
    labels = sum(record[0].rstrip().endswith(":") for record in records)
    is_padded = len(records) <= 5 and not records[0][-1].strip()
    return labels * 2 > len(records) or is_padded


def find_header(records: Sequence[Record]) -> Header:
    """Return the header of a table by its first records with values."""
    first = _find_first(records, find_width([*map(len, records)]))
    cells, below = tuple(records[first]), records[first + 1 :]
    if not _is_header(cells, below) or _is_repeated(cells, below):
        return Header(first, ())
    if below and all(len(row) == len(cells) + 1 and row[-1] for row in below):
        return Header(first, ("", *cells), has_index=True)
    if below and _is_second_header(cells, below[0], below[1:]):
        return Header(first + 1, _join_names(cells, below[0]), is_joined=True)
    if first and _has_groups(records[first - 1], cells):
        return Header(first, _join_names(records[first - 1], cells), is_joined=True)
    return Header(first, cells)


def count_remarks(records: Sequence[Record]) -> int:
    """Return how many records at the end are notes below the table: texts in its first column.

    The last ones may have commas. None are if the row above them begins with such a text, too, as
    in a table of comments.
    """
    count = 0
    for at, record in enumerate(reversed(records), 1):
        values = [cell.strip() for cell in record if cell.strip()]
        if not values:
            continue
        if not (record[0].strip() and is_remark(values[0])):
            return count
        if len(values) == 1:
            count = at
        elif count:
            return 0
    return count


def is_remark(text: str) -> bool:
    """Return whether a text is a note, such as `* provisional` or `Source: census`."""
    return bool(_REMARK.match(text) or _SENTENCE.fullmatch(text))


def is_comment(record: Record) -> bool:
    """Return whether a record is a comment, such as `# made by a till`."""
    return record[0].startswith("#") and sum(map(bool, record)) == 1


def _describe_only_name(name: str) -> Iterator[str]:
    """Yield a sentence if the name of the only column looks like several."""
    if _ALIGNED.search(name.strip()):
        yield "Each line is one value: spaces between columns are no delimiter. Save it as CSV."
    elif name.count(",") + name.count(";") > 1:
        yield "Each line is one value, in quotation marks as a whole. Save it anew as CSV."


def _has_twins(names: Sequence[str]) -> bool:
    """Return whether the second half of the names repeats the first one."""
    names = [it for name in names if (it := name.strip().lower())]
    half = len(names) // 2
    return half > 1 and names[:half] == names[half:]


def _read(lines: Sequence[str], delimiter: str, escape: str) -> Iterator[Line]:
    """Yield the records with their last lines, without one that is cut off."""
    reader = open_reader(lines, delimiter, escape)
    try:
        for record in reader:
            yield reader.line_num, record
    except csv.Error:  # a value without an end
        return


def _find_first(records: Sequence[Record], width: int) -> int:
    """Return the position of the record with the names of most columns, or of the first values."""
    if width == 1:
        return _find_only_name(records)
    for at, record in enumerate(records[:_HEAD]):
        if len(record) > width + 1 and [len(it) for it in records[at + 1 : at + 3]] == [width] * 2:
            continue  # it is about the file
        is_alone = sum(map(bool, record)) == 1 and at + 1 < len(records)
        is_title = is_alone and names_values(records[at + 1], records[at + 2 :])
        is_narrow = len(record) < width or width > 2 or is_title
        if not is_narrow or sum(map(bool, record)) >= max(2, 0.6 * width):
            if at and _is_header(record, records[at + 1 :]):
                return at
            break
    found = next((at for at, record in enumerate(records) if not _is_title(record, width)), 0)
    has_names = not found or _is_header(records[found], records[found + 1 :])
    return found if has_names or len(records[found - 1]) < width else found - 1


def _find_only_name(records: Sequence[Record]) -> int:
    """Return the position of the name of a single column: of several texts, that above numbers."""
    shapes = (find_shape(record[0]) for record in records)
    titles = sum(1 for _ in takewhile(lambda it: it == "text", shapes))
    below = [record for record in records[titles:] if not is_remark(record[0])]
    is_above = 1 < titles <= _HEAD and has_no_texts(below, 0)
    return titles - 1 if is_above else 0


def _has_numbers_inside(record: Record) -> bool:
    """Return whether a record is a line with several numbers, such as that of a log."""
    return len(record) == 1 and len(_DIGITS.findall(record[0])) > 2


def _is_title(record: Record, width: int) -> bool:
    """Return whether a record stands above the table: it has one text, of several columns."""
    values = [cell for cell in record if cell]
    is_one = len(values) == 1 and width > 1 and (len(record) == 1 or width > 2)
    return is_one and find_shape(values[0]) == "text"


def _is_header(first: Record, below: Sequence[Record]) -> bool:
    """Return whether a record names the columns: years and dates may be names, numbers are not."""
    if below and all(map(_has_numbers_inside, (first, *below[:_HEAD]))):
        return False
    for at, cell in enumerate(first):
        if "@" in cell and all("@" in row[at] for row in below if at < len(row)):
            return False
        shape = find_shape(cell)
        if shape == "number":
            return False
        if shape in ("year", "date"):
            shapes = find_shapes(below, at)
            if not shapes or shapes <= {"year", "date"} or (shape == "date" and "date" in shapes):
                return False
    return True


def _is_second_header(first: Record, second: Record, below: Sequence[Record]) -> bool:
    """Return whether the record below a header has names, too: texts above other values.

    It has none for the first column.
    """
    if len(first) != len(second) or not first[0].strip() or second[0].strip():
        return False
    names = list_names(second)
    return bool(names) and all(_has_numbers(below, at) for at in names)


def _has_groups(above: Record, names: Record) -> bool:
    """Return whether the record above names groups of columns, which tell equal names apart."""
    if len(above) != len(names) or sum(map(bool, above)) < 2:
        return False
    plain, joined = (
        [name.strip().lower() for name in row if name.strip()]
        for row in (names, _join_names(above, names))
    )
    return len({*plain}) < len(plain) and len({*joined}) == len(joined)


def _has_numbers(records: Sequence[Record], at: int) -> bool:
    """Return whether most values of a column are no texts."""
    shapes = [it for row in records if at < len(row) and (it := find_shape(row[at])) != "empty"]
    return bool(shapes) and shapes.count("text") * 2 < len(shapes)


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

    Rows with most of its texts do not count: they are the header again. A text above numbers is
    the name of a column.
    """
    if any(find_shape(it) == "text" and has_no_texts(below, at) for at, it in enumerate(first)):
        return False
    cells = [(at, cell) for at, cell in enumerate(first) if cell.strip()]
    counts = [sum(at < len(row) and row[at] == cell for at, cell in cells) for row in below]
    rows = [count for count in counts if count * 2 <= len(cells)]
    return len(cells) > 1 and sum(map(bool, rows)) * 3 > len(rows)


def _name_columns(cells: Record) -> tuple[str, ...]:
    """Return a name for each column; no two differ in case alone."""
    names: list[str] = []
    used: set[str] = set()
    for at, cell in enumerate(cells):
        base = " ".join(cell.strip(_UNSEEN).split())
        base = (base[1:-1] if re.fullmatch('"[^"]+"', base) else base) or f"column{at}"
        name, number = base, 1
        while name.lower() in used:
            name, number = f"{base}_{number}", number + 1
        used.add(name.lower())
        names.append(name)
    return tuple(names)
