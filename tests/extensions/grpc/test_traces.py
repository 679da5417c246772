"""Traces over gRPC: spans of other services taken in, and traces that go through calls."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.struct_pb2 import Struct
from grpc.aio import AioRpcError
from starlette.requests import HTTPConnection

from copilot_runtime import action
from copilot_runtime.api import ActionContext
from copilot_runtime.extensions.grpc.client import connect
from copilot_runtime.extensions.grpc.protos import tool_pb2, trace_pb2
from copilot_runtime.extensions.grpc.protos.tool_pb2_grpc import ToolStub
from copilot_runtime.extensions.grpc.protos.trace_pb2_grpc import TraceStub
from copilot_runtime.extensions.tracing.build import build_telemetry
from copilot_runtime.extensions.tracing.options import TelemetryOptions
from copilot_runtime.telemetry.span import find_current_span, trace_block
from tests.extensions.grpc.servers import Served, build_settings, serve
from tests.extensions.tracing.otel.receivers import serve_http
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"
START = 1_700_000_000_000_000_000


def struct(**values: Any) -> Struct:
    found = Struct()
    found.update(values)
    return found


def span(**more: Any) -> trace_pb2.Span:
    fields: dict[str, Any] = {
        "trace_id": TRACE,
        "span_id": SPAN,
        "name": "agent.ProcessRequest",
        "kind": trace_pb2.SPAN_KIND_SERVER,
        "start_time_unix_nano": START,
        "end_time_unix_nano": START + 5,
        "attributes": struct(**{"rpc.method": "x", "response.resources": 3}),
        "resource": struct(**{"service.name": "agent"}),
        "status": trace_pb2.SpanStatus(code=trace_pb2.STATUS_CODE_ERROR),
    }
    return trace_pb2.Span(**{**fields, **more})


@pytest.fixture
async def served() -> AsyncGenerator[Served]:
    @action
    def add(one: int, two: int, context: ActionContext) -> int:
        """Add numbers."""
        return one + two

    settings = build_settings(
        "trace", "tool", roles=["operator"], telemetry={"enabled": True, "store": "memory"}
    )
    async with serve(settings, actions=[add]) as served:
        yield served


async def test_a_span_is_stored_unchanged(served: Served) -> None:
    async with served.connect("agent") as channel:
        trace = TraceStub(channel)
        done = await trace.RecordSpan(trace_pb2.RecordSpanRequest(spans=[span()]))
        await trace.FlushTraces(trace_pb2.FlushTracesRequest())
        found = await trace.QuerySpans(trace_pb2.QuerySpansRequest(trace_id=TRACE))
        by_kind = await trace.QuerySpans(trace_pb2.QuerySpansRequest(query="[?kind==`2`]"))
        none = await trace.QuerySpans(trace_pb2.QuerySpansRequest(query="[?kind==`3`]"))

    assert (done.recorded, done.rejected) == (1, 0)
    assert [*found.spans] == [span()] == [*by_kind.spans]
    assert not none.spans


async def test_invalid_spans_are_counted_and_the_others_stored(served: Served) -> None:
    spans = [span(trace_id="none"), span(), span(start_time_unix_nano=0)]
    async with served.connect() as channel:
        done = await TraceStub(channel).RecordSpan(trace_pb2.RecordSpanRequest(spans=spans))

    assert (done.recorded, done.rejected) == (1, 2)
    assert "traceId" in done.reason


async def test_a_wrong_query_is_explained(served: Served) -> None:
    async with served.connect() as channel:
        with pytest.raises(AioRpcError) as caught:
            await TraceStub(channel).QuerySpans(trace_pb2.QuerySpansRequest(query="[?"))

    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert caught.value.details() == 'query: Invalid token (EOF): ""'


async def test_a_trace_goes_on_through_a_call(served: Served) -> None:
    arguments = struct(one=1, two=2)
    request = tool_pb2.CallToolRequest(name="add", arguments=arguments)
    async with served.connect() as channel:
        parent = ("traceparent", f"00-{TRACE}-{SPAN}-01")
        await ToolStub(channel).CallTool(request, metadata=[parent])
        found = await TraceStub(channel).QuerySpans(trace_pb2.QuerySpansRequest(trace_id=TRACE))

    spans = {one.name: one for one in found.spans}
    server = spans["copilot.tool.v1.Tool/CallTool"]
    assert (server.parent_span_id, server.kind) == (SPAN, trace_pb2.SPAN_KIND_SERVER)
    assert server.attributes["rpc.system.name"] == "grpc"
    assert any(one.parent_span_id == server.span_id for one in found.spans)
    assert {one.trace_id for one in found.spans} == {TRACE}


def sign_in(connection: HTTPConnection) -> str:
    return "ann"


async def test_users_read_no_traces_and_send_none() -> None:
    settings = build_settings(
        "trace",
        access={},
        telemetry={"enabled": True, "store": "memory", "operators": ["root"]},
    )
    async with serve(settings, authenticate=sign_in) as served, served.connect() as channel:
        trace = TraceStub(channel)
        for asked in (
            trace.QuerySpans(trace_pb2.QuerySpansRequest()),
            trace.RecordSpan(trace_pb2.RecordSpanRequest(spans=[span()])),
            trace.FlushTraces(trace_pb2.FlushTracesRequest()),
        ):
            with pytest.raises(AioRpcError) as caught:
                await asked
            assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED


@in_one_test("is_socket", [False, True])
async def test_without_authentication_only_this_machine_reads_traces(
    tmp_path: Path, *, is_socket: bool
) -> None:
    address = f"unix:{tmp_path}/rpc.sock" if is_socket else "127.0.0.1:0"
    telemetry = {"enabled": True, "store": "memory"}
    settings = build_settings("trace", access={}, telemetry=telemetry, grpc={"address": address})
    async with serve(settings) as served, connect(served.server.address) as channel:
        trace = TraceStub(channel)
        await trace.RecordSpan(trace_pb2.RecordSpanRequest(spans=[span()]))
        found = await trace.QuerySpans(trace_pb2.QuerySpansRequest())

    assert [*found.spans] == [span()]


async def test_a_call_has_a_span_at_its_client_above_that_of_the_service(served: Served) -> None:
    telemetry = served.runtime.telemetry
    async with served.connect() as channel:
        with trace_block(telemetry.start_span("outer")) as outer:
            await ToolStub(channel).ListTools(tool_pb2.ListToolsRequest())
        request = trace_pb2.QuerySpansRequest(trace_id=outer.trace_id)
        found = await TraceStub(channel).QuerySpans(request)

    spans = {one.kind: one for one in found.spans if one.name == "copilot.tool.v1.Tool/ListTools"}
    client, server = spans[trace_pb2.SPAN_KIND_CLIENT], spans[trace_pb2.SPAN_KIND_SERVER]
    assert (client.parent_span_id, server.parent_span_id) == (outer.span_id, client.span_id)
    assert [one.name for one in client.events] == ["request.sent", "response.received"]
    assert [one.name for one in server.events] == ["request.received", "response.sent"]
    for one in (client, server):
        assert one.attributes["rpc.service"] == "copilot.tool.v1.Tool"
        assert one.events[-1].attributes["response.tools"] == 1
    assert {one.resource["service.name"] for one in found.spans} == {"copilot-runtime"}


async def test_the_span_of_a_call_that_was_refused_has_failed(served: Served) -> None:
    telemetry = served.runtime.telemetry
    async with served.connect() as channel:
        with trace_block(telemetry.start_span("outer")) as outer, pytest.raises(AioRpcError):
            await ToolStub(channel).CallTool(tool_pb2.CallToolRequest(name="none"))
        request = trace_pb2.QuerySpansRequest(trace_id=outer.trace_id)
        found = await TraceStub(channel).QuerySpans(request)

    (client,) = [one for one in found.spans if one.kind == trace_pb2.SPAN_KIND_CLIENT]
    assert client.attributes["rpc.response.status_code"] == "NOT_FOUND"
    assert client.status.code == trace_pb2.STATUS_CODE_ERROR
    assert [one.name for one in client.events] == ["request.sent"]


async def test_a_trace_of_two_processes_is_one_tree_at_a_third() -> None:
    @action
    async def add(one: int, two: int) -> int:
        """Add numbers."""
        with trace_block(find_current_span().start_child("sum")):
            return one + two

    with serve_http() as inbox:
        telemetry = {"enabled": True, "endpoint": inbox.url, "store": "memory"}
        settings = build_settings("tool", telemetry={**telemetry, "service_name": "tools"})
        first = build_telemetry(TelemetryOptions(endpoint=inbox.url, service_name="chat"))
        async with serve(settings, actions=[add]) as served, served.connect() as channel:
            with trace_block(first.start_span("outer")):
                arguments = struct(one=1, two=2)
                request = tool_pb2.CallToolRequest(name="add", arguments=arguments)
                await ToolStub(channel).CallTool(request)
        await first.aclose()

    spans = {span.span_id: span for span in inbox.spans}
    (root,) = [span for span in spans.values() if span.parent_span_id not in spans]
    assert root.name == "outer"
    assert {"sum", "copilot.tool.v1.Tool/CallTool"} < {span.name for span in spans.values()}
    assert {span.trace_id for span in spans.values()} == {root.trace_id}


async def test_a_span_with_all_kinds_of_values_comes_back(served: Served) -> None:
    values = struct(whole=2**53, half=0.5, flag=True, nothing=None, list=[1, "a"], object={"a": 1})
    event = trace_pb2.SpanEvent(name="e", time_unix_nano=START, attributes=struct(n=1))
    sent = span(attributes=values, events=[event])
    async with served.connect() as channel:
        trace = TraceStub(channel)
        await trace.RecordSpan(trace_pb2.RecordSpanRequest(spans=[sent]))
        found = await trace.QuerySpans(trace_pb2.QuerySpansRequest(trace_id=TRACE))

    (kept,) = found.spans
    assert [*kept.events] == [event]
    assert {name: kept.attributes[name] for name in ("whole", "half", "flag")} == {
        "whole": 2**53,
        "half": 0.5,
        "flag": True,
    }


async def test_calls_of_the_trace_service_have_no_spans(served: Served) -> None:
    async with served.connect() as channel:
        trace = TraceStub(channel)
        await trace.RecordSpan(trace_pb2.RecordSpanRequest(spans=[span()]))
        found = await trace.QuerySpans(trace_pb2.QuerySpansRequest())

    assert [one.name for one in found.spans] == ["agent.ProcessRequest"]
