"""The text of HTML pages as passages, with their headings, tables, lists and preformatted texts."""

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from lxml import etree

from copilot_runtime.extensions.knowledge.ingestion.chunks import Chunk, ChunkPosition, Headings
from copilot_runtime.extensions.knowledge.rdf.html import (
    APART,
    BLOCKS,
    STRUCK,
    UNSEEN,
    VALUED,
    clean_text,
    element_text,
    find_elements_with_lines,
    is_power,
    read_lines,
    read_value,
)
from copilot_runtime.extensions.knowledge.tables import Cell, Grid, format_number

if TYPE_CHECKING:
    from lxml.etree import _Element as Element  # pyright: ignore[reportPrivateUsage]

_CELLS = ("td", "th")
_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
_LAYOUT = ("table", "pre", "article", "section", *_HEADINGS)
"""Elements of tables that arrange a page."""
_SPECIAL = UNSEEN | {"nav", *VALUED, "tr", "table", "li", "sup", *APART, *STRUCK, *_HEADINGS}
"""Elements that are more than their texts; all others are passed by quickly."""


def read_title(root: "Element") -> str:
    """Return the title of a page, its only main heading, or an empty string."""
    title = root.find(".//title")
    text = clean_text(title.text or "").strip() if title is not None else ""
    if text:
        return text
    headings = root.findall(".//h1")
    return element_text(headings[0]) if len(headings) == 1 else ""


def read_passages(root: "Element", hidden: "Collection[Element]") -> Iterator[Chunk]:
    """Yield the texts that a page shows, each with the headings above it."""
    body = root.find(".//body")
    if root in hidden:
        return iter(())
    return _PageReader(root, hidden).read(root if body is None else body)


class _PageReader:
    def __init__(self, root: "Element", hidden: "Collection[Element]") -> None:
        self._hidden = hidden
        self._lines = find_elements_with_lines(root)
        self._headings = Headings()
        self._texts: list[str] = []
        self._marker = ""
        """The numbers of the items of lists that have no text yet."""
        self._numbers: dict[Element, int] = {}
        """The next number of each ordered list."""
        self._grids: list[Grid | None] = []
        """The tables around the current position; `None` for those that arrange a page."""

    def read(self, body: "Element") -> Iterator[Chunk]:
        texts = self._texts
        walk = etree.iterwalk(body, events=("start", "end"))
        read: Element | None = None
        for event, element in walk:
            tag = element.tag
            if event == "start":
                if tag in BLOCKS and tag not in _CELLS and (chunk := self._flush()):
                    yield chunk
                if tag in _SPECIAL or element in self._hidden or element in self._lines:
                    chunk, is_read = self._read_special(element, tag)
                    if chunk:
                        yield chunk
                    if is_read:
                        read = element
                        walk.skip_subtree()
                        continue
                texts.append(element.text or "")
            else:
                if element is read:
                    pass
                elif tag in _CELLS:
                    texts.append(" | ")
                elif tag in BLOCKS:
                    if chunk := self._flush():
                        yield chunk
                    if tag == "table":
                        self._grids.pop()
                    elif tag == "li":
                        self._marker = ""
                elif tag in STRUCK:
                    texts.append("~~")
                elif tag in APART:
                    texts.append(" ")
                texts.append(element.tail or "")
        if chunk := self._flush():
            yield chunk

    def _read_special(self, element: "Element", tag: str) -> tuple[Chunk | None, bool]:
        """Begin an element that is more than its texts.

        Returns its passage if it has one, and whether all of it is read.
        """
        if element in self._hidden or tag in UNSEEN or tag == "nav":
            return None, True
        if tag in _HEADINGS:
            return self._headings.enter(int(tag[1]), element_text(element, self._hidden)), True
        if element in self._lines:
            text = read_lines(element, self._hidden)
            return (self._make_chunk(text) if text else None), True
        if tag == "tr" and (text := self._read_row(element)):
            return self._make_chunk(text), True
        if tag == "table":
            is_layout = next(element.iterdescendants(*_LAYOUT), None) is not None
            self._grids.append(None if is_layout else Grid())
        elif tag == "li":
            self._marker += self._number_item(element)
        elif tag in STRUCK:
            self._texts.append("~~")
        elif tag in APART:
            self._texts.append(" ")
        elif tag == "sup":
            self._texts.append("^" if is_power(element) else "")
        elif tag in VALUED:
            self._texts.append(read_value(element))
        return None, False

    def _flush(self) -> Chunk | None:
        """Return the texts since the last block, or `None` if they are blank."""
        text = "".join(self._texts)
        self._texts.clear()
        if not text or text.isspace():
            return None
        text = clean_text(text).strip(" |")
        return self._make_chunk(text) if text else None

    def _make_chunk(self, text: str) -> Chunk:
        text, self._marker = self._marker + text, ""
        return Chunk(text, ChunkPosition(heading=self._headings.trail))

    def _read_row(self, row: "Element") -> str:
        """Return a row of a table of data; an empty string for one that arranges a page."""
        grid = self._grids[-1] if self._grids else None
        if grid is None or (len(row) < 2 and not grid.spans):
            return ""
        cells = [
            Cell(
                element_text(cell, self._hidden),
                _read_span(cell, "colspan"),
                _read_span(cell, "rowspan"),
            )
            for cell in row
            if cell.tag not in UNSEEN and cell not in self._hidden
        ]
        if any(len(cell.text) > 5 * grid.longest for cell in cells):
            return ""
        return grid.join(cells)

    def _number_item(self, item: "Element") -> str:
        """Return the number of an item of an ordered list, or an empty string."""
        ordered = item.getparent()
        if ordered is None or ordered.tag != "ol":
            return ""
        is_reversed = ordered.get("reversed") is not None
        number = _read_integer(item, "value")
        if number is None:
            number = self._numbers.get(ordered)
        if number is None:
            number = _read_integer(ordered, "start")
        if number is None:
            number = sum(1 for _ in ordered.iterchildren("li")) if is_reversed else 1
        self._numbers[ordered] = number - 1 if is_reversed else number + 1
        return f"{format_number(number, ordered.get('type', '1'))}. "


def _read_integer(element: "Element", name: str) -> int | None:
    """Return a number in an attribute, or `None`."""
    text = (element.get(name) or "").strip()
    return int(text) if text.lstrip("-").isdecimal() and len(text) < 10 else None


def _read_span(cell: "Element", name: str) -> int:
    return _read_integer(cell, name) or 1
