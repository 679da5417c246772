"""A model provider on loopback: a test decides every byte, every pause and every hang-up."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final, Literal

HANG: Final = "hang"
"""Say nothing more until the client hangs up."""
CLOSE: Final = "close"
"""Hang up in order."""
RESET: Final = "reset"
"""Hang up without a word."""

Step = bytes | asyncio.Event | Literal["hang", "close", "reset"]
"""Bytes to write, an event to wait for, or how the connection ends."""

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"
DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Request:
    """What the provider was asked; `body` is decoded JSON, or bytes of anything else."""

    line: str
    headers: dict[str, str]
    body: Any


@dataclass(slots=True)
class Provider:
    """Answers the nth request with the nth script, and all further ones with the last."""

    scripts: list[Sequence[Step]] = field(default_factory=list[Sequence[Step]])
    requests: list[Request] = field(default_factory=list[Request])
    url: str = ""
    connections: int = 0
    """How many were ever made."""
    open: int = 0
    refuse: Callable[[Request], Sequence[Step] | None] | None = None
    """Returns the script for a request that breaks a rule of the provider."""
    _first: list[Sequence[Step]] | None = None
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def answer(self, *scripts: Sequence[Step]) -> None:
        self.scripts = list(scripts)

    def forget(self) -> None:
        """Be as before the first case of a test, for the next one."""
        if self._first is None:
            self._first = self.scripts
        self.scripts, self.connections = list(self._first), 0
        self.requests.clear()

    async def until_open(self, count: int) -> None:
        """Return once that many connections are open."""
        while self.open != count:
            self._changed.clear()
            await self._changed.wait()

    async def until_asked(self, count: int) -> None:
        """Return once that many requests have arrived."""
        while len(self.requests) < count:
            self._changed.clear()
            await self._changed.wait()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._count(1)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                while await self._answer_one(reader, writer):
                    pass
        finally:
            self._count(-1)
            writer.close()

    async def _answer_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        request = await _read_request(reader)
        self.requests.append(request)
        self._changed.set()
        refused = self.refuse(request) if self.refuse is not None else None
        script = refused or self.scripts[min(len(self.requests), len(self.scripts)) - 1]
        for step in script:
            if isinstance(step, asyncio.Event):
                await step.wait()
            elif step == HANG:
                assert await reader.read(1) == b""
                return False
            elif step == CLOSE:
                return False
            elif step == RESET:
                writer.transport.abort()
                return False
            else:
                writer.write(step)
                await writer.drain()
        return True

    def _count(self, change: int) -> None:
        self.open += change
        self._changed.set()


@asynccontextmanager
async def serving() -> AsyncGenerator[Provider, None]:
    """Start a provider on a free port."""
    provider = Provider()
    connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(provider.serve(reader, writer))
        connections[task] = writer
        task.add_done_callback(connections.pop)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    provider.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield provider
    finally:
        server.close()
        for task, writer in [*connections.items()]:
            task.cancel()
            writer.close()  # a task that has not begun would not
        await asyncio.gather(*connections, return_exceptions=True)


async def _read_request(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in head[1:-2])
    size = int(headers.get("content-length", 0))
    body = await reader.readexactly(size)
    if "json" in headers.get("content-type", "json"):
        return Request(head[0], headers, json.loads(body) if body else None)
    return Request(head[0], headers, body)


def piece(data: bytes) -> bytes:
    """Return one chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def whole(
    body: bytes | dict[str, Any],
    *,
    status: str = "200 OK",
    content_type: str = "application/json",
    **headers: str,
) -> bytes:
    """Return a complete answer."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = [f"HTTP/1.1 {status}", f"content-type: {content_type}", f"content-length: {len(data)}"]
    head += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*head, "", ""]).encode() + data


def chunk(
    delta: dict[str, Any] | None, *, finish: str | None = None, id: str = "chatcmpl-1", **more: Any
) -> bytes:
    """Return one event of a chat completions stream."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    body = {"id": id, "object": "chat.completion.chunk", "model": "m", "choices": [choice], **more}
    return b"data: " + json.dumps(body, ensure_ascii=False).encode() + b"\n\n"


def text(content: str, **more: Any) -> bytes:
    return chunk({"content": content}, **more)


def tool(
    arguments: str | None = "",
    *,
    index: int | None = 0,
    id: str | None = None,
    name: str | None = None,
) -> dict[str, Any]:
    """Return one piece of one call."""
    call: dict[str, Any] = {"function": {"arguments": arguments}}
    if index is not None:
        call["index"] = index
    if id is not None:
        call |= {"id": id, "type": "function"}
    if name is not None:
        call["function"]["name"] = name
    return call


def tools(*calls: dict[str, Any]) -> bytes:
    """Return a chunk with pieces of calls."""
    return chunk({"tool_calls": list(calls)})


def finish(reason: str = "stop") -> bytes:
    return chunk({}, finish=reason)


def streamed(*chunks: bytes) -> list[Step]:
    """Return the script of a complete answer, each chunk written by itself."""
    return [HEAD, *map(piece, chunks), END]


def saying(*chunks: bytes, reason: str = "stop") -> list[Step]:
    """Return the script of a complete answer with its usual end."""
    return streamed(*chunks, finish(reason), DONE)
