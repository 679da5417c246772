"""One trace through several processes: whoever asks names its span, and so do we."""

import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

# langgraph has types, but says so in none of its folders
from langgraph.graph import MessagesState, StateGraph  # pyright: ignore[reportMissingTypeStubs]
from opentelemetry.trace import NoOpTracer
from websockets.asyncio.client import connect
from websockets.typing import Subprotocol

from copilot_runtime import AguiAgent, CopilotRuntime, Settings, action
from copilot_runtime.adapters.scripted import ScriptedAdapter, call, say
from copilot_runtime.extensions.frameworks.langgraph.inprocess import LangGraphInProcessAgent
from copilot_runtime.extensions.mcp.client import McpServer, mcp_actions
from copilot_runtime.telemetry import LocalTelemetry, Span, find_current_span, semconv
from copilot_runtime.testing import Client
from copilot_runtime.testing.client import Protocol
from tests.adapters import provider as upstream
from tests.adapters.provider import Provider
from tests.agents.remote import asked, heard, text, whole_run
from tests.extensions.mcp.client.servers import serve
from tests.extensions.mcp.server.clients import over_http, text_of
from tests.in_one_test import in_one_test
from tests.telemetry import environment_server
from tests.telemetry.recorded import Spans
from tests.telemetry.test_spans import PARENT
from tests.transports.served import Echo
from tests.wire.client import data
from tests.wire_agui.http import Browser, run_input
from tests.wire_agui.server import PATH, serving

pytestmark = pytest.mark.anyio

TRACE, SPAN = PARENT.split("-")[1:3]
HEADERS = {"traceparent": PARENT, "tracestate": "vendor=1"}
SUBSCRIPTION = """
subscription ($data: GenerateCopilotResponseInput) {
  generateCopilotResponse(data: $data) { ended }
}
"""


@action
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def build(spans: Spans, *turns: Any, **more: Any) -> CopilotRuntime:
    settings = Settings(threads="memory", serve_remote=True, serve_mcp=True)
    return CopilotRuntime(
        ScriptedAdapter(*(turns or (say("Hello."),))),
        telemetry=LocalTelemetry(spans),
        settings=settings,
        **more,
    )


@asynccontextmanager
async def served(spans: Spans, *turns: Any, **more: Any) -> AsyncGenerator[Browser]:
    async with serving(build(spans, *turns, **more).app(path=PATH)) as port:
        yield Browser(port, headers={"accept": "text/event-stream"})


@pytest.fixture(autouse=True)
def no_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the package `mcp` from tracing by a provider that another test has left behind."""
    monkeypatch.setattr("mcp.shared._otel._tracer", NoOpTracer())


@pytest.fixture
def spans() -> Spans:
    return Spans()


@pytest.fixture
async def provider(anyio_backend: str) -> AsyncGenerator[Provider]:
    del anyio_backend
    async with upstream.serving() as provider:
        yield provider


def parents(spans: Spans) -> set[tuple[str, str]]:
    """Return the trace and the parent of each run."""
    runs = [span for span in spans.spans if span.operation == semconv.INVOKE_AGENT]
    return {(span.trace_id, span.parent_id) for span in runs}


@in_one_test("protocol", ["agui", "graphql"])
async def test_a_page_names_the_span_under_which_it_asks(protocol: Protocol, spans: Spans) -> None:
    async with Client(build(spans), protocol=protocol, headers=HEADERS) as client:
        await client.say("Hi")
    assert parents(spans) == {(TRACE, SPAN)}


@pytest.mark.parametrize("header", ["", "nonsense", PARENT[:-1], "00-" + "0" * 32 + PARENT[35:]])
async def test_a_header_that_names_no_span_is_no_error(header: str, spans: Spans) -> None:
    async with served(spans) as browser:
        headers = {"traceparent": header, "tracestate": "ü" * 600}
        answer = await browser.ask("POST", "/agent/default/run", run_input(), headers)
    assert answer.types()[-1] == "RUN_FINISHED"
    assert [parent for _, parent in parents(spans)] == [""]


async def test_a_websocket_names_it_when_it_is_opened(spans: Spans) -> None:
    async with served(spans) as browser:
        url = f"ws://127.0.0.1:{browser.where}{PATH}"
        protocols = [Subprotocol("graphql-transport-ws")]
        async with connect(url, subprotocols=protocols, additional_headers=HEADERS) as socket:
            await socket.send('{"type": "connection_init"}')
            payload = {"query": SUBSCRIPTION, "variables": {"data": data()}}
            await socket.send(json.dumps({"id": "1", "type": "subscribe", "payload": payload}))
            while json.loads(await socket.recv())["type"] != "complete":
                pass
    assert parents(spans) == {(TRACE, SPAN)}


async def test_a_node_runtime_names_it_for_an_action_and_an_agent(spans: Spans) -> None:
    async with served(spans, actions=[add], agents={"echo": Echo()}) as browser:
        body = {"name": "add", "arguments": {"a": 1, "b": 2}, "properties": {}}
        await browser.ask("POST", "/actions/execute", body, HEADERS)
        body = {"name": "echo", "threadId": "t", "state": {}, "actions": [], "messages": []}
        question = {"id": "1", "type": "TextMessage", "role": "user", "content": "Hi"}
        await browser.ask("POST", "/agents/execute", {**body, "messages": [question]}, HEADERS)
    assert parents(spans) == {(TRACE, SPAN)}
    assert spans.named("execute_tool add").trace_id == TRACE


@pytest.mark.parametrize("in_message", [False, True])
async def test_an_mcp_client_names_it_in_a_header_or_in_a_message(
    in_message: bool, spans: Spans
) -> None:
    meta: Any = HEADERS if in_message else None
    async with (
        served(spans, actions=[add]) as browser,
        over_http(browser, {} if in_message else HEADERS) as session,
    ):
        assert text_of(await session.call_tool("add", {"a": 1, "b": 2}, meta=meta)) == "3"
    request = spans.named("tools/call add")
    assert (request.trace_id, request.parent_id) == (TRACE, SPAN)
    assert parents(spans) == {(TRACE, request.span_id)}


async def test_an_agent_of_ag_ui_is_asked_under_the_span_of_its_run(spans: Spans) -> None:
    there = Spans()
    async with served(there) as elsewhere:
        url = f"http://127.0.0.1:{elsewhere.where}{PATH}/agent/default/run"
        async with Client(build(spans, agents={"far": AguiAgent(url)}), agent="far") as client:
            assert (await client.say("Hi")).text == "Hello."
    ours = spans.named("invoke_agent far")
    assert parents(there) == {(ours.trace_id, ours.span_id)}
    assert ours.kind == "client"
    assert ours.attributes[semconv.PROVIDER_NAME] == "ag_ui"
    assert ours.attributes[semconv.SERVER_ADDRESS] == "127.0.0.1"
    assert ours.attributes[semconv.SERVER_PORT] == elsewhere.where


async def test_an_agent_that_a_chat_hands_over_to_is_asked_under_its_own_span(
    spans: Spans,
) -> None:
    there = Spans()
    async with served(there) as elsewhere:
        url = f"http://127.0.0.1:{elsewhere.where}{PATH}/agent/default/run"
        runtime = build(spans, call("far", {}), agents={"far": AguiAgent(url)})
        async with Client(runtime, protocol="graphql") as client:
            await client.say("Hi")
    chat, far = spans.named("invoke_agent default"), spans.named("invoke_agent far")
    called = spans.named("execute_tool far")
    assert (called.parent_id, far.parent_id) == (chat.span_id, called.span_id)
    assert (far.kind, chat.kind) == ("client", "internal")
    assert far.attributes[semconv.PROVIDER_NAME] == "ag_ui"
    assert parents(there) == {(chat.trace_id, far.span_id)}


async def test_a_remote_endpoint_is_asked_under_the_span_of_the_call_or_the_agent(
    spans: Spans,
) -> None:
    there = Spans()
    async with served(there, actions=[add], agents={"echo": Echo()}) as elsewhere:
        url = f"http://127.0.0.1:{elsewhere.where}{PATH}"
        runtime = build(spans, call("add", {"a": 1, "b": 2}), say("3"), remote_endpoints=[url])
        async with Client(runtime) as client:
            assert (await client.say("Hi")).text == "3"
            client.agent = "echo"
            assert (await client.say("Hi")).text == "You said Hi"
    tool, echo = spans.named("execute_tool add"), spans.named("invoke_agent echo")
    assert parents(there) == {(tool.trace_id, tool.span_id), (echo.trace_id, echo.span_id)}
    assert (echo.kind, echo.attributes[semconv.SERVER_PORT]) == ("client", elsewhere.where)
    assert echo.attributes[semconv.PROVIDER_NAME] == "copilotkit"


async def test_a_state_that_came_along_is_passed_on(spans: Spans, provider: Provider) -> None:
    provider.answer(whole_run(*text("m", "Hi")))
    runtime = build(spans, agents={"far": AguiAgent(f"{provider.url}/agent")})
    async with Client(runtime, agent="far", headers=HEADERS) as client:
        await client.say("Hi")
    [request] = provider.requests
    assert request.headers["traceparent"].startswith(f"00-{TRACE}-")
    assert request.headers["tracestate"] == "vendor=1"


async def test_nothing_is_sent_where_nobody_takes_note(provider: Provider) -> None:
    provider.answer(whole_run(*text("m", "Hi")))
    await heard(AguiAgent(f"{provider.url}/agent"), asked())
    [request] = provider.requests
    assert "traceparent" not in request.headers


async def test_a_header_of_the_operator_counts_more(spans: Spans, provider: Provider) -> None:
    provider.answer(whole_run(*text("m", "Hi")))
    agent = AguiAgent(f"{provider.url}/agent", headers={"traceparent": PARENT})
    async with Client(build(spans, agents={"far": agent}), agent="far") as client:
        await client.say("Hi")
    assert provider.requests[0].headers["traceparent"] == PARENT


async def test_an_mcp_server_gets_it_in_a_header_and_in_the_message(spans: Spans) -> None:
    async with serve() as elsewhere:
        turns = [call("mcpEcho", {"text": "a"}), call("mcpEcho", {"text": "b"}), say("Done.")]
        runtime = build(spans, *turns, actions=[mcp_actions(McpServer(elsewhere.url))])
        async with Client(runtime) as client:
            await client.say("Hi")
    calls = [span for span in spans.spans if span.operation == semconv.EXECUTE_TOOL]
    requests = zip(elsewhere.methods, elsewhere.headers, strict=True)
    sent = [headers["traceparent"] for method, headers in requests if method == "tools/call"]
    assert sent == [span.context.traceparent for span in calls]
    assert len(sent) == 2


async def test_a_process_gets_it_in_its_environment_and_in_each_message(spans: Spans) -> None:
    server = McpServer(command=[sys.executable, environment_server.__file__])
    turns = [call("look", {}, id="one"), call("look", {}, id="two"), say("Done.")]
    runtime = build(spans, *turns, actions=[mcp_actions(server)])
    runtime.telemetry.child_environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}
    async with Client(runtime, headers=HEADERS) as client:
        reply = await client.say("Hi")
    calls = [span for span in spans.spans if span.operation == semconv.EXECUTE_TOOL]
    first, second = [json.loads(one.result or "") for one in reply.tool_calls]
    assert first["variables"] == second["variables"]  # one process for both
    assert first["variables"]["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://127.0.0.1:4318"
    assert first["variables"]["TRACEPARENT"].startswith(f"00-{TRACE}-")
    assert first["variables"]["TRACESTATE"] == "vendor=1"
    found = [one["meta"]["traceparent"] for one in (first, second)]
    assert found == [span.context.traceparent for span in calls]


@pytest.mark.parametrize("protocol", ["agui", "graphql"])
async def test_a_graph_in_this_process_works_under_the_span_of_its_agent(
    protocol: Protocol, spans: Spans
) -> None:
    found: list[Span] = []

    async def node(state: MessagesState) -> MessagesState:
        found.append(find_current_span())
        return {"messages": []}

    graph = StateGraph(MessagesState).add_node("node", node)
    graph.set_entry_point("node")
    agent = LangGraphInProcessAgent(graph.compile(checkpointer=InMemorySaver()))
    runtime = build(spans, call("near", {}), say("Done."), agents={"near": agent})
    name = "near" if protocol == "agui" else None  # else the chat hands over to it
    async with Client(runtime, protocol=protocol, agent=name) as client:
        await client.say("Hi")
    assert [span.name for span in found] == ["invoke_agent near"]
    assert found == [spans.named("invoke_agent near")]


async def test_an_agent_with_an_address_that_is_none_is_traced_without_it(spans: Spans) -> None:
    class Odd(Echo):
        url: Any = 5
        provider: Any = object()

    async with Client(build(spans, agents={"odd": Odd()}), agent="odd") as client:
        await client.say("Hi")
    of = spans.named("invoke_agent odd").attributes
    assert semconv.SERVER_ADDRESS not in of
    assert of[semconv.PROVIDER_NAME] == "_OTHER"
