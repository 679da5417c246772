"""The parts of an office document: XML files in an archive that refer to each other."""

import io
import posixpath
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from lxml import etree

from copilot_runtime.base.errors import CopilotError, LimitExceeded
from copilot_runtime.base.jsonvalue import JsonObject

if TYPE_CHECKING:
    from lxml.etree import _Element as Element  # pyright: ignore[reportPrivateUsage]


class Relation(NamedTuple):
    """A part to which another one refers."""

    kind: str
    """The last word of the type of the relation, such as `slide`."""
    target: str


class Package:
    """The parts of a document by name. Together, they are unpacked up to a limit."""

    def __init__(self, data: bytes, most_bytes: int = 256 * 1024 * 1024) -> None:
        self._left = self._most = most_bytes
        try:
            self._archive = zipfile.ZipFile(io.BytesIO(data))
        except zipfile.BadZipFile as error:
            raise CopilotError(f"The document is damaged: {error}") from error
        self.main = self.find("", "officeDocument")

    def find(self, part: str, kind: str) -> str:
        """Return the first part of a kind to which a part refers, or an empty string."""
        found = (it.target for it in self.read_relations(part).values() if it.kind == kind)
        return next(found, "")

    def read_relations(self, part: str) -> Mapping[str, Relation]:
        """Return the relations of a part to others in the archive, by identifier."""
        folder, name = posixpath.split(part)
        root = self.parse(posixpath.join(folder, "_rels", f"{name}.rels"))
        relations: dict[str, Relation] = {}
        for element in () if root is None else root:
            if element.get("TargetMode") != "External":
                target = posixpath.normpath(posixpath.join("/", folder, element.get("Target", "")))
                kind = element.get("Type", "").rpartition("/")[2]
                relations[element.get("Id", "")] = Relation(kind, target.lstrip("/"))
        return relations

    def parse(self, part: str) -> "Element | None":
        """Return the root element of a part, or `None` if there is no such part."""
        if part not in self._archive.NameToInfo:
            return None
        with self._archive.open(part) as stream:
            parser = etree.XMLParser(
                resolve_entities=False, no_network=True, remove_comments=True, remove_pis=True
            )
            return etree.parse(self._limit(stream), parser).getroot()

    def iterate(self, part: str, *names: str) -> "Iterator[Element]":
        """Yield the elements of a part with one of some names, and forget each afterwards."""
        if part not in self._archive.NameToInfo:
            return
        with self._archive.open(part) as stream:
            tags = [f"{{*}}{name}" for name in names]
            for _, element in etree.iterparse(
                self._limit(stream),
                tag=tags,
                resolve_entities=False,
                no_network=True,
                remove_comments=True,
                remove_pis=True,
            ):
                yield element
                element.clear()
                parent = element.getparent()
                while parent is not None and element.getprevious() is not None:
                    del parent[0]

    def read_title(self) -> str:
        """Return the title in the properties of the document, or an empty string."""
        root = self.parse(self.find("", "core-properties"))
        titles = () if root is None else root.iter("{*}title")
        return next((title.text.strip() for title in titles if title.text), "")

    def _limit(self, stream: IO[bytes]) -> IO[bytes]:
        return io.BufferedReader(_Meter(stream, self._count))

    def _count(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            most = self._most // 1024 // 1024
            raise LimitExceeded(f"The document is larger than {most} MB when it is unpacked.")


class _Meter(io.RawIOBase):
    """A stream whose bytes are counted."""

    def __init__(self, stream: IO[bytes], count: Callable[[int], None]) -> None:
        self._stream = stream
        self._count = count

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read(len(buffer))
        self._count(len(data))
        buffer[: len(data)] = data
        return len(data)


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
