"""What happens to resources reaches those who follow it."""

import asyncio
import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from uuid import UUID

import pytest

from copilot_runtime.extensions.events import publisher as publishing
from copilot_runtime.extensions.events.publisher import EventPublisher
from copilot_runtime.extensions.knowledge.access import Access
from copilot_runtime.extensions.knowledge.events import (
    EventFilter,
    MemoryEventLog,
    ResourceEvent,
    ResourceEvents,
)
from copilot_runtime.extensions.knowledge.events.sqlite import SqliteEventLog
from copilot_runtime.extensions.knowledge.identifiers import Identifier
from copilot_runtime.extensions.knowledge.resources import Resource, ResourceIndex
from copilot_runtime.storage import MemoryStorage

pytestmark = pytest.mark.anyio

TASK = Identifier("plan.Task", "t1", "common.Message.m1")
MESSAGE = Identifier("common.Message", "m1")
OTHER = Identifier("common.Message", "m10")


def put(*resources: Identifier, source: str = "ingestion") -> ResourceEvent:
    return ResourceEvent(detail_type="RESOURCE_PUT", resources=resources, source=source)


def test_an_event_has_an_id_and_a_time() -> None:
    event = put(MESSAGE)
    assert UUID(event.id).version == 4
    assert datetime.fromisoformat(event.time).tzinfo is not None


async def test_each_subscriber_gets_what_its_filter_lets_through() -> None:
    class Denied(Access):
        @property
        def key(self) -> str:
            return "denied"

        def allows(self, uri: str) -> bool:
            return "plan" not in uri

    events = ResourceEvents()
    filters = [
        EventFilter(),
        EventFilter(sources=["chat"]),
        EventFilter(detail_types=["RESOURCE_DELETE"]),
        EventFilter(prefix="cld:common.Message.m1"),
        EventFilter(access=Denied()),
    ]
    with (
        events.subscribe(filters[0]) as a,
        events.subscribe(filters[1]) as b,
        events.subscribe(filters[2]) as c,
        events.subscribe(filters[3]) as d,
        events.subscribe(filters[4]) as e,
    ):
        assert events.wants("RESOURCE_GET")
        await events.publish(put(MESSAGE, TASK, OTHER))
        await events.publish(put(OTHER, source="chat"))
        await events.publish(ResourceEvent(detail_type="RESOURCE_DELETE", resources=(TASK,)))
    received = [[event.resources async for event in one] for one in (a, b, c, d, e)]
    assert received == [
        [(MESSAGE, TASK, OTHER), (OTHER,), (TASK,)],
        [(OTHER,)],
        [(TASK,)],
        [(MESSAGE, TASK), (TASK,)],
        [(MESSAGE, OTHER), (OTHER,)],
    ]
    assert not events.wants("RESOURCE_PUT")


class Hesitant(Access):
    """Judges in a thread, and only once it may."""

    def __init__(self) -> None:
        self.questions: list[list[str]] = []
        self.may_answer = threading.Event()
        self.is_busy = threading.Event()

    @property
    def key(self) -> str:
        return "hesitant"

    def allows(self, uri: str) -> bool:
        return self.judge([uri])[0]

    def judge(self, uris: Iterable[str]) -> list[bool]:
        self.questions.append([*uris])
        self.is_busy.set()
        assert self.may_answer.wait(30)
        return ["plan" not in uri for uri in self.questions[-1]]


async def test_permissions_are_checked_when_an_event_is_consumed() -> None:
    events, access = ResourceEvents(), Hesitant()
    with events.subscribe(EventFilter(access=access)) as subscription:
        await events.publish(put(TASK))
        await events.publish(put(MESSAGE, TASK, OTHER))
        assert access.questions == []
        access.may_answer.set()
        assert (await anext(subscription)).resources == (MESSAGE, OTHER)

    assert access.questions == [[str(TASK)], [str(MESSAGE), str(TASK), str(OTHER)]]


async def test_who_stops_to_wait_for_an_event_loses_none() -> None:
    events, access = ResourceEvents(), Hesitant()
    with events.subscribe(EventFilter(access=access)) as subscription:
        await events.publish(put(MESSAGE))
        waiting = asyncio.ensure_future(anext(subscription))
        assert await asyncio.to_thread(access.is_busy.wait, 30)
        waiting.cancel()
        await asyncio.wait((waiting,))
        access.may_answer.set()

        assert (await anext(subscription)).resources == (MESSAGE,)


async def test_read_events_of_others_are_internal() -> None:
    events = ResourceEvents()
    read = ResourceEvent(detail_type="RESOURCE_GET", resources=(MESSAGE,))
    with events.subscribe(EventFilter(access=Hesitant())) as of_a_user:
        assert not events.wants("RESOURCE_GET")
        with events.subscribe() as of_the_system:
            await events.publish(read)
    assert [event async for event in of_the_system] == [read]
    assert [event async for event in of_a_user] == []


async def test_a_slow_subscriber_misses_the_oldest() -> None:
    events = ResourceEvents()
    with events.subscribe(max_events=2) as subscription:
        for resource in (MESSAGE, TASK, OTHER):
            await events.publish(put(resource))
        assert (await anext(subscription)).resources == (TASK,)
        assert subscription.missed == 1


async def test_a_subscriber_waits_until_something_happens() -> None:
    events = ResourceEvents()
    with events.subscribe() as subscription:
        waiting = asyncio.ensure_future(anext(subscription))
        await asyncio.sleep(0)
        await events.publish(put(MESSAGE))
        assert (await waiting).resources == (MESSAGE,)


async def test_a_subscription_ends_with_its_block() -> None:
    events = ResourceEvents()

    async def follow() -> list[ResourceEvent]:
        return [event async for event in subscription]

    with events.subscribe() as subscription:
        following = asyncio.create_task(follow())
        await asyncio.sleep(0)
    assert await following == []


async def test_puts_gets_and_deletes_are_published() -> None:
    resources = ResourceIndex(MemoryStorage(), source="tests")
    await resources.put(Resource(OTHER, "before anybody follows"))
    with resources.events.subscribe() as subscription:
        await resources.put(Resource(MESSAGE, "hello"))
        await resources.put(Resource(MESSAGE, "hello"))
        await resources.put(
            Resource(MESSAGE, "hello again"), expected=Resource(MESSAGE, "hello").version
        )
        await resources.get([MESSAGE, "common.Message.none"])
        await resources.get(["common.Message.none"])
        await resources.put(Resource(TASK))
        await resources.delete(MESSAGE)
    assert [
        (event.source, event.detail_type, [str(id) for id in event.resources])
        async for event in subscription
    ] == [
        ("tests", "RESOURCE_PUT", ["common.Message.m1"]),
        ("tests", "RESOURCE_PUT", ["common.Message.m1"]),
        ("tests", "RESOURCE_GET", ["common.Message.m1"]),
        ("tests", "RESOURCE_PUT", ["common.Message.m1/plan.Task.t1"]),
        ("tests", "RESOURCE_DELETE", ["common.Message.m1", "common.Message.m1/plan.Task.t1"]),
    ]


async def test_reads_without_a_subscriber_create_no_event() -> None:
    resources = ResourceIndex(MemoryStorage())
    await resources.put(Resource(MESSAGE, "hello"))
    with resources.events.subscribe(EventFilter(detail_types=["RESOURCE_PUT"])) as subscription:
        await resources.get([MESSAGE])
    assert [event async for event in subscription] == []


def make_event(number: int) -> ResourceEvent:
    note = Identifier("common.Note", f"n{number}")
    return ResourceEvent(detail_type="X", resources=(note,), detail={"number": number})


async def read_numbers(events: ResourceEvents) -> list[object]:
    return [event.detail["number"] for event in (await events.read(limit=1000)).events]


async def test_events_are_published_in_their_order() -> None:
    events = ResourceEvents(MemoryEventLog())
    publisher = EventPublisher(events)
    for number in range(250):
        publisher.publish_soon(make_event(number))
    assert await read_numbers(events) == []
    await publisher.aclose()
    assert await read_numbers(events) == [*range(250)]

    publisher.publish_soon(make_event(250))  # it can be used again
    await publisher.aclose()
    assert (await read_numbers(events))[-1] == 250


async def test_an_event_that_is_none_takes_no_other_with_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    events = ResourceEvents(MemoryEventLog())
    publisher = EventPublisher(events)
    huge = replace(make_event(2), detail={"text": "x" * 100_000})
    for event in (make_event(1), huge, make_event(3)):
        publisher.publish_soon(event)
    await publisher.aclose()
    assert await read_numbers(events) == [1, 3]
    assert "An event was dropped: The detail of an event has" in caplog.text


async def test_an_event_that_cannot_be_stored_is_logged_and_later_ones_are_stored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "events.db"
    path.mkdir()
    events = ResourceEvents(SqliteEventLog(path))
    publisher = EventPublisher(events)
    publisher.publish_soon(make_event(1))
    await publisher.aclose()
    assert "1 events were dropped" in caplog.text

    path.rmdir()
    publisher.publish_soon(make_event(2))
    await publisher.aclose()
    assert await read_numbers(events) == [2]
    await events.aclose()


async def test_an_unexpected_error_is_logged_and_later_events_are_stored(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class FaultyLog(MemoryEventLog):
        async def append(self, *events: ResourceEvent) -> Sequence[ResourceEvent]:
            if events[0].detail["number"] == 1:
                raise RuntimeError("a bug")
            return await super().append(*events)

    events = ResourceEvents(FaultyLog())
    publisher = EventPublisher(events)
    publisher.publish_soon(make_event(1))
    await publisher.aclose()
    assert "1 events were dropped." in caplog.text
    publisher.publish_soon(make_event(2))
    await publisher.aclose()
    assert await read_numbers(events) == [2]


async def test_what_is_too_much_is_dropped_and_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(publishing, "_MOST_WAITING", 2)
    events = ResourceEvents(MemoryEventLog())
    publisher = EventPublisher(events)
    for number in range(4):
        publisher.publish_soon(make_event(number))
    await publisher.aclose()
    assert await read_numbers(events) == [0, 1]
    assert caplog.text.count("An event was dropped: 2 events are already queued") == 2


async def test_one_who_never_published_ends_at_once() -> None:
    await EventPublisher(ResourceEvents()).aclose()
