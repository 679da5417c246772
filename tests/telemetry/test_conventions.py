"""Spans, names and pages are those of the conventions."""

import ast
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import MessagesState, StateGraph  # pyright: ignore[reportMissingTypeStubs]

from copilot_runtime import CopilotRuntime, Settings, action
from copilot_runtime.adapters.openai import OpenAIAdapter
from copilot_runtime.adapters.scripted import ScriptedAdapter
from copilot_runtime.agents.direct import DirectAgent
from copilot_runtime.api import Parameters
from copilot_runtime.api.events import Event, TextMessageContent, TextMessageEnd, TextMessageStart
from copilot_runtime.extensions.frameworks.langgraph.inprocess import LangGraphInProcessAgent
from copilot_runtime.runtime import Runtime
from copilot_runtime.runtime.prepare import HandoffPolicy
from copilot_runtime.telemetry import LocalTelemetry, Span, semconv
from copilot_runtime.testing import Client
from copilot_runtime.testing.client import Protocol
from copilot_runtime.threads.run_log import MemoryBus
from tests.adapters.provider import saying, serving, text, tool, tools
from tests.documents import DOCS
from tests.in_one_test import in_one_test
from tests.sources import PACKAGE, read_nodes
from tests.telemetry.recorded import Spans, find_gaps, find_violations, run
from tests.telemetry.span_conventions import CONVENTIONS

pytestmark = pytest.mark.anyio

TABLES = (
    "telemetry/semconv.py",
    "extensions/tracing/dialects.py",
    "extensions/tracing/store/records.py",
)
"""Where names may be written: ours, and the tables of those of other programs."""


@action
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@action
def name_city(country: str) -> str:
    """Name a city."""
    return f"the capital of {country}"


def build_graph() -> Any:
    def answer(state: MessagesState) -> Any:
        return {"messages": [("assistant", "It rains.")]}

    graph: Any = StateGraph(MessagesState)
    graph.add_node("answer", answer)
    graph.set_entry_point("answer")
    graph.set_finish_point("answer")
    return graph.compile(checkpointer=InMemorySaver())


USAGE = {
    "prompt_tokens": 20,
    "completion_tokens": 5,
    "prompt_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 2},
    "completion_tokens_details": {"reasoning_tokens": 1},
}


@pytest.mark.anyio
async def test_a_chat_with_two_tools_and_an_agent_of_langgraph_is_one_tree() -> None:
    calls = [
        tool('{"a": 1, "b": 2}', index=0, id="c1", name="add"),
        tool('{"country": "Norway"}', index=1, id="c2", name="name_city"),
    ]
    spans = Spans()
    async with serving() as provider:
        provider.answer(
            saying(tools(*calls), text("", usage=USAGE), reason="tool_calls"),
            saying(tools(tool("{}", id="c3", name="weather")), reason="tool_calls"),
        )
        adapter = OpenAIAdapter("gpt-4o", base_url=f"{provider.url}/v1", api_key="k")
        weather = LangGraphInProcessAgent(build_graph(), description="Knows the weather.")
        runtime = Runtime(
            DirectAgent(adapter),
            {"weather": weather},
            MemoryBus(),
            sources=[[add, name_city]],
            handoff=HandoffPolicy(hand_over="always"),
            telemetry=LocalTelemetry(spans, keeps_content=True),
        )
        wishes = Parameters(
            temperature=0.5,
            max_tokens=100,
            top_p=0.9,
            frequency_penalty=0.1,
            presence_penalty=0.1,
            stop=["."],
        )
        await run(runtime, parameters=wishes)
        await adapter.aclose()
    own = [span for span in spans.spans if span.scope == semconv.SCOPE]
    assert draw(own) == {
        "invoke_agent default": {
            "chat gpt-4o": {},
            "execute_tool add": {},
            "execute_tool name_city": {},
            "execute_tool weather": {"invoke_agent weather": {}},
        }
    }
    assert {span.name: find_violations(span) for span in own if find_violations(span)} == {}
    calls_made = [span.attributes[semconv.TOOL_CALL_ID] for span in spans.of(semconv.EXECUTE_TOOL)]
    assert sorted(calls_made) == ["c1", "c2", "c3"]
    first = spans.of(semconv.CHAT)[0]
    assert find_gaps(first) == {
        semconv.REQUEST_REASONING_LEVEL,
        semconv.REQUEST_PREVIOUS_RESPONSE_ID,
        semconv.CONVERSATION_COMPACTED,
    }
    root = spans.named("invoke_agent default")
    sampling = {name for name in find_gaps(root) if name.startswith("gen_ai.request.")}
    assert find_gaps(root) == sampling  # which may differ from one request to the next
    assert root.content[semconv.INPUT_MESSAGES][0]["parts"][0]["content"] == "Hi"
    assert root.content[semconv.OUTPUT_MESSAGES][-1]["parts"][-1]["content"] == "It rains."


def draw(spans: list[Span]) -> dict[str, Any]:
    """Return the tree of spans by their names; those of one name are one."""
    nodes: dict[str, dict[str, Any]] = {span.span_id: {} for span in spans}
    roots: dict[str, Any] = {}
    for span in sorted(spans, key=lambda span: span.start_time):
        (nodes[span.parent_id] if span.parent_id else roots)[span.name] = nodes[span.span_id]
    return roots


def test_a_span_that_is_wrong_is_told_apart() -> None:
    span = LocalTelemetry(keeps_content=True).start_span(
        "chat m",
        kind="server",
        attributes={
            semconv.OPERATION_NAME: "chat",
            semconv.REQUEST_MODEL: "n",
            semconv.REQUEST_SEED: 1.5,
            semconv.TOOL_NAME: "t",
        },
    )
    assert find_violations(span) == [
        "gen_ai.provider.name is missing",
        "the name is 'chat m', not 'chat n'",
        "the kind is 'server', not one of ('client', 'internal')",
        "gen_ai.request.seed is 1.5, and no int",
        "gen_ai.tool.name does not belong there",
    ]


def test_every_operation_is_decided_and_has_a_convention() -> None:
    conventions = {operation for one in CONVENTIONS for operation in one.operations}
    assert conventions == semconv.EXPORTED_OPERATIONS.keys()


def test_every_attribute_of_a_convention_is_defined() -> None:
    for one in CONVENTIONS:
        names = [*one.required, *one.conditional, *one.recommended, *one.opt_in]
        assert set(names) <= semconv.ATTRIBUTES.keys()
        assert all(semconv.is_content(name) for name in one.opt_in)


def test_what_is_said_to_be_written_is_written_somewhere() -> None:
    definitions = Path(semconv.__file__)
    used = {
        node.attr
        for path, nodes in read_nodes().items()
        if path != definitions
        for node in nodes
        if isinstance(node, ast.Attribute)
    }
    unused = {
        value
        for name, value in vars(semconv).items()
        if isinstance(value, str) and value in semconv.ATTRIBUTES and name not in used
    }
    foreign = {one.name for one in semconv.ATTRIBUTES.values() if one.is_foreign}

    assert unused == foreign


def test_names_of_attributes_are_written_in_one_place() -> None:
    names = {*semconv.ATTRIBUTES, *semconv.METRICS}
    literals = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}: {node.value}"
        for path, nodes in read_nodes().items()
        if path.relative_to(PACKAGE).as_posix() not in TABLES
        for node in nodes
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and (node.value in names or node.value.startswith("gen_ai."))
    ]
    assert literals == []


def test_the_reference_has_every_name() -> None:
    page = (DOCS / "telemetry" / "reference.md").read_text(encoding="utf-8")
    events = [value for name, value in vars(semconv).items() if name.startswith("EVENT_")]
    names = [*semconv.ATTRIBUTES, *semconv.METRICS, *events, *semconv.EXPORTED_OPERATIONS]
    assert [name for name in names if f"`{name}`" not in page] == []


MANY = 400


def answer(chunks: int) -> list[Event]:
    texts = [TextMessageContent(message_id="m", content="word ") for _ in range(chunks)]
    return [TextMessageStart(message_id="m"), *texts, TextMessageEnd(message_id="m")]


@in_one_test("protocol", ["agui", "graphql"])
async def test_no_code_of_telemetry_runs_for_a_chunk(protocol: Protocol) -> None:
    adapter = ScriptedAdapter(answer(1), answer(1), answer(MANY))
    runtime = CopilotRuntime(adapter, settings=Settings(threads="memory"))
    async with Client(runtime, protocol=protocol) as client:
        await client.say("What is made once, is made now.")
        short = await count_calls(client, 1)
        long = await count_calls(client, MANY)
    assert short["start_chat_span"] == long["start_chat_span"] == 1  # it is on
    # but those of writes to the store, which are few
    assert (long - short).total() < MANY // 10, long - short


async def count_calls(client: Client, chunks: int) -> Counter[str]:
    """Count the calls of functions of telemetry, by their names, in one chat."""
    calls = Counter[str]()

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and "/copilot_runtime/telemetry/" in code.co_filename:
            calls[code.co_name] += 1

    sys.setprofile(note)
    try:
        reply = await client.say("Hi")
    finally:
        sys.setprofile(None)
    assert reply.text == "word " * chunks
    return calls
