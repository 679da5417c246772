"""Frameworks in this process that trace by OpenTelemetry: their spans come under ours."""

import json
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver

# langgraph has types, but says so in none of its folders
from langgraph.graph import MessagesState, StateGraph  # pyright: ignore[reportMissingTypeStubs]
from opentelemetry import trace
from opentelemetry.util._once import Once
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

from copilot_runtime.agents.langgraph.inprocess import LangGraphInProcessAgent
from copilot_runtime.agents.pydantic_ai import PydanticAIAgent
from copilot_runtime.bus.memory import MemoryBus
from copilot_runtime.runtime import Runtime
from copilot_runtime.telemetry import LocalTelemetry
from copilot_runtime.telemetry.build import TelemetryOptions, build_telemetry
from copilot_runtime.telemetry.store.store import TraceStore
from tests.telemetry.otel.receivers import Inbox, serve_http
from tests.telemetry.test_spans import run

pytestmark = pytest.mark.anyio

CANARY = "canary-51d0"


@pytest.fixture(autouse=True)
def _no_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the process have no provider, as when it starts."""
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER_SET_ONCE", Once())


async def trace_agent(agent: Any, content: Any = "none") -> tuple[list[Any], Inbox]:
    """Run an agent with a provider of ours, and return the records of its trace, and the export."""
    with serve_http() as inbox:
        telemetry = build_telemetry(
            TelemetryOptions(endpoint=inbox.url, signals=("traces",), bridge=True, content=content)
        )
        await telemetry.open()
        await run(Runtime(agent, {}, MemoryBus(), telemetry=telemetry))
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
