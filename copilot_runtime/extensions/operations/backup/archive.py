"""The archive of a backup: a tar file compressed by gzip, with a strict reader.

Its entries are `header.json`, then numbered files of rows (`threads/00000001.jsonl`) and of single
objects (`knowledge/00000002.object`, a line of JSON and the bytes), then `manifest.json` with the
number of records and a checksum of each part. An entry's name is never used as a path, and anything
else is refused: links, gaps, another order, or data after the end.
"""

import gzip
import hashlib
import hmac
import tarfile
import time
import zlib
from collections import Counter, deque
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, BinaryIO, NamedTuple, cast

import orjson

from copilot_runtime import __version__
from copilot_runtime.base import jsontext
from copilot_runtime.base.errors import CopilotError
from copilot_runtime.extensions.operations.backup.record import (
    END_OF_DATES,
    DamagedRecord,
    PackedObject,
    PackedRecord,
    Record,
    Row,
    StoredObject,
    decode_row,
    encode_row,
)

FORMAT = 1
"""The format version, increased with each incompatible change."""

_HEADER, _MANIFEST = "header.json", "manifest.json"
_BLOCK = tarfile.BLOCKSIZE
_CHUNK_BYTES = 1 << 20
"""Maximum bytes of rows in one entry."""
_LONGEST_LINE = 64 << 20
"""Maximum bytes of a row: a run's log has at most 16 MB, unless `max_bytes_per_run` is larger."""
_MOST_TABLES = 50
"""Maximum tables in one part."""
_LARGEST_NOTE = 1 << 20
"""Maximum bytes of the header and of the manifest."""
_LARGEST_OBJECT = (8 << 30) - 1  # the limit of a plain tar header
_MOST_EXPANSION = 200
"""Maximum compression ratio of an archive that is not small, against decompression bombs."""
_SMALL = 32 << 20

_OTHER_FILE = "it is not a backup of copilot-runtime"
_CUT_OFF = "it ends before its end: it was cut off"


class BackupRefused(CopilotError):
    """A backup is damaged, incomplete, not ours, or of a later version."""

    code = "MISUSE"
    status_code = 400


@dataclass(slots=True)
class _Part:
    """The counts and checksum of one part."""

    rows: Counter[str] = field(default_factory=Counter[str])
    objects: int = 0
    digest: Any = field(default_factory=hashlib.sha256)

    def describe(self) -> dict[str, Any]:
        return {
            "rows": dict(sorted(self.rows.items())),
            "objects": self.objects,
            "sha256": self.digest.hexdigest(),
        }


class ArchiveHeader(NamedTuple):
    """The header of an archive: version, time and parts."""

    version: str
    created_at: float
    parts: tuple[str, ...]
    places: Mapping[str, str]
    """Digests of the locations of the parts."""


class ArchiveWriter:
    """Writes records into a file, in order; `finish` completes it.

    `places` has digests of the parts' locations. With a `key`, the archive is signed (HMAC).
    """

    def __init__(
        self,
        file: BinaryIO,
        parts: tuple[str, ...],
        key: bytes = b"",
        *,
        places: Mapping[str, str] | None = None,
    ) -> None:
        self._gzip = gzip.GzipFile(fileobj=file, mode="wb", compresslevel=6, mtime=0)
        self._size = 0
        self._key = key
        self._parts = {name: _Part() for name in parts}
        self._lines = bytearray()
        self._part = ""
        self._number = 0
        self._header = orjson.dumps(
            {
                "kind": "copilot-runtime backup",
                "format": FORMAT,
                "version": __version__,
                "created_at": time.time(),
                "parts": parts,
                "places": dict(places or {}),
            }
        )
        self._add(_HEADER, self._header)

    def add(self, name: str, record: Record) -> None:
        """Add a record. All records of one part must be consecutive."""
        if name != self._part:
            self._flush()
            self._part = name
        part = self._parts[name]
        match record:
            case Row():
                part.rows[record.table] += 1
                line = encode_row(record)
                if len(line) > _LONGEST_LINE:
                    raise BackupRefused(
                        f"A {record.table} of the {name} is larger than 64 MB, which no backup "
                        "holds.",
                        hint=f"Delete it, or leave them out by --without {name}.",
                    )
                self._lines += line
                if len(self._lines) >= _CHUNK_BYTES:
                    self._flush()
            case StoredObject():
                self._flush()
                part.objects += 1
                head = orjson.dumps({"name": record.name, "size": len(record.data)})
                self._add_entry(name, "object", head + b"\n", record.data)

    def finish(self) -> dict[str, Any]:
        """Write the manifest, and return it."""
        self._flush()
        parts = {name: part.describe() for name, part in self._parts.items()}
        manifest: dict[str, Any] = {"entries": self._number, "parts": parts}
        if self._key:
            manifest["signature"] = _sign(self._key, self._header, manifest)
        self._add(_MANIFEST, orjson.dumps(manifest))
        self._write(bytes(2 * _BLOCK))
        self._write(bytes(-self._size % tarfile.RECORDSIZE))
        self._gzip.close()
        return manifest

    def _flush(self) -> None:
        if self._lines:
            lines, self._lines = bytes(self._lines), bytearray()
            self._add_entry(self._part, "jsonl", lines)

    def _add_entry(self, name: str, kind: str, *pieces: bytes) -> None:
        self._number += 1
        digest = self._parts[name].digest
        digest.update(_describe_entry(self._number, kind, sum(map(len, pieces))))
        for piece in pieces:
            digest.update(piece)
        self._add(f"{name}/{self._number:08d}.{kind}", *pieces)

    def _add(self, name: str, *pieces: bytes) -> None:
        info = tarfile.TarInfo(name)
        info.size, info.mode = sum(map(len, pieces)), 0o600
        if info.size > _LARGEST_OBJECT:
            raise BackupRefused(f"{name!r} is larger than 8 GB, which no backup holds.")
        self._write(info.tobuf(tarfile.USTAR_FORMAT))
        for piece in (*pieces, bytes(-info.size % _BLOCK)):
            self._write(piece)

    def _write(self, data: bytes) -> None:
        self._size += len(data)
        self._gzip.write(data)


class ArchiveReader:
    """Reads an archive as a stream, and raises `BackupRefused` for anything invalid.

    `read` yields the records. The archive is verified only at its end, so records must not be
    trusted before.
    """

    def __init__(self, file: BinaryIO, key: bytes = b"") -> None:
        self._key = key
        self.is_signed = False
        """`True` if it has a signature; valid after the end was read."""
        self._tar = _Stream(file)
        name, size = self._tar.next_entry() or ("", 0)
        if name != _HEADER:
            raise _refuse(_OTHER_FILE)
        self._header = self._tar.read_note(size)
        header = _load(self._header)
        if header.get("kind") != "copilot-runtime backup":
            raise _refuse(_OTHER_FILE)
        if header.get("format") != FORMAT:
            raise BackupRefused(
                f"The backup is of format {header.get('format')!r}, and this is copilot-runtime "
                f"{__version__}, which reads format {FORMAT}.",
                hint=f"Restore it with the version that wrote it: {header.get('version')}.",
            )
        match header:
            case {"version": str(version), "created_at": int() | float() as created_at} if (
                0 <= created_at < END_OF_DATES and _are_names(header.get("parts"))
            ):
                places = _read_places(header.get("places"))
                self.header = ArchiveHeader(version, created_at, tuple(header["parts"]), places)
            case _:
                raise _refuse("its header is damaged")
        self._parts = {name: _Part() for name in self.header.parts}

    def read(self) -> Iterator[tuple[str, PackedRecord]]:
        """Yield the records with the names of their parts, and verify the archive at the end.

        At most one row is in memory at a time; objects are streamed.
        """
        number, order = 0, [*self.header.parts]
        while (entry := self._tar.next_entry()) is not None:
            name, size = entry
            if name == _MANIFEST:
                self._check(self._tar.read_note(size), number)
                self._tar.finish()
                return
            number += 1
            part, kind = _split_name(name, number)
            while order and order[0] != part:
                order.pop(0)
            if not order:
                raise _refuse(f"{name!r} is not where it belongs")
            self._parts[part].digest.update(_describe_entry(number, kind, size))
            records = self._read_rows if kind == "jsonl" else self._read_object
            try:
                for record in records(self._parts[part], size):
                    yield part, record
            except DamagedRecord as error:
                raise _refuse(f"{name!r} is damaged: {error}") from error
        raise _refuse(_CUT_OFF)

    def _read_rows(self, part: _Part, size: int) -> Iterator[PackedRecord]:
        for line in self._read_lines(part, size):
            row = decode_row(line)
            part.rows[row.table] += 1
            if len(part.rows) > _MOST_TABLES:
                raise DamagedRecord("it has too many tables")
            yield row

    def _read_lines(self, part: _Part, size: int) -> Iterator[bytes]:
        rest = bytearray()
        for piece in self._read_pieces(part, size):
            first, *lines = piece.split(b"\n")
            rest += first
            if len(rest) > _LONGEST_LINE:
                raise DamagedRecord("a line is too long")
            if lines:
                yield bytes(rest)
                rest = bytearray(lines.pop())
                yield from lines
        if rest:
            raise DamagedRecord("its last line has no end")

    def _read_object(self, part: _Part, size: int) -> Iterator[PackedRecord]:
        pieces = self._read_pieces(part, size)
        head, _, start = next(pieces, b"").partition(b"\n")
        match _load(head):
            case {"name": str(name), "size": int(length)} if len(head) + 1 + length == size:
                part.objects += 1
                rest = chain([start], pieces)
                yield PackedObject(name, rest)
                deque(rest, maxlen=0)  # skip unread bytes
            case _:
                raise DamagedRecord("it has no name")

    def _read_pieces(self, part: _Part, size: int) -> Iterator[bytes]:
        for piece in self._tar.read_pieces(size):
            part.digest.update(piece)
            yield piece

    def _check(self, data: bytes, number: int) -> None:
        manifest = _load(data)
        signature = manifest.pop("signature", "")
        self.is_signed = bool(signature)
        if self._key:
            expected = _sign(self._key, self._header, manifest)
            if not isinstance(signature, str) or not hmac.compare_digest(
                signature.encode(), expected.encode()
            ):
                raise _refuse("its signature is not made with this key, or it was changed")
        found = {name: part.describe() for name, part in self._parts.items()}
        expected_parts = manifest.get("parts")
        if manifest.get("entries") != number or not isinstance(expected_parts, Mapping):
            raise _refuse("it is not complete")
        for name, part in found.items():
            if expected_parts.get(name) != part:
                raise _refuse(f"the part {name!r} was changed after it was written")


class _Stream:
    """The entries of a tar file, read sequentially."""

    def __init__(self, file: BinaryIO) -> None:
        file.seek(0)
        self._file = file
        self._is_packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        self._data: Any = gzip.GzipFile(fileobj=file, mode="rb") if self._is_packed else file
        self._position = 0
        self._padding = 0

    def next_entry(self) -> tuple[str, int] | None:
        """Return the name and size of the next entry, or `None` at the end."""
        is_first = self._position == 0
        self._read(self._padding)
        self._padding = 0
        block = self._read_some(_BLOCK)
        if len(block) < _BLOCK:
            raise _refuse(_OTHER_FILE if is_first else _CUT_OFF)
        if not any(block):
            return None
        try:
            info = tarfile.TarInfo.frombuf(block, "ascii", "strict")
        except (tarfile.TarError, UnicodeDecodeError) as error:
            raise _refuse(_OTHER_FILE if is_first else "it is damaged") from error
        if info.type != tarfile.REGTYPE or info.linkname or info.size < 0:
            raise _refuse(f"{info.name[:100]!r} is no plain file")
        return info.name, info.size

    def read_pieces(self, size: int) -> Generator[bytes]:
        """Yield the bytes of an entry."""
        self._padding = -size % _BLOCK
        while size:
            piece = self._read(min(size, _CHUNK_BYTES))
            size -= len(piece)
            yield piece

    def read_note(self, size: int) -> bytes:
        if size > _LARGEST_NOTE:
            raise _refuse("its header or manifest is too large")
        return b"".join(self.read_pieces(size))

    def finish(self) -> None:
        """Check that only the zero padding of a tar file follows."""
        self._read(self._padding)
        self._padding = 0
        rest = self._read_some(tarfile.RECORDSIZE + 1)
        if any(rest) or not 2 * _BLOCK <= len(rest) <= tarfile.RECORDSIZE:
            raise _refuse("it does not end where it should")

    def _read(self, size: int) -> bytes:
        data = self._read_some(size)
        if len(data) < size:
            raise _refuse(_CUT_OFF)
        return data

    def _read_some(self, size: int) -> bytes:
        try:
            data = self._data.read(size)
        except (OSError, EOFError, zlib.error) as error:
            if isinstance(error, EOFError):
                raise _refuse(_CUT_OFF) from error
            raise _refuse(f"it cannot be read: {error}") from error
        self._position += len(data)
        if self._is_packed and self._position > _SMALL + _MOST_EXPANSION * self._file.tell():
            raise BackupRefused(
                f"The backup is packed more than {_MOST_EXPANSION} times, as no real one is.",
                hint="If it is one all the same, unpack it by gunzip, and restore that file.",
            )
        return data


def _describe_entry(number: int, kind: str, size: int) -> bytes:
    return f"{number} {kind} {size}\n".encode()


def _split_name(name: str, number: int) -> tuple[str, str]:
    part, _, file = name.partition("/")
    for kind in ("jsonl", "object"):
        if file == f"{number:08d}.{kind}":
            return part, kind
    raise _refuse(f"it has an entry {name[:100]!r}, which is none of a backup")


def _are_names(names: Any) -> bool:
    return isinstance(names, list) and all(
        isinstance(name, str) and name.isalpha() and name.isascii() for name in names
    )


def _read_places(value: Any) -> Mapping[str, str]:
    """Return the location digests of a header; empty in archives of earlier versions."""
    if not isinstance(value, Mapping):
        return {}
    places = cast("Mapping[str, Any]", value)
    return {name: place for name, place in places.items() if isinstance(place, str)}


def _sign(key: bytes, header: bytes, manifest: Mapping[str, Any]) -> str:
    text = header + b"\n" + orjson.dumps(manifest, option=orjson.OPT_SORT_KEYS)
    return hmac.digest(key, text, "sha256").hex()


def _load(data: bytes) -> dict[str, Any]:
    try:
        value: Any = jsontext.loads(data)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise _refuse("its header or manifest is damaged")
    return value


def _refuse(reason: str) -> BackupRefused:
    return BackupRefused(
        f"The backup is refused because {reason}.", hint="Nothing was changed. Take another backup."
    )
