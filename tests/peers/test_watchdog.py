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
    "Worker 2 (process 77) has not answered for 60 seconds: it is killed",
)


@dataclass
class Worker:
    """A worker at the other end of a pipe, and the watchdog that looks at it every second."""

    pipe: int
    watchdog: Watchdog
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
    worker.watchdog.add("Worker 2 (process 77)", heartbeat, lambda: worker.kills.append(77))
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

    assert (worker.kills, caplog.messages) == ([], [HELD_UP[0]])
