"""Other processes send their spans: OTLP over HTTP, by real exporters and by hand."""

import asyncio
import gzip
import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from copilot_runtime import CopilotRuntime, Settings
from copilot_runtime.extensions.tracing.build import build_exporter_environment
from copilot_runtime.extensions.tracing.otlp import OtlpError, decode_spans, encode_otlp_json
from copilot_runtime.extensions.tracing.settings import TelemetrySettings
from copilot_runtime.extensions.tracing.store import MemoryTraceStore
from copilot_runtime.extensions.tracing.store.records import encode_span
from copilot_runtime.security.loopback import LISTENER, Listener
from copilot_runtime.telemetry import LocalTelemetry, semconv
from tests.in_one_test import in_one_test
from tests.telemetry.test_spans import PARENT
from tests.wire_agui.server import PATH, serving

pytestmark = pytest.mark.anyio

TRACE, PARENT_SPAN = PARENT.split("-")[1:3]
SPAN: dict[str, Any] = {
    "traceId": TRACE,
    "spanId": "1122334455667788",
    "parentSpanId": PARENT_SPAN,
    "traceState": "vendor=1",
    "name": "fetch",
    "kind": 3,
    "startTimeUnixNano": "1700000000000000000",
    "endTimeUnixNano": "1700000001000000000",
    "attributes": [
        {"key": "http.request.method", "value": {"stringValue": "GET"}},
        {"key": "gen_ai.usage.input_tokens", "value": {"intValue": "12"}},
        {"key": "share", "value": {"doubleValue": 0.5}},
        {"key": "is_new", "value": {"boolValue": True}},
        {"key": "item.ids", "value": {"arrayValue": {"values": [{"stringValue": "a"}]}}},
        {
            "key": "more",
            "value": {"kvlistValue": {"values": [{"key": "x", "value": {"intValue": 1}}]}},
        },
        {"key": "gen_ai.input.messages", "value": {"stringValue": "CANARY"}},
    ],
    "events": [
        {
            "timeUnixNano": "1700000000500000000",
            "name": "exception",
            "attributes": [
                {"key": "exception.type", "value": {"stringValue": "ValueError"}},
                {"key": "exception.message", "value": {"stringValue": "CANARY"}},
            ],
        }
    ],
    "links": [{"traceId": TRACE, "spanId": PARENT_SPAN, "attributes": []}],
    "status": {"code": 2, "message": "CANARY"},
}


def request_of(*spans: Any) -> dict[str, Any]:
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "elsewhere"}}]}
    scopes = [{"scope": {"name": "tests"}, "spans": list(spans)}]
    return {"resourceSpans": [{"resource": resource, "scopeSpans": scopes}]}


class Receiver:
    """A runtime that takes spans, and its store."""

    def __init__(self, **telemetry: Any) -> None:
        self.store = MemoryTraceStore()
        content = telemetry.pop("content", "none") != "none"
        hosts = telemetry.pop("allowed_hosts", ())
        settings = Settings(
            threads="memory", telemetry=TelemetrySettings(**telemetry), allowed_hosts=hosts
        )
        self.runtime = CopilotRuntime(
            telemetry=LocalTelemetry(self.store, keeps_content=content), settings=settings
        )
        self.url = ""

    async def post(self, path: str = "/v1/traces", **more: Any) -> httpx.Response:
        """Send a request, below the URL of the runtime unless `root` is said."""
        base = "" if more.pop("root", False) else PATH
        async with httpx.AsyncClient(base_url=self.url) as client:
            return await client.request(more.pop("method", "POST"), base + path, **more)

    async def spans(self) -> list[dict[str, Any]]:
        return await self.store.get_trace(TRACE)


@asynccontextmanager
async def receiving(**telemetry: Any) -> AsyncGenerator[Receiver]:
    receiver = Receiver(**telemetry)
    async with serving(receiver.runtime.app(path=PATH)) as port:
        receiver.url = f"http://127.0.0.1:{port}"
        yield receiver


def protobuf_of(spans: int = 1, **more: Any) -> bytes:
    """Return a request in protobuf."""
    request = ExportTraceServiceRequest()
    found = request.resource_spans.add().scope_spans.add().spans
    for number in range(spans):
        ids = {"trace_id": bytes.fromhex(TRACE), "span_id": (number + 1).to_bytes(8)}
        fields = {"name": "it", "start_time_unix_nano": 1, "end_time_unix_nano": 2, **ids, **more}
        found.add(**fields)
    return request.SerializeToString()


PROTOBUF = {"content-type": "application/x-protobuf"}


@in_one_test("root", [False, True])
async def test_a_span_in_json_is_kept_with_the_process_that_made_it(root: bool) -> None:
    async with receiving() as receiver:
        response = await receiver.post(json=request_of(SPAN), root=root)
        [span] = await receiver.spans()
    assert (response.status_code, response.content) == (200, b"{}")
    assert span == {
        "trace_id": TRACE,
        "span_id": "1122334455667788",
        "parent_span_id": PARENT_SPAN,
        "name": "fetch",
        "kind": 3,
        "start_time_unix_nano": 1_700_000_000_000_000_000,
        "end_time_unix_nano": 1_700_000_001_000_000_000,
        "attributes": {
            "http.request.method": "GET",
            "gen_ai.usage.input_tokens": 12,
            "share": 0.5,
            "is_new": True,
            "item.ids": ["a"],
            "more": {"x": 1},
        },
        "events": [
            {
                "name": "exception",
                "time_unix_nano": 1_700_000_000_500_000_000,
                "attributes": {"exception.type": "ValueError"},
            }
        ],
        "links": [{"trace_id": TRACE, "span_id": PARENT_SPAN, "attributes": {}}],
        "status": {"code": 2, "message": ""},
        "resource": {"attributes": {"service.name": "elsewhere"}},
        "scope": {"name": "tests"},
        "trace_state": "vendor=1",
    }


async def test_content_is_kept_where_ours_is() -> None:
    async with receiving(content="local") as receiver:
        await receiver.post(json=request_of(SPAN))
        [span] = await receiver.spans()
    assert span["content"] == {semconv.INPUT_MESSAGES: "CANARY"}
    assert span["status"]["message"] == "CANARY"
    assert span["events"][0]["attributes"]["exception.message"] == "CANARY"


FOREIGN = {
    **dict.fromkeys(
        ("args", "langchain.inputs", "ai.prompt.messages", "ai.response.text"), "CANARY"
    ),
    **dict.fromkeys(("db.query.text", "gen_ai.input.messages", "metadata"), "CANARY"),
    "url.full": "https://me:CANARY@example.com/path?word=CANARY",
    "http.route": "/path",
}


async def test_what_other_dialects_call_content_is_left_out_like_ours() -> None:
    attributes = [{"key": key, "value": {"stringValue": text}} for key, text in FOREIGN.items()]
    link = {"traceId": TRACE, "spanId": PARENT_SPAN, "attributes": attributes}
    event = {"name": "told", "timeUnixNano": "1", "attributes": attributes}
    sent = request_of({**SPAN, "attributes": attributes, "links": [link], "events": [event]})
    sent["resourceSpans"][0]["resource"]["attributes"] += attributes
    async with receiving() as receiver:
        await receiver.post(json=sent)
        [span] = await receiver.spans()
    assert "CANARY" not in json.dumps(span)
    facts = {"url.full": "https://example.com/path", "http.route": "/path"}
    assert span["attributes"] == span["links"][0]["attributes"] == facts
    assert span["events"][0]["attributes"] == facts
    assert span["resource"]["attributes"] == {"service.name": "elsewhere", **facts}


@in_one_test("is_packed", [False, True])
async def test_a_span_in_protobuf_is_kept(is_packed: bool) -> None:
    body, headers = protobuf_of(parent_span_id=bytes.fromhex(PARENT_SPAN)), PROTOBUF
    if is_packed:
        body, headers = gzip.compress(body), {**PROTOBUF, "content-encoding": "gzip"}
    async with receiving() as receiver:
        response = await receiver.post(content=body, headers=headers)
        [span] = await receiver.spans()
    assert (response.status_code, response.content) == (200, b"")
    assert response.headers["content-type"] == "application/x-protobuf"
    assert (span["span_id"], span["parent_span_id"]) == ("0000000000000001", PARENT_SPAN)


EXPORTER = """
import sys
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.propagate import extract
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
exporter = OTLPSpanExporter(compression=Compression.Gzip)
provider = TracerProvider(resource=Resource({"service.name": "child"}))
provider.add_span_processor(SimpleSpanProcessor(exporter))
context = extract({"traceparent": sys.argv[1]})
with provider.get_tracer("tests").start_as_current_span("outer", context=context):
    with provider.get_tracer("tests").start_as_current_span("inner") as span:
        span.record_exception(ValueError("no"))
"""


async def test_an_exporter_of_opentelemetry_in_another_process_sends_its_spans() -> None:
    async with receiving() as receiver:
        program = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            EXPORTER,
            PARENT,
            env={"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url},
        )
        assert await program.wait() == 0
        outer, inner = await receiver.spans()
    assert (outer["name"], outer["parent_span_id"]) == ("outer", PARENT_SPAN)
    assert (inner["name"], inner["parent_span_id"]) == ("inner", outer["span_id"])
    assert inner["resource"]["attributes"]["service.name"] == "child"
    [event] = inner["events"]
    assert event["attributes"]["exception.type"] == "ValueError"
    assert "exception.message" not in event["attributes"]


BROKEN: dict[str, dict[str, Any]] = {
    "no trace": {"traceId": ""},
    "short trace": {"traceId": "12"},
    "base64": {"traceId": "CvdlGRbNQ92ESOshHIAxnA=="},
    "zero trace": {"traceId": "0" * 32},
    "no span": {"spanId": None},
    "wrong parent": {"parentSpanId": "xyz"},
    "no start": {"startTimeUnixNano": "soon"},
    "late start": {"startTimeUnixNano": str(2**63)},
    "negative": {"startTimeUnixNano": -1},
    "many": {"attributes": [{"key": str(at), "value": {}} for at in range(2_001)]},
    "link": {"links": [{"traceId": 5}]},
}


@in_one_test("name", BROKEN)
async def test_a_broken_span_is_rejected_and_the_others_are_kept(name: str) -> None:
    async with receiving() as receiver:
        response = await receiver.post(json=request_of({**SPAN, **BROKEN[name]}, SPAN, 5))
        assert len(await receiver.spans()) == 1
    assert response.status_code == 200
    partial = response.json()["partialSuccess"]
    assert partial["rejectedSpans"] == "2"
    assert partial["errorMessage"]


async def test_what_is_rejected_of_protobuf_is_answered_in_protobuf() -> None:
    async with receiving() as receiver:
        response = await receiver.post(content=protobuf_of(200, trace_id=b"1"), headers=PROTOBUF)
    answer = ExportTraceServiceResponse.FromString(response.content)
    assert answer.partial_success.rejected_spans == 200
    assert "32 hexadecimal digits" in answer.partial_success.error_message


async def test_a_span_that_is_too_large_is_rejected() -> None:
    async with receiving() as receiver:
        content = protobuf_of(name="x" * (1024 * 1024))
        response = await receiver.post(content=content, headers=PROTOBUF)
    answer = ExportTraceServiceResponse.FromString(response.content)
    assert answer.partial_success.rejected_spans == 1


async def test_values_no_store_could_keep_become_texts_or_nothing() -> None:
    deep: dict[str, Any] = {"stringValue": "bottom"}
    for _ in range(60):
        deep = {"arrayValue": {"values": [deep]}}
    values: dict[str, Any] = {
        "large": {"intValue": "99999999999999999999"},
        "nan": {"doubleValue": "NaN"},
        "wrong": {"intValue": "1.5"},
        "nothing": {},
        "unknown": {"otherValue": 5},
        "number": {"stringValue": 5},
        "deep": deep,
    }
    attributes = [{"key": key, "value": value} for key, value in values.items()]
    async with receiving(content="local") as receiver:
        await receiver.post(json=request_of({**SPAN, "attributes": attributes}))
        [span] = await receiver.spans()
    found = {**span["attributes"], **span["content"]}
    assert found.pop("deep") is not None
    assert "bottom" not in json.dumps(span)
    assert found == {
        "large": "99999999999999999999",
        "nan": "NaN",
        **dict.fromkeys(("wrong", "nothing", "unknown", "number")),
    }


@in_one_test(
    ("more", "status"),
    [
        ({"method": "GET"}, 405),
        ({"content": b"{}", "headers": {"content-type": "text/plain"}}, 415),
        ({"content": b"{", "headers": {"content-type": "application/json"}}, 400),
        ({"json": []}, 400),
        ({"json": {"resourceSpans": 5}}, 400),
        ({"content": b"\xff\xff", "headers": PROTOBUF}, 400),
        ({"content": b"x", "headers": {**PROTOBUF, "content-encoding": "gzip"}}, 400),
        ({"content": b"x", "headers": {**PROTOBUF, "content-encoding": "br"}}, 415),
        (
            {
                "content": gzip.compress(b"x" * 100)[:-4],
                "headers": {**PROTOBUF, "content-encoding": "gzip"},
            },
            400,
        ),
        (
            {
                "content": gzip.compress(b" " * 17 * 1024 * 1024),
                "headers": {"content-type": "application/json", "content-encoding": "gzip"},
            },
            413,
        ),
        ({"content": b"\n\0" * 9_000_000, "headers": PROTOBUF}, 413),
        ({"content": b"\n\0" * 3_000_000, "headers": PROTOBUF}, 400),
        ({"content": b"\n\0" * 30_000, "headers": PROTOBUF}, 400),
        ({"content": protobuf_of(20_001), "headers": PROTOBUF}, 400),
        ({"json": request_of(*[{}] * 20_001)}, 400),
        ({"json": {"a": [0] * 300_000}}, 413),
    ],
)
async def test_what_is_no_otlp_is_refused_with_a_reason(more: dict[str, Any], status: int) -> None:
    async with receiving() as receiver:
        response = await receiver.post(**more)
    assert response.status_code == status
    if response.headers["content-type"] == "application/json":
        assert response.json()["message"]
    else:
        assert b"\x12" in response.content


@in_one_test(
    ("path", "body", "rejected"),
    [
        ("/v1/logs", {"resourceLogs": [{"scopeLogs": [{"logRecords": [{}, {}]}]}]}, 2),
        (
            "/v1/metrics",
            {
                "resourceMetrics": [
                    {"scopeMetrics": [{"metrics": [{"name": "m", "sum": {"dataPoints": [{}]}}]}]}
                ]
            },
            1,
        ),
        ("/v1/logs", {}, 0),
    ],
)
async def test_metrics_and_logs_are_answered_as_what_is_not_kept(
    path: str, body: Any, rejected: int
) -> None:
    async with receiving() as receiver:
        response = await receiver.post(path, json=body)
    assert response.status_code == 200
    found = response.json().get("partialSuccess", {})
    name = "rejectedLogRecords" if "logs" in path else "rejectedDataPoints"
    assert int(found.get(name, 0)) == rejected


async def test_metrics_and_logs_in_protobuf_are_answered_alike() -> None:
    metrics, logs = ExportMetricsServiceRequest(), ExportLogsServiceRequest()
    metric = metrics.resource_metrics.add().scope_metrics.add().metrics.add(name="m")
    metric.sum.data_points.add()
    logs.resource_logs.add().scope_logs.add().log_records.add()
    async with receiving() as receiver:
        counted = await receiver.post(
            "/v1/metrics", content=metrics.SerializeToString(), headers=PROTOBUF
        )
        noted = await receiver.post("/v1/logs", content=logs.SerializeToString(), headers=PROTOBUF)
    answer = ExportMetricsServiceResponse.FromString(counted.content)
    assert answer.partial_success.rejected_data_points == 1
    assert noted.status_code == 200


async def test_without_the_package_json_works_and_protobuf_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "copilot_runtime.extensions.tracing.otel.protobuf", None)
    async with receiving() as receiver:
        assert (await receiver.post(json=request_of(SPAN))).status_code == 200
        for path in ("/v1/traces", "/v1/logs"):
            refused = await receiver.post(path, content=protobuf_of(), headers=PROTOBUF)
            assert refused.status_code == 415


@in_one_test("name", ["x-forwarded-for", "via", "host"])
async def test_by_default_only_this_machine_may_send(name: str) -> None:
    async with receiving(allowed_hosts=("app.example.com",)) as receiver:
        refused = await receiver.post(json=request_of(SPAN), headers={name: "app.example.com"})
    assert refused.status_code == 403


async def test_with_a_token_who_has_it_may_send() -> None:
    async with receiving(receive="token", receive_token="open sesame") as receiver:
        found = [
            (await receiver.post(json=request_of(SPAN), headers={"authorization": value}))
            for value in (b"Bearer open sesame", b"Bearer other", b"open sesame", b"Bearer \xfc")
        ]
    assert [one.status_code for one in found] == [200, 401, 401, 401]


async def test_a_token_is_asked_for_even_if_none_is_set() -> None:
    with pytest.raises(ValueError, match="receive_token"):
        TelemetrySettings(receive="token")


async def test_where_it_is_off_there_is_nothing() -> None:
    async with receiving(receive="off") as receiver:
        assert (await receiver.post(json=request_of(SPAN))).status_code == 404


async def test_a_sign_in_of_the_application_is_not_asked_for() -> None:
    receiver = Receiver()
    receiver.runtime = CopilotRuntime(
        telemetry=LocalTelemetry(receiver.store),
        settings=Settings(threads="memory"),
        authenticate=_refuse,
    )
    async with serving(receiver.runtime.app(path=PATH)) as port:
        receiver.url = f"http://127.0.0.1:{port}"
        assert (await receiver.post(json=request_of(SPAN))).status_code == 200
        assert (await receiver.post("/threads", method="GET")).status_code == 401


def _refuse(connection: Any) -> str:
    from copilot_runtime.base.errors import AuthenticationFailed

    raise AuthenticationFailed("Please sign in.")


async def test_a_listener_hears_of_spans_that_come_in() -> None:
    receiver = Receiver()
    heard: list[str] = []
    receiver.runtime.telemetry.listen(lambda span, phase: heard.append(f"{phase} {span.name}"))
    async with serving(receiver.runtime.app(path=PATH)) as port:
        receiver.url = f"http://127.0.0.1:{port}"
        await receiver.post(json=request_of(SPAN))
    assert heard == ["end fetch"]


@in_one_test(
    ("listener", "token", "endpoint"),
    [
        (Listener("127.0.0.1", "localhost", 8000), "", "http://127.0.0.1:8000"),
        (Listener("0.0.0.0", "0.0.0.0", 8000), "", "http://127.0.0.1:8000"),
        (Listener("::", "::", 8000), "", "http://[::1]:8000"),
        (Listener("192.0.2.1", "example.com", 8000), "a b", "http://192.0.2.1:8000"),
        (Listener("192.0.2.1", "example.com", 8000), "", None),
        (Listener("127.0.0.1", "localhost"), "", None),
    ],
)
def test_programs_that_are_started_are_told_where_to_send(
    listener: Listener, token: str, endpoint: str | None
) -> None:
    variables = build_exporter_environment(listener, token)
    assert variables.get("OTEL_EXPORTER_OTLP_ENDPOINT") == endpoint
    header = "authorization=Bearer%20a%20b" if token else None
    assert variables.get("OTEL_EXPORTER_OTLP_HEADERS") == header


async def test_a_server_that_knows_its_address_tells_it() -> None:
    receiver = Receiver()
    token = LISTENER.set(Listener("127.0.0.1", "localhost", 4321))
    try:
        app = receiver.runtime.app(path=PATH)
        async with app.router.lifespan_context(app):
            variables = receiver.runtime.telemetry.child_environment
    finally:
        LISTENER.reset(token)
    assert variables["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://127.0.0.1:4321"


def test_what_is_written_is_read_again_as_it_was() -> None:
    batch = decode_spans(request_of(SPAN), keeps_content=True)
    records = [encode_span(span) for span in batch.spans]
    again = decode_spans(json.loads(encode_otlp_json(records)), keeps_content=True)
    assert [encode_span(span) for span in again.spans] == records


_KEYS = (
    *("resourceSpans", "scopeSpans", "spans", "resource", "attributes", "key", "value", "status"),
    *("traceId", "spanId", "startTimeUnixNano", "events", "links", "scope", "values", "arrayValue"),
    *("kvlistValue", "intValue", "doubleValue", "stringValue"),
)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(_KEYS),
            inner,
            max_size=5,
        )
    ),
    max_leaves=30,
)


@given(_VALUES, st.dictionaries(st.sampled_from(sorted(SPAN)), _VALUES))
def test_garbage_is_refused_or_rejected_and_never_an_exception(value: Any, span: Any) -> None:
    for request in (value, {"resourceSpans": value}, request_of(value), request_of(SPAN | span)):
        try:
            batch = decode_spans(request, keeps_content=True)
        except OtlpError:
            continue
        encode_otlp_json(encode_span(found) for found in batch.spans)


@given(st.binary(max_size=200), st.integers(0, 300), st.binary(max_size=4))
def test_broken_protobuf_is_refused_or_read(body: bytes, at: int, piece: bytes) -> None:
    from copilot_runtime.extensions.tracing.otel.protobuf import decode_traces

    whole = protobuf_of(2, parent_span_id=b"12345678")
    for sent in (body, whole[:at] + piece + whole[at + len(piece) :]):
        with suppress(OtlpError):
            decode_spans(decode_traces(sent), keeps_content=True)
