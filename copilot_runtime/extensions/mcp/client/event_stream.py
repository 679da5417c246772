"""The body of an MCP server's HTTP response: within a size limit, and without malformed events."""

import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import httpx2

from copilot_runtime.extensions.mcp.client.messages import (
    LargeResults,
    MalformedMessage,
    TooManyValues,
    read_beside,
)

# https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream
_EVENT_END = re.compile(rb"\n\r?\n|\r\r")


@dataclass(frozen=True, slots=True)
class MessageLimit:
    """The maximum size of a message, in bytes, and a sentence that names the limit."""

    size: float
    sentence: str = ""

    def __str__(self) -> str:
        return self.sentence or f"It has more than {self.size} bytes."


class LimitedStream(httpx2.AsyncByteStream):
    """A body that raises `StreamError` when it exceeds a limit, after it has called `on_excess`."""

    def __init__(
        self, body: Any, limit: MessageLimit, on_excess: Callable[[str], None] = lambda _: None
    ) -> None:
        self._body = body
        self._limit = limit
        self._on_excess = on_excess

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for block in self._body:
            size += len(block)
            if size > self._limit.size:
                self._on_excess(str(self._limit))
                # for this exception, the package fails only this request
                raise httpx2.StreamError(str(self._limit))
            yield block

    async def aclose(self) -> None:
        await self._body.aclose()


class EventStream(httpx2.AsyncByteStream):
    """A body of server-sent events without those that hold no JSON-RPC message.

    The package fails a request at the first of these, although the answer may follow. `report` gets
    a sentence about each. If a stream ends without more, `is_answer` makes the request fail with
    that sentence. An event that exceeds a limit raises `SSEError`, after `on_excess` got a sentence
    about it. Large results go to `results`.
    """

    def __init__(
        self,
        body: Any,
        limit: MessageLimit,
        results: LargeResults,
        *,
        is_answer: bool,
        on_excess: Callable[[str], None],
        report: Callable[[str], None],
    ) -> None:
        self._body = body
        self._limit = limit
        self._results = results
        self._is_answer = is_answer
        self._on_excess = on_excess
        self._report = report

    async def __aiter__(self) -> AsyncIterator[bytes]:
        buffer, problem = bytearray(), ""
        async for block in self._body:
            searched = max(0, len(buffer) - 2)
            buffer += block
            while match := _EVENT_END.search(buffer, searched):
                event = bytes(buffer[: match.end()])
                del buffer[: len(event)]
                searched = 0
                self._check_size(len(event))
                try:
                    yield await read_beside(self._read, event)
                except MalformedMessage as error:
                    problem = f"an event is left out: {error}"
                    self._report(problem)
                except TooManyValues as error:
                    self._exceed(str(error))
            self._check_size(len(buffer))
        if buffer:
            yield bytes(buffer)
        if problem and self._is_answer:  # with an answer, the package has stopped reading
            raise httpx2.SSEError(problem)

    async def aclose(self) -> None:
        await self._body.aclose()

    def _check_size(self, size: int) -> None:
        if size > self._limit.size:
            self._exceed(str(self._limit))

    def _exceed(self, reason: str) -> NoReturn:
        self._on_excess(reason)
        raise httpx2.SSEError(reason)

    def _read(self, event: bytes) -> bytes:
        """Return an event as the package can read it. Raises what `LargeResults.read` raises."""
        name, others, data = b"", list[bytes](), list[bytes]()
        for line in event.splitlines():
            field, _, value = line.partition(b":")
            if field == b"data":
                data.append(value.removeprefix(b" "))
                continue
            others.append(line)
            if field == b"event":
                name = value.removeprefix(b" ")
            elif field == b"id":  # the answer may come in another stream
                self._is_answer = False
        text = b"\n".join(data)
        if text and name in (b"", b"message"):
            text = self._results.read(text)
        lines = (b"data: " + line for line in text.split(b"\n")) if data else ()
        # not a carriage return at the end: the package would wait for what follows
        return b"\n".join((*filter(None, others), *lines, b"", b""))
