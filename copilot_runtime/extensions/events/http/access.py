"""Who gets which events: those who may read a resource get the events about it, and nobody else.

The only place that decides it for requests. An event about no resource is for the program itself.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace

from copilot_runtime.api.bus import START, Cursor
from copilot_runtime.api.caller import Caller
from copilot_runtime.base.errors import Misuse
from copilot_runtime.base.jsonvalue import JsonObject
from copilot_runtime.extensions.events import (
    MOST_RESOURCES,
    EventFilter,
    EventPage,
    ResourceEvent,
    ResourceEvents,
)
from copilot_runtime.extensions.events.http.quota import PublishQuota
from copilot_runtime.extensions.knowledge.access import Access, AccessAction, Actor, require
from copilot_runtime.extensions.knowledge.identifiers import parse_identifier, strip_namespace
from copilot_runtime.extensions.knowledge.policies.ownership import CONVERSATION, build_actor

MOST_EVENTS = 500
"""Events in one answer."""

_MOST_NAMES = 50
_OWN_SOURCES = frozenset({"resources", "plans", "runs", "tools"})
"""Those of the server itself: nobody may pretend to be it."""

_LONGEST_URI = 2_000

FindAccess = Callable[[Actor, AccessAction], Access]


class EventAccess:
    """Has events for those who may see them, and publishes those of clients.

    All methods raise `Misuse` for what cannot be meant, and `StoreFailed`.
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
        """Return which events somebody wants, and may see.

        A conversation of nobody is there for whoever knows its URI, as its thread is.
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
        """Return the next events behind a cursor. Raises `CursorGone`."""
        if not 1 <= limit <= MOST_EVENTS:
            raise Misuse(f"limit is a number from 1 to {MOST_EVENTS}.")
        return await self._events.read(after or START, filter, limit=limit)

    def follow(
        self, filter: EventFilter, after: Cursor | None = None
    ) -> AsyncGenerator[EventPage, None]:
        """Yield the events behind a cursor, and then each that happens; by default, only those.

        Pages without events come, too. Raises `CursorGone`.
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
        """Publish what a client tells of resources that it may write.

        Raises `AccessDenied`, `LimitExceeded` for a huge event, and `TooManyEvents`.
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
    """Return who asks for what is below a resource. Raises `Misuse` for what names none."""
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
