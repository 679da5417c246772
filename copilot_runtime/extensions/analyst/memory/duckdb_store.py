"""Keeps memories in a file of DuckDB, which is open only while it is read or written.

DuckDB locks a file for as long as a process has it open. So it is open for some milliseconds, for
all that waits in this process, and several processes can share it. While another program keeps it
open, changes stay in this process, and are written with the next one.
"""

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from copilot_runtime.base.errors import StoreFailed
from copilot_runtime.extensions.analyst.memory.file import DatabaseFile, FileLocked, State
from copilot_runtime.extensions.analyst.memory.store import Change, MemoryKey

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

FILE = "memory.duckdb"

_PATIENCE = 2.0
_MOST_OWNERS = 256
"""Owners whose values stay in this process, for as long as the file is as it was."""
_MOST_UNWRITTEN = 1_000

_CREATE = """
CREATE TABLE IF NOT EXISTS copilot_memory (
  key VARCHAR PRIMARY KEY, owner VARCHAR, table_name VARCHAR, fingerprint VARCHAR, agent VARCHAR,
  value VARCHAR NOT NULL, updated_at TIMESTAMP
)"""
_SELECT_OWNER = """
SELECT table_name, fingerprint, agent, value FROM copilot_memory
WHERE owner IS NOT DISTINCT FROM ?"""
_SELECT = "SELECT value FROM copilot_memory WHERE key = ?"
_UPSERT = "INSERT OR REPLACE INTO copilot_memory VALUES (?, ?, ?, ?, ?, ?, ?)"
_DELETE = "DELETE FROM copilot_memory WHERE key = ?"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Work:
    """A change, and what waits for it."""

    key: MemoryKey
    change: Change
    done: Future[None] = field(default_factory=Future[None])


class DuckDbMemoryStore:
    """Values in `memory.duckdb` in a folder.

    Args:
        folder: Where the file is, or will be.
        patience: Seconds to wait for another program that has it open.
    """

    def __init__(self, folder: Path | str, *, patience: float = _PATIENCE) -> None:
        self._file = DatabaseFile(Path(folder) / FILE, patience)
        self._works: deque[_Work] = deque()
        # from here on, only the one thread of the pool reads and writes what follows
        self._pool = ThreadPoolExecutor(1, "analyst-memory")
        self._values: OrderedDict[str | None, Mapping[MemoryKey, str]] = OrderedDict()
        self._state: State | None = None
        """Of the file, when `_values` were read."""
        self._unwritten: list[_Work] = []
        self._is_warned = False

    async def read(self, owner: str | None) -> Mapping[MemoryKey, str]:
        """Return all values of an owner. Without a file there are none."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._read, owner)

    async def update(self, key: MemoryKey, change: Change) -> None:
        """Change a value: it is written together with others that wait at the same time."""
        work = _Work(key, change)
        self._works.append(work)
        self._pool.submit(self._write_all)
        await asyncio.wrap_future(work.done)

    async def aclose(self) -> None:
        """Write what waits, and end the thread."""
        self._pool.submit(self._write_all)
        await asyncio.to_thread(self._pool.shutdown)

    def _read(self, owner: str | None) -> Mapping[MemoryKey, str]:
        values = dict(self._load(owner))
        for work in self._unwritten:
            if work.key.owner == owner:
                _apply(work, values)
        return values

    def _load(self, owner: str | None) -> Mapping[MemoryKey, str]:
        state = self._file.find_state()
        if state is None:
            self._values.clear()
            return {}
        if state == self._state and (values := self._values.get(owner)) is not None:
            self._values.move_to_end(owner)
            return values
        try:
            with self._open() as connection:
                return self._select(connection, owner)
        except FileLocked:
            self._warn()
            return self._values.get(owner, {})

    @contextmanager
    def _open(self) -> "Generator[DuckDBPyConnection]":
        """Open the file. What was read before is dropped if another process has changed it."""
        import duckdb

        try:
            with self._file.lock():
                if self._file.find_state() != self._state:
                    self._values.clear()
                with self._file.open() as connection:
                    connection.execute(_CREATE)
                    yield connection
                self._state = self._file.find_state()
        except (duckdb.Error, OSError) as error:
            self._values.clear()
            raise StoreFailed(
                "The analyst's memory cannot be stored.",
                hint=f"{type(error).__name__}: see that the analyst's folder can be written.",
            ) from error

    def _select(
        self, connection: "DuckDBPyConnection", owner: str | None
    ) -> Mapping[MemoryKey, str]:
        rows = connection.execute(_SELECT_OWNER, [owner]).fetchall()
        values = {
            MemoryKey(table=table, fingerprint=fingerprint, agent=agent, owner=owner): value
            for table, fingerprint, agent, value in rows
        }
        self._values[owner] = values
        if len(self._values) > _MOST_OWNERS:
            self._values.popitem(last=False)
        return values

    def _write_all(self) -> None:
        """Make all changes that wait, in one transaction; later calls find none left."""
        works: list[_Work] = []
        while self._works:
            work = self._works.popleft()
            if work.done.set_running_or_notify_cancel():
                works.append(work)
        if not works and not self._unwritten:
            return
        try:
            self._write([*self._unwritten, *works])
            self._unwritten = []
            self._is_warned = False
        except FileLocked:
            self._warn()
            self._unwritten = [*self._unwritten, *works][-_MOST_UNWRITTEN:]
        except Exception as error:  # all who wait are to know of it
            for work in works:
                if not work.done.done():
                    work.done.set_exception(error)
            return
        for work in works:
            if not work.done.done():
                work.done.set_result(None)

    def _write(self, works: Sequence[_Work]) -> None:
        with self._open() as connection:
            connection.execute("BEGIN")
            for work in works:
                self._write_one(connection, work)
            connection.execute("COMMIT")

    def _write_one(self, connection: "DuckDBPyConnection", work: _Work) -> None:
        key = work.key
        row = connection.execute(_SELECT, [str(key)]).fetchone()
        values = {key: row[0]} if row else {}
        if not _apply(work, values):
            return
        if key in values:
            names = [str(key), key.owner, key.table, key.fingerprint, key.agent]
            now = datetime.now(UTC).replace(tzinfo=None)
            connection.execute(_UPSERT, [*names, values[key], now])
        else:
            connection.execute(_DELETE, [str(key)])
        if (cached := self._values.get(key.owner)) is not None:
            others = {other: value for other, value in cached.items() if other != key}
            self._values[key.owner] = {**others, **values}

    def _warn(self) -> None:
        if not self._is_warned:
            self._is_warned = True
            logger.warning(
                "Another program has '%s' open: the analyst's memory stays in this process until "
                "it is closed.",
                self._file.path,
            )


def _apply(work: _Work, values: dict[MemoryKey, str]) -> bool:
    """Make a change; what it raises goes to the one who waits for it, and no other."""
    try:
        value = work.change(values.get(work.key))
    except Exception as error:  # whatever a change raises
        if not work.done.done():
            work.done.set_exception(error)
        return False
    if value is None:
        values.pop(work.key, None)
    else:
        values[work.key] = value
    return True
