"""An application's own figures are printed, and never a reason to fail."""

import asyncio

import pytest

from copilot_runtime.base.errors import Misuse
from copilot_runtime.testing import Timing, benchmark, format_timings


def test_a_function_is_measured_as_often_as_wanted() -> None:
    calls: list[int] = []
    timing = benchmark("append", lambda: calls.append(1), repeats=3, quiet=True)

    assert len(timing.seconds) == 3
    assert min(timing.seconds) <= timing.median <= max(timing.seconds)
    assert len(calls) > 100  # one call is shorter than a clock can tell


def test_the_figures_are_printed_as_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    benchmark("wait", lambda: asyncio.sleep(0), repeats=2)

    head, row = capsys.readouterr().out.splitlines()
    assert head.split() == ["median", "fastest", "slowest", "repeats", "ratio"]
    assert row.startswith("wait ")


def test_a_function_is_measured_in_turns_with_the_one_it_is_compared_with(
    capsys: pytest.CaptureFixture[str],
) -> None:
    order: list[str] = []

    async def short() -> None:
        order.append("short")
        await asyncio.sleep(0.03)

    async def long() -> None:
        order.append("long")
        await asyncio.sleep(0.06)

    bare = benchmark("short", short, repeats=1, quiet=True)
    order.clear()
    timing = benchmark("long", long, repeats=2, against=bare)

    assert order[-4:] == ["short", "long", "short", "long"]
    assert timing.ratio is not None
    assert "x of short" in capsys.readouterr().out


def test_units_fit_the_figures() -> None:
    timings = [
        Timing(name=f"{seconds}", seconds=[seconds], function=print)
        for seconds in (2.0, 0.002, 0.000002, 0.000000002)
    ]
    units = [line.split()[2] for line in format_timings(*timings).splitlines()[1:]]

    assert units == ["s", "ms", "µs", "ns"]


def test_no_repeat_is_an_error() -> None:
    with pytest.raises(Misuse, match="0 repeats"):
        benchmark("nothing", print, repeats=0)


@pytest.mark.anyio
async def test_it_is_not_for_an_async_test_itself() -> None:
    with pytest.raises(Misuse, match=r"benchmark cannot be used in an async function"):
        benchmark("nothing", print)


def test_what_was_called_already_cannot_be_measured() -> None:
    with pytest.raises(Misuse, match=r"a list, and not a function\. Write .*lambda: \.\.\."):
        benchmark("sort", sorted([2, 1]))  # pyright: ignore[reportArgumentType]  # the mistake
