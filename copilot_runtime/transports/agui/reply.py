"""Answer one AG-UI request: with JSON, or with a stream of events."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from starlette.types import Send

from copilot_runtime.jsontext import dumps
from copilot_runtime.security.cors import RawHeaders
from copilot_runtime.transports.streaming import UNBUFFERED, Stream

KEEP_ALIVE = b": keep-alive\n\n"


class Reply:
    """What is written to one client. Times are in seconds."""

    def __init__(
        self, send: Send, headers: RawHeaders, *, write_timeout: float, keep_alive: float
    ) -> None:
        self._send = send
        self._headers = headers
        self._write_timeout = write_timeout
        self._keep_alive = keep_alive
        self.begun = False

    async def json(self, status: int, body: Any, headers: Mapping[str, str] | None = None) -> None:
        """Answer in one body; None is no body at all."""
        text = b"" if body is None else dumps(body)
        kind: RawHeaders = [] if body is None else [(b"content-type", b"application/json")]
        if status != 204:
            kind.append((b"content-length", str(len(text)).encode()))
        extra = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
        every = [*kind, *extra, *self._headers]
        self.begun = True
        await self._send({"type": "http.response.start", "status": status, "headers": every})
        await self._send({"type": "http.response.body", "body": text})

    @asynccontextmanager
    async def stream(self) -> AsyncGenerator[Stream, None]:
        """Begin a stream of events, and end it well or not at all."""
        kind = (b"content-type", b"text/event-stream")
        every = [kind, *UNBUFFERED, *self._headers]
        self.begun = True
        await self._send({"type": "http.response.start", "status": 200, "headers": every})
        stream = Stream(
            self._send, self._write_timeout, keep_alive=self._keep_alive, comment=KEEP_ALIVE
        )
        try:
            yield stream
        finally:
            stream.close()
