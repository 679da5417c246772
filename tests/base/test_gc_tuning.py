"""The garbage collector of a server: little at a time, and all while there is nothing to do."""

import asyncio
import gc
from weakref import ref

import pytest

from copilot_runtime.base.gc_tuning import Schedule, tune_while_serving


class Cycle:
    """Refers to itself, so that only the collector frees it."""

    def __init__(self) -> None:
        self.itself = self


def run_schedule(cpu_share: float, seconds: float) -> list[int]:
    """Return the generations that are looked at, four times a second, with so much to do."""
    schedule = Schedule(0.0, 0.0)
    times = [number / 4 for number in range(1, round(4 * seconds) + 1)]
    return [schedule.choose(time, cpu_share * time) for time in times]


@pytest.mark.anyio
async def test_a_cycle_is_freed_while_hardly_anything_happens() -> None:
    async with asyncio.timeout(30), tune_while_serving(None):
        is_freed = asyncio.Event()
        cycle = ref(Cycle(), lambda _: is_freed.set())
        await is_freed.wait()
    assert cycle() is None


@pytest.mark.anyio
async def test_what_was_set_before_is_set_again_behind_the_last_server() -> None:
    before = gc.get_threshold()
    async with tune_while_serving(None):
        async with tune_while_serving(None):
            pass
        assert gc.get_threshold() != before
    assert gc.get_threshold() == before
    assert "collect garbage" not in {task.get_name() for task in asyncio.all_tasks()}


def test_a_busy_server_looks_at_few_objects_at_a_time() -> None:
    assert run_schedule(0.5, 2) == [0, 0, 0, 1] * 2
    assert 2 not in run_schedule(0.5, 1_800)


def test_a_server_that_is_always_busy_looks_at_all_objects_every_half_hour() -> None:
    assert run_schedule(0.5, 3_700).count(2) == 2


def test_a_server_looks_at_all_objects_once_when_it_has_nothing_more_to_do() -> None:
    schedule = Schedule(0.0, 0.0)
    busy = [schedule.choose(time, 0.5 * time) for time in range(1, 60)]
    idle = [schedule.choose(time, 30.0) for time in range(60, 600)]
    assert 2 not in busy
    assert idle.count(2) == 1
    assert idle.index(2) in range(8, 14)


def test_a_server_that_nobody_has_used_is_left_alone() -> None:
    assert 2 not in run_schedule(0.001, 1_500)
