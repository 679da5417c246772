"""AG-UI 1.0 with a remote agent: what it is asked, what it may send, and how it is stopped."""

from typing import Any

import pytest

from copilot_runtime import RunInput
from copilot_runtime.agents.agui import AguiAgent
from copilot_runtime.api import Action, AgentInput, ContextItem, Resume
from copilot_runtime.api.events import ActionExecutionResult, MessagesSnapshot, Usage
from copilot_runtime.api.hooks import Hooks
from copilot_runtime.api.messages import (
    ActionExecutionMessage,
    ActivityMessage,
    MediaPart,
    ResultMessage,
    TextMessage,
    TextPart,
)
from copilot_runtime.base.errors import Cancelled, ConfigurationFailed
from copilot_runtime.base.jsontext import dumps
from tests.adapters.provider import Provider, whole
from tests.agents.remote import (
    FINISHED,
    STARTED,
    agent_of,
    asked,
    cut_short,
    heard,
    heard_until_error,
    text,
    whole_run,
)
from tests.agents.test_agui import said
from tests.in_one_test import in_one_test
from tests.wire_agui.http import connect_input
from tests.wire_agui.server import browsing

pytestmark = pytest.mark.anyio

CANCELLED = {"type": "cancelled"}
STOPPED = cut_short(STARTED, *text("m", "half"), {**FINISHED, "outcome": CANCELLED})
SOURCE = {"type": "data", "value": "AA==", "mimeType": "image/png"}
PARTS: list[dict[str, Any]] = [
    {"type": "text", "text": "A cat."},
    {"type": "image", "source": SOURCE},
]
OUR_PARTS = (
    TextPart(text="A cat."),
    MediaPart(kind="image", source="data", value="AA==", mime_type="image/png"),
)


async def test_an_agent_is_told_the_version_unless_it_is_of_before(provider: Provider):
    provider.answer(whole_run())
    for legacy in (False, True):
        agent = agent_of(provider, legacy=legacy)
        await heard(agent)
        await agent.aclose()

    versions = [request.body.get("protocolVersion") for request in provider.requests]
    assert versions == ["1.0", None]


async def test_an_agent_that_cannot_read_1_0_is_asked_as_before_from_then_on(
    provider: Provider, agent: AguiAgent
):
    # ag-ui-protocol before 0.1.10 takes no field that it does not know
    extra = {"detail": [{"type": "extra_forbidden", "loc": ["body", "protocolVersion"]}]}
    provider.answer([whole(extra, status="422 Unprocessable Content")], whole_run())
    events = await heard(agent)

    assert await heard(agent) == events
    versions = [request.body.get("protocolVersion") for request in provider.requests]
    assert versions == ["1.0", None, None]


async def test_an_agent_that_can_read_neither_is_quoted_in_the_log(
    provider: Provider, agent: AguiAgent
):
    provider.answer([whole({"detail": "no such thread"}, status="422 Unprocessable Content")])
    for _ in range(2):
        with pytest.raises(ConfigurationFailed) as caught:
            await heard(agent)
        assert "no such thread" in (caught.value.hint or "")

    versions = [request.body.get("protocolVersion") for request in provider.requests]
    assert versions == ["1.0", None, "1.0", None]


async def test_a_result_in_parts_is_sent_as_a_list_and_as_text_before_1_0(provider: Provider):
    provider.answer(whole_run())
    result = ResultMessage(id="t", call_id="c", name="look", result="the text", parts=OUR_PARTS)
    for legacy in (False, True):
        agent = agent_of(provider, legacy=legacy)
        await heard(agent, asked(messages=[result]))
        await agent.aclose()

    contents = [request.body["messages"][0]["content"] for request in provider.requests]
    assert contents == [PARTS, "the text"]


async def test_activities_are_for_the_eyes_of_a_person_and_not_for_an_agent(
    provider: Provider, agent: AguiAgent
):
    provider.answer(whole_run())
    question = TextMessage(id="u", role="user", content="Hi")
    activity = ActivityMessage(id="a", activity_type="image", content={})
    await heard(agent, asked(messages=[activity, question]))

    assert [message["id"] for message in provider.requests[0].body["messages"]] == ["u"]


async def test_a_run_that_was_stopped_over_there_is_no_success(
    provider: Provider, agent: AguiAgent
):
    provider.answer(STOPPED)
    events, error = await heard_until_error(agent)

    assert events == said("m", "half")
    assert isinstance(error, Cancelled)


async def test_a_run_that_was_stopped_over_there_is_kept_and_shown_as_stopped(provider: Provider):
    provider.answer(STOPPED, whole_run())
    stops: list[str] = []
    errors: list[Any] = []

    async def on_stop(run: RunInput) -> None:
        stops.append(run.run_id)

    def on_error(error: BaseException, _context: Any) -> None:
        errors.append(error)

    agents = {"default": agent_of(provider)}
    async with browsing(
        agents=agents,
        hooks=Hooks(stop=on_stop, error=on_error),
    ) as browser:
        live = (await browser.run(protocolVersion="1.0")).events()
        path, body = "/agent/default/connect", connect_input("t")
        now = (await browser.ask("POST", path, {**body, "protocolVersion": "1.0"})).events()
        before = (await browser.ask("POST", path, body)).events()

    for events in (live, now):
        assert [event["type"] for event in events[-2:]] == ["TEXT_MESSAGE_END", "RUN_FINISHED"]
        assert events[-1]["outcome"] == CANCELLED
    message = "The agent's run was stopped."
    assert before[-1] == {"type": "RUN_ERROR", "message": message, "code": "abort"}
    assert (stops, errors) == (["r"], [])


@in_one_test(
    ("content", "parts", "text"),
    [
        (PARTS, OUR_PARTS, dumps(PARTS).decode()),
        ([PARTS[0], {"type": "smell"}], OUR_PARTS[:1], "A cat."),
        ([1, 2], (), "[1,2]"),
        ([{"hits": 3}], (), '[{"hits":3}]'),
        ("plain", (), "plain"),
        (None, (), ""),
    ],
)
async def test_a_result_in_parts_is_read_and_any_other_stays_text(
    provider: Provider, agent: AguiAgent, content: Any, parts: Any, text: str
):
    event = {"type": "TOOL_CALL_RESULT", "messageId": "t", "toolCallId": "c", "content": content}
    provider.answer(whole_run(event))
    [result] = await heard(agent)

    assert isinstance(result, ActionExecutionResult)
    assert (result.parts, result.result) == (parts, text)


async def test_counts_that_an_agent_does_not_give_are_not_known(
    provider: Provider, agent: AguiAgent
):
    usage = [{"model": "m", "inputTokens": 0, "outputTokens": -1, "totalTokens": 3}]
    end = {**FINISHED, "usage": usage, "metadata": {"finishReason": "tool-calls"}}
    provider.answer(cut_short(STARTED, end))

    assert await heard(agent) == [Usage(model="m", input_tokens=0, stop_reason="tool_calls")]


async def test_a_part_that_nobody_knows_does_not_end_a_run(provider: Provider, agent: AguiAgent):
    content = [{"type": "smell"}, {"type": "text", "text": "Hi"}]
    messages = [{"id": "u", "role": "user", "content": content}]
    provider.answer(whole_run({"type": "MESSAGES_SNAPSHOT", "messages": messages}))
    [snapshot] = await heard(agent)

    assert isinstance(snapshot, MessagesSnapshot)

    assert snapshot.messages == [
        TextMessage(id="u", role="user", content="Hi", parts=(TextPart(text="Hi"),))
    ]


async def test_an_agent_is_asked_with_the_keys_that_clients_send(
    provider: Provider, agent: AguiAgent
):
    provider.answer(whole_run())
    await heard(agent, asked("scenario:echo-input", properties={"tenant": "acme"}))
    [request] = provider.requests

    assert request.line == "POST /agent HTTP/1.1"
    assert request.body == {
        "threadId": "t",
        "runId": "r",
        "protocolVersion": "1.0",
        "state": {},
        "messages": [{"id": "u-1", "role": "user", "content": "scenario:echo-input"}],
        "tools": [],
        "context": [],
        "forwardedProps": {"tenant": "acme"},
    }


async def test_an_agent_is_told_everything_the_client_said(provider: Provider, agent: AguiAgent):
    async def on_the_server(*_: Any) -> None: ...

    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    run = asked(
        agent="weather",
        messages=[
            TextMessage(id="a", role="assistant", content="Look"),
            ActionExecutionMessage(id="c", name="f", arguments="{}", parent_id="a"),
            ResultMessage(id="x", call_id="c", name="f", result="3"),
        ],
        actions=[
            Action(name="getWeather", description="weather", parameters=schema),
            Action(name="ours", run=on_the_server),
            Action(name="off", available="disabled"),
        ],
        context=[ContextItem("who", "Ada")],
        agents={"weather": AgentInput(state=["any"]), "other": AgentInput(state=1)},
        extensions={"parentRunId": "r0"},
        resume=[
            Resume("", interrupt_id="i-1", payload={"ok": True}),
            Resume("", interrupt_id="i-2", status="cancelled"),
        ],
    )
    provider.answer(whole_run())
    await heard(agent, run)

    function = {"name": "f", "arguments": "{}"}
    assert provider.requests[0].body == {
        "threadId": "t",
        "runId": "r",
        "protocolVersion": "1.0",
        "parentRunId": "r0",
        "state": ["any"],
        "messages": [
            {
                "id": "a",
                "role": "assistant",
                "content": "Look",
                "toolCalls": [{"id": "c", "type": "function", "function": function}],
            },
            {"id": "x", "role": "tool", "toolCallId": "c", "content": "3"},
        ],
        "tools": [
            {"name": "getWeather", "description": "weather", "parameters": schema},
            {"name": "ours", "description": "", "parameters": {"type": "object"}},
        ],
        "context": [{"description": "who", "value": "Ada"}],
        "forwardedProps": {},
        "resume": [
            {"interruptId": "i-1", "status": "resolved", "payload": {"ok": True}},
            {"interruptId": "i-2", "status": "cancelled"},
        ],
    }


async def test_an_answer_of_a_v1_client_finds_its_interrupt(provider: Provider, agent: AguiAgent):
    provider.answer(whole_run())
    whole = Resume('{"id":"i-1","reason":"approval"}', response="yes")
    legacy = Resume('{"ask":"Approve?"}', response="yes")
    word = Resume("Approve?", response="no")

    for resume in (whole, legacy, word):
        await heard(agent, asked(resume=[resume]))

    bodies = [request.body for request in provider.requests]
    assert [body.get("resume") for body in bodies] == [
        [{"interruptId": "i-1", "status": "resolved", "payload": "yes"}],
        None,
        None,
    ]
    assert [body["forwardedProps"] for body in bodies] == [
        {},
        {"command": {"resume": "yes", "interruptEvent": {"ask": "Approve?"}}},
        {"command": {"resume": "no", "interruptEvent": "Approve?"}},
    ]
