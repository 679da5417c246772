"""HTTP/1.1 as a browser writes it, every byte of the path and of the body as the test wrote it."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Event = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    def events(self) -> list[Event]:
        """Return the events of a stream, read as the npm client reads it."""
        assert self.status == 200, self.body
        return [event for block in self.body.split(b"\n\n") for event in _event(block)]

    def types(self) -> list[str]:
        return [event["type"] for event in self.events()]


def _event(block: bytes) -> Sequence[Event]:
    lines = [line[5:] for line in block.split(b"\n") if line.startswith(b"data:")]
    return [json.loads(b"\n".join(lines))] if lines else []


@dataclass(slots=True)
class Exchange:
    """An answer under way."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict[str, str])
    seen: list[Event] = field(default_factory=list[Event])
    comments: int = 0
    _buffer: bytes = b""
    _ended: bool = False

    async def head(self) -> None:
        head = await self.reader.readuntil(b"\r\n\r\n")
        status, *lines = head.decode("latin-1").split("\r\n")
        self.status = int(status.split(" ")[1])
        for line in filter(None, lines):
            name, _, value = line.partition(": ")
            assert name not in self.headers, f"{name} comes twice"
            self.headers[name.lower()] = value

    async def piece(self) -> bytes:
        """Return the next piece of the body, empty at its end."""
        if self.headers.get("transfer-encoding") == "chunked":
            size = int(await self.reader.readuntil(b"\r\n"), 16)
            piece = await self.reader.readexactly(size + 2)
            return piece[:-2]
        return await self.reader.read(65536)

    async def next(self) -> Event | None:
        """Return the next event, or None at the end of the stream."""
        while not self._ended or b"\n\n" in self._buffer:
            block, found, rest = self._buffer.partition(b"\n\n")
            if not found:
                piece = await self.piece()
                self._ended = not piece
                self._buffer += piece
                continue
            self._buffer = rest
            if block.startswith(b":"):
                self.comments += 1
            for event in _event(block):
                self.seen.append(event)
                return event
        return None

    async def until(self, type: str) -> Event:
        """Read up to the next event of a type."""
        while (event := await self.next()) is not None:
            if event["type"] == type:
                return event
        raise AssertionError(f"{type} never came after {self.seen}")

    async def to_comment(self) -> None:
        """Read up to the next comment."""
        before = self.comments
        while self.comments == before:
            if b"\n\n" not in self._buffer:
                self._buffer += await self.piece()
            block, _, self._buffer = self._buffer.partition(b"\n\n")
            assert block.startswith(b":"), block
            self.comments += 1

    async def rest(self) -> list[Event]:
        """Read to the end; return all events of the answer."""
        while await self.next() is not None:
            pass
        return self.seen

    async def body(self) -> bytes:
        pieces: list[bytes] = []
        while piece := await self.piece():
            pieces.append(piece)
        return b"".join(pieces)

    def hang_up(self) -> None:
        self.writer.transport.abort()


@dataclass(frozen=True, slots=True)
class Browser:
    """Asks one server. `where` is a port of loopback or a unix socket; `base` is the URL."""

    where: int | Path
    base: str = "/copilotkit"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])

    def signed_in(self, token: str) -> "Browser":
        headers = {**self.headers, "authorization": f"Bearer {token}"}
        return Browser(self.where, self.base, headers)

    @asynccontextmanager
    async def open(
        self,
        method: str,
        path: str = "",
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncGenerator[Exchange, None]:
        """Begin a request; the answer is read piece by piece."""
        payload = b"" if body is None else body
        if not isinstance(payload, bytes):
            payload = json.dumps(payload).encode()
        fields = {
            "host": "localhost",
            "content-type": "application/json",
            "accept": "text/event-stream",
            "connection": "close",
            **self.headers,
            **(headers or {}),
            "content-length": str(len(payload)),
        }
        lines = [f"{method} {self.base}{path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in fields.items()]
        if isinstance(self.where, Path):
            reader, writer = await asyncio.open_unix_connection(self.where)
        else:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.where)
        exchange = Exchange(reader, writer)
        try:
            writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + payload)
            await exchange.head()
            yield exchange
        finally:
            writer.close()

    async def ask(
        self,
        method: str,
        path: str = "",
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        async with self.open(method, path, body, headers) as exchange:
            return Answer(exchange.status, exchange.headers, await exchange.body())

    def running(self, **fields: Any) -> Any:
        """Begin a run and read it piece by piece."""
        agent = fields.pop("agent", "default")
        return self.open("POST", f"/agent/{agent}/run", run_input(**fields))

    async def run(self, **fields: Any) -> Answer:
        agent = fields.pop("agent", "default")
        return await self.ask("POST", f"/agent/{agent}/run", run_input(**fields))

    def connecting(self, thread: str = "t", agent: str = "default") -> Any:
        return self.open("POST", f"/agent/{agent}/connect", connect_input(thread))

    async def connect(self, thread: str = "t", agent: str = "default") -> Answer:
        return await self.ask("POST", f"/agent/{agent}/connect", connect_input(thread))

    async def stop(self, thread: str = "t", body: object = None) -> Any:
        return (await self.ask("POST", f"/agent/default/stop/{thread}", body)).json()

    async def envelope(self, method: str, body: object = None, **params: Any) -> Answer:
        content = {} if body is None else {"body": body}
        return await self.ask("POST", "", {"method": method, "params": params, **content})


def user(content: Any = "Hi", id: str = "user-1") -> dict[str, Any]:
    return {"id": id, "role": "user", "content": content}


def run_input(**fields: Any) -> dict[str, Any]:
    """Return a `RunAgentInput` as @ag-ui/client writes it; `thread` and `run` are the ids."""
    return {
        "threadId": fields.pop("thread", "t"),
        "runId": fields.pop("run", "r"),
        "tools": [],
        "context": [],
        "forwardedProps": {},
        "state": {},
        "messages": [user()],
        **fields,
    }


def connect_input(thread: str) -> dict[str, Any]:
    return run_input(thread=thread, run="connect", messages=[])


def text_of(events: Sequence[Event]) -> str:
    """Return all that was said."""
    return "".join(event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT")
