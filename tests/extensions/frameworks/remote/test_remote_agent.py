"""What an agent behind a remote endpoint is asked, and what comes of its answers."""

import asyncio
import json
import re
from contextlib import aclosing
from typing import Any

import pytest

from copilot_runtime.agui.outcome import AgentFailed
from copilot_runtime.api import Action, AgentInput, Caller, Resume
from copilot_runtime.api.events import TextMessageContent, TextMessageStart
from copilot_runtime.api.messages import (
    ActionExecutionMessage,
    AgentStateMessage,
    ImageMessage,
    ReasoningMessage,
    ResultMessage,
    TextMessage,
)
from copilot_runtime.base.errors import (
    ConfigurationFailed,
    CopilotError,
    IncompleteStream,
    NetworkError,
    NotFound,
    RunStalled,
)
from copilot_runtime.extensions.frameworks.remote import RemoteEndpoint
from tests.adapters.provider import HANG, HEAD, RESET, Provider, piece, whole
from tests.extensions.frameworks.remote.endpoint import (
    GONE,
    OFFERED,
    agent_of,
    asked,
    endpoint_of,
    heard,
    heard_until_error,
    lines,
    text,
)
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

HELLO = lines(*text("m", "Hello"))
FIRST = piece(json.dumps({"type": "TextMessageStart", "messageId": "m"}).encode() + b"\n")


async def test_it_is_asked_in_the_words_of_the_protocol(
    server: Provider, endpoint: RemoteEndpoint
) -> None:
    server.answer(OFFERED, HELLO)
    run = asked(
        messages=[
            TextMessage(id="u", role="user", content="Hi"),
            ActionExecutionMessage(id="c", name="paint", arguments='{"a":1}', parent_id="p"),
            ActionExecutionMessage(id="c2", name="paint", arguments="{"),
            ResultMessage(id="x", call_id="c", name="paint", result="ok"),
            ImageMessage(id="i", role="user", format="png", bytes="AA=="),
            ReasoningMessage(id="z", content="Hm"),
            AgentStateMessage(id="s", agent="crew", state={"n": 1}),
        ],
        actions=[
            Action(name="paint", description="Paint.", parameters={"type": "object"}),
            Action(name="off", available="disabled"),
        ],
        agents={"crew": AgentInput(state={"n": 1}, config={"configurable": {"k": 1}})},
        properties={"team": "blue"},
        resume=[Resume("Who?", "Ada"), Resume("What?", payload={"a": 1})],
        node="ask",
    )

    await heard(await agent_of(endpoint), run)

    request = server.requests[1]
    assert request.line == "POST /copilotkit/agents/execute HTTP/1.1"
    times = {message.pop("createdAt") for message in request.body["messages"]}
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", times.pop())
    assert request.body == {
        "name": "crew",
        "threadId": "t",
        "nodeName": "ask",
        "messages": [
            {"id": "u", "type": "TextMessage", "content": "Hi", "role": "user"},
            {
                "id": "c",
                "type": "ActionExecutionMessage",
                "name": "paint",
                "arguments": {"a": 1},
                "parentMessageId": "p",
            },
            {"id": "c2", "type": "ActionExecutionMessage", "name": "paint", "arguments": {}},
            {
                "id": "x",
                "type": "ResultMessage",
                "actionExecutionId": "c",
                "actionName": "paint",
                "result": "ok",
            },
            {
                "id": "i",
                "type": "ImageMessage",
                "format": "png",
                "bytes": "AA==",
                "role": "user",
            },
            {
                "id": "s",
                "type": "AgentStateMessage",
                "threadId": "",
                "agentName": "crew",
                "nodeName": "",
                "runId": "",
                "active": False,
                "role": "assistant",
                "state": {"n": 1},
                "running": False,
            },
        ],
        "state": {"n": 1},
        "config": {"configurable": {"k": 1}},
        "properties": {"team": "blue"},
        "actions": [{"name": "paint", "description": "Paint.", "parameters": {"type": "object"}}],
        "metaEvents": [
            {"name": "LangGraphInterruptEvent", "value": "Who?", "response": "Ada"},
            {"name": "LangGraphInterruptEvent", "value": "What?", "response": {"a": 1}},
        ],
    }


async def test_the_thread_of_a_user_has_a_name_of_its_own(
    server: Provider, endpoint: RemoteEndpoint
) -> None:
    server.answer(OFFERED, HELLO)

    await heard(await agent_of(endpoint), asked(user="ann"))

    assert server.requests[1].body["threadId"] == asked(user="ann").private_thread_id != "t"


async def test_what_it_says_comes_as_it_is_said(server: Provider, endpoint: RemoteEndpoint) -> None:
    go_on = asyncio.Event()
    server.answer(OFFERED, [HEAD, FIRST, go_on, *HELLO[1:]])

    async with aclosing((await agent_of(endpoint)).run(asked())) as events:
        assert await anext(events) == TextMessageStart(message_id="m")
        go_on.set()
        assert TextMessageContent(message_id="m", content="Hello") in [e async for e in events]


async def test_who_stops_listening_hangs_up(server: Provider, endpoint: RemoteEndpoint) -> None:
    server.answer(OFFERED, [HEAD, FIRST, HANG])

    async with aclosing((await agent_of(endpoint)).run(asked())) as events:
        await anext(events)

    await server.until_open(1)  # the one that asked what there is


async def test_a_server_that_has_only_the_newer_routes_is_asked_there(
    server: Provider, endpoint: RemoteEndpoint
) -> None:
    server.answer(OFFERED, GONE, HELLO)

    await heard(await agent_of(endpoint))

    assert server.requests[2].line == "POST /copilotkit/agent/crew HTTP/1.1"
    assert server.requests[2].body == server.requests[1].body


@in_one_test(
    ("script", "kind", "message"),
    [
        (
            [whole({"error": "No key sk-12345678 here"}, status="500 No")],
            AgentFailed,
            "The agent 'crew' failed: No key *** here",
        ),
        ([whole(b"<html>", status="502 No")], AgentFailed, "The agent 'crew' failed."),
        (
            [whole({"error": "e" * 600}, status="500 No")],
            AgentFailed,
            f"The agent 'crew' failed: {'e' * 500}...",
        ),
        (
            [whole(b"", status="307 Moved", location="http://elsewhere/")],
            AgentFailed,
            "The agent 'crew' failed.",
        ),
        (GONE, NotFound, "The agent 'crew' is gone from its remote endpoint."),
        ([HEAD, FIRST, RESET], IncompleteStream, "broke off before it had ended"),
        ([RESET], NetworkError, "did not answer: its remote endpoint is down"),
        ([whole(b"")], IncompleteStream, "The agent 'crew' ended without a word."),
        ([whole(b"<html>")], IncompleteStream, "sent something that cannot be read"),
    ],
)
async def test_an_agent_that_fails_is_asked_once_and_it_is_said_why(
    server: Provider, script: Any, kind: type[CopilotError], message: str
) -> None:
    server.answer(OFFERED, script)
    endpoint = endpoint_of(server, headers={"authorization": "Bearer sk-12345678"})

    _, error = await heard_until_error(await agent_of(endpoint))

    assert isinstance(error, kind)
    assert message in str(error)
    executions = [one for one in server.requests if "/agents/execute" in one.line]
    assert len(executions) == 1
    await endpoint.aclose()


async def test_an_agent_that_is_silent_for_too_long_is_left(server: Provider) -> None:
    server.answer(OFFERED, [HEAD, FIRST, HANG])
    endpoint = endpoint_of(server, idle_timeout=0.05)

    _, error = await heard_until_error(await agent_of(endpoint))

    assert isinstance(error, RunStalled)
    assert str(error) == "The agent 'crew' is silent. No answer for 0.05 seconds."
    await endpoint.aclose()


async def test_the_state_of_a_thread_is_asked_for(
    server: Provider, endpoint: RemoteEndpoint
) -> None:
    known = {"threadExists": True, "state": {"n": 1}, "messages": [{"id": "m"}]}
    unknown = {"threadExists": False, "state": {}, "messages": []}
    server.answer(OFFERED, [whole(known)], [whole(unknown)])
    agent: Any = await agent_of(endpoint)

    assert await agent.load_state("t", Caller(properties={"a": 1})) == ({"n": 1}, [{"id": "m"}])
    assert await agent.load_state("t", Caller()) is None
    assert server.requests[1].line == "POST /copilotkit/agents/state HTTP/1.1"
    assert server.requests[1].body == {"properties": {"a": 1}, "threadId": "t", "name": "crew"}


async def test_a_state_is_asked_for_again_when_the_connection_breaks(
    server: Provider, endpoint: RemoteEndpoint
) -> None:
    known = {"threadExists": True, "state": None, "messages": None}
    server.answer(OFFERED, [RESET], [whole(known)])
    agent: Any = await agent_of(endpoint)

    assert await agent.load_state("t", Caller()) == ({}, [])


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ([whole({"error": "Oh no"}, status="500 No", x_should_retry="false")], "failed: Oh no"),
        (GONE, "is gone from its remote endpoint"),
        ([whole(b"[]")], "gave a state that cannot be read"),
        ([RESET], "its remote endpoint is down"),
    ],
)
async def test_a_state_that_cannot_be_had_is_an_error(
    server: Provider, endpoint: RemoteEndpoint, script: Any, message: str
) -> None:
    server.answer(OFFERED, script)
    agent: Any = await agent_of(endpoint)

    with pytest.raises(CopilotError, match=message):
        await agent.load_state("t", Caller())


async def test_a_kind_that_the_sdk_cannot_run_is_refused_with_the_way_out(
    server: Provider, endpoint: RemoteEndpoint
) -> None:
    agents = [{"name": "graph", "description": "", "type": "langgraph_agui"}]
    server.answer([whole({"actions": [], "agents": agents})])

    with pytest.raises(ConfigurationFailed, match="where it speaks AG-UI") as refused:
        await agent_of(endpoint, "graph")

    assert "AguiAgent(url)" in str(refused.value.hint)
