"""A trace store in memory that keeps the latest traces."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from copilot_runtime.extensions.tracing.store.query import TraceQuery
from copilot_runtime.extensions.tracing.store.records import Record, encode_span
from copilot_runtime.extensions.tracing.store.store import T, TraceReader, TraceStore, weigh_span
from copilot_runtime.extensions.tracing.store.text_search import match_text
from copilot_runtime.extensions.tracing.store.traces import (
    TraceFilter,
    TraceSummary,
    count_spans,
    match_summary,
)
from copilot_runtime.telemetry.span import Span


@dataclass(slots=True)
class _Trace:
    """The spans of a trace in arrival order, and its summary, computed on first use."""

    spans: dict[str, tuple[Span, int]] = field(default_factory=dict[str, tuple[Span, int]])
    """Spans by id, each with its size when it arrived."""
    weight: int = 0
    summary: TraceSummary | None = None
    changes: int = 0


class MemoryTraceStore(TraceStore):
    """Stores the newest traces, at most `max_traces` and `max_spans`, until the process ends.

    The oldest traces are also deleted when the values of all spans take more than about `max_size`
    bytes.
    """

    def __init__(
        self,
        *,
        max_traces: int = 1_000,
        max_spans: int = 20_000,
        max_size: int = 128_000_000,
    ) -> None:
        self.max_traces = max_traces
        self.max_spans = max_spans
        self.max_size = max_size
        self._traces: OrderedDict[str, _Trace] = OrderedDict()
        self._count = 0
        self._size = 0
        self._lock = threading.Lock()

    def add(self, span: Span) -> None:
        """Store an ended span, and delete the oldest traces if a limit is exceeded."""
        weight = weigh_span(span)
        with self._lock:
            trace = self._traces.get(span.trace_id)
            if trace is None:
                trace = self._traces[span.trace_id] = _Trace()
            spans, gain = trace.spans, weight
            former = spans.get(span.span_id)
            if former is not None:
                gain -= former[1]
            elif len(spans) >= self.max_spans or (spans and trace.weight > self.max_size):
                self.dropped += 1  # one trace alone is too large
                return
            else:
                self._count += 1
            spans[span.span_id] = span, weight
            trace.weight += gain
            trace.summary = None
            trace.changes += 1
            self._size += gain
            while (
                len(self._traces) > self.max_traces
                or self._count > self.max_spans
                or self._size > self.max_size
            ) and len(self._traces) > 1:
                self._forget(next(iter(self._traces)))

    async def flush(self) -> None:
        """Do nothing: spans are stored immediately."""

    async def delete_traces(self, before: int) -> int:
        """Delete traces that ended before a time in nanoseconds; return their number."""
        with self._lock:
            old = [
                trace_id
                for trace_id, trace in self._traces.items()
                if all(span.end_time < before for span, _ in trace.spans.values())
            ]
            for trace_id in old:
                self._forget(trace_id)
        return len(old)

    async def delete_trace(self, trace_id: str) -> bool:
        """Delete a trace; return True if it existed."""
        with self._lock:
            exists = trace_id in self._traces
            if exists:
                self._forget(trace_id)
        return exists

    def _read(self, work: Callable[[TraceReader], T], search: TraceQuery | None = None) -> T:
        del search
        return work(self)

    def find(self, filter: TraceFilter, before: str = "") -> Iterator[TraceSummary]:
        """Yield the summaries of matching traces, the newest first."""
        return (summary for summary, _ in self._find(filter, before))

    def read(
        self, filter: TraceFilter, before: str = ""
    ) -> Iterator[tuple[TraceSummary, Sequence[Record]]]:
        """Yield matching traces, the newest first, with their spans in arrival order."""
        for summary, trace in self._find(filter, before):
            with self._lock:
                spans = list(trace.spans.values())
            records = [encode_span(span) for span, _ in spans]
            if match_text(summary.question, records, filter.text):
                yield summary, records

    def _find(self, filter: TraceFilter, before: str) -> Iterator[tuple[TraceSummary, _Trace]]:
        first = next(map(_age, self._list(before)), None) if before else None
        for one in sorted(self._list(filter.trace_id), key=_age, reverse=True):
            is_after = not before or (first is not None and _age(one) < first)
            if is_after and match_summary(one[0], filter):
                yield one

    def _list(self, trace_id: str = "") -> Sequence[tuple[TraceSummary, _Trace]]:
        """Return all traces, or only one, each with its summary."""
        with self._lock:
            if trace_id:
                items = [(one, self._traces[one]) for one in (trace_id,) if one in self._traces]
            else:
                items = list(self._traces.items())
        return [(trace.summary or self._summarize(own_id, trace), trace) for own_id, trace in items]

    def _summarize(self, trace_id: str, trace: _Trace) -> TraceSummary:
        with self._lock:
            spans, changes = list(trace.spans.values()), trace.changes
        summary = count_spans(trace_id, (encode_span(span) for span, _ in spans))
        with self._lock:
            if trace.changes == changes:
                trace.summary = summary
        return summary

    def _forget(self, trace_id: str) -> None:
        trace = self._traces.pop(trace_id)
        self._count -= len(trace.spans)
        self._size -= trace.weight


def _age(trace: tuple[TraceSummary, _Trace]) -> tuple[int, str]:
    return trace[0].start, trace[0].trace_id
