"""`GET events`: a page of JSON, or server-sent events. `POST events` publishes one."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, cast
from urllib.parse import parse_qs

from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from copilot_runtime.base.errors import CopilotError
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.base.jsonvalue import JsonObject
from copilot_runtime.extensions.events.http.access import MOST_EVENTS, EventAccess
from copilot_runtime.extensions.knowledge.events import (
    CursorGone,
    EventPage,
    encode_event,
)
from copilot_runtime.transports.body import BadRequest
from copilot_runtime.transports.request import Request
from copilot_runtime.transports.streaming import Stream, run_until_disconnect
from copilot_runtime.transports.transport import (
    Refusal,
    Services,
    Transport,
    check_method,
    find_data_scope,
)

_HEADERS = {"cache-control": "private, no-cache", "x-content-type-options": "nosniff"}


class EventsEndpoint(Transport):
    """Handles HTTP requests for events."""

    paths = ("events",)

    def __init__(self, services: Services) -> None:
        self._events = services.parts.get(EventAccess)
        self._runtime = services.runs.runtime

    def routes(self, path: str, router: ASGIApp) -> Sequence[BaseRoute]:
        from copilot_runtime.extensions.events.http.rest import rest_routes  # imports FastAPI

        return rest_routes(path, router)

    def find_scope(self, request: Request) -> str:
        return find_data_scope(request)

    async def accepts(self, request: Request) -> bool:
        return not request.is_websocket

    async def __call__(self, request: Request) -> None:
        check_method(request, "GET", "POST")
        if request.method == "POST":
            await self._publish(self._events, request)
        else:
            await self._read(self._events, request)

    def refuse(self, error: Exception) -> Refusal:
        refusal = super().refuse(error)
        if not isinstance(error, CursorGone):
            return refusal
        return Refusal(refusal.status, {**refusal.body, "oldest": error.oldest})

    async def _read(self, events: EventAccess, request: Request) -> None:
        """Respond with a page, or with a stream until the client disconnects."""
        query = parse_qs(request.query_string, keep_blank_values=True)
        filter = events.build_filter(
            request.caller,
            sources=_read_names(query, "source"),
            detail_types=_read_names(query, "type"),
            prefix=_read_one(query, "prefix"),
        )
        # browsers send this header when they reconnect to the same URL
        after = request.headers.get("last-event-id") or _read_one(query, "after") or None
        if "text/event-stream" in request.headers.get("accept", ""):
            await self._stream(events.follow(filter, after), request)
            return
        limit = _read_limit(_read_one(query, "limit"))
        page = encode_page(await events.read(filter, after, limit=limit))
        await request.respond_json(200, page, _HEADERS)

    async def _stream(self, pages: AsyncGenerator[EventPage, None], request: Request) -> None:
        async with aclosing(pages):
            first = await anext(pages)  # an invalid cursor raises here, before the headers
            writing = self._write(first, pages, request)
            await run_until_disconnect(writing, request.receive, None)

    async def _write(
        self, first: EventPage, pages: AsyncGenerator[EventPage, None], request: Request
    ) -> None:
        """Write each event with its cursor, or only a cursor if no event matches."""
        async with request.stream_events(headers=_HEADERS) as stream:
            await _write_page(stream, first)
            cursor = first.cursor
            try:
                async for page in pages:
                    if self._runtime.is_closing:
                        break
                    if page.cursor != cursor:
                        cursor = page.cursor
                        await _write_page(stream, page)
            except CopilotError as error:
                body = self.refuse(error).body
                await stream.write(b"event: error\ndata: %b\n\n" % dumps(body))
            await stream.write(b"", last=True)

    async def _publish(self, events: EventAccess, request: Request) -> None:
        """Publish a client's event."""
        fields = _read_fields(await request.json_object())
        event = await events.publish(request.caller, **fields)
        await request.respond_json(201, {"success": True, "id": event.id}, _HEADERS)


def encode_page(page: EventPage) -> JsonObject:
    """Return a page as JSON, with a cursor per event."""
    events = [{**encode_event(event), "cursor": event.cursor} for event in page.events]
    return {"events": events, "cursor": page.cursor, "last": page.is_last}


async def _write_page(stream: Stream, page: EventPage) -> None:
    for event in page.events:
        frame = b"id: %b\ndata: %b\n\n" % (event.cursor.encode(), dumps(encode_event(event)))
        await stream.write(frame)
    if not page.events or page.events[-1].cursor != page.cursor:
        await stream.write(_frame_cursor(page.cursor))


def _frame_cursor(cursor: str) -> bytes:
    """Return an SSE frame that only updates the client's position, without an event."""
    return b"id: %b\n\n" % cursor.encode()


def _read_names(query: Mapping[str, Sequence[str]], name: str) -> Sequence[str]:
    """Return the values of a query parameter, which may be repeated or comma-separated."""
    return [
        part.strip() for text in query.get(name, ()) for part in text.split(",") if part.strip()
    ]


def _read_one(query: Mapping[str, Sequence[str]], name: str) -> str:
    return query.get(name, [""])[-1].strip()


def _read_limit(text: str) -> int:
    if not text:
        return 100
    is_number = text.isascii() and text.isdecimal() and len(text) <= 9
    if not is_number or not 1 <= int(text) <= MOST_EVENTS:
        raise BadRequest(f"limit is a number from 1 to {MOST_EVENTS}, such as 100.")
    return int(text)


def _read_fields(body: JsonObject) -> dict[str, Any]:
    """Return the arguments of `EventAccess.publish` from a body. Raises `BadRequest`."""
    resources, detail = body.get("resources"), body.get("detail")
    if not isinstance(resources, list) or not all(
        isinstance(uri, str) for uri in cast("list[Any]", resources)
    ):
        raise BadRequest("resources is a list of the URIs of resources.")
    if not isinstance(detail, dict | None):
        raise BadRequest("detail is an object.")
    texts = {name: body.get(name, "client") for name in ("source", "detail_type")}
    if any(not isinstance(text, str) for text in texts.values()) or "detail_type" not in body:
        raise BadRequest("detail_type is a text such as ORDER_PLACED, and so is source.")
    return {**texts, "resources": resources, "detail": detail}
