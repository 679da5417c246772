"""The spans of requests of MCP clients, and what they are below and above."""

from typing import Any

import anyio
import pytest
from mcp import MCPError
from mcp.shared.memory import create_client_server_memory_streams
from mcp.shared.message import SessionMessage
from mcp_types import METHOD_NOT_FOUND, JSONRPCRequest

from copilot_runtime.api import Caller
from copilot_runtime.extensions.mcp.server.server import build_server
from copilot_runtime.telemetry import NO_TELEMETRY, LocalTelemetry, Span, semconv
from tests.extensions.mcp.server.clients import failure_of, over_http, over_memory, text_of
from tests.extensions.tracing.metrics import points_of
from tests.telemetry.recorded import Spans, find_gaps, find_violations
from tests.transports.served import at_work, runtime_of

pytestmark = pytest.mark.anyio

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def spans() -> Spans:
    return Spans()


@pytest.fixture
def telemetry(spans: Spans) -> LocalTelemetry:
    return LocalTelemetry(spans)


def select_requests(spans: Spans) -> list[Span]:
    return [span for span in spans.spans if span.kind == "server"]


async def test_a_call_of_a_tool_is_a_span_above_what_it_runs(
    spans: Spans, telemetry: LocalTelemetry
) -> None:
    async with at_work(telemetry=telemetry) as browser, over_http(browser) as session:
        assert text_of(await session.call_tool("add", {"a": 1})) == "2"
    request = spans.named("tools/call add")
    assert request.attributes[semconv.MCP_SESSION_ID]
    assert isinstance(request.attributes[semconv.CLIENT_PORT], int)
    assert {
        **request.attributes,
        semconv.MCP_SESSION_ID: "s",
        semconv.CLIENT_PORT: 1,
    } == {
        semconv.MCP_METHOD_NAME: "tools/call",
        semconv.OPERATION_NAME: "execute_tool",
        semconv.TOOL_NAME: "add",
        semconv.MCP_SESSION_ID: "s",
        semconv.MCP_PROTOCOL_VERSION: "2025-11-25",
        semconv.JSONRPC_REQUEST_ID: "2",
        semconv.NETWORK_TRANSPORT: "tcp",
        semconv.NETWORK_PROTOCOL_NAME: "http",
        semconv.NETWORK_PROTOCOL_VERSION: "1.1",
        semconv.CLIENT_ADDRESS: "127.0.0.1",
        semconv.CLIENT_PORT: 1,
    }
    assert (request.kind, request.parent_id, request.status) == ("server", "", "unset")
    (run,) = spans.of(semconv.INVOKE_AGENT)
    assert (run.trace_id, run.parent_id) == (request.trace_id, request.span_id)
    assert spans.named("execute_tool add").parent_id == run.span_id


async def test_every_request_keeps_to_the_conventions(
    spans: Spans, telemetry: LocalTelemetry
) -> None:
    async with at_work(telemetry=telemetry) as browser, over_http(browser) as session:
        await session.send_ping()
        await session.list_tools()
        failure_of(await session.call_tool("explode", {}))
    requests = select_requests(spans)
    assert [span.name for span in requests] == ["initialize", "tools/list", "tools/call explode"]
    assert [find_violations(span) for span in requests] == [[], [], []]
    assert find_gaps(requests[-1]) == set()
    assert semconv.OPERATION_NAME not in requests[1].attributes
    assert requests[-1].attributes[semconv.ERROR_TYPE] == "tool_error"
    assert requests[-1].message == ""


@pytest.mark.parametrize(
    "meta",
    [
        {"traceparent": "nonsense"},
        {"traceparent": 7, "tracestate": ["x"]},
        {"traceparent": TRACEPARENT, "tracestate": "x=1\r\nEvil: 1\0"},
    ],
)
async def test_a_call_works_whatever_it_says_of_traces(
    spans: Spans, telemetry: LocalTelemetry, meta: Any
) -> None:
    async with over_memory(runtime_of(telemetry=telemetry)) as session:
        assert text_of(await session.call_tool("add", {"a": 1}, meta=meta)) == "2"
    assert "\n" not in spans.named("tools/call add").state


async def test_behind_pipes_there_is_no_network(spans: Spans, telemetry: LocalTelemetry) -> None:
    async with over_memory(runtime_of(telemetry=telemetry)) as session:
        assert text_of(await session.call_tool("ask_echo", {"message": "Hi"})) == "You said Hi"
    request = spans.named("tools/call ask_echo")
    assert request.attributes == {
        semconv.MCP_METHOD_NAME: "tools/call",
        semconv.OPERATION_NAME: "execute_tool",
        semconv.TOOL_NAME: "ask_echo",
        semconv.MCP_PROTOCOL_VERSION: "2025-11-25",
        semconv.JSONRPC_REQUEST_ID: "2",
        semconv.NETWORK_TRANSPORT: "pipe",
    }
    assert spans.named("invoke_agent echo").parent_id == request.span_id


async def test_what_a_client_does_wrong_is_no_error_of_the_server(
    spans: Spans, telemetry: LocalTelemetry
) -> None:
    async with over_memory(runtime_of(telemetry=telemetry)) as session:
        with pytest.raises(MCPError):
            await session.list_prompts()
    request = spans.named("prompts/list")
    assert request.status == "unset"
    assert request.attributes[semconv.RPC_RESPONSE_STATUS_CODE] == str(METHOD_NOT_FOUND)
    assert find_violations(request) == []


async def test_what_is_no_name_of_a_tool_is_in_no_span(
    spans: Spans, telemetry: LocalTelemetry
) -> None:
    async with over_memory(runtime_of(telemetry=telemetry)) as session:
        failure_of(await session.call_tool("a secret, not a tool", {}))
    request = spans.named("tools/call")
    assert request.attributes[semconv.ERROR_TYPE] == "tool_error"
    assert "secret" not in repr(request.attributes)


@pytest.mark.parametrize("name", ["secret", "ask_secret"])
async def test_a_tool_that_is_none_is_named_other(
    spans: Spans, telemetry: LocalTelemetry, name: str
) -> None:
    async with over_memory(runtime_of(telemetry=telemetry)) as session:
        failure_of(await session.call_tool(name, {"message": "Hi"}))
        failure_of(await session.call_tool("ask_echo", {}))
    request = spans.named("tools/call _OTHER")
    assert request.attributes[semconv.TOOL_NAME] == "_OTHER"
    assert find_violations(request) == []
    assert spans.named("tools/call ask_echo").status == "error"


async def test_a_tool_is_named_other_if_the_tools_cannot_be_listed(
    spans: Spans, telemetry: LocalTelemetry
) -> None:
    def list_agents(caller: Caller) -> Any:
        raise ValueError("The directory of agents is down.")

    async with over_memory(runtime_of(telemetry=telemetry, agents=list_agents)) as session:
        failure_of(await session.call_tool("ask_echo", {"message": "Hi"}))
    assert spans.named("tools/call _OTHER").status == "error"


async def test_a_method_that_cannot_be_one_is_named_other(
    spans: Spans, telemetry: LocalTelemetry
) -> None:
    call = {"jsonrpc": "2.0", "id": "i" * 500, "method": "a secret?", "params": {"name": "add"}}
    async with create_client_server_memory_streams() as (ours, theirs):
        runtime = runtime_of(telemetry=telemetry)
        server = build_server(runtime.program_runs)
        async with anyio.create_task_group() as group:
            group.start_soon(server.run, *theirs, server.create_initialization_options())
            read, write = ours
            await write.send(SessionMessage(JSONRPCRequest.model_validate(call)))
            await read.receive()
            group.cancel_scope.cancel()
        await runtime.aclose()
    (request,) = select_requests(spans)
    assert request.name == "_OTHER"
    assert request.attributes[semconv.JSONRPC_REQUEST_ID] == "i" * 128
    assert "secret" not in repr(request.attributes)


async def test_durations_of_requests_and_sessions_are_measured(telemetry: LocalTelemetry) -> None:
    async with over_memory(runtime_of(telemetry=telemetry)) as session:
        await session.call_tool("add", {"a": 1})
    (duration,) = points_of(telemetry, semconv.MCP_SERVER_SESSION_DURATION)
    assert (duration.count, duration.attributes) == (1, {semconv.NETWORK_TRANSPORT: "pipe"})
    points = points_of(telemetry, semconv.MCP_SERVER_OPERATION_DURATION)
    methods = {point.attributes[semconv.MCP_METHOD_NAME]: point.count for point in points}
    assert (methods["initialize"], methods["tools/call"]) == (1, 1)


async def test_without_telemetry_the_package_traces_as_it_does_elsewhere() -> None:
    async with over_memory(runtime_of(telemetry=NO_TELEMETRY)) as session:
        assert text_of(await session.call_tool("add", {"a": 1})) == "2"
