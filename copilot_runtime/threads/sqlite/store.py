"""Keep threads in a file of SQLite: the store for one machine, with any number of servers."""

import asyncio
import logging
import re
import sqlite3
from collections.abc import Awaitable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from copilot_runtime.interfaces import RunInput
from copilot_runtime.messages import Message
from copilot_runtime.threads.database import DatabaseThreads, build_select
from copilot_runtime.threads.rows import from_datetime
from copilot_runtime.threads.server_locks import Server, is_alive, remove_stale_locks
from copilot_runtime.threads.sqlite import heads, transactions
from copilot_runtime.threads.sqlite.file import Durability, build_failure, open_database
from copilot_runtime.threads.sqlite.journal import trim_journal
from copilot_runtime.threads.sqlite.workers import Readers, Work, Writer
from copilot_runtime.threads.store import Segment, StoredRun, Thread, ThreadKey
from copilot_runtime.threads.validation import (
    check_text,
    get_thread_key,
    is_valid_key,
    log_id_in_use,
)

T = TypeVar("T")

logger = logging.getLogger("copilot_runtime.threads")

_EXPIRED_AT_ONCE = 100
"""Threads forgotten in one transaction: answers wait for it."""

_WRITES_PER_TRIM = 250
"""Writes after which the journal is tidied."""

_LONG = 60_000_000
"""How much of a run that goes on the journal holds at least, in microseconds."""


class SqliteThreads(DatabaseThreads["_File"]):
    """Threads in one file, which is made when it is first needed, with its folder.

    Several server processes of one machine may share the file. What `begin` and `write` returned
    from survives `kill -9`; with `durability="FULL"` also a loss of power, for the price of
    waiting for the disk each time.
    """

    _select = build_select("threads")
    _select_by_key = f"{_select} owner = $1 AND thread = $2"

    def __init__(self, path: Path | str, *, durability: Durability = "NORMAL") -> None:
        super().__init__()
        self.path = Path(path)
        self.durability: Durability = durability
        self._running: dict[str, transactions.OpenRun] = {}
        self._writes = 0
        self._trimmed_before = 0
        """Before this time, the journal has nothing of runs that go on."""

    async def begin(self, run: RunInput) -> Sequence[Message]:
        """Begin the log of a run. Raises `ThreadBusy`, or `Misuse` for ids too long to keep."""
        key = get_thread_key(run)
        file = await self._connect()
        work = partial(
            transactions.begin_run,
            key=key,
            run=run,
            now=self._clock.now(),
            server=file.server.id,
            is_alive=partial(is_alive, self.path),
        )
        open_run = await self._translate_errors(file.writer.do(work, partial(_undo, file.writer)))
        if run.log_id in self._running:
            await self._translate_errors(
                file.writer.do(partial(transactions.undo_begin, open_run=open_run))
            )
            raise log_id_in_use(run.log_id)
        self._running[run.log_id] = open_run
        return open_run.new

    async def write(self, segments: Sequence[Segment]) -> None:
        """Add to logs. What belongs to a thread that was deleted goes nowhere."""
        file = self._database or await self._connect()
        rows = [
            (open_run, segment)
            for segment in segments
            if (open_run := self._running.get(segment.log_id)) is not None
        ]
        if not rows:
            return
        self._writes += 1
        trim = self._plan_trim(file) if self._writes % _WRITES_PER_TRIM == 0 else None
        now, server = self._clock.now(), file.server.id  # later than what is tidied
        ended = [segment.log_id for _, segment in rows if segment.whole is not None]
        write = transactions.write_segments if ended else transactions.append_segments
        work: Work[None] = partial(write, server=server, now=now, segments=rows)
        if trim is not None:
            work = partial(_trim_and_do, work=work, trim=trim.work)
        alone = not ended and trim is None
        writing = file.writer.do(work, lambda _: self._forget(ended), one_statement=alone)
        await self._translate_errors(writing)
        self._forget(ended)
        if trim is not None:
            self._trimmed_before = trim.before

    async def runs(self, key: ThreadKey) -> Sequence[StoredRun]:
        """Return the runs of a thread, the oldest first. What is damaged is left out and logged."""
        return (
            await self._read(partial(transactions.read_runs, key=key)) if is_valid_key(key) else []
        )

    async def update(
        self, key: ThreadKey, *, name: str | None = None, archived: bool | None = None
    ) -> Thread | None:
        """Change what is not None; an empty name takes the name away."""
        check_text("name", name or "")
        if not is_valid_key(key):
            return None
        now = self._clock.now()
        work = partial(heads.update_thread, key=key, name=name, archived=archived, now=now)
        return await self._write(work)

    async def delete(self, key: ThreadKey) -> bool:
        """Forget a thread; a run that goes on is stored no more."""
        if not is_valid_key(key):
            return False
        file = await self._connect()
        self._forget([name for name, open_run in self._running.items() if open_run.key == key])
        # its latest events are in the journal
        work = partial(
            _trim_and_do,
            work=partial(heads.delete_thread, key=key),
            trim=self._plan_trim(file).work,
        )
        return await self._translate_errors(file.writer.do(work))

    async def expire(self, before: datetime) -> int:
        """Forget threads not touched since `before`, except those with a run."""
        limit = from_datetime(before)
        old = await self._read(partial(heads.old_threads, before=limit))
        gone = 0
        for first in range(0, len(old), _EXPIRED_AT_ONCE):
            some = old[first : first + _EXPIRED_AT_ONCE]
            gone += await self._write(partial(heads.delete_old, numbers=some, before=limit))
        return gone

    async def put(self, thread: Thread, runs: Sequence[StoredRun]) -> int:
        """Take in a thread of another store, and those of its runs that are not here yet."""
        return await self._write(
            partial(transactions.put_thread, thread=thread, runs=runs, now=self._clock.now())
        )

    async def aclose(self) -> None:
        """Finish writing and close the file. What is asked for later opens it again."""
        async with self._opening:
            file, self._database = self._database, None
            over = not self._running
            self._running.clear()
            if file is not None:
                if over:
                    with suppress(sqlite3.Error):  # then whoever opens it next does it
                        await file.writer.do(partial(trim_journal, server=file.server.id))
                await file.writer.end()
                await file.readers.end()
                file.server.leave()

    def _forget(self, ended: Iterable[str]) -> None:
        for name in ended:
            self._running.pop(name, None)

    def _plan_trim(self, file: "_File") -> "_JournalTrim":
        server, now = file.server.id, self._clock.now()
        runs = [*self._running.values()]  # also those that a write in hand is about to end
        oldest = max(self._trimmed_before, min((open_run.run for open_run in runs), default=now))
        if oldest > now - 2 * _LONG:
            return _JournalTrim(partial(trim_journal, server=server, before=oldest), oldest)
        before = now - _LONG
        long = [open_run for open_run in runs if open_run.run < before]
        work = partial(transactions.shorten_journal, server=server, runs=long, before=before)
        return _JournalTrim(work, before)

    async def _open_now(self) -> "_File":
        return await self._translate_errors(self._open_file())

    async def _open_file(self) -> "_File":
        writer = Writer(partial(open_database, self.path, self.durability))
        await writer.ready()
        try:
            server = await writer.do(lambda _: Server(self.path))
            recover = partial(
                transactions.end_dead_runs,
                now=self._clock.now(),
                is_alive=partial(is_alive, self.path),
            )
            if count := await writer.do(recover):
                logger.warning("Ended %s runs that a server left unfinished", count)
            await writer.do(lambda _: remove_stale_locks(self.path))
        except BaseException:
            await writer.end()
            raise
        return _File(writer, Readers(self.path), server)

    def _key_values(self, key: ThreadKey) -> Sequence[Any]:
        return key

    async def _fetch(self, statement: str, *values: Any) -> Sequence[Sequence[Any]]:
        statement = re.sub(r"\$\d+", "?", statement)
        return await self._read(lambda db: db.execute(statement, values).fetchall())

    async def _read(self, work: Work[T]) -> T:
        return await self._translate_errors((await self._connect()).readers.do(work))

    async def _write(self, work: Work[T]) -> T:
        return await self._translate_errors((await self._connect()).writer.do(work))

    async def _translate_errors(self, result: Awaitable[T]) -> T:
        """Wait for a result. Raises our errors for those of SQLite."""
        try:
            return await result
        except (sqlite3.Error, OSError) as error:
            raise build_failure(self.path, error) from error


class _File(NamedTuple):
    writer: Writer
    readers: Readers
    server: Server


class _JournalTrim(NamedTuple):
    work: Work[None]
    before: int
    """A time before which the journal has nothing, once that is done, of runs that go on."""


def _undo(writer: Writer, open_run: transactions.OpenRun) -> None:
    """Forget a run that was begun for somebody who had left."""
    writer.do(partial(transactions.undo_begin, open_run=open_run)).add_done_callback(
        _log_undo_failure
    )


def _log_undo_failure(future: "asyncio.Future[None]") -> None:
    if not future.cancelled() and (error := future.exception()):
        logger.error("A run that nobody waits for is still in its thread: %s", error)


def _trim_and_do(db: sqlite3.Connection, work: Work[T], trim: Work[None]) -> T:
    """Forget what the journal need not hold any longer, then do some work: it may end a run."""
    trim(db)
    return work(db)
