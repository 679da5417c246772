"""Frameworks in this process that trace by OpenTelemetry: their spans come under ours."""

import json
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver

# langgraph has types, but says so in none of its folders
from langgraph.graph import MessagesState, StateGraph  # pyright: ignore[reportMissingTypeStubs]
from opentelemetry import trace
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

from copilot_runtime import CopilotRuntime, Settings
from copilot_runtime.extensions.frameworks.langgraph.inprocess import LangGraphInProcessAgent
from copilot_runtime.extensions.frameworks.pydantic_ai import PydanticAIAgent
from copilot_runtime.extensions.tracing.build import build_telemetry
from copilot_runtime.extensions.tracing.options import TelemetryOptions
from copilot_runtime.extensions.tracing.store.store import TraceStore
from copilot_runtime.runtime import Runtime
from copilot_runtime.telemetry import LocalTelemetry, semconv
from copilot_runtime.testing import Client, say
from copilot_runtime.threads.run_log import MemoryBus
from tests.extensions.tracing.otel.receivers import Inbox, serve_http
from tests.runs import runtime_of
from tests.telemetry.test_spans import run

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("no_provider")]

CANARY = "canary-51d0"


async def trace_agent(
    agent: Any, content: Any = "none", *, name: str | None = None
) -> tuple[list[Any], Inbox]:
    """Run an agent with a provider of ours, and return the records of its trace, and the export."""
    with serve_http() as inbox:
        telemetry = build_telemetry(
            TelemetryOptions(endpoint=inbox.url, signals=("traces",), bridge=True, content=content)
        )
        await telemetry.open()
        if name is None:
            await run(Runtime(agent, {}, MemoryBus(), telemetry=telemetry))
        else:
            settings = Settings(threads="memory")
            runtime = CopilotRuntime(agents={name: agent}, telemetry=telemetry, settings=settings)
            async with Client(runtime, agent=name) as client:
                await client.say("Hi")
        assert isinstance(telemetry, LocalTelemetry)
        assert isinstance(telemetry.store, TraceStore)
        (summary,) = await telemetry.store.list_traces()
        records = await telemetry.store.get_trace(summary.trace_id)
        await telemetry.aclose()
    return [*records], inbox


def is_below(records: list[Any], name: str, above: str) -> bool:
    """Return whether a span is somewhere below another one."""
    by_id = {record["span_id"]: record for record in records}
    record = next(record for record in records if record["name"] == name)
    while record is not None and record["name"] != above:
        record = by_id.get(record["parent_span_id"])
    return record is not None


def agent_of_pydantic_ai() -> PydanticAIAgent:
    agent = Agent(TestModel(custom_output_text=CANARY), name="clerk")
    agent.instrument = True

    @agent.tool_plain
    def look_up() -> str:
        """Look something up."""
        return CANARY

    return PydanticAIAgent(agent)


async def test_spans_of_pydantic_ai_are_below_our_run() -> None:
    records, inbox = await trace_agent(agent_of_pydantic_ai())
    names = [record["name"] for record in records if record.get("scope")]
    assert len(names) >= 3
    assert all(is_below(records, name, "invoke_agent default") for name in names)
    assert {record["trace_id"] for record in records} == {records[0]["trace_id"]}
    assert {record["name"] for record in records} == {span.name for span in inbox.spans}


@pytest.mark.parametrize("name", [None, "clerk"])
async def test_a_tool_that_a_framework_traces_has_one_span(name: str | None) -> None:
    records, inbox = await trace_agent(agent_of_pydantic_ai(), name=name)
    tools = [record for record in records if record["name"] == "execute_tool look_up"]
    assert [record["scope"] for record in tools] == [{"name": "pydantic-ai"}]
    assert [span.name for span in inbox.spans].count("execute_tool look_up") == 1


async def test_a_tool_that_no_framework_traces_has_a_span_of_ours() -> None:
    agent = agent_of_pydantic_ai()
    agent.agent.instrument = False  # type: ignore[attr-defined]
    records, _ = await trace_agent(agent, name="clerk")
    (tool,) = [record for record in records if record["name"] == "execute_tool look_up"]
    assert tool["attributes"][semconv.SPAN_SOURCE] == "events"


async def test_what_pydantic_ai_writes_on_its_spans_is_not_exported() -> None:
    records, inbox = await trace_agent(agent_of_pydantic_ai(), content="local")
    assert CANARY in json.dumps(records)
    assert CANARY.encode() not in inbox.body
    records, inbox = await trace_agent(agent_of_pydantic_ai())
    assert CANARY not in json.dumps([record for record in records if record.get("scope")])


async def test_a_node_of_langgraph_that_traces_is_below_our_run() -> None:
    def answer(state: MessagesState) -> dict[str, Any]:
        del state
        with trace.get_tracer("node").start_as_current_span("answer it"):
            return {"messages": [AIMessage(CANARY)]}

    graph: Any = StateGraph(MessagesState)
    graph.add_node("answer", answer)
    graph.set_entry_point("answer")
    records, _ = await trace_agent(
        LangGraphInProcessAgent(graph.compile(checkpointer=InMemorySaver()))
    )
    assert is_below(records, "answer it", "invoke_agent default")


async def test_a_request_of_a_web_server_is_kept_around_a_run_alone() -> None:
    telemetry = build_telemetry(TelemetryOptions(bridge=True))
    await telemetry.open()
    tracer = trace.get_tracer("web")
    with tracer.start_as_current_span("GET /metrics"), tracer.start_as_current_span("connect"):
        pass
    with tracer.start_as_current_span("POST /graphql"):
        await run(runtime_of(say("Hi"), telemetry=telemetry))
    assert isinstance(telemetry, LocalTelemetry)
    assert isinstance(telemetry.store, TraceStore)
    (summary,) = await telemetry.store.list_traces()
    records = await telemetry.store.get_trace(summary.trace_id)
    await telemetry.aclose()
    assert (summary.agent, summary.name) == ("default", "invoke_agent default")
    assert (summary.outcome, summary.thread_id) == ("finished", "t")
    assert is_below(records, "chat", "POST /graphql")


@pytest.mark.parametrize("attribute", ["gen_ai.request.model", "openinference.span.kind"])
async def test_what_tells_of_models_is_kept_without_a_run(attribute: str) -> None:
    telemetry = build_telemetry(TelemetryOptions(bridge=True))
    await telemetry.open()
    with trace.get_tracer("job").start_as_current_span("nightly", attributes={attribute: "LLM"}):
        pass
    assert isinstance(telemetry, LocalTelemetry)
    assert isinstance(telemetry.store, TraceStore)
    (summary,) = await telemetry.store.list_traces()
    await telemetry.aclose()
    assert summary.name == "nightly"
