"""The JSON record of a span, as used by stores, JMESPath queries, files and clients.

    {"trace_id", "span_id", "parent_span_id", "name", "kind", "start_time_unix_nano",
     "end_time_unix_nano", "attributes": {}, "content": {}, "events": [{"name", "time_unix_nano",
     "attributes"}], "links": [{"trace_id", "span_id", "attributes"}], "status": {"code",
     "message"}, "scope": {"name"}, "resource": {"attributes": {}}}

It is the form of Copilot-LD: `kind` and `status.code` are the numbers of OTLP, times are
nanoseconds since 1970. `content`, `links`, `scope` and `trace_state` (a text, as in W3C Trace
Context) are ours, and left out where they are empty.

Files of other programs are decoded to spans as well:

- Copilot-LD: `{"id", "span": {…}}` with names of kinds and statuses; older ones are flat, their
  times are JavaScript's 64-bit numbers, `{"low", "high", "unsigned"}`;
- VS Code: an object of the JavaScript SDK, `{"traceId", "spanId", "startTime": [s, ns], …}`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeGuard, cast

import orjson

from copilot_runtime.base.errors import Misuse
from copilot_runtime.extensions.tracing.dialects import translate_attributes
from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.context import SpanContext
from copilot_runtime.telemetry.span import Kind, Span, SpanEvent, SpanLink, Status

Record = dict[str, Any]

_KINDS: Sequence[Kind] = ("internal", "server", "client", "producer", "consumer")
_KIND_NAMES = dict(enumerate(_KINDS, 1))
KINDS: Mapping[str, int] = {name: number for number, name in _KIND_NAMES.items()}
STATUSES: Mapping[str, int] = {"unset": 0, "ok": 1, "error": 2}
_FIELDS = (
    *("trace_id", "span_id", "parent_span_id", "name", "kind", "start_time_unix_nano"),
    *("end_time_unix_nano", "attributes", "events", "status", "resource"),
)
_TYPES = (str, str, str, str, int, int, int, dict, list, dict, dict)
_LAST_TIME = 2**63 - 1
_STATUS_NAMES: Mapping[int, Status] = {0: "unset", 1: "ok", 2: "error"}


def encode_span(span: Span) -> Record:
    """Return the record of a span."""
    record: Record = {
        "trace_id": span.trace_id,
        "span_id": span.span_id,
        "parent_span_id": span.parent_id,
        "name": span.name,
        "kind": KINDS[span.kind],
        "start_time_unix_nano": span.start_time,
        "end_time_unix_nano": span.end_time,
        "attributes": span.attributes,
        "events": [],
        "status": {"code": STATUSES[span.status], "message": span.message},
        "resource": {"attributes": dict(span.resource) if span.resource else {}},
    }
    if span.events:
        record["events"] = [
            {"name": event.name, "time_unix_nano": event.time, "attributes": event.attributes}
            for event in span.events
        ]
    if span.content:
        record["content"] = span.content
    if span.state:
        record["trace_state"] = span.state
    if span.links:
        record["links"] = [
            {
                "trace_id": link.context.trace_id,
                "span_id": link.context.span_id,
                "attributes": link.attributes,
            }
            for link in span.links
        ]
    if span.scope != semconv.SCOPE:
        record["scope"] = {"name": span.scope}
        record["attributes"] = translate_attributes(span.attributes)
    return record


def is_record(value: Any) -> TypeGuard[Record]:
    """Return True if a value has the exact form of `encode_span` without events or links.

    An equivalent value, for example with its fields in another order, returns False.
    """
    if not isinstance(value, dict):
        return False
    fields = cast("Record", value)
    if tuple(fields) != _FIELDS or tuple(map(type, fields.values())) != _TYPES:
        return False
    status, resource = fields["status"], fields["resource"]
    return (
        fields["kind"] in _KIND_NAMES
        and 0 < fields["start_time_unix_nano"] <= fields["end_time_unix_nano"] <= _LAST_TIME
        and bool(fields["trace_id"] and fields["span_id"])
        and not fields["events"]
        and tuple(map(type, status.values())) == (int, str)
        and tuple(status) == ("code", "message")
        and status["code"] in _STATUS_NAMES
        and tuple(resource) == ("attributes",)
        and isinstance(resource["attributes"], dict)
    )


def decode_span(record: Mapping[str, Any]) -> Span:
    """Return the span of a record. Raises `Misuse` for one without ids."""
    trace_id, span_id = record.get("trace_id"), record.get("span_id")
    for name, value in (("trace_id", trace_id), ("span_id", span_id)):
        if not isinstance(value, str) or not value:
            raise Misuse(f"{name} is required")
    span = Span(
        _text(record.get("name")),
        trace_id=str(trace_id),
        span_id=str(span_id),
    )
    span.start_time = _nanoseconds(record.get("start_time_unix_nano"))
    span.parent_id = _text(record.get("parent_span_id"))
    span.state = _text(record.get("trace_state"))
    span.kind = read_kind(record.get("kind"))
    span.attributes = _object(record.get("attributes"))
    span.content = _object(record.get("content"))
    status = _object(record.get("status"))
    span.status = read_status(status.get("code"))
    span.message = _text(status.get("message"))
    span.scope = _text(_object(record.get("scope")).get("name")) or semconv.SCOPE
    resource = _object(_object(record.get("resource")).get("attributes"))
    span.resource = resource or None
    for event in _objects(record.get("events")):
        time = _nanoseconds(event.get("time_unix_nano"))
        name = _text(event.get("name"))
        span.events.append(SpanEvent(name, time, _object(event.get("attributes"))))
    for link in _objects(record.get("links")):
        context = SpanContext(_text(link.get("trace_id")), _text(link.get("span_id")))
        span.links.append(SpanLink(context, _object(link.get("attributes"))))
    span.end_time = max(_nanoseconds(record.get("end_time_unix_nano")), span.start_time)
    return span


def read_kind(value: Any) -> Kind:
    """Return the span kind of an OTLP number or name; `internal` for other values."""
    if isinstance(value, str):
        name = value.removeprefix("SPAN_KIND_").lower()
        return _KIND_NAMES.get(KINDS.get(name, 1), "internal")
    return _KIND_NAMES.get(value, "internal") if isinstance(value, int) else "internal"


def read_status(value: Any) -> Status:
    """Return the status of an OTLP number or name; `unset` for other values."""
    if isinstance(value, str):
        name = value.removeprefix("STATUS_CODE_").lower()
        return _STATUS_NAMES.get(STATUSES.get(name, 0), "unset")
    return _STATUS_NAMES.get(value, "unset") if isinstance(value, int) else "unset"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _object(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}


def _objects(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def _nanoseconds(value: Any) -> int:
    """Parse nanoseconds, which OTLP JSON and old files write as text or as two 32-bit halves."""
    if isinstance(value, Mapping):  # a 64-bit number of JavaScript: {"low", "high", "unsigned"}
        low, high = value.get("low"), value.get("high")
        if isinstance(low, int) and isinstance(high, int):
            return min(((high & 0xFFFFFFFF) << 32) + (low & 0xFFFFFFFF), _LAST_TIME)
        return 0
    try:
        return min(max(0, int(value or 0)), _LAST_TIME)
    except (TypeError, ValueError, OverflowError):
        return 0


def encode_line(record: Record) -> bytes:
    """Return a record as a JSON line, without the line break."""
    return orjson.dumps(record)


def decode_line(line: str | bytes) -> Iterator[Span]:
    """Decode the spans of a line; none for an empty one. Raises `Misuse` for an invalid line."""
    if not line.strip():
        return
    try:
        value = orjson.loads(line)
    except ValueError:
        raise Misuse("A line is no JSON.") from None
    yield decode_value(value)


def decode_record(line: bytes) -> Record | None:
    """Decode the record of a line; None for an empty one. Raises `Misuse` for an invalid line.

    The result equals `encode_span` of `decode_line`, in a third of the time for lines of ours.
    """
    try:
        value = orjson.loads(line)
    except ValueError:
        value = None
    if is_record(value):
        return value
    return next(map(encode_span, decode_line(line)), None)


def decode_value(value: object) -> Span:
    """Decode a span from a JSON value in any supported format. Raises `Misuse` if it is invalid."""
    if not isinstance(value, Mapping):
        raise Misuse("A span must be an object of JSON.")
    fields = cast("Mapping[str, Any]", value)
    inner = fields.get("span")
    if isinstance(inner, Mapping):
        return decode_span(cast("Mapping[str, Any]", inner))
    return decode_span(_translate_js(fields) if "traceId" in fields else fields)


def _translate_js(fields: Mapping[str, Any]) -> Record:
    """Return the record of a span of the JavaScript SDK, whose kinds start at 0."""
    kind, context = fields.get("kind"), fields.get("spanContext")
    inner = cast("Mapping[str, Any]", context) if isinstance(context, Mapping) else {}
    scope = fields.get("instrumentationScope") or fields.get("instrumentationLibrary")
    return {
        "trace_id": fields.get("traceId") or inner.get("traceId"),
        "span_id": fields.get("spanId") or fields.get("id") or inner.get("spanId"),
        "parent_span_id": _find_parent(fields),
        "name": fields.get("name"),
        "kind": kind + 1 if isinstance(kind, int) else kind,
        "start_time_unix_nano": _read_time(fields.get("startTime", fields.get("timestamp"))),
        "end_time_unix_nano": _read_time(fields.get("endTime")),
        "attributes": fields.get("attributes"),
        "status": fields.get("status"),
        "resource": fields.get("resource"),
        "scope": scope,
        "events": [
            {
                "name": event.get("name"),
                "time_unix_nano": _read_time(event.get("time")),
                "attributes": event.get("attributes"),
            }
            for event in _objects(fields.get("events"))
        ],
        "links": [
            {
                "trace_id": link["context"].get("traceId"),
                "span_id": link["context"].get("spanId"),
                "attributes": link.get("attributes"),
            }
            for link in _objects(fields.get("links"))
            if isinstance(link.get("context"), Mapping)
        ],
    }


def _find_parent(fields: Mapping[str, Any]) -> Any:
    parent = fields.get("parentSpanContext")
    if isinstance(parent, Mapping):
        return cast("Mapping[str, Any]", parent).get("spanId")
    return fields.get("parentSpanId") or fields.get("parentId")


def _read_time(value: Any) -> Any:
    """Convert `[seconds, nanoseconds]` to nanoseconds; other values are returned unchanged."""
    if isinstance(value, list):
        parts = cast("list[Any]", value)
        if len(parts) == 2 and all(type(part) is int for part in parts):
            return parts[0] * 10**9 + parts[1]
        return 0
    return value


def read_count(value: Any) -> int | None:
    """Parse a token count, which some programs write as text; None if it is not a number."""
    match value:
        case str() if value.isdecimal() and len(value) < _LONGEST_NUMBER:
            value = int(value)
        case float() if value.is_integer():
            value = int(value)
        case _:
            pass
    return value if type(value) is int and 0 <= value < _MOST_TOKENS else None


def read_dollars(value: Any) -> float | None:
    """Parse a cost in dollars; None if it is not a number."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and 0 <= value < _MOST_DOLLARS else None


def read_cost(of: Mapping[str, Any]) -> float | None:
    """Return the dollars of a model request by its attributes; 0 if it failed before any token.

    `None` if its price is not known.
    """
    tokens = (of.get(semconv.USAGE_INPUT_TOKENS), of.get(semconv.USAGE_OUTPUT_TOKENS))
    has_cost_nothing = semconv.ERROR_TYPE in of and not any(map(read_count, tokens))
    return read_dollars(of.get(semconv.COST_DOLLARS, 0.0 if has_cost_nothing else None))


_LONGEST_NUMBER = 16
_MOST_TOKENS = 2**40
_MOST_DOLLARS = 1e9
