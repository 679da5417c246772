"""Threads in a file of SQLite: the store for one machine, with any number of servers."""

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple, TypeVar

from copilot_runtime.base.concurrency import run_to_end
from copilot_runtime.base.errors import CopilotError, StoreFailed, StoreReadOnly
from copilot_runtime.base.outages import Outage
from copilot_runtime.database.server_locks import Server, remove_stale_locks
from copilot_runtime.database.sqlite.file import (
    Durability,
    build_failure,
    check_readable,
    is_write_refusal,
    make_reserve,
    open_database,
    open_for_reading,
    release_reserve,
)
from copilot_runtime.database.sqlite.workers import Readers, Writer
from copilot_runtime.threads import transactions
from copilot_runtime.threads.database import DatabaseThreads
from copilot_runtime.threads.sqlite.transaction import SqliteTransaction
from copilot_runtime.threads.store import Segment, ThreadKey
from copilot_runtime.threads.transactions import Place

T = TypeVar("T")
Work = Callable[[SqliteTransaction], Coroutine[Any, Any, T]]

_WRITES_PER_TRIM = 250
"""Writes after which the journal is trimmed."""

_LONG = 60_000_000
"""How much of an active run the journal keeps at least, in microseconds."""

_PROBE_SIZE = 64 * 1024
"""Bytes of a trial write, about as much as a question and its answer: one page is not enough."""

_RETRY_SECONDS = 1.0
"""Seconds between attempts to write a file that could only be opened for reading."""

logger = logging.getLogger("copilot_runtime.database")


class SqliteThreads(DatabaseThreads["_File | _ReadableFile"]):
    """Stores threads in one file, which is created on first use, with its folder.

    Several server processes of one machine may share the file. Data survives `kill -9` once `begin`
    or `write` has returned; with `durability="FULL"` it also survives a power failure, at the cost
    of a disk flush for each commit.

    A file that cannot be opened for writing, because the disk is full, is read all the same.
    Deletions have disk space reserved for them.
    """

    def __init__(self, path: Path | str, *, durability: Durability = "NORMAL") -> None:
        super().__init__()
        self.path = Path(path)
        self.shared_file = self.path
        self.durability: Durability = durability
        self._writes = 0
        self._trimmed_before = 0
        """The journal has no events of active runs from before this time."""
        self._readable: _ReadableFile | None = None
        self._retry_at = 0.0
        self._refusal = Outage(
            logger,
            f"SQLite ({self.path})",
            message="rejects writes",
            recovery="can be written again",
        )

    async def check(self) -> None:
        """Check that threads can be read and, if the latest write was refused, written.

        Only in the latter case is something written. Raises `StoreFailed` or `StoreReadOnly`.
        """
        await super().check()
        await (await self._connect()).check_writable(self._clock.now())

    async def _write(self, parts: Sequence[tuple[Place, Segment]]) -> None:
        file = self._database or await self._connect()
        self._writes += 1
        trim = self._plan_trim() if self._writes % _WRITES_PER_TRIM == 0 else None
        work = self._build_write(parts)  # later than the trimmed entries
        if trim is None:
            await file.do(work)
        else:
            await file.do(_trim_and_do(trim, work))
            self._trimmed_before = trim.before

    def submit(self, segments: Sequence[Segment], done: Callable[[Exception | None], None]) -> bool:
        """Begin to write segments, unless the file is to be opened or its journal trimmed first."""
        parts: list[tuple[Place, Segment]] = []
        for segment in segments:
            if (run := self._running.get(segment.log_id)) is not None:
                parts.append((run.place, segment))
        file, writes = self._database, self._writes + 1
        if not (isinstance(file, _File) and parts and writes % _WRITES_PER_TRIM):
            return False
        self._writes = writes
        is_one_statement = all(segment.whole is None for _, segment in parts)

        def finish(error: Exception | None) -> None:
            if error is None and not is_one_statement:
                for segment in segments:
                    if segment.whole is not None:
                        self._running.pop(segment.log_id, None)
            done(error)

        file.submit(self._build_write(parts), finish, is_one_statement=is_one_statement)
        return True

    def _build_write(self, parts: Sequence[tuple[Place, Segment]]) -> Work[None]:
        now = self._clock.now(len(parts))
        return partial(transactions.write_segments, segments=parts, now=now)

    async def delete(self, key: ThreadKey) -> bool:
        """Delete a thread, even if the disk is full. Returns `True` if it existed."""
        return await self._make_room(partial(super().delete, key))

    async def expire(self, before: datetime) -> int:
        """Delete idle threads not updated since `before`, even if the disk is full."""
        return await self._make_room(partial(super().expire, before))

    async def _make_room(self, delete: Callable[[], Coroutine[Any, Any, T]]) -> T:
        try:
            return await delete()
        except StoreFailed as error:
            if not isinstance(error.__cause__, Exception) or not is_write_refusal(error.__cause__):
                raise
        await asyncio.to_thread(release_reserve, self.path)
        self._retry_at = 0.0
        try:
            return await delete()
        finally:
            await asyncio.to_thread(make_reserve, self.path)

    async def _delete(self, key: ThreadKey) -> bool:
        # the latest events of the thread are in the journal
        delete = partial(transactions.delete_thread, key=key, now=self._clock.now())
        file = await self._connect()
        return await file.do(_trim_and_do(self._plan_trim(), delete))

    def _plan_trim(self) -> "_JournalTrim":
        now = self._clock.now()
        places = [run.place for run in self._running.values()]  # even if this write ends them
        oldest = max(self._trimmed_before, min((run for _, run in places), default=now))
        if oldest > now - 2 * _LONG:
            return _JournalTrim(oldest, ())
        before = now - _LONG
        return _JournalTrim(before, [place for place in places if place[1] < before])

    async def _connect(self) -> "_File | _ReadableFile":
        if self._database is not None:
            return self._database
        async with self._opening:
            if self._readable is not None and monotonic() < self._retry_at:
                return self._readable
            if self._database is None:
                await self._close_readable()
                self._database = await self._open_now()
            if isinstance(self._database, _ReadableFile):  # only until there is room
                self._readable, self._database = self._database, None
                self._retry_at = monotonic() + _RETRY_SECONDS
                return self._readable
        return self._database

    async def _open_now(self) -> "_File | _ReadableFile":
        try:
            return await self._open_file()
        except (sqlite3.Error, OSError, StoreFailed) as error:
            cause = error.__cause__ if isinstance(error, StoreFailed) else error
            if not isinstance(cause, sqlite3.Error | OSError):
                raise
            failure = build_failure(self.path, cause)
            if not is_write_refusal(cause):
                raise failure from error
            readers = Readers(partial(open_for_reading, self.path, is_full=True))
            try:
                await readers.do(check_readable)
            except (sqlite3.Error, OSError):
                await readers.end()
                raise failure from error
            self._refusal.begin(StoreReadOnly(f"{failure.message} {failure.hint}"))
            return _ReadableFile(self.path, readers, cause)

    async def _close_readable(self) -> None:
        readable, self._readable = self._readable, None
        if readable is not None:
            await readable.close()

    async def _open_file(self) -> "_File":
        writer = Writer(partial(open_database, self.path, self.durability))
        await writer.ready()
        close = writer.end
        try:
            server = await writer.do(lambda _: Server(self.path))
            readers = Readers(partial(open_for_reading, self.path))
            file = _File(self.path, writer, readers, server, self._refusal)
            close = file.close
            await self._end_dead_runs(file)
            await writer.do(lambda _: remove_stale_locks(self.path))
            await asyncio.to_thread(make_reserve, self.path)
        except BaseException:
            await close()
            raise
        return file

    async def aclose(self) -> None:
        """Finish writing and close the file. The next method call reopens it."""
        if self._database is not None and not self._running:
            with suppress(CopilotError):  # the next process to open it trims it
                await self._database.do(lambda db: db.trim_journal())
        await super().aclose()
        await self._close_readable()


class _File(NamedTuple):
    path: Path
    writer: Writer
    readers: Readers
    lock: Server
    refusal: Outage
    """Lasts from a refused write until `check_writable` has written successfully."""

    @property
    def server(self) -> str:
        """The id of this server."""
        return self.lock.id

    async def do(
        self,
        work: Work[T],
        *,
        reading: bool = False,
        is_one_statement: bool = False,  # noqa: ARG002  # the interface's
    ) -> T:
        """Execute `work` in a transaction, in a thread."""
        try:
            return await (self.readers if reading else self.writer).do(self._prepare(work))
        except (sqlite3.Error, OSError) as error:
            raise self._explain(error, reading=reading) from error

    def submit(
        self,
        work: Work[None],
        done: Callable[[Exception | None], None],
        *,
        is_one_statement: bool,
    ) -> None:
        """Execute `work` in the thread that writes; then call `done`."""

        def finish(_: None, error: Exception | None) -> None:
            if isinstance(error, sqlite3.Error | OSError):
                failure = self._explain(error)
                failure.__cause__ = error
                error = failure
            done(error)

        self.writer.submit(self._prepare(work), finish, is_one_statement=is_one_statement)

    def _prepare(self, work: Work[T]) -> Callable[[sqlite3.Connection], T]:
        return lambda db: run_to_end(work(SqliteTransaction(db, self.path, self.lock.id)))

    def _explain(self, error: sqlite3.Error | OSError, *, reading: bool = False) -> CopilotError:
        failure = build_failure(self.path, error)
        if not reading and is_write_refusal(error):
            self.refusal.begin(StoreReadOnly(f"{failure.message} {failure.hint}"))
        return failure

    async def check_writable(self, now: int) -> None:
        """Raise `StoreReadOnly` if the last write was refused and a trial write fails, too."""
        if not self.refusal.is_active:
            return
        try:
            await self.do(partial(SqliteTransaction.write_probe, now=now, size=_PROBE_SIZE))
        except StoreFailed as failure:
            raise StoreReadOnly(failure.message, hint=failure.hint) from failure
        self.refusal.end()

    async def close(self) -> None:
        """Finish writing, and release the lock of this server."""
        await self.writer.end()
        await self.readers.end()
        self.lock.leave()


class _ReadableFile(NamedTuple):
    """A file that can only be read, as opening it for writing failed with `error`."""

    path: Path
    readers: Readers
    error: Exception

    @property
    def server(self) -> str:
        """An empty id: this server can have no runs."""
        return ""

    async def do(
        self,
        work: Work[T],
        *,
        reading: bool = False,
        is_one_statement: bool = False,  # noqa: ARG002  # the interface's
    ) -> T:
        """Execute `work` that reads, in a thread. Raises `StoreFailed` for other work."""
        if not reading:
            raise build_failure(self.path, self.error) from self.error
        try:
            return await self.readers.do(
                lambda connection: run_to_end(work(SqliteTransaction(connection, self.path, "")))
            )
        except (sqlite3.Error, OSError) as error:
            raise build_failure(self.path, error) from error

    async def check_writable(self, now: int) -> None:  # noqa: ARG002  # the interface's
        """Raise `StoreReadOnly`."""
        failure = build_failure(self.path, self.error)
        raise StoreReadOnly(failure.message, hint=failure.hint)

    async def close(self) -> None:
        """Close the file."""
        await self.readers.end()


class _JournalTrim(NamedTuple):
    before: int
    """Time before which the trimmed journal has no events of active runs."""
    long_runs: Sequence[Place]
    """The active runs that began before that time."""


def _trim_and_do(trim: _JournalTrim, work: Work[T]) -> Work[T]:
    """Return work that trims the journal first, because `work` may end a run."""

    async def trim_and_do(db: SqliteTransaction) -> T:
        await db.trim_journal(trim.before, trim.long_runs)
        return await work(db)

    return trim_and_do
