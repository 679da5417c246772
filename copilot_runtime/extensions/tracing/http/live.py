"""A live stream of span starts and ends: each reader has its own bounded queue."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import NamedTuple, Self

from copilot_runtime.extensions.tracing.store.records import Record, encode_span
from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.span import Span
from copilot_runtime.telemetry.telemetry import Phase, Telemetry

MOST_WAITING = 1_000
"""Queue size per reader. A reader that falls further behind is disconnected."""

_WAKE_SECONDS = 1.0
"""Interval in seconds in which an idle reader checks whether the server shuts down."""


class LiveSpan(NamedTuple):
    """The start or end of a span, with its record. The end time of an open span is 0."""

    phase: Phase
    record: Record


class ReaderBehind(Exception):
    """The reader fell behind and is disconnected; it may reconnect."""


class LiveReader:
    """A context manager that queues spans for one reader from entry on."""

    def __init__(
        self,
        telemetry: Telemetry,
        *,
        trace_id: str = "",
        thread_id: str = "",
        is_closing: Callable[[], bool] = lambda: False,
    ) -> None:
        self._telemetry = telemetry
        self._trace_id = trace_id
        self._thread_id = thread_id
        self._is_closing = is_closing
        self._queue = asyncio.Queue[LiveSpan | None](MOST_WAITING)
        self._loop = asyncio.get_running_loop()
        self._is_behind = False
        self._traces: set[str] = set()
        """Trace ids of the thread: not every span has the thread id."""

    def __enter__(self) -> Self:
        self._end = self._telemetry.listen(self._take)
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    async def read(self) -> AsyncGenerator[LiveSpan, None]:
        """Yield spans until the server ends. Raises `ReaderBehind`."""
        while not self._is_closing():
            try:
                async with asyncio.timeout(_WAKE_SECONDS):
                    item = await self._queue.get()
            except TimeoutError:
                item = None
            if self._is_behind:
                raise ReaderBehind
            if item is not None:
                yield item

    def _take(self, span: Span, phase: Phase) -> None:
        """Queue a span from any thread."""
        if self._is_behind or not self._is_meant(span):
            return
        record = encode_span(span)  # its attributes go on changing until it ends
        item = LiveSpan(phase, {**record, "attributes": {**record["attributes"]}})
        self._loop.call_soon_threadsafe(self._put, item)

    def _put(self, item: LiveSpan) -> None:
        if self._is_behind:
            return
        if self._queue.full():
            self._is_behind = True
            return
        self._queue.put_nowait(item)

    def _is_meant(self, span: Span) -> bool:
        if self._trace_id and span.trace_id != self._trace_id:
            return False
        if not self._thread_id or span.trace_id in self._traces:
            return True
        if span.attributes.get(semconv.CONVERSATION_ID) != self._thread_id:
            return False
        if len(self._traces) >= MOST_WAITING:
            self._traces.clear()
        self._traces.add(span.trace_id)
        return True
