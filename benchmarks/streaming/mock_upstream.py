"""The upstream of every target: a mock model provider and agent that cost next to nothing.

    POST   /agui...     a run of AG-UI in server-sent events, as its marker asks (scripts.py)
    POST   anything     a chat completion in server-sent events, likewise
    GET    /__stats     what was streamed; times are microseconds of CLOCK_MONOTONIC
    DELETE /__stats     forget the finished streams
    GET    anything     "ok"

A raw protocol with pre-rendered bytes: an HTTP library would be what is measured.
By hand: `python -m benchmarks.streaming.mock_upstream --port 4701`.
"""

import argparse
import asyncio
import json
import re
import time
from collections.abc import Callable
from typing import cast

import uvloop

from benchmarks.streaming.scripts import agui_bytes, find_script, openai_bytes

_LENGTH = re.compile(rb"content-length: *(\d+)")
_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"cache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n"
)
_ANSWER_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"


def now_us() -> int:
    """Microseconds of CLOCK_MONOTONIC: comparable between the processes of one machine."""
    return time.monotonic_ns() // 1000


class Wheel:
    """One ticker of 1 ms for all paced streams: a timer per stream costs more than the writes."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._slots: dict[int, list[Callable[[], None]]] = {}
        self._last_ms = 0
        self._ticking = False

    def call_at(self, due_ms: float, callback: Callable[[], None]) -> None:
        """Call back in the millisecond `due_ms` of time.monotonic(), or in the next one."""
        self._slots.setdefault(max(int(due_ms), self._last_ms + 1), []).append(callback)
        if not self._ticking:
            self._ticking = True
            self._last_ms = max(self._last_ms, int(time.monotonic() * 1000) - 1)
            self._loop.call_later(0.001, self._tick)

    def _tick(self) -> None:
        now_ms = int(time.monotonic() * 1000)
        while self._last_ms < now_ms:
            self._last_ms += 1
            for callback in self._slots.pop(self._last_ms, ()):
                callback()
        if self._slots:
            self._loop.call_later(0.001, self._tick)
        else:
            self._ticking = False


class StreamRecord:
    """When one stream arrived, began and ended (microseconds), and whether it was cut."""

    __slots__ = ("arrive_us", "early", "end_us", "first_us")

    def __init__(self) -> None:
        self.arrive_us = now_us()
        self.first_us = 0
        self.end_us = 0
        self.early = False


class Upstream:
    """What the connections share."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.wheel = Wheel(loop)
        self.streams: dict[str, StreamRecord] = {}
        self.started = 0

    def forget_finished(self) -> None:
        """Keep only what is still open."""
        self.streams = {key: record for key, record in self.streams.items() if not record.end_us}
        self.started = 0

    def stats(self) -> bytes:
        """Return every remembered stream as JSON."""
        streams = {
            key: {name: getattr(record, name) for name in record.__slots__}
            for key, record in self.streams.items()
        }
        return json.dumps({"started": self.started, "streams": streams}).encode()


class Connection(asyncio.Protocol):
    """One keep-alive connection: reads a whole request, writes one stream."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._received = b""
        self._transport: asyncio.Transport | None = None
        self._record: StreamRecord | None = None
        self._paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=64 * 1024)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._close_record(early=True)
        self._transport = None

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        if self._record is not None and self._script.delay_ms == 0:
            self._flood()

    def data_received(self, data: bytes) -> None:
        self._received += data
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            return
        head, body = self._received[:end].lower(), self._received[end + 4 :]
        length = _LENGTH.search(head)
        if length:
            if len(body) < int(length.group(1)):
                return
        elif b"transfer-encoding: chunked" in head and not body.endswith(b"0\r\n\r\n"):
            return
        self._received = b""
        if head.startswith(b"post"):
            self._stream(body, agui=head.startswith(b"post /agui"))
        else:
            self._answer(head)

    def _answer(self, head: bytes) -> None:
        answer = b"ok"
        if b"/__stats" in head.split(b"\r\n", 1)[0]:
            if head.startswith(b"delete"):
                self._upstream.forget_finished()
            else:
                answer = self._upstream.stats()
        self._write(_ANSWER_HEAD % len(answer) + answer)

    def _stream(self, body: bytes, *, agui: bool) -> None:
        upstream = self._upstream
        self._script = script = find_script(body, default_id=str(upstream.started))
        self._bytes = agui_bytes(script, body) if agui else openai_bytes(script)
        self._next = 0
        self._record = upstream.streams[script.stream_id] = StreamRecord()
        upstream.started += 1
        if script.first_after_ms:
            upstream.wheel.call_at(time.monotonic() * 1000 + script.first_after_ms, self._begin)
        else:
            self._begin()

    def _begin(self) -> None:
        if self._transport is None or self._record is None:
            return
        self._record.first_us = now_us()
        self._write(_STREAM_HEAD + self._bytes.start)
        if self._script.delay_ms:
            self._began_ms = time.monotonic() * 1000
            self._pace()
        else:
            self._upstream.loop.call_soon(self._flood)

    def _pace(self) -> None:
        if self._record is None:
            return
        if self._next < self._script.chunks:
            self._write(self._bytes.chunk_format % (self._next, now_us()))
            self._next += 1
            due_ms = self._began_ms + self._next * self._script.delay_ms
            self._upstream.wheel.call_at(due_ms, self._pace)
        else:
            self._finish()

    def _flood(self) -> None:
        if self._record is None or self._paused:
            return
        count = min(self._script.burst, self._script.chunks - self._next)
        chunk_format, sent_us = self._bytes.chunk_format, now_us()
        if count == 1:
            self._write(chunk_format % (self._next, sent_us))
        elif count > 1:
            numbers = range(self._next, self._next + count)
            self._write(b"".join([chunk_format % (number, sent_us) for number in numbers]))
        self._next += count
        if self._next >= self._script.chunks:
            self._finish()
        else:
            self._upstream.loop.call_soon(self._flood)

    def _finish(self) -> None:
        self._write(self._bytes.end)
        self._close_record(early=False)

    def _close_record(self, *, early: bool) -> None:
        if self._record is not None:
            self._record.end_us, self._record.early = now_us(), early
            self._record = None

    def _write(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)


async def serve(port: int) -> None:
    """Serve on loopback until ended."""
    loop = asyncio.get_running_loop()
    upstream = Upstream(loop)
    server = await loop.create_server(lambda: Connection(upstream), "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="mock_upstream")
    parser.add_argument("--port", type=int, default=4701)
    uvloop.run(serve(parser.parse_args().port))
