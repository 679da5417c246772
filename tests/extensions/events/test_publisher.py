"""Events of code that does not wait are published in their order, and a failure harms nobody."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from copilot_runtime.extensions.events import publisher as publishing
from copilot_runtime.extensions.events.publisher import EventPublisher
from copilot_runtime.extensions.knowledge.events import (
    MemoryEventLog,
    ResourceEvent,
    ResourceEvents,
)
from copilot_runtime.extensions.knowledge.events.sqlite import SqliteEventLog
from copilot_runtime.extensions.knowledge.identifiers import Identifier

pytestmark = pytest.mark.anyio


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
    assert "An event is lost: The detail of an event has" in caplog.text


async def test_an_event_that_cannot_be_stored_is_logged_and_later_ones_are_stored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "events.db"
    path.mkdir()
    events = ResourceEvents(SqliteEventLog(path))
    publisher = EventPublisher(events)
    publisher.publish_soon(make_event(1))
    await publisher.aclose()
    assert "1 events are lost" in caplog.text

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
    assert "1 events are lost." in caplog.text
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
    assert caplog.text.count("An event is lost: 2 others wait") == 2


async def test_one_who_never_published_ends_at_once() -> None:
    await EventPublisher(ResourceEvents()).aclose()
