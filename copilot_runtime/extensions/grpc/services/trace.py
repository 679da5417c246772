"""The trace service: ingests and queries spans of all services."""

from collections.abc import Iterable, Mapping
from typing import Any

from copilot_runtime.api.identity import Forbidden
from copilot_runtime.base.concurrency import call as call_in_thread
from copilot_runtime.base.errors import ConfigurationFailed, Misuse
from copilot_runtime.extensions.grpc.protos import trace_pb2
from copilot_runtime.extensions.grpc.service import (
    Call,
    RpcMethod,
    RpcService,
    build_struct,
    check_number,
    check_text,
    read_struct,
)
from copilot_runtime.extensions.tracing.http.access import TraceAccess
from copilot_runtime.extensions.tracing.otlp import (
    Batch,
    OtlpError,
    decode_spans,
    encode_attributes,
)
from copilot_runtime.extensions.tracing.store.records import Record
from copilot_runtime.extensions.tracing.store.traces import parse_filter
from copilot_runtime.transports.body import BadRequest
from copilot_runtime.transports.transport import Services

_MOST_TRACES = 1_000
_FEW = 200
"""Number of spans decoded on the event loop; more are decoded in a thread."""


class TraceService(RpcService):
    """`copilot.trace.v1.Trace`. Its calls have no spans: each span would cause the next one."""

    descriptor = trace_pb2.DESCRIPTOR.services_by_name["Trace"]

    def __init__(self, services: Services) -> None:
        traces = services.parts.find(TraceAccess)
        if traces is None or not services.telemetry.is_recording:
            raise ConfigurationFailed(
                "grpc.services names 'trace', and nothing is traced here.",
                hint="Set telemetry.enabled to true, and telemetry.store to sqlite:traces.db.",
            )
        traces.find_store()  # raises an error if no traces are stored
        self._access = traces
        self._telemetry = services.telemetry

    def list_methods(self) -> Mapping[str, RpcMethod]:
        return {
            "RecordSpan": RpcMethod(run=self.record_span, is_traced=False),
            "QuerySpans": RpcMethod(run=self.query_spans, is_traced=False),
            "FlushTraces": RpcMethod(run=self.flush_traces, is_traced=False),
        }

    async def record_span(
        self, request: trace_pb2.RecordSpanRequest, call: Call
    ) -> trace_pb2.RecordSpanResponse:
        """Ingest spans from services and operators."""
        self._check_sender(call)
        work = len(request.spans) > _FEW
        try:
            batch = await call_in_thread(self._decode, request) if work else self._decode(request)
        except OtlpError as error:
            raise BadRequest(str(error)) from error
        for span in batch.spans:
            self._telemetry.import_span(span)
        return trace_pb2.RecordSpanResponse(
            recorded=len(batch.spans), rejected=batch.rejected, reason=batch.reason
        )

    async def query_spans(
        self, request: trace_pb2.QuerySpansRequest, call: Call
    ) -> trace_pb2.QuerySpansResponse:
        """Return the spans of matching traces, for operators."""
        self._access.require(call.scope, call.headers, call.caller)
        limit = request.limit if request.HasField("limit") else 20
        names = ("trace_id", "thread_id", "resource_id")
        query = check_text("query", request.query)
        filter = parse_filter({name: getattr(request, name) for name in names})
        limit = check_number("limit", limit, _MOST_TRACES, least=1)
        try:
            spans = await self._access.find_store().query_spans(query, filter, limit=limit)
        except Misuse as error:  # the error of JMESPath does not name the field
            raise Misuse(f"query: {error.message}", hint=error.hint) from error
        return await call_in_thread(_encode_all, spans) if len(spans) > _FEW else _encode_all(spans)

    async def flush_traces(
        self,
        request: trace_pb2.FlushTracesRequest,  # noqa: ARG002
        call: Call,
    ) -> trace_pb2.FlushTracesResponse:
        """Write the queued spans."""
        self._check_sender(call)
        await self._access.find_store().flush()
        return trace_pb2.FlushTracesResponse()

    def _check_sender(self, call: Call) -> None:
        """Raise `Forbidden` unless the caller is a service or an operator: spans can be forged."""
        is_service = call.caller.identity.is_service
        if not (is_service or self._access.allows(call.scope, call.headers, call.caller)):
            raise Forbidden("Spans are taken from services and operators.")

    def _decode(self, request: trace_pb2.RecordSpanRequest) -> Batch:
        spans = [
            {
                "resource": {"attributes": encode_attributes(read_struct(one.resource))},
                "scopeSpans": [{"spans": [_write_span(one)]}],
            }
            for one in request.spans
        ]
        return decode_spans({"resourceSpans": spans}, keeps_content=self._telemetry.keeps_content)


def _write_span(span: trace_pb2.Span) -> dict[str, Any]:
    """Return a span in OTLP's JSON format, which one place validates."""
    return {
        "traceId": span.trace_id,
        "spanId": span.span_id,
        "parentSpanId": span.parent_span_id,
        "name": span.name,
        "kind": span.kind,
        "startTimeUnixNano": str(span.start_time_unix_nano),
        "endTimeUnixNano": str(span.end_time_unix_nano),
        "attributes": encode_attributes(read_struct(span.attributes)),
        "events": [
            {
                "name": event.name,
                "timeUnixNano": str(event.time_unix_nano),
                "attributes": encode_attributes(read_struct(event.attributes)),
            }
            for event in span.events
        ],
        "status": {"code": span.status.code, "message": span.status.message},
    }


def _encode_all(records: Iterable[Record]) -> trace_pb2.QuerySpansResponse:
    return trace_pb2.QuerySpansResponse(spans=map(_encode_span, records))


def _encode_span(record: Record) -> trace_pb2.Span:
    content: Mapping[str, Any] = record.get("content") or {}
    status = record["status"]
    return trace_pb2.Span(
        trace_id=record["trace_id"],
        span_id=record["span_id"],
        parent_span_id=record["parent_span_id"],
        name=record["name"],
        kind=record["kind"],
        start_time_unix_nano=record["start_time_unix_nano"],
        end_time_unix_nano=record["end_time_unix_nano"],
        attributes=build_struct({**record["attributes"], **content}),
        events=[
            trace_pb2.SpanEvent(
                name=event["name"],
                time_unix_nano=event["time_unix_nano"],
                attributes=build_struct(event["attributes"]),
            )
            for event in record["events"]
        ],
        status=trace_pb2.SpanStatus(code=status["code"], message=status["message"]),
        resource=build_struct(record["resource"]["attributes"]),
    )
