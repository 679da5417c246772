"""What happens to resources, for whoever wants to follow it."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Collection, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Literal
from uuid import uuid4

from copilot_runtime.knowledge.access import FULL_ACCESS, Access, select
from copilot_runtime.knowledge.identifiers import Identifier, contains, strip_namespace

DetailType = Literal["RESOURCE_PUT", "RESOURCE_GET", "RESOURCE_DELETE"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceEvent:
    """Something was done to resources."""

    detail_type: DetailType
    resources: tuple[Identifier, ...]
    source: str = "resources"
    """Who did it."""
    id: str = field(default_factory=lambda: str(uuid4()))
    time: str = field(default_factory=lambda: datetime.now(UTC).isoformat())


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """Which events somebody follows. What is empty lets all through."""

    sources: Collection[str] = ()
    detail_types: Collection[str] = ()
    prefix: str = ""
    """The URI or URN of a resource: it, and what is below it."""
    access: Access = FULL_ACCESS
    """Resources that it does not allow are left out of events. What others read is seen by the
    system alone."""

    def wants(self, detail_type: DetailType) -> bool:
        """Return whether any event of a type may be let through."""
        if detail_type == "RESOURCE_GET" and self.access is not FULL_ACCESS:
            return False
        return not self.detail_types or detail_type in self.detail_types

    def match(self, event: ResourceEvent) -> ResourceEvent | None:
        """Return the part of an event that is followed, if any is, whoever may see it."""
        if (self.sources and event.source not in self.sources) or not self.wants(event.detail_type):
            return None
        prefix = strip_namespace(self.prefix)
        below = [it for it in event.resources if not prefix or contains(prefix, str(it))]
        return _narrow(event, below)

    async def judge(self, event: ResourceEvent) -> ResourceEvent | None:
        """Return the part of an event that may be seen, if any may."""
        return _narrow(event, await select(self.access, event.resources))


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
    """Hands events to those subscribers that want them, in this process and event loop.

    Nobody waits for a slow subscriber: it misses its oldest events, and can see how many.
    """

    def __init__(self) -> None:
        self._subscriptions: set[Subscription] = set()

    def wants(self, detail_type: DetailType) -> bool:
        """Return whether anybody follows events of a type, so that no other is made."""
        return any(subscription.filter.wants(detail_type) for subscription in self._subscriptions)

    def publish(self, event: ResourceEvent) -> None:
        """Hand an event to its subscribers."""
        for subscription in self._subscriptions:
            subscription.offer(event)

    @contextmanager
    def subscribe(
        self, filter: EventFilter | None = None, *, max_events: int = 1000
    ) -> Generator[Subscription]:
        """Follow events from here on, until the block ends."""
        subscription = Subscription(filter or EventFilter(), max_events)
        self._subscriptions.add(subscription)
        try:
            yield subscription
        finally:
            self._subscriptions.discard(subscription)
            subscription.close()


def _narrow(event: ResourceEvent, resources: Collection[Identifier]) -> ResourceEvent | None:
    """Return an event of these resources only, or None without any."""
    return replace(event, resources=tuple(resources)) if resources else None
