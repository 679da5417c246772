"""The tables in the sheets of a workbook (XLSX), as CSV files."""

import csv
import pickle
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import IO, NamedTuple

from copilot_runtime.base.boundaries import describe_doubts
from copilot_runtime.base.errors import CopilotError
from copilot_runtime.base.layouts import find_header
from copilot_runtime.base.office import OLE, OfficeFile, is_encrypted
from copilot_runtime.base.sheets import SheetLayout, SheetTable, TableRows
from copilot_runtime.base.workbook import Cell, Sheet, Unit, Workbook
from copilot_runtime.extensions.analyst.engine.csv.forms import AMBIGUOUS
from copilot_runtime.extensions.analyst.engine.errors import DatasetRefused

DELIMITER = ","
_BATCH = 5_000
_ROUNDED = re.compile(r"-?\d\.\d{12,16}[eE]\+?0?1[5-9]")
"""A whole number of more than 15 digits, of which programs write no more into workbooks."""
_PERCENT = re.compile(r"([+-]?\d{1,15}(?:[.,](?!\d{3}\s?%)\d{1,15})?)\s?%")
_HEAD = 100
"""Rows at the beginning of a table that show its header."""
_SHEET = 2**30
"""Maximum number of characters in a sheet; a small file may have many times its size."""


class TableFile(NamedTuple):
    """A table as a file in UTF-8, with sentences about what is not certain or left out."""

    sheet: str
    number: int
    """Its place among the tables of the sheet, from 1."""
    path: Path
    notes: Sequence[str] = ()


def write_tables(
    path: Path, folder: Path, only: str | None, on_rows: Callable[[int], None]
) -> list[TableFile]:
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
    tables: list[TableFile] = []
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
) -> Iterator[TableFile]:
    with tempfile.TemporaryFile(dir=folder) as spool:
        layout = _scan(workbook, sheet, spool, on_rows)
        notes = [*_describe(layout), *_describe_comments(workbook.file, sheet.part)]
        for number, table in enumerate(layout.tables, 1):
            target = folder / f"{len([*folder.iterdir()])}.csv"
            spool.seek(0)
            with target.open("w", encoding="utf-8", newline="") as out:
                more = [*_write_table(TableRows(table, layout, _load(spool)), table, out)]
            yield TableFile(sheet.name, number, target, [*notes, *more])
            notes = []


def _scan(
    workbook: Workbook, sheet: Sheet, spool: IO[bytes], on_rows: Callable[[int], None]
) -> SheetLayout:
    """Copy the rows of a sheet to a file; return where its tables are."""
    layout = SheetLayout()
    rows = workbook.read(sheet)
    waiting = size = 0
    for row in rows:
        cells = layout.add(row)
        size += sum(len(cell.text) for cell in cells.values())
        if size > _SHEET:
            raise DatasetRefused(
                f"The sheet {sheet.name!r} has more than {_SHEET:,} characters: save it as CSV."
            )
        if not cells:
            continue
        plain = {at: (cell.kind, cell.text) for at, cell in cells.items()}
        pickle.dump((row.number, plain), spool, protocol=5)
        if (waiting := waiting + 1) == _BATCH:
            on_rows(waiting)
            waiting = 0
    layout.finish(rows)
    return layout


def _describe(layout: SheetLayout) -> Iterator[str]:
    """Yield sentences about the doubts in a sheet and the rows left out."""
    if (tables := len(layout.tables)) > 1:
        yield f"The sheet has {tables} tables."
    if remarks := sum(it.last - it.first + 1 for it in layout.remarks):
        yield f"Rows with one text alone, such as titles and remarks, are left out: {remarks:,}."
    for what, text in _NOTES.items():
        if what in layout.counts:
            number, place = layout.counts[what]
            yield text.format(number=number, place=place)
    yield from describe_doubts(layout.doubts, "Row")
    labels = any(it.last_row > it.row for it in layout.merged)
    if labels:
        yield "Texts of merged cells stand in each row that they span, numbers in the first one."


def _describe_comments(file: OfficeFile, part: str) -> Iterator[str]:
    """Yield a sentence if cells have comments: they are about values, and not among them."""
    found = file.find(part, "comments") or file.find(part, "threadedComment")
    tags = file.iterate_tags(found)
    places = [it["ref"] for name, it in tags if name in ("comment", "threadedComment")]
    if places:
        yield f"Comments on cells are not read: {len(places):,}, the first is on {places[0]}."


_NOTES = {
    "error": "Cells with an error, such as #N/A, are empty: {number:,}, the first is {place}.",
    "formula": "Formulas without a stored value are empty: {number:,}, the first is {place}. "
    "Save the file in a program that calculates them.",
    "hidden": "Values that their format hides are read, too: {number:,}, the first is {place}.",
    "row": "Hidden rows are read, too: {number:,}.",
    "column": "Hidden columns are read, too: {number:,}.",
}


def _write_table(rows: TableRows, table: SheetTable, out: IO[str]) -> Iterator[str]:
    """Write the rows of a table; yield sentences about its names and the units of its numbers."""
    writer = csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_ALL)
    head: list[Sequence[str]] = []
    rounded: set[int] = set()
    found = [table.part.units.get(one, set[Unit]()) for one in table.columns]
    units = [{it.name for it in one} for one in found]
    percent = {at for at, one in enumerate(found) if any(it.is_share for it in one)}
    for _, cells in rows:
        rounded.update(
            at
            for at, it in enumerate(cells)
            if it and it.kind == "number" and _ROUNDED.fullmatch(it.text)
        )
        texts = [_write_cell(cell, is_percent=at in percent) for at, cell in enumerate(cells)]
        if any(texts):
            if len(head) < _HEAD:
                head.append(texts)
            writer.writerow(texts)
    if rows.is_joined:
        yield "Two rows of names are joined."
    names = find_header(head).cells if head else ()
    for at, name in enumerate(names[: len(units)]):
        if at in rounded:
            yield f"{name!r} has numbers of more than 15 digits, which the file has rounded."
        own = sorted(units[at] - {""})
        source = ", by the format of some of its cells" if "" in units[at] else ""
        if own == ["%"] and at in percent:
            others = [it for it in found[at] if it.name and not it.is_share]
            yield f"{name!r} is in percent{source}: {'25 or ' if others else ''}0.25 is 25 %."
        elif len(own) == 1:
            yield f"{name!r} is in {own[0]!r}{source}."
        elif own:
            yield f"{name!r} has values in different units, not to be added up: {', '.join(own)}."


def _write_cell(cell: Cell | None, *, is_percent: bool = False) -> str:
    """Return a cell as a text of the table; what is behind a point are no thousands.

    The text `7%` beside numbers in percent is 0.07, as they are.
    """
    if cell is None or cell.kind in ("error", "formula"):
        return ""
    if is_percent and cell.kind == "text" and (found := _PERCENT.fullmatch(cell.text)):
        return f"{Decimal(found[1].replace(',', '.')) / 100:f}"
    is_doubtful = cell.kind == "number" and AMBIGUOUS.fullmatch(cell.text)
    return f"{cell.text}0" if is_doubtful else cell.text


def _load(spool: IO[bytes]) -> Iterator[tuple[int, dict[int, Cell]]]:
    while True:
        try:
            number, cells = pickle.load(spool)  # noqa: S301 - written by this process
        except EOFError:
            return
        yield number, {at: Cell(*cell) for at, cell in cells.items()}
