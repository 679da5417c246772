"""Call sync and async functions without blocking the event loop or stopping it."""

import asyncio
import inspect
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import count
from queue import Empty, SimpleQueue
from types import CoroutineType, coroutine
from typing import Any, NamedTuple, TypeVar, cast

T = TypeVar("T")

MAX_THREADS = 512
"""Maximum number of concurrent sync calls. A call that never returns keeps its slot."""

_IDLE_S = 10.0
"""Seconds after which an idle thread ends."""

_slots = threading.BoundedSemaphore(MAX_THREADS)


class CallResult(NamedTuple):
    """The outcome of a call: its return value, or the exception that it raised."""

    value: Any = None
    error: BaseException | None = None


def is_async(function: Callable[..., Any]) -> bool:
    """Return whether `function` is a coroutine function, or an object with an async `__call__`."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - an object with an async __call__
    )


async def call(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call `function` and return its result; a sync function runs in a worker thread."""
    if is_async(function):
        return await convert_exits(function(*args, **kwargs))
    result = await _run_in_thread(lambda: function(*args, **kwargs))
    if result.error is not None:
        raise result.error
    value = result.value
    return await convert_exits(value) if inspect.isawaitable(value) else value


class ThreadPool:
    """A pool of daemon threads for one kind of job, so that a job that hangs blocks only its pool.

    Jobs are queued while all threads are busy: the lowest `priority` runs first, equal ones in
    their order. A queued job is skipped once its caller was cancelled.
    """

    def __init__(self, max_threads: int, name: str) -> None:
        self._max_threads = max_threads
        self._name = name
        self._lock = threading.Lock()
        self._jobs: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = count()
        self._threads = 0

    async def run(self, work: Callable[[], T], *, priority: int = 0) -> T:
        """Call `work` in a thread of the pool, and return its result. Raises its exception."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[CallResult] = loop.create_future()
        context = copy_context()

        def job() -> None:
            if not future.cancelled():
                _deliver(loop, future, context.run(_attempt, work))

        with self._lock:
            queued = (priority, next(self._numbers), job)
            heappush(self._jobs, queued)
            is_full = self._threads >= self._max_threads
            self._threads += not is_full
        if not is_full:
            try:
                threading.Thread(target=self._work, name=self._name, daemon=True).start()
            except RuntimeError:  # the system has no more threads: a running one takes the job
                with self._lock:
                    self._threads -= 1
                    if not self._threads:
                        self._jobs.remove(queued)
                        heapify(self._jobs)
                        raise
        result = await future
        if result.error is not None:
            raise result.error
        return cast("T", result.value)

    def _work(self) -> None:
        """Run queued jobs until the queue is empty."""
        while job := self._take_job():
            job()

    def _take_job(self) -> Callable[[], None] | None:
        with self._lock:
            if self._jobs:
                return heappop(self._jobs)[2]
            self._threads -= 1
            return None


async def await_within(seconds: float, work: Awaitable[T]) -> T:
    """Await it for a limited time; a coroutine that has nothing to wait for takes no timer.

    Raises `TimeoutError`.
    """
    if not isinstance(work, CoroutineType):
        async with asyncio.timeout(seconds):
            return await work
    inner = cast("Coroutine[Any, Any, T]", work)
    try:
        waited = inner.send(None)
    except StopIteration as end:
        return end.value
    async with asyncio.timeout(seconds):
        return await _go_on(inner, waited)


@coroutine
def _go_on(work: Coroutine[Any, Any, T], waited: Any) -> Generator[Any, Any, T]:
    """Await a coroutine that has inner, and waits for `waited`."""
    try:
        while True:
            try:
                answer = yield waited
            except BaseException as error:
                waited = work.throw(error)
            else:
                waited = work.send(answer)
    except StopIteration as end:
        return end.value


def run_to_end(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never suspends, without a task."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    work.close()
    raise RuntimeError("This coroutine must not wait for anything.")


async def convert_exits(work: Awaitable[T]) -> T:
    """Await code of the application; convert `SystemExit` and its like into a `RuntimeError`.

    Raised in a task, they would stop the event loop, and with it the server. A cancellation of
    the current task is passed on.
    """
    try:
        return await work
    except Exception:
        raise
    except asyncio.CancelledError as error:
        if is_being_cancelled():
            raise
        raise _make_raisable(error) from error
    except BaseException as error:
        if isinstance(error, GeneratorExit) and not has_running_loop():
            raise
        raise _make_raisable(error) from error


def has_running_loop() -> bool:
    """Return whether an event loop runs; none does while a coroutine is garbage-collected."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def is_being_cancelled() -> bool:
    """Return whether `cancel` was called on the current task."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def wait_at_most(seconds: float, *futures: asyncio.Future[Any]) -> None:
    """Wait until one is done, for a limited time; in a third of the steps of `asyncio.wait`."""
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()

    def wake(_: object = None) -> None:
        if not waiter.done():
            waiter.set_result(None)

    timer = loop.call_later(seconds, wake)
    for future in futures:
        future.add_done_callback(wake)
    try:
        await waiter
    finally:
        timer.cancel()
        for future in futures:
            future.remove_done_callback(wake)


def retrieve_exception(future: asyncio.Future[Any]) -> None:
    """Mark the exception of a future as retrieved, so that asyncio does not log it."""
    if not future.cancelled():
        future.exception()


async def capture_result(work: Coroutine[Any, Any, Any]) -> CallResult:
    """Await `work` and return its result or its exception; only a cancellation is raised."""
    try:
        return CallResult(await work)
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # SystemExit in a task would stop the whole server
        return CallResult(error=error)


def _run_in_thread(work: Callable[[], Any]) -> "asyncio.Future[CallResult]":
    """Run `work` in a daemon thread with the caller's context variables.

    The loop's executor is not used: a few hanging calls would exhaust its workers, which DNS
    resolution needs too, and its threads keep the process from exiting.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[CallResult] = loop.create_future()
    slots = _slots

    def run() -> None:
        result = _attempt(work)
        slots.release()
        _deliver(loop, future, result)

    if not slots.acquire(blocking=False):
        raise RuntimeError(f"{MAX_THREADS} sync calls are running already.")
    try:
        _threads.run(partial(copy_context().run, run))
    except BaseException:
        slots.release()
        raise
    return future


class _IdleThreads:
    """A cache of daemon threads: an idle thread is reused for the next call.

    Starting a thread blocks the event loop for longer than most calls take.
    """

    def __init__(self) -> None:
        self._idle: list[SimpleQueue[Callable[[], None]]] = []
        """The inboxes of the idle threads; the most recently used is the last."""

    def run(self, work: Callable[[], None]) -> None:
        """Run `work` in a thread at once. Raises `RuntimeError` if no thread can be started."""
        try:
            inbox = self._idle.pop()
        except IndexError:
            inbox = SimpleQueue()
            threading.Thread(
                target=self._work, args=(work, inbox), name="action", daemon=True
            ).start()
        else:
            inbox.put(work)

    def clear(self) -> None:
        """Forget all threads; a forked child process has none of them."""
        self._idle.clear()

    def _work(self, work: Callable[[], None], inbox: "SimpleQueue[Callable[[], None]]") -> None:
        while True:
            work()
            del work  # release the arguments of the call
            self._idle.append(inbox)
            try:
                work = inbox.get(timeout=_IDLE_S)
            except Empty:
                try:
                    self._idle.remove(inbox)
                except ValueError:  # `run` has just taken it
                    work = inbox.get()
                else:
                    return


_threads = _IdleThreads()
os.register_at_fork(after_in_child=_threads.clear)


def _attempt(work: Callable[[], Any]) -> CallResult:
    """Call `work` and return its result or its exception."""
    try:
        return CallResult(work())
    except BaseException as error:
        return CallResult(error=_make_raisable(error))


def _deliver(
    loop: asyncio.AbstractEventLoop, future: "asyncio.Future[CallResult]", result: CallResult
) -> None:
    """Set the result of a future from another thread; do nothing if its loop is closed."""

    def finish() -> None:
        if not future.done():  # it was cancelled: the late result is dropped
            future.set_result(result)

    if not loop.is_closed():
        with suppress(RuntimeError):  # the loop was closed after the check
            loop.call_soon_threadsafe(finish)


def _make_raisable(error: BaseException) -> BaseException:
    """Wrap an exception in a `RuntimeError` if asyncio or a coroutine treats its type specially."""
    if not isinstance(error, Exception) or isinstance(error, StopIteration | StopAsyncIteration):
        replacement = RuntimeError(f"{type(error).__name__}: {error}")
        replacement.__cause__ = error
        return replacement
    return error
