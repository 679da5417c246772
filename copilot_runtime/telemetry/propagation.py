"""Carry a trace from process to process, as W3C Trace Context has it: in headers and variables.

`extract_context` takes it from a request, `inject_context` gives it to one.
"""

from collections.abc import Mapping
from typing import Any

from copilot_runtime.telemetry.context import SpanContext, parse_traceparent
from copilot_runtime.telemetry.span import Span

TRACEPARENT = "traceparent"
TRACESTATE = "tracestate"


def extract_context(carrier: Mapping[str, Any]) -> SpanContext | None:
    """Return the span under which somebody asks, by headers in lower case or `_meta` of MCP.

    None if it is not said, or not as W3C Trace Context wants it: nobody is refused for that.
    """
    header = carrier.get(TRACEPARENT)
    if not isinstance(header, str):
        return None
    state = carrier.get(TRACESTATE)
    return parse_traceparent(header, state if isinstance(state, str) else "")


def inject_context(span: Span) -> dict[str, str]:
    """Return the headers for a request that is made under a span; none where nobody takes note."""
    if not span.is_recording:
        return {}
    context = span.context
    headers = {TRACEPARENT: context.traceparent}
    return {**headers, TRACESTATE: context.state} if context.state else headers


def build_environment(span: Span) -> dict[str, str]:
    """Return the variables for a process that is started under a span: `TRACEPARENT` and so on.

    Where this server receives spans, they also say where: see `Telemetry.child_environment`.
    """
    if not span.is_recording or span.telemetry is None:
        return {}
    context = {name.upper(): value for name, value in inject_context(span).items()}
    return {**span.telemetry.child_environment, **context}
