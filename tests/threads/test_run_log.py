"""The log of a run in this process: any number of readers, each at its own place."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

import pytest

from copilot_runtime.adapters.scripted import say
from copilot_runtime.api import START
from copilot_runtime.api.bus import LogReader
from copilot_runtime.api.events import (
    Activity,
    AgentState,
    Custom,
    Event,
    MessagesSnapshot,
    ReasoningContent,
    RunFinished,
    RunStarted,
    TextMessageContent,
)
from copilot_runtime.api.messages import TextMessage
from copilot_runtime.base.errors import LimitExceeded, Misuse, NotFound
from copilot_runtime.threads.run_log import MemoryBus
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

LONG_MESSAGE = TextMessage(id="m", role="user", content="x" * 5000)
WORDS: Sequence[Event] = [RunStarted(run_id="r", thread_id="t"), *say(["one", "two"])]


async def written(*events: Event, bus: MemoryBus | None = None) -> MemoryBus:
    bus = MemoryBus() if bus is None else bus
    for event in events:
        await bus.append("r", event)
    return bus


async def read(bus: MemoryBus, after: str = START) -> list[Event]:
    return [event async for batch in bus.read("r", after) for event in batch.events]


def piece(size: int) -> TextMessageContent:
    return TextMessageContent(message_id="m", content="x" * size)


async def test_a_late_reader_sees_the_whole_run_at_once() -> None:
    bus = await written(*WORDS, RunFinished())

    batches = [batch async for batch in bus.read("r")]

    assert [batch.events for batch in batches] == [[*WORDS, RunFinished()]]


async def test_readers_at_different_places_see_the_same_log() -> None:
    bus = await written(*WORDS)
    early = asyncio.create_task(read(bus))
    await asyncio.sleep(0)  # it has read what there is and waits
    late = bus.read("r")
    head = await anext(late)
    await written(RunFinished(), bus=bus)

    tail = [event async for batch in late for event in batch.events]
    assert await early == [*head.events, *tail] == [*WORDS, RunFinished()]


async def test_every_cursor_is_a_place_to_go_on_from() -> None:
    bus = await written()
    cursors: list[str] = []
    for event in [*WORDS, RunFinished()]:
        await written(event, bus=bus)
        async with aclosing(bus.read("r")) as reader:
            cursors.append((await anext(reader)).cursor)

    whole = [*WORDS, RunFinished()]
    assert [await read(bus, cursor) for cursor in [START, *cursors]] == [
        whole[place:] for place in range(len(whole) + 1)
    ]


async def test_what_was_appended_while_a_reader_was_busy_comes_as_one_batch() -> None:
    bus = await written(WORDS[0])
    reader = bus.read("r")
    await anext(reader)
    await written(*WORDS[1:], RunFinished(), bus=bus)

    assert (await anext(reader)).events == [*WORDS[1:], RunFinished()]
    await reader.aclose()


async def test_a_reader_that_is_cancelled_leaves_nothing_behind() -> None:
    bus = await written(*WORDS)
    waiting = [asyncio.create_task(read(bus)) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[1].cancel()
    await asyncio.wait([waiting[1]])

    assert len(bus._logs["r"].readers) == 2  # pyright: ignore[reportPrivateUsage]  # nothing public shows it
    await written(RunFinished(), bus=bus)
    assert await waiting[0] == await waiting[2] == [*WORDS, RunFinished()]


async def test_a_waiting_reader_gets_what_its_sink_takes_at_once_and_the_rest_in_batches() -> None:
    bus = await written(WORDS[0])
    reader, taken = bus.read("r"), list[Event]()
    assert isinstance(reader, LogReader)

    def take(event: Event) -> bool:
        is_first = event is WORDS[1]
        taken.extend([event] if is_first else [])
        return is_first

    reader.sink = take
    await anext(reader)
    following = asyncio.create_task(anext(reader))
    await asyncio.sleep(0)
    await written(*WORDS[1:], bus=bus)

    assert (taken, (await following).events) == ([WORDS[1]], WORDS[2:])
    await reader.aclose()


async def test_the_error_of_a_sink_is_that_of_its_reader() -> None:
    bus = await written(WORDS[0])
    reader, other = bus.read("r"), bus.read("r")
    assert isinstance(reader, LogReader)

    def fail(_: Event) -> bool:
        raise ValueError("no such character")

    reader.sink = fail
    await anext(reader)
    following = asyncio.create_task(anext(reader))
    await asyncio.sleep(0)
    await written(*WORDS[1:], bus=bus)

    with pytest.raises(ValueError, match="no such character"):
        await following
    assert (await anext(other)).events == WORDS
    await reader.aclose()
    await other.aclose()
    assert bus.count_readers() == 0


async def test_runs_do_not_mix() -> None:
    bus = await written(*WORDS, RunFinished())
    await bus.append("other", RunFinished())

    assert await read(bus) == [*WORDS, RunFinished()]


@in_one_test(
    ("limits", "event"),
    [
        ({"max_events": 2}, piece(1)),
        ({"max_bytes": 5000}, piece(5000)),
        ({"max_bytes": 5000}, ReasoningContent(message_id="m", content="x" * 5000)),
        ({"max_bytes": 5000}, AgentState(agent="a", state={"big": "x" * 5000})),
        ({"max_bytes": 5000}, Custom(name="big", value="x" * 5000)),
        ({"max_bytes": 5000}, Activity(message_id="m", activity_type="a", content=["x" * 5000])),
        ({"max_bytes": 5000}, MessagesSnapshot(messages=[LONG_MESSAGE])),
    ],
    ids=["events", "text", "reasoning", "state", "value", "activity", "messages"],
)
async def test_a_log_that_grows_too_large_is_refused_and_still_ends(
    limits: dict[str, int], event: Event
) -> None:
    bus = await written(piece(1), piece(1), bus=MemoryBus(**limits))

    with pytest.raises(LimitExceeded, match="grew beyond"):
        await written(event, bus=bus)
    await written(RunFinished(), bus=bus)

    assert await read(bus) == [piece(1), piece(1), RunFinished()]


def snapshot(number: int, agent: str = "a") -> AgentState:
    return AgentState(agent=agent, state={"n": number, "rows": [{"id": n} for n in range(1000)]})


async def test_states_with_little_changed_count_by_what_changed() -> None:
    bus = await written(*map(snapshot, range(500)), bus=MemoryBus(max_bytes=500_000))
    bus.append_all("r", [snapshot(number, "b") for number in range(500)])
    await written(RunFinished(), bus=bus)

    states = [event.state for event in await read(bus) if isinstance(event, AgentState)]
    assert states == [snapshot(number % 500).state for number in range(1000)]
    assert states[499]["rows"] is states[0]["rows"]


async def test_states_that_have_nothing_in_common_count_whole() -> None:
    bus = MemoryBus(max_bytes=500_000)
    with pytest.raises(LimitExceeded):
        for number in range(100):
            rows = [{"id": number * 1000 + at} for at in range(1000)]
            await written(AgentState(agent="a", state=rows), bus=bus)


class Stubborn:
    def __eq__(self, other: object) -> bool:
        raise ValueError("The truth value is ambiguous")

    __hash__ = None  # pyright: ignore[reportAssignmentType]


async def test_states_that_refuse_to_be_compared_are_kept_as_they_came() -> None:
    states = [AgentState(agent="a", state={"array": Stubborn()}) for _ in range(2)]
    bus = await written(*states, RunFinished())

    kept = [event.state for event in await read(bus) if isinstance(event, AgentState)]
    assert [one is other.state for one, other in zip(kept, states, strict=True)] == [True, True]


async def test_many_events_at_once_are_one_batch() -> None:
    bus = await written(WORDS[0])
    async with aclosing(bus.read("r")) as reader:
        await anext(reader)
        following = asyncio.ensure_future(anext(reader))
        await asyncio.sleep(0)
        bus.append_all("r", [*WORDS[1:], RunFinished()])

        assert [*(await following).events] == [*WORDS[1:], RunFinished()]
        assert [batch async for batch in reader] == []


@in_one_test("limits", [{"max_events": 3}, {"max_bytes": 400}])
async def test_many_events_at_once_are_taken_all_or_none(limits: dict[str, int]) -> None:
    bus = await written(piece(1), bus=MemoryBus(**limits))
    with pytest.raises(LimitExceeded, match="grew beyond"):
        bus.append_all("r", [piece(1), piece(50), piece(1)])
    await written(piece(2), RunFinished(), bus=bus)
    with pytest.raises(Misuse, match="'r' has ended"):
        bus.append_all("r", [piece(1)])

    assert await read(bus) == [piece(1), piece(2), RunFinished()]


@in_one_test("limits", [{"max_events": 4}, {"max_bytes": 1000}])
async def test_a_log_says_whether_it_has_room_and_keeps_it(limits: dict[str, int]) -> None:
    bus = await written(piece(1), bus=MemoryBus(**limits))
    small: list[Event] = [Custom(name="c", value=["x" * 100]), RunFinished()]

    assert not bus.reserve("r", [piece(500), piece(1), *small])
    assert await read_so_far(bus) == [piece(1)]
    assert bus.reserve("r", small)
    assert bus.append_all("r", small)
    with pytest.raises(Misuse, match="'r' has ended"):
        bus.reserve("r", small)

    assert await read(bus) == [piece(1), *small]


async def read_so_far(bus: MemoryBus) -> Sequence[Event]:
    async with aclosing(bus.read("r")) as reader:
        return (await anext(reader)).events


async def test_nothing_follows_the_last_event() -> None:
    bus = await written(RunFinished())

    with pytest.raises(Misuse, match="'r' has ended"):
        await written(piece(1), bus=bus)


async def test_an_ended_log_is_forgotten_after_its_time() -> None:
    bus = await written(RunFinished(), bus=MemoryBus(ttl=0.001))
    forgotten = asyncio.Event()
    asyncio.get_running_loop().call_later(0.002, forgotten.set)  # timers ring in order
    await forgotten.wait()

    assert len(bus) == 0
    with pytest.raises(NotFound):
        bus.read("r")


async def test_a_log_that_goes_on_is_not_forgotten() -> None:
    bus = await written(*WORDS, bus=MemoryBus(ttl=0))
    turns = asyncio.Event()
    asyncio.get_running_loop().call_later(0.001, turns.set)
    await turns.wait()

    assert len(bus) == 1


async def test_a_reader_of_a_dropped_run_reads_on() -> None:
    bus = await written(*WORDS, RunFinished())
    reader = bus.read("r")
    await bus.drop("r")

    assert len(bus) == 0
    assert [event async for batch in reader for event in batch.events] == [*WORDS, RunFinished()]


async def test_dropping_what_is_not_there_is_nothing() -> None:
    bus = await written(RunFinished())

    await bus.drop("nobody")
    await bus.drop("r")
    await bus.drop("r")

    assert len(bus) == 0


async def test_the_id_of_a_dropped_run_may_be_used_again() -> None:
    bus = await written(RunFinished(), bus=MemoryBus(ttl=0.001))
    await bus.drop("r")
    await written(*WORDS, bus=bus)
    rang = asyncio.Event()
    asyncio.get_running_loop().call_later(0.002, rang.set)  # the first run's time is over
    await rang.wait()

    assert len(bus) == 1


def test_an_unknown_run_is_refused_at_once() -> None:
    with pytest.raises(NotFound, match="No run 'nobody'"):
        MemoryBus().read("nobody")


@in_one_test("cursor", ["", "x", "-1", "1.0", "²", "٣", " 1", "1" * 5000])
async def test_a_cursor_of_no_bus_is_refused_at_once(cursor: str) -> None:
    bus = await written(*WORDS)

    with pytest.raises(Misuse, match="is not a cursor of this bus"):
        bus.read("r", cursor)


async def test_a_cursor_beyond_the_end_of_an_ended_run_gives_nothing() -> None:
    bus = await written(*WORDS, RunFinished())

    assert await read(bus, "999") == []
