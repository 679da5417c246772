"""The memory of one conversation: identifiers in the order in which they were appended."""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from functools import partial
from types import MappingProxyType

from copilot_runtime.base.concurrency import retrieve_exception
from copilot_runtime.base.errors import CopilotError, Misuse
from copilot_runtime.extensions.knowledge.identifiers import (
    Identifier,
    decode_identifier,
    encode_identifier,
    parse_identifier,
    strip_namespace,
)
from copilot_runtime.extensions.knowledge.index import EVERYTHING, Filter, Index, check_ids
from copilot_runtime.storage import Storage
from copilot_runtime.storage.jsonlines import JsonLines, encode_lines, salvage_lines

PREFIX = "memories/"
"""The storage prefix of memories, each stored as `<conversation uri>.jsonl`."""

MAX_PENDING = 1000
"""Maximum number of pending identifiers before `append` applies backpressure."""

RETRY_SECONDS = 5.0

_LONG = 100_000
"""Minimum size in bytes of data that is parsed in a thread."""

logger = logging.getLogger(__name__)


class MemoryIndex(Index[Identifier, None]):
    """The identifiers of one conversation, in one JSON Lines object.

    Each line is `{"id": <uri>, "identifier": {…}}`. A later line of an id replaces an earlier one,
    but keeps its position. Any number of tasks and processes may append, and each reads the writes
    of the others.

    Appended identifiers are visible to this object immediately, and are written in batches in the
    background. Failed writes are retried.
    """

    def __init__(self, storage: Storage, conversation: Identifier | str) -> None:
        self.conversation = parse_identifier(str(conversation))
        self.uri = str(self.conversation)
        self.key = memory_key(self.uri)
        self._storage = storage
        self._lines = JsonLines(storage, self.key)
        self._identifiers: dict[str, Identifier] = {}
        self._pending: list[Identifier] = []
        self._lock = asyncio.Lock()
        self._writer: asyncio.Task[None] | None = None

    @property
    def is_pending(self) -> bool:
        """Whether there are pending identifiers."""
        return bool(self._pending)

    async def append(self, *identifiers: Identifier) -> None:
        """Append identifiers. An existing one keeps its position."""
        self._pending += identifiers
        if len(self._pending) >= MAX_PENDING:
            await self.flush()
        elif self._pending and self._writer is None:
            self._writer = asyncio.create_task(self._write_soon(), name=f"write {self.key}")
            self._writer.add_done_callback(retrieve_exception)

    async def add(self, *items: Identifier) -> None:
        await self.append(*items)

    async def flush(self) -> int:
        """Write pending identifiers, and return the number of lines.

        Identifiers that are already stored are not written again. Raises the errors of the storage;
        then all identifiers stay pending.
        """
        async with self._lock:
            if not (batch := [*self._pending]):
                return 0
            await self._read_lines()
            if lines := self._find_new(batch):
                await self._lines.append(encode_lines(lines))
            del self._pending[: len(batch)]
        return len(lines)

    async def load(self) -> Mapping[str, Identifier]:
        """Return all identifiers by URI, including those of other processes."""
        await self.flush()
        async with self._lock:
            await self._read_lines()
        return MappingProxyType(self._identifiers)

    async def get(self, ids: Iterable[Identifier | str] | None) -> list[Identifier]:
        identifiers = await self.load()
        uris = [strip_namespace(uri) for uri in check_ids(ids)]
        return [identifiers[uri] for uri in uris if uri in identifiers]

    async def has(self, id: Identifier | str) -> bool:
        return strip_namespace(str(id)) in await self.load()

    async def query(self, query: None = None, filter: Filter = EVERYTHING) -> list[Identifier]:  # noqa: ARG002
        return await filter.select((await self.load()).values())

    async def delete(self) -> bool:
        """Delete all identifiers, also pending ones. Returns whether an object existed."""
        async with self._lock:
            self._pending.clear()
            self._identifiers = {}
            self._lines = JsonLines(self._storage, self.key)
            return await self._storage.delete(self.key)

    async def aclose(self) -> None:
        """Write pending identifiers. Raises the errors of the storage."""
        try:
            await self.flush()
        finally:
            if self._writer is not None:
                self._writer.cancel()
                await asyncio.wait((self._writer,))

    def _find_new(self, batch: Iterable[Identifier]) -> list[dict[str, object]]:
        """Return the lines of new and changed identifiers."""
        latest: dict[str, dict[str, object]] = {}
        lines: list[dict[str, object]] = []
        for identifier in batch:
            uri, line = str(identifier), _encode(identifier)
            if uri not in latest and (stored := self._identifiers.get(uri)) is not None:
                latest[uri] = _encode(stored)
            if latest.get(uri) != line:
                latest[uri] = line
                lines.append(line)
        return lines

    async def _read_lines(self) -> None:
        """Apply the lines added by any process since the last read."""
        lines = await self._lines.read_new()
        decode = partial(_decode_lines, lines.data)
        identifiers = decode() if len(lines.data) < _LONG else await asyncio.to_thread(decode)
        if lines.is_anew:
            self._identifiers = identifiers
        else:
            self._identifiers.update(identifiers)
        self._lines.advance(lines)

    async def _write_soon(self) -> None:
        """Write batches until no identifier is pending."""
        try:
            while self._pending:
                try:
                    await self.flush()
                except CopilotError as error:
                    logger.error(
                        "%d identifiers of %s could not be written: %s They are tried again in "
                        "%g s.",
                        len(self._pending),
                        self.key,
                        error,
                        RETRY_SECONDS,
                    )
                    await asyncio.sleep(RETRY_SECONDS)
        finally:
            self._writer = None


def memory_key(conversation: str) -> str:
    """Return the storage key of the memory of a conversation."""
    return f"{PREFIX}{strip_namespace(conversation)}.jsonl"


def _encode(identifier: Identifier) -> dict[str, object]:
    return {"id": str(identifier), "identifier": encode_identifier(identifier)}


def _decode_lines(data: bytes) -> dict[str, Identifier]:
    """Decode the identifiers of lines; malformed lines are skipped."""
    identifiers: dict[str, Identifier] = {}
    for line in salvage_lines(data):
        try:
            identifier = decode_identifier(line.get("identifier"))
        except Misuse as error:
            logger.warning("A line of a memory has no identifier: %s", error)
            continue
        identifiers[str(identifier)] = identifier
    return identifiers
