"""One request, as the router gives it to a transport, and the ways to answer it."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from starlette.types import Receive, Scope, Send

from copilot_runtime.api.caller import Caller
from copilot_runtime.base.errors import LimitExceeded
from copilot_runtime.base.jsontext import dumps, loads
from copilot_runtime.security.addresses import find_network
from copilot_runtime.security.cors import RawHeaders
from copilot_runtime.transports.body import BadRequest, check_values, read_body
from copilot_runtime.transports.streaming import PIECE, UNBUFFERED, Stream, share

_NOBODY = Caller()

_PEEKED = 64 * 1024
"""Bytes of a body that may be looked at of somebody who is not known."""
_PEEK_SECONDS = 5.0


class Request:
    """One HTTP request, or one WebSocket, at the URL of a runtime or below it.

    `path` begins below that URL and is still percent-encoded: `""` is the URL itself, `"ask"` is
    `/graphql/ask`. `method` is empty for a WebSocket. The names in `headers` are in lower case.
    `caller` is who sent the request, with the operator's properties. `response_headers` belong to
    every answer, for pages of other origins (CORS). `scope`, `receive` and `send` are those of
    ASGI, for what the methods here do not offer.
    """

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        *,
        path: str = "",
        headers: Mapping[str, str] | None = None,
        caller: Caller | None = None,
        response_headers: RawHeaders | None = None,
        max_body_bytes: int = 16 * 1024 * 1024,
        max_values: int = 250_000,
        read_timeout: float = 60.0,
        write_timeout: float = 60.0,
    ) -> None:
        self.scope = scope
        self.receive = receive
        self.send = send
        self.path = path
        self.method: str = scope.get("method", "")
        self.headers = decode_headers(scope) if headers is None else headers
        self.caller = caller or _NOBODY
        self.response_headers = response_headers or []
        self.action = ""
        """What is asked for, in words for the audit log; a transport that knows it says so."""
        self.operation = ""
        """What a service signs, where it is not the method and the path."""
        self.thread = ""
        """The thread that it is asked of."""
        self.run = ""
        """The client's id of the run that it asks for."""
        self.is_read: bool | None = None
        """Whether it only reads; None is by its method."""
        self.starts_run = False
        """Whether it is about a run, which is written down itself."""
        self.refusal: BaseException | None = None
        """Why it is refused, where the status of the answer does not say so."""
        self.record: Callable[[Request, BaseException | None], None] | None = None
        """Writes an operation into the audit log, if there is one: for what has several."""
        self.status = 0
        """The status of the answer."""
        self.is_answered = False
        """Whether the head of the answer has been written."""
        self._max_body_bytes = max_body_bytes
        self._max_values = max_values
        self._read_timeout = read_timeout
        self._write_timeout = write_timeout
        self._body: bytes | BadRequest | None = None
        self._json: Any = None
        self._is_decoded = False

    @property
    def is_websocket(self) -> bool:
        return self.scope["type"] == "websocket"

    @property
    def client_host(self) -> str:
        """The address that the request came from; behind known proxies, that of the client.

        Of IPv6 it is the network, of which one client has any number of addresses.
        """
        return find_network(self.caller.identity.address)

    @property
    def query_string(self) -> str:
        """What stands after the question mark of the URL, still percent-encoded."""
        return self.scope.get("query_string", b"").decode("latin-1")

    @property
    def content_type(self) -> str:
        """The type of the body in lower case, without parameters; empty if there is none."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def remove_headers(self, names: Collection[str]) -> None:
        """Take headers away, also for what reads the scope of ASGI."""
        if not any(name in self.headers for name in names):
            return
        self.headers = {name: value for name, value in self.headers.items() if name not in names}
        raw = frozenset(name.encode("latin-1") for name in names)
        every: Iterable[tuple[bytes, bytes]] = self.scope["headers"]
        self.scope["headers"] = [item for item in every if item[0].lower() not in raw]

    def set_retry_after(self, error: BaseException | None) -> None:
        """Say when to try again, if an error knows it: also to pages of other origins."""
        seconds = getattr(error, "retry_after", None)
        if not isinstance(error, LimitExceeded) or seconds is None:
            return
        names = {name for name, _ in self.response_headers}
        if b"retry-after" in names:
            return
        self.response_headers = [*self.response_headers, (b"retry-after", b"%d" % seconds)]
        if b"access-control-allow-origin" in names:
            self.response_headers.append((b"access-control-expose-headers", b"Retry-After"))

    async def body(self) -> bytes:
        """Return the body, which is read from the client only once; a WebSocket has none.

        Raises `BadRequest`, 413 for one that is larger than the setting `max_body_bytes` and 408
        for one that does not come, and `ClientGone` when the client left before its end.
        """
        if self._body is None and self.is_websocket:
            self._body = b""  # what comes there is for whoever accepts it
        if self._body is None:
            try:
                self._body = await read_body(
                    self.receive, self.headers, self._max_body_bytes, self._read_timeout
                )
            except BadRequest as error:
                self._body = error
        if isinstance(self._body, BadRequest):
            raise self._body
        return self._body

    async def peek(self) -> bytes:
        """Return the beginning of the body, of which no more is read than comes at once.

        It is empty for a WebSocket, and where nothing comes in time. The body cannot be read then.
        """
        if self.is_websocket or self._body is not None:
            return self._body if isinstance(self._body, bytes) else b""
        try:
            async with asyncio.timeout(min(self._read_timeout, _PEEK_SECONDS)):
                message = await self.receive()
        except TimeoutError:
            return b""
        beginning: bytes = message.get("body", b"")
        self._body = BadRequest("Only the beginning of the body was read.")
        return beginning[:_PEEKED]

    async def json(self) -> Any:
        """Return the value of a JSON body, which is decoded only once.

        Raises `ValueError` for what is no JSON, `BadRequest` (413) for one of more values than the
        setting `max_values`, and what `body` raises.
        """
        if not self._is_decoded:
            body = await self.body()
            try:
                self._json = self.decode_json(body)
            except BadRequest as error:
                self._body = error
                raise
            self._is_decoded = True
        return self._json

    def decode_json(self, data: bytes) -> Any:
        """Return the value of JSON that came with this request. Raises what `json` does."""
        self.check_json(data)
        return loads(data)

    def check_json(self, data: bytes) -> None:
        """Raise `BadRequest` (413) for JSON of more values than the setting `max_values`.

        For a transport whose JSON is read by somebody else.
        """
        check_values(data, self._max_values)

    async def is_envelope(self) -> bool:
        """Return whether this is a POST of an AG-UI envelope or of an AG-UI run, by its body.

        Everything else that is sent to the URL itself is GraphQL, also what cannot be read.
        """
        if self.method != "POST":
            return False
        try:
            value = await self.json()
        except (BadRequest, ValueError):
            return False
        return (
            isinstance(value, dict)
            and ("method" in value or "threadId" in value)
            and "query" not in value
            and "operationName" not in value
        )

    async def respond(
        self,
        status: int,
        body: bytes = b"",
        *,
        content_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Answer with one body; an empty one has no type.

        Raises `WriteTimeout` when the client takes nothing of a large one.
        """
        every: RawHeaders = [(b"content-type", content_type.encode())] if body else []
        if status != 204:
            every.append((b"content-length", str(len(body)).encode()))
        every += encode_headers(headers)
        every += self.response_headers
        self.is_answered, self.status = True, status
        await self.send({"type": "http.response.start", "status": status, "headers": every})
        if len(body) <= PIECE:
            await self.send({"type": "http.response.body", "body": body})
            return
        stream = Stream(self.receive, self.send, self._write_timeout)
        shared = share(body)
        body = shared.body
        try:
            await stream.write(body, last=True)
        finally:
            stream.close()

    async def respond_json(
        self, status: int, value: Any, headers: Mapping[str, str] | None = None
    ) -> None:
        """Answer with a value as JSON."""
        await self.respond(status, dumps(value), headers=headers)

    @asynccontextmanager
    async def stream(
        self,
        content_type: str,
        *,
        write_timeout: float | None = None,
        keep_alive: float = 0.0,
        comment: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> AsyncGenerator[Stream, None]:
        """Answer with a stream: its head is written on entry. See `Stream` for the times.

        Without a `write_timeout` it is that of the settings.
        """
        every = [(b"content-type", content_type.encode()), *UNBUFFERED, *encode_headers(headers)]
        every += self.response_headers
        self.is_answered, self.status = True, 200
        await self.send({"type": "http.response.start", "status": 200, "headers": every})
        timeout = self._write_timeout if write_timeout is None else write_timeout
        stream = Stream(self.receive, self.send, timeout, keep_alive=keep_alive, comment=comment)
        try:
            yield stream
        finally:
            stream.close()

    def stream_events(
        self, *, keep_alive: float = 15.0, headers: Mapping[str, str] | None = None
    ) -> AbstractAsyncContextManager[Stream]:
        """Answer with server-sent events: a silence of `keep_alive` seconds has comments."""
        return self.stream(
            "text/event-stream",
            keep_alive=keep_alive,
            comment=b":\n\n",
            headers={"x-content-type-options": "nosniff", **(headers or {})},
        )


def decode_headers(scope: Scope) -> Mapping[str, str]:
    """Return the headers of a request by their names in lower case."""
    headers: Iterable[tuple[bytes, bytes]] = scope["headers"]
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}


def encode_headers(headers: Mapping[str, str] | None) -> RawHeaders:
    """Return headers as ASGI writes them."""
    return [
        (name.encode("latin-1"), value.encode("latin-1")) for name, value in (headers or {}).items()
    ]
