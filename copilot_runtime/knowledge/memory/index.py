"""What belongs to one conversation: identifiers, in the order in which they came to it."""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from copilot_runtime.concurrency import retrieve_exception
from copilot_runtime.errors import CopilotError, Misuse
from copilot_runtime.knowledge.filter import Filter
from copilot_runtime.knowledge.identifiers import (
    Identifier,
    decode_identifier,
    encode_identifier,
    parse_identifier,
    strip_namespace,
)
from copilot_runtime.knowledge.index import EVERYTHING, Index, check_ids
from copilot_runtime.storage import Storage
from copilot_runtime.storage.jsonlines import JsonLinesReader, encode_lines, salvage_lines

PREFIX = "memories/"
"""Where memories are in a storage, each as `<uri of its conversation>.jsonl`."""

MAX_PENDING = 1000
"""So many identifiers wait to be written before one who appends more waits, too."""

RETRY_SECONDS = 5.0

_LONG = 100_000
"""Bytes that are parsed in a thread."""

logger = logging.getLogger(__name__)


class MemoryIndex(Index[Identifier, None]):
    """The identifiers of one conversation, in one JSON Lines object.

    Each line is `{"id": <uri>, "identifier": {…}}`. A later line of an id replaces what is said of
    it, at its first place. Any number of tasks and processes may append: what one of them has
    written, all of them read.

    Appended identifiers are there for this object at once, and are written in the background
    together with those that come meanwhile. What could not be written is tried again.
    """

    def __init__(self, storage: Storage, conversation: Identifier | str) -> None:
        self.conversation = parse_identifier(str(conversation))
        self.key = memory_key(str(conversation))
        self._storage = storage
        self._lines = JsonLinesReader(storage, self.key)
        self._identifiers: dict[str, Identifier] = {}
        self._unread: list[bytes] = []
        self._pending: list[Identifier] = []
        self._lock = asyncio.Lock()
        self._writer: asyncio.Task[None] | None = None

    @property
    def is_pending(self) -> bool:
        """Whether something is not written yet."""
        return bool(self._pending)

    async def append(self, *identifiers: Identifier) -> None:
        """Add identifiers at the end. One that is there already keeps its place."""
        self._pending += [it for it in identifiers if not self._holds(it)]
        if len(self._pending) >= MAX_PENDING:
            await self.flush()
        elif self._pending and self._writer is None:
            self._writer = asyncio.create_task(self._write_soon(), name=f"write {self.key}")
            self._writer.add_done_callback(retrieve_exception)

    async def add(self, *items: Identifier) -> None:
        await self.append(*items)

    async def flush(self) -> int:
        """Write what is not written yet, and return how many identifiers that were.

        Raises what the storage raises; then all of them are tried again later.
        """
        async with self._lock:
            batch = [*self._pending]
            if batch:
                await self._look_for_lines()
                data = encode_lines(map(_encode, batch))
                start = b"\n" if self._lines.ends_midline else b""
                await self._storage.append(self.key, start + data)
                del self._pending[: len(batch)]
        return len(batch)

    async def load(self) -> Mapping[str, Identifier]:
        """Return all identifiers by URI, by what every process has written until now."""
        await self.flush()
        async with self._lock:
            await self._look_for_lines()
            data = b"".join(self._unread)
            decode = _decode_lines
            found = (
                decode(data) if len(data) < _LONG else await asyncio.to_thread(_decode_lines, data)
            )
            self._unread.clear()
            self._identifiers.update(found)
        return MappingProxyType(self._identifiers)

    async def get(self, ids: Iterable[Identifier | str] | None) -> list[Identifier]:
        identifiers = await self.load()
        uris = [strip_namespace(uri) for uri in check_ids(ids)]
        return [identifiers[uri] for uri in uris if uri in identifiers]

    async def has(self, id: Identifier | str) -> bool:
        return strip_namespace(str(id)) in await self.load()

    async def query(self, query: None = None, filter: Filter = EVERYTHING) -> list[Identifier]:  # noqa: ARG002
        identifiers = (await self.load()).values()
        return filter.cut(it for it in identifiers if filter.matches(it))

    async def delete(self) -> bool:
        """Forget everything, also what is not written yet. Returns whether anything was written."""
        async with self._lock:
            self._pending.clear()
            return await self._storage.delete(self.key)

    async def aclose(self) -> None:
        """Write what is not written yet. Raises what the storage raises."""
        try:
            await self.flush()
        finally:
            if self._writer is not None:
                self._writer.cancel()
                await asyncio.wait((self._writer,))

    def _holds(self, identifier: Identifier) -> bool:
        """Return whether nothing new is said of an identifier that was read before."""
        if not self._identifiers or self._pending:
            return False
        stored = self._identifiers.get(str(identifier))
        return stored is not None and _encode(stored) == _encode(identifier)

    async def _look_for_lines(self) -> None:
        """Read what was added since, by whichever process."""
        data, is_anew = await self._lines.read_new()
        if is_anew:
            self._identifiers.clear()
            self._unread.clear()
        self._unread.append(data)

    async def _write_soon(self) -> None:
        """Write until there is nothing left to write."""
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
    """Return where the memory of a conversation is."""
    return f"{PREFIX}{strip_namespace(conversation)}.jsonl"


def _encode(identifier: Identifier) -> dict[str, object]:
    return {"id": str(identifier), "identifier": encode_identifier(identifier)}


def _decode_lines(data: bytes) -> dict[str, Identifier]:
    """Read the identifiers of lines; a line that has none is left out."""
    identifiers: dict[str, Identifier] = {}
    for line in salvage_lines(data):
        try:
            identifier = decode_identifier(line.get("identifier"))
        except Misuse as error:
            logger.warning("A line of a memory has no identifier: %s", error)
            continue
        identifiers[str(identifier)] = identifier
    return identifiers
