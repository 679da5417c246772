"""Trace stores: the interface, and the base class that writes batches in its own thread."""

import asyncio
import logging
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import compress, islice
from sys import getsizeof
from time import time_ns
from typing import Any, Protocol, TypeVar, cast

import orjson

from copilot_runtime.base.concurrency import call
from copilot_runtime.base.errors import CopilotError
from copilot_runtime.extensions.tracing.store.query import TraceQuery
from copilot_runtime.extensions.tracing.store.records import Record
from copilot_runtime.extensions.tracing.store.traces import TraceFilter, TraceSummary, sort_spans
from copilot_runtime.telemetry.span import Span

T = TypeVar("T")

logger = logging.getLogger(__name__)

EVERYTHING = TraceFilter()
MAX_PENDING = 100_000
"""Maximum number of spans pending to be written. Further spans are dropped and counted."""
MAX_PENDING_SIZE = 256_000_000
"""Approximate maximum size of the pending spans, in bytes."""
_GATHER_SECONDS = 0.25
_RETRY_SECONDS = 5.0
_CLEAN_SECONDS = 60.0
_BATCH = 5_000
_DEEPEST = 50


class TraceReader(Protocol):
    """Reads the traces that match a filter, the newest first; `before` is the last known id."""

    def find(self, filter: TraceFilter, before: str = "") -> Iterator[TraceSummary]:
        """Yield the summaries of traces; the text of the filter is ignored."""
        ...

    def read(
        self, filter: TraceFilter, before: str = ""
    ) -> Iterator[tuple[TraceSummary, Sequence[Record]]]:
        """Yield traces with their spans in arrival order."""
        ...


class TraceStore(ABC):
    """A store of spans, read by whole traces.

    `add` may be called from any thread, never blocks and never raises. The other methods see all
    spans that were added before, and raise `CopilotError` if the store cannot be read.
    """

    dropped = 0
    """Number of spans dropped because they arrived faster than they could be written."""

    is_failing = False
    """True while writes fail."""

    @cached_property
    def edits(self) -> asyncio.Lock:
        """The lock for read-modify-write of spans, so that no update is lost."""
        return asyncio.Lock()

    @abstractmethod
    def add(self, span: Span) -> None:
        """Store an ended span. It replaces a span with the same ids."""

    @abstractmethod
    async def flush(self) -> None:
        """Write the pending spans."""

    @abstractmethod
    def _read(self, work: Callable[[TraceReader], T], search: TraceQuery | None = None) -> T:
        """Call a function with a reader, in the running thread; `search` has a time limit."""

    async def get_trace(self, trace_id: str) -> list[Record]:
        """Return the spans of a trace sorted by start; an empty list for an unknown trace."""
        meant = TraceFilter(trace_id=clean_text(trace_id))
        await self.flush()

        def find(reader: TraceReader) -> list[Record]:
            return sort_spans(next((spans for _, spans in reader.read(meant)), []))

        return await call(self._read, find) if trace_id else []

    async def list_traces(
        self, filter: TraceFilter = EVERYTHING, *, limit: int = 100, before: str = ""
    ) -> Sequence[TraceSummary]:
        """Return trace summaries, the newest first; `before` is the id of the last known one."""
        search, most, last = TraceQuery(""), max(0, limit), clean_text(before)
        await self.flush()

        def find(reader: TraceReader) -> Sequence[TraceSummary]:
            return [*islice(reader.find(filter, last), most)]

        def find_text(reader: TraceReader) -> Sequence[TraceSummary]:
            found = search.limit_time(reader.read(filter, last))
            return [summary for summary, _ in islice(found, most)]

        if filter.text:
            return await search.run(lambda: self._read(find_text, search))
        return await call(self._read, find)

    async def query_spans(
        self, query: str = "", filter: TraceFilter = EVERYTHING, *, limit: int = 0
    ) -> list[Record]:
        """Return the spans of all traces that a JMESPath matches, by their start.

        `query` is evaluated for each trace, on the list of its spans: see `query.TraceQuery`.
        With a `limit`, at most so many traces, the newest. Raises `Misuse` for a wrong query and
        `LimitExceeded` for one that takes too long.
        """
        compiled = TraceQuery(query)
        meant = compiled.narrow(filter)
        await self.flush()
        if meant is None:
            return []

        def find(reader: TraceReader) -> list[Record]:
            return compiled.collect((spans for _, spans in reader.read(meant)), limit)

        return await compiled.run(lambda: self._read(find, compiled))

    @abstractmethod
    async def delete_traces(self, before: int) -> int:
        """Delete traces that ended before a time in nanoseconds; return their number."""

    @abstractmethod
    async def delete_trace(self, trace_id: str) -> bool:
        """Delete a trace; return True if it existed."""

    async def aclose(self) -> None:
        """Write the pending spans, and close the store."""
        await self.flush()


class ThreadedTraceStore(TraceStore):
    """A store that writes batches in its own thread; subclasses implement the write.

    A batch that fails, because the disk is full or another process locks the file, is retried, and
    new spans stay pending. `clock` returns nanoseconds since 1970.
    """

    _passing_errors: tuple[type[Exception], ...] = (OSError, CopilotError)
    """Errors after which a batch is retried."""

    def __init__(self, *, clock: Callable[[], int] = time_ns) -> None:
        self._clock = clock
        self._pending: deque[tuple[Span, int]] = deque()
        self._size = 0
        self._counting = threading.Lock()
        self._unwritten: Sequence[Span] = ()
        self._is_careful = False
        self._wake = threading.Event()
        self._is_urgent = threading.Event()
        self._writing = threading.RLock()
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._next_clean = 0

    def add(self, span: Span) -> None:
        """Store an ended span."""
        weight = weigh_span(span)
        with self._counting:
            if len(self._pending) >= MAX_PENDING or self._size + weight > MAX_PENDING_SIZE:
                self.dropped += 1
                return
            self._pending.append((span, weight))
            self._size += weight
        if not self._wake.is_set():
            self._wake.set()
        if self._thread is None:
            self._start_thread()

    async def flush(self) -> None:
        """Write the pending spans. On failure they stay pending, and the error is logged."""
        if self._pending or self._unwritten:
            await call(self._write_pending)

    async def aclose(self) -> None:
        """Write the pending spans, and end the thread. Spans that cannot be written are dropped."""
        await self.flush()
        self._is_closed = True
        self._is_urgent.set()
        self._wake.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            await call(thread.join, 5.0)
        self.dropped += len(self._pending) + len(self._unwritten)
        self._pending.clear()
        self._size = 0
        self._unwritten = ()

    @abstractmethod
    def _write(self, spans: Sequence[Span]) -> None:
        """Write spans atomically. Called in a thread, one call at a time."""

    @abstractmethod
    def _clean(self, now: int) -> None:
        """Delete expired and excess traces. Called in a thread, once a minute."""

    def _start_thread(self) -> None:
        self._is_closed = False
        self._is_urgent.clear()
        thread = threading.Thread(target=self._write_forever, name="traces", daemon=True)
        self._thread = thread
        thread.start()

    def _write_forever(self) -> None:
        while not self._is_closed:
            self._wake.wait(_CLEAN_SECONDS)
            self._is_urgent.wait(_RETRY_SECONDS if self.is_failing else _GATHER_SECONDS)
            self._wake.clear()
            self._write_pending()

    def _write_pending(self) -> None:
        with self._writing:
            while batch := self._unwritten or self._take_batch():
                self._unwritten = batch
                part = batch[:1] if self._is_careful else batch
                error = self._attempt(partial(self._write, part))
                if isinstance(error, self._passing_errors):
                    return
                if error is not None and len(part) > 1:
                    self._is_careful = True  # one of them can never be written
                    continue
                self.dropped += error is not None
                self._unwritten = batch[len(part) :]
                self._is_careful = self._is_careful and bool(self._unwritten)
            now = self._clock()
            if now >= self._next_clean:
                self._next_clean = now + int(_CLEAN_SECONDS * 1e9)
                self._attempt(lambda: self._clean(now))

    def _attempt(self, work: Callable[[], None]) -> Exception | None:
        """Call a write function; return its exception, or None."""
        try:
            work()
        except Exception as error:  # telemetry must not end anything else
            if not self.is_failing:
                logger.warning("Traces cannot be kept: %s", error)
            self.is_failing = True
            return error
        if self.is_failing:
            logger.warning("Traces are kept again.")
        self.is_failing = False
        return None

    def _take_batch(self) -> list[Span]:
        pending = self._pending
        with self._counting:
            batch = [pending.popleft() for _ in range(min(len(pending), _BATCH))]
            self._size -= sum(weight for _, weight in batch)
        return [span for span, _ in batch]


def encode_json(record: Record) -> tuple[Record, bytes]:
    """Return a record and its JSON; values that JSON cannot represent become text in both."""
    try:
        return record, orjson.dumps(record)
    except (TypeError, ValueError):  # an object, half a character, a number that is too large
        text = orjson.dumps(_plain(record))
        return orjson.loads(text), text


def _plain(value: Any, depth: int = 0) -> Any:
    """Convert a value to JSON types; other values become text."""
    if depth > _DEEPEST:
        return "…"
    match value:
        case dict():
            entries = cast("dict[Any, Any]", value)
            return {clean_text(key): _plain(item, depth + 1) for key, item in entries.items()}
        case list() | tuple() | set() | frozenset():
            return [_plain(item, depth + 1) for item in cast("Iterable[Any]", value)]
        case bool() | None | float():
            return value
        case int():
            return int(value) if -(2**63) <= value < 2**63 else clean_text(value)
        case _:
            return clean_text(value)


def clean_text(value: Any) -> str:
    """Return a value as text without lone surrogates."""
    try:
        text = value if isinstance(value, str) else repr(value)
    except Exception:  # `repr` of a third-party object
        text = type(value).__name__
    return text.encode(errors="replace").decode()


_is_container = frozenset({dict, list, tuple, set, frozenset}).__contains__
_MOST_VALUES = 100_000
"""Maximum number of values that are measured: a list may contain itself."""


def weigh_span(span: Span) -> int:
    """Return the approximate memory size of a span's values, in bytes."""
    values = {"attributes": span.attributes, "content": span.content, "resource": span.resource}
    size = len(span.name) + len(span.message) + _weigh(values)
    for event in span.events:
        size += _weigh(event.attributes)
    for link in span.links:
        size += _weigh(link.attributes)
    return size


_VALUE_SIZE = 24
"""Approximate size of a value in memory beyond that of its JSON, in bytes."""


def _weigh(values: Mapping[str, Any]) -> int:
    """Return the approximate size of values, from their JSON: each value but the last has a comma.

    One call of the encoder takes a fraction of the time of a walk, texts included.
    """
    try:
        text = orjson.dumps(values)
    except (TypeError, ValueError):  # an object, half a character, a list that contains itself
        return _measure(values)
    return len(text) + _VALUE_SIZE * text.count(b",")


def _measure(values: Mapping[str, Any]) -> int:
    """Return the size of values and of all that they contain, without a Python step for each."""
    size, left, waiting = 0, _MOST_VALUES, list[Any]([values.values()])
    while waiting and left > 0:
        items = waiting.pop()
        if isinstance(items, dict):
            waiting.append(items.values())
        size += sum(map(getsizeof, items))
        left -= len(items)
        waiting += compress(items, map(_is_container, map(type, items)))
    return size
