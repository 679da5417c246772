"""The event service: publishes resource events, and subscribes to them."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.extensions.events.http.access import EventAccess
from copilot_runtime.extensions.grpc.protos import event_pb2
from copilot_runtime.extensions.grpc.service import (
    Call,
    RpcMethod,
    RpcService,
    build_struct,
    check_text,
    read_struct,
)
from copilot_runtime.extensions.knowledge.events import EventPage, ResourceEvent
from copilot_runtime.transports.transport import Services

_EVENTS_AT_ONCE = 20
"""Events in one message: a message per event would cost twenty times as much."""


class EventService(RpcService):
    """`copilot.event.v1.Event`"""

    descriptor = event_pb2.DESCRIPTOR.services_by_name["Event"]

    def __init__(self, services: Services) -> None:
        events = services.parts.find(EventAccess)
        if events is None:
            raise ConfigurationFailed(
                "grpc.services names 'event', and there are no events.",
                hint="Events are of knowledge, plans and runs: set knowledge.storage or a planner.",
            )
        self._events = events

    def list_methods(self) -> Mapping[str, RpcMethod]:
        return {
            "Publish": RpcMethod(run=self.publish, scope="data:write"),
            "Subscribe": RpcMethod(run=self.subscribe, scope="data:read"),
        }

    async def publish(
        self, request: event_pb2.PublishRequest, call: Call
    ) -> event_pb2.PublishResponse:
        """Publish an event about resources that the caller may write."""
        event = await self._events.publish(
            call.caller,
            detail_type=request.detail_type,
            resources=[*request.resources],
            source=request.source or "client",
            detail=read_struct(request.detail) if request.HasField("detail") else None,
        )
        return event_pb2.PublishResponse(id=event.id)

    async def subscribe(
        self, request: event_pb2.SubscribeRequest, call: Call
    ) -> AsyncGenerator[event_pb2.SubscribeResponse, None]:
        """Yield the events that the caller may read. The first message has the start cursor."""
        filter = self._events.build_filter(
            call.caller,
            sources=[*request.sources],
            detail_types=[*request.detail_types],
            prefix=request.prefix,
        )
        after = check_text("after", request.after, 1000) or None
        cursor: str | None = None
        async with aclosing(self._events.follow(filter, after)) as pages:
            async for page in pages:
                if call.is_closing():
                    return
                if page.cursor == cursor:
                    continue
                cursor = page.cursor
                for message in _encode_page(page):
                    yield message


def _encode_page(page: EventPage) -> list[event_pb2.SubscribeResponse]:
    events = page.events
    parts = [events[i : i + _EVENTS_AT_ONCE] for i in range(0, len(events), _EVENTS_AT_ONCE)]
    messages = [
        event_pb2.SubscribeResponse(events=map(_encode_event, part), cursor=part[-1].cursor)
        for part in parts
    ]
    if not messages:
        return [event_pb2.SubscribeResponse(cursor=page.cursor)]
    messages[-1].cursor = page.cursor
    return messages


def _encode_event(event: ResourceEvent) -> event_pb2.ResourceEvent:
    return event_pb2.ResourceEvent(
        id=event.id,
        source=event.source,
        time=event.time,
        detail_type=event.detail_type,
        resources=map(str, event.resources),
        detail=build_struct(event.detail) if event.detail else None,
    )
