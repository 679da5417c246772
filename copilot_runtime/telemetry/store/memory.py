"""Traces in memory: the last ones, for a page to look at."""

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from copilot_runtime.concurrency import call
from copilot_runtime.telemetry.span import Span
from copilot_runtime.telemetry.store.query import TraceQuery
from copilot_runtime.telemetry.store.records import Record, encode_span
from copilot_runtime.telemetry.store.store import EVERYTHING, TraceStore
from copilot_runtime.telemetry.store.traces import (
    TraceFilter,
    TraceSummary,
    count_spans,
    match_summary,
    match_text,
    sort_spans,
)


@dataclass(slots=True)
class _Trace:
    """The spans of a trace as they came, and the trace in short, once somebody has asked for it."""

    spans: dict[str, Span] = field(default_factory=dict[str, Span])
    weight: int = 0
    summary: TraceSummary | None = None


class MemoryTraceStore(TraceStore):
    """Keeps the last traces, at most `max_traces` and `max_spans`, until the process ends.

    Of what people and models wrote, at most `max_content` characters are kept: the oldest traces go
    with it.
    """

    def __init__(
        self,
        *,
        max_traces: int = 1_000,
        max_spans: int = 20_000,
        max_content: int = 64_000_000,
    ) -> None:
        self.max_traces = max_traces
        self.max_spans = max_spans
        self.max_content = max_content
        self._traces: OrderedDict[str, _Trace] = OrderedDict()
        self._count = 0
        self._content = 0
        self._lock = threading.Lock()

    def add(self, span: Span) -> None:
        """Keep a span that has ended; the oldest traces go, if there are too many."""
        weight = weigh(span.content) if span.content else 0
        with self._lock:
            trace = self._traces.get(span.trace_id)
            if trace is None:
                trace = self._traces[span.trace_id] = _Trace()
            former = trace.spans.get(span.span_id)
            if former is None:
                if len(trace.spans) >= self.max_spans:  # one trace alone
                    self.dropped += 1
                    return
                self._count += 1
            elif former.content:
                weight -= weigh(former.content)
            trace.spans[span.span_id] = span
            trace.weight += weight
            trace.summary = None
            self._content += weight
            while len(self._traces) > 1 and self._is_full():
                self._forget(next(iter(self._traces)))

    async def flush(self) -> None:
        """There is nothing to write."""

    async def get_trace(self, trace_id: str) -> list[Record]:
        """Return the spans of a trace by their start; an empty list if it is not known."""
        with self._lock:
            trace = self._traces.get(trace_id)
            spans = list(trace.spans.values()) if trace is not None else []
        return sort_spans(map(encode_span, spans))

    async def list_traces(
        self, filter: TraceFilter = EVERYTHING, *, limit: int = 100, before: str = ""
    ) -> Sequence[TraceSummary]:
        """Return traces in short, the newest first; those that began before the one named."""

        def find() -> Sequence[TraceSummary]:
            found = (summary for summary, _ in self._find(filter, before))
            return list(islice(found, max(0, limit)))

        return await call(find)

    async def query_spans(
        self, query: str = "", filter: TraceFilter = EVERYTHING, *, limit: int = 0
    ) -> list[Record]:
        """Return the spans of all traces that a JMESPath matches, by their start."""
        compiled = TraceQuery(query)
        meant = compiled.narrow(filter)

        def find() -> list[Record]:
            if meant is None:
                return []
            return compiled.collect((spans for _, spans in self._find(meant)), limit)

        return await compiled.run(find)

    async def delete_traces(self, before: int) -> int:
        """Delete traces that ended before a time, in nanoseconds; return how many."""
        with self._lock:
            old = [
                trace_id
                for trace_id, trace in self._traces.items()
                if all(span.end_time < before for span in trace.spans.values())
            ]
            for trace_id in old:
                self._forget(trace_id)
        return len(old)

    async def delete_trace(self, trace_id: str) -> bool:
        """Delete a trace; return whether there was one."""
        with self._lock:
            exists = trace_id in self._traces
            if exists:
                self._forget(trace_id)
        return exists

    def _find(
        self, filter: TraceFilter, before: str = ""
    ) -> Iterator[tuple[TraceSummary, Sequence[Record]]]:
        """Yield the traces that are meant, the newest first; of each the spans as they came."""
        traces = self._summarize()
        first = next((one for one, _ in traces if one.trace_id == before), None)
        for summary, spans in traces:
            if before and (first is None or _age(summary) >= _age(first)):
                continue
            if match_summary(summary, filter):
                records = [encode_span(span) for span in spans]
                if match_text(records, filter.text):
                    yield summary, records

    def _summarize(self) -> Sequence[tuple[TraceSummary, Sequence[Span]]]:
        """Return all traces in short and their spans, the newest first."""
        with self._lock:
            traces = [
                (trace_id, trace, list(trace.spans.values()), trace.summary)
                for trace_id, trace in self._traces.items()
            ]
        found: list[tuple[TraceSummary, Sequence[Span]]] = []
        for trace_id, trace, spans, former in traces:
            summary = former or count_spans(trace_id, map(encode_span, spans))
            found.append((summary, spans))
            with self._lock:
                if len(trace.spans) == len(spans):
                    trace.summary = summary
        return sorted(found, key=lambda one: _age(one[0]), reverse=True)

    def _is_full(self) -> bool:
        return (
            len(self._traces) > self.max_traces
            or self._count > self.max_spans
            or self._content > self.max_content
        )

    def _forget(self, trace_id: str) -> None:
        trace = self._traces.pop(trace_id)
        self._count -= len(trace.spans)
        self._content -= trace.weight


def _age(summary: TraceSummary) -> tuple[int, str]:
    return summary.start, summary.trace_id


def weigh(content: Mapping[str, Any]) -> int:
    """Return about how many characters there are in a value of JSON."""
    size, waiting = 0, list[Any](content.values())
    while waiting:
        match waiting.pop():
            case str() as text:
                size += len(text)
            case dict() as entries:
                size += 8
                waiting += entries.values()
            case list() | tuple() as items:
                size += 8
                waiting += items
            case _:
                size += 8
    return size
