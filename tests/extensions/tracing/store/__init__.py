"""Spans for tests of stores."""

from typing import Any

from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.span import Kind, Span


def make_span(
    trace_id: str,
    span_id: str,
    name: str = "work",
    *,
    parent_id: str = "",
    start: int = 100,
    end: int = 0,
    kind: Kind = "internal",
    error: str = "",
    attributes: dict[str, Any] | None = None,
    content: dict[str, Any] | None = None,
    resource: dict[str, Any] | None = None,
    scope: str = semconv.SCOPE,
) -> Span:
    """Return a span that has ended."""
    span = Span(name, kind=kind, trace_id=trace_id, span_id=span_id, start_time=start)
    span.parent_id = parent_id
    span.set_attributes(attributes or {})
    span.content.update(content or {})
    span.resource = resource
    span.scope = scope
    if error:
        span.fail(error)
    span.end(end or start + 10)
    return span


def make_chat(trace_id: str, span_id: str, attributes: dict[str, Any], *, start: int = 100) -> Span:
    """Return the span of a request to a model, under `root`."""
    return make_span(
        trace_id,
        span_id,
        "chat gpt",
        parent_id="root",
        start=start,
        kind="client",
        attributes={semconv.OPERATION_NAME: semconv.CHAT, **attributes},
    )
