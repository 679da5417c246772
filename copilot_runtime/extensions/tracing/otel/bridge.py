"""Spans of frameworks that trace by themselves, in this process: beside ours as well.

Whatever a process traces ends here, also each request to its pages and probes. Kept is what stands
in a trace of ours, and what tells of models and agents; the rest would push runs out of the store.
"""

from threading import Lock

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor

from copilot_runtime.extensions.tracing.dialects import tells_of_models
from copilot_runtime.extensions.tracing.otel.convert import from_sdk_span
from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.telemetry import NO_TELEMETRY, Telemetry

_MOST_TRACES = 10_000
"""Traces of ours that are remembered: a request may end long after its run has begun."""


class BridgeProcessor(SpanProcessor):
    """Hands spans that others made with the SDK to our telemetry, which has its own already.

    A provider keeps its processors for good, so `close` lets go of what it feeds.
    """

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._traces: dict[int, None] = {}
        """The traces that have a span of ours, the oldest first."""
        self._lock = Lock()

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Tell of the call of a tool: the span that we make of its events is one too many."""
        del parent_context
        if not _is_foreign(span):
            self._add_trace(span.get_span_context().trace_id)
            return
        of = span.attributes
        calls = self._telemetry.tool_calls
        if calls is None or of is None:
            return
        id, context = of.get(semconv.TOOL_CALL_ID), span.get_span_context()
        if isinstance(id, str) and of.get(semconv.OPERATION_NAME) == semconv.EXECUTE_TOOL:
            calls.add_foreign(f"{context.trace_id:032x}", id)

    def on_end(self, span: ReadableSpan) -> None:
        """Keep a span of somebody else that has to do with runs."""
        telemetry = self._telemetry
        if telemetry.is_recording and _is_foreign(span) and self._is_relevant(span):
            telemetry.import_span(from_sdk_span(span, keeps_content=telemetry.keeps_content))

    def close(self) -> None:
        """Keep no more spans."""
        self._telemetry = NO_TELEMETRY

    def shutdown(self) -> None:
        """Do nothing: the telemetry belongs to others."""

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Return true: nothing is held back here."""
        del timeout_millis
        return True

    def _add_trace(self, trace_id: int) -> None:
        with self._lock:
            self._traces[trace_id] = None
            if len(self._traces) > _MOST_TRACES:
                del self._traces[next(iter(self._traces))]

    def _is_relevant(self, span: ReadableSpan) -> bool:
        context = span.get_span_context()
        return (context is not None and context.trace_id in self._traces) or tells_of_models(
            span.attributes or {}
        )


def _is_foreign(span: ReadableSpan) -> bool:
    scope = span.instrumentation_scope
    return scope is None or scope.name != semconv.SCOPE
