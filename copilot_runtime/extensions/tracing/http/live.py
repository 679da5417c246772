"""Spans as they begin and end, for those who watch: each reader has a short queue of its own."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import NamedTuple, Self

from copilot_runtime.extensions.tracing.store.records import Record, encode_span
from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.span import Span
from copilot_runtime.telemetry.telemetry import Phase, Telemetry

MOST_WAITING = 1_000
"""Beginnings and ends that wait for one reader. Who is further behind is let go."""

_WAKE_SECONDS = 1.0
"""How often a reader looks whether the server ends: nothing else would tell it in a silence."""


class LiveSpan(NamedTuple):
    """A span that has begun or ended just now, as its record. It ends at 0 while it is open."""

    phase: Phase
    record: Record


class ReaderBehind(Exception):
    """A reader took so little that it is let go; it may begin anew."""


class LiveReader:
    """Collects spans for one reader, from the first moment on. Use it as a context."""

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
        """The traces of the thread: not each span says which thread it is of."""

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
        """Take a span from whatever thread it is in."""
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
