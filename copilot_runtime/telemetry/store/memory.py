"""Traces in memory: the last ones, for a page to look at."""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence

from copilot_runtime.concurrency import call
from copilot_runtime.telemetry.span import Span
from copilot_runtime.telemetry.store.query import TraceQuery
from copilot_runtime.telemetry.store.records import Record, encode_span
from copilot_runtime.telemetry.store.store import EVERYTHING, TraceStore
from copilot_runtime.telemetry.store.traces import (
    TraceFilter,
    TraceSummary,
    match_summary,
    sort_spans,
    summarize_trace,
)


class MemoryTraceStore(TraceStore):
    """Keeps the last traces, at most `max_traces` and `max_spans`, until the process ends."""

    def __init__(self, *, max_traces: int = 1_000, max_spans: int = 20_000) -> None:
        self.max_traces = max_traces
        self.max_spans = max_spans
        self._traces: OrderedDict[str, dict[str, Span]] = OrderedDict()
        self._count = 0

    def add(self, span: Span) -> None:
        """Keep a span that has ended; the oldest traces go, if there are too many."""
        spans = self._traces.get(span.trace_id)
        if spans is None:
            spans = self._traces[span.trace_id] = {}
        elif len(spans) >= self.max_spans:  # one trace alone
            self.dropped += 1
            return
        if span.span_id not in spans:
            self._count += 1
        spans[span.span_id] = span
        while len(self._traces) > 1 and (
            len(self._traces) > self.max_traces or self._count > self.max_spans
        ):
            _, oldest = self._traces.popitem(last=False)
            self._count -= len(oldest)

    async def flush(self) -> None:
        """There is nothing to write."""

    async def get_trace(self, trace_id: str) -> list[Record]:
        """Return the spans of a trace by their start; an empty list if it is not known."""
        return sort_spans(_encode(self._traces.get(trace_id, {})))

    async def list_traces(
        self, filter: TraceFilter = EVERYTHING, *, limit: int = 100, before: str = ""
    ) -> Sequence[TraceSummary]:
        """Return traces in short, the newest first; those that began before the one named."""
        traces = self._snapshot()

        def find() -> Sequence[TraceSummary]:
            found: list[TraceSummary] = []
            is_after = not before
            for spans in reversed(traces):
                records = _encode(spans)
                summary = summarize_trace(records)
                if summary is None:
                    continue
                if not is_after:
                    is_after = summary.trace_id == before
                elif match_summary(summary, filter, records):
                    found.append(summary)
                    if len(found) >= limit:
                        break
            return found

        return await call(find)

    async def query_spans(
        self, query: str = "", filter: TraceFilter = EVERYTHING, *, limit: int = 0
    ) -> list[Record]:
        """Return the spans of all traces that a JMESPath matches, by their start."""
        compiled, traces = TraceQuery(query), self._snapshot()

        def find() -> list[Record]:
            candidates = (_encode(spans) for spans in reversed(traces))
            meant = (
                spans
                for spans in candidates
                if (summary := summarize_trace(spans)) and match_summary(summary, filter, spans)
            )
            return sort_spans(span for spans in compiled.select(meant, limit) for span in spans)

        return await call(find)

    async def delete_traces(self, before: int) -> int:
        """Delete traces that ended before a time, in nanoseconds; return how many."""
        old = [
            trace_id
            for trace_id, spans in self._traces.items()
            if all(span.end_time < before for span in spans.values())
        ]
        for trace_id in old:
            self._count -= len(self._traces.pop(trace_id))
        await asyncio.sleep(0)
        return len(old)

    def _snapshot(self) -> list[dict[str, Span]]:
        return [dict(spans) for spans in self._traces.values()]


def _encode(spans: dict[str, Span]) -> list[Record]:
    return [encode_span(span) for span in spans.values()]
