"""What happens to resources, for whoever wants to follow it."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Collection, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Literal
from uuid import uuid4

from copilot_runtime.knowledge.access import FULL_ACCESS, Access
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
    """Resources that it does not allow are left out of events."""

    def apply(self, event: ResourceEvent) -> ResourceEvent | None:
        """Return the part of an event that is let through, if any is."""
        if self.sources and event.source not in self.sources:
            return None
        if self.detail_types and event.detail_type not in self.detail_types:
            return None
        prefix = strip_namespace(self.prefix)
        resources = tuple(
            identifier
            for identifier in event.resources
            if not prefix or contains(prefix, str(identifier))
            if self.access.allows(str(identifier))
        )
        return replace(event, resources=resources) if resources else None


class Subscription(AsyncIterator[ResourceEvent]):
    """The events of one subscriber, as they come. It ends when it is closed."""

    def __init__(self, filter: EventFilter, max_events: int) -> None:
        self.filter = filter
        self.missed = 0
        """How many events were dropped, the oldest first, because nobody took them."""
        self._events: deque[ResourceEvent] = deque()
        self._max_events = max_events
        self._arrival = asyncio.Event()
        self._closed = False

    def offer(self, event: ResourceEvent) -> None:
        """Add an event to those that wait, if the filter lets it through."""
        part = self.filter.apply(event)
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
        return any(
            not subscription.filter.detail_types or detail_type in subscription.filter.detail_types
            for subscription in self._subscriptions
        )

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
