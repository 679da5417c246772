"""A graph calls actions of the page and of the runtime; what it emits by hand reaches the page."""

import json
from typing import Any

import pytest

from copilot_runtime import action
from tests.extensions.frameworks.langgraph.asking import (
    COLOR,
    Json,
    asked_v1,
    new_thread,
    page,
    page_v1,
    shown,
    state_of,
    texts,
)
from tests.wire.documents import browser_action
from tests.wire.documents import user as user_v1
from tests.wire_agui.http import text_of, user

pytestmark = pytest.mark.anyio


async def test_a_graph_calls_the_browser_and_goes_on_with_what_came_of_it(langgraph: str) -> None:
    thread = new_thread()
    async with page(langgraph, "painter") as browser:
        before = [user("Red, please")]
        answer = await browser.run(agent="painter", thread=thread, messages=before, tools=[COLOR])
        after = shown(before, answer.events())
        [call] = after[-1]["toolCalls"]
        done = {"id": "done-1", "role": "tool", "toolCallId": call["id"], "content": "painted"}
        follow_up = await browser.run(
            agent="painter", thread=thread, run="r2", messages=[*after, done], tools=[COLOR]
        )

    assert after[-1]["content"] == "Let me. "
    assert call["function"] == {"name": "setColor", "arguments": '{"color":"red"}'}
    assert text_of(follow_up.events()) == "The browser said painted."


async def test_a_v1_page_runs_the_action_and_asks_again(langgraph: str) -> None:
    thread = new_thread()
    offered: Json = {"frontend": {"actions": [browser_action()]}, "threadId": thread}
    async with page_v1(langgraph, "painter") as client:
        first = await asked_v1(client, "painter", user_v1("Red"), **offered)
        [call] = [message for message in first["messages"] if "arguments" in message]
        made = {"name": "setColor", "arguments": "".join(call["arguments"])}
        made["parentMessageId"] = call["parentMessageId"]
        result = {"actionExecutionId": call["id"], "actionName": "setColor", "result": "painted"}
        messages: list[Json] = [
            user_v1("Red"),
            _v1(call["id"], actionExecutionMessage=made),
            _v1("result-1", resultMessage=result),
        ]
        second = await asked_v1(client, "painter", *messages, **offered)

    assert json.loads(made["arguments"]) == {"color": "red"}
    [*_, waiting] = [message for message in first["messages"] if "state" in message]
    assert (waiting["active"], waiting["running"]) == (False, True)
    assert _texts(second) == ["The browser said painted."]


def _v1(id: str, **message: Any) -> Json:
    return {"id": id, "createdAt": "2026-01-01T00:00:00.000Z", **message}


def _texts(response: Json) -> list[str]:
    return ["".join(message["content"]) for message in response["messages"] if "content" in message]


async def test_a_graph_calls_an_action_of_the_runtime(langgraph: str) -> None:
    @action(name="setColor")
    def set_color(color: str) -> str:
        """Paint."""
        return f"all {color}"

    async with page(langgraph, "painter", actions=[set_color]) as browser:
        answer = await browser.run(agent="painter", thread=new_thread())

    assert text_of(answer.events()) == "Let me. The browser said all red."


async def test_a_node_speaks_calls_and_shows_its_state_by_hand(langgraph: str) -> None:
    before = [user("Go")]
    async with page(langgraph, "emitter") as browser:
        answer = await browser.run(agent="emitter", thread=new_thread(), messages=before)

    events = answer.events()
    assert text_of(events) == "Step one."
    assert "secret" not in json.dumps(events)
    assert {"progress": 1} in [e["snapshot"] for e in events if e["type"] == "STATE_SNAPSHOT"]
    assert [e["toolCallName"] for e in events if e["type"] == "TOOL_CALL_START"] == ["show", "loud"]
    custom = [(e["name"], e["value"]) for e in events if e["type"] == "CUSTOM"]
    assert custom == [("custom", {"note": "from a writer"}), ("Exit", True)]
    # the state has the text under an id of its own, and the page once; the call waits for the page
    after = shown(before, events)
    assert [text for text in texts(after) if text] == ["Go", "Step one."]
    assert [call["id"] for m in after for call in m.get("toolCalls", ())] == ["by-hand"]


async def test_what_was_said_by_hand_is_not_sent_back_as_something_new(langgraph: str) -> None:
    thread = new_thread()
    async with page_v1(langgraph, "emitter") as client:
        first = await asked_v1(client, "emitter", user_v1("Go"), threadId=thread)
        [said] = [message for message in first["messages"] if "content" in message]
        again: list[Json] = [
            user_v1("Go"),
            _v1(said["id"], textMessage={"role": "assistant", "content": "Step one."}),
            user_v1("More", "user-2"),
        ]
        second = await asked_v1(client, "emitter", *again, threadId=thread)

    [*_, last] = [message for message in second["messages"] if "state" in message]
    told = [m.get("content") for m in json.loads(last["state"])["messages"]]
    assert [text for text in told if text] == ["Go", "Step one.", "More", "Step one."]


async def test_the_arguments_of_a_call_are_shown_as_state_while_they_come(langgraph: str) -> None:
    async with page(langgraph, "planner") as browser:
        answer = await browser.run(agent="planner", thread=new_thread())

    events = answer.events()
    places = [at for at, event in enumerate(events) if event["type"].startswith("STATE_")]
    assert [state_of(events[: at + 1]) for at in places] == [
        {"steps": ["dig"]},
        {"steps": ["dig", "plant"]},
    ]
