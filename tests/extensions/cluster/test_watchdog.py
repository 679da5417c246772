"""The watchdog of workers: how long it has patience with one whose event loop does not go on."""

import asyncio
import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from copilot_runtime.cli.watchdog import Heartbeat, Watchdog

pytestmark = pytest.mark.anyio

HELD_UP = (
    "Worker 2 (process 77) has not answered for 10 seconds: its event loop is held up",
    "Worker 2 (process 77) has not answered for 60 seconds: it is killed, and the stacks above "
    "show where it hung, unless it was stopped",
)


@dataclass
class Worker:
    """A worker at the other end of a pipe, and the watchdog that looks at it every second."""

    pipe: int
    watchdog: Watchdog
    stacks: list[int] = field(default_factory=list[int])
    """A number for each time that it was told to print its stacks."""
    kills: list[int] = field(default_factory=list[int])

    async def beat(self) -> None:
        os.write(self.pipe, b".")
        for _ in range(2):  # turns of the loop: one finds the byte, and one reads it
            await asyncio.sleep(0)

    def pass_seconds(self, count: int) -> None:
        for _ in range(count):
            self.watchdog.look(1)


@contextmanager
def start_worker(timeout: float = 60) -> Generator[Worker]:
    read, write = os.pipe()
    heartbeat = Heartbeat(read)
    worker = Worker(write, Watchdog(timeout))
    worker.watchdog.add(
        *("Worker 2 (process 77)", heartbeat),
        print_stacks=lambda: worker.stacks.append(77),
        kill=lambda: worker.kills.append(77),
    )
    try:
        yield worker
    finally:
        heartbeat.close()
        os.close(write)


async def test_a_worker_that_says_nothing_is_named_and_then_killed_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with start_worker() as worker:
        await worker.beat()
        worker.pass_seconds(60)
        before = [*worker.kills]
        worker.pass_seconds(100)

    assert (before, worker.kills) == ([], [77])
    assert tuple(caplog.messages) == HELD_UP


@pytest.mark.parametrize("timeout", [1, 2.3, 10.5, 60])
async def test_a_worker_prints_its_stacks_one_look_before_it_is_killed(timeout: float) -> None:
    with start_worker(timeout) as worker:
        await worker.beat()
        while not worker.stacks:
            worker.pass_seconds(1)
        before = [*worker.kills]
        while not worker.kills:
            worker.pass_seconds(1)

    assert (before, worker.stacks, worker.kills) == ([], [77], [77])


async def test_a_worker_prints_its_stacks_each_time_that_it_nearly_is_killed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    with start_worker(timeout=8) as worker:
        for _ in range(2):
            await worker.beat()
            worker.pass_seconds(8)
        await worker.beat()
        worker.pass_seconds(1)

    assert (worker.stacks, worker.kills) == ([77, 77], [])
    assert caplog.messages == ["Worker 2 (process 77) answers again"] * 2


async def test_a_worker_that_is_busy_for_less_than_its_time_is_left_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    with start_worker() as worker:
        for _ in range(3):
            await worker.beat()
            worker.pass_seconds(60)

    assert not worker.kills
    again = "Worker 2 (process 77) answers again"
    assert caplog.messages == [HELD_UP[0], again, HELD_UP[0], again, HELD_UP[0]]


async def test_a_worker_has_its_whole_time_again_after_the_machine_slept() -> None:
    with start_worker() as worker:
        await worker.beat()
        worker.pass_seconds(60)
        worker.watchdog.look(3600)
        worker.pass_seconds(59)
        before = [*worker.kills]
        worker.pass_seconds(1)

    assert (before, worker.kills) == ([], [77])


async def test_a_worker_has_time_to_start(caplog: pytest.LogCaptureFixture) -> None:
    with start_worker() as worker:
        worker.pass_seconds(1000)

    assert (worker.kills, caplog.messages) == ([], [])


async def test_without_a_timeout_a_worker_is_only_named(caplog: pytest.LogCaptureFixture) -> None:
    with start_worker(timeout=0) as worker:
        await worker.beat()
        worker.pass_seconds(1000)

    assert (worker.stacks, worker.kills, caplog.messages) == ([], [], [HELD_UP[0]])
