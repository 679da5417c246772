"""Benchmarks for your own code: they print figures, and never fail on a busy machine."""

import asyncio
import inspect
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from math import ceil
from statistics import median
from time import perf_counter
from typing import Any

from copilot_runtime.base.errors import Misuse
from copilot_runtime.testing.connection import refuse_running_loop

_LEAST_SECONDS = 0.02
"""Minimum duration of a repeat, in seconds: a single call may be shorter than the clock's
resolution."""

_MOST_CALLS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The duration of a function."""

    name: str
    seconds: Sequence[float]
    """Duration of a call in each repeat, in seconds."""
    ratio: float | None = None
    """Ratio to the duration of the function it is compared with, or `None`."""
    against: str | None = None
    """The name of that function."""
    function: Callable[[], Any] = field(repr=False, compare=False)

    @property
    def median(self) -> float:
        """Return the median duration of a call, in seconds."""
        return median(self.seconds)

    def __str__(self) -> str:
        return format_timings(self)


def benchmark(
    name: str,
    function: Callable[[], Any],
    *,
    repeats: int = 7,
    against: Timing | None = None,
    quiet: bool = False,
) -> Timing:
    """Measure a sync or async function, print the figures as a table, and return them.

    >>> bare = benchmark("no stage", lambda: asyncio.run(ask(bare_runtime)))
    >>> benchmark("our stage", lambda: asyncio.run(ask(runtime)), against=bare)

    Args:
        name: Its name in the table.
        function: The function to measure, without arguments; the time of an async one includes what
            it awaits. It is called once before, unmeasured.
        repeats: Number of measurements. In each one, a short function is called many times.
        against: The timing to compare with. Its function is measured again, alternating with this
            one, so that a busy machine affects both.
        quiet: Print nothing.

    Raises `Misuse` for an object that cannot be measured, and in an async function.
    """
    if repeats < 1:
        raise Misuse(f"{repeats} repeats measure nothing.")
    if not callable(function):
        raise Misuse(
            f"{name!r} is a {type(function).__name__}, and not a function. Write "
            f"benchmark({name!r}, lambda: ...), so that it can be called again."
        )
    refuse_running_loop("benchmark", "def test_...(), and an async function as its argument,")
    functions = [function] if against is None else [against.function, function]
    with asyncio.Runner() as runner:
        calls = [_build_call(each, runner) for each in functions]
        counts = [_count_calls(call) for call in calls]
        rows = [
            [_measure(call, count) for call, count in zip(calls, counts, strict=True)]
            for _ in range(repeats)
        ]
    seconds = [row[-1] for row in rows]
    timing = Timing(
        name=name,
        seconds=seconds,
        ratio=None if against is None else median(row[1] / row[0] for row in rows),
        against=against and against.name,
        function=function,
    )
    if not quiet:
        both = [timing] if against is None else [_again(against, rows), timing]
        sys.stdout.write(f"{format_timings(*both)}\n")
    return timing


def format_timings(*timings: Timing) -> str:
    """Return the figures as a table: name, median, range, repeats, and ratio if there is one."""
    head = ("", "median", "fastest", "slowest", "repeats", "ratio")
    rows = [head, *map(_format_row, timings)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if number else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def _format_row(timing: Timing) -> tuple[str, ...]:
    times = (timing.median, min(timing.seconds), max(timing.seconds))
    ratio = "" if timing.ratio is None else f"{timing.ratio:.2f}x of {timing.against}"
    return (timing.name, *map(_format_time, times), str(len(timing.seconds)), ratio)


def _format_time(seconds: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def _again(timing: Timing, rows: Sequence[Sequence[float]]) -> Timing:
    return Timing(name=timing.name, seconds=[row[0] for row in rows], function=timing.function)


def _build_call(function: Callable[[], Any], runner: asyncio.Runner) -> Callable[[int], None]:
    """Call a function once, and return a function that calls it n times; async ones in one loop."""

    async def wait(result: Awaitable[Any]) -> None:
        await result

    async def repeat_async(count: int) -> None:
        for _ in range(count):
            await function()

    def repeat(count: int) -> None:
        for _ in range(count):
            function()

    result = function()
    if not inspect.isawaitable(result):
        return repeat
    runner.run(wait(result))
    return lambda count: runner.run(repeat_async(count))


def _count_calls(call: Callable[[int], None]) -> int:
    """Return the number of calls that take long enough to be measured."""
    count = 1
    while (seconds := _measure(call, count)) * count < _LEAST_SECONDS and count < _MOST_CALLS:
        count = min(_MOST_CALLS, max(2 * count, ceil(_LEAST_SECONDS / max(seconds, 1e-9))))
    return count


def _measure(call: Callable[[int], None], count: int) -> float:
    """Return the duration of one of `count` calls, in seconds."""
    start = perf_counter()
    call(count)
    return (perf_counter() - start) / count
