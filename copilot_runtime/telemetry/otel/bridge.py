"""Spans of frameworks that trace by themselves, in this process: into our store as well."""

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor

from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.otel.convert import from_sdk_span
from copilot_runtime.telemetry.telemetry import SpanStore


class BridgeProcessor(SpanProcessor):
    """Hands spans that others made with the SDK to a store. Ours are there already.

    A provider keeps its processors for good, so `close` lets go of the store.
    """

    def __init__(self, store: SpanStore, *, keeps_content: bool) -> None:
        self._store: SpanStore | None = store
        self._keeps_content = keeps_content

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Do nothing: a span is kept when it has ended."""

    def on_end(self, span: ReadableSpan) -> None:
        """Keep a span of somebody else."""
        scope = span.instrumentation_scope
        if self._store is None or (scope is not None and scope.name == semconv.SCOPE):
            return
        self._store.add(from_sdk_span(span, keeps_content=self._keeps_content))

    def close(self) -> None:
        """Keep no more spans."""
        self._store = None

    def shutdown(self) -> None:
        """Do nothing: the store belongs to others."""

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Return true: nothing is held back here."""
        del timeout_millis
        return True
