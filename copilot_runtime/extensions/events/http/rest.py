"""The OpenAPI description of the routes for events; `EventsEndpoint` handles the requests."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from copilot_runtime.transports.rest_route import (
    Problem,
    declare_routes,
    describe_body,
    describe_stream,
)

_CONVERSATION = "common.User.ann/common.Conversation.t1"
_CURSOR = "3f2a9c1b-42"


class EventModel(BaseModel):
    """Something was done to resources."""

    id: str = Field(examples=["5b1f3a52-8f1e-4f0a-9d53-0c1f1f1d7c11"])
    source: str = Field(examples=["runs"])
    time: str = Field(examples=["2026-11-23T03:00:00+00:00"])
    detail_type: str = Field(examples=["RUN_FINISHED"])
    resources: list[str] = Field(examples=[[_CONVERSATION]])
    detail: dict[str, Any] = Field(default={}, examples=[{"run_id": "run-1"}])
    cursor: str = Field(examples=[_CURSOR])


class EventPageModel(BaseModel):
    """Events, the oldest first; `cursor` is the `after` of the next page."""

    events: list[EventModel]
    cursor: str = Field(examples=[_CURSOR])
    last: bool = Field(description="Whether there were no further events at that moment.")


class EventRequest(BaseModel):
    """An event that a client publishes about resources that it may write."""

    detail_type: str = Field(examples=["ORDER_PLACED"])
    resources: list[str] = Field(examples=[["common.User.ann/shop.Order.o1"]])
    source: str = Field(default="client", examples=["shop"])
    detail: dict[str, Any] = Field(default={}, examples=[{"sum": 12.5}])


class PublishResult(BaseModel):
    """The event that was published."""

    success: bool = Field(examples=[True])
    id: str = Field(examples=["5b1f3a52-8f1e-4f0a-9d53-0c1f1f1d7c11"])


class EventQuery(BaseModel):
    """A filter for events; omitted fields match every event."""

    after: str = Field(
        "",
        description="Cursor of the last event that was read; 0 for all stored events. Default: 0, "
        "or only new events in a stream.",
    )
    source: list[str] = Field([], description="Source: resources, plans, runs, or a program.")
    type: list[str] = Field([], description="Type, such as RESOURCE_PUT or TASK_ENDED.")
    prefix: str = Field("", description="URI of a resource, including those below it.")
    limit: str = Field("", description="Maximum number of events.")


_STREAM = {
    **describe_stream(
        "A page; with Accept: text/event-stream, server-sent events whose ids are the cursors."
    ),
    410: {"model": Problem, "description": "The cursor has expired: resume at oldest."},
}


@declare_routes("events", "/events")
def rest_routes(events: APIRouter) -> None:
    """Declare the routes of events."""

    @events.get("", response_model=EventPageModel, responses=_STREAM)
    async def read_events(query: Annotated[EventQuery, Query()]) -> None:
        """Read events about resources after a cursor, or follow new events."""

    @events.post(
        "",
        response_model=PublishResult,
        status_code=201,
        openapi_extra=describe_body(EventRequest),
    )
    async def publish_event() -> None:
        """Publish an event about resources that the caller may write."""
