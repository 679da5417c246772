"""Conversations over WebSockets, changed here and there."""

import asyncio
from collections.abc import Sequence
from typing import Any

from starlette.types import ASGIApp, Message

from tests.fuzz.documents import make_document
from tests.fuzz.mutate import ODD, Mutator
from tests.wire.client import PATH, PLAIN, data, user
from tests.wire.test_subscriptions import QUERY

Frame = str | bytes
"""What is said: a text, or bytes."""


def subscribe(query: str, id: str = "1", **variables: Any) -> dict[str, Any]:
    payload = {"query": query, "variables": variables, "operationName": None, "extensions": {}}
    return {"id": id, "type": "subscribe", "payload": payload}


SEEDS: Sequence[dict[str, Any]] = (
    {"type": "connection_init", "payload": {"a": 1}},
    {"type": "connection_init"},
    subscribe(QUERY, data=data(user())),
    subscribe(QUERY, runId="r", after="1"),
    subscribe(PLAIN, "2", data=data(user()), properties={}),
    subscribe("{ hello }", "3"),
    subscribe("subscription { nothing }", "3"),
    {"type": "ping", "payload": {}},
    {"type": "pong"},
    {"id": "1", "type": "complete"},
    {"id": "1", "type": "next", "payload": {}},
)


def make_frames(seed: str) -> tuple[Mutator, list[Frame]]:
    """Return what a client says: mostly a greeting, and then anything."""
    mutator = Mutator(seed)
    said: list[Any] = [SEEDS[0]] if mutator.chance(0.85) else []
    said += [mutator.pick(SEEDS) for _ in range(mutator.random.randint(1, 5))]
    return mutator, [_make_frame(mutator, message) for message in said]


def _make_frame(mutator: Mutator, message: dict[str, Any]) -> Frame:
    made: Any = message
    if "query" in message.get("payload", {}) and mutator.chance(0.3):
        query = make_document(mutator, message["payload"]["query"])
        made = {**message, "payload": {**message["payload"], "query": query}}
    if mutator.chance(0.5):
        made = mutator.change_json(made, *SEEDS)
    if mutator.chance(0.05):
        made = mutator.pick(ODD)
    written = mutator.dumps(made)
    if mutator.chance(0.1):
        written = mutator.change_bytes(written)
    if mutator.chance(0.1):
        return written
    return written.decode(errors="replace")


async def converse(app: ASGIApp, mutator: Mutator, frames: Sequence[Frame]) -> None:
    """Open a WebSocket, say the frames, and leave after a while."""
    waiting: list[Message] = [{"type": "websocket.connect"}]
    waiting += [
        {"type": "websocket.receive", "text": frame}
        if isinstance(frame, str)
        else {"type": "websocket.receive", "bytes": frame}
        for frame in frames
    ]
    closed = asyncio.Event()

    async def receive() -> Message:
        if not closed.is_set() and waiting:
            if mutator.chance(0.3):
                await asyncio.sleep(0)
            return waiting.pop(0)
        if not closed.is_set() and mutator.chance(0.8):
            await asyncio.sleep(0.005)  # for some answers; others find nobody
        return {"type": "websocket.disconnect", "code": 1006}

    async def send(message: Message) -> None:
        if message["type"] == "websocket.close":
            assert len((message.get("reason") or "").encode()) <= 123, message
            closed.set()
        elif message["type"] == "websocket.send" and message.get("text") is not None:
            message["text"].encode()  # what cannot be encoded breaks the connection

    scope: dict[str, Any] = {
        "type": "websocket",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "scheme": "ws",
        "path": PATH,
        "raw_path": PATH.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"host", b"testserver")],
        "client": ("127.0.0.1", 1),
        "server": ("testserver", 80),
        "subprotocols": ["graphql-transport-ws"] if mutator.chance(0.95) else [],
        "state": {},
    }
    await app(scope, receive, send)
