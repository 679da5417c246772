"""The text of workbooks (XLSX): the rows of each sheet, each value with the name of its column."""

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from copilot_runtime.base.jsonvalue import JsonObject
from copilot_runtime.base.workbook import Cell, Row, SheetRows, Workbook
from copilot_runtime.extensions.knowledge.office.package import OfficeText, Package
from copilot_runtime.extensions.knowledge.tables import Grid

if TYPE_CHECKING:
    from lxml.etree import _Element as Element  # pyright: ignore[reportPrivateUsage]

_NUMBER = re.compile(r"(?!(?:19|20)\d\d$)\W*[\d.,:\s-]*\d\W*")
"""A number with or without a currency, or a date, but not a year, which may be a name."""
_HEAD = 30
"""Number of rows that may stand above a table, such as its title."""


def extract_passages(data: bytes) -> JsonObject:
    """Return title, passages and warnings of a workbook."""
    package = Package(data)
    found = OfficeText(package.read_title())
    _WorkbookReader(package, found).read()
    return found.encode()


class _Row(dict[int, str]):
    """The values of a row by the number of their column."""

    def __init__(self, row: Row) -> None:
        super().__init__()
        self.number = row.number
        self.names = 0
        """How many of the values may be names of columns."""
        for column, cell in row.cells.items():
            if value := _write(cell).strip():
                self[column] = value
                is_name = cell.kind not in ("boolean", "error")
                self.names += is_name and not _NUMBER.fullmatch(value[:100])


class _WorkbookReader:
    def __init__(self, package: Package, found: OfficeText) -> None:
        self._package = package
        self._found = found
        self._formulas = 0
        """Number of formulas without a value."""

    def read(self) -> None:
        """Add the rows of all sheets that are shown."""
        workbook = Workbook(self._package)
        for sheet in workbook.sheets:
            if sheet.is_hidden:
                self._found.warnings.append(f"The hidden sheet {sheet.name!r} is not read.")
                continue
            self._found.add(sheet.name, level=1)
            self._add_rows(self._read_rows(workbook.read(sheet), sheet.name))
            self._add_notes(sheet.part)
        if self._formulas:
            self._found.warnings.append(
                f"Formulas without a stored value: {self._formulas}. Open the file in a program "
                "that calculates them, and save it."
            )

    def _read_rows(self, sheet: SheetRows, called: str) -> list[_Row]:
        rows: dict[int, _Row] = {}
        grid = Grid()
        number = hidden = 0
        for row in sheet:
            number = row.number
            rows[number] = _Row(row)
            hidden += row.is_hidden and bool(row.cells)
            self._formulas += sum(cell.kind == "formula" for cell in row.cells.values())
        widest = max((column + 1 for row in rows.values() for column in row), default=0)
        counts = {"rows": hidden, "columns": min(sheet.hidden_columns, widest)}
        if what := " and ".join(f"{name} ({count})" for name, count in counts.items() if count):
            self._found.warnings.append(f"Hidden {what} of the sheet {called!r} are read.")
        for merged in sheet.merged:
            column = merged.column
            text = rows[merged.row].get(column, "") if merged.row in rows else ""
            for below in range(merged.row + 1, min(merged.last_row, number) + 1):
                if grid.room < 0 or not text:
                    break
                if below in rows and (repeated := grid.repeat(text)):
                    rows[below].setdefault(column, repeated)
        return [row for row in rows.values() if row]

    def _add_rows(self, rows: Sequence[_Row]) -> None:
        header = _find_header(rows)
        names = {} if header is None else {key: it[: Grid.longest] for key, it in header.items()}
        is_below = False
        for row in rows:
            if row is header:
                is_below = True
                if row is not rows[-1]:
                    continue
            values = (row[column] for column in sorted(row))
            if is_below and row is not header:
                cells = (
                    f"{names[column]}: {row[column]}" if column in names else row[column]
                    for column in sorted(row)
                )
                self._found.add("; ".join(cells), row=row.number)
            else:
                self._found.add(" | ".join(values), row=row.number)

    def _add_notes(self, sheet: str) -> None:
        root = self._package.parse(self._package.find(sheet, "comments"))
        if root is None:
            return
        authors = ["".join(map(str, it.itertext())) for it in root.iter("{*}author")]
        for note in root.iter("{*}comment"):
            author = note.get("authorId", "")
            by = f" by {authors[int(author)]}" if author.isdecimal() and authors else ""
            self._found.add(f"Note on {note.get('ref')}{by}: {_read_text(note)}")


def _find_header(rows: Sequence[_Row]) -> _Row | None:
    """Return the row with the names of the columns: the first wide one, if most may be names."""
    head = rows[:_HEAD]
    width = max(map(len, head), default=0)
    first = next((row for row in head if len(row) >= max(2, 0.6 * width)), None)
    return first if first is not None and first.names * 2 > len(first) else None


def _write(cell: Cell) -> str:
    """Return a value as a person sees it: 0.1 + 0.2 is stored as 0.30000000000000004."""
    if cell.kind == "percent":
        return f"{float(cell.text) * 100:.10g}%"
    if cell.kind == "number" and ("." in cell.text or "E" in cell.text):
        return f"{float(cell.text):.15g}"
    return cell.text


def _read_text(element: "Element") -> str:
    """Return a text with formats, without the pronunciation of its characters."""
    return "".join(_list_texts(element))


def _list_texts(element: "Element") -> Iterator[str]:
    for text in element.iter("{*}t"):
        parent = text.getparent()
        if parent is None or not parent.tag.endswith("}rPh"):
            yield text.text or ""
