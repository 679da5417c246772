"""Queries servers such that one that hangs delays a single run only."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from contextvars import Context
from time import monotonic
from typing import Any, Generic, TypeVar

from copilot_runtime.base.concurrency import retrieve_exception
from copilot_runtime.base.errors import NetworkError
from copilot_runtime.telemetry import NO_SPAN, Span

QUICK = 1.0
"""A server that fails within so many seconds is queried again by the next run."""

_MOST_SLOW = 1000
"""Maximum number of slow servers to remember, per caller's headers."""

T = TypeVar("T")

Question = Callable[[Span], Coroutine[Any, Any, T]]
"""Queries a server, with the span of the run that waits for the answer."""


class SlowServers(Generic[T]):
    """Remembers servers that did not answer in time, and queries them in the background.

    Runs skip such a server until it has answered.
    """

    def __init__(self) -> None:
        self._tasks: dict[Hashable, asyncio.Task[T]] = {}
        """The last query of each slow server."""

    async def ask(self, key: Hashable, question: Question[T], span: Span, *, timeout: float) -> T:
        """Return the answer of the server with this key.

        Raises `NetworkError`, or the query's error.
        """
        last = self._tasks.pop(key, None)
        if last is not None and not _has_answered(last):
            self._ask_on(key, question, last)
            raise NetworkError("It was slow, and is asked in the background.")
        began = monotonic()
        task = _start(question, span)
        try:
            await asyncio.wait((task,), timeout=timeout)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if _has_answered(task):
            return task.result()
        if not task.done() or monotonic() - began > QUICK:
            self._ask_on(key, question, task)
        if not task.done():
            raise NetworkError(f"It did not answer within {timeout:g} s.")
        if task.cancelled():
            raise NetworkError("It was cancelled.")
        return task.result()

    def close(self) -> None:
        """Cancel all queries."""
        for task in self._tasks.values():
            task.cancel()
        self._tasks.clear()

    def _ask_on(self, key: Hashable, question: Question[T], last: "asyncio.Task[T]") -> None:
        """Mark a server as slow; query it again if the last query failed."""
        if len(self._tasks) >= _MOST_SLOW:
            self._tasks.pop(next(iter(self._tasks))).cancel()
        self._tasks[key] = _start(question, NO_SPAN) if last.done() else last


def _start(question: Question[T], span: Span) -> "asyncio.Task[T]":
    # an empty context: the task may outlive the run
    loop = asyncio.get_running_loop()
    task = loop.create_task(question(span), name="mcp", context=Context())
    task.add_done_callback(retrieve_exception)
    return task


def _has_answered(task: "asyncio.Task[Any]") -> bool:
    return task.done() and not task.cancelled() and task.exception() is None
