"""The rows of CSV files as passages, each value with the name of its column."""

import csv
import io
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from copilot_runtime.base.delimiters import open_reader
from copilot_runtime.base.layouts import (
    SAMPLE,
    SEPARATOR_LINE,
    Layout,
    TablePlace,
    count_remarks,
    find_layout,
    is_comment,
)
from copilot_runtime.extensions.knowledge.ingestion.chunks import Chunk, ChunkPosition
from copilot_runtime.extensions.knowledge.ingestion.sandbox import UnreadableDocument

_TAIL = 50
"""Rows at the end of a table that may be notes."""

_Row = tuple[int, int, Sequence[str]]
"""The number of a row, its last line, and its values."""


class CsvRows:
    """The rows of a file as passages; after the last one, warnings about doubtful choices.

    Titles above a table and notes below it have no names of columns. Raises `UnreadableDocument`.
    """

    def __init__(self, text: str) -> None:
        self.warnings: list[str] = []
        self._text = text
        self._has_lines = False
        """`True` if a value of the last row has several lines."""

    def __iter__(self) -> Iterator[Chunk]:
        text = self._text
        try:
            layout = find_layout(text[:SAMPLE], is_whole=len(text) <= SAMPLE)
        except ValueError:  # it is empty
            return
        try:
            yield from self._read(layout)
        except csv.Error as error:  # nothing else is wrong with any text
            raise UnreadableDocument(
                "The table cannot be read: it has a cell of more than "
                f"{csv.field_size_limit():,} characters.",
                hint="Is a quotation mark not closed?",
            ) from error
        if self._has_lines and text.count('"') % 2:
            self.warnings.append("A quotation mark is not closed: the last row may be several.")
        if layout.others:
            self.warnings.append(f"The file is read as {len(layout.others) + 1} tables.")
        if not all(it.header for it in (layout, *layout.others)):
            self.warnings.append("A table has no header: its values have no names of columns.")

    def _read(self, layout: Layout) -> Iterator[Chunk]:
        reader = open_reader(io.StringIO(self._text, newline=""), layout.delimiter, layout.escape)
        rows = self._number(reader)
        if SEPARATOR_LINE.match(self._text):
            next(rows)
        starts = [it.start for it in layout.others]
        places = [TablePlace(1, layout.skipped, layout.header), *layout.others]
        for at, table in groupby(rows, key=lambda row: bisect_right(starts, row[1])):
            yield from _write_table(table, places[at])

    def _number(self, reader: Any) -> Iterator[_Row]:
        before = 0
        for number, values in enumerate(reader, 1):
            self._has_lines = reader.line_num > before + 1 or (
                bool(values) and values[-1].endswith("\n")
            )
            before = reader.line_num
            yield number, before, values


def _write_table(rows: Iterable[_Row], place: TablePlace) -> Iterator[Chunk]:
    names = [name.strip() for name in place.header]
    last: deque[_Row] = deque()
    for row in rows:
        if row[1] > place.skipped:
            if names and [*map(str.strip, row[2])] == names:  # the header again
                continue
            last.append(row)
            if len(last) > _TAIL:
                yield from _write_row(last.popleft(), names)
        elif row[1] < place.skipped or not names:
            yield from _write_row(row, ())
    remarks = count_remarks([values for _, _, values in last])
    while last:
        yield from _write_row(last.popleft(), names if len(last) >= remarks else ())


def _write_row(row: _Row, names: Sequence[str]) -> Iterator[Chunk]:
    number, _, values = row
    if values and is_comment(values):
        names = ()
    cells = [
        f"{names[at]}: {text}" if at < len(names) and names[at] else text
        for at, value in enumerate(values)
        if (text := value.strip())
    ]
    if cells:
        yield Chunk("; ".join(cells), ChunkPosition(rows=(number, number)))
