"""Keep spans: the interface of a store, and what writes in a thread of its own."""

import logging
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from time import time_ns

from copilot_runtime.concurrency import call
from copilot_runtime.telemetry.span import Span
from copilot_runtime.telemetry.store.records import Record, encode_span
from copilot_runtime.telemetry.store.traces import TraceFilter, TraceSummary

logger = logging.getLogger(__name__)

EVERYTHING = TraceFilter()
MAX_PENDING = 50_000
"""Most spans that wait to be written. More are left out, and counted."""
_GATHER_SECONDS = 0.25
_BATCH = 2_000


class TraceStore(ABC):
    """Keeps spans, and finds whole traces.

    `add` may be called from any thread, never waits and never raises. The other methods see all
    that was added before them, and raise `CopilotError` where a store cannot be read.
    """

    dropped = 0
    """How many spans were left out, because they came faster than they could be written."""

    @abstractmethod
    def add(self, span: Span) -> None:
        """Keep a span that has ended. One with the same ids takes its place."""

    @abstractmethod
    async def flush(self) -> None:
        """Write what waits."""

    @abstractmethod
    async def get_trace(self, trace_id: str) -> list[Record]:
        """Return the spans of a trace by their start; an empty list if it is not known."""

    @abstractmethod
    async def list_traces(
        self, filter: TraceFilter = EVERYTHING, *, limit: int = 100, before: str = ""
    ) -> Sequence[TraceSummary]:
        """Return traces in short, the newest first; those that began before the one named."""

    @abstractmethod
    async def query_spans(
        self, query: str = "", filter: TraceFilter = EVERYTHING, *, limit: int = 0
    ) -> list[Record]:
        """Return the spans of all traces that a JMESPath matches, by their start.

        `query` is evaluated for each trace, on the list of its spans: see `query.TraceQuery`.
        With a `limit`, at most so many traces, the newest. Raises `Misuse` for a wrong query and
        `LimitExceeded` for one that takes too long.
        """

    @abstractmethod
    async def delete_traces(self, before: int) -> int:
        """Delete traces that ended before a time, in nanoseconds; return how many."""

    async def aclose(self) -> None:
        """Write what waits, and end."""
        await self.flush()


class ThreadedTraceStore(TraceStore):
    """Encodes and writes in a thread of its own, in batches: a subclass says how."""

    def __init__(self) -> None:
        self._pending: deque[Span] = deque()
        self._wake = threading.Event()
        self._is_urgent = threading.Event()
        self._writing = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._has_failed = False

    def add(self, span: Span) -> None:
        """Keep a span that has ended."""
        if len(self._pending) >= MAX_PENDING:
            self.dropped += 1
            return
        self._pending.append(span)
        if not self._wake.is_set():
            self._wake.set()
        if self._thread is None:
            self._start_thread()

    async def flush(self) -> None:
        """Write what waits. What cannot be written is logged, and left out."""
        if self._pending:
            await call(self._write_pending)

    async def aclose(self) -> None:
        """Write what waits, and end the thread."""
        await self.flush()
        self._is_closed = True
        self._is_urgent.set()
        self._wake.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            await call(thread.join, 5.0)

    @abstractmethod
    def _write(self, records: Sequence[Record]) -> None:
        """Write spans. Runs in a thread, one call at a time."""

    def _clean(self, now: int) -> None:
        """Delete what is too old or too much. Runs in a thread, after a batch."""
        del now

    def _start_thread(self) -> None:
        self._is_closed = False
        self._is_urgent.clear()
        thread = threading.Thread(target=self._write_forever, name="traces", daemon=True)
        self._thread = thread
        thread.start()

    def _write_forever(self) -> None:
        while not self._is_closed:
            self._wake.wait()
            self._is_urgent.wait(_GATHER_SECONDS)  # others come meanwhile
            self._wake.clear()
            self._write_pending()

    def _write_pending(self) -> None:
        with self._writing:
            while batch := self._take_batch():
                try:
                    self._write(batch)
                    self._clean(time_ns())
                    self._has_failed = False
                except Exception as error:  # a full disk must not end anything else
                    self.dropped += len(batch)
                    if not self._has_failed:
                        logger.warning("Traces cannot be kept: %s", error)
                    self._has_failed = True

    def _take_batch(self) -> list[Record]:
        batch: list[Record] = []
        while len(batch) < _BATCH:
            try:
                span = self._pending.popleft()
            except IndexError:
                break
            batch.append(encode_span(span))
        return batch
