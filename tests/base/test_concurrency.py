"""Sync work runs beside the event loop."""

import asyncio
import threading
from contextvars import ContextVar

import pytest

from copilot_runtime.base.concurrency import ThreadPool

pytestmark = pytest.mark.anyio

NAME = ContextVar("NAME", default="")


async def test_work_of_a_pool_returns_or_raises_in_the_context_of_its_caller() -> None:
    pool = ThreadPool(2, "work")
    NAME.set("ann")

    assert await pool.run(NAME.get) == "ann"
    with pytest.raises(ZeroDivisionError):
        await pool.run(lambda: 1 // 0)
    with pytest.raises(RuntimeError, match="SystemExit"):
        await pool.run(lambda: exit(1))


async def test_what_comes_while_all_threads_are_busy_waits_for_its_turn() -> None:
    pool, go_on, both = ThreadPool(2, "work"), threading.Event(), threading.Event()
    names: set[str] = set()

    def wait(number: int) -> int:
        names.add(threading.current_thread().name + str(threading.get_ident()))
        if len(names) == 2:
            both.set()
        assert go_on.wait(30)
        return number

    waiting = [asyncio.create_task(pool.run(lambda at=at: wait(at))) for at in range(20)]
    assert await asyncio.to_thread(both.wait, 30)
    waiting[10].cancel()
    await asyncio.wait((waiting[10],))
    go_on.set()
    results = await asyncio.gather(*waiting, return_exceptions=True)

    assert [it for it in results if isinstance(it, int)] == [*range(10), *range(11, 20)]
    assert len(names) == 2


async def test_nothing_is_begun_of_what_nobody_awaits_any_more() -> None:
    pool, go_on, begun = ThreadPool(1, "work"), threading.Event(), list[str]()
    first = asyncio.create_task(pool.run(lambda: go_on.wait(30)))
    await asyncio.sleep(0)
    second = asyncio.create_task(pool.run(lambda: begun.append("second")))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.wait((second,))
    go_on.set()

    assert await first
    await pool.run(lambda: begun.append("third"))
    assert begun == ["third"]


async def test_without_a_thread_to_be_had_the_work_is_refused_and_not_left_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool = ThreadPool(2, "work")

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="new thread"):
            await pool.run(lambda: 1)
    assert await pool.run(lambda: 2) == 2


def test_a_loop_that_has_ended_gets_no_late_result() -> None:
    pool, go_on, done = ThreadPool(1, "work"), threading.Event(), threading.Event()

    async def leave() -> None:
        task = asyncio.create_task(pool.run(lambda: go_on.wait(30)))
        await asyncio.sleep(0)
        task.cancel()

    asyncio.run(leave())
    go_on.set()

    async def again() -> None:
        await pool.run(done.set)

    asyncio.run(again())
    assert done.is_set()
