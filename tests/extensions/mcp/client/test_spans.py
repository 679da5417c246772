"""What spans of calls say of the MCP servers that answer them."""

from typing import Any

import pytest

from copilot_runtime import CopilotRuntime, ScriptedAdapter, Settings
from copilot_runtime.extensions.mcp.client import McpServer, mcp_actions
from copilot_runtime.telemetry import LocalTelemetry, Span, semconv
from copilot_runtime.testing import Client, call, say
from tests.extensions.mcp.client.conftest import Pipes, pipes
from tests.extensions.mcp.client.servers import serve
from tests.extensions.tracing.metrics import points_of
from tests.telemetry.recorded import Spans, find_violations

__all__ = ["pipes"]

pytestmark = pytest.mark.anyio


@pytest.fixture
def spans() -> Spans:
    return Spans()


@pytest.fixture
def telemetry(spans: Spans) -> LocalTelemetry:
    return LocalTelemetry(spans, keeps_content=True)


async def make_call(
    telemetry: LocalTelemetry, server: McpServer, tool: str, arguments: dict[str, Any]
) -> None:
    """Let a model call one tool of a server, and end the server."""
    runtime = CopilotRuntime(
        ScriptedAdapter(call(tool, arguments), say("Done.")),
        actions=mcp_actions(server),
        settings=Settings(threads="memory"),
        telemetry=telemetry,
    )
    async with Client(runtime) as client:
        await client.say("Hi")


def find_call(spans: Spans) -> Span:
    (span,) = spans.of(semconv.EXECUTE_TOOL)
    assert find_violations(span) == []
    return span


async def test_a_call_names_its_session_and_the_version_of_mcp(
    spans: Spans, telemetry: LocalTelemetry
) -> None:
    async with serve() as server:
        await make_call(telemetry, McpServer(server.url), "mcpEcho", {"text": "a"})
        sessions = {headers.get("mcp-session-id") for headers in server.headers}
    span = find_call(spans)
    assert span.attributes[semconv.MCP_SESSION_ID] in sessions
    assert span.attributes[semconv.MCP_PROTOCOL_VERSION] == "2025-11-25"
    assert span.attributes[semconv.MCP_METHOD_NAME] == "tools/call"
    assert semconv.ERROR_TYPE not in span.attributes


async def test_a_call_behind_pipes_has_no_session(
    spans: Spans, telemetry: LocalTelemetry, pipes: Pipes
) -> None:
    await make_call(telemetry, pipes(), "look", {})
    span = find_call(spans)
    assert semconv.MCP_SESSION_ID not in span.attributes
    assert span.attributes[semconv.NETWORK_TRANSPORT] == "pipe"
    (duration,) = points_of(telemetry, semconv.MCP_CLIENT_SESSION_DURATION)
    assert (duration.count, duration.attributes) == (1, {semconv.NETWORK_TRANSPORT: "pipe"})


async def test_a_tool_that_tells_of_a_failure_is_a_tool_error(
    spans: Spans, telemetry: LocalTelemetry
) -> None:
    async with serve() as server:
        await make_call(telemetry, McpServer(server.url), "boom", {})
    span = find_call(spans)
    assert (span.status, span.attributes[semconv.ERROR_TYPE]) == ("error", "tool_error")
    assert "The disk is full." in span.message
    *_, point = points_of(telemetry, semconv.MCP_CLIENT_OPERATION_DURATION)
    assert point.attributes[semconv.ERROR_TYPE] == "tool_error"


async def test_what_a_server_refuses_has_its_code(spans: Spans, telemetry: LocalTelemetry) -> None:
    async with serve() as server:
        options = McpServer(server.url, name="box", resources=["*"])
        await make_call(telemetry, options, "box_read_resource", {"uri": "notes://none"})
    span = find_call(spans)
    code = span.attributes[semconv.RPC_RESPONSE_STATUS_CODE]
    assert (span.status, span.attributes[semconv.ERROR_TYPE]) == ("error", code)
    assert int(code) < 0


@pytest.mark.parametrize(
    ("tool", "arguments", "method"),
    [
        ("box_list_resources", {}, "resources/list"),
        ("box_read_resource", {"uri": "notes://today"}, "resources/read"),
        ("box_list_prompts", {}, "prompts/list"),
        ("box_get_prompt", {"name": "greet", "arguments": {"who": "Ann"}}, "prompts/get"),
    ],
)
async def test_resources_and_prompts_are_distinguished_by_their_methods(
    spans: Spans, telemetry: LocalTelemetry, tool: str, arguments: dict[str, Any], method: str
) -> None:
    async with serve() as server:
        options = McpServer(server.url, name="box", resources=["*"], prompts=["*"])
        await make_call(telemetry, options, tool, arguments)
    span = find_call(spans)
    assert span.attributes[semconv.MCP_METHOD_NAME] == method
    assert span.status == "unset"
    assert span.content.get(semconv.MCP_RESOURCE_URI) == arguments.get("uri")
    assert span.attributes.get(semconv.PROMPT_NAME) == arguments.get("name")


async def test_a_run_that_waits_for_a_server_says_for_what_and_the_next_one_does_not_wait(
    spans: Spans, telemetry: LocalTelemetry
) -> None:
    async with serve() as server:
        runtime = CopilotRuntime(
            ScriptedAdapter(say("Hi"), say("Hi again")),
            actions=mcp_actions(McpServer(server.url)),
            settings=Settings(threads="memory"),
            telemetry=telemetry,
        )
        async with Client(runtime) as client:
            await client.say("Hi")
            await client.say("Hi")
    first, second = spans.of(semconv.INVOKE_AGENT)
    asked = [span for span in spans.spans if semconv.MCP_METHOD_NAME in span.attributes]
    assert [(span.name, span.kind) for span in asked] == [
        ("initialize", "client"),
        ("tools/list", "client"),
    ]
    assert {(span.trace_id, span.parent_id) for span in asked} == {(first.trace_id, first.span_id)}
    assert second.trace_id != first.trace_id
    assert [find_violations(span) for span in asked] == [[], []]
    assert asked[1].attributes[semconv.MCP_PROTOCOL_VERSION] == "2025-11-25"
    counted = points_of(telemetry, semconv.MCP_CLIENT_OPERATION_DURATION)
    methods = [point.attributes[semconv.MCP_METHOD_NAME] for point in counted]
    assert methods == ["initialize", "tools/list"]


async def test_a_server_that_is_left_out_of_a_run_has_a_span_that_failed(
    spans: Spans, telemetry: LocalTelemetry
) -> None:
    async with serve() as server:
        server.refuse = 500
        runtime = CopilotRuntime(
            ScriptedAdapter(say("Hi")),
            actions=mcp_actions(McpServer(server.url)),
            settings=Settings(threads="memory"),
            telemetry=telemetry,
        )
        async with Client(runtime) as client:
            await client.say("Hi")
    (asked,) = [span for span in spans.spans if semconv.MCP_METHOD_NAME in span.attributes]
    assert (asked.name, asked.status) == ("initialize", "error")
    assert asked.attributes[semconv.ERROR_TYPE] == "NETWORK_ERROR"
    (run,) = spans.of(semconv.INVOKE_AGENT)
    assert run.status == "unset"
