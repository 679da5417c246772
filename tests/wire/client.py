"""A client that speaks ASGI and keeps every message of an answer apart."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

from starlette.applications import Starlette
from starlette.types import Message

from copilot_runtime import CopilotRuntime

PATH = "/copilotkit"
ACCEPT = (
    "application/graphql-response+json, application/graphql+json, application/json, "
    "text/event-stream, multipart/mixed"
)
"""What the npm client accepts, word for word."""

HEADERS = {"accept": ACCEPT, "content-type": "application/json"}


@dataclass(slots=True)
class Answer:
    """A complete answer; `writes` are the body's messages as they were sent."""

    status: int
    headers: dict[str, str]
    writes: list[bytes]

    @property
    def body(self) -> bytes:
        return b"".join(self.writes)

    def json(self) -> Any:
        return json.loads(self.body)

    def payloads(self) -> list[Any]:
        """Return the parts of a multipart answer."""
        return [json.loads(part) for part in parts(self.body)]


def parts(body: bytes) -> list[bytes]:
    """Cut a multipart body with the boundary "-" as the npm client does."""
    found: list[bytes] = []
    for part in body.split(b"\r\n---")[1:]:
        if part.startswith(b"--"):
            return found
        found.append(part.split(b"\r\n\r\n", 1)[1])
    raise AssertionError("the closing delimiter is missing")


@dataclass(slots=True)
class Exchange:
    """A request under way."""

    app: Starlette
    scope: dict[str, Any]
    request: bytes
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict[str, str])
    reading: asyncio.Event = field(default_factory=asyncio.Event)
    """Cleared, the client reads nothing, and the server's `send` blocks."""
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    _messages: asyncio.Queue[Message | None] = field(default_factory=asyncio.Queue[Message | None])
    _task: asyncio.Task[None] | None = None
    _asked: bool = False

    async def __aenter__(self) -> Self:
        self.reading.set()
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._task
        self.hang_up()
        await self._task

    def hang_up(self) -> None:
        """Close the connection from the client's side."""
        self.gone.set()
        self.reading.set()

    async def head(self) -> None:
        """Wait for the status and the headers."""
        message = await self._next()
        assert message and message["type"] == "http.response.start"
        self.status = message["status"]
        self.headers = {name.decode(): value.decode() for name, value in message["headers"]}

    async def write(self) -> bytes | None:
        """Return the next piece of the body that is not empty, or None at its end."""
        while True:
            message = await self._next()
            if message is None:
                return None
            if body := message.get("body", b""):
                return body

    async def until(self, found: bytes) -> bytes:
        """Read until these bytes have come; return everything read for them."""
        body = b""
        while found not in body:
            piece = await self.write()
            assert piece is not None, f"{found!r} never came, but {body!r}"
            body += piece
        return body

    async def _next(self) -> Message | None:
        return await self._messages.get()

    async def _run(self) -> None:
        try:
            await self.app(self.scope, self._receive, self._send)
        finally:
            self._messages.put_nowait(None)

    async def _receive(self) -> Message:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": self.request, "more_body": False}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        await self.reading.wait()
        self._messages.put_nowait(message)


class Client:
    """Asks an app without a socket in between."""

    def __init__(self, app: Starlette) -> None:
        self.app = app

    def open(
        self,
        body: object = b"",
        *,
        method: str = "POST",
        path: str = PATH,
        headers: Mapping[str, str] = HEADERS,
    ) -> Exchange:
        """Begin a request; the answer is read piece by piece."""
        request = body if isinstance(body, bytes) else json.dumps(body).encode()
        path, _, query = path.partition("?")
        length = {"content-length": str(len(request))} if request else {}
        fields = {"host": "testserver", **headers, **length}
        scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(name.lower().encode(), value.encode()) for name, value in fields.items()],
            "client": ("127.0.0.1", 1),
            "server": ("testserver", 80),
            "state": {},
        }
        return Exchange(self.app, scope, request)

    async def ask(
        self,
        body: object = b"",
        *,
        method: str = "POST",
        path: str = PATH,
        headers: Mapping[str, str] = HEADERS,
    ) -> Answer:
        """Send a request and return the whole answer."""
        async with self.open(body, method=method, path=path, headers=headers) as exchange:
            await exchange.head()
            writes: list[bytes] = []
            while (piece := await exchange.write()) is not None:
                writes.append(piece)
            return Answer(exchange.status, exchange.headers, writes)


@asynccontextmanager
async def client_of(runtime: CopilotRuntime) -> AsyncGenerator[Client, None]:
    """Start a runtime's app and yield a client of it."""
    app = runtime.app(path=PATH)
    async with app.router.lifespan_context(app):
        yield Client(app)


FOLDER = Path(__file__).parents[1] / "conformance" / "v1" / "client-documents"
CHAT = (FOLDER / "generateCopilotResponse.graphql").read_text()
AGENTS = (FOLDER / "availableAgents.graphql").read_text()
STATE = (FOLDER / "loadAgentState.graphql").read_text()

PLAIN = re.sub(r" @(defer|stream)", "", CHAT)
"""The chat without incremental delivery."""

WHEN = "2026-01-01T00:00:00.000Z"


def user(content: str = "Hi", id: str = "user-1") -> dict[str, Any]:
    """Return a message of the person."""
    return {"id": id, "createdAt": WHEN, "textMessage": {"role": "user", "content": content}}


def browser_action(name: str = "setColor") -> dict[str, Any]:
    """Return an action the browser offers."""
    schema = '{"type":"object","properties":{"color":{"type":"string"}},"required":["color"]}'
    return {"name": name, "description": "", "jsonSchema": schema, "available": "enabled"}


def data(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return the input of a chat turn."""
    return {
        "frontend": {"actions": [], "url": "http://localhost:3000/"},
        "threadId": "thread-1",
        "runId": None,
        "extensions": {},
        "metaEvents": [],
        "messages": list(messages) or [user()],
        "metadata": {"requestType": "Chat"},
        "agentStates": [],
        "forwardedParameters": {},
        "context": [],
        **more,
    }


def chat(*messages: dict[str, Any], query: str = CHAT, **more: Any) -> dict[str, Any]:
    """Return the body of a chat turn."""
    return {
        "operationName": "generateCopilotResponse",
        "query": query,
        "variables": {"data": data(*messages, **more), "properties": {}},
    }


def acting(query: str = CHAT, **more: Any) -> dict[str, Any]:
    """Return the body of a chat turn of a page that offers the action setColor."""
    frontend = {"actions": [browser_action()], "url": "http://localhost:3000/"}
    return chat(query=query, frontend=frontend, **more)


Json = dict[str, Any]


def merge(payloads: Sequence[Json]) -> Json:
    """Return the data a client ends up with."""
    data: Json = payloads[0]["data"]
    for payload in payloads[1:]:
        assert not {"pending", "completed", "errors"} & payload.keys(), payload
        for patch in payload.get("incremental", ()):
            assert "id" not in patch, patch
            _apply(data, patch)
    return data


def _apply(data: Json, patch: Json) -> None:
    *path, last = patch["path"]
    target: Any = data
    for key in path:
        target = target[key]
    if "items" in patch:
        for offset, item in enumerate(patch["items"]):
            index = last + offset
            assert index == len(target), f"item {index} of {len(target)}"
            target.append(item)
    else:
        _deep(target[last], patch["data"])


def _deep(target: Json, more: Json) -> None:
    for key, value in more.items():
        if isinstance(value, dict) and isinstance(target.get(key), dict):
            _deep(target[key], cast(Json, value))
        else:
            target[key] = value
