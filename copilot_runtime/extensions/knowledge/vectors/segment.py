"""An immutable block of vectors: its binary format, and its arrays.

    8 bytes         CRVEC001
    8 bytes         length and CRC-32 of the header, both little-endian
    header          JSON: the columns of the rows, and what the block removes and replaces
    zeros           up to a multiple of 64
    rows x size     float32: vectors of length 1, or of zeros where there was nothing to embed
    rows            float32: scales, then errors, of the codes
    rows x size     int8: codes

An object is written whole or not at all, so a length or a sum that is wrong means that something
else has damaged it: such a block is left out, and its resources are embedded again.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from mmap import ACCESS_READ, mmap
from pathlib import Path
from struct import Struct
from typing import Any
from zlib import crc32

import numpy as np
import orjson
from numpy.typing import NDArray

from copilot_runtime.base.errors import Misuse
from copilot_runtime.base.jsonvalue import JsonObject, get_text
from copilot_runtime.extensions.knowledge.identifiers import (
    Identifier,
    decode_identifier,
    encode_identifier,
    parse_identifier,
)
from copilot_runtime.extensions.knowledge.vectors.quantized import (
    Codes,
    Floats,
    join_codes,
    quantize,
)
from copilot_runtime.storage.jsonlines import salvage_lines

_MAGIC = b"CRVEC001"
_PREAMBLE = Struct("<8sII")
_ALIGNMENT = 64


class DamagedSegment(ValueError):
    """The bytes of a block are incomplete or damaged."""


@dataclass(frozen=True, slots=True)
class Row:
    """One vector with the identifier of its resource."""

    identifier: Identifier
    vector: Floats
    version: str = ""
    """The version of the embedded resource."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of rows beside their vectors."""

    uris: Sequence[str] = ()
    versions: Sequence[str] = ()
    tokens: Sequence[int | None] = ()
    positions: Sequence[int] = ()
    """Position of the row in the whole index, which orders equal scores."""
    subjects: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    """Subjects by URI."""

    @staticmethod
    def of(rows: Sequence[Row], positions: Sequence[int]) -> "Columns":
        """Return the columns of new rows."""
        identifiers = [row.identifier for row in rows]
        return Columns(
            [str(one) for one in identifiers],
            [row.version for row in rows],
            [one.tokens for one in identifiers],
            positions,
            {str(one): one.subjects for one in identifiers if one.subjects},
        )

    @staticmethod
    def concat(parts: Sequence["Columns"]) -> "Columns":
        """Return the columns of all rows, one part behind the other."""
        return Columns(
            [*chain.from_iterable(part.uris for part in parts)],
            [*chain.from_iterable(part.versions for part in parts)],
            [*chain.from_iterable(part.tokens for part in parts)],
            [*chain.from_iterable(part.positions for part in parts)],
            {uri: subjects for part in parts for uri, subjects in part.subjects.items()},
        )

    def take(self, rows: Sequence[int]) -> "Columns":
        """Return the columns of some rows."""
        uris = [self.uris[row] for row in rows]
        subjects = self.subjects
        return Columns(
            uris,
            [self.versions[row] for row in rows],
            [self.tokens[row] for row in rows],
            [self.positions[row] for row in rows],
            {uri: subjects[uri] for uri in uris if uri in subjects} if subjects else {},
        )


@dataclass(frozen=True, eq=False)
class Segment:
    """Rows of an index, with their changes to earlier blocks."""

    columns: Columns
    vectors: Floats
    codes: Codes
    removed: Sequence[str] = ()
    """URIs whose rows in earlier blocks are removed."""
    replaces: Sequence[str] = ()
    """Names of earlier blocks that this one replaces."""

    @staticmethod
    def of(rows: Sequence[Row], positions: Sequence[int]) -> "Segment":
        """Return new rows as a block."""
        vectors = np.array([row.vector for row in rows], np.float32)
        return Segment(Columns.of(rows, positions), vectors, quantize(vectors))

    @staticmethod
    def concat(
        parts: Sequence["Segment"], removed: Sequence[str] = (), replaces: Sequence[str] = ()
    ) -> "Segment":
        """Return the rows of several blocks as one."""
        parts = [part for part in parts if len(part)]
        if len(parts) == 1:  # nothing need be copied
            return replace(parts[0], removed=removed, replaces=replaces)
        vectors = [part.vectors for part in parts] or [np.empty((0, 0), np.float32)]
        return Segment(
            Columns.concat([part.columns for part in parts]),
            np.concatenate(vectors),
            join_codes([part.codes for part in parts]),
            removed,
            replaces,
        )

    def take(self, rows: NDArray[np.intp]) -> "Segment":
        """Return some rows as a block."""
        codes = self.codes
        return Segment(
            self.columns.take(rows.tolist()),
            self.vectors[rows],
            Codes(codes.codes[rows], codes.scales[rows], codes.errors[rows]),
        )

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def dimensions(self) -> int:
        return self.vectors.shape[1]

    def identifier(self, row: int) -> Identifier:
        """Return the identifier of a row as it was added."""
        columns = self.columns
        uri = columns.uris[row]
        subjects = tuple(columns.subjects.get(uri, ()))
        return replace(parse_identifier(uri), tokens=columns.tokens[row], subjects=subjects)


def encode_segment(segment: Segment) -> bytes:
    """Return the bytes of a block."""
    columns = segment.columns
    header = orjson.dumps(
        {
            "dimensions": segment.dimensions,
            "uris": columns.uris,
            "versions": columns.versions,
            "tokens": columns.tokens,
            "positions": columns.positions,
            "subjects": columns.subjects,
            "removed": segment.removed,
            "replaces": segment.replaces,
        },
        default=list,
    )
    start = _PREAMBLE.pack(_MAGIC, len(header), crc32(header)) + header
    codes = segment.codes
    arrays = (segment.vectors, codes.scales, codes.errors, codes.codes)
    return b"".join([start, bytes(-len(start) % _ALIGNMENT), *(_view(array) for array in arrays)])


def decode_segment(data: Any) -> Segment:
    """Read a block: its arrays are views into the bytes. Raises `DamagedSegment`."""
    if len(data) < _PREAMBLE.size:
        raise DamagedSegment("it ends within its first bytes")
    magic, length, checksum = _PREAMBLE.unpack_from(data)
    header = bytes(data[_PREAMBLE.size : _PREAMBLE.size + length])
    if magic != _MAGIC or len(header) < length or crc32(header) != checksum:
        raise DamagedSegment("its header is not as it was written")
    fields = orjson.loads(header)
    columns = Columns(
        *(fields[name] for name in ("uris", "versions", "tokens", "positions", "subjects"))
    )
    rows, size = len(columns.uris), fields["dimensions"]
    start = _PREAMBLE.size + length
    start += -start % _ALIGNMENT
    ends = np.cumsum([start, rows * size * 4, rows * 4, rows * 4, rows * size]).tolist()
    if len(data) != ends[-1]:
        raise DamagedSegment(f"it has {len(data)} bytes, and not {ends[-1]}")
    vectors = np.frombuffer(data, np.float32, rows * size, ends[0]).reshape(rows, size)
    scales = np.frombuffer(data, np.float32, rows, ends[1])
    errors = np.frombuffer(data, np.float32, rows, ends[2])
    codes = np.frombuffer(data, np.int8, rows * size, ends[3]).reshape(rows, size)
    return Segment(
        columns, vectors, Codes(codes, scales, errors), fields["removed"], fields["replaces"]
    )


def map_segment(path: Path) -> Segment:
    """Read a block from a memory-mapped file."""
    with path.open("rb") as file:
        try:
            return decode_segment(mmap(file.fileno(), 0, access=ACCESS_READ))
        except ValueError as error:  # an empty file cannot be mapped
            raise DamagedSegment(str(error)) from error


def _view(array: Any) -> memoryview:
    return np.ascontiguousarray(array).data.cast("B") if array.size else memoryview(b"")


RowChange = tuple[str, Row | None]
"""A URI and its new row, or `None` for a removal."""


def encode_changes(changes: Iterable[RowChange]) -> bytes:
    """Return one line for each row or removal."""
    return b"".join(
        (_encode_row(row) if row else orjson.dumps({"id": uri, "removed": True})) + b"\n"
        for uri, row in changes
    )


def decode_changes(data: bytes, dimensions: int | None) -> Iterator[RowChange]:
    """Yield the changes of lines; lines without a vector of the right length are skipped."""
    for line in salvage_lines(data):
        if line.get("removed"):
            yield get_text(line, "id"), None
        elif row := _decode_row(line):
            dimensions = dimensions or len(row.vector)
            if len(row.vector) == dimensions:
                yield str(row.identifier), row


def _encode_row(row: Row) -> bytes:
    """Return a row as a line, with the version of its resource, if any."""
    identifier = encode_identifier(row.identifier)
    if not row.identifier.parent:
        del identifier["parent"]
    line: JsonObject = {"id": str(row.identifier), "identifier": identifier}
    if row.version:
        line["version"] = row.version
    numbers = orjson.dumps(row.vector, option=orjson.OPT_SERIALIZE_NUMPY)
    # as JavaScript writes them: 1 and not 1.0
    numbers = numbers.replace(b".0,", b",").replace(b".0]", b"]")
    return orjson.dumps(line)[:-1] + b',"vector":' + numbers + b"}"


def _decode_row(line: JsonObject) -> Row | None:
    try:
        vector = np.array(line["vector"], np.float32)
        identifier = decode_identifier(line["identifier"])
    except (KeyError, TypeError, ValueError, Misuse):
        return None
    return Row(identifier, vector, get_text(line, "version")) if vector.ndim == 1 else None
