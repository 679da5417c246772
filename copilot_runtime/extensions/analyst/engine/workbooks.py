"""The tables in the sheets of a workbook (XLSX), as CSV files.

A sheet may have several tables: below each other, where a row of names follows an empty row, or
beside each other, where an empty column stands between tables of different length.
"""

import csv
import pickle
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import IO, NamedTuple

from copilot_runtime.base.errors import CopilotError
from copilot_runtime.base.office import OLE, OfficeFile, is_encrypted
from copilot_runtime.base.workbook import Cell, Range, Row, Sheet, Workbook
from copilot_runtime.extensions.analyst.engine.errors import DatasetRefused

DELIMITER = ","
_BATCH = 5_000
_SHEET = 2**30
"""Maximum number of characters in a sheet; a small file may have many times its size."""

Cells = Mapping[int, Cell]


class SheetTable(NamedTuple):
    """A table as a file in UTF-8, with sentences about what is not certain or left out."""

    name: str
    """The name of its sheet; further tables of the sheet have a number."""
    path: Path
    notes: Sequence[str] = ()


@dataclass(slots=True)
class _Part:
    """Rows between two empty ones, or a table of several such parts."""

    first: int
    last: int
    header: Cells
    """The first row with several values, or the first row."""
    header_row: int
    kinds: dict[int, set[str]]
    """Column → the kinds of its values below the header."""
    ends: dict[int, int]
    """Column → its last row with a value."""
    is_remark: bool
    """`True` if each row is one text."""

    @property
    def has_header(self) -> bool:
        """`True` if the first row names columns of which one has no texts."""
        is_text = all(cell.kind == "text" for cell in self.header.values())
        return is_text and any(self.kinds.get(it, set()) - {"text"} for it in self.header)

    def join(self, other: "_Part") -> None:
        """Add the rows of a part below."""
        self.last = other.last
        self.ends |= other.ends
        for column, kinds in other.kinds.items():
            self.kinds.setdefault(column, set()).update(kinds)


@dataclass(slots=True)
class _Sheet:
    """The layout of a sheet."""

    tables: list[_Part] = field(default_factory=list[_Part])
    remarks: list[_Part] = field(default_factory=list[_Part])
    merged: Sequence[Range] = ()
    counts: dict[str, tuple[int, str]] = field(default_factory=dict[str, tuple[int, str]])
    """Kind of doubt → number of cells, and the first one."""

    def count(self, what: str, place: str, number: int = 1) -> None:
        before, first = self.counts.get(what, (0, place))
        self.counts[what] = (before + number, first)

    def add(self, part: _Part) -> None:
        """Add the rows between two empty ones to the table above, or as a new one."""
        table = self.tables[-1] if self.tables else None
        if part.is_remark and (table is None or len(table.ends) > 1):
            self.remarks.append(part)
        elif table is None or part.has_header or not part.ends.keys() & table.ends.keys():
            self.tables.append(part)
        else:
            table.join(part)


def write_tables(
    path: Path, folder: Path, only: str | None, on_rows: Callable[[int], None]
) -> list[SheetTable]:
    """Write the tables of the sheets that are shown, or of the one that is named, to a folder.

    Raises `DatasetRefused` if there is none. A sheet that is damaged is left out alone.
    """
    try:
        file = OfficeFile(path)
    except CopilotError as error:
        data = path.read_bytes()
        reason = "damaged, or no workbook"
        if is_encrypted(data):
            reason = "encrypted: save it without a password"
        elif data.startswith(OLE):
            reason = "of an old format: save it as .xlsx"
        raise DatasetRefused(
            f"The workbook {path.name!r} is {reason}.",
            public=f"The data source {path.name!r} cannot be read: it is {reason}.",
        ) from error
    notes: list[str] = []
    tables: list[SheetTable] = []
    try:
        workbook = Workbook(file)
        for sheet in workbook.sheets:
            if only not in (None, sheet.name):
                continue
            if sheet.is_hidden and only is None:
                notes.append(f"The hidden sheet {sheet.name!r} is left out.")
                continue
            try:
                found = [*_write_sheet(workbook, sheet, folder, on_rows)]
            except CopilotError as error:
                if isinstance(error, DatasetRefused):
                    raise
                notes.append(f"The sheet {sheet.name!r} is left out. {error.message}")
                continue
            if not found:
                notes.append(f"The sheet {sheet.name!r} is empty.")
            tables += found
    finally:
        file.close()
    if not tables:
        raise DatasetRefused(
            f"The workbook {path.name!r} has no table. {' '.join(notes)}".strip()
            if only is None
            else f"The workbook {path.name!r} has no sheet {only!r} with values."
        )
    return [tables[0]._replace(notes=[*notes, *tables[0].notes]), *tables[1:]]


def _write_sheet(
    workbook: Workbook, sheet: Sheet, folder: Path, on_rows: Callable[[int], None]
) -> Iterator[SheetTable]:
    with tempfile.TemporaryFile(dir=folder) as spool:
        found = _scan(workbook, sheet, spool, on_rows)
        tables = [(part, columns) for part in found.tables for columns in _split(part)]
        largest = max(tables, key=_measure, default=None)
        notes = [*_describe(found, len(tables))]
        number = 1
        for table in tables:
            name = sheet.name
            if table is not largest:
                number += 1
                name = f"{name} {number}"
            target = folder / f"{len([*folder.iterdir()])}.csv"
            spool.seek(0)
            with target.open("w", encoding="utf-8", newline="") as out:
                is_joined = _write_table(spool, *table, found.merged, out)
            more = ["Two rows of names are joined."] if is_joined else []
            yield SheetTable(name, target, [*notes, *more])
            notes = []


def _scan(
    workbook: Workbook, sheet: Sheet, spool: IO[bytes], on_rows: Callable[[int], None]
) -> _Sheet:
    """Copy the rows of a sheet to a file; return what they are like."""
    found = _Sheet()
    part: _Part | None = None
    rows = workbook.read(sheet)
    waiting = size = 0
    for row in rows:
        cells = {at: cell for at, cell in row.cells.items() if cell.text.strip()}
        size += sum(len(cell.text) for cell in cells.values())
        if size > _SHEET:
            raise DatasetRefused(
                f"The sheet {sheet.name!r} has more than {_SHEET:,} characters: save it as CSV."
            )
        _count(found, row)
        if part is not None and (not cells or row.number > part.last + 1):
            found.add(part)
            part = None
        if not cells:
            continue
        plain = {at: tuple(cell) for at, cell in cells.items()}
        pickle.dump((row.number, plain), spool, protocol=5)
        is_remark = len(cells) == 1 and next(iter(cells.values())).kind == "text"
        if part is None:
            part = _Part(row.number, row.number, cells, row.number, {}, {}, is_remark)
        elif len(part.header) == 1 and part.is_remark and len(cells) > 1:
            part.header, part.header_row, part.is_remark = cells, row.number, False
        else:
            part.is_remark = part.is_remark and is_remark
            for at, cell in cells.items():
                part.kinds.setdefault(at, set()).add(cell.kind)
        part.last = row.number
        part.ends |= dict.fromkeys(cells, row.number)
        if (waiting := waiting + 1) == _BATCH:
            on_rows(waiting)
            waiting = 0
    if part is not None:
        found.add(part)
    if not found.tables:  # a list of texts
        found.tables, found.remarks = found.remarks, []
    if rows.hidden_columns and found.tables:
        hidden = min(rows.hidden_columns, max(max(it.ends) for it in found.tables) + 1)
        found.count("column", "", hidden)
    found.merged = rows.merged
    return found


def _count(found: _Sheet, row: Row) -> None:
    if row.is_hidden and row.cells:
        found.count("row", "")
    for column, cell in row.cells.items():
        if cell.kind in ("error", "formula"):
            found.count(cell.kind, f"{_write_column(column)}{row.number}")


def _describe(found: _Sheet, tables: int) -> Iterator[str]:
    """Yield sentences about the doubts in a sheet and the rows left out."""
    if tables > 1:
        yield f"The sheet has {tables} tables."
    if remarks := sum(it.last - it.first + 1 for it in found.remarks):
        yield f"Rows with one text alone, such as titles and remarks, are left out: {remarks:,}."
    for what, text in _NOTES.items():
        if what in found.counts:
            number, place = found.counts[what]
            yield text.format(number=number, place=place)
    labels = any(it.last_row > it.row for it in found.merged)
    if labels:
        yield "Texts of merged cells stand in each row that they span, numbers in the first one."


_NOTES = {
    "error": "Cells with an error, such as #N/A, are empty: {number:,}, the first is {place}.",
    "formula": "Formulas without a stored value are empty: {number:,}, the first is {place}. "
    "Save the file in a program that calculates them.",
    "row": "Hidden rows are read, too: {number:,}.",
    "column": "Hidden columns are read, too: {number:,}.",
}


def _measure(table: tuple[_Part, Sequence[int]]) -> int:
    """Return about how many values a table has."""
    part, columns = table
    return (max(part.ends[it] for it in columns) - part.first) * len(columns)


def _split(part: _Part) -> list[list[int]]:
    """Return the columns of each table of a part.

    Columns on both sides of an empty one are two tables if they end in different rows, or have
    the same name.
    """
    columns = sorted(part.ends)
    edges = [0, *(at for at, (a, b) in enumerate(pairwise(columns), 1) if b > a + 1), len(columns)]
    groups = [columns[start:end] for start, end in pairwise(edges)]
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


def _write_table(
    spool: IO[bytes], part: _Part, columns: Sequence[int], merged: Sequence[Range], out: IO[str]
) -> bool:
    """Write the rows of a table; return whether two rows of names were joined into one."""
    writer = csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_ALL)
    starts: dict[int, list[Range]] = {}
    for one in merged:
        starts.setdefault(one.row, []).append(one)
    labels: dict[int, tuple[int, Cell]] = {}
    names: Mapping[int, str] = {}
    is_joined = False
    for number, cells in _load(spool):
        if not part.first <= number <= part.last:
            continue
        for one in starts.get(number, ()):
            if (cell := cells.get(one.column)) and cell.kind == "text" and one.last_row > number:
                labels[one.column] = (one.last_row, cell)
        row = {at: cell for at, (last, cell) in labels.items() if number <= last}
        row |= cells
        if number == part.header_row:
            names = _find_names(row, starts.get(number, ()), len(columns))
            if names:
                is_joined = True
                continue
        texts = [
            "" if at not in row or row[at].kind in ("error", "formula") else row[at].text
            for at in columns
        ]
        if names:
            pairs = zip((names.get(at, "") for at in columns), texts, strict=True)
            texts = [a if a == b else f"{a} {b}".strip() for a, b in pairs]
            names = {}
        if any(texts):
            writer.writerow(texts)
    return is_joined


def _load(spool: IO[bytes]) -> Iterator[tuple[int, dict[int, Cell]]]:
    while True:
        try:
            number, cells = pickle.load(spool)  # noqa: S301 - written by this process
        except EOFError:
            return
        yield number, {at: Cell(*cell) for at, cell in cells.items()}


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


def _write_column(number: int) -> str:
    letters = ""
    number += 1
    while number:
        number, letter = divmod(number - 1, 26)
        letters = chr(65 + letter) + letters
    return letters
