"""A request as the router passes it to a transport, and the methods to respond to it."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, cast

from starlette.types import Message, Receive, Scope, Send

from copilot_runtime.api.identity import Caller
from copilot_runtime.base.errors import LimitExceeded
from copilot_runtime.base.jsontext import dumps, loads
from copilot_runtime.base.jsonvalue import JsonObject
from copilot_runtime.security.addresses import find_network
from copilot_runtime.security.cors import RawHeaders
from copilot_runtime.transports.body import BadRequest, check_values, read_body
from copilot_runtime.transports.streaming import PIECE, UNBUFFERED, Stream, share

_NOBODY = Caller()

_PEEKED = 64 * 1024
"""Maximum number of bytes of the body that are read before authentication."""
_PEEK_SECONDS = 5.0


class Request:
    """An HTTP request or a WebSocket, at the URL of a runtime or below it.

    `path` is relative to that URL and still percent-encoded: `""` is the URL itself, `"ask"` is
    `/graphql/ask`. `method` is empty for a WebSocket. The names in `headers` are in lower case.
    `caller` is the authenticated caller, with the operator's properties. `response_headers` are
    sent with every response, for pages of other origins (CORS). `scope`, `receive` and `send` are
    those of ASGI, for operations that have no method here.
    """

    action: str = ""
    """The requested operation for the audit log; set by transports that know it."""
    subject: str = ""
    """The object of the operation, for the audit log."""
    operation: str = ""
    """The operation that a service signs, if it is not the method and the path."""
    thread: str = ""
    """Identifier of the thread that the request is about."""
    run: str = ""
    """The client's identifier of the requested run."""
    is_read: bool | None = None
    """`True` if the request only reads; `None` derives that from its method."""
    starts_run: bool = False
    """`True` if the request concerns a run, which has its own audit entry."""
    refusal: BaseException | None = None
    """The error that refused the request, if the status of the response does not show it."""
    record: "Callable[[Request, BaseException | None], None] | None" = None
    """Writes an audit entry, for requests with several operations; `None` without an audit log."""
    status: int = 0
    """The status of the response."""
    is_answered: bool = False
    """`True` if the response head has been sent."""
    _body: bytes | BadRequest | None = None
    _json: Any = None
    _is_decoded: bool = False

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
        self._max_body_bytes = max_body_bytes
        self._max_values = max_values
        self._read_timeout = read_timeout
        self._write_timeout = write_timeout

    @property
    def is_websocket(self) -> bool:
        return self.scope["type"] == "websocket"

    @property
    def client_host(self) -> str:
        """The client's address, also behind trusted proxies.

        For IPv6 it is the network, because a client can use any number of addresses in it.
        """
        return find_network(self.caller.identity.address)

    @property
    def query_string(self) -> str:
        """The query string of the URL, still percent-encoded."""
        return self.scope.get("query_string", b"").decode("latin-1")

    @property
    def content_type(self) -> str:
        """The media type of the body in lower case, without parameters; empty if missing."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def remove_headers(self, names: Collection[str]) -> None:
        """Remove headers, also from the ASGI scope."""
        if not any(name in self.headers for name in names):
            return
        self.headers = {name: value for name, value in self.headers.items() if name not in names}
        raw = frozenset(name.encode("latin-1") for name in names)
        every: Iterable[tuple[bytes, bytes]] = self.scope["headers"]
        self.scope["headers"] = [item for item in every if item[0].lower() not in raw]

    def set_retry_after(self, error: BaseException | None) -> None:
        """Set `Retry-After` if an error has a delay, and expose it to other origins."""
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
        """Return the body; it is read only once. The body of a WebSocket is empty.

        Raises `BadRequest`, 413 if it exceeds the setting `max_body_bytes` and 408 after a timeout,
        and `ClientGone` if the client disconnects before its end.
        """
        if self._body is None and self.is_websocket:
            self._body = b""  # its messages are for the transport that accepts it
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
        """Return the first bytes of the body, from its first chunk only.

        Returns `b""` for a WebSocket or after a timeout. The body cannot be read afterwards.
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
        """Return the parsed JSON body; it is parsed only once.

        Raises `ValueError` for malformed JSON, `BadRequest` (413) for more values than the setting
        `max_values`, and the errors of `body`.
        """
        if not self._is_decoded:
            body = await self.body()
            try:
                self._json = self.decode_json(body)
            except BadRequest as error:
                self._body = error
                raise
            except ValueError as error:
                self._json = error
            self._is_decoded = True
        if isinstance(self._json, ValueError):
            raise self._json
        return self._json

    async def json_object(self) -> JsonObject:
        """Return the JSON object in the body; an empty body is an empty object.

        Raises `BadRequest` for any other body, and the errors of `json`.
        """
        if not await self.body():
            return {}
        try:
            value = await self.json()
        except ValueError:
            raise BadRequest("The request body is no JSON.") from None
        if not isinstance(value, dict):
            raise BadRequest("The request body is no JSON object.")
        return cast("JsonObject", value)

    def release_body(self) -> None:
        """Free the memory of the body and its JSON; they cannot be read afterwards."""
        self._body = BadRequest("The body of the request has been released.")
        self._json, self._is_decoded = None, False

    def decode_json(self, data: bytes) -> Any:
        """Return the value of JSON that came with this request. Raises the errors of `json`."""
        self.check_json(data)
        return loads(data)

    def check_json(self, data: bytes) -> None:
        """Raise `BadRequest` (413) for JSON with more values than the setting `max_values`.

        For transports that leave the parsing to a library.
        """
        check_values(data, self._max_values)

    async def is_envelope(self) -> bool:
        """Return `True` for a POST of an AG-UI envelope or an AG-UI run, judging by its body.

        Everything else that is sent to the URL itself is GraphQL, including malformed bodies.
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
        """Send a response with one body; an empty body has no content type.

        Raises `WriteTimeout` if the client stalls during a large one.
        """
        every: RawHeaders = [(b"content-type", content_type.encode())] if body else []
        if status != 204:
            every.append((b"content-length", str(len(body)).encode()))
        every += encode_headers(headers)
        every += self.response_headers
        self.is_answered, self.status = True, status
        head: Message = {"type": "http.response.start", "status": status, "headers": every}
        if len(body) <= PIECE:
            await self.send(head)
            await self.send({"type": "http.response.body", "body": body})
            return
        async with Stream(self.receive, self.send, head, self._write_timeout) as stream:
            shared = share(body)
            body = shared.body
            await stream.write(body, last=True)

    async def respond_json(
        self, status: int, value: Any, headers: Mapping[str, str] | None = None
    ) -> None:
        """Send a JSON response."""
        await self.respond(status, dumps(value), headers=headers)

    def stream(
        self,
        content_type: str,
        *,
        write_timeout: float | None = None,
        keep_alive: float = 0.0,
        comment: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> Stream:
        """Return a streaming response, whose head is sent on entry. See `Stream` for the timeouts.

        Without a `write_timeout`, the one of the settings applies.
        """
        every = [(b"content-type", content_type.encode()), *UNBUFFERED, *encode_headers(headers)]
        every += self.response_headers
        self.is_answered, self.status = True, 200
        head: Message = {"type": "http.response.start", "status": 200, "headers": every}
        timeout = self._write_timeout if write_timeout is None else write_timeout
        return Stream(
            self.receive, self.send, head, timeout, keep_alive=keep_alive, comment=comment
        )

    def stream_events(
        self, *, keep_alive: float = 15.0, headers: Mapping[str, str] | None = None
    ) -> Stream:
        """Send server-sent events; a comment follows each `keep_alive` seconds of silence."""
        return self.stream(
            "text/event-stream",
            keep_alive=keep_alive,
            comment=b":\n\n",
            headers={"x-content-type-options": "nosniff", **(headers or {})},
        )


def decode_headers(scope: Scope) -> Mapping[str, str]:
    """Return the headers of a request by lower-case name."""
    headers: Iterable[tuple[bytes, bytes]] = scope["headers"]
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}


def encode_headers(headers: Mapping[str, str] | None) -> RawHeaders:
    """Return headers in the form of ASGI."""
    return [
        (name.encode("latin-1"), value.encode("latin-1")) for name, value in (headers or {}).items()
    ]
