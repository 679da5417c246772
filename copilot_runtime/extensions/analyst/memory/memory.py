"""The analyst's memory: recalled before an answer, updated after it."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from copilot_runtime.base.errors import CopilotError, NotFound
from copilot_runtime.base.jsonvalue import JsonObject
from copilot_runtime.extensions.analyst.memory.entries import (
    MemoryEntry,
    TableMemory,
    describe_entry,
    read_memory,
    write_memory,
)
from copilot_runtime.extensions.analyst.memory.store import MemoryKey, MemoryStore
from copilot_runtime.extensions.analyst.memory.turn import (
    Turn,
    extract_entries,
    extract_pattern,
    strip_private,
)
from copilot_runtime.extensions.analyst.results import Column
from copilot_runtime.telemetry.span import NO_SPAN, Span

TIME_LIMIT = 5.0
"""Time limit of a recording, in seconds."""

MOST_PENDING = 100
"""Maximum number of concurrent recordings; further turns are not recorded."""

_GRACE = 1.0

_BROKEN = ".broken"
"""Suffix of the fingerprint in the key of an unreadable value that was set aside."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """An entry with the key of its table."""

    key: MemoryKey
    entry: MemoryEntry

    def describe(self) -> JsonObject:
        """Return the entry as JSON, for its owner."""
        return {
            **describe_entry(self.entry),
            "table": self.key.table,
            "fingerprint": self.key.fingerprint,
            "agent": self.key.agent,
        }


class AnalystMemory:
    """Memory by owner, table, schema of the table, and agent.

    Args:
        store: The store of the memory.
        is_enabled: `True` to recall and record. The memory can be listed in any case.
        migrates: `True` if a table that has only gained columns inherits its earlier memory;
            otherwise a changed table starts with an empty one.
        time_limit: Seconds for one recording.
        now: Returns the time, as text.
    """

    def __init__(
        self,
        store: MemoryStore,
        *,
        is_enabled: bool = True,
        migrates: bool = False,
        time_limit: float = TIME_LIMIT,
        now: Callable[[], str] = lambda: datetime.now(UTC).isoformat(timespec="seconds"),
    ) -> None:
        self.is_enabled = is_enabled
        self._store = store
        self._migrates = migrates
        self._time_limit = time_limit
        self._now = now
        self._tasks: set[asyncio.Task[bool]] = set()

    async def recall(self, key: MemoryKey, columns: Sequence[Column] = ()) -> TableMemory:
        """Return the memory of a table; an empty one if the store fails.

        `columns` are the table's current columns, to find memories of fewer columns.
        """
        if not self.is_enabled:
            return TableMemory()
        try:
            async with asyncio.timeout(self._time_limit):
                values = await self._store.read(key.owner)
        except (CopilotError, TimeoutError) as error:
            logger.warning(
                "The analyst's memory cannot be read: %s", str(error) or "it took too long."
            )
            return TableMemory()
        return self._find(key, values, columns)

    def start_recording(self, key: MemoryKey, turn: Turn, span: Span = NO_SPAN) -> None:
        """Record a turn in the background. Errors are not raised.

        The span ends with the recording, with the status ERROR if it fails.
        """
        if not self.is_enabled or not turn.sql or len(self._tasks) >= MOST_PENDING:
            span.end()
            return
        task = asyncio.create_task(self.record(key, turn, span))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def record(self, key: MemoryKey, turn: Turn, span: Span = NO_SPAN) -> bool:
        """Record a turn. Returns `True` if something was recorded; never raises."""
        if not self.is_enabled or not turn.sql:
            span.end()
            return False
        try:
            async with asyncio.timeout(self._time_limit):
                uses = await asyncio.to_thread(extract_entries, turn, key.table)
                await self._count(key, turn, uses)
        except Exception as error:  # the store may raise anything: the answer has already been sent
            logger.warning(
                "The analyst's memory was not written: %s", str(error) or "it took too long."
            )
            span.fail(error)
            return False
        finally:
            span.end()
        return True

    async def list(self, owner: str | None, table: str | None = None) -> Sequence[Memory]:
        """Return all entries of an owner, the most used first."""
        values = await self._store.read(owner)
        memories = [
            Memory(key=key, entry=entry)
            for key, text in values.items()
            if table in (None, key.table) and not key.fingerprint.endswith(_BROKEN)
            for entry in _read(key, text).entries
        ]
        return sorted(memories, key=lambda one: (one.key.table, -one.entry.hits, one.entry.text))

    async def edit(
        self,
        owner: str | None,
        id: str,
        *,
        text: str | None = None,
        note: str | None = None,
        is_pinned: bool | None = None,
        is_good: bool | None = None,
    ) -> Memory:
        """Change an entry and return it. Arguments that are `None` change nothing.

        `is_good` is positive or negative feedback. Raises `NotFound` if this owner has no such
        entry.
        """
        found = await self._find_entry(owner, id)
        entry = found.entry
        names = None if entry.kind == "fix" else ()
        if text is not None and (new := strip_private(text, names=names)):
            entry = replace(entry, text=new)
        if note is not None:
            entry = replace(entry, note=strip_private(note, names=None))
        if is_pinned is not None:
            entry = replace(entry, is_pinned=is_pinned)

        def change(memory: TableMemory) -> TableMemory:
            memory = memory.put(entry)
            return memory if is_good is None else memory.weigh([id], is_good)

        await self._change(found.key, change)
        return await self._find_entry(owner, id, found.key)

    async def forget(
        self, owner: str | None, id: str | None = None, *, table: str | None = None
    ) -> int:
        """Delete an entry, all entries of a table, or all of an owner; return their number.

        Raises `NotFound` if this owner has no such entry.
        """
        if id is not None:
            found = await self._find_entry(owner, id)
            await self._change(found.key, lambda memory: memory.drop(id))
            return 1
        memories = await self.list(owner, table)
        for key in await self._store.read(owner):
            if table is None or key.table == table:
                await self._store.update(key, lambda _: None)
        return len(memories)

    async def rate(self, key: MemoryKey, sql: Sequence[str], is_good: bool) -> None:
        """Reweigh SQL patterns: up after positive feedback, down after negative feedback."""
        patterns = {await asyncio.to_thread(extract_pattern, one) for one in sql}

        def weigh(memory: TableMemory) -> TableMemory:
            ids = [one.id for one in memory.select("pattern") if one.text in patterns]
            return memory.weigh(ids, is_good)

        await self._change(key, weigh)

    async def aclose(self) -> None:
        """Wait for pending writes, which have a timeout, and close the store."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self._time_limit + _GRACE)
        await self._store.aclose()

    async def _count(self, key: MemoryKey, turn: Turn, uses: Sequence[MemoryEntry]) -> None:
        schema = [(column.name, column.type) for column in turn.columns]
        now = self._now()
        start = await self.recall(key, turn.columns) if self._migrates else TableMemory()

        def count(memory: TableMemory) -> TableMemory:
            memory = memory if memory.entries else start
            return replace(memory, schema=schema or memory.schema).count(uses, now)

        await self._change(key, count)

    async def _change(self, key: MemoryKey, change: Callable[[TableMemory], TableMemory]) -> None:
        broken: dict[MemoryKey, str] = {}

        def rewrite(text: str | None) -> str | None:
            try:
                memory = read_memory(text)
            except ValueError:
                broken[replace(key, fingerprint=f"{key.fingerprint}{_BROKEN}")] = text or ""
                memory = TableMemory()
            memory = change(memory)
            return write_memory(memory) if memory.entries else None

        await self._store.update(key, rewrite)
        for aside, text in broken.items():
            await self._store.update(aside, lambda _, text=text: text)

    async def _find_entry(self, owner: str | None, id: str, key: MemoryKey | None = None) -> Memory:
        for memory in await self.list(owner):
            if memory.entry.id == id and key in (None, memory.key):
                return memory
        raise NotFound(f"There is no memory {id!r}.", hint="It may have been forgotten.")

    def _find(
        self, key: MemoryKey, values: Mapping[MemoryKey, str], columns: Sequence[Column]
    ) -> TableMemory:
        if (text := values.get(key)) is not None:
            return _read(key, text)
        now = {(column.name, column.type) for column in columns}
        if not self._migrates or not now:
            return TableMemory()
        older = [
            _read(other, text)
            for other, text in values.items()
            if (other.table, other.agent) == (key.table, key.agent)
            and not other.fingerprint.endswith(_BROKEN)
        ]
        fitting = [one for one in older if one.schema and {*one.schema} < now]
        return max(fitting, key=lambda one: len(one.schema), default=TableMemory())


def _read(key: MemoryKey, text: str | None) -> TableMemory:
    try:
        return read_memory(text)
    except ValueError as error:
        logger.warning("What was remembered of %r is left out: %s.", key.table, error)
        return TableMemory()
