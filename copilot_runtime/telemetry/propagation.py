"""Trace propagation between processes by W3C Trace Context, in headers and variables.

`extract_context` reads the context of a request, `inject_context` builds headers for one.
"""

from collections.abc import Mapping
from typing import Any

from copilot_runtime.telemetry.context import SpanContext, parse_traceparent
from copilot_runtime.telemetry.span import Span

TRACEPARENT = "traceparent"
TRACESTATE = "tracestate"


def extract_context(carrier: Mapping[str, Any]) -> SpanContext | None:
    """Return the caller's span context from headers in lower case or from `_meta` of MCP.

    Return None if it is missing or not valid W3C Trace Context: the request is served anyway.
    """
    header = carrier.get(TRACEPARENT)
    if not isinstance(header, str):
        return None
    state = carrier.get(TRACESTATE)
    return parse_traceparent(header, state if isinstance(state, str) else "")


def inject_context(span: Span) -> dict[str, str]:
    """Return the trace headers for an outgoing request; empty if the span is not recording."""
    if not span.is_recording:
        return {}
    context = span.context
    headers = {TRACEPARENT: context.traceparent}
    return {**headers, TRACESTATE: context.state} if context.state else headers


def build_environment(span: Span) -> dict[str, str]:
    """Return the environment variables for a child process, such as `TRACEPARENT`.

    If this server receives spans, they include its OTLP endpoint: `Telemetry.child_environment`.
    """
    if not span.is_recording or span.telemetry is None:
        return {}
    context = {name.upper(): value for name, value in inject_context(span).items()}
    return {**span.telemetry.child_environment, **context}
