"""The tables on a sheet of a workbook.

A sheet may have several: below each other, where a row of names follows an empty row or has texts
in columns of numbers, or beside each other, where an empty column stands between tables of
different length, or where names are there again.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from copilot_runtime.base.shapes import find_shape, is_page_number, repeats
from copilot_runtime.base.workbook import Cell, Range, Row, SheetRows, Unit

Cells = Mapping[int, Cell]
"""Cells by the number of their column."""

_PLAIN = frozenset(("text", "number", "date"))
"""Kinds that differ from each other in one table only by mistake."""


@dataclass(slots=True)
class Part:
    """Rows between two empty ones, or a table of several such parts."""

    first: int
    last: int
    header: Cells
    """The first row with several values, or the first row."""
    header_row: int
    kinds: dict[int, set[str]]
    """Column → the kinds of its values below the header."""
    units: dict[int, set[Unit]]
    """Column → the units of its numbers."""
    ends: dict[int, int]
    """Column → its last row with a value."""
    is_remark: bool
    """`True` if each row is one text."""

    @property
    def has_header(self) -> bool:
        """`True` if the first row names columns of which one has no texts."""
        is_text = all(cell.kind == "text" for cell in self.header.values())
        return is_text and any(self.kinds.get(it, set()) - {"text"} for it in self.header)

    def names_others(self, cells: Cells) -> bool:
        """Return whether a row of texts may name the columns of a table below."""
        last = max(cells)
        plain = {at for at, it in self.kinds.items() if "text" not in it and at <= last}
        is_filled = bool(plain) and plain <= cells.keys()
        texts = {cell.text for cell in cells.values()}
        has_number = any(find_shape(text) == "number" for text in texts)
        return is_filled and not has_number and len(texts) == len(cells) > 1

    def repeats_names(self, cells: Cells) -> bool:
        """Return whether a row is the header again."""
        names, texts = ([it.text for it in row.values()] for row in (self.header, cells))
        return self.header.keys() == cells.keys() and len(names) > 1 and repeats(names, texts)

    def is_followed(self, other: "Part") -> bool:
        """Return whether a part that touches this one is certainly another table."""
        if other.last - other.header_row < 2 or not other.has_header:
            return False
        pairs = [(self.header.get(at), cell) for at, cell in other.header.items()]
        if shared := sum(above is not None and above.text == cell.text for above, cell in pairs):
            return shared * 2 <= len(pairs)
        is_other = all(it.ends.keys() == it.header.keys() for it in (self, other))
        kinds = [(self.kinds.get(at), other.kinds.get(at)) for at in other.header]
        return (is_other and self.ends.keys() != other.ends.keys()) or any(
            a and b and len(a) == len(b) == 1 and a != b and a | b <= _PLAIN for a, b in kinds
        )

    @property
    def is_page_number(self) -> bool:
        """`True` if its first row is a page number alone."""
        return len(self.header) == 1 and all(is_page_number(it.text) for it in self.header.values())

    def join(self, other: "Part") -> None:
        """Add the rows of a part below."""
        self.last = other.last
        self.ends |= other.ends
        for column, kinds in other.kinds.items():
            self.kinds.setdefault(column, set()).update(kinds)
        for column, units in other.units.items():
            self.units.setdefault(column, set()).update(units)


@dataclass(frozen=True, slots=True)
class SheetTable:
    """The place of a table on a sheet."""

    part: Part
    columns: Sequence[int]

    @property
    def first(self) -> int:
        """The number of its first row."""
        return self.part.first

    @property
    def last(self) -> int:
        """The number of its last row."""
        return self.part.last


@dataclass(slots=True)
class SheetLayout:
    """Where the tables of a sheet are, and what is doubtful about its cells.

    Add all rows of the sheet in order; then call `finish`.
    """

    tables: list[SheetTable] = field(default_factory=list[SheetTable])
    remarks: list[Part] = field(default_factory=list[Part])
    """Rows of one text each, such as titles."""
    merged: Sequence[Range] = ()
    counts: dict[str, tuple[int, str]] = field(default_factory=dict[str, tuple[int, str]])
    """Kind of doubt → number of cells, and the first one."""
    doubts: list[int] = field(default_factory=list[int])
    """The rows that may begin another table, or have texts in place of numbers."""
    _parts: list[Part] = field(default_factory=list[Part])
    _part: Part | None = None
    """The rows since the last empty one."""
    _above: Part | None = None
    """Those before a row of names that may begin another table."""
    _title: int = 0
    """The number of the last row if it has one text."""

    def add(self, row: Row) -> Cells:
        """Add a row, and return its cells that are not blank."""
        cells = {at: cell for at, cell in row.cells.items() if cell.text.strip()}
        self._count_doubts(row)
        part = self._part
        if part is not None and (not cells or row.number > part.last + 1):
            self._add_part(self._decide(part))
            self._part = part = None
        if not cells:
            return cells
        is_remark = len(cells) == 1 and next(iter(cells.values())).kind == "text"
        if part is None:
            part = Part(row.number, row.number, cells, row.number, {}, {}, {}, is_remark)
            self._part = part
        elif len(part.header) == 1 and part.is_remark and len(cells) > 1:
            part.header, part.header_row, part.is_remark = cells, row.number, False
        elif (is_text := all(it.kind == "text" for it in cells.values())) and part.repeats_names(
            cells
        ):
            pass
        elif is_text and part.names_others(cells):
            self._above = above = self._decide(part)
            first = self._title or row.number
            above.last = first - 1
            self._part = part = Part(first, first, cells, row.number, {}, {}, {}, is_remark)
        else:
            part.is_remark = part.is_remark and is_remark
            for at, cell in cells.items():
                part.kinds.setdefault(at, set()).add(cell.kind)
                if cell.kind in ("number", "percent"):
                    part.units.setdefault(at, set()).add(cell.unit)
        part.last = row.number
        part.ends |= dict.fromkeys(cells, row.number)
        self._title = row.number if is_remark else 0
        return cells

    def finish(self, rows: SheetRows) -> None:
        """Find the tables, with what the sheet says below its rows."""
        if self._part is not None:
            self._add_part(self._decide(self._part))
        if not self._parts:  # a list of texts
            for part in self.remarks:
                above = self._parts[-1] if self._parts else None
                if above and above.first < above.last and above.ends.keys() == part.ends.keys():
                    above.join(part)
                else:  # a text alone above others is a title
                    self._parts.append(part)
            self.remarks = []
        if rows.hidden_columns and self._parts:
            hidden = min(rows.hidden_columns, max(max(it.ends) for it in self._parts) + 1)
            self._count("column", "", hidden)
        self.merged = rows.merged
        self.tables = [
            SheetTable(part, columns) for part in self._parts for columns in _split(part)
        ]

    def _decide(self, part: Part) -> Part:
        """Return a part, joined with that above it unless it is another table."""
        above, self._above = self._above, None
        if above is None:
            return part
        if above.is_followed(part):
            self._add_part(above)
            return part
        if part.has_header:
            self.doubts.append(part.header_row)
        for at in part.header:
            part.kinds.setdefault(at, set()).add("text")
        above.join(part)
        return above

    def _add_part(self, part: Part) -> None:
        """Add the rows between two empty ones to the table above, or as a new one."""
        table = self._parts[-1] if self._parts else None
        if part.is_remark and (table is None or len(table.ends) > 1):
            self.remarks.append(part)
        elif table is None or self._is_other(table, part):
            self._parts.append(part)
        else:
            table.join(part)

    def _is_other(self, table: Part, part: Part) -> bool:
        """Return whether rows below an empty one are another table, and no further page of it."""
        if not part.has_header:
            return not part.ends.keys() & table.ends.keys()
        titles = [it for it in self.remarks if it.first > table.last and not it.is_page_number]
        is_titled = bool(titles) or part.first < part.header_row
        return is_titled or not table.repeats_names(part.header)

    def _count(self, what: str, place: str, number: int = 1) -> None:
        before, first = self.counts.get(what, (0, place))
        self.counts[what] = (before + number, first)

    def _count_doubts(self, row: Row) -> None:
        if row.is_hidden and row.cells:
            self._count("row", "")
        for column, cell in row.cells.items():
            if cell.kind in ("error", "formula", "hidden"):
                self._count(cell.kind, f"{write_column(column)}{row.number}")


class TableRows:
    """The rows of a table with their numbers, and with a cell or `None` for each of its columns.

    A text of merged cells stands in each row that they span, unless it has more than `longest`
    characters. Where merged cells give a name to several columns, it is joined with the names below
    it.
    """

    def __init__(
        self,
        table: SheetTable,
        layout: SheetLayout,
        rows: Iterable[tuple[int, Cells]],
        longest: int = 2**15,
    ) -> None:
        self.is_joined = False
        """`True` if two rows of names were joined into one, after it was read."""
        self._table = table
        self._rows = rows
        self._longest = longest
        self._starts: dict[int, list[Range]] = {}
        for one in layout.merged:
            self._starts.setdefault(one.row, []).append(one)
        self._remarks = {number for it in layout.remarks for number in range(it.first, it.last + 1)}

    def __iter__(self) -> Iterator[tuple[int, Sequence[Cell | None]]]:
        part, columns = self._table.part, self._table.columns
        labels: dict[int, tuple[int, Cell]] = {}
        names: Mapping[int, str] = {}
        for number, cells in self._rows:
            if not part.first <= number <= part.last or number in self._remarks:
                continue
            starts = self._starts.get(number, ())
            for one in starts:
                cell = cells.get(one.column)
                is_text = cell is not None and cell.kind == "text"
                if cell and is_text and number < one.last_row and len(cell.text) <= self._longest:
                    labels[one.column] = (one.last_row, cell)
            row = {at: cell for at, (last, cell) in labels.items() if number <= last}
            row |= cells
            if number == part.header_row:
                names = _find_names(row, starts, len(columns))
                if names:
                    self.is_joined = True
                    continue
            if names:
                row = _join_names(names, row, columns)
                names = {}
            found = [row.get(at) for at in columns]
            if any(found):
                yield number, found


def _split(part: Part) -> list[list[int]]:
    """Return the columns of each table of a part.

    Columns on both sides of an empty one are two tables if they end in different rows, or have
    the same name; columns without an empty one between them, if both is so.
    """
    columns = sorted(part.ends)
    edges = [0, *(at for at, (a, b) in enumerate(pairwise(columns), 1) if b > a + 1), len(columns)]
    spans = [columns[start:end] for start, end in pairwise(edges)]
    groups = [group for span in spans for group in _halve(part, span)]
    tables = [groups[0]]
    for group in groups[1:]:
        left = tables[-1]
        names = {part.header[it].text for it in left if it in part.header}
        is_same = any(part.header[it].text in names for it in group if it in part.header)
        ends = [max(part.ends[it] for it in columns) for columns in (left, group)]
        is_table = min(len(left), len(group)) > 1 and all(it in part.header for it in group)
        if is_table and (is_same or ends[0] != ends[1]):
            tables.append(group)
        else:
            left += group
    return tables


def _halve(part: Part, columns: list[int]) -> list[list[int]]:
    """Return both halves of columns with the same names that end in different rows."""
    half = len(columns) // 2
    names = [part.header[it].text if it in part.header else "" for it in columns]
    is_twin = half > 1 and all(names) and names[:half] == names[half:]
    halves = [columns[:half], columns[half:]]
    ends = {max(part.ends[it] for it in group) for group in halves} if is_twin else ()
    return halves if len(ends) > 1 else [columns]


def _find_names(row: Cells, merged: Sequence[Range], width: int) -> Mapping[int, str]:
    """Return the names that a row gives to several columns each, or nothing."""
    wide = [it for it in merged if 1 < it.last_column - it.column + 1 < width]
    if not wide or any(cell.kind != "text" for cell in row.values()):
        return {}
    names = {at: cell.text for at, cell in row.items()}
    for one in wide:
        for at in range(one.column, one.last_column + 1):
            names[at] = names.get(one.column, "")
    return names


def _join_names(names: Mapping[int, str], row: Cells, columns: Sequence[int]) -> dict[int, Cell]:
    """Return a row of names as cells, each below the one that several columns share."""
    below = {at: cell.text for at, cell in row.items() if cell.kind not in ("error", "formula")}
    pairs = ((at, names.get(at, ""), below.get(at, "")) for at in columns)
    return {at: Cell("text", a if a == b else f"{a} {b}".strip()) for at, a, b in pairs}


def write_column(number: int) -> str:
    """Return the letters of a column: 0 is A."""
    letters = ""
    number += 1
    while number:
        number, letter = divmod(number - 1, 26)
        letters = chr(65 + letter) + letters
    return letters
