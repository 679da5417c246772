"""What graphs do to a conversation that nobody would think of first; the next turn works."""

import json
from typing import Any

import pytest

from copilot_runtime import action
from tests.extensions.frameworks.langgraph.asking import (
    COLOR,
    Json,
    asked_v1,
    new_thread,
    operator,
    page,
    page_v1,
    shown,
    state_of,
    texts,
)
from tests.wire.client import browser_action
from tests.wire.client import user as user_v1
from tests.wire_agui.http import text_of, user

pytestmark = pytest.mark.anyio


def _call_v1(id: str, name: str) -> Json:
    made = {"name": name, "arguments": "{}"}
    return {"id": id, "createdAt": "2026-01-01T00:00:00.000Z", "actionExecutionMessage": made}


async def _kept(url: str, graph: str) -> list[Any]:
    """Return the messages of the one thread that a graph has."""
    async with operator(url) as server:
        [thread] = await server.threads.search(metadata={"graph_id": graph})
    assert isinstance(thread["values"], dict)
    return thread["values"]["messages"]


async def test_an_answer_that_a_node_rewrites_is_rewritten_on_the_page(langgraph: str) -> None:
    before = [user("Hi")]
    async with page(langgraph, "reviser") as browser:
        answer = await browser.run(agent="reviser", thread=new_thread(), messages=before)

    assert texts(shown(before, answer.events())) == ["Hi", "The final word."]


async def test_a_question_that_a_node_rewrites_is_not_one_that_the_person_has_edited(
    langgraph: str,
) -> None:
    thread = new_thread()
    asked = [user_v1(f"My name is Ann {number}", f"u{number}") for number in range(3)]
    async with page_v1(langgraph, "redactor") as client:
        for number in range(3):  # a v1 page goes on showing what was written
            await asked_v1(client, "redactor", *asked[: number + 1], threadId=thread)

    assert texts(await _kept(langgraph, "redactor")) == [
        *("[redacted]", "That makes 1."),
        *("[redacted]", "That makes 3."),
        *("[redacted]", "That makes 5."),
    ]


async def test_an_edit_counts_also_with_the_old_answer_still_behind_it(langgraph: str) -> None:
    thread = new_thread()
    async with page(langgraph, "chat") as browser:
        before = [user("One")]
        answer = await browser.run(agent="chat", thread=thread, messages=before)
        edited = [user("Changed"), *shown(before, answer.events())[1:]]
        again = await browser.run(agent="chat", thread=thread, messages=edited)

    assert texts(shown(edited, again.events())) == ["Changed", "You said: Changed "]


async def test_a_graph_without_messages_leaves_the_page_its_own(langgraph: str) -> None:
    before = [user("Hi")]
    async with page(langgraph, "wordless") as browser:
        answer = await browser.run(agent="wordless", thread=new_thread(), messages=before)

    assert shown(before, answer.events()) == before


async def test_a_message_without_an_id_is_shown_once(langgraph: str) -> None:
    thread = new_thread()
    before = [user("Hi")]
    async with page(langgraph, "unnamed") as browser:
        answer = await browser.run(agent="unnamed", thread=thread, messages=before)
        after = shown(before, answer.events())
        again = await browser.run(agent="unnamed", thread=thread, messages=after)

    assert texts(after) == ["Hi", "I have no name."]
    assert texts(shown(after, again.events())) == ["Hi", "I have no name."]


async def test_a_call_that_failed_is_closed_before_the_next_question(langgraph: str) -> None:
    thread = new_thread()
    before = [user("Call")]
    async with page(langgraph, "fragile") as browser:
        answer = await browser.run(agent="fragile", thread=thread, messages=before)
        after = [*shown(before, answer.events()), user("And now?", "user-2")]
        again = await browser.run(agent="fragile", thread=thread, messages=after)

    assert answer.types()[-1] == "RUN_ERROR"
    assert text_of(again.events()) == "Everything is in order."
    # the page may still answer the call
    assert "interrupted" not in " ".join(texts(shown(after, again.events())))


async def test_a_call_that_broke_off_is_not_sent_as_if_it_had_been_made(langgraph: str) -> None:
    messages = [user_v1("Hi"), _call_v1("half-a-call", "fragile"), user_v1("And now?", "user-2")]
    async with page_v1(langgraph, "fragile") as client:
        response = await asked_v1(client, "fragile", *messages, threadId=new_thread())

    said = ["".join(message["content"]) for message in response["messages"] if "content" in message]
    assert said == ["Everything is in order."]


async def test_what_a_router_calls_is_not_left_on_the_page(langgraph: str) -> None:
    thread = new_thread()
    before = [user("Hi")]
    async with page(langgraph, "router") as browser:
        answer = await browser.run(agent="router", thread=thread, messages=before)

    after = shown(before, answer.events())
    assert texts(after) == ["Hi", "Off it goes."]
    assert not any("toolCalls" in message for message in after)


async def test_an_answer_that_is_to_be_quiet_is_quiet_also_in_one_piece(langgraph: str) -> None:
    async with page_v1(langgraph, "whisperer") as client:
        response = await asked_v1(client, "whisperer", threadId=new_thread())

    assert [message for message in response["messages"] if "content" in message] == []


async def test_a_node_that_hands_over_to_another_graph_has_been_left(langgraph: str) -> None:
    async with page(langgraph, "handing_over") as browser:
        answer = await browser.run(agent="handing_over", thread=new_thread())

    steps = [(e["type"], e["stepName"]) for e in answer.events() if "stepName" in e]
    assert steps == [
        ("STEP_STARTED", "clerk"),
        ("STEP_STARTED", "hand_over"),
        ("STEP_FINISHED", "hand_over"),
        ("STEP_FINISHED", "clerk"),
        ("STEP_STARTED", "expert"),
        ("STEP_FINISHED", "expert"),
    ]


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
