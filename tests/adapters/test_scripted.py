import asyncio
from contextlib import aclosing

import pytest

from copilot_runtime.adapters.empty import EmptyAdapter
from copilot_runtime.adapters.scripted import Gate, ScriptedAdapter, call, say
from copilot_runtime.api import ChatRequest, RunInput
from copilot_runtime.api.events import (
    ActionExecutionArgs,
    ActionExecutionEnd,
    ActionExecutionStart,
    Event,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
)
from copilot_runtime.api.messages import TextMessage
from copilot_runtime.base.errors import Misuse, NetworkError

pytestmark = pytest.mark.anyio

REQUEST = ChatRequest(messages=[TextMessage(id="u1", role="user", content="Hello")])


async def answer_to(adapter: ScriptedAdapter, request: ChatRequest = REQUEST) -> list[Event]:
    async with aclosing(adapter.stream(request)) as events:
        return [event async for event in events]


async def test_a_turn_is_said_for_each_request():
    adapter = ScriptedAdapter(call("add", {"a": 1}), say(["It ", "", "is 1."], id="m"))

    assert [await answer_to(adapter), await answer_to(adapter)] == [
        [
            ActionExecutionStart(call_id="call-add", name="add"),
            ActionExecutionArgs(call_id="call-add", delta='{"a":1}'),
            ActionExecutionEnd(call_id="call-add"),
        ],
        [
            TextMessageStart(message_id="m"),
            TextMessageContent(message_id="m", content="It "),
            TextMessageContent(message_id="m", content="is 1."),
            TextMessageEnd(message_id="m"),
        ],
    ]
    assert adapter.requests == [REQUEST, REQUEST]


async def test_a_turn_may_depend_on_the_request():
    adapter = ScriptedAdapter(lambda request: say(f"You said {request.messages[0].id}."))
    assert TextMessageContent(message_id="message-1", content="You said u1.") in await answer_to(
        adapter
    )


async def test_an_exception_is_raised_where_it_stands():
    adapter = ScriptedAdapter([*say("Hi")[:2], NetworkError("gone")], ValueError("now"))
    seen: list[Event] = []
    with pytest.raises(NetworkError, match="gone"):
        async with aclosing(adapter.stream(REQUEST)) as events:
            async for event in events:
                seen.append(event)
    assert seen == say("Hi")[:2]
    with pytest.raises(ValueError, match="now"):
        await answer_to(adapter)


async def test_a_script_that_has_ended_says_so():
    adapter = ScriptedAdapter(say("Hi"))
    await answer_to(adapter)
    with pytest.raises(Misuse, match="has 1 turns and was asked for turn 2"):
        await answer_to(adapter)


async def test_a_gate_lets_one_event_pass_at_a_time():
    gate = Gate()
    seen: list[Event] = []

    async def listen() -> None:
        async with aclosing(ScriptedAdapter(say(["a", "b"]), gate=gate).stream(REQUEST)) as events:
            async for event in events:
                seen.append(event)

    listening = asyncio.create_task(listen())
    lengths: list[int] = []
    for _ in range(4):
        await gate.wait_for_event()
        lengths.append(len(seen))
        gate.release()
    await listening

    assert (lengths, len(seen)) == ([0, 1, 2, 3], 4)


async def test_closing_is_remembered():
    adapter = ScriptedAdapter()
    await adapter.aclose()
    assert adapter.closed


MESSAGE = (
    "Invalid adapter configuration: EmptyAdapter is only meant to be used with agent lock mode. \n"
    "For non-agent components like useCopilotChatSuggestions, CopilotTextarea, or CopilotTask, \n"
    "please use an LLM adapter instead."
)


def run_of(agent: str | None) -> RunInput:
    return RunInput(thread_id="t", run_id="r", messages=[], agent=agent)


def test_a_plain_chat_is_refused_before_it_starts():
    with pytest.raises(Misuse) as caught:
        EmptyAdapter().check(run_of(None))
    report = caught.value.report()
    assert (report.message, report.code, report.status_code, report.visibility) == (
        MESSAGE,
        "MISUSE",
        400,
        "dev_only",
    )


def test_an_agent_needs_no_model():
    EmptyAdapter().check(run_of("researcher"))


async def test_there_is_nothing_to_stream():
    with pytest.raises(Misuse):
        async with aclosing(EmptyAdapter().stream(ChatRequest(messages=[]))) as events:
            await anext(events)
