"""An agent of OpenAI's Agents SDK is traced here, without the SDK's own traces."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import agents.tracing
import pytest
from agents import Agent, function_tool
from openai import OpenAIError
from openai.types.responses import ResponseOutputRefusal

from copilot_runtime import CopilotRuntime, Settings
from copilot_runtime.agents.direct import DirectAgent
from copilot_runtime.api import Action
from copilot_runtime.api.events import TextMessageContent
from copilot_runtime.extensions.frameworks.openai_agents import OpenAIAgentsAgent
from copilot_runtime.extensions.frameworks.openai_agents.tracing import render_items
from copilot_runtime.runtime import Runtime
from copilot_runtime.runtime.prepare import HandoffPolicy
from copilot_runtime.telemetry import LocalTelemetry, semconv
from copilot_runtime.testing import Client, ScriptedAdapter, say
from copilot_runtime.testing import call as calling
from copilot_runtime.testing.protocols import ReplyFailed
from copilot_runtime.threads.run_log import MemoryBus
from tests.extensions.frameworks.sdk_model import Output, Play, PlayingModel, call, text
from tests.runs import run_input
from tests.telemetry.recorded import Spans, run

pytestmark = pytest.mark.anyio


@function_tool
def look_up(what: str) -> str:
    """Look something up."""
    if what == "nothing":
        raise ValueError("There is nothing.")
    return f"{what} is blue"


def answer(heard: list[Any]) -> Sequence[Output]:
    """Call the tool, and say what it returned."""
    is_known = any("blue" in str(item.get("output")) for item in heard)
    return [text("It is blue.")] if is_known else [call("look_up", '{"what": "the sky"}', id="c1")]


def agent_of(play: Play, **options: Any) -> Agent[Any]:
    return Agent(name="Desk", model=PlayingModel(play), instructions="Be short.", **options)


async def trace(
    agent: Agent[Any], *, keeps_content: bool = False, tools: Sequence[Action] = ()
) -> Spans:
    """Return the spans of a run of an agent that is called `desk`."""
    spans = Spans()
    telemetry = LocalTelemetry(spans, keeps_content=keeps_content)
    settings = Settings(threads="memory")
    runtime = CopilotRuntime(agents={"desk": agent}, telemetry=telemetry, settings=settings)
    async with Client(runtime, agent="desk", tools=tools) as client:
        with suppress(ReplyFailed):
            await client.say("Hi")
    return spans


async def test_requests_and_tools_are_below_the_run() -> None:
    spans = await trace(agent_of(answer, tools=[look_up]))
    root = spans.named("invoke_agent desk")
    assert [span.name for span in spans.spans] == [
        "chat",
        "execute_tool look_up",
        "chat",
        "agent_step Desk",
        "invoke_agent desk",
    ]
    assert {span.parent_id for span in spans.spans} == {"", root.span_id}
    tool = spans.named("execute_tool look_up")
    assert tool.attributes[semconv.TOOL_CALL_ID] == "c1"
    assert tool.attributes[semconv.TOOL_DESCRIPTION] == "Look something up."
    first, second = spans.of(semconv.CHAT)
    assert first.attributes[semconv.USAGE_INPUT_TOKENS] == 5
    assert first.attributes[semconv.RESPONSE_FINISH_REASONS] == ["tool_calls"]
    assert second.attributes[semconv.RESPONSE_FINISH_REASONS] == ["stop"]
    assert all(
        0 <= it.attributes[semconv.RESPONSE_TIME_TO_FIRST_CHUNK] < 60 for it in (first, second)
    )
    expected = {
        semconv.USAGE_INPUT_TOKENS: 10,
        semconv.USAGE_OUTPUT_TOKENS: 6,
        semconv.RUN_TURNS: 2,
        semconv.RUN_TOOL_CALLS: 1,
    }
    assert {name: root.attributes[name] for name in expected} == expected
    assert all(span.content == {} for span in spans.spans)


async def test_what_was_said_is_kept_where_content_is() -> None:
    spans = await trace(agent_of(answer, tools=[look_up]), keeps_content=True)
    first, second = spans.of(semconv.CHAT)
    said = {"type": "tool_call", "id": "c1", "name": "look_up", "arguments": {"what": "the sky"}}
    (instructions,) = first.content[semconv.SYSTEM_INSTRUCTIONS]
    assert instructions == {"type": "text", "content": "Be short."}
    assert first.content[semconv.INPUT_MESSAGES] == [
        {"role": "user", "parts": [{"type": "text", "content": "Hi"}]}
    ]
    assert first.content[semconv.OUTPUT_MESSAGES] == [{"role": "assistant", "parts": [said]}]
    result = {"type": "tool_call_response", "id": "c1", "response": "the sky is blue"}
    assert second.content[semconv.INPUT_MESSAGES][-1] == {"role": "tool", "parts": [result]}
    tool = spans.named("execute_tool look_up")
    assert tool.content == {
        semconv.TOOL_CALL_ARGUMENTS: {"what": "the sky"},
        semconv.TOOL_CALL_RESULT: "the sky is blue",
    }


async def test_an_agent_that_takes_over_has_a_span_with_its_requests() -> None:
    expert = Agent(
        name="Expert", model=PlayingModel(answer), tools=[look_up], handoff_description="Knows."
    )
    desk = agent_of(lambda heard: [call("transfer_to_expert", "{}", id="h")], handoffs=[expert])
    spans = await trace(desk)
    root, sub = spans.named("invoke_agent desk"), spans.named("invoke_agent Expert")
    assert sub.parent_id == root.span_id
    assert sub.attributes[semconv.AGENT_DESCRIPTION] == "Knows."
    assert spans.named("execute_tool look_up").parent_id == sub.span_id
    chats = [span.parent_id for span in spans.of(semconv.CHAT)]
    assert chats == [root.span_id, sub.span_id, sub.span_id]
    assert (root.attributes[semconv.RUN_TURNS], sub.attributes[semconv.RUN_TURNS]) == (1, 2)


async def test_a_request_that_fails_ends_its_span_with_the_error() -> None:
    def fail(heard: list[Any]) -> Any:
        return [OpenAIError("Down.")]

    expert = Agent(name="Expert", model=PlayingModel(fail))
    desk = agent_of(lambda heard: [call("transfer_to_expert", "{}", id="h")], handoffs=[expert])
    spans = await trace(desk)
    _, chat = spans.of(semconv.CHAT)
    assert chat.attributes[semconv.ERROR_TYPE] == "openai.OpenAIError"
    assert chat.attributes[semconv.RESPONSE_FINISH_REASONS] == ["error"]
    assert spans.named("invoke_agent Expert").status == "error"
    assert spans.named("invoke_agent desk").attributes[semconv.ERROR_TYPE] == "NETWORK_ERROR"


async def test_a_tool_that_fails_ends_its_span_with_the_error() -> None:
    @function_tool(failure_error_function=None)
    def burn() -> str:
        """Burn."""
        raise ValueError("It burnt.")

    spans = await trace(agent_of(lambda heard: [call("burn", "{}", id="b")], tools=[burn]))
    assert spans.named("execute_tool burn").status == "error"
    assert spans.named("invoke_agent desk").status == "error"


async def test_a_run_that_is_stopped_ends_what_is_open() -> None:
    model = PlayingModel(lambda heard: [text("For ever and ever")], endless=True)
    spans = Spans()
    runtime = Runtime(
        OpenAIAgentsAgent(Agent(name="Desk", model=model)),
        {},
        MemoryBus(),
        telemetry=LocalTelemetry(spans),
    )
    started = await runtime.start(run_input(detached=True))
    async for batch in runtime.follow(started.log_id):
        if any(isinstance(event, TextMessageContent) for event in batch.events):
            runtime.stop(started.log_id)
    await runtime.aclose()
    (chat,) = spans.of(semconv.CHAT)
    assert chat.status == "unset"
    assert chat.attributes[semconv.RESPONSE_FINISH_REASONS] == ["error"]


async def test_a_tool_of_the_page_is_one_of_the_browser() -> None:
    def paint(heard: list[Any]) -> Sequence[Output]:
        return [call("paint", "{}", id="p1")]

    spans = await trace(agent_of(paint), tools=[Action(name="paint")])
    assert spans.named("execute_tool paint").attributes[semconv.TOOL_LOCATION] == "browser"


async def test_an_agent_that_a_model_called_is_below_that_call() -> None:
    spans = Spans()
    runtime = Runtime(
        DirectAgent(ScriptedAdapter(calling("desk", {}), say("Done."))),
        {"desk": OpenAIAgentsAgent(agent_of(answer, tools=[look_up]))},
        MemoryBus(),
        handoff=HandoffPolicy(hand_over="always"),
        telemetry=LocalTelemetry(spans),
    )
    await run(runtime)
    desk = spans.named("invoke_agent desk")
    assert spans.named("execute_tool look_up").parent_id == desk.span_id
    assert desk.attributes[semconv.RUN_TURNS] == 2


async def test_the_sdk_itself_traces_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **options: Any) -> Any:
        assert options.get("disabled")
        return create(*_, **options)

    provider = agents.tracing.get_trace_provider()
    create = provider.create_trace
    monkeypatch.setattr(provider, "create_trace", refuse)
    spans = await trace(agent_of(answer, tools=[look_up]))
    assert spans.named("invoke_agent desk").status == "unset"


def test_items_of_every_kind_are_rendered() -> None:
    refusal = ResponseOutputRefusal(refusal="No.", type="refusal")
    found = render_items(
        [
            {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
            {"role": "user", "content": [{"type": "input_image", "image_url": "u"}]},
            {"type": "message", "role": "assistant", "content": [refusal]},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]},
            {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text"}]},
            {"type": "web_search_call", "id": "w"},
            7,
        ]
    )
    assert found is not None
    assert [message["parts"] for message in found] == [
        [{"type": "text", "content": "Hi"}],
        [{"type": "input_image"}],
        [{"type": "text", "content": "No."}],
        [{"type": "reasoning", "content": "Hm."}],
        [{"type": "tool_call_response", "id": "c", "response": [{"type": "input_text"}]}],
        [{"type": "web_search_call"}],
        [{"type": "text", "content": "7"}],
    ]
    assert render_items([]) is None
