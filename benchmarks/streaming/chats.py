"""One chat as a client sees it: a connection that checks every byte of the answers."""

import asyncio
import re
from dataclasses import dataclass
from typing import cast

from benchmarks.streaming.clients import Client
from benchmarks.streaming.mock_upstream import now_us
from benchmarks.streaming.scripts import TOKEN

ABORTED = "aborted"
"""What a chat ends with when the load client itself closed it."""

_ERROR = re.compile(rb'"errors":|RUN_ERROR|FailedResponseStatus|FailedMessageStatus')
_LENGTH = re.compile(rb"content-length: *(\d+)")
_SHOWN_BYTES = 300


@dataclass(slots=True)
class Times:
    """Moments of one chat in microseconds of CLOCK_MONOTONIC; 0 = not yet."""

    sent: int = 0
    first_chunk_left_mock: int = 0
    first_chunk: int = 0
    end: int = 0


class ChatConnection(asyncio.Protocol):
    """Sends chats over one connection and notices loss, swaps, cuts and errors."""

    def __init__(self, client: Client, latencies_us: list[int]) -> None:
        """The time from mock to here of every chunk is appended to `latencies_us`."""
        self._end_mark = client.end_mark
        self._fault = client.fault
        self._latencies_us = latencies_us
        self._transport: asyncio.Transport | None = None
        self._outcome: asyncio.Future[str] | None = None
        self._started = False
        self.received = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def send(self, request: bytes, chunks: int, abort_after: int = 0) -> asyncio.Future[str]:
        """Start a chat. Its future is "" for a perfect one, ABORTED, or what went wrong."""
        self._outcome = asyncio.get_running_loop().create_future()
        self._expected, self._abort_after = chunks, abort_after
        self._head, self._status, self._chunked = b"", 0, False
        self._body_left = -1
        self._chunk_left = self._skip = 0
        self._size_line = self._before = self._tail = self._error_body = b""
        self._ended = False
        self._problem = ""
        self.received = 0
        self.wire_bytes = 0
        self.times = Times(sent=now_us())
        assert self._transport is not None
        self._transport.write(request)
        return self._outcome

    def usable(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._transport = None
        if self._outcome is None or self._outcome.done():
            return
        ends_with_connection = self._status and not self._chunked and self._body_left < 0
        self._finish("" if ends_with_connection else f"closed early after {self.received} chunks")

    def data_received(self, data: bytes) -> None:
        arrived_us = now_us()
        if self._outcome is None or self._outcome.done():
            return
        self.wire_bytes += len(data)
        if not self._status:
            self._head += data
            end = self._head.find(b"\r\n\r\n")
            if end < 0:
                return
            self._read_head(self._head[:end].lower())
            data = self._head[end + 4 :]
        if self._chunked:
            payload, complete = self._decode(data)
            if payload:
                self._check(payload, arrived_us)
            if complete:
                self._finish()
        else:
            self._check(data, arrived_us)
            if self._body_left >= 0:
                self._body_left = max(0, self._body_left - len(data))
                if not self._body_left:
                    self._finish()

    def _read_head(self, head: bytes) -> None:
        self._status = int(head[9:12])
        self._chunked = b"transfer-encoding: chunked" in head
        length = _LENGTH.search(head)
        self._body_left = int(length.group(1)) if length else -1

    def _decode(self, data: bytes) -> tuple[bytes, bool]:
        """Take HTTP chunks apart, wherever they were cut."""
        at, parts = 0, list[bytes]()
        while at < len(data):
            if self._chunk_left:
                part = data[at : at + self._chunk_left]
                parts.append(part)
                at += len(part)
                self._chunk_left -= len(part)
                if not self._chunk_left:
                    self._skip = 2
            elif self._skip:
                step = min(self._skip, len(data) - at)
                at += step
                self._skip -= step
            else:
                end = data.find(b"\n", at)
                if end < 0:
                    self._size_line += data[at:]
                    break
                line, self._size_line = self._size_line + data[at:end], b""
                at = end + 1
                self._chunk_left = int(line.split(b";")[0], 16)
                if not self._chunk_left:
                    return b"".join(parts), True
        return parts[0] if len(parts) == 1 else b"".join(parts), False

    def _check(self, payload: bytes, arrived_us: int) -> None:
        if self._status != 200:
            self._error_body += payload[:400]
        text = self._tail + payload
        number, last, latencies_us = self.received, 0, self._latencies_us
        for token in TOKEN.finditer(text):
            got, left_us = int(token[1]), int(token[2])
            if got != number:
                self._problem = self._problem or f"out of order: got {got}, wanted {number}"
            if not number:
                self._before = text[: token.start()]
                self.times.first_chunk, self.times.first_chunk_left_mock = arrived_us, left_us
            number += 1
            latencies_us.append(arrived_us - left_us)
            last = token.end()
        self.received = number
        self._ended = self._ended or self._end_mark in text
        if b"rror" in text or b"ERROR" in text or b"Failed" in text:
            self._look_for_errors(text)
        self._tail = text[last:]
        if self._abort_after and number >= self._abort_after:
            self._abort()

    def _look_for_errors(self, text: bytes) -> None:
        error = _ERROR.search(text)
        if error:
            excerpt = text[error.start() : error.start() + _SHOWN_BYTES]
            self._problem = self._problem or f"error in stream: {excerpt!r}"

    def _abort(self) -> None:
        self.times.end = now_us()
        assert self._outcome is not None
        self._outcome.set_result(ABORTED)
        self.abort()

    def _finish(self, problem: str = "") -> None:
        if self._outcome is None or self._outcome.done():
            return
        problem = self._problem or problem
        if not problem and self._status != 200:
            problem = f"HTTP {self._status}: {self._error_body[:200]!r}"
        if not problem and self.received != self._expected:
            problem = (
                f"{self.received} of {self._expected} chunks, then {self._tail[-_SHOWN_BYTES:]!r}"
            )
        if not problem and not self._ended:
            problem = "no end marker"
        if not problem and self._fault is not None:
            problem = self._fault(self._before + self._tail)
        self.times.end = now_us()
        self._outcome.set_result(problem)
