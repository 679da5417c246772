"""The parts of an office document: XML files in an archive that refer to each other."""

import io
import posixpath
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple
from xml.parsers import expat

from copilot_runtime.base.errors import CopilotError, LimitExceeded

_BLOCK = 64 * 1024
OLE = b"\xd0\xcf\x11\xe0"
"""The first bytes of documents of old programs, and of those with a password."""

_MALFORMED = (ValueError, LookupError, OverflowError)
"""The errors of numbers and references that are none."""


class Relation(NamedTuple):
    """A part to which another one refers."""

    kind: str
    """The last word of the type of the relation, such as `slide`."""
    target: str


class OfficeFile:
    """The parts of a document by name. With a limit, they are unpacked up to so many bytes.

    Raises `CopilotError` if the document is no archive of parts.
    """

    def __init__(self, file: Path | IO[bytes], most_bytes: int | None = None) -> None:
        self._left = self._most = most_bytes
        self._relations: dict[str, Mapping[str, Relation]] = {}
        with refuse_damage():
            self._archive = zipfile.ZipFile(file)
        self.main = self.find("", "officeDocument")

    def close(self) -> None:
        """Close the archive."""
        self._archive.close()

    def find(self, part: str, kind: str) -> str:
        """Return the first part of a kind to which a part refers, or an empty string."""
        found = (it.target for it in self.read_relations(part).values() if it.kind == kind)
        return next(found, "")

    def read_relations(self, part: str) -> Mapping[str, Relation]:
        """Return the relations of a part to others in the archive, by identifier."""
        if part not in self._relations:
            self._relations[part] = self._read_relations(part)
        return self._relations[part]

    def _read_relations(self, part: str) -> Mapping[str, Relation]:
        folder, name = posixpath.split(part)
        relations: dict[str, Relation] = {}
        for _, relation in self.iterate_tags(posixpath.join(folder, "_rels", f"{name}.rels")):
            if "Target" in relation and relation.get("TargetMode") != "External":
                target = posixpath.normpath(posixpath.join("/", folder, relation["Target"]))
                kind = relation.get("Type", "").rpartition("/")[2]
                relations[relation.get("Id", "")] = Relation(kind, target.lstrip("/"))
        return relations

    def iterate_tags(self, part: str) -> Iterator[tuple[str, Mapping[str, str]]]:
        """Yield name and attributes of each element of a part, both without namespaces."""
        found: list[tuple[str, Mapping[str, str]]] = []

        def start(name: str, attributes: Mapping[str, str]) -> None:
            local = {key.rpartition(":")[2]: value for key, value in attributes.items()}
            found.append((name.rpartition(":")[2], local))

        parser = open_parser()
        parser.StartElementHandler = start
        for _ in self.feed(parser, part):
            yield from found
            found.clear()

    def feed(self, parser: expat.XMLParserType, part: str) -> Iterator[None]:
        """Parse a part, if there is one, and yield after each block of it."""
        if (stream := self.open(part)) is None:
            return
        with stream, refuse_damage():
            while block := stream.read(_BLOCK):
                parser.Parse(block)
                yield
            parser.Parse(b"", True)
            yield

    def open(self, part: str) -> IO[bytes] | None:
        """Return the bytes of a part, or `None` if there is no such part."""
        if part not in self._archive.NameToInfo:
            return None
        with refuse_damage():
            return io.BufferedReader(_Meter(self._archive.open(part), self._count))

    def _count(self, size: int) -> None:
        if self._left is None or self._most is None:
            return
        self._left -= size
        if self._left < 0:
            most = self._most // 1024 // 1024
            raise LimitExceeded(f"The document is larger than {most} MB when it is unpacked.")


@contextmanager
def refuse_damage() -> Generator[None]:
    """Raise `CopilotError` for errors of an archive or of its XML."""
    try:
        yield
    except (zipfile.BadZipFile, zlib.error, EOFError, expat.ExpatError, *_MALFORMED) as error:
        raise CopilotError(f"The document is damaged: {error}") from error
    except (RuntimeError, NotImplementedError) as error:  # a password, or an unknown compression
        raise CopilotError(f"The document cannot be unpacked: {error}") from error


def is_encrypted(data: bytes) -> bool:
    """Return whether a document has a password, which makes it another kind of file."""
    return data.startswith(OLE) and "EncryptedPackage".encode("utf-16-le") in data


def open_parser() -> expat.XMLParserType:
    """Return a parser that refuses declarations of entities."""
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartDoctypeDeclHandler = _refuse_doctype
    return parser


def _refuse_doctype(*_: object) -> None:
    raise CopilotError("The document declares entities of its own.")


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
