"""One chat as a client sees it: the request it sends, and a connection that checks every byte."""

import asyncio
import json
import re
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

from benchmarks.streaming.mock_upstream import now_us
from benchmarks.streaming.scripts import TOKEN

ABORTED = "aborted"
"""What a chat ends with when the load client itself closed it."""

_ROOT = Path(__file__).parents[2]
_CLIENT_DOCUMENTS = _ROOT / "tests" / "conformance" / "v1" / "client-documents"
_V1_DOCUMENT = _CLIENT_DOCUMENTS / "generateCopilotResponse.graphql"
_V1_ACCEPT = (
    "application/graphql-response+json, application/graphql+json, application/json, "
    "text/event-stream, multipart/mixed"
)
_V1_TIME = "2026-01-01T00:00:00.000Z"
_END_MARKS = {"openai": b"[DONE]", "v1": b'"hasNext":false'}
_ERROR = re.compile(rb'"errors":|RUN_ERROR|FailedResponseStatus|FailedMessageStatus')
_LENGTH = re.compile(rb"content-length: *(\d+)")
_TAIL_BYTES = 64


class RequestWriter:
    """Writes the HTTP requests of one kind of client: `openai`, or `v1` of CopilotKit."""

    def __init__(self, kind: str, url: str, history: int) -> None:
        """`history` is the number of past messages that every request repeats."""
        self._kind = kind
        self._address = urlsplit(url)
        self._document = _V1_DOCUMENT.read_text() if kind == "v1" else ""
        self._past = [
            ("assistant" if number % 2 else "user", f"past message {number} " + "lorem ipsum " * 10)
            for number in range(history)
        ]

    def write(self, prompt: str) -> bytes:
        """Return head and body of one request whose last user message is `prompt`."""
        body = self._v1_body(prompt) if self._kind == "v1" else self._openai_body(prompt)
        data = json.dumps(body, separators=(",", ":")).encode()
        headers = {
            "host": self._address.netloc,
            "content-type": "application/json",
            "content-length": str(len(data)),
            "connection": "keep-alive",
            "authorization": "Bearer sk-mock",
            "accept": _V1_ACCEPT if self._kind == "v1" else "application/json",
        }
        if self._kind == "v1":
            headers["x-copilotkit-runtime-client-gql-version"] = "1.10.6"
        lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
        return f"POST {self._address.path} HTTP/1.1\r\n{''.join(lines)}\r\n".encode() + data

    def _openai_body(self, prompt: str) -> dict[str, object]:
        said = [("system", "You are a test."), *self._past, ("user", prompt)]
        messages = [{"role": role, "content": content} for role, content in said]
        return {"model": "gpt-4o", "stream": True, "messages": messages}

    def _v1_body(self, prompt: str) -> dict[str, object]:
        past = [(f"h{i}", role, content) for i, (role, content) in enumerate(self._past)]
        said = [("sys-1", "system", "You are a test."), *past, ("user-1", "user", prompt)]
        messages = [
            {"id": key, "createdAt": _V1_TIME, "textMessage": {"content": text, "role": role}}
            for key, role, text in said
        ]
        data: dict[str, object] = {
            "agentStates": [],
            "context": [],
            "extensions": {},
            "forwardedParameters": {},
            "frontend": {"actions": [], "url": "http://localhost:3000/"},
            "messages": messages,
            "metaEvents": [],
            "metadata": {"requestType": "Chat"},
            "runId": None,
            "threadId": str(uuid.uuid4()),
        }
        return {
            "operationName": "generateCopilotResponse",
            "query": self._document,
            "variables": {"data": data, "properties": {}},
        }


@dataclass(slots=True)
class Times:
    """Moments of one chat in microseconds of CLOCK_MONOTONIC; 0 = not yet."""

    sent: int = 0
    first_chunk_left_mock: int = 0
    first_chunk: int = 0
    end: int = 0


class ChatConnection(asyncio.Protocol):
    """Sends chats over one connection and notices loss, swaps, cuts and errors."""

    def __init__(self, kind: str, latencies_us: list[int]) -> None:
        """The time from mock to here of every chunk is appended to `latencies_us`."""
        self._end_mark = _END_MARKS[kind]
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
        self._size_line = self._tail = self._error_body = b""
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
                self.times.first_chunk, self.times.first_chunk_left_mock = arrived_us, left_us
            number += 1
            latencies_us.append(arrived_us - left_us)
            last = token.end()
        self.received = number
        self._ended = self._ended or self._end_mark in text
        if b"rror" in text or b"ERROR" in text or b"Failed" in text:
            self._look_for_errors(text)
        self._tail = text[max(last, len(text) - _TAIL_BYTES) :]
        if self._abort_after and number >= self._abort_after:
            self._abort()

    def _look_for_errors(self, text: bytes) -> None:
        error = _ERROR.search(text)
        if error:
            excerpt = text[error.start() : error.start() + 300]
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
            problem = f"{self.received} of {self._expected} chunks, then {self._tail!r}"
        if not problem and not self._ended:
            problem = "no end marker"
        self.times.end = now_us()
        self._outcome.set_result(problem)
