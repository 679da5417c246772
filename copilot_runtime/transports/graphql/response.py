"""Send GraphQL responses: as one body, or as a stream of payloads in the dialect of v1 clients.

Multipart: https://github.com/graphql/graphql-over-http/blob/main/rfcs/IncrementalDelivery.md.
Each write ends with the next delimiter, because urql regards a part as complete only after the
following delimiter; with delimiters first, everything would be shown one part late.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from typing import Any

from graphql.execution import (
    IncrementalDeferResult,
    IncrementalStreamResult,
    InitialIncrementalExecutionResult,
    PendingResult,
    SubsequentIncrementalExecutionResult,
)

from copilot_runtime.base.errors import CopilotError
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.runtime.run import Run
from copilot_runtime.transports import trace_ids
from copilot_runtime.transports.body import BadRequest
from copilot_runtime.transports.graphql.errors import (
    CLIENT_VERSION,
    build_failed_response,
    build_root_error,
    format_error,
    is_chat,
)
from copilot_runtime.transports.request import Request
from copilot_runtime.transports.streaming import Stream

_GRAPHQL_JSON = "application/graphql-response+json"
_ANY_MULTIPART = ("multipart/mixed", "multipart/*", "*/*")

_VERSION = re.compile(r"[\w.+-]{1,64}")


class GraphQLResponse:
    """Responds to one request in the encoding that its Accept header requests."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._accept = request.headers.get("accept", "")
        self._headers = _version_headers(request.headers)
        self.accepts_events = "text/event-stream" in self._accept
        """Whether the client accepts server-sent events."""
        self.sends_events = False
        """Whether a body is sent as an event, as a client expects that subscribes over HTTP."""

    def add_trace(self, run: Run, properties: object) -> Mapping[str, Any]:
        """Add a run's trace id to the headers, and return it as extensions, if requested."""
        asks = properties if isinstance(properties, dict) else {}
        trace_id = trace_ids.find_trace_id(run, self._request.headers, asks)
        if not trace_id:
            return {}
        self._headers = {**self._headers, **trace_ids.build_headers(trace_id, self._request)}
        return {"trace": {"traceId": trace_id}}

    def require_stream(self) -> "Framing":
        """Return the framing for a stream: multipart if accepted, else server-sent events.

        Raises `BadRequest` (406) if the client accepts neither.
        """
        if not self._accept or any(name in self._accept for name in _ANY_MULTIPART):
            return MULTIPART
        if self.accepts_events:
            return EVENT_STREAM
        raise BadRequest(
            "This operation is answered in parts: accept multipart/mixed or "
            "text/event-stream, or leave out @defer and @stream.",
            406,
            "NOT_ACCEPTABLE",
        )

    async def json(
        self,
        payload: Mapping[str, Any],
        status: int = 200,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Respond with one body; a 400 becomes a 200 for clients that do not expect it.

        With `sends_events`, it is an event.
        """
        if self.sends_events and status in (200, 400):
            body = EVENT_STREAM.begin(dumps(payload)) + EVENT_STREAM.closing
            content_type, sent = EVENT_STREAM.content_type, {**self._headers, **(headers or {})}
            await self._request.respond(200, body, content_type=content_type, headers=sent)
            return
        expects_status = _GRAPHQL_JSON in self._accept
        if status == 400 and not expects_status:
            status = 200
        media_type = _GRAPHQL_JSON if expects_status else "application/json"
        await self._request.respond(
            status,
            dumps(payload),
            content_type=f"{media_type}; charset=utf-8",
            headers={**self._headers, **(headers or {})},
        )

    async def fail(self, error: CopilotError, key: str | None) -> None:
        """Reject a request: with a failed response for a chat, so that the frontend shows it.

        Other requests get a GraphQL error; `key` is the root field.
        """
        request = self._request
        request.set_retry_after(error)
        body = await request.body()
        if is_chat(request, body):
            await self.json(build_failed_response(error.report(), body))
        else:
            await self.json(build_root_error(error, key))

    async def refuse(self, error: BadRequest) -> None:
        """Respond to a malformed request."""
        errors = [{"message": error.message, "extensions": {"code": error.code}}]
        await self.json({"errors": errors}, error.status, error.headers)

    def stream(
        self, framing: "Framing", keep_alive: float = 0.0
    ) -> AbstractAsyncContextManager[Stream]:
        """Begin a streamed response on entry; after an error, it stays incomplete.

        A comment of server-sent events follows each `keep_alive` seconds of silence.
        """
        return self._request.stream(
            framing.content_type, headers=self._headers, keep_alive=keep_alive, comment=b":\n\n"
        )


@dataclass(frozen=True, slots=True)
class Framing:
    """The framing of JSON payloads on the wire."""

    content_type: str
    opening: bytes
    part: Callable[[bytes], bytes]
    closing: bytes

    def begin(self, payload: bytes) -> bytes:
        """Return the beginning of a body, with its first payload."""
        return self.opening + self.part(payload)

    def join(self, payloads: Sequence[bytes], *, last: bool) -> bytes:
        """Return payloads that are written at once. With `last`, the body ends after them."""
        body = b"".join(map(self.part, payloads))
        return body + self.closing if last else body


def _multipart_part(payload: bytes) -> bytes:
    return (
        b"\r\nContent-Type: application/json; charset=utf-8\r\n"
        b"Content-Length: %d\r\n\r\n%b\r\n---" % (len(payload), payload)
    )


def _event(payload: bytes) -> bytes:
    return b"event: next\ndata: %b\n\n" % payload


MULTIPART = Framing('multipart/mixed; boundary="-"', b"\r\n---", _multipart_part, b"--\r\n")
EVENT_STREAM = Framing("text/event-stream", b":\n\n", _event, b"event: complete\ndata:\n\n")
"""Server-sent events, separated by LF LF, because the client does not parse CRLF."""


def _version_headers(headers: Mapping[str, str]) -> Mapping[str, str]:
    """Return the client's version as header; v1 clients warn if the runtime's differs."""
    version = headers.get(CLIENT_VERSION, "")
    return {"x-copilotkit-runtime-version": version} if _VERSION.fullmatch(version) else {}


Path = list[str | int]
Delivered = list[tuple[Path, Any]]
"""The values of one payload, each with its path."""


@dataclass(slots=True)
class _Stream:
    """A stream or a deferred part; `count` is the number of delivered items, once it is known."""

    path: Path
    label: str | None
    count: int | None = None

    def measure(self, delivered: Delivered) -> int:
        """Return the number of delivered items, including those delivered with its parent."""
        if self.count is None:
            self.count = _count_items(self.path, delivered)
        return self.count


class PathDialect:
    """Translates graphql-core's results of one operation to patches with paths and indexes."""

    def __init__(self) -> None:
        self._streams: dict[str, _Stream] = {}

    def first(self, result: InitialIncrementalExecutionResult) -> dict[str, Any]:
        """Return the payload of the first result."""
        self._announce(result.pending)
        self._measure([([], result.data)])
        payload: dict[str, Any] = {"data": result.data}
        if result.errors:
            payload["errors"] = [format_error(error) for error in result.errors]
        return {**payload, "hasNext": result.has_next}

    def next(self, result: SubsequentIncrementalExecutionResult) -> dict[str, Any]:
        """Return the payload of a later result."""
        self._announce(result.pending or ())  # a stream may be announced and delivered at once
        delivered: Delivered = []
        patches = [self._patch(change, delivered) for change in result.incremental or ()]
        self._measure(delivered)
        for done in result.completed or ():
            stream = self._streams.pop(done.id)
            if done.errors:
                errors = [format_error(error) for error in done.errors]
                patches.append({"data": None, "path": stream.path, "errors": errors})
        payload: dict[str, Any] = {"incremental": patches} if patches else {}
        return {**payload, "hasNext": result.has_next}

    def _patch(
        self, change: IncrementalDeferResult | IncrementalStreamResult, delivered: Delivered
    ) -> dict[str, Any]:
        stream = self._streams[change.id]
        path = [*stream.path, *(change.sub_path or ())]
        if isinstance(change, IncrementalStreamResult):
            start = stream.measure(delivered)
            stream.count = start + len(change.items)
            delivered += [([*path, start + at], item) for at, item in enumerate(change.items)]
            patch: dict[str, Any] = {"items": change.items, "path": [*path, start]}
        else:
            delivered.append((path, change.data))
            patch = {"data": change.data, "path": path}
        if stream.label:
            patch["label"] = stream.label
        if change.errors:
            patch["errors"] = [format_error(error) for error in change.errors]
        return patch

    def _announce(self, pending: Iterable[PendingResult]) -> None:
        for part in pending:
            self._streams[part.id] = _Stream(part.path, part.label)

    def _measure(self, delivered: Delivered) -> None:
        """Determine the initial item counts of the announced streams from this payload."""
        for stream in self._streams.values():
            stream.measure(delivered)


def _count_items(path: Path, delivered: Delivered) -> int:
    """Return the number of list items delivered with the parent (`initialCount`)."""
    for base, value in delivered:
        if path[: len(base)] == base:
            with suppress(KeyError, IndexError, TypeError):  # the parent is in another value
                for key in path[len(base) :]:
                    value = value[key]
                if isinstance(value, list):
                    return len(value)
    return 0
