"""Answer one HTTP request: in one body, or in a stream of payloads."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from starlette.types import Send

from copilot_runtime.jsontext import dumps
from copilot_runtime.security.cors import RawHeaders
from copilot_runtime.transports.body import BadRequest
from copilot_runtime.transports.graphql.errors import refusal
from copilot_runtime.transports.graphql.framing import (
    GRAPHQL_JSON,
    Framing,
    framing_for,
    json_type_for,
)
from copilot_runtime.transports.streaming import UNBUFFERED, Stream


class Reply:
    """What is written to one client, in the encoding its Accept header asks for."""

    def __init__(
        self, send: Send, *, accept: str, headers: RawHeaders, write_timeout: float
    ) -> None:
        self._send = send
        self._framing = framing_for(accept)
        self._json_type = json_type_for(accept)
        self._headers = headers
        self._write_timeout = write_timeout

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
        await self._whole(status, dumps(payload), [(b"content-type", self._json_type)])

    async def refuse(self, error: BadRequest) -> None:
        """Answer a request that cannot be read."""
        extra: RawHeaders = [(b"content-type", self._json_type)]
        if error.allow:
            extra.append((b"allow", error.allow.encode()))
        status = error.status
        if status == 400 and self._json_type != GRAPHQL_JSON:
            status = 200
        body = dumps(refusal(error.message, error.code))
        await self._whole(status, body, extra)

    async def empty(self, status: int, headers: RawHeaders) -> None:
        self._headers = headers
        await self._whole(status, b"", [])

    @asynccontextmanager
    async def stream(self) -> AsyncGenerator["Payloads", None]:
        """Begin a streamed answer, and end it well or not at all."""
        framing = self._framing
        assert framing is not None, "require_stream comes first"
        await self._send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [
                    (b"content-type", framing.content_type),
                    *UNBUFFERED,
                    *self._headers,
                ],
            }
        )
        stream = Stream(self._send, self._write_timeout)
        try:
            yield Payloads(stream, framing)
        finally:
            stream.close()

    async def _whole(self, status: int, body: bytes, headers: RawHeaders) -> None:
        length = (b"content-length", str(len(body)).encode())
        await self._send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [*headers, length, *self._headers],
            }
        )
        await self._send({"type": "http.response.body", "body": body})


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
