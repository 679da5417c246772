"""What receivers of OTLP get of a run, in each form, and what becomes of ones that fail."""

import asyncio
import json
import logging
from collections.abc import Sequence
from getpass import getuser
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socket import gethostname, socket
from time import monotonic
from typing import Any
from uuid import UUID

import pytest

from copilot_runtime import action
from copilot_runtime.extensions.tracing.build import build_telemetry
from copilot_runtime.extensions.tracing.options import TelemetryOptions
from copilot_runtime.extensions.tracing.store.store import TraceStore
from copilot_runtime.runtime import Runtime
from copilot_runtime.telemetry import LocalTelemetry, Telemetry, semconv
from copilot_runtime.testing import call, say
from tests.extensions.tracing.otel.receivers import read_attributes, serve_grpc, serve_http
from tests.in_one_test import in_one_test
from tests.runs import run_input, runtime_of, told
from tests.telemetry.test_spans import run

pytestmark = pytest.mark.anyio

SERVERS = {"otlp-http": serve_http, "otlp-grpc": serve_grpc}


@action
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def export_run(**options: Any) -> Telemetry:
    """Run an agent that calls a tool, and return its telemetry, which has sent everything."""
    telemetry = build_telemetry(TelemetryOptions(**options))
    await telemetry.open()
    turns = [call("add", {"a": 1, "b": 2}), say("Three.")]
    await run(runtime_of(*turns, sources=[[add]], telemetry=telemetry))
    telemetry.record(semconv.EXECUTE_TOOL_DURATION, 0.3, {semconv.TOOL_NAME: "add", "other": 1})
    telemetry.record(semconv.FEEDBACK_COUNT, 1, {semconv.FEEDBACK_RATING: "up"})
    telemetry.observe(semconv.RUNS_OPEN, lambda: 3)
    telemetry.log_event(semconv.EVENT_EXCEPTION, {semconv.EXCEPTION_TYPE: "ValueError"})
    await telemetry.aclose()
    return telemetry


@in_one_test("compression", ["none", "gzip"])
@in_one_test("exporter", SERVERS)
async def test_a_run_reaches_a_receiver_as_one_tree(exporter: str, compression: str) -> None:
    with SERVERS[exporter]() as inbox:
        await export_run(
            exporters=(exporter,),
            endpoint=inbox.url,
            compression=compression,
            headers={"X-Key": "secret"},
            resource_attributes={"team": "blue"},
            signals=("traces",),
        )
    names = ["chat", "execute_tool add", "chat", "invoke_agent default"]
    assert [span.name for span in inbox.spans] == names
    root = inbox.spans[-1]
    assert {span.trace_id for span in inbox.spans} == {root.trace_id}
    assert {span.parent_span_id for span in inbox.spans} == {b"", root.span_id}
    assert read_attributes(root.attributes)[semconv.RUN_OUTCOME] == "finished"
    assert all(headers["x-key"] == "secret" for headers in inbox.headers)
    resource = read_attributes(inbox.messages[0].resource_spans[0].resource.attributes)
    assert resource["service.name"] == "copilot-runtime"
    assert resource["team"] == "blue"
    assert UUID(resource["service.instance.id"])  # so that no two workers are taken for one


@in_one_test("identity", [False, True])
async def test_who_asked_and_on_which_machine_leaves_with_the_setting_alone(identity: bool) -> None:
    with serve_http() as inbox:
        telemetry = build_telemetry(
            TelemetryOptions(endpoint=inbox.url, signals=("traces",), identity=identity)
        )
        await run(runtime_of(say("Hi."), telemetry=telemetry), user="ada")
        await telemetry.aclose()
    root = read_attributes(inbox.spans[-1].attributes)
    resource = read_attributes(inbox.messages[0].resource_spans[0].resource.attributes)
    assert root.get(semconv.USER_NAME) == ("ada" if identity else None)
    assert resource.get(semconv.HOST_NAME) == (gethostname() if identity else None)
    assert resource.get(semconv.PROCESS_USER_NAME) == (getuser() if identity else None)


async def test_a_process_whose_user_has_no_name_is_exported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def getuser() -> str:
        raise OSError("no entry")

    monkeypatch.setattr("copilot_runtime.extensions.tracing.otel.build.getuser", getuser)
    with serve_http() as inbox:
        await export_run(endpoint=inbox.url, signals=("traces",), identity=True)
    resource = read_attributes(inbox.messages[0].resource_spans[0].resource.attributes)
    assert semconv.PROCESS_USER_NAME not in resource


@in_one_test("exporter", SERVERS)
async def test_metrics_and_events_reach_a_receiver(exporter: str) -> None:
    with SERVERS[exporter]() as inbox:
        await export_run(exporters=(exporter,), endpoint=inbox.url)
    histogram = inbox.metrics[semconv.EXECUTE_TOOL_DURATION].histogram
    found = [
        point
        for point in histogram.data_points
        if read_attributes(point.attributes) == {semconv.TOOL_NAME: "add"}
    ]
    assert [point.sum for point in found] == [0.3]
    buckets = semconv.METRICS[semconv.EXECUTE_TOOL_DURATION].buckets
    assert tuple(found[0].explicit_bounds) == buckets
    assert inbox.metrics[semconv.FEEDBACK_COUNT].sum.is_monotonic
    assert inbox.metrics[semconv.RUNS_OPEN].gauge.data_points[0].as_int == 3
    (event,) = [record for record in inbox.events if record.event_name == semconv.EVENT_EXCEPTION]
    assert event.severity_number == 13


async def test_only_the_signals_that_are_set_are_sent() -> None:
    with serve_http() as inbox:
        await export_run(endpoint=inbox.url, signals=("traces",))
    assert {*inbox.paths} == {"/v1/traces"}


async def test_a_signal_may_have_an_address_of_its_own() -> None:
    with serve_http() as inbox:
        endpoints = {"traces": f"{inbox.url}/api/v1/traces"}
        await export_run(endpoints=endpoints, signals=("traces",))
    assert inbox.paths == ["/api/v1/traces"]


async def test_a_file_has_lines_of_otlp_with_ids_in_hexadecimal(tmp_path: Path) -> None:
    path = tmp_path / "new" / "telemetry.jsonl"
    await export_run(exporters=("file",), file=str(path), content="export")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert {next(iter(line)) for line in lines} == {
        "resourceSpans",
        "resourceMetrics",
        "resourceLogs",
    }
    spans = [
        span
        for line in lines
        for resource in line.get("resourceSpans", [])
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]
    root = spans[-1]
    assert [span.get("parentSpanId") for span in spans] == [root["spanId"]] * 3 + [None]
    assert len(root["traceId"]) == 32
    assert int(root["spanId"], 16)
    assert root["kind"] == 1
    assert root["startTimeUnixNano"].isdigit()
    assert path.stat().st_mode & 0o077 == 0


async def test_the_console_is_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    await export_run(exporters=("console",))
    output = capsys.readouterr()
    assert output.out == ""
    assert '"name": "execute_tool add"' in output.err
    assert semconv.EVENT_EXCEPTION in output.err


async def test_what_has_parts_keeps_them() -> None:
    with serve_http() as inbox:
        telemetry = build_telemetry(TelemetryOptions(endpoint=inbox.url, content="export"))
        span = telemetry.start_span("chat", attributes={semconv.OPERATION_NAME: semconv.CHAT})
        message = {"role": "user", "parts": [{"type": "text", "content": "Hi \ud800"}]}
        span.set_content({semconv.INPUT_MESSAGES: [message, 2**70, None, 1.5, {1: object}]})
        span.end()
        await telemetry.aclose()
    found = read_attributes(inbox.spans[0].attributes)[semconv.INPUT_MESSAGES]
    assert found[0] == {"role": "user", "parts": [{"type": "text", "content": "Hi ?"}]}
    assert found[1:4] == [str(2**70), None, 1.5]


@in_one_test(
    ("sampler", "argument", "count"),
    [
        ("parentbased_always_on", "", 4),
        ("always_on", "", 4),
        ("always_off", "", 0),
        ("traceidratio", "0", 0),
        ("parentbased_traceidratio", "1", 4),
    ],
)
async def test_a_sampler_chooses_what_is_exported_and_all_is_kept(
    sampler: str, argument: str, count: int
) -> None:
    with serve_http() as inbox:
        telemetry = await export_run(
            endpoint=inbox.url, sampler=sampler, sampler_argument=argument, signals=("traces",)
        )
    assert len(inbox.spans) == count
    assert isinstance(telemetry, LocalTelemetry)
    assert isinstance(telemetry.store, TraceStore)
    assert len(await telemetry.store.list_traces()) == 1


async def test_a_trace_that_is_not_exported_says_so_to_other_processes() -> None:
    telemetry = build_telemetry(
        TelemetryOptions(endpoint="http://127.0.0.1:9", sampler="always_off", signals=("traces",))
    )
    span = telemetry.start_span("chat", attributes={semconv.OPERATION_NAME: semconv.CHAT})
    assert span.context.traceparent.endswith("-00")
    await telemetry.aclose()


def answer_500(request: BaseHTTPRequestHandler) -> None:
    request.send_response(500)
    request.send_header("content-length", "0")
    request.end_headers()


def answer_garbage(request: BaseHTTPRequestHandler) -> None:
    request.wfile.write(b"\x00\xff nothing of HTTP\r\n\r\n")
    request.close_connection = True


def answer_much(request: BaseHTTPRequestHandler) -> None:
    request.send_response(400)
    request.send_header("content-length", str(10_000_000))
    request.end_headers()
    request.wfile.write(b"x" * 10_000_000)


async def wait_for_warnings(caplog: pytest.LogCaptureFixture) -> Sequence[logging.LogRecord]:
    """Return the warnings once there are some: who closes does not wait for a slow sender."""
    deadline = monotonic() + 60
    while monotonic() < deadline:
        if found := [record for record in caplog.records if record.levelno >= logging.WARNING]:
            return found
        await asyncio.sleep(0.02)
    return []


@in_one_test("answer", [answer_500, answer_garbage, answer_much])
async def test_a_receiver_that_answers_nonsense_is_told_of_once(
    answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with serve_http(answer) as inbox:
        await export_run(endpoint=inbox.url)
        records = await wait_for_warnings(caplog)
    assert len(records) == 1
    assert records[0].name == "copilot_runtime.extensions.tracing.otel.delivery"
    assert inbox.url in records[0].getMessage()


async def test_a_warning_does_not_quote_the_password_of_an_address(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with serve_http(answer_500) as inbox:
        endpoint = inbox.url.replace("//", "//me:secret@")
        await export_run(endpoint=endpoint, signals=("traces",))
        (record,) = await wait_for_warnings(caplog)
    assert record.getMessage().startswith(f"{inbox.url} does not take spans")


@in_one_test("exporter", SERVERS)
async def test_a_receiver_that_is_down_costs_a_warning_and_a_few_seconds_at_the_end(
    exporter: str, caplog: pytest.LogCaptureFixture
) -> None:
    with socket() as closed:  # bound, and nobody listens: other tests have other receivers
        closed.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{closed.getsockname()[1]}"
        began = monotonic()
        await export_run(exporters=(exporter,), endpoint=f"http://{place}")
        assert monotonic() - began < 30
    records = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len([record for record in records if place in record.getMessage()]) <= 1


async def test_more_spans_than_a_queue_holds_are_left_out_and_counted() -> None:
    telemetry = build_telemetry(
        TelemetryOptions(endpoint="http://127.0.0.1:9", max_queue=10, signals=("traces",))
    )
    for _ in range(500):
        attributes = {semconv.OPERATION_NAME: semconv.CHAT}
        telemetry.start_span("chat", attributes=attributes).end()
    metrics = telemetry.metrics
    assert metrics is not None
    values = {family.metric.name: family.points[0].value for family in metrics.collect()}
    await telemetry.aclose()
    assert 0 < values[semconv.TELEMETRY_DROPPED] <= 500


async def test_an_answer_is_the_same_whatever_the_receiver_does() -> None:
    async def answer(**options: Any) -> list[Any]:
        telemetry = build_telemetry(TelemetryOptions(**options))
        runtime: Runtime = runtime_of(say("Hello."), telemetry=telemetry)
        events = await told(runtime, run_input())
        await telemetry.aclose()
        return [type(event) for event in events]

    with serve_http(answer_garbage) as inbox:
        assert await answer(endpoint=inbox.url, signals=("traces",)) == await answer(enabled=False)
