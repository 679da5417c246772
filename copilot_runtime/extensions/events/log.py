"""A log of events: the newest ones in one order, each with a cursor that stays valid."""

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
from copilot_runtime.extensions.events.event import (
    EventFilter,
    ResourceEvent,
    decode_event,
    encode_event,
)

POLL_SECONDS = 0.5
"""How often a reader looks for what other processes have written."""

MOST_BYTES = 64 * 1024 * 1024
"""Of all events that are kept, unless it is told."""

EVERYTHING = EventFilter()

_CURSOR = re.compile(r"([0-9a-f]{8})-([0-9]{1,18})")
_MOST_EXAMINED = 1_000
"""Events that one page looks at, on the event loop."""


class CursorGone(CopilotError):
    """What stands behind a cursor cannot be read: it is deleted, or was never in this log."""

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
    """No events are kept here."""

    def __init__(self) -> None:
        super().__init__(
            "This server keeps no events: set events.store to memory or sqlite:PATH.",
        )


@dataclass(frozen=True, slots=True)
class EventPage:
    """Events in their order, and from where to read on.

    There may be none of them and more to read: so many were looked at that nobody wants.
    """

    events: Sequence[ResourceEvent]
    cursor: Cursor
    is_last: bool
    """Whether there was nothing more at that moment."""


class Span(NamedTuple):
    """Which numbers a log holds: those above `floor`, up to `last`."""

    floor: int
    last: int


class EventLog(ABC):
    """The newest events of all who share the log, in one order.

    An event has a cursor, which names its log and its number. A reader that comes back with the
    cursor of the last event it has seen gets all that follow, or `CursorGone`: never a part. All
    methods raise `StoreFailed` if the log cannot be used.
    """

    @abstractmethod
    async def append(self, *events: ResourceEvent) -> Sequence[ResourceEvent]:
        """Store events together, and return them with their cursors.

        What it returned from survives the death of the process. An event whose id is in the log is
        left out.
        """

    @abstractmethod
    async def read(
        self, after: Cursor = START, filter: EventFilter = EVERYTHING, limit: int = 100
    ) -> EventPage:
        """Return the next events behind a cursor that a filter matches, whoever may see them.

        `START` is the beginning of what is kept. Raises `CursorGone`, and `Misuse` for what is no
        cursor.
        """

    @abstractmethod
    async def find_end(self) -> Cursor:
        """Return the cursor behind which only what happens from now on will stand."""

    @abstractmethod
    async def wait(self, after: Cursor) -> None:
        """Return when there may be something behind a cursor, and after `POLL_SECONDS` anyway."""

    async def aclose(self) -> None:  # noqa: B027  # not every log has something open
        """Let go of what is open. It can be used again."""


class MemoryEventLog(EventLog):
    """The newest events of this process, which end with it."""

    def __init__(self, max_events: int = 10_000, *, max_bytes: int = MOST_BYTES) -> None:
        self._id = make_log_id()
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._events: deque[bytes] = deque()
        self._size = 0
        """Of the events, in bytes."""
        self._ids: dict[str, None] = {}
        """Of the events, in their order."""
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
    """Wakes those who wait, all at once."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def notify(self) -> None:
        """Wake those who wait now."""
        event, self._event = self._event, asyncio.Event()
        event.set()

    async def wait(self, seconds: float) -> None:
        """Wait for the next `notify`, but not longer than some seconds."""
        event = self._event
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await event.wait()


def make_log_id() -> str:
    """Return a new name for a log, by which its cursors differ from those of others."""
    return token_hex(4)


def make_cursor(log_id: str, number: int) -> Cursor:
    """Return the cursor of the event of a number."""
    return f"{log_id}-{number}"


def parse_cursor(cursor: Cursor, log_id: str, span: Span) -> int:
    """Return the number behind which to read. Raises `CursorGone` or `Misuse`."""
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
