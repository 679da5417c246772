"""Encoding and decoding of OTLP JSON: spans and logs from other processes, and spans of ours.

    {"resourceSpans": [{"resource": {"attributes": […]}, "scopeSpans": [{"scope": {"name"},
     "spans": [{"traceId", "spanId", "name", "kind", "startTimeUnixNano", "attributes": […]}]}]}]}

Ids are hexadecimal and 64-bit numbers are texts, as OTLP's JSON wants it. Numbers are read as well,
and names of enums. See https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding.
"""

from collections.abc import Iterable, Mapping, Sequence
from time import time_ns
from typing import Any, Literal, NamedTuple

from copilot_runtime.base.jsontext import dumps
from copilot_runtime.base.jsonvalue import as_list, as_object, as_objects, as_text
from copilot_runtime.extensions.tracing.dialects import clean_value, drop_secrets, has_content
from copilot_runtime.extensions.tracing.store.records import Record, read_kind, read_status
from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.content import truncate
from copilot_runtime.telemetry.context import SpanContext
from copilot_runtime.telemetry.log_records import LogRecord, name_severity
from copilot_runtime.telemetry.span import Span, SpanEvent, SpanLink

Signal = Literal["traces", "metrics", "logs"]

MAX_SPANS = 20_000
"""Maximum number of spans in a request: exporters send 512 at once."""
MAX_ITEMS = 2_000
"""Maximum number of attributes, events or links of a span. OpenTelemetry's SDKs keep 128."""
MAX_LOG_TRACES = 200
"""Maximum number of traces in a logs request: each of them is looked up."""
MAX_LOG_CHARS = 16 * 1024
"""Maximum size of a log record in characters; its longest texts are truncated."""
MAX_DEPTH = 24
"""Maximum nesting depth of a value; deeper values are dropped."""
MAX_NAME = 1_000
"""Maximum length of a name, in characters."""

_MAX_INT = 2**63 - 1
_EVENT_NAME = "event.name"
"""The attribute for event names that preceded OTLP's field `eventName`."""
_HEX = frozenset("0123456789abcdef")


class Batch(NamedTuple):
    """The decoded items of a request, the number of rejected ones, and the first rejection."""

    spans: Sequence[Span] = ()
    rejected: int = 0
    reason: str = ""
    logs: Sequence[LogRecord] = ()


class OtlpError(ValueError):
    """The request is not valid OTLP."""


def decode_spans(request: Any, *, keeps_content: bool) -> Batch:
    """Decode the spans of an `ExportTraceServiceRequest`. Raises `OtlpError` if it is malformed.

    Without `keeps_content`, content is dropped.
    """
    spans: list[Span] = []
    count, reason = 0, ""
    read = _decode_all if keeps_content else _decode_facts
    for resource_spans in _list_of(request, "resourceSpans"):
        resource = read(as_object(resource_spans.get("resource")).get("attributes"))
        for scope_spans in as_objects(resource_spans.get("scopeSpans")):
            scope = as_text(as_object(scope_spans.get("scope")).get("name"))
            for fields in as_list(scope_spans.get("spans")):
                if len(spans) + count >= MAX_SPANS:
                    raise OtlpError(f"A request may have {MAX_SPANS} spans, and this has more.")
                try:
                    span = _decode_span(as_object(fields), keeps_content=keeps_content)
                except OtlpError as error:
                    count, reason = count + 1, reason or str(error)
                    continue
                span.resource, span.scope = resource, scope[:MAX_NAME]
                spans.append(span)
    return Batch(spans, count, reason)


def decode_logs(request: Any, *, keeps_content: bool) -> Batch:
    """Decode the records of an `ExportLogsServiceRequest`. Raises `OtlpError` if it is malformed.

    Records without a span are rejected. Without `keeps_content`, their bodies are dropped.
    """
    records: list[LogRecord] = []
    trace_ids: set[str] = set()
    count, reason = 0, ""
    for resource_logs in _list_of(request, "resourceLogs"):
        for scope_logs in as_objects(resource_logs.get("scopeLogs")):
            scope = as_text(as_object(scope_logs.get("scope")).get("name"))[:MAX_NAME]
            for fields in as_list(scope_logs.get("logRecords")):
                if len(records) + count >= MAX_SPANS:
                    raise OtlpError(f"A request may have {MAX_SPANS} records, and this has more.")
                try:
                    record = _decode_log(as_object(fields), scope, keeps_content=keeps_content)
                    trace_ids.add(record.trace_id)
                    if len(trace_ids) > MAX_LOG_TRACES:
                        trace_ids.discard(record.trace_id)
                        raise OtlpError(f"A request may have logs of {MAX_LOG_TRACES} traces.")
                except OtlpError as error:
                    count, reason = count + 1, reason or str(error)
                    continue
                records.append(record)
    return Batch((), count, reason, records)


def count_metrics(request: Any) -> int:
    """Return how many data points a request has. Raises `OtlpError`."""
    found = _list_of(request, "resourceMetrics")
    for name in ("scopeMetrics", "metrics"):
        found = [item for one in found for item in as_objects(one.get(name))]
    return sum(
        len(as_list(as_object(data).get("dataPoints"))) for m in found for data in m.values()
    )


def encode_otlp_json(records: Iterable[Record]) -> bytes:
    """Return an `ExportTraceServiceRequest` with spans of a store, content included."""
    return dumps({"resourceSpans": group_spans(records)})


def group_spans(records: Iterable[Record]) -> list[dict[str, Any]]:
    """Group stored spans for OTLP: by resource, then by instrumentation scope."""
    groups: dict[bytes, tuple[dict[str, Any], dict[str, list[Any]]]] = {}
    for record in records:
        resource = record["resource"]["attributes"]
        _, scopes = groups.setdefault(dumps(resource), (resource, {}))
        scope = as_object(record.get("scope")).get("name", semconv.SCOPE)
        scopes.setdefault(scope, []).append(_encode_record(record))
    return [
        {
            "resource": {"attributes": encode_attributes(resource)},
            "scopeSpans": [
                {"scope": {"name": name}, "spans": spans} for name, spans in scopes.items()
            ],
        }
        for resource, scopes in groups.values()
    ]


def _decode_span(fields: Mapping[str, Any], *, keeps_content: bool) -> Span:
    start = _decode_time(fields.get("startTimeUnixNano"))
    if not start:
        raise OtlpError("A span has no startTimeUnixNano.")
    span = Span(
        as_text(fields.get("name"))[:MAX_NAME],
        kind=read_kind(fields.get("kind")),
        trace_id=_decode_id(fields.get("traceId"), 32, "traceId"),
        span_id=_decode_id(fields.get("spanId"), 16, "spanId"),
        start_time=start,
    )
    if as_text(fields.get("parentSpanId")).strip("0"):
        span.parent_id = _decode_id(fields.get("parentSpanId"), 16, "parentSpanId")
    span.state = as_text(fields.get("traceState"))[:512]
    read = _decode_all if keeps_content else _decode_facts
    for name, value in read(fields.get("attributes")).items():
        place = span.content if has_content(name, value) else span.attributes
        place[name] = value
    for event in _list_items(fields.get("events"), "events"):
        attributes = read(event.get("attributes"))
        name = as_text(event.get("name"))[:MAX_NAME]
        span.events.append(SpanEvent(name, _decode_time(event.get("timeUnixNano")), attributes))
    for link in _list_items(fields.get("links"), "links"):
        trace_id = _decode_id(link.get("traceId"), 32, "traceId of a link")
        context = SpanContext(trace_id, _decode_id(link.get("spanId"), 16, "spanId of a link"))
        span.links.append(SpanLink(context, read(link.get("attributes"))))
    status = as_object(fields.get("status"))
    span.status = read_status(status.get("code"))
    span.message = as_text(status.get("message")) if keeps_content else ""
    span.end_time = max(_decode_time(fields.get("endTimeUnixNano")), start)
    return span


def _decode_log(fields: Mapping[str, Any], scope: str, *, keeps_content: bool) -> LogRecord:
    if not (fields.get("traceId") and fields.get("spanId")):
        raise OtlpError("A log record has no traceId and spanId: logs are kept at their spans.")
    read = _decode_all if keeps_content else _decode_facts
    found = read(fields.get("attributes"))
    name = as_text(fields.get("eventName")) or found.pop(_EVENT_NAME, "")
    severity = as_text(fields.get("severityText"))[:MAX_NAME] or name_severity(
        _decode_int(fields.get("severityNumber"))
    )
    body = _decode_value(as_object(fields.get("body")), 0) if keeps_content else None
    values = {
        semconv.LOG_SEVERITY: severity or None,
        semconv.LOG_LOGGER: scope or None,
        semconv.LOG_BODY: body,
    }
    found.update({key: value for key, value in values.items() if value is not None})
    found = truncate(found, MAX_LOG_CHARS)
    time = _decode_time(fields.get("timeUnixNano")) or _decode_time(
        fields.get("observedTimeUnixNano")
    )
    return LogRecord(
        _decode_id(fields.get("traceId"), 32, "traceId"),
        _decode_id(fields.get("spanId"), 16, "spanId"),
        SpanEvent(as_text(name)[:MAX_NAME] or semconv.EVENT_LOG, time or time_ns(), found),
        len(dumps(found)),
    )


def _list_of(request: Any, name: str) -> list[dict[str, Any]]:
    if not isinstance(request, dict):
        raise OtlpError("The request is no object.")
    found: Any = as_object(request).get(name, [])
    if not isinstance(found, list):
        raise OtlpError(f"{name} is no list.")
    return as_objects(found)


def _decode_id(value: Any, length: int, what: str) -> str:
    text = value.lower() if isinstance(value, str) else ""
    if len(text) != length or not _HEX.issuperset(text) or not text.strip("0"):
        raise OtlpError(f"The {what} of a span is not {length} hexadecimal digits.")
    return text


def _decode_time(value: Any) -> int:
    """Return a time in nanoseconds, 0 for none. Raises `OtlpError` for one out of range."""
    if isinstance(value, str) and value.isdecimal() and len(value) < 25:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return 0
    if not 0 <= value <= _MAX_INT:
        raise OtlpError("A time of a span is out of range.")
    return value


def _list_items(value: Any, what: str) -> list[dict[str, Any]]:
    items = as_objects(value)
    if len(items) > MAX_ITEMS:
        raise OtlpError(f"A span has more than {MAX_ITEMS} {what}.")
    return items


def _decode_attributes(value: Any, depth: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for item in _list_items(value, "attributes"):
        if (name := as_text(item.get("key"))[:MAX_NAME]) and name not in found:
            found[name] = _decode_value(as_object(item.get("value")), depth)
    return found


def _decode_all(value: Any) -> dict[str, Any]:
    """Decode attributes without secrets."""
    return drop_secrets(_decode_attributes(value))


def _decode_facts(value: Any) -> dict[str, Any]:
    """Decode attributes without secrets and without possible content."""
    found = _decode_all(value)
    return {k: clean_value(k, v) for k, v in found.items() if not has_content(k, v)}


def _decode_value(value: Mapping[str, Any], depth: int) -> Any:
    """Decode an `AnyValue`; None if it is empty or nested too deep."""
    for kind, content in value.items():
        match kind:
            case "stringValue" | "bytesValue":
                return content if isinstance(content, str) else None
            case "boolValue":
                return content if isinstance(content, bool) else None
            case "intValue":
                return _decode_int(content)
            case "doubleValue":
                return _decode_double(content)
            case "arrayValue" if depth < MAX_DEPTH:
                items = as_list(as_object(content).get("values"))
                return [_decode_value(as_object(item), depth + 1) for item in items]
            case "kvlistValue" if depth < MAX_DEPTH:
                return _decode_attributes(as_object(content).get("values"), depth + 1)
            case _:
                pass
    return None


def _decode_int(value: Any) -> int | str | None:
    """Decode an integer; one of more than 64 bits stays a text, as no store supports it."""
    if isinstance(value, str) and len(value) < 25 and value.removeprefix("-").isdecimal():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if -_MAX_INT <= value <= _MAX_INT else str(value)


def _decode_double(value: Any) -> float | str | None:
    """Decode a float; `NaN` and `Infinity` stay texts, as in OTLP's JSON and in ours."""
    if isinstance(value, str):
        return value if value in ("NaN", "Infinity", "-Infinity") else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value)


def _encode_record(record: Record) -> dict[str, Any]:
    attributes = {**record["attributes"], **as_object(record.get("content"))}
    status = {key: value for key, value in record["status"].items() if value}
    span: dict[str, Any] = {
        "traceId": record["trace_id"],
        "spanId": record["span_id"],
        "parentSpanId": record["parent_span_id"],
        "traceState": record.get("trace_state", ""),
        "name": record["name"],
        "kind": record["kind"],
        "startTimeUnixNano": str(record["start_time_unix_nano"]),
        "endTimeUnixNano": str(record["end_time_unix_nano"]),
        "attributes": encode_attributes(attributes),
        "events": [
            {
                "timeUnixNano": str(event["time_unix_nano"]),
                "name": event["name"],
                "attributes": encode_attributes(event["attributes"]),
            }
            for event in record["events"]
        ],
        "links": [
            {
                "traceId": link["trace_id"],
                "spanId": link["span_id"],
                "attributes": encode_attributes(link["attributes"]),
            }
            for link in as_objects(record.get("links"))
        ],
        "status": status,
    }
    return {name: value for name, value in span.items() if value or name == "status"}


def encode_attributes(attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Encode attributes as OTLP JSON."""
    return [{"key": name, "value": _encode_value(value)} for name, value in attributes.items()]


def _encode_value(value: Any) -> dict[str, Any]:
    match value:
        case None:
            return {}
        case str():
            return {"stringValue": value}
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            is_number = value == value and abs(value) != float("inf")
            return {"doubleValue": value if is_number else _name_double(value)}
        case Mapping():
            return {"kvlistValue": {"values": encode_attributes(value)}}
        case list() | tuple():
            return {"arrayValue": {"values": [_encode_value(item) for item in value]}}
        case _:
            return {"stringValue": str(value)}


def _name_double(value: float) -> str:
    if value != value:
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
