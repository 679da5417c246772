"""Store memories in a DuckDB file, which is open only during a read or write.

DuckDB locks a file while a process has it open. So it is open for milliseconds only, for all
pending operations of this process, and several processes can share it. If another program keeps it
open, changes stay in this process and are written with the next one.
"""

import asyncio
import logging
import os
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, TypeVar

from copilot_runtime.base.errors import StoreFailed
from copilot_runtime.extensions.analyst.memory.store import Change, MemoryKey

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


try:
    import fcntl
except ImportError:  # on Windows, DuckDB's own lock must suffice
    fcntl = None

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

T = TypeVar("T")

State = tuple[int, int]
"""Modification time of a file in nanoseconds, and its size in bytes."""

_PAUSE = 0.01
_LOCKED = ("lock", "different configuration")
_BROKEN = ("not a valid duckdb", "corrupt", "checksum", "deserializ", "serialization error")

_OPTIONS: dict[str, str | bool | int | float | list[str]] = {
    "threads": "1",
    "memory_limit": "256MB",
    "enable_external_access": "false",
}


class FileLocked(Exception):
    """Another process has the file open."""


class DatabaseFile:
    """A DuckDB file.

    Processes coordinate by an OS lock on a file beside it, and retry if other programs have the
    file open. `patience` is the time limit in seconds.
    """

    def __init__(self, path: Path, patience: float) -> None:
        self.path = path
        self._patience = patience

    def find_state(self) -> State | None:
        """Return the state of the file, or `None` if it does not exist."""
        try:
            stat = self.path.stat()
        except OSError:
            return None
        return stat.st_mtime_ns, stat.st_size

    @contextmanager
    def lock(self) -> Generator[None]:
        """Acquire the lock. Raises `FileLocked` after the time limit."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            self._retry(lambda: _take(descriptor))
            yield
        finally:
            os.close(descriptor)

    @contextmanager
    def open(self) -> Generator["DuckDBPyConnection"]:
        """Connect to the file. A missing file is created, and an unreadable one is replaced.

        Raises `FileLocked`, and DuckDB's errors.
        """
        connection = self._retry(self._connect)
        try:
            yield connection
        finally:
            connection.close()

    def _connect(self) -> "DuckDBPyConnection":
        import duckdb

        try:
            return duckdb.connect(str(self.path), config=_OPTIONS)
        except duckdb.Error as error:
            text = str(error).lower()
            if any(word in text for word in _BROKEN):
                self._set_aside()
                return duckdb.connect(str(self.path), config=_OPTIONS)
            if any(word in text for word in _LOCKED):
                raise FileLocked from error
            raise

    def _retry(self, action: Callable[[], T]) -> T:
        deadline = monotonic() + self._patience
        while True:
            try:
                return action()
            except FileLocked:
                if monotonic() > deadline:
                    raise
            sleep(_PAUSE)  # runs in a thread: waits for another process

    def _set_aside(self) -> None:
        aside = self.path.with_name(f"{self.path.name}.broken-{datetime.now(UTC):%Y%m%dT%H%M%S%f}")
        self.path.replace(aside)
        with suppress(OSError):
            self.path.with_name(f"{self.path.name}.wal").unlink()
        logger.error("'%s' cannot be read: it is now '%s'.", self.path.name, aside)


def _take(descriptor: int) -> None:
    if fcntl is None:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise FileLocked from error


FILE = "memory.duckdb"

_PATIENCE = 2.0
_MOST_OWNERS = 256
"""Maximum number of owners whose values are cached while the file is unchanged."""
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
    """A pending change and its future."""

    key: MemoryKey
    change: Change
    done: Future[None] = field(default_factory=Future[None])


class DuckDbMemoryStore:
    """Values in `memory.duckdb` in a folder.

    Args:
        folder: The folder of the file.
        patience: Seconds to wait for another program that has the file open.
    """

    def __init__(self, folder: Path | str, *, patience: float = _PATIENCE) -> None:
        self._file = DatabaseFile(Path(folder) / FILE, patience)
        self._works: deque[_Work] = deque()
        # the following attributes are only used in the pool's single thread
        self._pool = ThreadPoolExecutor(1, "analyst-memory")
        self._values: OrderedDict[str | None, Mapping[MemoryKey, str]] = OrderedDict()
        self._state: State | None = None
        """State of the file when `_values` were read."""
        self._unwritten: list[_Work] = []
        self._is_warned = False

    async def read(self, owner: str | None) -> Mapping[MemoryKey, str]:
        """Return all values of an owner; an empty mapping if the file does not exist."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._read, owner)

    async def update(self, key: MemoryKey, change: Change) -> None:
        """Change a value; concurrent changes are written together."""
        work = _Work(key, change)
        self._works.append(work)
        self._pool.submit(self._write_all)
        await asyncio.wrap_future(work.done)

    async def aclose(self) -> None:
        """Write pending changes, and stop the thread."""
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
        """Open the file. Cached values are dropped if another process has changed it."""
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
        """Apply all pending changes in one transaction; later calls find none left."""
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
        except Exception as error:  # report the error to all waiters
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
    """Apply a change, and pass its exception to its own waiter only."""
    try:
        value = work.change(values.get(work.key))
    except Exception as error:  # a change may raise anything
        if not work.done.done():
            work.done.set_exception(error)
        return False
    if value is None:
        values.pop(work.key, None)
    else:
        values[work.key] = value
    return True
