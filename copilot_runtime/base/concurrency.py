"""Call a function, sync or async, without blocking or ending the event loop."""

import asyncio
import inspect
import os
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TypeVar, cast

T = TypeVar("T")

MAX_THREADS = 512
"""Most sync calls at one time. One that never returns keeps its place."""

_IDLE_S = 10.0
"""Seconds for which a thread waits for the next call."""

_slots = threading.BoundedSemaphore(MAX_THREADS)


class CallResult(NamedTuple):
    """What became of a call: a value, or what it raised."""

    value: Any = None
    error: BaseException | None = None


def is_async(function: Callable[..., Any]) -> bool:
    """Return whether calling `function` only makes a coroutine."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - an object with an async __call__
    )


async def call(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call `function`, in a thread unless it is async: nothing else is done there meanwhile."""
    if is_async(function):
        return await contain(function(*args, **kwargs))
    result = await _run_in_thread(lambda: function(*args, **kwargs))
    if result.error is not None:
        raise result.error
    value = result.value
    return await contain(value) if inspect.isawaitable(value) else value


class ThreadPool:
    """Daemon threads of one kind of work, apart from all others: what hangs there stops only these.

    What comes while all of them are busy waits for its turn, without a thread. Of what nobody
    awaits any more, nothing is begun.
    """

    def __init__(self, max_threads: int, name: str) -> None:
        self._max_threads = max_threads
        self._name = name
        self._lock = threading.Lock()
        self._jobs: deque[Callable[[], None]] = deque()
        self._threads = 0

    async def run(self, work: Callable[[], T]) -> T:
        """Return what `work` returns, or raise what it raises."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[CallResult] = loop.create_future()
        context = copy_context()

        def job() -> None:
            if not future.cancelled():
                _deliver(loop, future, context.run(_attempt, work))

        with self._lock:
            self._jobs.append(job)
            is_full = self._threads >= self._max_threads
            self._threads += not is_full
        if not is_full:
            try:
                threading.Thread(target=self._work, name=self._name, daemon=True).start()
            except RuntimeError:  # the system has no more: those that run do it, or nobody
                with self._lock:
                    self._threads -= 1
                    if not self._threads:
                        self._jobs.remove(job)
                        raise
        result = await future
        if result.error is not None:
            raise result.error
        return cast("T", result.value)

    def _work(self) -> None:
        """Do what waits, until nothing does."""
        while job := self._take_job():
            job()

    def _take_job(self) -> Callable[[], None] | None:
        with self._lock:
            if self._jobs:
                return self._jobs.popleft()
            self._threads -= 1
            return None


async def contain(work: Awaitable[T]) -> T:
    """Await code of the application. Its `SystemExit` and the like become a `RuntimeError`.

    In a task they would end the event loop, and with it the server. A cancellation of this very
    task passes.
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
    """Return whether anything can be awaited: not in a coroutine that is only collected."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def is_being_cancelled() -> bool:
    """Return whether `cancel` was called on the current task."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def retrieve_exception(future: asyncio.Future[Any]) -> None:
    """Take the exception of a task or future that perhaps nobody awaits: asyncio logs it else."""
    if not future.cancelled():
        future.exception()


async def capture(work: Coroutine[Any, Any, Any]) -> CallResult:
    """Await `work` and keep what it raises, so that nothing it raises can end the loop."""
    try:
        return CallResult(await work)
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # SystemExit in a task would stop the whole server
        return CallResult(error=error)


def _run_in_thread(work: Callable[[], Any]) -> "asyncio.Future[CallResult]":
    """Run `work` in a daemon thread with the caller's context variables.

    Not in the loop's executor: a few calls that hang would take all its places, which name
    resolution needs as well, and its threads keep the process from ending.
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
    """Daemon threads that do one thing at a time; one that is idle is used again.

    To begin a thread takes longer than most of what it does, and the event loop waits for that.
    """

    def __init__(self) -> None:
        self._idle: list[SimpleQueue[Callable[[], None]]] = []
        """What each idle thread waits for; the last one was idle for the shortest time."""

    def run(self, work: Callable[[], None]) -> None:
        """Do some work, at once. Raises `RuntimeError` if the system has no more threads."""
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
        """Forget all threads: a process that was forked has none of them."""
        self._idle.clear()

    def _work(self, work: Callable[[], None], inbox: "SimpleQueue[Callable[[], None]]") -> None:
        while True:
            work()
            del work  # it holds what it was called with
            self._idle.append(inbox)
            try:
                work = inbox.get(timeout=_IDLE_S)
            except Empty:
                try:
                    self._idle.remove(inbox)
                except ValueError:  # somebody has just taken it
                    work = inbox.get()
                else:
                    return


_threads = _IdleThreads()
os.register_at_fork(after_in_child=_threads.clear)


def _attempt(work: Callable[[], Any]) -> CallResult:
    """Return what became of some work: whatever it raises must not stay in its thread."""
    try:
        return CallResult(work())
    except BaseException as error:
        return CallResult(error=_make_raisable(error))


def _deliver(
    loop: asyncio.AbstractEventLoop, future: "asyncio.Future[CallResult]", result: CallResult
) -> None:
    """Hand a result from a thread to a loop, unless that is closed."""

    def finish() -> None:
        if not future.done():  # it was cancelled: the late result is dropped
            future.set_result(result)

    if not loop.is_closed():
        with suppress(RuntimeError):  # closed between the question and the call
            loop.call_soon_threadsafe(finish)


def _make_raisable(error: BaseException) -> BaseException:
    """Replace the exceptions that mean something else once they are raised in a coroutine."""
    if not isinstance(error, Exception) or isinstance(error, StopIteration | StopAsyncIteration):
        replacement = RuntimeError(f"{type(error).__name__}: {error}")
        replacement.__cause__ = error
        return replacement
    return error
