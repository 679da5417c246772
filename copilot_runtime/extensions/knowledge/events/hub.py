"""Publishes events to subscribers and to the log."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from contextlib import aclosing, contextmanager
from dataclasses import replace

from copilot_runtime.api.bus import START, Cursor
from copilot_runtime.extensions.knowledge.events.event import EventFilter, ResourceEvent
from copilot_runtime.extensions.knowledge.events.log import (
    EVERYTHING,
    EventLog,
    EventPage,
    NoEventLog,
)


class Subscription(AsyncIterator[ResourceEvent]):
    """The events of one subscriber, as they are published. It ends when it is closed.

    Permissions are checked when the subscriber takes an event. Publishers therefore never wait for
    a policy, and changed rules apply at once.
    """

    def __init__(self, filter: EventFilter, max_events: int) -> None:
        self.filter = filter
        self.missed = 0
        """Number of events dropped, the oldest first, because the subscriber was too slow."""
        self._events: deque[ResourceEvent] = deque()
        self._max_events = max_events
        self._arrival = asyncio.Event()
        self._closed = False

    def offer(self, event: ResourceEvent) -> None:
        """Queue an event if the filter matches it."""
        part = self.filter.match(event)
        if part is None:
            return
        if len(self._events) >= self._max_events:
            self._events.popleft()
            self.missed += 1
        self._events.append(part)
        self._arrival.set()

    def close(self) -> None:
        """End the iteration after the queued events."""
        self._closed = True
        self._arrival.set()

    async def __anext__(self) -> ResourceEvent:
        while True:
            event = await self._pop_event()
            try:
                part = await self.filter.judge(event)
            except asyncio.CancelledError:
                self._events.appendleft(event)  # the next call of `__anext__` returns it
                self._arrival.set()
                raise
            if part is not None:
                return part

    async def _pop_event(self) -> ResourceEvent:
        while not self._events:
            if self._closed:
                raise StopAsyncIteration
            self._arrival.clear()
            await self._arrival.wait()
        return self._events.popleft()


class ResourceEvents:
    """Publishes events to the log, if there is one, and to subscribers.

    `subscribe` yields the events of this process from now on, without a log. A slow subscriber
    loses its oldest events and does not block publishers. `read` and `follow` return the events of
    all processes that share the log; a reader can resume at its cursor, also after a restart.
    """

    def __init__(self, log: EventLog | None = None) -> None:
        self.log = log
        """The event log, set by the runtime."""
        self._subscriptions: set[Subscription] = set()

    def wants(self, detail_type: str) -> bool:
        """Return whether events of a type are stored or have a subscriber.

        Publishers can skip other events. Read events are not stored.
        """
        if self.log is not None and detail_type != "RESOURCE_GET":
            return True
        return any(subscription.filter.wants(detail_type) for subscription in self._subscriptions)

    async def publish(self, *events: ResourceEvent) -> None:
        """Store events, then pass them to the subscribers.

        Raises `Misuse` or `LimitExceeded` for an invalid event, and `StoreFailed`.
        """
        for event in events:
            event.check()
        loggable = [event for event in events if event.detail_type != "RESOURCE_GET"]
        if self.log is not None and loggable:
            new = {event.id: event for event in await self.log.append(*loggable)}
            others = [event for event in events if event not in loggable]
            events = (*new.values(), *others)
        for subscription in self._subscriptions:
            for event in events:
                subscription.offer(event)

    @contextmanager
    def subscribe(
        self, filter: EventFilter | None = None, *, max_events: int = 1000
    ) -> Generator[Subscription]:
        """Subscribe to this process's events until the block ends."""
        subscription = Subscription(filter or EVERYTHING, max_events)
        self._subscriptions.add(subscription)
        try:
            yield subscription
        finally:
            self._subscriptions.discard(subscription)
            subscription.close()

    async def find_end(self) -> Cursor:
        """Return the cursor of the log's end: only events published later come after it.

        Raises `NoEventLog`.
        """
        return await self._require_log().find_end()

    async def read(
        self, after: Cursor = START, filter: EventFilter = EVERYTHING, *, limit: int = 100
    ) -> EventPage:
        """Return the next page of events after a cursor that the filter matches and permits.

        Raises `CursorGone` if events after the cursor were deleted, `Misuse` if the cursor is
        invalid, or `NoEventLog`.
        """
        page = await self._require_log().read(after, filter, limit)
        return replace(page, events=await filter.judge_all(page.events))

    async def follow(
        self, after: Cursor | None = None, filter: EventFilter = EVERYTHING
    ) -> AsyncGenerator[ResourceEvent, None]:
        """Yield the events after a cursor, then each new event; by default, only new events.

        A reader may be slow: it gets `CursorGone` once the log has deleted events that it has not
        read.
        """
        async with aclosing(self.follow_pages(after, filter)) as pages:
            async for page in pages:
                for event in page.events:
                    yield event

    async def follow_pages(
        self, after: Cursor | None = None, filter: EventFilter = EVERYTHING
    ) -> AsyncGenerator[EventPage, None]:
        """Yield pages as `follow` does, with a cursor even if no event matches.

        The first page comes at once, even if it is empty: events after its cursor are not missed.
        """
        log = self._require_log()
        if after is None:
            after = await log.find_end()
        while True:
            page = await self.read(after, filter)
            yield page
            after = page.cursor
            if page.is_last:
                await log.wait(after)
            else:
                await asyncio.sleep(0)  # a log in memory never suspends

    async def aclose(self) -> None:
        """Close the log. It reopens on the next use."""
        if self.log is not None:
            await self.log.aclose()

    def _require_log(self) -> EventLog:
        if self.log is None:
            raise NoEventLog
        return self.log
