"""The text of Word documents (DOCX): headings, lists with their numbers, tables and notes.

Tracked changes are read as accepted.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from copilot_runtime.base.jsonvalue import JsonObject
from copilot_runtime.extensions.knowledge.office.drawings import read_drawing
from copilot_runtime.extensions.knowledge.office.package import (
    OfficeText,
    Package,
    find_child,
    get_attribute,
    get_name,
    get_number,
    is_on,
)
from copilot_runtime.extensions.knowledge.office.styles import (
    Style,
    find_unused_margins,
    has_background,
    is_hidden_shape,
    is_white,
    read_styles,
)
from copilot_runtime.extensions.knowledge.office.symbols import UNKNOWN, read_symbol, write_formula
from copilot_runtime.extensions.knowledge.tables import Cell, Grid, format_number

if TYPE_CHECKING:
    from lxml.etree import _Element as Element  # pyright: ignore[reportPrivateUsage]

_UNSEEN = frozenset(
    (
        *("del", "delText", "moveFrom", "Fallback", "instrText", "rt", "txbxContent"),
        *("pPr", "rPr", "sdtPr", "tblPr", "trPr", "tcPr"),
    )
)
"""Deleted texts, codes of fields, properties, and text boxes, which follow their paragraph."""
_SIGNS = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
_DRAWINGS = ("chart", "relIds")
_ASIDES = (
    *("footnoteReference", "endnoteReference", "commentReference", "txbxContent"),
    *_DRAWINGS,
)
_NOT_READ = ("OLEObject", "altChunk")
_MARGINS = ("header", "footer")
_NUMBERS = {"lowerLetter": "a", "upperLetter": "A", "lowerRoman": "i", "upperRoman": "I"}
_LEAST_SIZE = 5
"""The smallest readable font size, in half points."""
_PAGE_NUMBER = re.compile(
    r"\W*(?:(?:page|p|p[a\u00e1]g(?:ina)?|seite|s|sida|side|strona)\W+)?\d*(?:\W+(?:\w+\W+)?\d+)?\W*",
    re.IGNORECASE,
)
"""A header or footer such as `Page 1 of 9`."""


def extract_passages(data: bytes) -> JsonObject:
    """Return title, passages and warnings of a document."""
    package = Package(data)
    found = OfficeText(package.read_title())
    root = package.parse(package.main)
    if root is not None:
        reader = _WordReader(package, found, root)
        reader.read_margins()
        reader.read(root)
        reader.warn_of_changes(root)
    return found.encode()


@dataclass(frozen=True, slots=True)
class _Level:
    format: str
    text: str
    """The pattern of its numbers, such as `%1.%2`."""
    start: int


@dataclass
class _List:
    """The levels of a list and their last numbers, which lists of the same kind share."""

    levels: Mapping[int, _Level]
    numbers: dict[int, int] = field(default_factory=dict[int, int])


class _WordReader:
    def __init__(self, package: Package, found: OfficeText, document: "Element") -> None:
        self._found = found
        self._package = package
        self._hidden = 0
        """Number of hidden texts."""
        relations = package.read_relations(package.main)
        parts = {it.kind: it.target for it in relations.values()}
        unused = find_unused_margins(document, package.parse(parts.get("settings", "")))
        self._margins = [
            (kind, root)
            for kind, part in dict.fromkeys(it for id, it in relations.items() if id not in unused)
            if kind in _MARGINS and (root := package.parse(part)) is not None
        ]
        margins = (root for _, root in self._margins)
        self._has_background = any(map(has_background, (document, *margins)))
        self._styles = read_styles(package.parse(parts.get("styles", "")))
        self._lists, self._starts = _read_lists(package.parse(parts.get("numbering", "")))
        self._notes: dict[tuple[str, str], str] = {}
        for kind in ("footnote", "endnote", "comment"):
            root = package.parse(parts.get(f"{kind}s", ""))
            for note in () if root is None else root:
                text = " ".join(self._text(it) for it in note.iter("{*}p")).strip()
                author = get_attribute(note, "author")
                if text:
                    self._notes[kind, get_attribute(note, "id") or ""] = (
                        f"Note by {author}: {text}" if author else f"Note: {text}"
                    )

    def read(self, root: "Element") -> None:
        """Add the passages below an element."""
        for block in _list_blocks(root):
            if get_name(block) == "tbl":
                for row in self._read_rows(block):
                    self._found.add(row)
            else:
                self._read_paragraph(block)
            for aside in _list_asides(block):
                kind = get_name(aside).removesuffix("Reference")
                if kind == "txbxContent":
                    self.read(aside)
                elif kind in _DRAWINGS:
                    text = read_drawing(self._package, self._package.main, aside)
                    self._found.add(text)
                    if not text:
                        self._warn("A chart or diagram is not read.")
                else:
                    id = get_attribute(aside, "id") or ""
                    self._found.add(self._notes.pop((kind, id), ""))
        if next(root.iter(*(f"{{*}}{name}" for name in _NOT_READ)), None) is not None:
            self._warn("Embedded objects are not read.")

    def read_margins(self) -> None:
        """Add the headers and footers, each text once."""
        texts: dict[str, None] = {}
        for kind, root in self._margins:
            lines = (self._text(it).strip() for it in root.iter("{*}p"))
            text = " ".join(dict.fromkeys(filter(None, lines)))
            if not _PAGE_NUMBER.fullmatch(text):
                texts[f"{kind.title()}: {text}"] = None
        for text in texts:
            self._found.add(text)

    def warn_of_changes(self, root: "Element") -> None:
        """Add warnings about parts of the document that are left out, once it is read."""
        deleted = _count_texts(root, "del", "moveFrom") + sum(
            find_child(it, "del") is not None for it in root.iter("{*}trPr")
        )
        inserted = _count_texts(root, "ins", "moveTo")
        if deleted or inserted:
            self._warn(
                f"Tracked changes are read as accepted: inserted texts ({inserted}) are read, "
                f"deleted ones ({deleted}) are left out."
            )
        if self._hidden:
            self._warn(f"Hidden texts are left out: {self._hidden}.")
        if self._notes:
            self._warn(f"Notes to which no text refers are left out: {len(self._notes)}.")

    def _warn(self, warning: str) -> None:
        if warning not in self._found.warnings:
            self._found.warnings.append(warning)

    def _read_paragraph(self, paragraph: "Element") -> None:
        style = self._style(paragraph)
        text = self._text(paragraph)
        if not text.strip():
            return
        text = self._number(paragraph, style) + text
        outline = find_child(paragraph, "pPr", "outlineLvl")
        level = get_number(outline, "val", 9) + 1 if outline is not None else style.level
        if level and level < 10:
            self._found.add(" ".join(text.split()), level=level)
            return
        if style.name.lower() == "title" and not self._found.title:
            self._found.title = " ".join(text.split())
        self._found.add(text)

    def _style(self, paragraph: "Element") -> Style:
        name = get_attribute(find_child(paragraph, "pPr", "pStyle"), "val") or ""
        return self._styles.get(name, Style())

    def _text(self, paragraph: "Element") -> str:
        """Return the text of a paragraph that is not deleted or hidden.

        Powers are written as `2^10`, and texts that are struck out as `~~void~~`.
        """
        pieces: list[str] = []
        style = self._style(paragraph)
        stack = [*reversed(paragraph)]
        while stack:
            element = stack.pop()
            name = get_name(element)
            if name == "t":
                pieces.append(_mark(element, element.text or ""))
            elif name == "sym":
                pieces.append(read_symbol(element))
                if pieces[-1] == UNKNOWN:
                    self._warn(f"Symbols that are not read are written as {UNKNOWN}.")
            elif name == "checkBox":
                box = find_child(element, "checked")
                is_ticked = is_on(find_child(element, "default") if box is None else box)
                pieces.append("\u2611 " if is_ticked else "\u2610 ")
            elif name == "ddList":
                chosen = get_number(find_child(element, "default"), "val", 0)
                chosen = get_number(find_child(element, "result"), "val", chosen)
                entries = [get_attribute(it, "val") for it in element.iter("{*}listEntry")]
                pieces.append("".join(filter(None, entries[chosen : chosen + 1])))
            elif name in _SIGNS:
                pieces.append(_SIGNS[name])
            elif name == "docPr":
                pieces.append(f" {element.get('descr', '')} ")
            elif name == "textpath":  # WordArt, and watermarks
                pieces.append(f" {element.get('string', '')} ")
            elif name == "oMath":
                pieces.append(write_formula(element))
            elif name in _UNSEEN or _is_prompt(element):
                continue
            elif not self._is_hidden(element, style):
                stack += reversed(element)
            elif next(element.iter("{*}t"), None) is not None:
                self._hidden += 1
        return "".join(pieces).replace("~~~~", "")

    def _is_hidden(self, element: "Element", paragraph: Style) -> bool:
        """Return whether a run is hidden by itself, or else by its style or its paragraph's."""
        properties = find_child(element, "rPr")
        vanish = find_child(properties, "vanish")
        if vanish is not None:
            return is_on(vanish)
        if get_name(element) != "r":
            return is_hidden_shape(element)
        if get_number(find_child(properties, "sz"), "val", _LEAST_SIZE) < _LEAST_SIZE:
            return True
        name = get_attribute(find_child(properties, "rStyle"), "val") or ""
        is_hidden = paragraph.is_hidden or self._styles.get(name, Style()).is_hidden
        if is_hidden or self._has_background:
            return is_hidden
        return is_white(element, paragraph, self._styles)

    def _number(self, paragraph: "Element", style: Style) -> str:
        """Return the number or the bullet of an item of a list, or an empty string."""
        properties = find_child(paragraph, "pPr", "numPr")
        key = get_attribute(find_child(properties, "numId"), "val")
        if key is None:
            key = get_attribute(find_child(style.list, "numId"), "val")
        source = properties if find_child(properties, "ilvl") is not None else style.list
        depth = get_number(find_child(source, "ilvl"), "val", 0)
        found = self._lists.get(key or "")
        if found is None or (level := found.levels.get(depth)) is None:
            return ""
        for inner, start in self._starts.pop(key or "", {}).items():
            found.numbers[inner] = start - 1
        found.numbers[depth] = found.numbers.get(depth, level.start - 1) + 1
        for inner in [it for it in found.numbers if it > depth]:
            del found.numbers[inner]
        if level.format in ("bullet", "none"):
            return "- " if level.format == "bullet" else ""

        def fill(match: re.Match[str]) -> str:
            outer = found.levels.get(int(match[1]) - 1, level)
            number = found.numbers.get(int(match[1]) - 1, outer.start)
            return format_number(number, _NUMBERS.get(outer.format, "1"))

        return f"{re.sub(r'%([1-9])', fill, level.text)} "

    def _read_rows(self, table: "Element") -> Iterator[str]:
        """Yield the rows of a table; a cell that is merged with that above it has its text."""
        grid = Grid()
        above: dict[int, str] = {}
        for row in _list_parts(table, "tr"):
            if _is_hidden_row(row):
                self._hidden += 1
                continue
            cells: list[Cell] = []
            column = 0
            for cell in _list_parts(row, "tc"):
                columns = get_number(find_child(cell, "tcPr", "gridSpan"), "val", 1)
                merge = find_child(cell, "tcPr", "vMerge")
                if merge is not None and get_attribute(merge, "val") != "restart":
                    text = grid.repeat(above.get(column, ""))
                else:
                    text = above[column] = self._read_cell(cell)
                cells.append(Cell(text, columns))
                column += columns
            if text := grid.join(cells):
                yield text

    def _read_cell(self, cell: "Element") -> str:
        texts: list[str] = []
        for block in _list_blocks(cell):
            if get_name(block) == "tbl":
                texts += self._read_rows(block)
            else:
                texts.append(self._number(block, self._style(block)) + self._text(block))
        return " ".join(" ".join(texts).split())


def _count_texts(root: "Element", *names: str) -> int:
    """Return the number of elements of some names that have a text."""
    return sum(
        next(it.iter("{*}t", "{*}delText"), None) is not None
        for it in root.iter(*(f"{{*}}{name}" for name in names))
    )


def _mark(element: "Element", text: str) -> str:
    """Return the text of a run with marks for what its format says."""
    properties = find_child(element.getparent(), "rPr")
    position = get_attribute(find_child(properties, "vertAlign"), "val")
    if position == "superscript" and text.lstrip("-\u2212").isdecimal():
        text = f"^{text}"
    is_struck = any(is_on(find_child(properties, name)) for name in ("strike", "dstrike"))
    return f"~~{text}~~" if is_struck and text.strip() else text


def _list_blocks(element: "Element") -> "Iterator[Element]":
    """Yield the paragraphs and tables in an element, but not those in them."""
    stack = [*reversed(element)]
    while stack:
        inner = stack.pop()
        name = get_name(inner)
        if name in ("p", "tbl"):
            yield inner
        elif name not in _UNSEEN and not _is_prompt(inner):
            stack += reversed(inner)


def _is_hidden_row(element: "Element") -> bool:
    return get_name(element) == "tr" and is_on(find_child(element, "trPr", "hidden"))


def _is_prompt(element: "Element") -> bool:
    """Return whether an element is a field that asks for a text, and has none."""
    is_field = get_name(element) == "sdt"
    return is_field and is_on(find_child(element, "sdtPr", "showingPlcHdr"))


def _list_asides(block: "Element") -> "Iterator[Element]":
    """Yield text boxes and drawings of a block, but not those in them, and references to notes."""
    if next(block.iter(*(f"{{*}}{name}" for name in _ASIDES)), None) is None:
        return
    stack = [block]
    while stack:
        element = stack.pop()
        name = get_name(element)
        if name in _ASIDES:
            yield element
        elif name != "Fallback" and not (_is_hidden_row(element) or is_hidden_shape(element)):
            stack += reversed(element)


def _list_parts(element: "Element", name: str) -> "Iterator[Element]":
    """Yield the rows of a table, or the cells of a row."""
    for inner in element.iterchildren():
        if get_name(inner) == name:
            if find_child(inner, f"{name}Pr", "del") is None:
                yield inner
        elif get_name(inner) in ("sdt", "sdtContent", "customXml", "ins"):
            yield from _list_parts(inner, name)


def _read_lists(
    root: "Element | None",
) -> tuple[dict[str, _List], dict[str, dict[int, int]]]:
    """Return the lists by identifier, and the numbers with which some of them start anew."""
    kinds: dict[str, _List] = {}
    lists: dict[str, _List] = {}
    starts: dict[str, dict[int, int]] = {}
    for element in () if root is None else root:
        if get_name(element) == "abstractNum":
            levels = {
                get_number(it, "ilvl", 0): _Level(
                    get_attribute(find_child(it, "numFmt"), "val") or "decimal",
                    get_attribute(find_child(it, "lvlText"), "val") or "",
                    get_number(find_child(it, "start"), "val", 1),
                )
                for it in element.iterchildren("{*}lvl")
            }
            kinds[get_attribute(element, "abstractNumId") or ""] = _List(levels)
        elif get_name(element) == "num":
            id = get_attribute(element, "numId") or ""
            kind = get_attribute(find_child(element, "abstractNumId"), "val") or ""
            if kind in kinds:
                lists[id] = kinds[kind]
                starts[id] = {
                    get_number(it, "ilvl", 0): get_number(start, "val", 1)
                    for it in element.iterchildren("{*}lvlOverride")
                    if (start := find_child(it, "startOverride")) is not None
                }
    return lists, starts
