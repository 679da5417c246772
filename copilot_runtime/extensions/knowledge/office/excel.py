"""The text of workbooks (XLSX): the rows of each sheet, each value with the name of its column."""

import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from copilot_runtime.base.jsonvalue import JsonObject
from copilot_runtime.extensions.knowledge.office.package import (
    OfficeText,
    Package,
    find_child,
    get_attribute,
)
from copilot_runtime.extensions.knowledge.tables import Grid

if TYPE_CHECKING:
    from lxml.etree import _Element as Element  # pyright: ignore[reportPrivateUsage]

_DATE_FORMATS = frozenset((*range(14, 23), *range(27, 37), *range(45, 48), *range(50, 59)))
"""Identifiers of the built-in formats of dates and times."""
_PERCENT_FORMATS = frozenset((9, 10))
_LITERAL = re.compile(r'"[^"]*"|\\.|\[[^\]]*\]|_.|\*.')
"""Texts, colours and spaces in a format."""
_REFERENCE = re.compile(r"([A-Z]{1,3})([0-9]{1,7})(?::([A-Z]{1,3})([0-9]{1,7}))?")
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

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number
        self.names = 0
        """How many of the values may be names of columns."""


class _WorkbookReader:
    def __init__(self, package: Package, found: OfficeText) -> None:
        self._package = package
        self._found = found
        self._relations = package.read_relations(package.main)
        parts = {it.kind: it.target for it in self._relations.values()}
        self._texts = [
            _read_text(it) for it in package.iterate(parts.get("sharedStrings", ""), "si")
        ]
        self._formats = _read_formats(package.parse(parts.get("styles", "")))
        self._epoch = datetime(1899, 12, 30)
        self._formulas = 0
        """Number of formulas without a value."""

    def read(self) -> None:
        """Add the rows of all sheets that are shown."""
        root = self._package.parse(self._package.main)
        if root is None:
            return
        if get_attribute(find_child(root, "workbookPr"), "date1904") in ("1", "true"):
            self._epoch = datetime(1904, 1, 1)
        for sheet in root.iter("{*}sheet"):
            name = sheet.get("name", "")
            ids = [value for key, value in sheet.attrib.items() if str(key).endswith("}id")]
            relation = self._relations.get(str(ids[0])) if ids else None
            if relation is None or relation.kind != "worksheet":
                continue
            if sheet.get("state", "visible") != "visible":
                self._found.warnings.append(f"The hidden sheet {name!r} is not read.")
                continue
            self._found.add(name, level=1)
            self._add_rows(self._read_rows(relation.target))
            self._add_notes(relation.target)
        if self._formulas:
            self._found.warnings.append(
                f"Formulas without a stored value: {self._formulas}. Open the file in a program "
                "that calculates them, and save it."
            )

    def _read_rows(self, part: str) -> list[_Row]:
        rows: dict[int, _Row] = {}
        grid = Grid()
        number = 0
        for element in self._package.iterate(part, "row", "mergeCell"):
            if element.tag.endswith("}row"):
                number = int(element.get("r", number + 1))
                rows[number] = self._read_row(element, number)
            elif match := _REFERENCE.fullmatch(element.get("ref", "")):
                first, last = int(match[2]), int(match[4] or 0)
                column = _read_column(match[1])
                text = rows[first].get(column, "") if first in rows else ""
                for below in range(first + 1, min(last, number) + 1):
                    if grid.room < 0 or not text:
                        break
                    if below in rows and (repeated := grid.repeat(text)):
                        rows[below].setdefault(column, repeated)
        return [row for row in rows.values() if row]

    def _read_row(self, element: "Element", number: int) -> _Row:
        row = _Row(number)
        column = 0
        for cell in element.iterchildren("{*}c"):
            match = _REFERENCE.fullmatch(cell.get("r", ""))
            column = _read_column(match[1]) if match else column + 1
            kind = cell.get("t", "n")
            if value := self._read_value(cell, kind).strip():
                row[column] = value
                row.names += kind not in ("b", "e") and not _NUMBER.fullmatch(value[:100])
        return row

    def _read_value(self, cell: "Element", kind: str) -> str:
        if kind == "inlineStr":
            inline = find_child(cell, "is")
            return "" if inline is None else _read_text(inline)
        element = find_child(cell, "v")
        value = "" if element is None else element.text or ""
        if not value:
            self._formulas += find_child(cell, "f") is not None
            return ""
        if kind == "s":
            return self._texts[int(value)]
        if kind == "b":
            return "TRUE" if value == "1" else "FALSE"
        if kind != "n":
            return value
        return self._write_number(value, self._formats.get(cell.get("s", "0"), ""))

    def _write_number(self, value: str, format: str) -> str:
        """Return a number as its format shows it: as a date, as a percentage, or as it is."""
        number = float(value)
        if format == "%":
            return f"{number * 100:.10g}%"
        if format and 0 <= number < 2_958_466:
            moment = self._epoch + timedelta(seconds=round(number * 86400))
            if number < 1 and "d" not in format:
                return moment.strftime("%H:%M:%S")
            return moment.date().isoformat() if number == int(number) else str(moment)
        # as a person sees it: 0.1 + 0.2 is stored as 0.30000000000000004
        return f"{number:.15g}" if "." in value or "E" in value else value

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


def _read_text(element: "Element") -> str:
    """Return a text with formats, without the pronunciation of its characters."""
    return "".join(_list_texts(element))


def _list_texts(element: "Element") -> Iterator[str]:
    for text in element.iter("{*}t"):
        parent = text.getparent()
        if parent is None or not parent.tag.endswith("}rPh"):
            yield text.text or ""


def _read_formats(root: "Element | None") -> dict[str, str]:
    """Return the formats of dates and percentages by the number of the style of a cell."""
    styles = find_child(root, "cellXfs")
    if root is None or styles is None:
        return {}
    codes = {it.get("numFmtId"): it.get("formatCode", "") for it in root.iter("{*}numFmt")}
    formats: dict[str, str] = {}
    for number, style in enumerate(styles):
        id = style.get("numFmtId", "0")
        code = _LITERAL.sub("", codes.get(id, "").partition(";")[0].lower())
        if "%" in code or int(id) in _PERCENT_FORMATS:
            formats[str(number)] = "%"
        elif int(id) in _DATE_FORMATS:
            formats[str(number)] = "h" if int(id) in (18, 19, 20, 21, 45, 46, 47) else "d"
        elif code != "general" and re.search("[ymdhs]", code):
            formats[str(number)] = "d" if re.search("[yd]", code) else "h"
    return formats


def _read_column(letters: str) -> int:
    number = 0
    for letter in letters:
        number = number * 26 + ord(letter) - 64
    return number
