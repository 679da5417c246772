"""Event logs: the newest events in one order, each with a durable cursor."""

import asyncio
import re
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from secrets import token_hex
from typing import NamedTuple

from copilot_runtime.api.bus import START, Cursor
from copilot_runtime.base.errors import CopilotError, Misuse, NotFound
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.extensions.knowledge.events.event import (
    EventFilter,
    ResourceEvent,
    decode_event,
    encode_event,
)

POLL_SECONDS = 0.5
"""Interval at which readers look for events of other processes, in seconds."""

MOST_BYTES = 64 * 1024 * 1024
"""Default maximum size of all stored events, in bytes."""

EVERYTHING = EventFilter()

_CURSOR = re.compile(r"([0-9a-f]{8})-([0-9]{1,18})")
_MOST_EXAMINED = 1_000
"""Maximum number of events that one page examines, because this blocks the event loop."""


class CursorGone(CopilotError):
    """The events after a cursor were deleted, or the cursor belongs to another log."""

    code = "CURSOR_GONE"
    status_code = 410
    visibility = "banner"
    severity = "warning"
    is_hint_public = True

    def __init__(self, message: str, oldest: Cursor) -> None:
        super().__init__(
            message,
            hint=f"The oldest that is kept stands behind the cursor {oldest!r}. Go on from there, "
            "and look at the resources themselves: what happened before is not kept any more.",
        )
        self.oldest = oldest


class NoEventLog(NotFound):
    """This server does not store events."""

    def __init__(self) -> None:
        super().__init__(
            "This server keeps no events: set events.store to memory or sqlite:PATH.",
        )


@dataclass(frozen=True, slots=True)
class EventPage:
    """A page of events in order, and the cursor of the next page.

    A page may be empty although there are more events, if none of the examined ones match.
    """

    events: Sequence[ResourceEvent]
    cursor: Cursor
    is_last: bool
    """True if there were no further events at the time."""


class Span(NamedTuple):
    """The range of numbers in a log: above `floor`, up to `last`."""

    floor: int
    last: int


class EventLog(ABC):
    """The newest events of all processes that share the log, in one order.

    An event's cursor names the log and the event's number. A reader that returns with the cursor of
    the last event it has read gets all later events, or `CursorGone`: never only a part of them.
    All methods raise `StoreFailed` if the log cannot be used.
    """

    @abstractmethod
    async def append(self, *events: ResourceEvent) -> Sequence[ResourceEvent]:
        """Store events in one transaction, and return them with their cursors.

        Returned events survive the death of the process. Events whose identifier is already stored
        are skipped.
        """

    @abstractmethod
    async def read(
        self, after: Cursor = START, filter: EventFilter = EVERYTHING, limit: int = 100
    ) -> EventPage:
        """Return the next page of events after a cursor that match a filter, without access checks.

        `START` is the oldest stored event. Raises `CursorGone`, or `Misuse` if the cursor is
        invalid.
        """

    @abstractmethod
    async def find_end(self) -> Cursor:
        """Return the cursor of the log's end: only events published later come after it."""

    @abstractmethod
    async def wait(self, after: Cursor) -> None:
        """Return when there may be events after a cursor, at the latest after `POLL_SECONDS`."""

    async def aclose(self) -> None:  # noqa: B027  # not every log has something open
        """Close open files. The log reopens on the next use."""


class MemoryEventLog(EventLog):
    """The newest events of this process, in memory."""

    def __init__(self, max_events: int = 10_000, *, max_bytes: int = MOST_BYTES) -> None:
        self._id = token_hex(4)  # makes its cursors distinct from those of other logs
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._events: deque[bytes] = deque()
        self._size = 0
        """Size of the stored events, in bytes."""
        self._ids: dict[str, None] = {}
        """Identifiers of the stored events, in order."""
        self._last = 0
        self._notifier = Notifier()

    async def append(self, *events: ResourceEvent) -> Sequence[ResourceEvent]:
        results: list[ResourceEvent] = []
        for event in events:
            if event.id in self._ids:
                continue
            self._last += 1
            self._ids[event.id] = None
            data = dumps(encode_event(event))
            self._events.append(data)
            self._size += len(data)
            results.append(replace(event, cursor=make_cursor(self._id, self._last)))
        while len(self._events) > self._max_events or self._size > self._max_bytes:
            self._size -= len(self._events.popleft())
            del self._ids[next(iter(self._ids))]
        self._notifier.notify()
        return results

    async def read(
        self, after: Cursor = START, filter: EventFilter = EVERYTHING, limit: int = 100
    ) -> EventPage:
        span = Span(self._last - len(self._events), self._last)
        number = parse_cursor(after, self._id, span)
        found: list[ResourceEvent] = []
        start = number - span.floor
        for data in islice(self._events, start, start + _MOST_EXAMINED):
            number += 1
            event = filter.match(decode_event(data, make_cursor(self._id, number)))
            if event is not None:
                found.append(event)
                if len(found) == limit:
                    break
        return EventPage(found, make_cursor(self._id, number), number == span.last)

    async def find_end(self) -> Cursor:
        return make_cursor(self._id, self._last)

    async def wait(self, after: Cursor) -> None:
        if after == make_cursor(self._id, self._last):
            await self._notifier.wait(POLL_SECONDS)


class Notifier:
    """Wakes all waiting tasks at once."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def notify(self) -> None:
        """Wake the tasks that wait now."""
        event, self._event = self._event, asyncio.Event()
        event.set()

    async def wait(self, seconds: float) -> None:
        """Wait for the next `notify`, at most for a number of seconds."""
        event = self._event
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await event.wait()


def make_cursor(log_id: str, number: int) -> Cursor:
    """Return the cursor of the event with a number."""
    return f"{log_id}-{number}"


def parse_cursor(cursor: Cursor, log_id: str, span: Span) -> int:
    """Return the number of a cursor's event. Raises `CursorGone` or `Misuse`."""
    oldest = make_cursor(log_id, span.floor)
    if cursor == START:
        return span.floor
    found = _CURSOR.fullmatch(cursor)
    if found is None:
        raise Misuse(
            f"{cursor[:40]!r} is no cursor.",
            hint=f"Send the cursor of the last event that you have seen, or {START!r} for all that "
            "are kept.",
        )
    name, number = found[1], int(found[2])
    if name != log_id or number > span.last:
        raise CursorGone(f"The cursor {cursor!r} is not of this log of events.", oldest)
    if number < span.floor:
        raise CursorGone(
            f"The events right behind the cursor {cursor!r} are not kept any more.", oldest
        )
    return number
