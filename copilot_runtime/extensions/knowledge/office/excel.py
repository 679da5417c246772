"""The text of workbooks (XLSX): the rows of each sheet, each value with the name of its column."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from decimal import Decimal
from operator import itemgetter
from typing import TYPE_CHECKING

from copilot_runtime.base.boundaries import describe_doubts
from copilot_runtime.base.jsonvalue import JsonObject
from copilot_runtime.base.layouts import Header, count_remarks, find_header
from copilot_runtime.base.shapes import repeats
from copilot_runtime.base.sheets import SheetLayout, SheetTable, TableRows
from copilot_runtime.base.workbook import Cell, Row, SheetRows, Workbook
from copilot_runtime.extensions.knowledge.office.drawings import read_drawing, read_paragraphs
from copilot_runtime.extensions.knowledge.office.package import OfficeText, Package, get_name
from copilot_runtime.extensions.knowledge.tables import Grid

if TYPE_CHECKING:
    from lxml.etree import _Element as Element  # pyright: ignore[reportPrivateUsage]

_HEAD = 1000
"""Number of rows that show the header of a table."""
_TAIL = 50
"""Number of rows at the end of a table that may be notes."""


def extract_passages(data: bytes) -> JsonObject:
    """Return title, passages and warnings of a workbook."""
    package = Package(data)
    found = OfficeText(package.read_title())
    _WorkbookReader(package, found).read()
    return found.encode()


class _WorkbookReader:
    def __init__(self, package: Package, found: OfficeText) -> None:
        self._package = package
        self._found = found
        self._formulas = 0
        """Number of formulas without a value."""
        self._repeated = 0
        """Number of rows that repeat a header."""
        self._hidden = 0
        """Number of values that their format hides."""

    def read(self) -> None:
        """Add the rows of all sheets that are shown."""
        workbook = Workbook(self._package)
        for sheet in workbook.sheets:
            if sheet.is_hidden:
                self._found.warnings.append(f"The hidden sheet {sheet.name!r} is not read.")
                continue
            self._found.add(sheet.name, level=1)
            self._read_sheet(workbook.read(sheet), sheet.name)
            self._add_notes(sheet.part)
            self._add_drawings(sheet.part)
        if self._repeated:
            self._found.warnings.append(
                f"Rows that repeat the header are left out: {self._repeated:,}."
            )
        if self._hidden:
            self._found.warnings.append(
                f"Values that their format hides are left out: {self._hidden:,}."
            )
        if self._formulas:
            self._found.warnings.append(
                f"Formulas without a stored value: {self._formulas}. Open the file in a program "
                "that calculates them, and save it."
            )

    def _read_sheet(self, sheet: SheetRows, called: str) -> None:
        layout = SheetLayout()
        visible = map(self._drop_invisible, sheet) if sheet.has_hidden else sheet
        rows = [(row.number, cells) for row in visible if (cells := layout.add(row))]
        layout.finish(sheet)
        if sheet.faint:
            self._found.warnings.append(
                f"White or tiny values of the sheet {called!r} are read: {sheet.faint:,}."
            )
        counts = {name: layout.counts.get(name, (0, ""))[0] for name in ("row", "column")}
        self._formulas += layout.counts.get("formula", (0, ""))[0]
        if what := " and ".join(f"{name}s ({count})" for name, count in counts.items() if count):
            self._found.warnings.append(f"Hidden {what} of the sheet {called!r} are read.")
        if len(layout.tables) > 1:
            self._found.warnings.append(
                f"The sheet {called!r} is read as {len(layout.tables)} tables."
            )
        self._found.warnings += describe_doubts(layout.doubts, f"Of the sheet {called!r}, row")
        is_named = True
        parts = sorted((*layout.tables, *layout.remarks), key=lambda it: it.first)
        for part in parts:
            numbers = itemgetter(0)
            start = bisect_left(rows, part.first, key=numbers)
            own = rows[start : bisect_right(rows, part.last, key=numbers)]
            if isinstance(part, SheetTable):
                is_named &= self._add_table([*TableRows(part, layout, own, Grid.longest)])
            else:
                for number, cells in own:
                    self._found.add(" | ".join(map(_write, cells.values())), row=number)
        if not is_named:
            self._found.warnings.append(
                f"A table of the sheet {called!r} has no header: its values have no names of "
                "columns."
            )

    def _drop_invisible(self, row: Row) -> Row:
        """Return a row without the values that their format hides."""
        hidden = [at for at, cell in row.cells.items() if cell.kind == "hidden"]
        self._hidden += len(hidden)
        for at in hidden:
            del row.cells[at]
        return row

    def _add_table(self, rows: Sequence[tuple[int, Sequence[Cell | None]]]) -> bool:
        """Add the rows of a table; return `False` if it has several columns without names."""
        texts = [["" if cell is None else cell.text for cell in cells] for _, cells in rows]
        is_list = not texts or len(texts[0]) < 2
        header = Header(0, ()) if is_list else find_header(texts[:_HEAD])
        names = [name[: Grid.longest] for name in header.cells]
        end = len(rows) - count_remarks(texts[-_TAIL:])
        for at, (number, cells) in enumerate(rows):
            if at > header.position and repeats(header.cells, texts[at]):
                self._repeated += 1
                continue
            values = [(column, _write(cell).strip()) for column, cell in enumerate(cells) if cell]
            if names and header.position < at < end:
                named = (
                    f"{names[column]}: {value}" if names[column] else value
                    for column, value in values
                )
                self._found.add("; ".join(named), row=number)
            elif not names or at != header.position or at == len(rows) - 1:
                self._found.add(" | ".join(value for _, value in values), row=number)
        return bool(names) or is_list

    def _add_notes(self, sheet: str) -> None:
        root = self._package.parse(self._package.find(sheet, "comments"))
        if root is None:
            return
        authors = ["".join(map(str, it.itertext())) for it in root.iter("{*}author")]
        for note in root.iter("{*}comment"):
            author = note.get("authorId", "")
            by = f" by {authors[int(author)]}" if author.isdecimal() and authors else ""
            text = _read_text(note)
            if text.startswith("[Threaded comment]"):  # and a notice for old programs
                by, text = "", text.partition("Comment:")[2].strip()
            self._found.add(f"Note on {note.get('ref')}{by}: {text}")

    def _add_drawings(self, sheet: str) -> None:
        """Add the texts of the shapes on a sheet, and of its charts."""
        part = self._package.find(sheet, "drawing")
        root = self._package.parse(part)
        for element in () if root is None else root.iter("{*}txBody", "{*}chart"):
            if get_name(element) == "chart":
                self._found.add(read_drawing(self._package, part, element))
            else:
                self._found.add("\n".join(read_paragraphs(element)))


def _write(cell: Cell) -> str:
    """Return a value as a person sees it: 0.1 + 0.2 is stored as 0.30000000000000004."""
    if cell.is_struck:
        return f"~~{_write(cell._replace(is_struck=False))}~~"
    if cell.kind == "percent":
        return f"{float(cell.text) * 100:.10g}%"
    if cell.kind != "number":
        return cell.text
    text = cell.text
    if "." in text or "e" in text.lower():
        text = f"{float(text):.15g}"
        if text[-4:-1] == "e+1":  # up to 20 digits
            text = f"{Decimal(cell.text):f}"
    sign = "-" if text.startswith("-") and cell.unit.before else ""
    return f"{sign}{cell.unit.before}{text.removeprefix(sign)}{cell.unit.after}"


def _read_text(element: "Element") -> str:
    """Return a text with formats, without the pronunciation of its characters."""
    return "".join(_list_texts(element))


def _list_texts(element: "Element") -> Iterator[str]:
    for text in element.iter("{*}t"):
        parent = text.getparent()
        if parent is None or not parent.tag.endswith("}rPh"):
            yield text.text or ""
