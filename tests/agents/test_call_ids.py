"""Agents that number the calls of each answer from zero, or send a call again."""

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from copilot_runtime import RunInput
from copilot_runtime.api.messages import ActionExecutionMessage, ResultMessage
from tests.extensions.frameworks.langgraph.asking import Json, shown
from tests.wire_agui.http import Browser, user
from tests.wire_agui.server import browsing

pytestmark = pytest.mark.anyio


def call(arguments: Any, *, id: str = "call_0", **start: Any) -> list[Json]:
    """Return a whole call in AG-UI, its arguments in two pieces."""
    text = json.dumps(arguments)
    return [
        {"type": "TOOL_CALL_START", "toolCallId": id, "toolCallName": "look", **start},
        {"type": "TOOL_CALL_ARGS", "toolCallId": id, "delta": text[:3]},
        {"type": "TOOL_CALL_ARGS", "toolCallId": id, "delta": text[3:]},
        {"type": "TOOL_CALL_END", "toolCallId": id},
    ]


def result(content: str, message_id: str, id: str = "call_0") -> Json:
    return {
        "type": "TOOL_CALL_RESULT",
        "messageId": message_id,
        "toolCallId": id,
        "content": content,
    }


def calls(messages: Sequence[Json]) -> dict[str, tuple[Any, str]]:
    """Return the arguments and the result of each call on a page, by its id."""
    results = {one["toolCallId"]: one["content"] for one in messages if one["role"] == "tool"}
    found = [call for message in messages for call in message.get("toolCalls", ())]
    assert len({one["id"] for one in found}) == len(found)
    return {
        one["id"]: (json.loads(one["function"]["arguments"]), results.get(one["id"], ""))
        for one in found
    }


async def turn(browser: Browser, page: Sequence[Json], new: Json, number: int) -> list[Json]:
    """Send a new message; return the messages of the page after the answer."""
    messages = [*page, new]
    answer = await browser.run(agent="it", run=f"r{number}", messages=messages)
    assert answer.types()[-1] == "RUN_FINISHED"
    return shown(messages, answer.events())


async def test_calls_with_the_same_id_keep_their_arguments_and_results() -> None:
    requests: list[RunInput] = []

    async def numbering(run: RunInput) -> AsyncIterator[Json]:
        requests.append(run)
        number = len(requests)
        for event in (*call({"n": number}), result(f"found {number}", "call_0-result")):
            yield event

    async with browsing(agents={"it": numbering}) as browser:
        page: list[Json] = []
        for number in (1, 2, 3):
            page = await turn(browser, page, user("Look", f"u{number}"), number)
        stored = (await browser.ask("GET", "/threads/t/messages")).json()["messages"]

    expected = {
        "call_0": ({"n": 1}, "found 1"),
        "call_0-2": ({"n": 2}, "found 2"),
        "call_0-3": ({"n": 3}, "found 3"),
    }
    assert calls(page) == expected
    assert {one["id"]: one["args"] for m in stored for one in m.get("toolCalls", ())} == {
        id: json.dumps(arguments) for id, (arguments, _) in expected.items()
    }
    sent = requests[-1].messages
    assert [
        (one.id, json.loads(one.arguments))
        for one in sent
        if isinstance(one, ActionExecutionMessage)
    ] == [("call_0", {"n": 1}), ("call_0-2", {"n": 2})]
    assert [(one.call_id, one.result) for one in sent if isinstance(one, ResultMessage)] == [
        ("call_0", "found 1"),
        ("call_0-2", "found 2"),
    ]


async def test_two_calls_of_one_answer_with_the_same_id_get_their_results_in_order() -> None:
    async def twice(run: RunInput) -> AsyncIterator[Json]:
        results = [result("one", "result 1"), result("two", "result 2")]
        for event in (*call({"n": 1}), *call({"n": 2}), *results):
            yield event

    async with browsing(agents={"it": twice}) as browser:
        page = await turn(browser, [], user("Look"), 1)

    assert calls(page) == {"call_0": ({"n": 1}, "one"), "call_0-2": ({"n": 2}, "two")}


async def test_a_call_that_is_sent_again_after_its_result_is_shown_once() -> None:
    async def repeating(run: RunInput) -> AsyncIterator[Json]:
        for event in call({"n": 1}, parentMessageId="answer"):
            yield event

    async with browsing(agents={"it": repeating}) as browser:
        page = await turn(browser, [], user("Look"), 1)
        done = {"id": "done", "role": "tool", "toolCallId": "call_0", "content": "seen"}
        after = await turn(browser, page, done, 2)

    assert calls(after) == {"call_0": ({"n": 1}, "seen")}


async def test_a_call_that_comes_again_with_other_arguments_is_another_call() -> None:
    async def counting(run: RunInput) -> AsyncIterator[Json]:
        for event in call({"n": len(run.messages)}, parentMessageId="answer"):
            yield event

    async with browsing(agents={"it": counting}) as browser:
        page = await turn(browser, [], user("Look"), 1)
        done = {"id": "done", "role": "tool", "toolCallId": "call_0", "content": "seen"}
        after = await turn(browser, page, done, 2)

    assert calls(after) == {"call_0": ({"n": 1}, "seen"), "call_0-2": ({"n": 3}, "")}


async def test_a_snapshot_with_two_calls_of_the_same_id_keeps_both() -> None:
    def message(id: str, number: int) -> list[Json]:
        function = {"name": "look", "arguments": json.dumps({"n": number})}
        made = {"id": "call_0", "type": "function", "function": function}
        done = {"id": f"{id}-done", "role": "tool", "toolCallId": "call_0", "content": str(number)}
        return [{"id": id, "role": "assistant", "toolCalls": [made]}, done]

    async def remembering(run: RunInput) -> AsyncIterator[Json]:
        yield {
            "type": "MESSAGES_SNAPSHOT",
            "messages": [user("Look"), *message("a", 1), *message("b", 2)],
        }

    async with browsing(agents={"it": remembering}) as browser:
        page = await turn(browser, [], user("Look"), 1)

    assert calls(page) == {"call_0": ({"n": 1}, "1"), "call_0-2": ({"n": 2}, "2")}
