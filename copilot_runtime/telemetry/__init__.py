"""Spans, metrics and events of runs, named by OpenTelemetry's semantic conventions."""

from copilot_runtime.telemetry.context import SpanContext, parse_traceparent
from copilot_runtime.telemetry.span import (
    NO_SPAN,
    Attributes,
    Span,
    SpanEvent,
    SpanLink,
    find_current_span,
    set_current_span,
    trace_block,
    work_under,
)
from copilot_runtime.telemetry.telemetry import NO_TELEMETRY, LocalTelemetry, Telemetry

__all__ = [
    "NO_SPAN",
    "NO_TELEMETRY",
    "Attributes",
    "LocalTelemetry",
    "Span",
    "SpanContext",
    "SpanEvent",
    "SpanLink",
    "Telemetry",
    "find_current_span",
    "parse_traceparent",
    "set_current_span",
    "trace_block",
    "work_under",
]
