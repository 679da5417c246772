"""Threads that wait for queries and copies: at most so many at once, and stopped after a time."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from copilot_runtime.base.concurrency import ThreadPool, retrieve_exception
from copilot_runtime.extensions.analyst.engine.errors import QueryTimedOut
from copilot_runtime.extensions.analyst.engine.workers import RemoteQuery

T = TypeVar("T")


GRACE = 0.5
"""Seconds for interrupted work to end before it is killed."""

LEAVE = 5.0
"""Seconds to wait for threads at the end: a program that exits while DuckDB works aborts."""

REPEAT = 0.02
"""Seconds between two interrupts: an interrupt just before a query starts is lost."""


class Executor:
    """The worker threads of an engine.

    Args:
        concurrency: Maximum number of concurrent queries.
    """

    def __init__(self, concurrency: int) -> None:
        self._slots = asyncio.Semaphore(concurrency)
        self._pool = ThreadPool(concurrency, "analyst")
        self._writers = ThreadPool(2, "analyst-writer")
        self._tasks: set[asyncio.Task[Any]] = set()
        self._stops: set[Callable[[], None]] = set()
        self._lock = threading.Lock()
        self._busy = 0
        self._pending: dict[RemoteQuery, asyncio.Task[Any]] = {}

    def start(self, work: Callable[..., T], *arguments: Any) -> "asyncio.Task[T]":
        """Start work that is not a query: opening, copying, closing."""
        return self.watch(self._writers.run(self._count(lambda: work(*arguments))))

    async def finish(self, work: Callable[..., object], *arguments: Any) -> bool:
        """Run work to its end; return whether the task was cancelled meanwhile.

        If work fails then, the cancellation is raised, and not its error.
        """
        task = self.start(work, *arguments)
        is_cancelled = False
        while not task.done():
            try:
                await asyncio.wait({task})
            except asyncio.CancelledError:
                is_cancelled = True
        if is_cancelled and (error := task.exception()):
            raise asyncio.CancelledError from error
        task.result()
        return is_cancelled

    async def run(
        self,
        query: RemoteQuery,
        work: Callable[[RemoteQuery], T],
        timeout: float,
        on_start: Callable[[], None] | None = None,
    ) -> T:
        """Run one step of a query once a slot is free.

        Raises `QueryTimedOut`. Cancellation interrupts the query.
        """
        await self._slots.acquire()
        try:
            if on_start is not None:
                on_start()
            task = self.watch(self._pool.run(self._count(lambda: work(query))))
        except BaseException:
            self._slots.release()
            raise
        self._pending[query] = task

        def finish(_: object) -> None:
            self._slots.release()
            del self._pending[query]

        task.add_done_callback(finish)
        return await self.attend(task, query.stop, query.kill, timeout)

    async def attend(
        self,
        work: "asyncio.Task[T]",
        stop: Callable[[], None],
        kill: Callable[[], None],
        timeout: float,
    ) -> T:
        """Await work in a thread; on timeout or cancellation interrupt it, and then kill it."""
        self._stops.add(stop)
        work.add_done_callback(lambda _: self._stops.discard(stop))
        try:
            done, _ = await asyncio.wait({work}, timeout=timeout)
        except asyncio.CancelledError:
            stop()
            self.watch(_stop_work(stop, kill, work))
            raise
        if not done:
            await _stop_work(stop, kill, work)
            raise QueryTimedOut(timeout)
        return work.result()

    def close_query(self, query: RemoteQuery) -> None:
        """Stop a started query, and close it once its thread is done."""
        query.stop()
        task = self._pending.get(query)
        if task is None:
            self.start(query.close)
        else:
            task.add_done_callback(lambda _: self.start(query.close))

    async def wait_idle(self) -> None:
        """Wait until no work is running."""
        while self._tasks:
            await asyncio.wait({*self._tasks})

    async def aclose(self) -> None:
        """Interrupt all work, and wait for it briefly."""
        for stop in [*self._stops]:
            stop()
        if self._tasks:
            await asyncio.wait({*self._tasks}, timeout=GRACE)
        loop = asyncio.get_running_loop()
        end = loop.time() + LEAVE
        while self._busy and loop.time() < end:
            for stop in [*self._stops]:
                stop()
            await asyncio.sleep(REPEAT)

    def _count(self, work: Callable[[], T]) -> Callable[[], T]:
        """Count the work as running until its thread ends, even if its waiter was cancelled."""

        def run() -> T:
            with self._lock:
                self._busy += 1
            try:
                return work()
            finally:
                with self._lock:
                    self._busy -= 1

        return run

    def watch(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Run a coroutine as a task that `wait_idle` and `aclose` wait for."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(retrieve_exception)
        return task


async def _stop_work(
    stop: Callable[[], None], kill: Callable[[], None], work: "asyncio.Task[Any]"
) -> None:
    """Interrupt work repeatedly, and kill it when the grace period is over."""
    loop = asyncio.get_running_loop()
    end = loop.time() + GRACE
    while not work.done() and loop.time() < end:
        stop()
        await asyncio.wait({work}, timeout=REPEAT)
    if not work.done():
        kill()
