"""The analyst's memory: recalled before an answer, updated after it, and kept in SQLite."""

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from copilot_runtime.base.concurrency import ThreadPool
from copilot_runtime.base.errors import CopilotError, NotFound, StoreFailed
from copilot_runtime.base.jsonvalue import JsonObject
from copilot_runtime.database.sqlite.file import create_private_file
from copilot_runtime.extensions.analyst.memory.entries import (
    MemoryEntry,
    TableMemory,
    Turn,
    describe_entry,
    extract_entries,
    read_memory,
    strip_private,
    write_memory,
)
from copilot_runtime.telemetry.span import NO_SPAN, Span

T = TypeVar("T")

FILE = "memory.db"
PREFIX = "copilot_memory"

Change = Callable[[str | None], str | None]
"""Returns the new value for the current one, or `None` to delete it."""

_PATIENCE = 2.0
"""Seconds to wait for another process that writes to the file."""
_BROKEN_FILE = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)
_CREATE = """
CREATE TABLE IF NOT EXISTS memory (
  key TEXT PRIMARY KEY, owner TEXT, table_name TEXT, fingerprint TEXT, agent TEXT, value TEXT
) WITHOUT ROWID"""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryKey:
    """The owner, agent and table of a memory. Each schema of a table has its own memory."""

    table: str
    fingerprint: str
    agent: str | None = None
    owner: str | None = None
    """The user; `None` for all anonymous users."""

    def __str__(self) -> str:
        """Return the key as text, such as `copilot_memory:orders:0123456789ab`."""
        parts = [PREFIX, quote(self.table, safe=""), quote(self.fingerprint, safe="")]
        if self.agent is not None or self.owner is not None:
            parts.append(quote(self.agent or "", safe=""))
        if self.owner is not None:
            parts.append(quote(self.owner, safe=""))
        return ":".join(parts)


class MemoryStore:
    """Values by key in a folder. A key belongs to one owner."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE
        self._pool = ThreadPool(1, "analyst-memory")

    async def read(self, owner: str | None) -> Mapping[MemoryKey, str]:
        """Return all values of an owner. Raises `StoreFailed`."""

        def select(connection: sqlite3.Connection) -> Mapping[MemoryKey, str]:
            sql = "SELECT table_name, fingerprint, agent, value FROM memory WHERE owner IS ?"
            return {
                MemoryKey(table=table, fingerprint=fingerprint, agent=agent, owner=owner): value
                for table, fingerprint, agent, value in connection.execute(sql, [owner])
            }

        return await self._run(select) if self._file.exists() else {}

    async def update(self, key: MemoryKey, change: Change) -> None:
        """Change a value in one transaction. Raises `StoreFailed`, or the exception of `change`."""

        def write(connection: sqlite3.Connection) -> None:
            name = str(key)
            connection.execute("BEGIN IMMEDIATE")
            sql = "SELECT value FROM memory WHERE key = ?"
            row: tuple[str] | None = connection.execute(sql, [name]).fetchone()
            value = change(row[0] if row else None)
            if value is None:
                connection.execute("DELETE FROM memory WHERE key = ?", [name])
            else:
                values = [name, key.owner, key.table, key.fingerprint, key.agent, value]
                connection.execute("REPLACE INTO memory VALUES (?, ?, ?, ?, ?, ?)", values)
            connection.execute("COMMIT")

        await self._run(write)

    async def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        def run() -> T:
            try:
                with closing(self._open()) as connection:
                    return work(connection)
            except (sqlite3.Error, OSError) as error:
                raise StoreFailed(
                    "The analyst's memory cannot be stored.",
                    hint=f"{type(error).__name__}: see that the analyst's folder can be written.",
                ) from error

        return await self._pool.run(run)

    def _open(self) -> sqlite3.Connection:
        """Open the file; create a missing one, and set an unreadable one aside."""
        try:
            return self._connect()
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode not in _BROKEN_FILE:
                raise
        aside = self._file.with_name(f"{FILE}.broken-{datetime.now(UTC):%Y%m%dT%H%M%S%f}")
        self._file.replace(aside)
        logger.error("'%s' cannot be read: it is now '%s'.", FILE, aside)
        return self._connect()

    def _connect(self) -> sqlite3.Connection:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        create_private_file(self._file)
        connection = sqlite3.connect(self._file, timeout=_PATIENCE, isolation_level=None)
        try:
            connection.execute(_CREATE)
        except BaseException:
            connection.close()
            raise
        return connection


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
        time_limit: Seconds for one recording.
        now: Returns the time, as text.
    """

    def __init__(
        self,
        store: MemoryStore,
        *,
        is_enabled: bool = True,
        time_limit: float = TIME_LIMIT,
        now: Callable[[], str] = lambda: datetime.now(UTC).isoformat(timespec="seconds"),
    ) -> None:
        self.is_enabled = is_enabled
        self._store = store
        self._time_limit = time_limit
        self._now = now
        self._tasks: set[asyncio.Task[bool]] = set()

    async def recall(self, key: MemoryKey) -> TableMemory:
        """Return the memory of a table; an empty one if the store fails."""
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
        return _read(key, values.get(key))

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
                await self._count(key, uses)
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

    async def aclose(self) -> None:
        """Wait for pending writes, which have a timeout."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self._time_limit + _GRACE)

    async def _count(self, key: MemoryKey, uses: Sequence[MemoryEntry]) -> None:
        now = self._now()
        await self._change(key, lambda memory: memory.count(uses, now))

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


def _read(key: MemoryKey, text: str | None) -> TableMemory:
    try:
        return read_memory(text)
    except ValueError as error:
        logger.warning("The memory of %r is ignored: %s.", key.table, error)
        return TableMemory()
