"""Asks an application as ASGI has it, from any address, by HTTP, WebSocket and gRPC."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import grpc
from grpc.aio import AioRpcError, Channel
from starlette.types import ASGIApp

Headers = Sequence[tuple[str, str]]

BASE = "/copilotkit"
GRPC_STATUSES = {
    "OK": 200,
    "INVALID_ARGUMENT": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "ABORTED": 409,
    "OUT_OF_RANGE": 410,
    "RESOURCE_EXHAUSTED": 429,
    "UNIMPLEMENTED": 501,
    "UNAVAILABLE": 503,
}
_LONGEST = 60.0
"""Seconds: a machine may be busy."""
_QUIET = 0.05
"""Seconds for which a stream is read that has begun, and may say nothing."""


@dataclass(frozen=True)
class Reply:
    """All that came back: a status of HTTP, whatever the protocol, and every byte."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def everything(self) -> str:
        """The status, the headers and the body as one text."""
        head = "\n".join(f"{name}: {value}" for name, value in self.headers.items())
        return f"{self.status}\n{head}\n{self.body.decode(errors='replace')}"

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Asker:
    """Somebody with a credential, at an address."""

    app: ASGIApp
    channel: Channel
    headers: Headers = ()
    address: str = "10.9.9.9"
    origin: str = ""
    sent: list[bytes] = field(default_factory=list[bytes])
    """What was sent: an answer may repeat it."""

    def with_headers(self, *headers: tuple[str, str]) -> "Asker":
        return replace(self, headers=[*self.headers, *headers], sent=[])

    def add_credential(self, operation: str, body: bytes) -> Headers:
        """Return headers for one request, by what it asks for and its body."""
        del operation, body
        return ()

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        root: bool = False,
        is_endless: bool = False,
        until: str = "",
        **headers: str,
    ) -> Reply:
        """Send a request below the URL.

        An answer without an end is left soon after it has begun, or where it has a text.
        """
        data = body if isinstance(body, bytes) else b"" if body is None else dump(body)
        place = path if root else f"{BASE}/{path}".rstrip("/")
        signed = self.add_credential(f"{method} {place.removeprefix(BASE).lstrip('/')}", data)
        path, _, query = place.partition("?")
        more = [(name.replace("_", "-"), value) for name, value in headers.items()]
        kinds = {"content-type": "application/json", "accept": "*/*", "host": "server.example"}
        usual = [it for it in kinds.items() if it[0] not in dict(more)]
        self.sent.append(place.encode() + data + repr(more).encode())
        scope = {
            "type": "http",
            "method": method,
            "scheme": "http",
            "http_version": "1.1",
            **self._place(path, query),
            "headers": encode(
                [*usual, *self.headers, *signed, *more, ("content-length", str(len(data)))]
            ),
        }
        return await _exchange(self.app, scope, data, is_endless=is_endless, until=until.encode())

    async def subscribe(
        self, query: str, variables: Mapping[str, Any], until: bytes, *, is_quiet: bool = False
    ) -> Reply:
        """Open a WebSocket, subscribe, and return what came up to a text, an end or a refusal.

        Nothing may come of one that is quiet: it is left soon.
        """
        payload = {"query": query, "variables": variables}
        self.sent.append(dump(payload))
        usual = [("host", "server.example"), ("sec-websocket-protocol", "graphql-transport-ws")]
        scope = {
            "type": "websocket",
            "scheme": "ws",
            "subprotocols": ["graphql-transport-ws"],
            **self._place(BASE, ""),
            "headers": encode([*usual, *self.headers, *self.add_credential("GET ", b"")]),
        }
        messages = [
            {"type": "connection_init"},
            {"type": "subscribe", "id": "1", "payload": payload},
        ]
        return await _converse(
            self.app, scope, [dump(it).decode() for it in messages], until, is_quiet=is_quiet
        )

    async def join(self, path: str, message: Any, until: bytes) -> Reply:
        """Open a WebSocket below the URL, send a message, and return what came up to a text."""
        path, _, query = path.partition("?")
        scope = {
            "type": "websocket",
            "scheme": "ws",
            "subprotocols": [],
            **self._place(f"{BASE}/{path}", query),
            "headers": encode([("host", "server.example"), *self.headers]),
        }
        self.sent.append(dump(message))
        return await _converse(self.app, scope, [dump(message).decode()], until, is_quiet=False)

    async def call(self, method: str, message: bytes, *metadata: tuple[str, str]) -> Reply:
        """Call a method of gRPC, whose answers are read up to the end of the first."""
        self.sent.append(message)
        open_call = self.channel.unary_stream(f"/{method}")  # the wire has no other kinds
        every = [*self.headers, *self.add_credential(f"/{method}", message), *metadata]
        found: list[bytes] = []
        call = open_call(message, metadata=every, timeout=_LONGEST)
        try:
            async for one in call:
                found.append(one)
                if method.endswith("/Subscribe"):
                    call.cancel()
                    break
            trailer: Any = []
            code, words = "OK", ""
        except AioRpcError as error:
            code, words = error.code().name, error.details() or ""
            trailer = error.trailing_metadata() or ()
        headers = {str(name): str(value) for name, value in trailer}
        return Reply(GRPC_STATUSES.get(code, 500), headers, b"\n".join([*found, words.encode()]))

    def _place(self, path: str, query: str) -> dict[str, Any]:
        return {
            "asgi": {"version": "3.0"},
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": query.encode(),
            "client": (self.address, 5000),
            "server": ("server.example", 80),
            "state": {},
        }


def dump(value: Any) -> bytes:
    return json.dumps(value).encode()


def encode(headers: Headers) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode(), value.encode("latin-1")) for name, value in headers]


async def _exchange(
    app: ASGIApp, scope: Any, body: bytes, *, is_endless: bool, until: bytes
) -> Reply:
    waiting: list[Any] = [{"type": "http.request", "body": body, "more_body": False}]
    is_over = asyncio.Event()
    head: Any = None
    pieces: list[bytes] = []

    async def receive() -> Any:
        if waiting:
            return waiting.pop()
        await is_over.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        nonlocal head
        if message["type"] == "http.response.start":
            head = message
            if is_endless:
                asyncio.get_running_loop().call_later(_QUIET, is_over.set)
            return
        pieces.append(message.get("body", b""))
        if until and until in pieces[-1]:
            is_over.set()
        if not message.get("more_body"):
            is_over.set()

    try:
        async with asyncio.timeout(_LONGEST):
            await app(scope, receive, send)
    except Exception as error:  # a server answers 500, if it still can
        return Reply(500, {}, repr(error).encode())
    if head is None:
        return Reply(0, {}, b"[nothing]")
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head["headers"]}
    return Reply(head["status"], headers, b"".join(pieces))


async def _converse(
    app: ASGIApp, scope: Any, texts: Sequence[str], until: bytes, *, is_quiet: bool
) -> Reply:
    waiting = [{"type": "websocket.connect"}]
    waiting += [{"type": "websocket.receive", "text": text} for text in texts]
    is_over = asyncio.Event()
    found: list[bytes] = []
    status = 200

    async def receive() -> Any:
        if waiting:
            return waiting.pop(0)
        await is_over.wait()
        return {"type": "websocket.disconnect", "code": 1000}

    async def send(message: Any) -> None:
        nonlocal status
        text = (message.get("text") or message.get("reason") or "").encode()
        found.append(text)
        if message["type"] == "websocket.close":
            status = 401 if message.get("code") == 4401 else 403
            is_over.set()
        if is_quiet and b"connection_ack" in text:
            asyncio.get_running_loop().call_later(_QUIET, is_over.set)
        if until in text or b'"complete"' in text or b'"error"' in text:
            is_over.set()

    try:
        async with asyncio.timeout(_LONGEST):
            await app(scope, receive, send)
    except Exception as error:  # a server closes the socket
        return Reply(500, {}, repr(error).encode())
    return Reply(status, {}, b"\n".join(found))


def open_channel(port: int) -> Channel:
    return grpc.aio.insecure_channel(f"127.0.0.1:{port}")
