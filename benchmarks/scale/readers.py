"""Clients that cost little: what they take is not there for the servers beside them.

A reader counts chunks, and looks at the times that the agent wrote into them. That a stream is
whole is checked by the other suites; here, its end must be there, and no chunk be missing.
"""

import asyncio
import json
import uuid
from collections.abc import Sequence
from time import monotonic_ns
from typing import cast

from benchmarks.scale.servers import PATH

_MARK = b'"delta":"'
_TIME = 20
_END = b'"type":"RUN_FINISHED"'


class Window:
    """What was read between `open` and `close`."""

    def __init__(self) -> None:
        self.latencies: list[int] = []
        """Microseconds from the agent to the reader, a chunk each."""
        self.is_open = False


class Reader(asyncio.Protocol):
    """Sends one request, and reads its stream. `began` is done with the first bytes."""

    def __init__(self, request: bytes, window: Window) -> None:
        loop = asyncio.get_running_loop()
        self.began: asyncio.Future[None] = loop.create_future()
        self.ended: asyncio.Future[None] = loop.create_future()
        self.chunks = 0
        self.tail = b""
        self._request = request
        self._window = window
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if not self.began.done():
            self.began.set_result(None)
        whole = self.tail + data
        at = whole.find(_MARK)
        end = 0
        while at >= 0 and len(whole) >= at + len(_MARK) + _TIME:
            start = at + len(_MARK)
            end = start + _TIME
            self.chunks += 1
            if self._window.is_open:
                sent = int(whole[start:end])
                self._window.latencies.append((monotonic_ns() - sent) // 1000)
            at = whole.find(_MARK, end)
        # a mark may be cut in two
        self.tail = whole[max(end, len(whole) - len(_MARK) - _TIME) :]
        if _END in data and not self.ended.done():
            self.ended.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        for future in (self.began, self.ended):
            if not future.done():
                future.set_result(None)

    def close(self) -> None:
        """Leave, as somebody does who reloads a page."""
        if self._transport is not None:
            self._transport.abort()


async def read(port: int, request: bytes, window: Window) -> Reader:
    """Send a request on a connection of its own, and return once its answer begins."""
    loop = asyncio.get_running_loop()
    _, reader = await loop.create_connection(lambda: Reader(request, window), "127.0.0.1", port)
    await reader.began
    return reader


async def fetch(port: int, request: bytes) -> bytes:
    """Send a request, and return the whole answer."""
    source, sink = await asyncio.open_connection("127.0.0.1", port)
    try:
        sink.write(request)
        return await source.read()
    finally:
        sink.close()


def write_run(thread: str, chunks: int, pause_ms: int, *, user: str = "") -> bytes:
    """Return a request that starts a run in a thread."""
    message = {"id": str(uuid.uuid4()), "role": "user", "content": f"{chunks} {pause_ms}"}
    return _write("run", thread, [message], user)


def write_connect(thread: str) -> bytes:
    """Return a request that follows what happens in a thread."""
    return _write("connect", thread, [], "")


def write_stop(thread: str) -> bytes:
    """Return a request that stops a thread's run, on a connection that ends with its answer."""
    return write_request("POST", f"/agent/default/stop/{thread}", b"{}")


def write_request(method: str, path: str, body: bytes = b"", *, user: str = "") -> bytes:
    """Return a request on a connection that ends with its answer."""
    head = _write_head(method, path, len(body), user, "close")
    return head + body


def _write(operation: str, thread: str, messages: Sequence[object], user: str) -> bytes:
    body = {
        "threadId": thread,
        "runId": str(uuid.uuid4()),
        "state": {},
        "messages": messages,
        "tools": [],
        "context": [],
        "forwardedProps": {},
    }
    data = json.dumps(body, separators=(",", ":")).encode()
    path = f"/agent/default/{operation}"
    return _write_head("POST", path, len(data), user, "keep-alive") + data


def _write_head(method: str, path: str, length: int, user: str, connection: str) -> bytes:
    return (
        f"{method} {PATH}{path} HTTP/1.1\r\nhost: localhost\r\nconnection: {connection}\r\n"
        f"content-type: application/json\r\ncontent-length: {length}\r\n"
        f"accept: text/event-stream\r\n{f'x-user: {user}' if user else 'x-none: 1'}\r\n\r\n"
    ).encode()
