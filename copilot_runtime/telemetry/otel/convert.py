"""Our spans as those of OpenTelemetry's SDK, and its spans as ours."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.status import Status as SdkStatus

from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.context import SpanContext
from copilot_runtime.telemetry.span import Kind, Span, SpanEvent, SpanLink

KINDS: Mapping[Kind, SpanKind] = {
    "internal": SpanKind.INTERNAL,
    "server": SpanKind.SERVER,
    "client": SpanKind.CLIENT,
    "producer": SpanKind.PRODUCER,
    "consumer": SpanKind.CONSUMER,
}
_KIND_NAMES: Mapping[SpanKind, Kind] = {kind: name for name, kind in KINDS.items()}


def to_sdk_context(context: SpanContext) -> trace.SpanContext:
    """Return the context of a span of another process, or of one that is not exported."""
    flags = trace.TraceFlags(trace.TraceFlags.SAMPLED if context.is_sampled else 0)
    return trace.SpanContext(
        trace_id=int(context.trace_id, 16),
        span_id=int(context.span_id, 16),
        is_remote=True,
        trace_flags=flags,
        trace_state=trace.TraceState.from_header([context.state] if context.state else []),
    )


def to_sdk_attributes(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes that every exporter takes: what has parts is written as JSON."""
    return {name: to_sdk_value(value) for name, value in attributes.items()}


def to_sdk_value(value: Any) -> Any:
    """Return a value as attributes have it: a text, a number, a boolean, or a list of one kind."""
    if isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Sequence) and value and all(type(one) is type(value[0]) for one in value):
        if isinstance(value[0], str | bool | int | float):
            return list(value)
    elif isinstance(value, Sequence) and not value:
        return []
    return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


def to_sdk_status(span: Span, *, exports_content: bool) -> SdkStatus | None:
    """Return how a span ended; its message may hold what people wrote."""
    if span.status == "error":
        message = span.message if exports_content and span.message else None
        return SdkStatus(StatusCode.ERROR, message or span.attributes.get(semconv.ERROR_TYPE))
    return None


def from_sdk_span(sdk_span: ReadableSpan) -> Span:
    """Return a span that a framework made with the SDK, as our store keeps it."""
    context = sdk_span.get_span_context()
    assert context is not None
    span = Span(
        sdk_span.name,
        kind=_KIND_NAMES.get(sdk_span.kind, "internal"),
        trace_id=f"{context.trace_id:032x}",
        span_id=f"{context.span_id:016x}",
        start_time=sdk_span.start_time,
    )
    if sdk_span.parent is not None:
        span.parent_id = f"{sdk_span.parent.span_id:016x}"
    if sdk_span.instrumentation_scope is not None:
        span.scope = sdk_span.instrumentation_scope.name
    for name, value in (sdk_span.attributes or {}).items():
        plain = list(value) if isinstance(value, tuple) else value
        (span.content if semconv.is_content(name) else span.attributes)[name] = plain
    for event in sdk_span.events:
        span.events.append(SpanEvent(event.name, event.timestamp, dict(event.attributes or {})))
    for link in sdk_span.links:
        linked = SpanContext(f"{link.context.trace_id:032x}", f"{link.context.span_id:016x}")
        span.links.append(SpanLink(linked, dict(link.attributes or {})))
    if sdk_span.status.status_code is StatusCode.ERROR:
        span.status = "error"
        span.message = sdk_span.status.description or ""
    span.end_time = max(sdk_span.end_time or 0, span.start_time)
    return span
