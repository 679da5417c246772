"""The text of presentations (PPTX): slides with their titles, tables, pictures and notes."""

from collections.abc import Iterator
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
)
from copilot_runtime.extensions.knowledge.tables import Cell, Grid, format_number

if TYPE_CHECKING:
    from lxml.etree import _Element as Element  # pyright: ignore[reportPrivateUsage]

_TITLES = ("title", "ctrTitle")
_FURNITURE = ("sldNum", "dt", "ftr", "hdr")
_LEAST_SIZE = 250
"""The smallest readable font size, in hundredths of a point."""
_NOTES = ("notesSlide", "comments")
_NUMBERS = {"alphaLc": "a", "alphaUc": "A", "romanLc": "i", "romanUc": "I"}


def extract_passages(data: bytes) -> JsonObject:
    """Return title, passages and warnings of a presentation."""
    package = Package(data)
    found = OfficeText(package.read_title())
    root = package.parse(package.main)
    relations = package.read_relations(package.main)
    size = find_child(root, "sldSz")
    edges = (get_number(size, "cx", 10**9), get_number(size, "cy", 10**9))
    for number, id in enumerate(() if root is None else root.iter("{*}sldId"), 1):
        keys = [value for key, value in id.attrib.items() if str(key).endswith("}id")]
        relation = relations.get(str(keys[0])) if keys else None
        if relation is not None:
            _SlideReader(package, found, relation.target, number, edges).read()
    return found.encode()


class _SlideReader:
    def __init__(
        self, package: Package, found: OfficeText, part: str, number: int, edges: tuple[int, int]
    ) -> None:
        self._package = package
        self._found = found
        self._part = part
        self._number = number
        self._edges = edges
        self._relations = package.read_relations(part)

    def read(self) -> None:
        """Add the texts of the slide, unless it is hidden."""
        slide = self._package.parse(self._part)
        if slide is None:
            return
        if slide.get("show") in ("0", "false"):
            self._found.warnings.append(f"The hidden slide {self._number} is not read.")
            return
        shapes = [*_list_shapes(slide)]
        titles = [it for it in shapes if _find_role(it) in _TITLES]
        title = " ".join(" ".join(line for it in titles for line in _read_lines(it)).split())
        if title:
            self._found.add(title, level=1, page=self._number)
        else:
            self._found.add(f"Slide {self._number}", level=1)
        for shape in shapes:
            if shape not in titles:
                self._read_shape(shape)
        is_plain = not any(map(_has_background, self._list_layers(slide)))
        if any(self._is_outside(it) or _is_faint(it, is_plain) for it in shapes):
            self._found.warnings.append(
                f"Slide {self._number}: texts that are white, tiny or outside of it are read."
            )
        for kind, part in dict.fromkeys(self._relations.values()):
            root = self._package.parse(part) if kind in _NOTES else None
            if root is not None:
                self._read_notes(root, kind)

    def _list_layers(self, slide: "Element") -> "Iterator[Element]":
        """Yield the slide, its layout and the master of that."""
        yield slide
        relations = self._relations
        for layer in ("slideLayout", "slideMaster"):
            part = next((it.target for it in relations.values() if it.kind == layer), "")
            root = self._package.parse(part)
            if root is None:
                return
            yield root
            relations = self._package.read_relations(part)

    def _is_outside(self, shape: "Element") -> bool:
        """Return whether a shape that is in no group has a text, and is outside of the slide."""
        frame = find_child(shape, "spPr", "xfrm")
        parent = shape.getparent()
        if frame is None or (parent is not None and get_name(parent) == "grpSp"):
            return False
        offset, extent = find_child(frame, "off"), find_child(frame, "ext")
        for axis, length, edge in zip("xy", ("cx", "cy"), self._edges, strict=True):
            start = get_attribute(offset, axis) or ""
            first = int(start) if start.lstrip("-").isdecimal() else 0
            if first >= edge or first + get_number(extent, length, edge) <= 0:
                return any(_read_lines(shape))
        return False

    def _read_shape(self, shape: "Element") -> None:
        if _find_role(shape) in _FURNITURE:
            return
        properties = next(shape.iter("{*}cNvPr"), None)
        self._add(get_attribute(properties, "descr") or "")
        table = next(shape.iter("{*}tbl"), None)
        if table is not None:
            for row in _read_rows(table):
                self._add(row)
            return
        if next(shape.iter("{*}oleObj"), None) is not None:
            self._found.warnings.append(f"Slide {self._number}: its embedded object is not read.")
        for drawing in shape.iter("{*}chart", "{*}relIds"):
            text = read_drawing(self._package, self._part, drawing)
            self._add(text)
            if not text:
                warning = f"Slide {self._number}: its chart or diagram is not read."
                self._found.warnings.append(warning)
        self._add("\n".join(_read_lines(shape)))

    def _read_notes(self, root: "Element", kind: str) -> None:
        if kind == "notesSlide":
            bodies = [it for it in _list_shapes(root) if _find_role(it) == "body"]
            text = "\n".join(line for it in bodies for line in _read_lines(it)).strip()
            self._add(f"Notes: {text}" if text else "")
            return
        for note in root.iter("{*}cm"):
            texts = (it.text or "" for it in note.iter("{*}text", "{*}t"))
            self._add(f"Note: {' '.join(texts)}")

    def _add(self, text: str) -> None:
        self._found.add(text, page=self._number)


def _list_shapes(slide: "Element") -> "Iterator[Element]":
    """Yield the shapes that a slide shows, also those in groups."""
    stack = [slide]
    while stack:
        element = stack.pop()
        name = get_name(element)
        if name in ("sp", "graphicFrame", "pic", "cxnSp"):
            properties = next(element.iter("{*}cNvPr"), None)
            if get_attribute(properties, "hidden") not in ("1", "true"):
                yield element
        elif name != "Fallback":
            stack += reversed(element)


def _has_background(layer: "Element") -> bool:
    """Return whether something on a layer of a slide may be painted in a colour or a picture."""
    if next(layer.iter("{*}blip", "{*}gradFill", "{*}pattFill", "{*}tbl"), None) is not None:
        return True
    fills = [find_child(it, "solidFill") for it in layer.iter("{*}spPr", "{*}grpSpPr", "{*}bgPr")]
    references = [it for it in layer.iter("{*}fillRef") if it.get("idx") != "0"]
    backgrounds = [*layer.iter("{*}bgRef"), *(it for it in fills if it is not None)]
    return bool(references) or not all(map(_is_white, backgrounds))


def _is_faint(shape: "Element", is_plain: bool) -> bool:
    """Return whether a shape has a text of less than 2.5 pt, or of white on a plain slide."""
    for run in shape.iter("{*}r"):
        properties = find_child(run, "rPr")
        fill = find_child(properties, "solidFill")
        is_white = is_plain and fill is not None and _is_white(fill)
        is_tiny = get_number(properties, "sz", _LEAST_SIZE) < _LEAST_SIZE
        if (is_white or is_tiny) and any(it.text and it.text.strip() for it in run.iter("{*}t")):
            return True
    return False


def _is_white(fill: "Element") -> bool:
    """Return whether a fill is white, the usual colour of the background."""
    color = next(fill.iterchildren(), None)
    is_changed = color is None or len(color) > 0
    return not is_changed and get_attribute(color, "val") in ("FFFFFF", "bg1", "lt1", "window")


def _find_role(shape: "Element") -> str:
    """Return the type of the placeholder that a shape fills, or an empty string."""
    placeholder = next(shape.iter("{*}ph"), None)
    return "" if placeholder is None else placeholder.get("type", "")


def _read_lines(element: "Element") -> Iterator[str]:
    """Yield the paragraphs in an element, with their numbers."""
    numbers: dict[int, int] = {}
    for paragraph in element.iter("{*}p"):
        text = "".join(_read_pieces(paragraph)).replace("~~~~", "")
        if not text.strip():
            continue
        properties = find_child(paragraph, "pPr")
        depth = get_number(properties, "lvl", 0)
        numbers = {outer: number for outer, number in numbers.items() if outer <= depth}
        automatic = find_child(properties, "buAutoNum")
        if automatic is None:
            numbers.pop(depth, None)
            yield text
            continue
        numbers[depth] = numbers.get(depth, get_number(automatic, "startAt", 1) - 1) + 1
        kind = automatic.get("type", "")
        style = next((it for name, it in _NUMBERS.items() if kind.startswith(name)), "1")
        yield f"{format_number(numbers[depth], style)}. {text}"


def _read_pieces(paragraph: "Element") -> Iterator[str]:
    for element in paragraph.iter("{*}t", "{*}br"):
        text = (element.text or "") if get_name(element) == "t" else "\n"
        strike = get_attribute(find_child(element.getparent(), "rPr"), "strike") or "noStrike"
        yield f"~~{text}~~" if strike != "noStrike" and text.strip() else text


def _read_rows(table: "Element") -> Iterator[str]:
    grid = Grid()
    for row in table.iter("{*}tr"):
        cells = [
            Cell(
                " ".join(" ".join(_read_lines(cell)).split()),
                get_number(cell, "gridSpan", 1),
                get_number(cell, "rowSpan", 1),
            )
            for cell in row.iterchildren("{*}tc")
            if cell.get("hMerge") not in ("1", "true") and cell.get("vMerge") not in ("1", "true")
        ]
        if text := grid.join(cells):
            yield text
