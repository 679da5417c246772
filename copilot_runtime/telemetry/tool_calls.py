"""A bounded registry of tool calls whose spans this process does not make or finish itself."""

from collections.abc import Iterable
from threading import Lock

from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.context import SpanContext
from copilot_runtime.telemetry.span import Span

_MOST = 1024
"""Maximum number of calls of each kind; the oldest are evicted."""


class ToolCalls:
    """Tool calls that a framework traces itself, and calls that wait for the browser's result.

    A result that arrives at another process, or after a restart, is not linked.
    """

    def __init__(self) -> None:
        self._foreign: dict[tuple[str, str], None] = {}
        self._waiting: dict[tuple[str, str], SpanContext] = {}
        self._lock = Lock()  # frameworks begin spans in threads

    def add_foreign(self, trace_id: str, call_id: str) -> None:
        """Register a call for which a framework in this process makes the span."""
        with self._lock:
            self._foreign[trace_id, call_id] = None
            if len(self._foreign) > _MOST:
                del self._foreign[next(iter(self._foreign))]

    def is_foreign(self, trace_id: str, call_id: str) -> bool:
        """Return True if a framework makes the span of this call."""
        return (trace_id, call_id) in self._foreign

    def add_waiting(self, thread: str, call_id: str, context: SpanContext) -> None:
        """Register the span of a call in a thread that ended without a result."""
        with self._lock:
            self._waiting[thread, call_id] = context
            if len(self._waiting) > _MOST:
                del self._waiting[next(iter(self._waiting))]

    @property
    def has_waiting(self) -> bool:
        """True if any call waits for a result."""
        return bool(self._waiting)

    def link_results(self, span: Span, thread: str, call_ids: Iterable[str]) -> None:
        """Link a run's span to the waiting calls of its thread whose results it received."""
        for call_id in call_ids:
            with self._lock:
                context = self._waiting.pop((thread, call_id), None)
            if context is not None:
                span.add_link(context, {semconv.TOOL_CALL_ID: call_id})
