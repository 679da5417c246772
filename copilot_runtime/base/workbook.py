"""Workbooks (XLSX): the rows of their sheets, one after the other, with the kinds of values."""

import re
import unicodedata
from array import array
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from copilot_runtime.base.cell_looks import list_looks
from copilot_runtime.base.errors import CopilotError
from copilot_runtime.base.office import OfficeFile, open_parser

Kind = Literal["text", "number", "percent", "date", "time", "boolean", "error", "formula", "hidden"]
"""The kind of a value; a `formula` is one whose value the file does not have."""


class Unit(NamedTuple):
    """The texts that the format of a number shows around it."""

    before: str = ""
    after: str = ""
    is_share: bool = False
    """`True` if the format shows a hundred times the number."""

    @property
    def name(self) -> str:
        """The unit, such as `kg`; empty if the texts are no unit, as in `Q1` or `ID-7`."""
        before = self.before.strip()
        is_unit = self.before != before or any(unicodedata.category(it) == "Sc" for it in before)
        return f"{before if is_unit else ''} {self.after.strip()}".strip()


_NO_UNIT = Unit()
_PERCENT = Unit(after="%", is_share=True)


class _NumberFormat(NamedTuple):
    unit: Unit
    zeros: int
    """The number of digits that are shown, with zeros before the others."""


_Format = Literal["", "percent", "date", "moment", "time", "elapsed", "hidden"] | _NumberFormat

_SECTION = re.compile(r'(?:"[^"]*"|\\.|\[[^\]]*\]|[^;"\\\[])*')
"""The part of a format for positive numbers."""
_TOKEN = re.compile(
    r'"(?P<text>[^"]*)"|\\(?P<sign>.)|\[\$(?P<currency>[^\]-]*)[^\]]*\]'
    r"|(?P<other>\[[^\]]*\]|[_*].)|(?P<digits>General|[0#?.,/@]+|E[+-]0+)|(?P<plain>.)",
    re.IGNORECASE | re.DOTALL,
)
_NOTHING = re.compile(r"\s*;\s*;\s*;\s*")
_CONDITION = re.compile(r"\[[<>=]")
_WORDS = re.compile(r"[^\s()+\-:.,]")
_LITERAL = re.compile(r'"[^"]*"|\\.|\[[^\]]*\]|_.|\*.')
"""Texts, colours and spaces in a format."""
_ELAPSED = re.compile(r"\[(?:h+|m+|s+)\]")
_FORMATS: Mapping[int, _Format] = {
    **dict.fromkeys((9, 10), "percent"),
    **dict.fromkeys((*range(14, 18), *range(27, 32), 36, *range(50, 55), 57, 58), "date"),
    **dict.fromkeys((*range(18, 22), *range(32, 36), 45, 47, 55, 56), "time"),
    22: "moment",
    46: "elapsed",
}
"""The built-in formats that are not those of plain numbers, by identifier."""
_ESCAPE = re.compile("_x([0-9A-Fa-f]{4})_")
_DIGITS = "0123456789"
_CELL = 32_767
"""Maximum number of characters in a cell, in Excel as well."""
_DAYS = 2_958_466
"""Number of the first day that is not a date: 10000-01-01."""
_LEAP_DAY = 60
"""The day 1900-02-29 of Excel, which was none: earlier dates have a number less."""


class Sheet(NamedTuple):
    """A sheet with cells."""

    name: str
    part: str
    is_hidden: bool


class Cell(NamedTuple):
    """A value. Dates are in ISO 8601; times have seconds; numbers are as they are stored."""

    kind: Kind
    text: str
    unit: Unit = _NO_UNIT
    is_struck: bool = False
    """`True` if a line strikes it out."""


class Row(NamedTuple):
    """The cells of a row that have a value, by the number of their column from 0."""

    number: int
    cells: dict[int, Cell]
    is_hidden: bool


class Range(NamedTuple):
    """Merged cells; only the first one has a value. Columns count from 0."""

    row: int
    column: int
    last_row: int
    last_column: int


class Workbook:
    """The sheets of a workbook. Raises `CopilotError` if it is damaged."""

    def __init__(self, file: OfficeFile) -> None:
        self.file = file
        relations = file.read_relations(file.main)
        parts = {it.kind: it.target for it in relations.values()}
        self.epoch = datetime(1899, 12, 30)
        self.has_results = True
        """`False` if formulas have 0 in place of results until they are calculated."""
        self.sheets: list[Sheet] = []
        for name, attributes in file.iterate_tags(file.main):
            if name == "workbookPr" and attributes.get("date1904") in ("1", "true"):
                self.epoch = datetime(1904, 1, 1)
            if name == "calcPr" and attributes.get("fullCalcOnLoad") in ("1", "true"):
                self.has_results = False
            relation = relations.get(attributes.get("id", "")) if name == "sheet" else None
            if relation is not None and relation.kind == "worksheet":
                is_hidden = attributes.get("state", "visible") != "visible"
                self.sheets.append(Sheet(attributes.get("name", ""), relation.target, is_hidden))
        self.formats = _read_formats(file, parts.get("styles", ""))
        self.looks = dict(list_looks(file, parts.get("styles", "")))
        self.texts = _Texts(file, parts.get("sharedStrings", ""))

    def read(self, sheet: Sheet) -> "SheetRows":
        """Return the rows of a sheet, which are read while they are iterated."""
        return SheetRows(self, sheet)


class SheetRows:
    """The rows of a sheet in order; after the last one, what the file says below them."""

    def __init__(self, workbook: Workbook, sheet: Sheet) -> None:
        self.merged: list[Range] = []
        self.hidden_columns = 0
        self.faint = 0
        """Number of invisible values, unless a table or a rule gives them a background."""
        self._workbook = workbook
        self._sheet = sheet
        self._columns: dict[str, int] = {}
        self._rows: list[Row] = []
        self._row = Row(0, {}, False)
        self._column = -1
        self._cell: Mapping[str, str] = {}
        self._texts: list[str] = []
        self._is_value = self._is_formula = self._is_phonetic = False
        self.has_hidden = "hidden" in workbook.formats.values()
        """`True` if formats may hide values."""

    def __iter__(self) -> Iterator[Row]:
        parser = open_parser()
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._add_text
        for _ in self._workbook.file.feed(parser, self._sheet.part):
            yield from self._rows
            self._rows.clear()

    def _start(self, name: str, attributes: Mapping[str, str]) -> None:
        match name.rpartition(":")[2]:
            case "c":
                self._cell = attributes
                self._texts.clear()
                self._is_formula = False
                reference = attributes.get("r", "")
                self._column = self._read_column(reference) if reference else self._column + 1
            case "v" | "t":
                self._is_value = not self._is_phonetic
            case "f":
                self._is_formula = True
            case "rPh":
                self._is_phonetic = True
            case "row":
                number = int(attributes.get("r", self._row.number + 1))
                self._row = Row(number, {}, attributes.get("hidden") in ("1", "true"))
                self._column = -1
            case "mergeCell":
                first, _, last = attributes.get("ref", "").partition(":")
                self.merged.append(
                    Range(*self._read_reference(first), *self._read_reference(last or first))
                )
            case "col" if attributes.get("hidden") in ("1", "true"):
                self.hidden_columns += int(attributes["max"]) - int(attributes["min"]) + 1
            case _:
                pass

    def _add_text(self, text: str) -> None:
        if self._is_value:
            self._texts.append(text)

    def _end(self, name: str) -> None:
        match name.rpartition(":")[2]:
            case "c":
                value = "".join(self._texts)
                kind = self._cell.get("t", "n")
                if self._is_formula and value == "0" and not self._workbook.has_results:
                    value = ""
                if value or (self._is_formula and kind == "n"):
                    cell = self._convert(kind, value)
                    if self.has_hidden and self._find_format() == "hidden":
                        cell = cell._replace(kind="hidden")
                    if look := self._workbook.looks.get(self._cell.get("s", "0")):
                        self.faint += look.is_faint
                        cell = cell._replace(is_struck=look.is_struck)
                    if len(cell.text) > _CELL:  # many cells may share one text
                        raise CopilotError(f"A cell has more than {_CELL:,} characters.")
                    self._row.cells[self._column] = cell
            case "v" | "t":
                self._is_value = False
            case "rPh":
                self._is_phonetic = False
            case "row":
                self._rows.append(self._row)
            case _:
                pass

    def _read_reference(self, text: str) -> tuple[int, int]:
        return int(text.lstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ")), self._read_column(text)

    def _read_column(self, reference: str) -> int:
        letters = reference.rstrip(_DIGITS)
        if (column := self._columns.get(letters)) is None:
            column = 0
            for letter in letters:
                column = column * 26 + ord(letter) - 64
            column = self._columns[letters] = column - 1
        return column

    def _convert(self, kind: str, value: str) -> Cell:
        match kind:
            case "s":
                return Cell("text", self._workbook.texts[int(value)])
            case "b":
                return Cell("boolean", "FALSE" if value in ("0", "false") else "TRUE")
            case "e":
                return Cell("error", value)
            case "d":
                return Cell("date", value.replace("T", " ").removesuffix(" 00:00:00"))
            case "n":
                return (
                    self._convert_number(value, self._find_format())
                    if value
                    else Cell("formula", "")
                )
            case _:
                return Cell("text", unescape(value))

    def _find_format(self) -> _Format:
        return self._workbook.formats.get(self._cell.get("s", "0"), "")

    def _convert_number(self, value: str, style: _Format) -> Cell:
        if isinstance(style, _NumberFormat):
            is_code = style.zeros > 1 and value.isdecimal()
            return Cell("number", value.zfill(style.zeros) if is_code else value, style.unit)
        if style in ("", "hidden"):
            return Cell("number", value)
        if style == "percent":
            return Cell("percent", value, _PERCENT)
        number = float(value)
        if number == 0 and style in ("date", "moment"):
            return Cell("error", value)  # of a reference to an empty cell
        if not 0 <= number < _DAYS:
            return Cell("number", value)
        if style == "elapsed":
            minutes, seconds = divmod(round(number * 86400), 60)
            return Cell("time", f"{minutes // 60:02}:{minutes % 60:02}:{seconds:02}")
        if number < _LEAP_DAY and self._workbook.epoch.year < 1900 and style != "time":
            number += 1
        moment = self._workbook.epoch + timedelta(milliseconds=round(number * 86_400_000))
        if style == "time" and number < 1:
            return Cell("time", str(moment.time()))
        if style == "date" and number == int(number):
            return Cell("date", moment.date().isoformat())
        return Cell("date", str(moment))


class _Texts(Sequence[str]):
    """The texts that cells share, in one block of bytes."""

    def __init__(self, file: OfficeFile, part: str) -> None:
        self._bytes = bytearray()
        self._ends = array("Q", [0])
        self._is_text = self._is_phonetic = False
        parser = open_parser()
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._add
        for _ in file.feed(parser, part):
            pass

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, at: int) -> str:  # type: ignore[override]
        text = self._bytes[self._ends[at] : self._ends[at + 1]].decode("utf-8", "replace")
        return unescape(text)

    def _start(self, name: str, _: Mapping[str, str]) -> None:
        name = name.rpartition(":")[2]
        self._is_phonetic = self._is_phonetic or name == "rPh"
        self._is_text = name == "t" and not self._is_phonetic

    def _add(self, text: str) -> None:
        if self._is_text:
            self._bytes += text.encode()

    def _end(self, name: str) -> None:
        match name.rpartition(":")[2]:
            case "si":
                self._ends.append(len(self._bytes))
            case "t":
                self._is_text = False
            case "rPh":
                self._is_phonetic = False
            case _:
                pass


def unescape(text: str) -> str:
    """Return a text in which control characters are written as `_x000D_`, with the characters."""
    if "_x" not in text:
        return text
    return _ESCAPE.sub(lambda match: chr(int(match[1], 16)), text)


def _read_formats(file: OfficeFile, part: str) -> Mapping[str, _Format]:
    """Return the formats that are not those of plain numbers, by the number of a cell's style."""
    codes: dict[int, str] = {}
    formats: dict[str, _Format] = {}
    number, is_cell = 0, False
    for name, attributes in file.iterate_tags(part):
        if name == "numFmt":
            codes[int(attributes["numFmtId"])] = attributes.get("formatCode", "")[:255]  # as Excel
        elif name in ("cellXfs", "cellStyles", "dxfs"):
            is_cell = name == "cellXfs"
        elif name == "xf" and is_cell:
            id = int(attributes.get("numFmtId", "0"))
            if format := _read_format(codes[id]) if id in codes else _FORMATS.get(id, ""):
                formats[str(number)] = format
            number += 1
    return formats


def _read_format(code: str) -> _Format:
    if _NOTHING.fullmatch(code):
        return "hidden"
    found = _SECTION.match(code)
    section = found[0] if found else code
    code = section.lower()
    if _ELAPSED.search(code):
        return "elapsed"
    code = _LITERAL.sub("", code)
    if "%" in code:
        return "percent"
    is_time = bool(re.search("[hs]", code))
    if re.search("[yd]", code) or ("m" in code and not is_time):
        return "moment" if is_time else "date"
    if is_time:
        return "time"
    zeros = len(code.strip()) if re.fullmatch(r"\s*0+\s*", code) else 0
    unit = _read_unit(section)
    return _NumberFormat(unit, zeros) if zeros > 1 or unit.name else ""


def _read_unit(section: str) -> Unit:
    """Return the texts around a number in a format; none where the format changes the number."""
    texts = ["", "", ""]
    """Before the first digits, between them, and behind the last ones."""
    digits = ""
    for token in _TOKEN.finditer(section):
        match token.lastgroup:
            case "digits":
                texts[1] += texts[2] if digits else ""
                texts[2], digits = "", token[0]
            case "other":
                texts[2 if digits else 0] += "" if token[0].startswith("[") else " "
            case group:
                texts[2 if digits else 0] += token[group or 0]
    is_scaled = digits.endswith(",")
    if is_scaled or texts[1].strip() or not digits or _CONDITION.search(section):
        return _NO_UNIT
    before, after = (text if _WORDS.search(text) else "" for text in (texts[0], texts[2]))
    return Unit(before.lstrip(), after.rstrip())
