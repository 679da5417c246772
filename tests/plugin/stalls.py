"""Fails tests during which an event loop stood still: one callback of it took too much CPU.

Measured is the CPU of the loop's thread, in proportion to what the machine needs at the time for a
fixed piece of work: a test must not fail because of its neighbors. Imports do not count, because a
process pays for them once, nor does the garbage collector, because a process with tests has far
more objects than a server. Loops of uvloop, and of other processes, are not measured.
"""

import asyncio
import gc
import importlib
import json
import threading
from collections.abc import Callable, Generator
from time import thread_time
from typing import Any, cast

import pytest

LONGEST = 0.25
"""Seconds of CPU that a callback may take."""

_SAMPLE_SECONDS = 0.025
"""What `_measure_slowness` takes on the idle machine on which the limit was set."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "stalls(reason): may keep the event loop busy; the reason says why"
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    watch.reset()
    result = yield
    if (
        watch.seconds > LONGEST
        and item.get_closest_marker("stalls") is None
        and watch.seconds > LONGEST * _measure_slowness()
    ):
        pytest.fail(
            f"The event loop stood still for {watch.seconds:.2f} s of CPU, in {watch.callback}. "
            f"{LONGEST} s are allowed: count before the work, or do it in a thread.",
            pytrace=False,
        )
    return result


class LoopWatch:
    """The longest callback of any event loop in this process since `reset`."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.callback = ""
        self._pause = _Pause()
        self._run: Callable[[asyncio.Handle], None] = cast("Any", asyncio.Handle)._run

        def run(handle: asyncio.Handle) -> None:
            self._measure(handle)

        cast("Any", asyncio.Handle)._run = run
        machinery: Any = importlib.import_module("_frozen_importlib")
        self._find_and_load: Callable[..., Any] = machinery._find_and_load
        machinery._find_and_load = self._import
        gc.callbacks.append(self._collect)

    def reset(self) -> None:
        self.seconds, self.callback = 0.0, ""

    def _measure(self, handle: asyncio.Handle) -> None:
        pause = self._pause
        began = thread_time() - pause.seconds
        self._run(handle)
        seconds = thread_time() - pause.seconds - began
        if seconds > self.seconds:
            self.seconds, self.callback = seconds, _name(handle)

    def _import(self, *args: Any) -> Any:
        self._pause.begin()
        try:
            return self._find_and_load(*args)
        finally:
            self._pause.end()

    def _collect(self, phase: str, _: object) -> None:
        if phase == "start":
            self._pause.begin()
        else:
            self._pause.end()


class _Pause(threading.local):
    """The CPU of a thread that does not count, in seconds. Pauses may be nested."""

    seconds = 0.0
    depth = 0
    began = 0.0

    def begin(self) -> None:
        if not self.depth:
            self.began = thread_time()
        self.depth += 1

    def end(self) -> None:
        self.depth -= 1
        if not self.depth:
            self.seconds += thread_time() - self.began


def _measure_slowness() -> float:
    """Return how many times more CPU a fixed piece of work needs now; at least 1."""
    slowest = _SAMPLE_SECONDS
    for _ in range(5):  # neighbors come and go
        began, texts = thread_time(), dict[int, str]()
        for number in range(100_000):
            texts[number % 1_000] = str(number)
        json.loads(json.dumps(["x" * 1_000] * 2_000))
        slowest = max(slowest, thread_time() - began)
    return slowest / _SAMPLE_SECONDS


def _name(handle: asyncio.Handle) -> str:
    """Return the coroutine of a task's step, or the callback."""
    callback = cast("Any", handle)._callback
    task = getattr(callback, "__self__", None)
    return repr(task.get_coro() if isinstance(task, asyncio.Task) else callback)


watch = LoopWatch()
