"""The rows of a vector index: in memory to search, in a storage to stay.

Rows come in two kinds of objects below one prefix, and the highest number is the latest:

- `00000007-<hash>.vectors`: a block that never changes (`segment.py`), written whole
- `00000007.jsonl`: a few rows that came after block 7, a line each as Copilot-LD writes them

A later row of a URI takes the place of an earlier one, and keeps its position. When the lines
become many they are written as a block, and eight blocks of about one size as one, so a row is
written about as often as the number of rows has digits. Objects that a newer block replaces are
deleted after it is written. Whenever the process dies, what is there is the state before or after
a write: a line that was torn is no line, and a block that nobody has come to delete is known by
the block that replaces it.

One process writes at a time, and others see it by the etags of the objects. What two of them write
at once may be lost, but not damaged: the next update sees what is missing.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from time import monotonic
from zlib import crc32

import numpy as np
import orjson
from numpy.typing import NDArray

from copilot_runtime.errors import CopilotError, Misuse
from copilot_runtime.jsonvalue import JsonObject, get_text
from copilot_runtime.knowledge.access import FULL_ACCESS
from copilot_runtime.knowledge.filter import Filter
from copilot_runtime.knowledge.identifiers import (
    Identifier,
    contains,
    decode_identifier,
    encode_identifier,
)
from copilot_runtime.knowledge.vectors.quantized import Codes, Floats, join_codes, quantize
from copilot_runtime.knowledge.vectors.segment import (
    Columns,
    DamagedSegment,
    Row,
    Segment,
    decode_segment,
    encode_segment,
    map_segment,
)
from copilot_runtime.storage import ObjectNotFound, Storage
from copilot_runtime.storage.jsonlines import salvage_lines

logger = logging.getLogger(__name__)

_SEGMENT = ".vectors"
_LINES = ".jsonl"
_MOST_LINES = 2000
_MOST_LINE_NUMBERS = 400_000
"""Numbers of all vectors that are lines at one time: 260 of 1,536 dimensions."""
_MOST_BLOCK_NUMBERS = 50_000_000
"""Numbers in one block, 250 MB: as much is in memory while it is written."""
_FAN = 8
_SMALLEST_TIER = 256
_MOST_MASKS = 32


class Part:
    """A block of the table, and which of its rows count."""

    def __init__(self, segment: Segment, name: str = "") -> None:
        self.segment = segment
        self.name = name
        self.current = np.ones(len(segment), np.bool_)
        """The rows that nothing later replaces or removes."""
        self.positions = np.array(segment.columns.positions, np.int64)
        self._masks: dict[object, NDArray[np.bool_]] = {}

    def __len__(self) -> int:
        return len(self.segment)

    @cached_property
    def row_numbers(self) -> Mapping[str, int]:
        """The row of each URI."""
        return {uri: row for row, uri in enumerate(self.segment.columns.uris)}

    @property
    def is_half_dead(self) -> bool:
        return bool(np.count_nonzero(self.current) * 2 < len(self))

    def drop(self, uris: Iterable[str]) -> None:
        """Let rows count no more. A search that goes on sees them as they were."""
        self.current = self.current.copy()
        self.current[[self.row_numbers[uri] for uri in uris]] = False

    def select(self, filter: Filter) -> NDArray[np.bool_]:
        """Return which rows a filter lets through; what it says of a row is remembered."""
        key = (filter.access.key, filter.type, filter.prefix)
        mask = self._masks.get(key)
        if mask is None:
            mask = _judge_all(self.segment.columns.uris, filter)
            self._masks[key] = mask
            for old in [*self._masks][:-_MOST_MASKS]:  # other searches may do the same now
                self._masks.pop(old, None)
        return mask & self.current & self.segment.codes.have_direction


class VectorTable:
    """The rows of the vectors of one model."""

    def __init__(self, storage: Storage, prefix: str) -> None:
        self._storage = storage
        self._prefix = prefix
        self._parts: list[Part] = []
        self._owners: dict[str, Part] = {}
        self._lines: Mapping[str, Row] = {}  # never changed in place: a thread may read it
        self._line_positions: Mapping[str, int] = {}
        self._line_removals: dict[str, None] = {}
        self._line_part: Part | None = None
        self._number = 0
        self._next_position = 0
        self._obsolete: list[str] = []
        self._etags: Mapping[str, str] = {}
        self._read_at = 0.0
        self._is_torn = False
        self._is_read = False
        self._lock = asyncio.Lock()
        self.dimensions: int | None = None

    def __len__(self) -> int:
        return len(self._owners) + len(self._lines)

    def __contains__(self, uri: object) -> bool:
        return uri in self._lines or uri in self._owners

    def find(self, uri: str) -> Identifier | None:
        """Return the identifier that was added under a URI."""
        if row := self._lines.get(uri):
            return row.identifier
        if part := self._owners.get(uri):
            return part.segment.identifier(part.row_numbers[uri])
        return None

    def find_version(self, uri: str) -> str | None:
        """Return the version of which a URI has the vector; None without one."""
        if row := self._lines.get(uri):
            return row.version
        if part := self._owners.get(uri):
            return part.segment.columns.versions[part.row_numbers[uri]]
        return None

    def versions(self) -> dict[str, str]:
        """Return the version of which each URI has the vector."""
        found: dict[str, str] = {}
        for part in self._parts:
            columns = part.segment.columns
            rows = zip(columns.uris, columns.versions, part.current.tolist(), strict=True)
            found.update((uri, version) for uri, version, is_current in rows if is_current)
        return found | {uri: row.version for uri, row in self._lines.items()}

    async def snapshot(self) -> Sequence[Part]:
        """Return all blocks, and the lines as one more: what a search in a thread may look at."""
        parts, lines = [*self._parts], self._lines
        if not lines:
            return parts
        part = self._line_part
        if part is None:
            arguments = ([], lines, self._line_positions, [], [])
            part = await asyncio.to_thread(lambda: Part(_build_block(*arguments)))
            if self._lines is lines:
                self._line_part = part
        return [*parts, part]

    async def load(self) -> None:
        """Read what is stored; once, by the first who needs it."""
        if not self._is_read:
            async with self._lock:
                if not self._is_read:
                    await self._read()
                    self._is_read = True

    async def refresh(self, max_age: float = 0.0) -> None:
        """Read what other processes have written, unless that was seen to so many seconds ago."""
        await self.load()
        if monotonic() - self._read_at < max_age:
            return
        async with self._lock:
            self._read_at = monotonic()
            if await self._list() != self._etags:
                other = VectorTable(self._storage, self._prefix)
                await other.load()
                other._lock = self._lock
                vars(self).update(vars(other))

    async def write(self, rows: Sequence[Row], removed: Iterable[str] = ()) -> None:
        """Take in rows and remove others, so that both stay. Raises `Misuse` for a wrong length."""
        await self.load()
        async with self._lock:
            removals = [uri for uri in removed if uri in self]
            fresh = {str(row.identifier): row for row in rows}
            if not fresh and not removals:
                return
            size = self._check_dimensions(rows)
            lines = len(self._lines) + len(fresh)
            if lines <= _MOST_LINES and lines * size <= _MOST_LINE_NUMBERS:
                await self._append_lines(fresh, removals)
            else:
                most = max(1, _MOST_BLOCK_NUMBERS // size)
                uris = [*fresh]
                for start in range(0, max(1, len(uris)), most):
                    chosen = {uri: fresh[uri] for uri in uris[start : start + most]}
                    await self._write_block(chosen, removals, size)
                    removals = []
            if fresh:
                self.dimensions = size
            await self._delete_obsolete()
            self._etags = await self._list()

    async def _delete_obsolete(self) -> None:
        """Delete what newer blocks replace; what resists, as a mapped file on Windows, later."""
        remaining: list[str] = []
        for key in self._obsolete:
            try:
                await self._storage.delete(key)
            except CopilotError as error:
                logger.info("%s is not needed, and could not be deleted: %s", key, error)
                remaining.append(key)
        self._obsolete = remaining

    async def clear_others(self, prefix: str) -> None:
        """Delete all objects below a prefix that are not of this table."""
        for key in await self._storage.find_by_prefix(prefix):
            if not key.startswith(f"{self._prefix}/"):
                await self._storage.delete(key)

    async def _append_lines(self, rows: Mapping[str, Row], removals: Sequence[str]) -> None:
        lines = [orjson.dumps({"id": uri, "removed": True}) for uri in removals]
        lines += [encode_line(row) for row in rows.values()]
        start = b"\n" if self._is_torn else b""
        key = self._key(f"{self._number:08d}{_LINES}")
        await self._storage.append(key, start + b"\n".join(lines) + b"\n")
        self._is_torn = False
        self._apply_lines(rows, removals)

    def _apply_lines(self, rows: Mapping[str, Row], removals: Sequence[str]) -> None:
        gone = {*removals}
        self._line_removals |= dict.fromkeys(removals)
        lines = {uri: row for uri, row in self._lines.items() if uri not in gone} | {**rows}
        positions = {**self._line_positions, **self._assign_positions(rows)}
        positions = {uri: positions[uri] for uri in lines}
        self._release([*removals, *rows])
        self._lines, self._line_positions = lines, positions
        self._line_part = None

    async def _write_block(
        self, rows: Mapping[str, Row], removals: Sequence[str], size: int
    ) -> None:
        """Write rows, all lines, and the blocks that it is time to join with them, as one block."""
        fresh = {uri: row for uri, row in self._lines.items() if uri not in removals}
        fresh.update(rows)
        positions = {**self._line_positions, **self._assign_positions(rows)}
        absorbed = self._choose_parts(len(fresh), size)
        later = {*fresh, *removals, *self._line_removals}
        sources = [(part, _find_other_rows(part, later)) for part in absorbed]
        names = [part.name for part in absorbed]
        gone: dict[str, None] = {}
        if len(absorbed) < len(self._parts):  # an older block may have a row of such a name
            for part in absorbed:  # what a block behind it has again is not gone
                gone |= dict.fromkeys(
                    uri
                    for uri in part.segment.removed
                    if self._owners.get(uri) in (None, *absorbed)
                )
            gone |= self._line_removals | dict.fromkeys(removals)
        segment, data, name = await asyncio.to_thread(
            _encode_block, sources, fresh, positions, [*gone], names, self._number + 1
        )
        key = self._key(name)
        await self._storage.put(key, data)
        del data
        path = self._storage.path(key)
        if path is not None:  # mapped, what was written need not stay in memory
            segment = await asyncio.to_thread(map_segment, path)
        part = await asyncio.to_thread(Part, segment, name)
        self._obsolete += map(self._key, [*names, f"{self._number:08d}{_LINES}"])
        self._number += 1
        self._release(later)
        self._parts = [*(one for one in self._parts if one not in absorbed), part]
        self._owners |= dict.fromkeys(segment.columns.uris, part)
        self._lines, self._line_positions, self._line_removals = {}, {}, {}
        self._line_part = None

    def _release(self, uris: Iterable[str]) -> None:
        """Let blocks forget the rows of URIs that are lines, or in a newer block, or nowhere."""
        by_part: dict[Part, list[str]] = {}
        for uri in uris:
            if part := self._owners.pop(uri, None):
                by_part.setdefault(part, []).append(uri)
        for part, gone in by_part.items():
            part.drop(gone)

    def _assign_positions(self, uris: Iterable[str]) -> dict[str, int]:
        """Return the position of each URI: the one it has, or the next."""
        positions: dict[str, int] = {}
        for uri in uris:
            position = self._line_positions.get(uri)
            if position is None:
                part = self._owners.get(uri)
                if part is not None:
                    position = int(part.positions[part.row_numbers[uri]])
                else:
                    position, self._next_position = self._next_position, self._next_position + 1
            positions[uri] = position
        return positions

    def _choose_parts(self, rows: int, size: int) -> list[Part]:
        """Return the blocks to join: the last ones once they are many, and those half dead."""
        most = max(1, _MOST_BLOCK_NUMBERS // size)
        older, chosen = [*self._parts], list[Part]()
        while True:
            count = 0
            while count < len(older) and _tier(len(older[-1 - count])) <= _tier(rows):
                count += 1
            run = older[len(older) - count :]
            rows += sum(map(len, run))
            if count + 1 < _FAN or rows > most:
                break
            del older[len(older) - count :]
            chosen = run + chosen
        return [part for part in older if part.is_half_dead] + chosen

    def _check_dimensions(self, rows: Iterable[Row]) -> int:
        size = self.dimensions
        for row in rows:
            size = size or len(row.vector)
            check_dimensions(len(row.vector), size)
        return size or 1

    def _key(self, name: str) -> str:
        return f"{self._prefix}/{name}"

    async def _list(self) -> dict[str, str]:
        """Return the names and the etags of all objects with rows."""
        found = await self._storage.find_etags(f"{self._prefix}/")
        names = {key.removeprefix(f"{self._prefix}/"): etag for key, etag in found.items()}
        return {name: etag for name, etag in names.items() if name.endswith((_SEGMENT, _LINES))}

    async def _read(self) -> None:
        self._etags, self._read_at = await self._list(), monotonic()
        names = [*self._etags]
        segments = {
            name: segment
            for name in sorted(names)
            if name.endswith(_SEGMENT) and (segment := await self._read_segment(name))
        }
        replaced = {name for segment in segments.values() for name in segment.replaces}
        for name, segment in segments.items():
            self._number = max(self._number, int(name[:8]))
            if name in replaced:
                self._obsolete.append(self._key(name))
            else:
                await asyncio.to_thread(self._take_in, segment, name)
        for name in sorted(name for name in names if name.endswith(_LINES)):
            if int(name[:8]) < self._number:
                self._obsolete.append(self._key(name))
            else:
                self._number = int(name[:8])
                found = await self._storage.get_many([self._key(name)])
                await asyncio.to_thread(self._read_lines, found.get(self._key(name), b""))

    async def _read_segment(self, name: str) -> Segment | None:
        key = self._key(name)
        path = self._storage.path(key)
        try:
            if path is None:
                return await asyncio.to_thread(decode_segment, await self._storage.get(key))
            return await asyncio.to_thread(map_segment, path)
        except (FileNotFoundError, ObjectNotFound):
            return None  # another process has just replaced it; the next refresh reads that
        except DamagedSegment as error:
            logger.warning(
                "%s is damaged: %s. Its resources are embedded again at the next update.",
                key,
                error,
            )
            self._number = max(self._number, int(name[:8]))
            self._obsolete.append(key)
            return None

    def _take_in(self, segment: Segment, name: str) -> None:
        part = Part(segment, name)
        uris = segment.columns.uris
        self._release(self._owners.keys() & {*uris, *segment.removed})
        self._owners |= dict.fromkeys(uris, part)
        self._parts.append(part)
        if len(part):
            self.dimensions = segment.dimensions
            self._next_position = max(self._next_position, int(part.positions.max()) + 1)

    def _read_lines(self, data: bytes) -> None:
        self._is_torn = bool(data) and not data.endswith(b"\n")
        rows: dict[str, Row] = {}
        for line in salvage_lines(data):
            if line.get("removed"):
                self._apply_lines(rows, [])
                self._apply_lines({}, [get_text(line, "id")])
                rows = {}
            elif row := decode_line(line):
                if self.dimensions is None:
                    self.dimensions = len(row.vector)
                if len(row.vector) == self.dimensions:
                    rows[str(row.identifier)] = row
        self._apply_lines(rows, [])


def check_dimensions(size: int, expected: int) -> None:
    """Raise `Misuse` for a vector that cannot be compared with those of an index."""
    if size != expected:
        raise Misuse(
            f"A vector has {size} dimensions, and those of the index have {expected}.",
            hint="Embed texts and questions with the same model, and with the same dimensions.",
        )


def encode_line(row: Row) -> bytes:
    """Return a row as a line of Copilot-LD, with the version of the resource if there is one."""
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


def decode_line(line: JsonObject) -> Row | None:
    """Read the row of a line; None of a line that has none."""
    try:
        vector = np.array(line["vector"], np.float32)
        identifier = decode_identifier(line["identifier"])
    except (KeyError, TypeError, ValueError, Misuse):
        return None
    return Row(identifier, vector, get_text(line, "version")) if vector.ndim == 1 else None


def _judge_all(uris: Sequence[str], filter: Filter) -> NDArray[np.bool_]:
    """Return what a filter says of each URI. Access is asked last, and only where it counts."""
    mask = np.ones(len(uris), np.bool_)
    if filter.type:
        start = f"{filter.type}."
        starts = (uri.rpartition("/")[2].startswith(start) for uri in uris)
        mask &= np.fromiter(starts, np.bool_, len(uris))
    if filter.prefix:
        below = (contains(filter.prefix, uri) for uri in uris)
        mask &= np.fromiter(below, np.bool_, len(uris))
    if filter.access is not FULL_ACCESS:
        rows = np.flatnonzero(mask)
        mask[rows] = filter.access.judge([uris[row] for row in rows.tolist()])
    return mask


def _tier(rows: int) -> int:
    """Return how often a number of rows can be divided by `_FAN` until it is small."""
    return max(0, (rows // _SMALLEST_TIER).bit_length() - 1) // (_FAN.bit_length() - 1)


def _find_other_rows(part: Part, uris: set[str]) -> NDArray[np.intp]:
    """Return the rows of a block that count, other than those of some URIs."""
    mask = part.current.copy()
    mask[[part.row_numbers[uri] for uri in part.row_numbers.keys() & uris]] = False
    return np.flatnonzero(mask)


def _encode_block(
    sources: Sequence[tuple[Part, NDArray[np.intp]]],
    rows: Mapping[str, Row],
    positions: Mapping[str, int],
    removed: Sequence[str],
    replaces: Sequence[str],
    number: int,
) -> tuple[Segment, bytes, str]:
    """Return a block, its bytes and its name."""
    segment = _build_block(sources, rows, positions, removed, replaces)
    data = encode_segment(segment)
    return segment, data, f"{number:08d}-{crc32(data):08x}{_SEGMENT}"


def _build_block(
    sources: Sequence[tuple[Part, NDArray[np.intp]]],
    rows: Mapping[str, Row],
    positions: Mapping[str, int],
    removed: Sequence[str],
    replaces: Sequence[str],
) -> Segment:
    """Return a block of rows of other blocks, and of new ones behind them."""
    uris: list[str] = []
    versions: list[str] = []
    tokens: list[int | None] = []
    places: list[int] = []
    subjects: dict[str, Sequence[str]] = {}
    vectors: list[Floats] = []
    codes: list[Codes] = []
    for part, chosen in sources:
        columns = part.segment.columns
        numbers: list[int] = chosen.tolist()
        uris += [columns.uris[row] for row in numbers]
        versions += [columns.versions[row] for row in numbers]
        tokens += [columns.tokens[row] for row in numbers]
        places += [columns.positions[row] for row in numbers]
        subjects |= columns.subjects
        vectors.append(part.segment.vectors[chosen])
        old = part.segment.codes
        codes.append(Codes(old.codes[chosen], old.scales[chosen], old.errors[chosen]))
    if rows:
        uris += [*rows]
        versions += [row.version for row in rows.values()]
        tokens += [row.identifier.tokens for row in rows.values()]
        places += [positions[uri] for uri in rows]
        subjects |= {
            uri: row.identifier.subjects for uri, row in rows.items() if row.identifier.subjects
        }
        vectors.append(np.array([row.vector for row in rows.values()], np.float32))
        codes.append(quantize(vectors[-1]))
    there = {*uris}
    subjects = {uri: subjects[uri] for uri in subjects if uri in there}
    columns = Columns(uris, versions, tokens, places, subjects)
    matrix = np.concatenate(vectors) if vectors else np.empty((0, 0), np.float32)
    return Segment(columns, matrix, join_codes(codes), removed, replaces)
