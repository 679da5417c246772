"""Conversion between our spans and those of OpenTelemetry's SDK."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, cast

import orjson
from opentelemetry import trace
from opentelemetry.attributes import BoundedAttributes
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode
from opentelemetry.trace.status import Status as SdkStatus

from copilot_runtime.extensions.tracing.dialects import drop_secrets, has_content
from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.context import SpanContext
from copilot_runtime.telemetry.span import Kind, Span, SpanEvent, SpanLink

_DEPTH = 16
_TOO_LARGE = 2**63


def to_sdk_context(context: SpanContext) -> trace.SpanContext:
    """Convert a span context that has no SDK span: of another process, or not exported."""
    flags = trace.TraceFlags(trace.TraceFlags.SAMPLED if context.is_sampled else 0)
    return trace.SpanContext(
        trace_id=int(context.trace_id, 16),
        span_id=int(context.span_id, 16),
        is_remote=True,
        trace_flags=flags,
        trace_state=trace.TraceState.from_header([context.state] if context.state else []),
    )


def to_sdk_attributes(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Convert attributes to types that every exporter accepts.

    Nested values stay nested if the SDK supports them; otherwise they become JSON.
    """
    return {name: to_sdk_value(value) for name, value in attributes.items()}


def to_sdk_value(value: Any) -> Any:
    """Convert an attribute value to a type that the SDK accepts."""
    if isinstance(value, str):
        return to_unicode(value)
    if isinstance(value, Mapping) or (isinstance(value, Sequence) and not _is_flat(value)):
        members = cast("Mapping[str, Any] | Sequence[Any]", value)
        if takes_structures():
            return _structure(members, _DEPTH)
        return _dump(members)
    return _structure(value, 1)


def to_json(value: Any) -> str:
    """Return a nested value as JSON, and a text as it is."""
    return to_unicode(value) if isinstance(value, str) else _dump(_structure(value, _DEPTH))


def to_unicode(text: str) -> str:
    """Return a text that UTF-8 can encode: lone surrogates become question marks."""
    return text if text.isascii() else text.encode(errors="replace").decode()


@cache
def takes_structures() -> bool:
    """Return True if this version of the SDK supports nested attribute values."""
    probe = BoundedAttributes(attributes={"probe": {"part": 1}}, immutable=False)
    return "probe" in probe


def _is_flat(value: Sequence[Any]) -> bool:
    """Return True if all items are texts, or numbers of one type."""
    first = type(value[0]) if value else str
    return first in (str, bool, int, float) and all(type(item) is first for item in value)


def _structure(value: Any, depth: int) -> Any:
    """Convert a value for protobuf: other objects become text, too deep values JSON."""
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, str):
        return to_unicode(value)
    if isinstance(value, int):
        return value if abs(value) < _TOO_LARGE else str(value)
    if isinstance(value, Mapping | list | tuple) and not depth:
        return _dump(cast("Any", value))
    if isinstance(value, Mapping):
        members = cast("Mapping[Any, Any]", value)
        return {
            to_unicode(str(name)): _structure(member, depth - 1) for name, member in members.items()
        }
    if isinstance(value, list | tuple):
        return [_structure(item, depth - 1) for item in cast("Sequence[Any]", value)]
    return to_unicode(str(value))


def _dump(value: Any) -> str:
    try:
        return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
    except TypeError:  # a lone surrogate, a very large number, too deep a nesting
        return to_unicode(repr(value))


def to_sdk_status(span: Span, *, exports_content: bool) -> SdkStatus | None:
    """Return the SDK status of a span; its message is content, exported only if allowed."""
    if span.status == "error":
        message = span.message if exports_content and span.message else None
        return SdkStatus(StatusCode.ERROR, message or span.attributes.get(semconv.ERROR_TYPE))
    return None


def from_sdk_span(sdk_span: ReadableSpan, *, keeps_content: bool) -> Span:
    """Convert a third-party SDK span to our type, for the store."""
    context = sdk_span.get_span_context()
    assert context is not None
    span = Span(
        sdk_span.name,
        kind=cast("Kind", sdk_span.kind.name.lower()),
        trace_id=f"{context.trace_id:032x}",
        span_id=f"{context.span_id:016x}",
        start_time=sdk_span.start_time,
    )
    if sdk_span.parent is not None:
        span.parent_id = f"{sdk_span.parent.span_id:016x}"
    if sdk_span.instrumentation_scope is not None:
        span.scope = sdk_span.instrumentation_scope.name
    for name, value in drop_secrets(sdk_span.attributes or {}).items():
        place = span.content if has_content(name, value) else span.attributes
        place[name] = _from_sdk_value(value)
    for event in sdk_span.events:
        attributes = _read_attributes(event.attributes, keeps_content=keeps_content)
        span.events.append(SpanEvent(event.name, event.timestamp, attributes))
    for link in sdk_span.links:
        linked = SpanContext(f"{link.context.trace_id:032x}", f"{link.context.span_id:016x}")
        attributes = _read_attributes(link.attributes, keeps_content=keeps_content)
        span.links.append(SpanLink(linked, attributes))
    if sdk_span.status.status_code is StatusCode.ERROR:
        span.status = "error"
        span.message = sdk_span.status.description or ""
    if not keeps_content:
        span.content, span.message = {}, ""
    span.end_time = max(sdk_span.end_time or 0, span.start_time)
    return span


def _read_attributes(
    attributes: Mapping[str, Any] | None, *, keeps_content: bool
) -> dict[str, Any]:
    """Return the attributes of an event or a link, without content unless it is captured."""
    return {
        name: _from_sdk_value(value)
        for name, value in drop_secrets(attributes or {}).items()
        if keeps_content or not has_content(name, value)
    }


def _from_sdk_value(value: Any) -> Any:
    """Convert an SDK value to JSON types: tuples become lists."""
    if isinstance(value, Mapping):
        members = cast("Mapping[str, Any]", value)
        return {name: _from_sdk_value(member) for name, member in members.items()}
    if isinstance(value, list | tuple):
        return [_from_sdk_value(item) for item in cast("Sequence[Any]", value)]
    return value
