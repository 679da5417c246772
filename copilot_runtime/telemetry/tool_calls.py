"""Calls of tools of which this process makes no whole span: the newest, as it remembers them."""

from collections.abc import Iterable
from threading import Lock

from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.context import SpanContext
from copilot_runtime.telemetry.span import Span

_MOST = 1024
"""Calls of each kind that are remembered."""


class ToolCalls:
    """Calls that a framework traces itself, and calls whose results the browser brings later.

    Results that come to another process, or after a restart, are linked to nothing.
    """

    def __init__(self) -> None:
        self._foreign: dict[tuple[str, str], None] = {}
        self._waiting: dict[tuple[str, str], SpanContext] = {}
        self._lock = Lock()  # frameworks begin spans in threads

    def add_foreign(self, trace_id: str, call_id: str) -> None:
        """Take a call for which a framework of this process makes a span."""
        with self._lock:
            self._foreign[trace_id, call_id] = None
            if len(self._foreign) > _MOST:
                del self._foreign[next(iter(self._foreign))]

    def is_foreign(self, trace_id: str, call_id: str) -> bool:
        """Return whether a framework makes the span of a call."""
        return (trace_id, call_id) in self._foreign

    def add_waiting(self, thread: str, call_id: str, context: SpanContext) -> None:
        """Take the span of a call of a thread that has ended without a result."""
        with self._lock:
            self._waiting[thread, call_id] = context
            if len(self._waiting) > _MOST:
                del self._waiting[next(iter(self._waiting))]

    @property
    def has_waiting(self) -> bool:
        """Whether any call waits: no results need be looked for if none does."""
        return bool(self._waiting)

    def link_results(self, span: Span, thread: str, call_ids: Iterable[str]) -> None:
        """Link the span of a run to the calls of its thread whose results it has got."""
        for call_id in call_ids:
            with self._lock:
                context = self._waiting.pop((thread, call_id), None)
            if context is not None:
                span.add_link(context, {semconv.TOOL_CALL_ID: call_id})
