"""A click in a surface reaches the agent as a call with its result, once."""

import json
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import MessagesState, StateGraph  # pyright: ignore[reportMissingTypeStubs]
from pydantic_ai import Agent
from pydantic_ai.models.function import FunctionModel

from copilot_runtime import RunInput, Settings
from copilot_runtime.adapters.scripted import ScriptedAdapter, call, say
from copilot_runtime.api.messages import ActionExecutionMessage, Message, TextMessage
from copilot_runtime.extensions.generative_ui.a2ui.clicks import ClickLog
from copilot_runtime.extensions.generative_ui.options import A2ui
from tests.extensions.frameworks import sdk_model
from tests.extensions.generative_ui.agui_agent import (
    CLICK,
    clicking,
    receive,
    receive_one,
    relaying,
)
from tests.in_one_test import in_one_test
from tests.wire_agui.http import user
from tests.wire_agui.server import browsing

pytestmark = pytest.mark.anyio

SENTENCE = (
    'User performed action "submit" on surface "form" (component: b). Context: {"name":"Bob"}'
)
CLIENT, SERVER = (
    Settings(threads="memory", history="client"),
    Settings(threads="memory", history="server"),
)
WEATHER = {"name": "getWeather", "description": "w", "parameters": {"type": "object"}}


CALL = {
    "id": "w1",
    "role": "assistant",
    "toolCalls": [
        {"id": "w1", "type": "function", "function": {"name": "getWeather", "arguments": "{}"}}
    ],
}
RESULT = {"id": "x", "role": "tool", "toolCallId": "w1", "content": "21"}


def pair(click: dict[str, Any], sentence: str, ids: list[str]) -> list[dict[str, Any]]:
    """Return the two messages of a click, in AG-UI."""
    function = {"name": "log_a2ui_event", "arguments": json.dumps(click, separators=(",", ":"))}
    return [
        {
            "id": ids[0],
            "role": "assistant",
            "content": "",
            "toolCalls": [{"id": ids[1], "type": "function", "function": function}],
        },
        {"id": ids[2], "role": "tool", "toolCallId": ids[1], "content": sentence},
    ]


def ids_of(messages: list[dict[str, Any]]) -> list[str]:
    """Return the ids of the two messages and the call that stand at the end."""
    said, result = messages[-2:]
    return [said["id"], result["toolCallId"], result["id"]]


async def test_a_click_is_a_call_and_its_result_behind_all_messages() -> None:
    got = await receive_one(A2ui(), messages=[user("Hi", "u-1")], forwardedProps=clicking())
    messages = got["messages"]
    assert messages == [user("Hi", "u-1"), *pair(CLICK, SENTENCE, ids_of(messages))]
    assert got["forwardedProps"] == clicking()
    assert len({*ids_of(messages)}) == 3


@in_one_test(
    ("click", "sentence"),
    [
        ({}, 'User performed action "unknown_action" on surface "unknown_surface". Context: {}'),
        (
            {"name": None, "context": None, "surfaceId": "s"},
            'User performed action "unknown_action" on surface "s". Context: {}',
        ),
        (
            {"name": "kjøp", "context": {"by": "Oslo", "n": [1, {"a": None}]}, "more": True},
            'User performed action "kjøp" on surface "unknown_surface". '
            'Context: {"by":"Oslo","n":[1,{"a":null}]}',
        ),
    ],
)
async def test_what_a_click_does_not_say_has_a_name(click: dict[str, Any], sentence: str) -> None:
    properties = {"a2uiAction": {"userAction": click}}
    got = (await receive_one(A2ui(), messages=[], forwardedProps=properties))["messages"]
    assert got[-1]["content"] == sentence
    arguments = got[-2]["toolCalls"][0]["function"]["arguments"]
    assert arguments == json.dumps(click, separators=(",", ":"), ensure_ascii=False)


@in_one_test("options", [None, A2ui(enabled=False), A2ui(agents=["other"])])
async def test_where_nothing_is_drawn_a_click_is_a_property_and_no_more(
    options: A2ui | None,
) -> None:
    got = await receive_one(options, messages=[], forwardedProps=clicking())
    assert (got["messages"], got["forwardedProps"]) == ([], clicking())


@in_one_test(
    "properties",
    [{"a2uiAction": None}, {"a2uiAction": {}}, {}, {"a2uiAction": "submit"}, {"a2uiAction": []}],
)
async def test_no_action_is_no_click(properties: dict[str, Any]) -> None:
    got = await receive_one(A2ui(), messages=[], forwardedProps=properties)
    assert got["messages"] == []


async def test_names_and_contexts_are_what_a_model_made_of_them() -> None:
    click = clicking(name=3, surfaceId="", sourceComponentId=None, context=["Bob"])
    got = await receive_one(A2ui(), messages=[], forwardedProps=click)
    sentence = 'User performed action "3" on surface "". Context: ["Bob"]'
    assert got["messages"][-1]["content"] == sentence


def nested(levels: int) -> Any:
    return {"a": nested(levels - 1)} if levels else {}


@in_one_test(
    ("action", "code", "message"),
    [
        ({"userAction": 1}, "MISUSE", "forwardedProps.a2uiAction.userAction must be an object."),
        (
            clicking(name="x" * 1_001)["a2uiAction"],
            "LIMIT_EXCEEDED",
            "name has more than 1000 characters.",
        ),
        (
            clicking(context={"a": "x" * 100_000})["a2uiAction"],
            "LIMIT_EXCEEDED",
            "more than 100000 bytes.",
        ),
        (clicking(context=nested(40))["a2uiAction"], "LIMIT_EXCEEDED", "has more than 32 levels."),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_a_click_that_cannot_be_read_is_refused_in_words(
    action: Any, code: str, message: str
) -> None:
    async with relaying(A2ui()) as (browser, provider):
        events = (await browser.run(forwardedProps={"a2uiAction": action})).events()
    assert (events[-1]["type"], events[-1]["code"], provider.requests) == ("RUN_ERROR", code, [])
    assert message in events[-1]["message"]


async def follow_up(browser: Any, provider: Any) -> tuple[list[Any], list[Any]]:
    """Click; return what the agent gets for it, and with the result of a tool that it calls."""
    start = {"type": "TOOL_CALL_START", "toolCallId": "w1", "toolCallName": "getWeather"}
    calls = [start, {"type": "TOOL_CALL_END", "toolCallId": "w1"}]
    fields = {"tools": [WEATHER], "forwardedProps": clicking()}
    hi = user("Hi", "u-1")
    first = await receive(browser, provider, *calls, messages=[hi], run="r1", **fields)
    messages = [hi, CALL, RESULT]
    second = await receive(browser, provider, messages=messages, run="r2", **fields)
    return first["messages"], second["messages"]


@in_one_test("settings", [CLIENT, SERVER], ids=["of the page", "of the server"])
async def test_a_click_stays_in_its_place_in_a_conversation(settings: Settings) -> None:
    async with relaying(A2ui(), settings=settings) as (browser, provider):
        first, second = await follow_up(browser, provider)
    assert second[:3] == first
    assert [message["role"] for message in second[3:]] == ["assistant", "tool"]


async def test_a_later_click_of_the_same_button_is_another_one() -> None:
    later_click = CLICK | {"timestamp": "2026-11-22T00:00:01.000Z"}
    later = {"a2uiAction": {"userAction": later_click}}
    said = {"id": "m-0", "role": "assistant", "content": "Hello"}
    async with relaying(A2ui()) as (browser, provider):
        one = await receive(browser, provider, messages=[], run="r1", forwardedProps=clicking())
        two = await receive(browser, provider, messages=[said], run="r2", forwardedProps=later)
    assert two["messages"] == [said, *pair(later_click, SENTENCE, ids_of(two["messages"]))]
    assert ids_of(two["messages"]) != ids_of(one["messages"])


async def test_a_click_is_neither_shown_nor_stored() -> None:
    async with relaying(A2ui(), settings=SERVER) as (browser, provider):
        await receive(browser, provider, messages=[], run="r1", forwardedProps=clicking())
        replay = await browser.connect()
        got = await receive(browser, provider, messages=[user("And?", "u-2")], run="r2")
    assert b"log_a2ui_event" not in replay.body
    assert [message["role"] for message in got["messages"]] == ["assistant", "user"]


def run_of(click: dict[str, Any], *messages: Message, **fields: Any) -> RunInput:
    properties = {"a2uiAction": {"userAction": click}}
    return RunInput(thread_id="t", run_id="r", messages=messages, properties=properties, **fields)


def text(id: str, role: Any = "user") -> TextMessage:
    return TextMessage(id=id, role=role, content=id)


def places(messages: Any) -> list[str]:
    """Return the messages in short: `*` for a click."""
    texts = [one for one in messages if isinstance(one, TextMessage) and one.content]
    return [
        one.id if one in texts else "*"
        for one in messages
        if one in texts or isinstance(one, ActionExecutionMessage)
    ]


def test_two_people_may_click_the_same_in_threads_of_the_same_name() -> None:
    log = ClickLog()
    log.add_click(run_of(CLICK, text("a"), user="ada"))
    again = log.add_click(run_of(CLICK, text("a"), text("b"), user="bob"))
    assert places(again) == ["a", "b", "*"]


def test_a_click_whose_message_is_gone_stays_where_it_was_counted() -> None:
    log = ClickLog()
    log.add_click(run_of(CLICK, text("a"), text("b")))
    again = log.add_click(run_of(CLICK, text("a"), text("c"), text("d")))
    assert places(again) == ["a", "c", "*", "d"]


def test_a_click_without_a_time_is_another_one_each_time() -> None:
    log, click = ClickLog(), {"name": "submit"}
    log.add_click(run_of(click, text("a")))
    again = log.add_click(run_of(click, text("a"), text("b")))
    assert places(again) == ["a", "b", "*"]


def test_an_agent_that_sent_the_click_to_the_page_does_not_get_it_twice() -> None:
    log = ClickLog()
    messages = log.add_click(run_of(CLICK, text("a")))
    assert log.add_click(run_of(CLICK, *messages, text("b"))) == (*messages, text("b"))


def test_the_oldest_clicks_are_forgotten_and_those_of_others_are_not() -> None:
    log = ClickLog(max_clicks=2)
    log.add_click(run_of(CLICK, text("a"), user="ada"))
    for number in range(3):
        log.add_click(run_of(CLICK | {"timestamp": str(number)}, text("a"), user="bob"))
    again = [
        places(log.add_click(run_of(CLICK | changes, text("a"), text("b"), user=name)))
        for name, changes in (("ada", {}), ("bob", {"timestamp": "2"}), ("bob", {"timestamp": "0"}))
    ]
    assert again == [["a", "*", "b"], ["a", "*", "b"], ["a", "b", "*"]]


async def test_our_own_model_gets_a_click_once() -> None:
    model = ScriptedAdapter(call("getWeather", id="w1"), say("Sunny"))
    async with browsing(model, a2ui=A2ui()) as browser:
        fields = {"tools": [WEATHER], "forwardedProps": clicking()}
        await browser.run(run="r1", **fields)
        await browser.run(run="r2", messages=[user(), CALL, RESULT], **fields)
    first, second = (
        [m.name for m in request.messages if isinstance(m, ActionExecutionMessage)]
        for request in model.requests
    )
    assert (first, second) == (["log_a2ui_event"], ["log_a2ui_event", "getWeather"])


async def test_a_graph_gets_a_click_once_in_its_own_thread() -> None:
    states: list[Any] = []

    def node(state: Any) -> dict[str, Any]:
        states.append(state["messages"])
        if len(states) == 2:
            calls = [{"id": "w1", "name": "getWeather", "args": {}, "type": "tool_call"}]
            return {"messages": [AIMessage("", id="a2", tool_calls=calls)]}
        return {"messages": [AIMessage("Hello", id=f"a{len(states)}")]}

    graph = StateGraph(MessagesState).add_node("node", node)
    graph.set_entry_point("node")
    agents = {"default": graph.compile(checkpointer=InMemorySaver())}
    async with browsing(agents=agents, a2ui=A2ui()) as browser:
        fields = {"tools": [WEATHER], "forwardedProps": clicking()}
        await browser.run(run="r1")
        await browser.run(run="r2", **fields)
        answer = await browser.run(run="r3", messages=[user(), CALL, RESULT], **fields)
        assert answer.types()[-1] == "RUN_FINISHED"
    kinds = ["human", "ai", "ai", "tool", "ai", "tool"]
    assert [message.type for message in states[-1]] == kinds
    assert states[-1][3].content == SENTENCE


async def test_an_agent_of_pydantic_ai_gets_a_click() -> None:
    conversations: list[Any] = []

    async def play(messages: Any, _: Any) -> Any:
        conversations.append(messages)
        yield "Hello"

    stream: Any = play
    agent: Any = Agent(FunctionModel(stream_function=stream))
    async with browsing(agents={"default": agent}, a2ui=A2ui()) as browser:
        (await browser.run(forwardedProps=clicking())).events()
    parts = [part for message in conversations[0] for part in message.parts]
    assert [part.content for part in parts if part.part_kind == "tool-return"] == [SENTENCE]


async def test_an_agent_of_the_sdk_gets_a_click() -> None:
    conversations: list[Any] = []

    def play(items: list[Any]) -> Any:
        conversations.append(items)
        return [sdk_model.text("Hello")]

    from agents import Agent as Desk

    agent = Desk[Any](name="Desk", model=sdk_model.PlayingModel(play))
    async with browsing(agents={"default": agent}, a2ui=A2ui()) as browser:
        (await browser.run(forwardedProps=clicking())).events()
    outputs = [one["output"] for one in conversations[0] if "output" in one]
    assert outputs == [SENTENCE]
