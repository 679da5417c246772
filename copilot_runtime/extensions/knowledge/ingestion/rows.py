"""The rows of CSV files as passages, each value with the name of its column."""

import csv
import io
import sys
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby, islice
from typing import Any

from copilot_runtime.base.boundaries import describe_doubts, find_boundaries
from copilot_runtime.base.delimiters import open_reader
from copilot_runtime.base.layouts import (
    SAMPLE,
    SEPARATOR_LINE,
    Layout,
    count_remarks,
    find_header,
    find_layout,
    is_comment,
)
from copilot_runtime.base.shapes import DITTO, is_page_number, is_rule, repeats
from copilot_runtime.extensions.knowledge.ingestion.chunks import Chunk, ChunkPosition
from copilot_runtime.extensions.knowledge.ingestion.sandbox import UnreadableDocument

_HEAD = 100
"""Rows at the beginning of a table that show its header."""
_COLUMNS = 16_384
"""The most values of a row that are read, as in a sheet of a workbook."""
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
        self._tables = 1
        """The number of the current table."""
        self._starts: Iterator[int] = iter(())
        self._start = sys.maxsize
        """The line at which the next table begins."""
        self._doubts: list[int] = []
        self._has_rules = False
        self._counts: Counter[str] = Counter()
        self._has_marks = any(mark in text for mark in _MARKS)

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
        if self._tables > 1:
            self.warnings.append(f"The file is read as {self._tables:,} tables.")
        self.warnings += describe_doubts(self._doubts)
        self.warnings += (it.format(count) for it, count in self._counts.items())

    def _read(self, layout: Layout) -> Iterator[Chunk]:
        rows = self._number(self._open(layout))
        if SEPARATOR_LINE.match(self._text):
            next(rows)
        self._has_rules = layout.has_rules
        self._starts = self._find_starts(layout)
        self._start = next(self._starts, sys.maxsize)
        for number, table in groupby(rows, key=self._find_table):
            if number == 1:
                yield from self._write_table(table, layout.header, layout.skipped)
            else:
                yield from self._write_further_table(table)

    def _open(self, layout: Layout) -> Any:
        return open_reader(io.StringIO(self._text, newline=""), layout.delimiter, layout.escape)

    def _number(self, reader: Any) -> Iterator[_Row]:
        before = 0
        for number, values in enumerate(reader, 1):
            self._has_lines = reader.line_num > before + 1 or (
                bool(values) and values[-1].endswith("\n")
            )
            before = reader.line_num
            yield number, before, values

    def _find_starts(self, layout: Layout) -> Iterator[int]:
        """Yield the lines at which further tables begin; keep those that may begin one."""
        reader = self._open(layout)
        records = ((reader.line_num, record) for record in reader)
        if layout.has_rules:
            records = (it for it in records if not is_rule(it[1]))
        for it in find_boundaries(records):
            if it.line > layout.skipped:
                if it.is_certain:
                    yield it.line
                else:
                    self._doubts.append(it.line)

    def _find_table(self, row: _Row) -> int:
        """Return the number of the table that has a row."""
        while row[1] >= self._start:
            self._start = next(self._starts, sys.maxsize)
            self._tables += 1
        return self._tables

    def _write_further_table(self, rows: Iterator[_Row]) -> Iterator[Chunk]:
        head = [*islice(rows, _HEAD)]
        filled = [row for row in head if any(row[2])]
        header = find_header([values for _, _, values in filled])
        position = header.position if header.cells else header.position - 1
        skipped = filled[position][1] if position >= 0 else 0
        yield from self._write_table(chain(head, rows), header.cells, skipped)

    def _write_table(
        self, rows: Iterable[_Row], header: Sequence[str], skipped: int
    ) -> Iterator[Chunk]:
        names = [name.strip() for name in header]
        if not names:
            self._counts[_NO_HEADER] = 1
        last: deque[_Row] = deque()
        if self._has_rules:
            rows = (row for row in rows if not is_rule(row[2]))
        for row in self._replace_marks(rows, names, skipped) if self._has_marks else rows:
            if row[1] > skipped:
                if names and repeats(names, row[2]):
                    self._counts[_HEADERS] += 1
                    continue
                last.append(row)
                if len(last) > _TAIL:
                    yield from self._write_row(last.popleft(), names)
            elif row[1] < skipped or not names:
                yield from self._write_row(row, ())
        remarks = count_remarks([values for _, _, values in last])
        while last:
            yield from self._write_row(last.popleft(), names if len(last) >= remarks else ())

    def _replace_marks(
        self, rows: Iterable[_Row], names: Sequence[str], skipped: int
    ) -> Iterator[_Row]:
        """Yield the rows with the value above in place of each ditto mark, and plain numbers."""
        above: dict[int, str] = {}
        for number, line, values in rows:
            values = [_unprotect(it) for it in values]
            if line > skipped and any(values) and not _is_between(names, values):
                if count := values.count(DITTO):
                    self._counts[_DITTOS] += count
                above |= {at: it for at, it in enumerate(values) if it != DITTO}
                values = [above.get(at, it) for at, it in enumerate(values)]
            yield number, line, values

    def _write_row(self, row: _Row, names: Sequence[str]) -> Iterator[Chunk]:
        number, _, values = row
        if len(values) > _COLUMNS:
            self._counts[_WIDE] += 1
            return
        if values and is_comment(values):
            names = ()
        cells = [
            f"{names[at]}: {text}" if at < len(names) and names[at] else text
            for at, value in enumerate(values)
            if (text := value.strip())
        ]
        if len(cells) == 1 and len(names) > 1 and any(map(is_page_number, values)):
            self._counts[_PAGES] += 1
        elif cells:
            yield Chunk("; ".join(cells), ChunkPosition(rows=(number, number)))


def _unprotect(value: str) -> str:
    """Return the value of a formula such as `="007"`, by which programs keep zeros."""
    return value[2:-1] if value.startswith('="') and value[3:].endswith('"') else value


def _is_between(names: Sequence[str], values: Sequence[str]) -> bool:
    """Return whether a row stands between those of the table: a header, or a page number."""
    is_alone = sum(map(bool, values)) == 1 < len(names)
    return repeats(names, values) or (is_alone and any(map(is_page_number, values)))


_MARKS = (DITTO, '="')
_NO_HEADER = "A table has no header: its values have no names of columns."
_HEADERS = "Rows that repeat the header are left out: {:,}."
_WIDE = f"Rows of more than {_COLUMNS:,} values are left out: {{:,}}."
_PAGES = "Page numbers between rows are left out: {:,}."
_DITTOS = "Ditto marks are read as the value above them: {:,}."
