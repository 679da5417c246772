"""Threads that access SQLite, so that the event loop never blocks."""

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import groupby
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TypeVar

from copilot_runtime.base.errors import CopilotError

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]
Done = Callable[[Any, Exception | None], None]
"""Called with the result of work, or with its exception."""

_MOST_AT_ONCE = 100
"""Maximum number of jobs per transaction, so that the first does not wait for too many others."""

_READERS = 2


class Writer:
    """A thread that executes all writes. Jobs that are queued together are committed together."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connect = connect
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="threads-writer", daemon=True)
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ready = _make_job(lambda _: None, partial(_settle, self._opened))
        self._thread.start()

    async def ready(self) -> None:
        """Wait until the file is open. Raises the exception of `connect`."""
        await self._opened

    def do(self, work: Work[T], *, is_one_statement: bool = False) -> "asyncio.Future[T]":
        """Execute `work` atomically, even if the returned future is cancelled.

        Jobs are executed in the order of the calls. Work that raises a `CopilotError` must not have
        changed anything; a single statement is cheaper if it is the only queued job.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.submit(work, partial(_settle, future), is_one_statement=is_one_statement)
        return future

    def submit(self, work: Work[Any], done: Done, *, is_one_statement: bool) -> None:
        """Execute `work` as `do` does; `done` is called by the event loop."""
        self._queue.put(_make_job(work, done, is_one_statement))

    async def end(self) -> None:
        """Finish the queued jobs, and close the file."""
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        try:
            connection = self._connect()
        except Exception as error:  # `ready` raises it
            _deliver([(self._ready, None, error)])
            return
        _deliver([(self._ready, None, None)])
        try:
            while jobs := self._next_jobs():
                _deliver(_run_jobs(connection, jobs))
        finally:
            connection.close()

    def _next_jobs(self) -> "Sequence[_Job]":
        """Wait for jobs and return them; an empty list at the end."""
        job = self._queue.get()
        jobs: list[_Job] = []
        while job is not None:
            jobs.append(job)
            if len(jobs) == _MOST_AT_ONCE:
                return jobs
            try:
                job = self._queue.get_nowait()
            except Empty:
                return jobs
        if jobs:
            self._queue.put(None)  # end after these jobs
        return jobs


class Readers:
    """A few threads that read, each with its own connection; they never wait for a writer."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connect = connect
        self._own = threading.local()
        self._all: list[sqlite3.Connection] = []
        self._pool = ThreadPoolExecutor(_READERS, "threads-reader")

    async def do(self, work: Work[T]) -> T:
        """Execute `work` in a read transaction: all its reads see the same snapshot."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._read, work)

    async def end(self) -> None:
        await asyncio.to_thread(self._pool.shutdown)
        for connection in self._all:
            connection.close()

    def _read(self, work: Work[T]) -> T:
        connection: sqlite3.Connection | None = getattr(self._own, "connection", None)
        if connection is None:
            connection = self._own.connection = self._connect()
            self._all.append(connection)
        connection.execute("BEGIN")
        try:
            return work(connection)
        finally:
            connection.execute("ROLLBACK")


class _Job(NamedTuple):
    work: Work[Any]
    done: Done
    is_one_statement: bool
    loop: asyncio.AbstractEventLoop


_Outcome = tuple[_Job, Any, Exception | None]


def _make_job(work: Work[Any], done: Done, is_one_statement: bool = False) -> _Job:
    return _Job(work, done, is_one_statement, asyncio.get_running_loop())


def _run_jobs(connection: sqlite3.Connection, jobs: Sequence[_Job]) -> Sequence[_Outcome]:
    """Execute jobs in one transaction; if that fails, each in its own transaction."""
    try:
        if len(jobs) == 1 and jobs[0].is_one_statement:  # an implicit transaction
            return [(jobs[0], jobs[0].work(connection), None)]
        connection.execute("BEGIN IMMEDIATE")
        if len(jobs) == 1:
            outcomes = [(jobs[0], jobs[0].work(connection), None)]
        else:
            outcomes = [_run_job(connection, job) for job in jobs]
        connection.execute("COMMIT")
        return outcomes
    except Exception as error:  # for the job's caller, not for this thread
        with contextlib.suppress(sqlite3.Error):
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        if len(jobs) == 1:
            return [(jobs[0], None, error)]
    return [outcome for job in jobs for outcome in _run_jobs(connection, [job])]


def _run_job(connection: sqlite3.Connection, job: _Job) -> _Outcome:
    try:
        return job, job.work(connection), None
    except CopilotError as error:  # only this job is refused
        return job, None, error


def _deliver(outcomes: Sequence[_Outcome]) -> None:
    for loop, same_loop in groupby(outcomes, key=lambda outcome: outcome[0].loop):
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(_finish, [*same_loop])


def _finish(outcomes: Sequence[_Outcome]) -> None:
    for job, result, error in outcomes:
        job.done(result, error)


def _settle(future: "asyncio.Future[Any]", result: Any, error: Exception | None) -> None:
    if future.done():  # cancelled
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
