"""What expires is forgotten in time, with one timer."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from copilot_runtime.base.expiry import ExpiryQueue

pytestmark = pytest.mark.anyio


class Clock:
    """Takes the place of a loop's clock and timers: time passes when a test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        loop = asyncio.get_running_loop()
        self.now = 100.0
        self.timers: list[Timer] = []
        monkeypatch.setattr(loop, "time", lambda: self.now)
        monkeypatch.setattr(loop, "call_at", self._call_at)

    def _call_at(self, when: float, function: Callable[..., None], *args: Any) -> "Timer":
        timer = Timer(self, when, lambda: function(*args))
        self.timers.append(timer)
        return timer

    def pass_to(self, now: float) -> None:
        self.now = now
        for timer in [one for one in self.timers if one.when <= now]:
            self.timers.remove(timer)
            timer.ring()


class Timer:
    def __init__(self, clock: Clock, when: float, ring: Callable[[], None]) -> None:
        self.clock, self.when, self.ring = clock, when, ring

    def cancel(self) -> None:
        self.clock.timers.remove(self)


async def test_each_key_expires_in_its_time_and_one_timer_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    over: list[str] = []
    queue, clock = ExpiryQueue(10, over.append), Clock(monkeypatch)
    for now, key in ((100, "a"), (103, "b"), (103, "c"), (106, "d")):
        clock.now = now
        queue.add(key)
    queue.remove("c")
    queue.remove("never there")
    assert [timer.when for timer in clock.timers] == [110]
    clock.pass_to(109)
    assert over == []
    clock.pass_to(113)
    assert over == ["a", "b"]
    assert [timer.when for timer in clock.timers] == [116]
    clock.pass_to(116)
    assert over == ["a", "b", "d"]
    assert clock.timers == []


async def test_a_key_that_is_added_again_waits_from_then_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    over: list[str] = []
    queue, clock = ExpiryQueue(10, over.append), Clock(monkeypatch)
    queue.add("a")
    clock.pass_to(105)
    queue.add("a")
    clock.pass_to(110)
    assert over == []
    clock.pass_to(115)
    assert over == ["a"]


async def test_nothing_expires_after_a_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    over: list[str] = []
    queue, clock = ExpiryQueue(10, over.append), Clock(monkeypatch)
    queue.clear()
    queue.add("a")
    queue.clear()
    assert clock.timers == []
    queue.add("b")
    clock.pass_to(110)
    assert over == ["b"]


async def test_a_key_may_be_added_again_while_it_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    over: list[str] = []

    def expire(key: str) -> None:
        over.append(key)
        if len(over) == 1:
            queue.add(key)

    queue, clock = ExpiryQueue(10, expire), Clock(monkeypatch)
    queue.add("a")
    clock.pass_to(110)
    clock.pass_to(120)
    assert over == ["a", "a"]


def test_a_loop_that_ended_takes_no_key_along() -> None:
    over: list[str] = []
    queue = ExpiryQueue(0, over.append)

    async def add(key: str) -> None:
        queue.add(key)

    async def add_and_wait(key: str) -> None:
        queue.add(key)
        rang = asyncio.Event()
        asyncio.get_running_loop().call_later(0.001, rang.set)
        await rang.wait()

    asyncio.run(add("a"))
    asyncio.run(add_and_wait("b"))
    assert over == ["a", "b"]
