"""The rows of a vector index, in memory and in a storage.

Rows come in two kinds of objects below one prefix, and the highest number is the latest:

- `00000007-<hash>.vectors`: a block that never changes (`segment.py`), written whole
- `00000007.jsonl`: a few rows that came after block 7, a line each as Copilot-LD writes them

A later row of a URI takes the place of an earlier one, and keeps its position. When the lines
become many they are written as a block, and eight blocks of about one size as one, so a row is
written about as often as the number of rows has digits. Objects that a newer block replaces are
deleted after it is written. If the process dies, the storage has the state before or after a
write: partial lines are ignored, and a replaced block that was not yet deleted is listed in the
block that replaces it.

Any number of processes may write. A writer holds a lock in the storage, and first compares the
etags of the objects to read the writes of other processes, so that nothing is lost.
"""

import asyncio
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from time import monotonic
from zlib import crc32

from copilot_runtime.base.errors import CopilotError, Misuse
from copilot_runtime.extensions.knowledge.vectors.segment import (
    DamagedSegment,
    Row,
    RowChange,
    Segment,
    decode_changes,
    decode_segment,
    encode_changes,
    encode_segment,
    map_segment,
)
from copilot_runtime.extensions.knowledge.vectors.state import Block, TableState, count_block_rows
from copilot_runtime.storage import ObjectNotFound, Storage
from copilot_runtime.storage.lock import StorageLock, lock_storage

logger = logging.getLogger(__name__)

_NAME = re.compile(r"\d{8}(-[0-9a-f]{8}\.vectors|\.jsonl)")
_BLOCK = ".vectors"
_LOCK = "lock.json"
_MOST_READS = 3
"""Maximum number of attempts of a read that races with another process."""


class VectorTable:
    """The rows of one model; `state` is the snapshot of the last read or write."""

    def __init__(self, storage: Storage, prefix: str) -> None:
        self.state = TableState()
        self._storage = storage
        self._prefix = prefix
        self._etags: Mapping[str, str] = {}
        """The objects of the state, with their etags at the time of the read."""
        self._obsolete: Sequence[str] = ()
        """Names of objects that newer blocks have replaced."""
        """Whether the last line is torn, because a process died while writing it."""
        self._is_read = False
        self._checked_at = 0.0
        self._lock = asyncio.Lock()

    async def load(self) -> None:
        """Read the stored rows on first use."""
        if not self._is_read:
            async with self._lock:
                if not self._is_read:
                    await self._look()

    async def refresh(self, max_age: float = 0.0) -> None:
        """Read the writes of other processes if the last check is older than `max_age` seconds.

        With a `max_age`, does not wait for a running write of this process, which refreshes anyway.
        """
        await self.load()
        if monotonic() - self._checked_at < max_age or (max_age and self._lock.locked()):
            return
        async with self._lock:
            await self._look()

    def invalidate_cache(self) -> None:
        """Make the next refresh read the storage, regardless of its age."""
        self._checked_at = -inf

    async def write(self, rows: Sequence[Row], removed: Iterable[str] = ()) -> None:
        """Store rows and remove others durably. Raises `Misuse` for a wrong vector length."""
        removed = dict.fromkeys(removed)
        if not rows and not removed:
            return
        lock_key = self._key(_LOCK)
        async with self._lock, lock_storage(self._storage, lock_key) as lock:
            await self._look()
            changes: list[RowChange] = [(uri, None) for uri in removed if uri in self.state]
            changes += {str(row.identifier): row for row in rows}.items()
            most = count_block_rows(self._check_dimensions(rows))
            for start in range(0, len(changes), most):
                await self._write(changes[start : start + most], lock)
            await self._delete_obsolete()

    async def _write(self, changes: Sequence[RowChange], lock: StorageLock) -> None:
        state = await asyncio.to_thread(self.state.add_lines, changes)
        if state.has_too_many_lines:
            await self._write_block(state, lock)
        else:
            await self._append(changes, state, lock)

    async def _append(
        self, changes: Sequence[RowChange], state: TableState, lock: StorageLock
    ) -> None:
        lines = await asyncio.to_thread(encode_changes, changes)
        name = _name_lines(state.number)
        lock.check()
        await self._storage.append(self._key(name), lines)
        etags = {**self._etags, name: await self._storage.etag(self._key(name))}
        self.state, self._etags = state, etags

    async def _write_block(self, state: TableState, lock: StorageLock) -> None:
        segment, data, name = await asyncio.to_thread(_encode_block, state)
        lock.check()
        etag = await self._storage.put(self._key(name), data)
        del data
        path = self._storage.path(self._key(name))
        if path is not None:  # memory-mapped, so that the data need not stay in memory
            segment = await asyncio.to_thread(map_segment, path)
        block = await asyncio.to_thread(Block, segment, name)
        self._obsolete = [*self._obsolete, *segment.replaces, _name_lines(state.number)]
        self.state, self._etags = state.replace_lines(block), {**self._etags, name: etag}

    async def _delete_obsolete(self) -> None:
        """Delete replaced objects; retry later if that fails, as for a mapped file on Windows."""
        remaining: list[str] = []
        etags = {**self._etags}
        for name in self._obsolete:
            try:
                await self._storage.delete(self._key(name))
                etags.pop(name, None)
            except CopilotError as error:
                logger.info(
                    "%s is not needed, and could not be deleted: %s", self._key(name), error
                )
                remaining.append(name)
        self._obsolete, self._etags = remaining, etags

    def _check_dimensions(self, rows: Iterable[Row]) -> int:
        size = self.state.dimensions
        for row in rows:
            size = size or len(row.vector)
            check_dimensions(len(row.vector), size)
        return size or 1

    def _key(self, name: str) -> str:
        return f"{self._prefix}/{name}"

    async def _look(self) -> None:
        """Read the storage if its etags differ from those of the last read or write."""
        self._checked_at = monotonic()
        for _ in range(_MOST_READS):
            etags = await self._list()
            if self._is_read and etags == self._etags:
                return
            await self._read(etags)

    async def _list(self) -> dict[str, str]:
        """Return the names and the etags of all objects with rows."""
        found = await self._storage.find_etags(f"{self._prefix}/")
        names = {key.removeprefix(f"{self._prefix}/"): etag for key, etag in found.items()}
        return {name: etag for name, etag in names.items() if _NAME.fullmatch(name)}

    async def _read(self, etags: Mapping[str, str]) -> None:
        """Read objects by name; blocks in memory are reused."""
        names = sorted(name for name in etags if name.endswith(_BLOCK))
        found = [await self._open_block(name, etags[name]) for name in names]
        there = [block for block in found if block is not None]
        replaced = {name for block in there for name in block.segment.replaces}
        current = [block for block in there if block.name not in replaced]
        number = max((int(name[:8]) for name in etags), default=0)
        blocks = await asyncio.to_thread(TableState(number=number).add_blocks, current)
        lines = _name_lines(number)
        data = (await self._storage.get_many([self._key(lines)])).get(self._key(lines), b"")
        changes = await asyncio.to_thread(lambda: [*decode_changes(data, blocks.dimensions)])
        state = await asyncio.to_thread(blocks.add_lines, changes)
        self.state, self._etags, self._is_read = state, etags, True
        useful = {lines, *(block.name for block in current)}
        self._obsolete = [name for name in etags if name not in useful]

    async def _open_block(self, name: str, etag: str) -> Block | None:
        """Return a block by name; `None` if it is damaged or no longer exists."""
        if etag == self._etags.get(name):
            for block in self.state.blocks:
                if block.name == name:
                    return block.restore()
        key = self._key(name)
        path = self._storage.path(key)
        try:
            if path is not None:
                return await asyncio.to_thread(lambda: Block(map_segment(path), name))
            data = await self._storage.get(key)
            return await asyncio.to_thread(lambda: Block(decode_segment(data), name))
        except (FileNotFoundError, ObjectNotFound):
            return None  # another process has just replaced it; the next look reads that
        except DamagedSegment as error:
            logger.warning(
                "%s is damaged: %s. Its resources are embedded again at the next update.",
                key,
                error,
            )
            return None


def _encode_block(state: TableState) -> tuple[Segment, bytes, str]:
    """Return the next block, its bytes and its name."""
    segment = state.merge_lines()
    data = encode_segment(segment)
    return segment, data, f"{state.number + 1:08d}-{crc32(data):08x}{_BLOCK}"


def check_dimensions(size: int, expected: int) -> None:
    """Raise `Misuse` if a vector has a different length than those of the index."""
    if size != expected:
        raise Misuse(
            f"A vector has {size} dimensions, and those of the index have {expected}.",
            hint="Embed texts and questions with the same model, and with the same dimensions.",
        )


def _name_lines(number: int) -> str:
    """Return the name of the lines that come after a block."""
    return f"{number:08d}.jsonl"
