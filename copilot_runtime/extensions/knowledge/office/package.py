"""The XML of the parts of an office document, and the text that is found in it."""

import io
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lxml import etree

from copilot_runtime.base.errors import LimitExceeded
from copilot_runtime.base.jsonvalue import JsonObject
from copilot_runtime.base.office import OfficeFile

if TYPE_CHECKING:
    from lxml.etree import _Element as Element  # pyright: ignore[reportPrivateUsage]


class Package(OfficeFile):
    """The parts of a document. Together, they are unpacked up to a limit."""

    def __init__(self, data: bytes, most_bytes: int = 256 * 1024 * 1024) -> None:
        super().__init__(io.BytesIO(data), most_bytes)
        self.drawings: dict[tuple[str, str], str] = {}
        """The texts of the charts and diagrams that have been read, by kind and part."""

    def parse(self, part: str) -> "Element | None":
        """Return the root element of a part, or `None` if there is no such part."""
        if (stream := self.open(part)) is None:
            return None
        with stream:
            parser = etree.XMLParser(
                resolve_entities=False, no_network=True, remove_comments=True, remove_pis=True
            )
            return etree.parse(stream, parser).getroot()

    def read_title(self) -> str:
        """Return the title in the properties of the document, or an empty string."""
        root = self.parse(self.find("", "core-properties"))
        titles = () if root is None else root.iter("{*}title")
        return next((title.text.strip() for title in titles if title.text), "")


@dataclass
class OfficeText:
    """The passages of a document, in order, and warnings."""

    title: str = ""
    passages: list[JsonObject] = field(default_factory=list[JsonObject])
    warnings: list[str] = field(default_factory=list[str])
    room: int = 16 * 1024 * 1024
    """Characters that may still be added; a text that many cells share can ask for more."""

    def add(self, text: str, **place: int) -> None:
        """Add a text that is not blank, with its `page` or `row`, or its `level` as a heading."""
        text = text.strip()
        if text:
            self.room -= len(text)
            if self.room < 0:
                raise LimitExceeded("The document has more than 16,777,216 characters.")
            self.passages.append({"text": text, **place})

    def encode(self) -> JsonObject:
        """Return the JSON form."""
        return {"title": self.title, "passages": [*self.passages], "warnings": [*self.warnings]}


def get_name(element: "Element") -> str:
    """Return the name of an element without its namespace, which differs between editions."""
    return str(element.tag).rpartition("}")[2]


def get_attribute(element: "Element | None", name: str) -> str | None:
    """Return an attribute by its name without namespace, or `None`."""
    if element is not None:
        for key, value in element.attrib.items():
            if str(key).rpartition("}")[2] == name:
                return str(value)
    return None


def find_child(element: "Element | None", *path: str) -> "Element | None":
    """Return the first element on a path of names below an element, or `None`."""
    for name in path:
        if element is None:
            return None
        element = next(element.iterchildren(f"{{*}}{name}"), None)
    return element


def get_number(element: "Element | None", name: str, default: int) -> int:
    """Return an attribute as a number."""
    text = get_attribute(element, name) or ""
    return int(text) if text.isdecimal() and len(text) < 10 else default


def is_on(element: "Element | None") -> bool:
    """Return whether a property is there, and not switched off."""
    return element is not None and get_attribute(element, "val") not in ("0", "false", "off")
