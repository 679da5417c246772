"""What only the events of a run tell becomes spans: tools elsewhere, steps, subagents."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from copilot_runtime import AguiAgent, CopilotRuntime, Settings, action
from copilot_runtime.adapters.scripted import ScriptedAdapter, call, say
from copilot_runtime.api import Action
from copilot_runtime.telemetry import LocalTelemetry, SpanContext, semconv
from copilot_runtime.telemetry.telemetry import ToolCalls
from copilot_runtime.testing import Client
from copilot_runtime.testing.client import Protocol
from tests.adapters import provider as upstream
from tests.adapters.provider import Provider
from tests.agents.remote import text, whole_run
from tests.telemetry.test_spans import Spans

pytestmark = pytest.mark.anyio


@pytest.fixture
def spans() -> Spans:
    return Spans()


@pytest.fixture
async def provider(anyio_backend: str) -> AsyncGenerator[Provider]:
    del anyio_backend
    async with upstream.serving() as provider:
        yield provider


@action
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def calling(id: str, name: str, arguments: str = "{}") -> list[dict[str, Any]]:
    return [
        {"type": "TOOL_CALL_START", "toolCallId": id, "toolCallName": name},
        {"type": "TOOL_CALL_ARGS", "toolCallId": id, "delta": arguments},
        {"type": "TOOL_CALL_END", "toolCallId": id},
    ]


def result(id: str, content: str) -> dict[str, Any]:
    return {"type": "TOOL_CALL_RESULT", "messageId": "m", "toolCallId": id, "content": content}


def build(spans: Spans, *turns: Any, **more: Any) -> CopilotRuntime:
    return CopilotRuntime(
        ScriptedAdapter(*turns) if turns else None,
        telemetry=LocalTelemetry(spans, keeps_content=True),
        settings=Settings(threads="memory"),
        **more,
    )


async def ask(runtime: CopilotRuntime, **more: Any) -> None:
    async with Client(runtime, agent="far", **more) as client:
        await client.say("Hi")


async def test_tools_and_steps_of_an_agent_elsewhere_are_below_it(
    spans: Spans, provider: Provider
) -> None:
    provider.answer(
        whole_run(
            {"type": "STEP_STARTED", "stepName": "plan"},
            *calling("c1", "search"),
            result("c1", "found"),
            {"type": "STEP_FINISHED", "stepName": "plan"},
            *text("m1", "Done."),
        )
    )
    await ask(build(spans, agents={"far": AguiAgent(provider.url)}))
    root, tool, step = (
        spans.named(name) for name in ("invoke_agent far", "execute_tool search", "agent_step plan")
    )
    assert tool.parent_id == step.parent_id == root.span_id
    assert tool.attributes[semconv.TOOL_LOCATION] == "agent"
    assert tool.attributes[semconv.TOOL_CALL_ID] == "c1"
    assert tool.content[semconv.TOOL_CALL_RESULT] == "found"
    assert {one.attributes[semconv.SPAN_SOURCE] for one in (tool, step)} == {"events"}
    assert len(spans.spans) == 3


async def test_a_call_of_an_action_of_this_server_has_one_span(
    spans: Spans, provider: Provider
) -> None:
    provider.answer(
        whole_run(*calling("c1", "add", '{"a": 1, "b": 2}')), whole_run(*text("m1", "3"))
    )
    await ask(build(spans, agents={"far": AguiAgent(provider.url)}, actions=[add]))
    tool = spans.named("execute_tool add")
    assert tool.attributes[semconv.TOOL_LOCATION] == "server"


@pytest.mark.parametrize("protocol", ["agui", "graphql"])
async def test_a_call_of_the_browser_ends_with_its_run_and_says_that_it_waits(
    protocol: Protocol, spans: Spans
) -> None:
    paint = Action(name="paint")
    runtime = build(spans, call("paint", {}, id="c1"), say("Painted."))
    async with Client(runtime, protocol=protocol, tools=[paint]) as client:
        await client.say("Paint it.")
    tool, root = spans.named("execute_tool paint"), spans.named("invoke_agent default")
    assert (tool.parent_id, tool.trace_id) == (root.span_id, root.trace_id)
    assert tool.attributes[semconv.TOOL_LOCATION] == "browser"
    assert tool.attributes[semconv.TOOL_WAITING]
    assert tool.is_ended
    telemetry = tool.telemetry
    assert isinstance(telemetry, LocalTelemetry)
    # how long the browser takes is not known
    names = {family.metric.name for family in telemetry.metrics.collect() if family.points}
    assert semconv.EXECUTE_TOOL_DURATION not in names
    assert semconv.INVOKE_AGENT_DURATION in names


@pytest.mark.parametrize("protocol", ["agui", "graphql"])
async def test_the_run_that_gets_the_result_of_the_browser_is_linked_to_the_call(
    protocol: Protocol, spans: Spans
) -> None:
    def paint() -> str:
        """Paint the page."""
        return "painted"

    turns = [call("paint", {}, id="c1"), say("Painted."), say("Bye.")]
    async with Client(build(spans, *turns), protocol=protocol, tools=[paint]) as client:
        await client.say("Paint it.")
        await client.say("Thanks.")
    tool = spans.named("execute_tool paint")
    first, second, third = spans.of(semconv.INVOKE_AGENT)
    ((context, attributes),) = second.links
    assert (context.trace_id, context.span_id) == (tool.trace_id, tool.span_id)
    assert attributes == {semconv.TOOL_CALL_ID: "c1"}
    assert (first.links, third.links) == ([], [])


async def test_a_question_to_a_person_is_an_event_of_the_run(
    spans: Spans, provider: Provider
) -> None:
    interrupts = [{"id": "i1", "reason": "approval", "message": "May I?", "toolCallId": "c1"}]
    ending = {"type": "RUN_FINISHED", "outcome": {"type": "interrupt", "interrupts": interrupts}}
    provider.answer(whole_run(ending)[:-1])
    await ask(build(spans, agents={"far": AguiAgent(provider.url)}))
    (event,) = spans.named("invoke_agent far").events
    assert event.name == semconv.EVENT_INTERRUPT
    assert event.attributes == {semconv.TOOL_CALL_ID: "c1"}


async def test_only_the_newest_calls_are_remembered() -> None:
    calls, spans = ToolCalls(), LocalTelemetry()
    span = spans.start_span("run")
    for number in range(2000):
        calls.add_foreign("t", str(number))
        calls.add_waiting("t", str(number), SpanContext("t", str(number)))
    calls.link_results(span, "t", ["0", "1999", "1999"])
    calls.link_results(span, "other", ["1998"])
    assert [link.context.span_id for link in span.links] == ["1999"]
    assert (calls.is_foreign("t", "0"), calls.is_foreign("t", "1999")) == (False, True)


async def test_a_subagent_is_an_agent_below_the_one_that_asked_it(
    spans: Spans, provider: Provider
) -> None:
    provider.answer(
        whole_run(
            {"type": "SUBAGENT_STARTED", "subagentRunId": "s1", "name": "scout"},
            {"type": "SUBAGENT_FINISHED", "subagentRunId": "s1"},
            {"type": "SUBAGENT_STARTED", "subagentRunId": "s2", "name": "cook"},
            {"type": "SUBAGENT_ERROR", "subagentRunId": "s2", "message": "It burnt."},
            *text("m1", "Done."),
        )
    )
    await ask(build(spans, agents={"far": AguiAgent(provider.url)}))
    root = spans.named("invoke_agent far")
    scout, cook = spans.named("invoke_agent scout"), spans.named("invoke_agent cook")
    assert scout.parent_id == cook.parent_id == root.span_id
    assert (scout.status, cook.status, cook.message) == ("unset", "error", "It burnt.")


async def test_what_an_agent_leaves_open_ends_with_the_run(
    spans: Spans, provider: Provider
) -> None:
    provider.answer(
        whole_run({"type": "STEP_STARTED", "stepName": "plan"}, *calling("c1", "search"))
    )
    async with Client(build(spans, agents={"far": AguiAgent(provider.url)}), agent="far") as client:
        await client.say("Hi")
    assert [span.name for span in spans.spans] == [
        "execute_tool search",
        "agent_step plan",
        "invoke_agent far",
    ]


async def test_what_an_agent_does_that_took_over_is_below_that_agent(
    spans: Spans, provider: Provider
) -> None:
    provider.answer(whole_run({"type": "STEP_STARTED", "stepName": "plan"}, *text("m1", "Done.")))
    runtime = build(spans, call("far", {}), say("."), agents={"far": AguiAgent(provider.url)})
    async with Client(runtime, protocol="graphql") as client:
        await client.say("Hi")
    step, far = spans.named("agent_step plan"), spans.named("invoke_agent far")
    assert step.parent_id == far.span_id
