"""Decoding of OTLP protobuf requests to OTLP JSON. Needs `opentelemetry-proto`."""

from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError, Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from copilot_runtime.extensions.tracing.otlp import MAX_ITEMS, MAX_SPANS, OtlpError

MAX_BYTES = 4 * 1024 * 1024
"""Maximum request size in bytes, as with gRPC: decoded, it may take thirty times as much."""
MAX_SPAN_BYTES = 1024 * 1024
"""Maximum span size in bytes: as JSON it may take a hundred times as much."""


def decode_traces(body: bytes) -> dict[str, Any]:
    """Decode an `ExportTraceServiceRequest` to OTLP JSON. Raises `OtlpError`."""
    request = ExportTraceServiceRequest()
    _parse(request, body)
    groups = [*request.resource_spans]
    parts = [part for one in groups for part in one.scope_spans]
    if max(len(groups), len(parts), sum(len(part.spans) for part in parts)) > MAX_SPANS:
        raise OtlpError(f"A request may have {MAX_SPANS} spans, and this has more.")
    return {
        "resourceSpans": [
            {
                "resource": _to_dict(one.resource),
                "scopeSpans": [
                    {
                        "scope": _to_dict(part.scope),
                        "spans": [_span_to_dict(span) for span in part.spans],
                    }
                    for part in one.scope_spans
                ],
            }
            for one in request.resource_spans
        ]
    }


def decode_logs(body: bytes) -> dict[str, Any]:
    """Decode an `ExportLogsServiceRequest` to OTLP JSON. Raises `OtlpError`."""
    request = ExportLogsServiceRequest()
    _parse(request, body)
    groups = [*request.resource_logs]
    parts = [part for one in groups for part in one.scope_logs]
    if max(len(groups), len(parts), sum(len(part.log_records) for part in parts)) > MAX_SPANS:
        raise OtlpError(f"A request may have {MAX_SPANS} records, and this has more.")
    return {
        "resourceLogs": [
            {
                "scopeLogs": [
                    {
                        "scope": _to_dict(part.scope),
                        "logRecords": [_log_to_dict(record) for record in part.log_records],
                    }
                    for part in one.scope_logs
                ]
            }
            for one in groups
        ]
    }


def count_metrics(body: bytes) -> int:
    """Return the number of data points in a request. Raises `OtlpError`."""
    metrics = ExportMetricsServiceRequest()
    _parse(metrics, body)
    return sum(
        len(getattr(metric, metric.WhichOneof("data") or "gauge").data_points)
        for one in metrics.resource_metrics
        for part in one.scope_metrics
        for metric in part.metrics
    )


def _parse(request: Message, body: bytes) -> None:
    if len(body) > MAX_BYTES:
        raise OtlpError(f"The request has {len(body)} bytes; {MAX_BYTES} are allowed in protobuf.")
    try:
        request.ParseFromString(body)
    except (DecodeError, RecursionError) as error:
        raise OtlpError("The request body is no protobuf of OTLP.") from error


def _span_to_dict(span: Span) -> Any:
    """Return a span as JSON; None for one that is too large, which counts as rejected."""
    largest = max(len(span.attributes), len(span.events), len(span.links))
    if largest > MAX_ITEMS or span.ByteSize() > MAX_SPAN_BYTES:
        return None
    fields = _to_dict(span)
    ids = {"traceId": span.trace_id, "spanId": span.span_id, "parentSpanId": span.parent_span_id}
    fields.update({name: id.hex() for name, id in ids.items() if id})
    for link, found in zip(fields.get("links", ()), span.links, strict=True):
        link.update({"traceId": found.trace_id.hex(), "spanId": found.span_id.hex()})
    return fields


def _log_to_dict(record: LogRecord) -> Any:
    """Return a record as JSON; None for one that is too large, which counts as rejected."""
    if len(record.attributes) > MAX_ITEMS or record.ByteSize() > MAX_SPAN_BYTES:
        return None
    ids = {"traceId": record.trace_id.hex(), "spanId": record.span_id.hex()}
    return {**_to_dict(record), **ids}


def _to_dict(message: Message) -> dict[str, Any]:
    if message.ByteSize() > MAX_SPAN_BYTES:
        return {}
    try:
        return MessageToDict(message, use_integers_for_enums=True)
    except RecursionError:  # nested values
        return {}
