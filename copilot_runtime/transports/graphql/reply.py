"""Answer one HTTP request: in one body, or in a stream of payloads."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from copilot_runtime.jsontext import dumps
from copilot_runtime.transports.body import BadRequest
from copilot_runtime.transports.graphql.errors import refusal
from copilot_runtime.transports.graphql.framing import (
    GRAPHQL_JSON,
    Framing,
    framing_for,
    json_type_for,
)
from copilot_runtime.transports.request import Request
from copilot_runtime.transports.streaming import Stream


class GraphQLResponse:
    """Answers one request in the encoding its Accept header asks for."""

    def __init__(
        self, request: Request, *, headers: Mapping[str, str], write_timeout: float
    ) -> None:
        accept = request.headers.get("accept", "")
        self._request = request
        self._headers = headers
        self._write_timeout = write_timeout
        self._framing = framing_for(accept)
        self._json_type = json_type_for(accept)

    def require_stream(self) -> None:
        """Raise `BadRequest` (406) when the client takes no kind of stream."""
        if self._framing is None:
            raise BadRequest(
                "This operation is answered in parts: accept multipart/mixed or "
                "text/event-stream, or leave out @defer and @stream.",
                406,
                "NOT_ACCEPTABLE",
            )

    async def json(self, payload: Mapping[str, Any], bad: bool = False) -> None:
        """Answer in one body; a bad request is 400 only to clients that expect such a status."""
        status = 400 if bad and self._json_type == GRAPHQL_JSON else 200
        await self._respond(status, payload, self._headers)

    async def refuse(self, error: BadRequest) -> None:
        """Answer a request that cannot be read."""
        status = error.status
        if status == 400 and self._json_type != GRAPHQL_JSON:
            status = 200
        headers = {**self._headers, "allow": error.allow} if error.allow else self._headers
        await self._respond(status, refusal(error.message, error.code), headers)

    @asynccontextmanager
    async def stream(self) -> AsyncGenerator["Payloads", None]:
        """Begin a streamed answer, and end it well or not at all."""
        framing = self._framing
        assert framing is not None, "require_stream comes first"
        async with self._request.stream(
            framing.content_type, write_timeout=self._write_timeout, headers=self._headers
        ) as stream:
            yield Payloads(stream, framing)

    async def _respond(
        self, status: int, payload: Mapping[str, Any], headers: Mapping[str, str]
    ) -> None:
        await self._request.respond(
            status, dumps(payload), content_type=self._json_type, headers=headers
        )


class Payloads:
    """The payloads of a streamed answer, cut as its framing says."""

    def __init__(self, stream: Stream, framing: Framing) -> None:
        self._stream = stream
        self._framing = framing
        self._opening = framing.opening

    async def send(self, *payloads: bytes, last: bool = False) -> None:
        """Write payloads of JSON bytes at once. With `last`, the body ends after them."""
        parts = [self._framing.part(payload) for payload in payloads]
        if self._opening:
            parts.insert(0, self._opening)
            self._opening = b""
        if last:
            parts.append(self._framing.closing)
        await self._stream.write(parts[0] if len(parts) == 1 else b"".join(parts), last=last)

    async def send_json(self, payload: Mapping[str, Any], *, last: bool = False) -> None:
        await self.send(dumps(payload), last=last)
