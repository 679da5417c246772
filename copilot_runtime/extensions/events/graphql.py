"""Events in GraphQL: the seed's publish and subscribe, with replay from a cursor.

A caller who may read a resource receives its events, as in REST. A runtime that keeps no
events has none of these fields, and nothing here is imported.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing

import strawberry
from strawberry import UNSET

from copilot_runtime.extensions.events.http.access import EventAccess
from copilot_runtime.extensions.knowledge.events import EventFilter, ResourceEvent
from copilot_runtime.transports.graphql.context import Context
from copilot_runtime.transports.graphql.errors import hide_details
from copilot_runtime.transports.graphql.schema import CopilotInfo
from copilot_runtime.transports.graphql.types import JSONObject

_MOST_FIELDS = 10
"""Maximum number of event fields in one request: each may read many events."""


@strawberry.type(description="An event about resources; detail has further information")
class RuntimeEvent:
    id: str
    source: str = strawberry.field(description="resources, runs, plans, or a program")
    time: str
    detail_type: str = strawberry.field(description="Such as RESOURCE_PUT or TASK_ENDED")
    resources: list[str]
    detail: JSONObject
    cursor: str = strawberry.field(
        description="The position after which a later subscription resumes"
    )


@strawberry.type(description="Events, the oldest first; cursor is the after of the next page")
class RuntimeEventPage:
    events: list[RuntimeEvent]
    cursor: str
    last: bool = strawberry.field(description="Whether there were no further events at that moment")


@strawberry.type(description="Whether an event was published, and its id")
class PublishResponse:
    success: bool
    id: str


@strawberry.input(description="An event about resources that the client may write")
class PublishEventInput:
    detail_type: str
    resources: list[str]
    source: str = "client"
    detail: JSONObject | None = UNSET


@strawberry.type
class EventQuery:
    @strawberry.field(description="Events after a cursor; without one, all stored events")
    async def events(
        self,
        info: CopilotInfo,
        sources: list[str] | None = UNSET,
        detail_types: list[str] | None = UNSET,
        prefix: str = "",
        after: str = "",
        limit: int = 100,
    ) -> RuntimeEventPage:
        events = _ask(info.context)
        filter = _build_filter(info.context, events, sources, detail_types, prefix)
        page = await events.read(filter, after, limit=limit)
        return RuntimeEventPage(
            events=[*map(_build_event, page.events)], cursor=page.cursor, last=page.is_last
        )


@strawberry.type
class EventMutation:
    @strawberry.mutation(description="Publish an event about resources that the caller may write")
    async def publish_event(self, info: CopilotInfo, event: PublishEventInput) -> PublishResponse:
        context = info.context
        published = await _ask(context).publish(
            context.caller,
            detail_type=event.detail_type,
            resources=event.resources,
            source=event.source,
            detail=event.detail or {},
        )
        return PublishResponse(success=True, id=published.id)


@strawberry.type
class EventSubscription:
    @strawberry.subscription(
        description="Events of these sources and types, about a resource and those below it, after "
        "the cursor after, or from now on"
    )
    async def events(
        self,
        info: CopilotInfo,
        sources: list[str] | None = UNSET,
        detail_types: list[str] | None = UNSET,
        prefix: str = "",
        after: str | None = UNSET,
    ) -> AsyncGenerator[RuntimeEvent, None]:
        runtime = info.context.runs.runtime
        try:
            events = _ask(info.context)
            filter = _build_filter(info.context, events, sources, detail_types, prefix)
            async with aclosing(events.follow(filter, after or None)) as pages:
                async for page in pages:
                    for event in page.events:
                        yield _build_event(event)
                    if runtime.is_closing:
                        return
        except Exception as error:  # the client gets it without details
            raise hide_details(error) from None


ROOTS = {"Query": EventQuery, "Mutation": EventMutation, "Subscription": EventSubscription}


def _ask(context: Context) -> EventAccess:
    """Return the events. Raises `LimitExceeded` for too many fields of one request."""
    context.count_field("events", _MOST_FIELDS)
    return context.services.parts.get(EventAccess)


def _build_filter(
    context: Context,
    events: EventAccess,
    sources: list[str] | None,
    detail_types: list[str] | None,
    prefix: str,
) -> EventFilter:
    return events.build_filter(
        context.caller, sources=sources or (), detail_types=detail_types or (), prefix=prefix
    )


def _build_event(event: ResourceEvent) -> RuntimeEvent:
    return RuntimeEvent(
        id=event.id,
        source=event.source,
        time=event.time,
        detail_type=event.detail_type,
        resources=[str(identifier) for identifier in event.resources],
        detail=JSONObject({**event.detail}),
        cursor=event.cursor,
    )
