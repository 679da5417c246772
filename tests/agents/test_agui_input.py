"""What a remote agent is asked."""

from typing import Any

import pytest

from copilot_runtime.agents.agui import AguiAgent
from copilot_runtime.api import Action, AgentInput, ContextItem, Resume
from copilot_runtime.api.messages import ActionExecutionMessage, ResultMessage, TextMessage
from tests.adapters.provider import Provider
from tests.agents.remote import asked, heard, whole_run

pytestmark = pytest.mark.anyio


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
