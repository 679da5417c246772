"""Access control for events over HTTP: users get only the events of resources they may read.

All requests for events pass through here. Events without resources are internal to the program.
"""

import time
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil

from copilot_runtime.api.bus import START, Cursor
from copilot_runtime.api.identity import Caller
from copilot_runtime.base.errors import LimitExceeded, Misuse
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.base.jsonvalue import JsonObject
from copilot_runtime.extensions.knowledge.access import Access, AccessAction, Actor, require
from copilot_runtime.extensions.knowledge.events import (
    MOST_RESOURCES,
    EventFilter,
    EventPage,
    ResourceEvent,
    ResourceEvents,
    encode_event,
)
from copilot_runtime.extensions.knowledge.identifiers import parse_identifier, strip_namespace
from copilot_runtime.extensions.knowledge.policies.ownership import CONVERSATION, build_actor

_HOUR = 3600.0
_LEAST_EVENTS = 100
_LEAST_BYTES = 1024 * 1024
"""Larger than any event."""


class TooManyEvents(LimitExceeded):
    """A client exceeded its publish quota."""

    status_code = 429
    is_hint_public = True

    def __init__(self, message: str, seconds: float) -> None:
        super().__init__(
            message,
            hint=f"Publish again in {ceil(seconds)} seconds. Put what is long into a resource, and "
            "tell of many resources in one event. A program of the server is not limited.",
        )


class PublishQuota:
    """The hourly publish quota: a tenth of the log's capacity per user, half of it for all users.

    Without a quota, one busy client would push other users' events out of the log. Quotas refill
    evenly over time. However small the log is, a quota is at least 100 events and 1 MiB.
    """

    def __init__(
        self, max_events: int, max_bytes: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._each = (max(max_events // 10, _LEAST_EVENTS), max(max_bytes // 10, _LEAST_BYTES))
        self._all = _Share(
            max(max_events // 2, _LEAST_EVENTS), max(max_bytes // 2, _LEAST_BYTES), clock()
        )
        self._users: dict[str | None, _Share] = {}
        """Quotas of users who published in the last hour, the most recent last."""

    def spend(self, user: str | None, event: ResourceEvent) -> None:
        """Charge an event to a user's quota and the common one. Raises `TooManyEvents`."""
        now, size = self._clock(), len(dumps(encode_event(event)))
        share = self._users.get(user) or _Share(*self._each, now)
        if seconds := share.find_wait(size, now):
            raise TooManyEvents("You have published too many events.", seconds)
        if seconds := self._all.find_wait(size, now):
            raise TooManyEvents("Clients have published too many events.", seconds)
        share.spend(size)
        self._all.spend(size)
        self._users.pop(user, None)
        self._users[user] = share
        self._forget(now - _HOUR)

    def _forget(self, before: float) -> None:
        """Remove the quotas that are full again."""
        while self._users[oldest := next(iter(self._users))].time < before:
            del self._users[oldest]


@dataclass(slots=True)
class _Share:
    """A quota in events and bytes that refills over time."""

    max_events: int
    max_bytes: int
    time: float
    events: float = 0
    bytes: float = 0
    """Bytes charged and not yet refilled."""

    def find_wait(self, size: int, now: float) -> float:
        """Return the seconds until an event of this size fits the quota; 0 if it fits now."""
        part, self.time = (now - self.time) / _HOUR, now
        self.events = max(0, self.events - part * self.max_events)
        self.bytes = max(0, self.bytes - part * self.max_bytes)
        of_events = (self.events + 1 - self.max_events) / self.max_events
        of_bytes = (self.bytes + size - self.max_bytes) / self.max_bytes
        return max(0, of_events, of_bytes) * _HOUR

    def spend(self, size: int) -> None:
        self.events += 1
        self.bytes += size


MOST_EVENTS = 500
"""Maximum number of events in one response."""

_MOST_NAMES = 50
_OWN_SOURCES = frozenset({"resources", "plans", "runs", "tools"})
"""Reserved sources of the server, which clients cannot use."""

_LONGEST_URI = 2_000

FindAccess = Callable[[Actor, AccessAction], Access]


class EventAccess:
    """Reads and publishes events on behalf of callers, within their permissions.

    All methods raise `Misuse` for invalid arguments, and `StoreFailed`.
    """

    def __init__(
        self, events: ResourceEvents, find_access: FindAccess, quota: PublishQuota
    ) -> None:
        self._events = events
        self._find_access = find_access
        self._quota = quota

    def build_filter(
        self,
        caller: Caller,
        *,
        sources: Sequence[str] = (),
        detail_types: Sequence[str] = (),
        prefix: str = "",
    ) -> EventFilter:
        """Return a filter for the events that a caller requests and may read.

        A conversation without an owner is visible to every caller who knows its URI, as its thread
        is.
        """
        if max(len(sources), len(detail_types)) > _MOST_NAMES:
            raise Misuse(f"Name at most {_MOST_NAMES} sources and types.")
        return EventFilter(
            sources=sources,
            detail_types=detail_types,
            prefix=prefix,
            access=self._find_access(_identify(caller, prefix), "read"),
        )

    async def read(
        self, filter: EventFilter, after: Cursor | None = None, *, limit: int = 100
    ) -> EventPage:
        """Return the next page of events after a cursor. Raises `CursorGone`."""
        if not 1 <= limit <= MOST_EVENTS:
            raise Misuse(f"limit is a number from 1 to {MOST_EVENTS}.")
        return await self._events.read(after or START, filter, limit=limit)

    def follow(
        self, filter: EventFilter, after: Cursor | None = None
    ) -> AsyncGenerator[EventPage, None]:
        """Yield pages of events after a cursor, then each new event; by default, only new events.

        Yields empty pages, too. Raises `CursorGone`.
        """
        return self._events.follow_pages(after or None, filter)

    async def publish(
        self,
        caller: Caller,
        *,
        detail_type: str,
        resources: Sequence[str],
        source: str,
        detail: JsonObject | None = None,
    ) -> ResourceEvent:
        """Publish a client's event about resources that the caller may write.

        Raises `AccessDenied`, `TooManyEvents`, or `LimitExceeded` if the event is too large.
        """
        if not source.isascii() or source != source.strip():
            raise Misuse(
                f"The source of an event is a name in ASCII without spaces around it, such as "
                f"'shop', and this is {source[:80]!r}."
            )
        if source.lower() in _OWN_SOURCES:
            raise Misuse(f"Events of {source!r} are the server's own: choose another source.")
        if not 1 <= len(resources) <= MOST_RESOURCES:
            raise Misuse(f"An event is about 1 to {MOST_RESOURCES} resources.")
        identifiers = tuple(parse_identifier(_check_uri(uri)) for uri in resources)
        access = self._find_access(_identify(caller, resources[0]), "write")
        await require(access, map(str, identifiers))
        event = ResourceEvent(
            detail_type=detail_type, resources=identifiers, source=source, detail=detail or {}
        )
        event.check()
        self._quota.spend(caller.user, event)
        await self._events.publish(event)
        return event


def _identify(caller: Caller, uri: str) -> Actor:
    """Return the actor for a resource and its descendants.

    Raises `Misuse` if the URI is invalid.
    """
    actor = build_actor(caller.user)
    if not uri:
        return actor
    parse_identifier(_check_uri(uri))
    first = strip_namespace(uri).partition("/")[0]
    if caller.user is None and first.startswith(f"{CONVERSATION}."):
        return replace(actor, conversation=first)
    return actor


def _check_uri(uri: str) -> str:
    if len(uri) > _LONGEST_URI:
        raise Misuse(f"The URI of a resource has at most {_LONGEST_URI} characters.")
    return uri
