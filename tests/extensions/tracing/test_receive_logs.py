"""Logs of other processes: each record becomes an event of the span it was written under."""

import asyncio
import json
import sys
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)

from copilot_runtime.extensions.tracing.otlp import OtlpError, decode_logs
from copilot_runtime.extensions.tracing.store.records import Record
from copilot_runtime.extensions.tracing.waterfall import draw_waterfall
from copilot_runtime.telemetry import LocalTelemetry, semconv
from copilot_runtime.telemetry.log_records import MAX_EVENTS, LogBuffer, LogRecord
from copilot_runtime.telemetry.span import Span, SpanEvent
from tests.extensions.tracing.test_receive import (
    PARENT_SPAN,
    PROTOBUF,
    SPAN,
    TRACE,
    Receiver,
    receiving,
    request_of,
)
from tests.in_one_test import in_one_test
from tests.telemetry.test_spans import PARENT

pytestmark = pytest.mark.anyio

RECORD: dict[str, Any] = {
    "traceId": TRACE,
    "spanId": SPAN["spanId"],
    "timeUnixNano": "1700000000250000000",
    "severityNumber": 13,
    "body": {"stringValue": "CANARY is sold out"},
    "attributes": [
        {"key": "shop.fruit_id", "value": {"stringValue": "apple"}},
        {"key": "exception.message", "value": {"stringValue": "CANARY"}},
    ],
}


def logs_of(*records: Any) -> dict[str, Any]:
    return {
        "resourceLogs": [{"scopeLogs": [{"scope": {"name": "shop"}, "logRecords": [*records]}]}]
    }


async def read_events(receiver: Receiver) -> list[dict[str, Any]]:
    [span] = [one for one in await receiver.spans() if one["span_id"] == SPAN["spanId"]]
    return [event for event in span["events"] if event["name"] != "exception"]


@in_one_test("is_first", [True, False])
async def test_a_record_is_an_event_of_its_span_whichever_comes_first(is_first: bool) -> None:
    async with receiving() as receiver:
        for signal in ("logs", "traces") if is_first else ("traces", "logs"):
            body = logs_of(RECORD) if signal == "logs" else request_of(SPAN)
            response = await receiver.post(f"/v1/{signal}", json=body)
            assert (response.status_code, response.content) == (200, b"{}")
        found = await read_events(receiver)
    assert found == [
        {
            "name": "copilot.log",
            "time_unix_nano": 1_700_000_000_250_000_000,
            "attributes": {
                "shop.fruit_id": "apple",
                semconv.LOG_SEVERITY: "WARN",
                semconv.LOG_LOGGER: "shop",
            },
        }
    ]


async def test_what_was_written_is_kept_where_content_is_and_shown_in_a_terminal() -> None:
    async with receiving(content="local") as receiver:
        await receiver.post(json=request_of(SPAN))
        await receiver.post("/v1/logs", json=logs_of(*[RECORD] * 25))
        [event, *_] = await read_events(receiver)
        lines = draw_waterfall(await receiver.spans()).splitlines()
    assert event["attributes"][semconv.LOG_BODY] == "CANARY is sold out"
    assert event["attributes"]["exception.message"] == "CANARY"
    assert "2023-11-14T22:13:20.250Z  WARN  shop  CANARY is sold out" in lines
    assert lines[-1] == "… the last 20 of 25 lines of logs"


async def test_a_record_waits_for_a_run_that_goes_on() -> None:
    async with receiving() as receiver:
        telemetry = receiver.runtime.telemetry
        span = telemetry.start_span("invoke_agent")
        record = {**RECORD, "traceId": span.trace_id, "spanId": span.span_id}
        await receiver.post("/v1/logs", json=logs_of(record))
        span.end()
        [found] = await receiver.store.get_trace(span.trace_id)
    assert [event["name"] for event in found["events"]] == ["copilot.log"]


async def test_a_record_in_protobuf_is_kept_by_its_own_name() -> None:
    request = ExportLogsServiceRequest()
    records = request.resource_logs.add().scope_logs.add().log_records
    ids = {"trace_id": bytes.fromhex(TRACE), "span_id": bytes.fromhex(SPAN["spanId"])}
    records.add(observed_time_unix_nano=5, event_name="shop.sold", severity_text="note", **ids)
    records.add(time_unix_nano=6)
    records.add(body={"string_value": "x" * 1024 * 1024}, **ids)
    async with receiving() as receiver:
        await receiver.post(json=request_of(SPAN))
        body = request.SerializeToString()
        response = await receiver.post("/v1/logs", content=body, headers=PROTOBUF)
        found = await read_events(receiver)
    assert found == [
        {"name": "shop.sold", "time_unix_nano": 5, "attributes": {semconv.LOG_SEVERITY: "note"}}
    ]
    answer = ExportLogsServiceResponse.FromString(response.content)
    assert answer.partial_success.rejected_log_records == 2
    assert "has no traceId and spanId" in answer.partial_success.error_message


@in_one_test(
    "broken",
    [
        {"traceId": ""},
        {"spanId": "12"},
        {"timeUnixNano": -1},
        {"attributes": [{"key": "a"}] * 2001},
    ],
)
async def test_a_broken_record_is_rejected_and_the_others_are_kept(broken: Any) -> None:
    async with receiving() as receiver:
        await receiver.post(json=request_of(SPAN))
        response = await receiver.post("/v1/logs", json=logs_of({**RECORD, **broken}, RECORD, 5))
        assert len(await read_events(receiver)) == 1
    assert response.json()["partialSuccess"]["rejectedLogRecords"] == "2"


async def test_a_request_may_have_so_many_records_of_so_many_traces() -> None:
    async with receiving() as receiver:
        many = await receiver.post("/v1/logs", json=logs_of(*[{}] * 20_001))
        traces = [{**RECORD, "traceId": f"{at + 1:032x}"} for at in range(210)]
        wide = await receiver.post("/v1/logs", json=logs_of(*traces))
    assert many.status_code == 400
    assert wide.json()["partialSuccess"]["rejectedLogRecords"] == "10"


async def test_a_query_finds_traces_by_their_logs() -> None:
    async with receiving() as receiver:
        await receiver.post(json=request_of(SPAN))
        await receiver.post("/v1/logs", json=logs_of(RECORD))
        path = "[?events[?attributes.\"copilot.log.severity\"=='{}']]"
        warned = await receiver.store.query_spans(path.format("WARN"))
        failed = await receiver.store.query_spans(path.format("ERROR"))
    assert ([one["name"] for one in warned], failed) == (["fetch"], [])


async def test_metrics_are_refused_with_the_way_out() -> None:
    metric = {"name": "m", "sum": {"dataPoints": [{}]}}
    body = {"resourceMetrics": [{"scopeMetrics": [{"metrics": [metric]}]}]}
    async with receiving() as receiver:
        response = await receiver.post("/v1/metrics", json=body)
    partial = response.json()["partialSuccess"]
    assert partial["rejectedDataPoints"] == "1"
    assert "OTEL_METRICS_EXPORTER=none" in partial["errorMessage"]


EXPORTER = """
import logging, sys, warnings
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.propagate import extract
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry._logs import LogRecord, SeverityNumber
spans, logs = TracerProvider(), LoggerProvider()
spans.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))
logs.add_log_record_processor(SimpleLogRecordProcessor(OTLPLogExporter()))
context = extract({"traceparent": sys.argv[1]})
with spans.get_tracer("tests").start_as_current_span("outer", context=context):
    logs.get_logger("shop").emit(
        LogRecord(timestamp=7, severity_number=SeverityNumber.ERROR, body={"fruit": "apple"})
    )
"""


async def test_an_exporter_of_opentelemetry_sends_the_logs_of_its_spans() -> None:
    async with receiving(content="local") as receiver:
        program = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-W", "ignore", "-c", EXPORTER, PARENT),
            env={"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url},
        )
        assert await program.wait() == 0
        [span] = await receiver.spans()
    assert (span["name"], span["parent_span_id"]) == ("outer", PARENT_SPAN)
    assert span["events"][0]["attributes"] == {
        semconv.LOG_SEVERITY: "ERROR",
        semconv.LOG_LOGGER: "shop",
        semconv.LOG_BODY: {"fruit": "apple"},
    }


def record_of(span_id: str, at: int = 0, size: int = 1) -> LogRecord:
    return LogRecord(TRACE, span_id, SpanEvent("copilot.log", at, {}), size)


def test_records_whose_spans_never_come_make_room_for_others() -> None:
    buffer = LogBuffer(max_records=3, max_size=100)
    buffer.add(record_of(str(at)) for at in range(5))
    assert (buffer.count, buffer.dropped) == (3, 2)
    buffer.add([record_of("large", size=99)])
    assert (buffer.count, buffer.dropped) == (2, 4)
    assert buffer.find_spans(TRACE, ["1", "4", "large"]) == ["4", "large"]


def test_a_span_takes_so_many_records_by_their_times() -> None:
    buffer, span = LogBuffer(), Span("it", trace_id=TRACE, span_id="1")
    buffer.add(record_of("1", at) for at in reversed(range(MAX_EVENTS + 5)))
    buffer.attach(span)
    assert (len(span.events), buffer.dropped, buffer.count) == (MAX_EVENTS, 5, 0)
    assert span.events == sorted(span.events, key=lambda event: event.time)


async def test_records_that_are_left_out_are_counted() -> None:
    async with receiving() as receiver:
        telemetry = receiver.runtime.telemetry
        assert isinstance(telemetry, LocalTelemetry)
        telemetry.logs.dropped = 7
        values = {
            family.metric.name: family.points[0].value for family in telemetry.metrics.collect()
        }
    assert values[semconv.TELEMETRY_DROPPED] == 7


_JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from([*RECORD, "eventName", "severityText"]), _JSON_VALUES))
def test_garbage_is_rejected_or_read_and_never_an_exception(fields: Any) -> None:
    batch = decode_logs(logs_of({**RECORD, **fields}), keeps_content=True)
    assert len(batch.logs) + batch.rejected == 1
    json.dumps([record.event for record in batch.logs])


@given(_JSON_VALUES)
def test_a_request_that_is_none_is_refused_or_empty(value: Any) -> None:
    for request in (value, {"resourceLogs": value}, logs_of(value)):
        try:
            decode_logs(request, keeps_content=False)
        except OtlpError:
            continue


class WatchedLock(asyncio.Lock):
    """A lock that tells when a second one wants it."""

    def __init__(self) -> None:
        super().__init__()
        self.is_wanted = asyncio.Event()

    async def acquire(self) -> Literal[True]:
        if self.locked():
            self.is_wanted.set()
        return await super().acquire()


async def test_a_rating_that_comes_while_a_record_is_noted_is_not_lost() -> None:
    async with receiving() as receiver:
        store = receiver.store
        lock = store.edits = WatchedLock()
        run = receiver.runtime.telemetry.start_span(
            "invoke_agent", attributes={semconv.RUN_ID: "run-1"}
        )
        run.end()
        get_trace = store.get_trace

        async def get_slowly(trace_id: str) -> list[Record]:
            spans = await get_trace(trace_id)
            await lock.is_wanted.wait()
            return spans

        store.get_trace = get_slowly
        record = {**RECORD, "traceId": run.trace_id, "spanId": run.span_id}
        async with asyncio.timeout(10), asyncio.TaskGroup() as group:
            group.create_task(receiver.post("/v1/logs", json=logs_of(record)))
            rating = {"run_id": "run-1", "rating": "up"}
            group.create_task(receiver.post("/traces/feedback", json=rating))
        [span] = await get_trace(run.trace_id)
    assert {event["name"] for event in span["events"]} == {
        "copilot.log",
        "copilot.feedback",
        "gen_ai.evaluation.result",
    }
