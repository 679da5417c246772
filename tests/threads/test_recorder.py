"""What a reader sees is kept already; what could not be kept nobody sees."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from copilot_runtime.adapters.scripted import ScriptedAdapter
from copilot_runtime.agents.direct import DirectAgent
from copilot_runtime.api.events import (
    RunFailed,
    RunFinished,
    RunStarted,
    TextMessageContent,
)
from copilot_runtime.api.messages import Message
from copilot_runtime.base.errors import LimitExceeded, Misuse, NotFound, StoreFailed
from copilot_runtime.runtime import Runtime
from copilot_runtime.threads.compact import compact
from copilot_runtime.threads.recorder import Recorder
from copilot_runtime.threads.run_log import MemoryBus
from copilot_runtime.threads.sqlite import SqliteThreads
from copilot_runtime.threads.store import ThreadKey
from tests.runs import Says, run_input
from tests.threads.recorded import (
    BEGUN,
    WORDS,
    Store,
    recorded,
    request,
    seen,
    started,
    until_it_raises,
)

pytestmark = pytest.mark.anyio


async def test_a_log_exists_once_its_first_event_is_appended() -> None:
    async with recorded(Store()) as bus:
        assert await seen(bus) == [started()]


async def test_nothing_can_be_read_before_it_is_kept() -> None:
    store = Store()
    async with recorded(store) as bus:
        reader = bus.read("r")
        assert [*(await anext(reader)).events] == [started()]
        store.hold()
        await bus.append("r", BEGUN)
        following = asyncio.ensure_future(anext(reader))
        await store.asked.wait()
        assert not following.done()

        store.free.set()

        assert [*(await following).events] == [BEGUN]
        assert await store.log() == [started(), BEGUN]
        await reader.aclose()


async def test_whoever_appended_the_last_event_can_read_the_whole_run() -> None:
    async with recorded(Store()) as bus:
        for event in WORDS:
            await bus.append("r", event)
        await bus.append("r", RunFinished())

        assert await seen(bus) == [started(), *WORDS, RunFinished()]


async def test_what_many_runs_say_meanwhile_is_one_write() -> None:
    store = Store()
    async with recorded(store) as bus:
        await bus.begin(request("s", "u"))
        await bus.append("s", started("s", "u"))
        store.hold()
        store.writes.clear()
        await bus.append("r", BEGUN)
        await store.asked.wait()
        for event in WORDS[1:]:
            await bus.append("r", event)
            await bus.append("s", BEGUN)
        store.free.set()
        await bus.append("r", RunFinished())

    assert [[segment.log_id for segment in write] for write in store.writes] == [["r"], ["r", "s"]]


async def test_few_events_are_written_at_once() -> None:
    store = Store()
    store.commit_interval = 3_600
    async with recorded(store) as bus:
        for event in WORDS:
            await bus.append("r", event)
            await bus.wait_for_storage("r")
        await bus.append("r", RunFinished())

    assert len(store.writes) == len((started(), *WORDS, RunFinished()))


async def test_writes_of_many_events_keep_their_distance() -> None:
    """Nobody waits here: within the interval, what is appended is not written."""
    store = Store()
    store.commit_interval = 0.5
    async with recorded(store) as bus:
        for event in (BEGUN, *[WORDS[1]] * 10):
            await bus.append("r", event)
        await bus.wait_for_storage("r")
        for event in WORDS[1:]:
            await bus.append("r", event)
            await asyncio.sleep(0)
        before = len(store.writes)
        await bus.append("r", RunFinished())

    assert (before, len(store.writes)) == (2, 3)


async def test_with_the_last_event_the_store_gets_the_whole_log() -> None:
    store = Store()
    async with recorded(store) as bus:
        for event in WORDS:
            await bus.append("r", event)
        await bus.append("r", RunFinished())

    *others, last = [segment for write in store.writes for segment in write]
    assert [segment.whole for segment in others] == [None] * len(others)
    assert last.whole == [started(), *WORDS, RunFinished()]
    assert await store.log() == compact(last.whole or [])


async def test_a_run_that_was_not_begun_here_is_not_kept() -> None:
    store = Store()
    bus = Recorder(MemoryBus(), store)
    for event in (started(), *WORDS, RunFinished()):
        await bus.append("r", event)

    assert await seen(bus) == [started(), *WORDS, RunFinished()]
    assert store.writes == []


async def test_a_dropped_log_stays_in_its_thread() -> None:
    store = Store()
    async with recorded(store) as bus:
        await bus.append("r", RunFinished())
        await bus.drop("r")

        with pytest.raises(NotFound):
            bus.read("r")
        assert await store.log() == [started(), RunFinished()]


async def test_a_log_that_has_ended_takes_no_more() -> None:
    store = Store()
    async with recorded(store) as bus:
        store.hold()
        ending = asyncio.create_task(bus.append("r", RunFinished()))
        await store.asked.wait()
        with pytest.raises(Misuse):
            await bus.append("r", BEGUN)
        store.free.set()
        await ending
        with pytest.raises(Misuse):
            await bus.append("r", BEGUN)


async def test_what_a_cancelled_task_appended_is_kept_in_order() -> None:
    store = Store()
    bus = Recorder(MemoryBus(), store)
    await bus.begin(request())
    store.hold()
    first = asyncio.create_task(bus.append("r", started()))
    await store.asked.wait()
    first.cancel()
    await asyncio.wait([first])
    await bus.append("r", BEGUN)
    last = asyncio.create_task(bus.append("r", RunFinished()))
    await asyncio.sleep(0)
    last.cancel()
    store.free.set()
    await bus.aclose()

    assert first.cancelled() and last.cancelled()
    assert await seen(bus) == [started(), BEGUN, RunFinished()]
    assert await store.log() == compact(await seen(bus))


async def test_closing_writes_what_is_left() -> None:
    store = Store()
    store.commit_interval = 0.05
    async with recorded(store) as bus:
        await bus.append("r", BEGUN)

    assert await store.log() == [started(), BEGUN]
    assert store.closed


async def test_when_the_store_fails_the_run_ends_and_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = Store()
    async with recorded(store) as bus:
        store.failure = StoreFailed("The disk is full.")
        runtime_end = RunFailed(error=store.failure.report())
        await bus.append("r", BEGUN)
        await until_it_raises(bus, StoreFailed)
        await bus.append("r", runtime_end)

        assert await seen(bus) == [started(), runtime_end]
        assert await store.log() == [started()]
        store.failure = None

    assert await store.log() == [started(), runtime_end]
    assert len([r for r in caplog.records if "could not be stored" in r.message]) == 1


async def test_a_run_that_was_not_kept_did_not_end_well() -> None:
    store = Store()
    async with recorded(store) as bus:
        store.failure = StoreFailed("The disk is full.")
        await bus.append("r", BEGUN)
        await bus.append("r", RunFinished())

        last = RunFailed(error=store.failure.report())
        assert await seen(bus) == [started(), last]
        store.failure = None

    assert await store.log() == [started(), last]


async def test_the_next_question_in_a_thread_need_not_wait_for_an_end_that_was_lost() -> None:
    store = Store()
    async with recorded(store) as bus:
        store.failure = StoreFailed("The disk is full.")
        await bus.append("r", RunFinished())
        store.failure = None

        await bus.begin(request("s"))
        await bus.append("s", started("s"))
        await bus.append("s", RunFinished())

    assert [run.ended for run in await store.runs(ThreadKey("", "t"))] == [True, True]


async def test_a_run_whose_first_event_is_not_kept_does_not_start() -> None:
    store = Store()
    store.failure = StoreFailed("The disk is full.")
    bus = Recorder(MemoryBus(), store)
    runtime = Runtime(Says(), {}, bus)

    with pytest.raises(StoreFailed, match="full"):
        await runtime.start(run_input(persist=True, detached=True))

    await runtime.aclose()
    store.failure = None
    await bus.aclose()
    first, last = await store.log()
    assert isinstance(first, RunStarted)
    assert [message.id for message in first.messages] == ["u"]
    assert last == RunFailed(error=StoreFailed("The disk is full.").report())


async def test_other_runs_go_on_when_the_store_works_again() -> None:
    store = Store()
    async with recorded(store) as bus:
        await bus.begin(request("s", "u"))
        await bus.append("s", started("s", "u"))
        store.failure = StoreFailed("The disk is full.")
        await bus.append("r", BEGUN)
        await until_it_raises(bus, StoreFailed)
        store.failure = None
        for event in (*WORDS, RunFinished()):
            await bus.append("s", event)
        await bus.append("r", RunFinished())

        assert await seen(bus, "s") == [started("s", "u"), *WORDS, RunFinished()]


async def test_what_is_wrong_with_one_run_does_not_hurt_the_others() -> None:
    store = Store()
    async with recorded(store) as bus:
        await bus.begin(request("s", "u"))
        await bus.append("s", started("s", "u"))
        store.poison = "s"
        await bus.append("s", BEGUN)
        await bus.append("r", BEGUN)
        await bus.append("r", RunFinished())
        await until_it_raises(bus, StoreFailed, "s")
        await bus.append("s", RunFinished())

        assert await seen(bus) == [started(), BEGUN, RunFinished()]
        end = (await seen(bus, "s"))[-1]
        assert isinstance(end, RunFailed)
        assert "cannot be written" not in end.error.message


async def test_a_log_that_is_full_ends_where_readers_saw_it_end() -> None:
    store = Store()
    bus = Recorder(MemoryBus(max_events=2), store)
    await bus.begin(request())
    await bus.append("r", started())
    await bus.append("r", BEGUN)
    await until_it_raises(bus, LimitExceeded)
    await bus.append("r", RunFinished())

    shown = await seen(bus)
    assert shown[:-1] == [started(), BEGUN]
    assert isinstance(shown[-1], RunFailed)
    assert shown[-1].error.code == "LIMIT_EXCEEDED"
    assert await store.log() == compact(shown)
    await bus.aclose()


async def test_whoever_is_faster_than_the_store_waits_for_it() -> None:
    store = Store()
    async with recorded(store, max_queued=1000) as bus:
        store.hold()
        long = TextMessageContent(message_id="m", content="x" * 2000)
        appending = asyncio.create_task(bus.append("r", long))
        await store.asked.wait()
        assert not appending.done()

        store.free.set()

        await appending
        await bus.append("r", RunFinished())
        assert await seen(bus) == [started(), long, RunFinished()]


async def test_a_thread_in_a_file_has_what_the_runtime_said(tmp_path: Path) -> None:
    store = SqliteThreads(tmp_path / "threads.db")
    await store.open()
    bus = Recorder(MemoryBus(), store)
    runtime = Runtime(DirectAgent(ScriptedAdapter(WORDS)), {}, bus)
    await runtime.start(run_input(persist=True, detached=True))
    shown = [event async for batch in runtime.follow("r") for event in batch.events]
    await runtime.aclose()
    [run] = await store.runs(ThreadKey("", "t"))
    await bus.aclose()

    asked: Sequence[Message] = run_input().messages
    assert shown == [RunStarted(run_id="r", thread_id="t", messages=asked), *WORDS, RunFinished()]
    assert run.events == compact(shown)
