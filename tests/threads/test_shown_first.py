"""A v1 client sees at once what is kept a moment later, and the end once everything is kept."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from copilot_runtime.api.events import (
    Event,
    RunFailed,
    RunFinished,
    RunStarted,
    TextMessageContent,
)
from copilot_runtime.base.errors import LimitExceeded, StoreFailed
from copilot_runtime.runtime import Runtime
from copilot_runtime.runtime.conversations import Conversations
from copilot_runtime.threads.compact import compact
from copilot_runtime.threads.recorder import Recorder
from copilot_runtime.threads.run_log import MemoryBus
from copilot_runtime.threads.store import ThreadKey
from tests.in_one_test import in_one_test
from tests.runs import Says, forever, log_of, run_input
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

WORD = TextMessageContent(message_id="m", content="one ")


@asynccontextmanager
async def shown_first(store: Store, **more: Any) -> AsyncGenerator[Recorder]:
    async with recorded(store, request(follow_up="client"), **more) as bus:
        yield bus


@in_one_test("detached", [False, True], ids=["mutation", "subscription"])
async def test_it_can_be_read_before_it_is_kept(detached: bool) -> None:
    store = Store()
    store.hold()
    async with recorded(store, request(follow_up="client", detached=detached)) as bus:
        await bus.append("r", BEGUN)
        await store.asked.wait()

        assert await seen(bus) == [started(), BEGUN]
        assert store.writes == []
        store.free.set()


async def test_its_end_is_seen_when_all_of_it_is_kept() -> None:
    store = Store()
    async with shown_first(store) as bus:
        for event in WORDS:
            await bus.append("r", event)
        reader = bus.read("r")
        assert [*(await anext(reader)).events] == [started(), *WORDS]
        store.hold()
        ending = asyncio.ensure_future(bus.append("r", RunFinished()))
        following = asyncio.ensure_future(anext(reader))
        await store.asked.wait()
        assert not ending.done() and not following.done()

        store.free.set()

        assert [*(await following).events] == [RunFinished()]
        assert await store.log() == compact([started(), *WORDS, RunFinished()])
        await ending
        await reader.aclose()


async def test_what_is_kept_is_always_the_beginning_of_what_was_shown() -> None:
    store = Store()
    kept: list[Event] = []
    store.commit_interval = 0.0
    async with shown_first(store) as bus:
        for event in (*WORDS, RunFinished()):
            await bus.append("r", event)
            await asyncio.sleep(0)
            kept = [event for write in store.writes for one in write for event in one.events]
            shown = await seen(bus)
            assert kept == shown[: len(kept)]

    assert kept == [started(), *WORDS, RunFinished()]


async def test_with_the_last_event_the_store_gets_the_whole_log_once() -> None:
    store = Store()
    async with shown_first(store) as bus:
        for event in (*WORDS, RunFinished()):
            await bus.append("r", event)

    wholes = [one.whole for write in store.writes for one in write if one.whole is not None]
    assert wholes == [[started(), *WORDS, RunFinished()]]


async def test_a_reader_who_opens_the_thread_meanwhile_sees_what_is_not_kept_yet() -> None:
    store = Store()
    bus = Recorder(MemoryBus(), store)
    found = Conversations(Runtime(Says(*WORDS, forever), {}, bus), store)
    store.hold()
    await found.start(run_input(persist=True, follow_up="client"))
    await store.asked.wait()

    _, log = await found.history(ThreadKey("", "t"))

    assert log is not None
    batch = await anext(log)
    assert [*batch.events[1:]] == [*WORDS]
    assert store.writes == []
    store.free.set()
    await log.aclose()
    await found.aclose()
    await bus.aclose()


async def test_when_the_store_fails_it_ends_and_says_so() -> None:
    store = Store()
    async with shown_first(store) as bus:
        store.failure = StoreFailed("The disk is full.")
        await until_it_raises(bus, StoreFailed)
        await bus.append("r", RunFinished())

        shown = await seen(bus)
        assert shown[-1] == RunFailed(error=store.failure.report())
        store.failure = None

    assert await store.log() == compact(shown)


async def test_a_store_that_fails_from_the_start_ends_it_though_its_agent_is_silent() -> None:
    store = Store()
    store.failure = StoreFailed("The disk is full.")
    bus = Recorder(MemoryBus(), store)
    runtime = Runtime(Says(forever), {}, bus)

    await runtime.start(run_input(persist=True, follow_up="client"))
    first, last = await log_of(runtime)

    assert isinstance(first, RunStarted)
    assert last == RunFailed(error=store.failure.report())
    await runtime.aclose()
    store.failure = None
    await bus.aclose()
    assert await store.log() == [first, last]


async def test_nothing_is_kept_behind_a_gap() -> None:
    """The bus takes its time, and the store fails for a moment while an event is on its way."""
    store, slow, told = Store(), Slow(), asyncio.Event()
    v1 = request(follow_up="client")
    async with recorded(store, v1, bus=slow, on_failure=lambda _: told.set()) as bus:
        store.hold()
        await bus.append("r", BEGUN)
        slow.hold()
        late = asyncio.ensure_future(bus.append("r", WORD))
        await slow.asked.wait()
        store.failure = StoreFailed("The disk is full.")
        store.free.set()
        await told.wait()
        store.failure = None
        slow.free.set()

        with pytest.raises(StoreFailed):
            await late

        await bus.append("r", RunFinished())
        shown = await seen(bus)
    assert shown[:-1] == [started(), BEGUN, WORD]
    assert await store.log() == compact(shown)


class Slow(MemoryBus):
    """A bus that somebody has to let go on."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()
        self.free = asyncio.Event()
        self.free.set()

    def hold(self) -> None:
        """Let nothing be shown for now."""
        self.free.clear()
        self.asked.clear()

    async def append(self, log_id: str, event: Event) -> None:
        self.asked.set()
        await self.free.wait()
        await super().append(log_id, event)


async def test_a_log_that_is_full_ends_where_readers_saw_it_end() -> None:
    store = Store()
    async with recorded(store, request(follow_up="client"), bus=MemoryBus(max_events=2)) as bus:
        await bus.append("r", BEGUN)
        with pytest.raises(LimitExceeded) as caught:
            await bus.append("r", WORD)
        await bus.append("r", RunFailed(error=caught.value.report()))

        shown = await seen(bus)

    assert shown == [started(), BEGUN, RunFailed(error=caught.value.report())]
    assert await store.log() == compact(shown)


async def test_whoever_is_faster_than_the_store_waits_for_it() -> None:
    store = Store()
    async with shown_first(store, max_queued=1000) as bus:
        store.hold()
        long = TextMessageContent(message_id="m", content="x" * 2000)
        appending = asyncio.ensure_future(bus.append("r", long))
        await store.asked.wait()
        assert await seen(bus) == [started(), long]
        assert not appending.done()

        store.free.set()

        await appending
