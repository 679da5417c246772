"""Runs in threads: one at a time, and each thread only for its owner."""

import asyncio
from typing import Any

import pytest

from copilot_runtime.adapters.scripted import Gate, ScriptedAdapter, say
from copilot_runtime.agents.direct import DirectAgent
from copilot_runtime.api import RunInput
from copilot_runtime.api.events import Custom, RunFailed, RunFinished
from copilot_runtime.base.errors import Cancelled, Interrupted, NotFound, ThreadBusy
from copilot_runtime.runtime import Runtime
from copilot_runtime.runtime.conversations import Conversations
from copilot_runtime.runtime.run import Run
from copilot_runtime.threads.memory import MemoryThreads
from copilot_runtime.threads.recorder import Recorder
from copilot_runtime.threads.run_log import MemoryBus
from copilot_runtime.threads.store import ThreadKey
from tests.in_one_test import in_one_test
from tests.runs import Says, forever, run_input

pytestmark = pytest.mark.anyio

MINE = ThreadKey("ada", "t")


def kept(run_id: str = "r", **more: Any) -> RunInput:
    given = {"persist": True, "detached": True, "user": "ada", "log_id": f"log-{run_id}", **more}
    return run_input(run_id, **given)


def conversations(*turns: Any, gate: Gate | None = None, **more: Any) -> Conversations:
    store = MemoryThreads()
    model = ScriptedAdapter(*turns, gate=gate)
    runtime = Runtime(DirectAgent(model), {}, Recorder(MemoryBus(), store))
    return Conversations(runtime, store, **more)


async def last_of(found: Conversations, key: str) -> Any:
    return [event async for batch in found.follow(key) for event in batch.events][-1]


async def test_a_thread_has_the_runs_of_its_owner_only() -> None:
    found = conversations(say("Hello"))
    await found.start(kept())
    await last_of(found, "log-r")
    await found.aclose()
    mine, log = await found.history(MINE)
    others, _ = await found.history(ThreadKey("eve", "t"))

    assert [run.run_id for run in mine] == ["r"]
    assert log is None
    assert others == []


async def test_while_it_is_answered_a_thread_takes_no_second_question() -> None:
    gate = Gate()
    found = conversations(say("one"), say("two", id="m2"), gate=gate)
    await found.start(kept("r1"))
    with pytest.raises(ThreadBusy):
        await found.start(kept("r2"))
    gate.release(3)
    await last_of(found, "log-r1")
    gate.release(3)
    await found.start(kept("r2"))

    assert isinstance(await last_of(found, "log-r2"), RunFinished)


async def test_the_same_id_of_two_owners_is_two_threads() -> None:
    gate = Gate()
    found = conversations(say("one"), say("two"), gate=gate)
    await found.start(kept("r1"))
    await found.start(kept("r2", user="eve"))

    assert not await found.stop_thread(ThreadKey("bob", "t"))
    assert await found.stop_thread(MINE)
    assert isinstance(await last_of(found, "log-r1"), RunFailed)
    gate.release(3)
    assert isinstance(await last_of(found, "log-r2"), RunFinished)


async def test_a_run_that_was_stopped_does_not_keep_the_next_one_out() -> None:
    gate = Gate()
    found = conversations(say("one"), say("two"), gate=gate)
    await found.start(kept("r1"))
    assert await found.stop_thread(MINE)
    gate.release(3)
    await found.start(kept("r2"))

    assert isinstance(await last_of(found, "log-r2"), RunFinished)


async def waiting(found: Conversations, *names: str) -> list["asyncio.Task[Run]"]:
    """Ask while the thread answers, and return once all of them wait."""
    tasks = [asyncio.create_task(found.start(kept(name))) for name in names]
    for _ in tasks:
        await asyncio.sleep(0)
    return tasks


@in_one_test("how", ["run", "id", "deletion"])
async def test_what_waits_for_its_turn_can_be_taken_away(how: str) -> None:
    gate = Gate()
    found = conversations(say("one"), gate=gate, when_busy="queue")
    await found.start(kept("r1"))
    run = found.create(kept("r2"))
    second = asyncio.create_task(found.launch(run))
    await asyncio.sleep(0)

    match how:
        case "run":
            assert run.stop()
        case "id":
            assert await found.stop_thread(MINE, "r2")
        case _:
            await found.delete(MINE)
    with pytest.raises(Cancelled):
        await second
    gate.release(3)
    ended_well = isinstance(await last_of(found, "log-r1"), RunFinished)
    assert ended_well is (how != "deletion")


async def test_only_so_many_wait_in_one_thread() -> None:
    found = conversations(say("one"), gate=Gate(), when_busy="queue")
    await found.start(kept("r1"))
    others = await waiting(found, *"abcde")
    with pytest.raises(ThreadBusy, match="5 questions wait"):
        await found.start(kept("f"))
    await found.aclose()

    assert all(await asyncio.gather(*others, return_exceptions=True))


async def test_a_thread_that_is_deleted_does_not_come_back_by_what_waited() -> None:
    found = conversations(say("one"), gate=Gate(), when_busy="queue")
    await found.start(kept("r1"))
    others = await waiting(found, "r2", "r3")
    await found.delete(MINE)
    results = await asyncio.gather(*others, return_exceptions=True)
    await found.aclose()

    assert [type(result) for result in results] == [Cancelled, Cancelled]
    assert await found.store.get(MINE) is None


async def test_a_thread_whose_answer_does_not_end_is_not_deleted() -> None:
    over, begun = asyncio.Event(), asyncio.Event()

    async def stubborn() -> None:
        begun.set()
        while not over.is_set():
            try:
                await over.wait()
            except asyncio.CancelledError:
                continue

    store = MemoryThreads()
    runtime = Runtime(Says(stubborn), {}, Recorder(MemoryBus(), store))
    found = Conversations(runtime, store, patience=0.01)
    await found.start(kept())
    await begun.wait()
    with pytest.raises(ThreadBusy, match="does not end"):
        await found.delete(MINE)
    over.set()
    await last_of(found, "log-r")
    await found.delete(MINE)

    assert await store.get(MINE) is None
    await found.aclose()


async def test_a_silent_run_whose_log_is_full_ends_at_once() -> None:
    store = MemoryThreads()
    told = [Custom(name="word", value=None)] * 5
    runtime = Runtime(Says(*told, forever), {}, Recorder(MemoryBus(max_events=3), store))
    found = Conversations(runtime, store)
    await found.start(kept())
    last = await last_of(found, "log-r")
    await found.aclose()

    assert isinstance(last, RunFailed)
    assert last.error.code == "LIMIT_EXCEEDED"


async def test_the_log_of_an_answer_that_its_thread_has_is_soon_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dropped = asyncio.Event()

    class Noticed(MemoryBus):
        async def drop(self, log_id: str) -> None:
            await super().drop(log_id)
            dropped.set()

    monkeypatch.setattr("copilot_runtime.runtime.runtime._LOG_TTL", 0.01)
    store, bus = MemoryThreads(), Noticed()
    found = Conversations(Runtime(Says(), {}, Recorder(bus, store)), store)
    await found.start(kept())
    await dropped.wait()
    [run], log = await found.history(MINE)
    await found.aclose()

    assert (len(bus), run.ended, log) == (0, True, None)


async def test_what_is_not_kept_is_in_nobodys_way() -> None:
    gate = Gate()
    found = conversations(say("one"), say("two"), gate=gate)
    await found.start(kept("r1"))
    await found.start(kept("r2", persist=False))
    gate.release(6)
    await last_of(found, "log-r2")
    await last_of(found, "log-r1")
    await found.aclose()
    runs, _ = await found.history(MINE)

    assert [run.run_id for run in runs] == ["r1"]


async def test_a_thread_that_is_not_there_cannot_be_changed() -> None:
    found = conversations()

    with pytest.raises(NotFound):
        await found.update(MINE, name="Name")
    with pytest.raises(NotFound):
        await found.delete(MINE)


@in_one_test("name", ["A name", None])
async def test_a_thread_is_named_once(name: str | None) -> None:
    asked: list[int] = []
    named = asyncio.Event()

    async def namer(runs: Any) -> str | None:
        asked.append(len(runs))
        named.set()
        return name

    found = conversations(say("one"), say("two", id="m2"), namer=namer)
    for run_id in ("r1", "r2"):
        named.clear()
        await found.start(kept(run_id))
        await last_of(found, f"log-{run_id}")
        if run_id == "r1" or name is None:
            await named.wait()
    await found.aclose()
    thread = await found.store.get(MINE)

    assert thread is not None
    assert thread.name == name
    assert asked == ([1] if name else [1, 2])


async def test_while_it_drains_runs_end_and_no_other_begins() -> None:
    gate = Gate()
    found = conversations(say("one"), say("two", id="m2"), gate=gate)
    await found.start(kept("r1"))
    drained = asyncio.create_task(found.drain())
    await asyncio.sleep(0)
    for request in (kept("r2", user="eve"), run_input("r3")):
        with pytest.raises(Interrupted):
            await found.start(request)
    gate.release(3)
    await drained

    assert isinstance(await last_of(found, "log-r1"), RunFinished)
