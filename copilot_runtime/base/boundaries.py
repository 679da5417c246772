"""The lines of a file at which further tables begin, below empty lines or without one."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, takewhile
from typing import NamedTuple

from copilot_runtime.base.shapes import (
    Record,
    Shape,
    find_shape,
    find_shapes,
    has_no_texts,
    is_missing,
    is_page_number,
    list_names,
    names_values,
    repeats,
)

Line = tuple[int, Record]
"""The last line of a record, and its values."""

_ROWS = 30
"""Rows at the beginning of a table, and below a row of names, that show the kinds of values."""
_COLUMNS = 100
"""Columns that are looked at."""
_DOUBTS = 20
"""Rows of texts after which a table is one whose columns of numbers have texts."""


class Boundary(NamedTuple):
    """A line at which another table begins, or may begin. Lines count from 1."""

    line: int
    is_certain: bool


def find_boundaries(records: Iterable[Line]) -> Iterator[Boundary]:
    """Yield the lines at which tables begin below another one, in order.

    They begin with the names of columns, above which there may be a title: below an empty line, or
    where columns of numbers have a text each. The header again, as on each page, is no boundary.
    """
    source = iter(records)
    waiting = deque(islice(source, _ROWS + 1))
    table: _Table | None = None
    titles: set[str] = set()
    last: Record = ()
    end = begin = start = 0
    """The last lines of the record before, and the first ones of the group and of `last`."""
    is_open = False
    while waiting:
        line, record = waiting.popleft()
        waiting.extend(islice(source, 1))
        if not any(record):
            is_open = False
        elif is_open and table:
            if table.has_text(record):
                is_other = table.compare(record, _list_below(waiting))
                if is_other is not None:
                    yield Boundary(start if sum(map(bool, last)) == 1 else end + 1, is_other)
                if is_other:
                    table = _Table(record)
            elif table.is_new:
                table.add(record)
        else:
            begin = begin or end + 1
            if sum(map(bool, record)) < 2:
                title = _fold(next(filter(None, record)))
                if len(titles) < _ROWS and not is_page_number(title):
                    titles.add(title)
            else:
                is_open = True
                if table is None:
                    table = _Table(record, titles)
                elif table.is_followed(record, _list_below(waiting), titles):
                    yield Boundary(begin, True)
                    table = _Table(record, titles)
                table.width = len(record)
                begin, titles = 0, set()
        start, end, last = end + 1, line, record


def describe_doubts(lines: Sequence[int], name: str = "Line") -> Sequence[str]:
    """Return a sentence about the lines that may begin another table, if there are any."""
    if not lines:
        return ()
    others = f" and {len(lines) - 1:,} others" if len(lines) > 1 else ""
    return (
        f"{name} {lines[0]:,}{others} may begin another table, and is read as a row of the one "
        "above: an empty line before it would separate them.",
    )


def _list_below(waiting: Iterable[Line]) -> Sequence[Record]:
    """Return the next records up to an empty one."""
    return [*takewhile(any, (record for _, record in waiting))]


class _Table:
    """The first row of a table, and the columns that have no texts in the next ones."""

    def __init__(self, first: Record, titles: Iterable[str] = ()) -> None:
        self.width = len(first)
        """The number of values of the first row of its last group."""
        self.is_new = True
        """`True` while further rows may show the kinds of its values."""
        self._header = first
        self._names = [*map(_fold, first[:_COLUMNS])]
        self._titles = {*titles}
        self._rows: list[Record] = []
        self._count = self._doubts = 0
        self._plain: list[int] = []
        """Columns without texts."""
        self._first = -1
        """The first one of them."""

    def add(self, record: Record) -> None:
        """Take the kinds of values from one of the first rows."""
        self._count += 1
        cells = record[:_COLUMNS]
        if not self._rows:
            shapes = [*map(find_shape, cells)]
            self._plain = [at for at, it in enumerate(shapes) if it not in ("empty", "text")]
        else:
            self._plain = [at for at in self._plain if at >= len(cells) or not _is_text(cells[at])]
        if self._plain:
            self._rows.append(cells)
        self._first = self._plain[0] if self._plain else -1
        self.is_new = self._count < _ROWS and bool(self._plain or not self._rows)

    def has_text(self, record: Record) -> bool:
        """Return whether a record has a word in the first column without texts."""
        at = self._first
        return 0 <= at < len(record) and record[at].lstrip()[:1].isalpha()

    def compare(self, record: Record, below: Sequence[Record]) -> bool | None:
        """Return whether a row of names begins another table.

        `None` if it is no row of names, `False` if it may be a row with texts in place of numbers.
        """
        if repeats(self._header, record):
            return None
        is_other = self._compare(record[:_COLUMNS], [row[:_COLUMNS] for row in below])
        self._doubts += not is_other
        if self._doubts == _DOUBTS:
            self._first = -1
        return is_other

    def is_followed(self, record: Record, below: Sequence[Record], titles: Iterable[str]) -> bool:
        """Return whether a record below an empty line names the columns of another table."""
        if repeats(self._header, record) and self._titles.issuperset(titles):
            return False
        is_other = len(record) != self.width and {len(row) for row in below} == {len(record)}
        return names_values(record[:_COLUMNS], below, is_other=is_other)

    def _compare(self, record: Record, below: Sequence[Record]) -> bool | None:
        names = list_names(record)
        texts = [_fold(record[at]) for at in names]
        plain = [at for at in self._plain if at < len(record)]
        if len(names) < 2 or len({*texts}) < len(names) or not {*plain} <= {*names}:
            return None
        has_numbers = any(has_no_texts(below, at) for at in names)
        shared = sum(self._names[at : at + 1] == [it] for at, it in zip(names, texts, strict=True))
        if not has_numbers or any(not has_no_texts(below, at) for at in plain):
            return None
        if len(below) < 2 or shared * 2 > len(names):
            return False
        widths = {len(row) for row in (record, *below)}
        is_wider = len(widths) == 1 and widths.isdisjoint(map(len, self._rows))
        return bool(shared) or is_wider or any(self._differs(below, at) for at in names)

    def _differs(self, below: Sequence[Record], at: int) -> bool:
        """Return whether a column has values of one kind above a row, and of another below it."""
        kinds = [_find_kind(find_shapes(rows, at)) for rows in (self._rows, below)]
        return all(kinds) and kinds[0] != kinds[1]


def _find_kind(shapes: set[Shape]) -> str:
    """Return the only kind of some shapes, or an empty string; a year may be a number or a date."""
    kinds = shapes - {"year"}
    return kinds.pop() if len(kinds) == 1 and (kinds != {"text"} or "year" not in shapes) else ""


def _is_text(cell: str) -> bool:
    return find_shape(cell) == "text" and not is_missing(cell)


def _fold(cell: str) -> str:
    return cell.strip(" \t\ufeff").lower()
