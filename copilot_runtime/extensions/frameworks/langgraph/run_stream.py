"""Streams one run of a LangGraph server to its end; a broken connection is resumed.

The SDK's own stream is not used: it waits a second or more before it reconnects, counts an event
that was cut before its id, which then comes twice, and needs six times the CPU for each.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any, NamedTuple

from copilot_runtime.agents.forwarding import (
    build_incomplete_stream,
    map_network_error,
    read_refusal,
)
from copilot_runtime.base.errors import CopilotError, IncompleteStream, NetworkError, RunStalled
from copilot_runtime.base.jsontext import dumps, loads
from copilot_runtime.base.jsonvalue import as_object
from copilot_runtime.extensions.frameworks.langgraph.errors import (
    invalid_response_error,
    map_status_error,
)
from copilot_runtime.http.client import Exchange, StreamResponse, Upstream
from copilot_runtime.http.errors import backoff

_LIMIT = 32 * 1024 * 1024
"""The largest event, in bytes: it may contain a whole state."""


class Frame(NamedTuple):
    """One event; `id` is None if the stream cannot be resumed."""

    name: str
    data: bytes
    id: str | None


class FrameParser:
    """Takes blocks of bytes, cut anywhere, and returns the complete events.

    An event without its empty line is dropped: its id may be missing, and then it comes again.
    """

    def __init__(self) -> None:
        self._rest: list[bytes] = []  # an incomplete line
        self._lines: list[bytes] = []  # the lines of an incomplete event
        self._size = 0  # of both

    def feed(self, block: bytes) -> list[Frame]:
        """Return the events that end in this block. Raises `NetworkError` for one too large."""
        self._rest.append(block)
        self._size += len(block)
        frames: list[Frame] = []
        if b"\n" in block:
            *lines, rest = b"".join(self._rest).split(b"\n")
            self._rest = [rest]
            for line in lines:
                if line := line.removesuffix(b"\r"):
                    self._lines.append(line)
                    continue
                if (frame := _parse_frame(self._lines)) is not None:
                    frames.append(frame)
                self._lines.clear()
                self._size = 0
            self._size = self._size or len(rest) + sum(map(len, self._lines))
        if self._size > _LIMIT:
            raise NetworkError(f"The agent sent an event larger than {_LIMIT} bytes.")
        return frames


def _parse_frame(lines: Sequence[bytes]) -> Frame | None:
    name, id = "", None
    data: list[bytes] = []
    for line in lines:
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match field:
            case b"event":
                name = value.decode(errors="replace")
            case b"data":
                data.append(value)
            case b"id":
                id = value.decode(errors="replace")
            case _:  # comments are signs of life
                pass
    return Frame(name, b"\n".join(data), id) if data else None


_ATTEMPTS = 5
"""Largest number of reconnections in a row without an event."""

_RESPONSE_TIMEOUT = 5.0
_RUN_URL = re.compile(r"/threads/[^/]+/runs/([^/?]+)")
_ACTIVE_STATUSES = ("pending", "running")

Status = Callable[[str], Awaitable[str]]


class RunStream:
    """Starts a run and yields its events. `run_id` is None until the server has responded.

    `agent` is its name in errors; `status` fetches the status of the run. Set `finished` when no
    more events matter.
    """

    def __init__(
        self,
        upstream: Upstream,
        agent: str,
        url: str,
        thread_id: str,
        headers: Mapping[str, str],
        status: Status,
    ) -> None:
        self.run_id: str | None = None
        self.finished = False
        self._upstream = upstream
        self._agent = agent
        self._runs = f"{url}/threads/{thread_id}/runs"
        self._headers = {
            **headers,
            "accept": "text/event-stream",
            "accept-encoding": "identity",  # a compressing proxy would hold events back
        }
        self._status = status
        self._cursor = ResumeCursor()
        self._is_resumed = False

    async def events(self, body: Mapping[str, Any]) -> AsyncGenerator[Sequence[Frame], None]:
        """Yield the events of a new run as they come, each once.

        Raises `NetworkError`, `RunStalled`, `IncompleteStream`, and the errors of a refusal.
        """
        attempts = 0
        is_stalled = False
        exchange = self._start(body)
        while True:
            cause: NetworkError | None = None
            try:
                async with aclosing(self._read(exchange)) as batches:
                    async for frames in batches:
                        attempts, is_stalled = 0, False
                        yield frames
                if await self._is_over():
                    return
            except NetworkError as error:
                cause = error
                if self.run_id is None:
                    raise map_network_error(self._agent, error) from error
                if isinstance(error, RunStalled):
                    if is_stalled:
                        raise map_network_error(self._agent, error) from error
                    is_stalled = True
            if attempts == _ATTEMPTS:
                raise self._connection_error(cause)
            if attempts:
                await asyncio.sleep(backoff(attempts - 1))
            attempts += 1
            exchange = self._resume()

    async def _read(self, exchange: Exchange) -> AsyncGenerator[Sequence[Frame], None]:
        frames = FrameParser()
        async with _PendingExchange(exchange, self._read_run_id) as reply:
            if not 200 <= reply.status < 300:
                raise await self._refusal(reply)
            if "text/event-stream" not in reply.headers.get("content-type", ""):
                raise invalid_response_error(self._agent)
            try:
                async for block in reply:
                    new = self._cursor.filter(frames.feed(block), is_resumed=self._is_resumed)
                    if new:
                        yield new
            finally:
                reply.finished = self.finished

    def _start(self, body: Mapping[str, Any]) -> Exchange:
        headers = {"content-type": "application/json", **self._headers}
        return self._upstream.post(f"{self._runs}/stream", dumps(body), headers)

    def _resume(self) -> Exchange:
        """Return the request for the events after the last one."""
        self._is_resumed = True
        headers = {**self._headers, "last-event-id": self._cursor.resume_id}
        url = f"{self._runs}/{self.run_id}/stream"
        return Exchange(self._upstream, "GET", url, None, headers)

    def _read_run_id(self, reply: StreamResponse) -> None:
        for header in ("content-location", "location"):
            if self.run_id is None and (match := _RUN_URL.search(reply.headers.get(header, ""))):
                self.run_id = match[1]

    async def _is_over(self) -> bool:
        """Return whether the run itself has ended, because proxies close streams, too."""
        if self.finished or self.run_id is None:
            return True
        try:
            return await self._status(self.run_id) not in _ACTIVE_STATUSES
        except NetworkError:
            raise
        except CopilotError as error:  # the run itself is gone
            raise self._connection_error(error) from error

    async def _refusal(self, reply: StreamResponse) -> CopilotError:
        reason = _parse_reason(await read_refusal(reply))
        error = map_status_error(self._agent, reply.status, reason)
        if self.run_id is not None and not isinstance(error, NetworkError):
            return self._connection_error(error)
        return error

    def _connection_error(self, cause: CopilotError | None) -> IncompleteStream:
        hint = cause.hint if cause is not None else "Its server ended the stream too early."
        return build_incomplete_stream(self._agent, hint)


class _PendingExchange:
    """An exchange whose response is awaited even if the caller is cancelled meanwhile.

    The server may have started a run, and only the response has the id to cancel it by.
    """

    def __init__(self, exchange: Exchange, on_reply: Callable[[StreamResponse], None]) -> None:
        self._exchange = exchange
        self._on_reply = on_reply

    async def __aenter__(self) -> StreamResponse:
        opening = asyncio.ensure_future(self._exchange.__aenter__())
        try:
            reply = await asyncio.shield(opening)
        except asyncio.CancelledError:
            with suppress(CopilotError, TimeoutError):
                async with asyncio.timeout(_RESPONSE_TIMEOUT):
                    self._on_reply(await opening)
            await self._exchange.__aexit__(None, None, None)
            raise
        self._on_reply(reply)
        return reply

    async def __aexit__(self, *_: object) -> None:
        await self._exchange.__aexit__(None, None, None)


def _parse_reason(body: bytes) -> str:
    try:
        fields = as_object(loads(body))
    except ValueError:
        return body.decode(errors="replace").strip()
    detail = fields.get("detail", fields.get("message"))
    return detail if isinstance(detail, str) else body.decode(errors="replace")


_START_ID = "-1"
_REDIS = re.compile(r"([0-9]+)-[0-9]+")
_MAX_NUMBER = 2**64 - 1
"""Largest number of an event: https://redis.io/docs/latest/commands/xadd/"""


class ResumeCursor:
    """The position in a stream, and a filter for events that a resumed stream repeats.

    The ids of events are those of Redis: milliseconds and a number. In `langgraph dev`, all numbers
    are 0, so that two events of one millisecond share an id, and a stream resumed after one of them
    lacks the other. The server also repeats events that occur during a reconnection. So the whole
    last millisecond is requested again, and known events are dropped.
    """

    def __init__(self) -> None:
        self._last_id = _START_ID
        self._moment: int | None = None
        self._events: set[tuple[str, int]] = set()

    @property
    def resume_id(self) -> str:
        """Return the `Last-Event-ID` to resume with."""
        if self._moment is None:
            return self._last_id
        return f"{self._moment - 1}-{_MAX_NUMBER}"

    def filter(self, frames: Sequence[Frame], *, is_resumed: bool) -> list[Frame]:
        """Return the events that are new, and record them. Only a resumed stream repeats any."""
        return [frame for frame in frames if self._record(frame) or not is_resumed]

    def _record(self, frame: Frame) -> bool:
        """Record an event. Return whether it is new."""
        if frame.id is None:
            return True
        self._last_id = frame.id
        moment = _parse_moment(frame.id)
        if moment is None or self._moment is None or moment > self._moment:
            self._moment = moment
            self._events = {_fingerprint(frame)}
            return True
        fingerprint = _fingerprint(frame)
        if moment < self._moment or fingerprint in self._events:
            return False
        self._events.add(fingerprint)
        return True


def _parse_moment(id: str) -> int | None:
    match = _REDIS.fullmatch(id)
    return int(match[1]) if match else None


def _fingerprint(frame: Frame) -> tuple[str, int]:
    return frame.id or "", hash((frame.name, frame.data))
