"""The body of an MCP server's HTTP response: within a size limit, and without malformed events."""

import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import httpx2
from mcp_types import JSONRPCMessage, JSONRPCResponse, jsonrpc_message_adapter
from pydantic import ValidationError

from copilot_runtime.base.jsontext import dumps, replace_escaped_halves
from copilot_runtime.base.jsonvalue import JsonObject, get_text
from copilot_runtime.extensions.mcp.client.messages import cut_deep_values

# https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream
_EVENT_END = re.compile(rb"\n\r?\n|\r\r")
_LARGE = "copilot_runtime/large"


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
        self, body: Any, limit: MessageLimit, on_excess: Callable[[], None] = lambda: None
    ) -> None:
        self._body = body
        self._limit = limit
        self._on_excess = on_excess

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for block in self._body:
            size += len(block)
            if size > self._limit.size:
                self._on_excess()
                # for this exception, the package fails only this request
                raise httpx2.StreamError(str(self._limit))
            yield block

    async def aclose(self) -> None:
        await self._body.aclose()


class LargeResults:
    """Results that are larger than the events that the package's older SSE transport reads.

    In their place, it reads an event with a key.
    """

    smallest = 1024 * 1024 - 1024
    """Size of an event in bytes, near the package's limit, from which its result is set aside."""

    def __init__(self) -> None:
        self._results: dict[str, JsonObject] = {}

    def set_aside(self, message: JSONRPCResponse) -> bytes:
        """Keep a result, and return the event in its place."""
        if len(self._results) >= 8:  # of requests that were cancelled
            del self._results[next(iter(self._results))]
        key = str(message.id)
        self._results[key] = message.result
        return dumps({"jsonrpc": "2.0", "id": message.id, "result": {_LARGE: key}})

    def restore(self, result: JsonObject) -> JsonObject:
        """Return the result with the key in another one, which is returned if it has none."""
        return self._results.pop(get_text(result, _LARGE), result)


class EventStream(httpx2.AsyncByteStream):
    """A body of server-sent events without those that hold no JSON-RPC message.

    The package fails a request at the first of these, although the answer may follow. `report` gets
    a sentence about each. If a stream ends without more, `is_answer` makes the request fail with
    that sentence. An event that exceeds the limit raises `SSEError`, after a call of `on_excess`.
    Those in `large` are read by the older SSE transport.
    """

    def __init__(
        self,
        body: Any,
        limit: MessageLimit,
        on_excess: Callable[[], None],
        report: Callable[[str], None],
        *,
        is_answer: bool,
        large: LargeResults | None = None,
    ) -> None:
        self._body = body
        self._limit = limit
        self._on_excess = on_excess
        self._report = report
        self._is_answer = is_answer
        self._large = large

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
                    yield self._read(replace_escaped_halves(event))
                except _MalformedEvent as error:
                    problem = f"an event is left out: {error}"
                    self._report(problem)
            self._check_size(len(buffer))
        if buffer:
            yield bytes(buffer)
        if problem and self._is_answer:  # with an answer, the package has stopped reading
            raise httpx2.SSEError(problem)

    async def aclose(self) -> None:
        await self._body.aclose()

    def _check_size(self, size: int) -> None:
        if size > self._limit.size:
            self._on_excess()
            raise httpx2.SSEError(str(self._limit))

    def _read(self, event: bytes) -> bytes:
        """Return an event as the package can read it. Raises `_MalformedEvent`."""
        try:
            message = self._parse(event)
        except _MalformedEvent:
            event = cut_deep_values(event)
            message = self._parse(event)
        return self._encode(event, message)

    def _parse(self, event: bytes) -> JSONRPCMessage | None:
        """Return the message of an event, or `None` if it has none. Raises `_MalformedEvent`."""
        name, data = b"", list[bytes]()
        for line in event.splitlines():
            field, _, value = line.partition(b":")
            match field:
                case b"data":
                    data.append(value.removeprefix(b" "))
                case b"event":
                    name = value.removeprefix(b" ")
                case b"id":  # the answer may come in another stream
                    self._is_answer = False
                case _:
                    pass
        text = b"\n".join(data).decode(errors="replace")
        if not text or name not in (b"", b"message"):
            return None
        try:
            return jsonrpc_message_adapter.validate_json(text, by_name=False)
        except ValidationError as error:
            is_json = error.errors(include_url=False)[0]["type"] != "json_invalid"
            kind = "JSON-RPC" if is_json else "JSON"
            raise _MalformedEvent(f"it is no {kind} ({text[:60]!r})") from None

    def _encode(self, event: bytes, message: JSONRPCMessage | None) -> bytes:
        large = self._large if len(event) > LargeResults.smallest else None
        if large is not None and isinstance(message, JSONRPCResponse):
            return b"data: %b\n\n" % large.set_aside(message)
        # the package would wait for what follows a carriage return
        return event.rstrip(b"\r\n") + b"\n\n"


class _MalformedEvent(ValueError):
    """An event that holds no JSON-RPC message, and why."""
