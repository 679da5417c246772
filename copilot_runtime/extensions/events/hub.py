"""Hands events to those who follow them, and keeps them in a log."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from contextlib import aclosing, contextmanager
from dataclasses import replace

from copilot_runtime.api.bus import START, Cursor
from copilot_runtime.extensions.events.event import EventFilter, ResourceEvent
from copilot_runtime.extensions.events.log import EVERYTHING, EventLog, EventPage, NoEventLog


class Subscription(AsyncIterator[ResourceEvent]):
    """The events of one subscriber, as they come. It ends when it is closed.

    What may be seen of an event is judged when the subscriber takes it: who publishes waits for
    no policy, and rules that have changed meanwhile apply.
    """

    def __init__(self, filter: EventFilter, max_events: int) -> None:
        self.filter = filter
        self.missed = 0
        """How many events were dropped, the oldest first, because nobody took them.

        It is for the program: some may be of resources that the access does not allow.
        """
        self._events: deque[ResourceEvent] = deque()
        self._max_events = max_events
        self._arrival = asyncio.Event()
        self._closed = False

    def offer(self, event: ResourceEvent) -> None:
        """Add an event to those that wait, if it is one of those that are followed."""
        part = self.filter.match(event)
        if part is None:
            return
        if len(self._events) >= self._max_events:
            self._events.popleft()
            self.missed += 1
        self._events.append(part)
        self._arrival.set()

    def close(self) -> None:
        """End the iteration, behind the events that wait."""
        self._closed = True
        self._arrival.set()

    async def __anext__(self) -> ResourceEvent:
        while True:
            event = await self._take()
            try:
                part = await self.filter.judge(event)
            except asyncio.CancelledError:
                self._events.appendleft(event)  # the next one who asks gets it
                self._arrival.set()
                raise
            if part is not None:
                return part

    async def _take(self) -> ResourceEvent:
        while not self._events:
            if self._closed:
                raise StopAsyncIteration
            self._arrival.clear()
            await self._arrival.wait()
        return self._events.popleft()


class ResourceEvents:
    """Publishes events: to the log, if there is one, and to those who follow them.

    `subscribe` is for what happens in this process from now on, without a log: nobody waits for a
    slow subscriber, which misses its oldest events. `read` and `follow` are for what all processes
    that share the log have published: a reader goes on where it was, also after a restart.
    """

    def __init__(self, log: EventLog | None = None) -> None:
        self.log = log
        """Where events are kept; set by the runtime that serves."""
        self._subscriptions: set[Subscription] = set()

    def wants(self, detail_type: str) -> bool:
        """Return whether events of a type are kept or followed, so that no other is made.

        What is read is not kept.
        """
        if self.log is not None and detail_type != "RESOURCE_GET":
            return True
        return any(subscription.filter.wants(detail_type) for subscription in self._subscriptions)

    async def publish(self, *events: ResourceEvent) -> None:
        """Keep events, then hand them to those who follow them.

        Raises `Misuse` or `LimitExceeded` for what is no event, and `StoreFailed`.
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
        """Follow what happens in this process from here on, until the block ends."""
        subscription = Subscription(filter or EVERYTHING, max_events)
        self._subscriptions.add(subscription)
        try:
            yield subscription
        finally:
            self._subscriptions.discard(subscription)
            subscription.close()

    async def find_end(self) -> Cursor:
        """Return the cursor behind which only what happens from now on will stand.

        Raises `NoEventLog`.
        """
        return await self._require_log().find_end()

    async def read(
        self, after: Cursor = START, filter: EventFilter = EVERYTHING, *, limit: int = 100
    ) -> EventPage:
        """Return the next events behind a cursor, of those that somebody wants and may see.

        Raises `CursorGone` if some were deleted, `Misuse` for no cursor, `NoEventLog`.
        """
        page = await self._require_log().read(after, filter, limit)
        return replace(page, events=await filter.judge_all(page.events))

    async def follow(
        self, after: Cursor | None = None, filter: EventFilter = EVERYTHING
    ) -> AsyncGenerator[ResourceEvent, None]:
        """Yield the events behind a cursor, and then each that happens; by default, only those.

        A reader may be as slow as it likes: it gets `CursorGone` once the log has deleted what it
        has not read yet.
        """
        async with aclosing(self.follow_pages(after, filter)) as pages:
            async for page in pages:
                for event in page.events:
                    yield event

    async def follow_pages(
        self, after: Cursor | None = None, filter: EventFilter = EVERYTHING
    ) -> AsyncGenerator[EventPage, None]:
        """Do as `follow`, with a cursor also where nothing was for this reader.

        The first page comes at once, be it empty: what happens behind its cursor is not missed.
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
                await asyncio.sleep(0)  # a log in memory never waits by itself

    async def aclose(self) -> None:
        """Let go of the log. It can be used again."""
        if self.log is not None:
            await self.log.aclose()

    def _require_log(self) -> EventLog:
        if self.log is None:
            raise NoEventLog
        return self.log
