"""Agents that have one id for all their answers, or send an answer again."""

from collections.abc import AsyncIterator, Sequence

import pytest

from copilot_runtime import RunInput, action
from tests.agents.remote import text
from tests.agents.test_call_ids import call, turn
from tests.extensions.frameworks.langgraph.asking import Json, texts
from tests.in_one_test import in_one_test
from tests.wire_agui.http import user
from tests.wire_agui.server import browsing

pytestmark = pytest.mark.anyio

DONE = {"id": "done", "role": "tool", "toolCallId": "call_0", "content": "seen"}
CALL = call({"n": 1}, parentMessageId="msg-1")


@action
def look(n: int) -> str:
    """Look."""
    return f"found {n}"


def answering(*answers: Sequence[Json]):
    """Return an agent with these answers, one to each request."""
    left = iter(answers)

    async def answer(run: RunInput) -> AsyncIterator[Json]:
        for event in next(left):
            yield event

    return answer


async def test_answers_with_the_same_id_are_messages_of_their_own() -> None:
    pieces = [{"type": "TEXT_MESSAGE_CHUNK", "messageId": "msg-1", "delta": it} for it in "Yes"]
    agent = answering(text("msg-1", "One"), pieces, text("msg-1", "Three"))
    async with browsing(agents={"it": agent}) as browser:
        page: list[Json] = []
        for number, question in enumerate("ABC"):
            page = await turn(browser, page, user(question, f"u{number}"), number)
        stored = (await browser.ask("GET", "/threads/t/messages")).json()["messages"]

    assert texts(page) == ["A", "One", "B", "Yes", "C", "Three"]
    assert [one["id"] for one in page[1::2]] == ["msg-1", "msg-1-2", "msg-1-3"]
    assert texts(stored) == texts(page)


@in_one_test(
    ("after", "expected"),
    [
        ([*text("msg-1", "Let ", "me"), *CALL, *text("end", "Sunny")], ["Let me", "seen", "Sunny"]),
        (text("msg-1", "Let us go"), ["Let me", "seen", "Let us go"]),
        (text("msg-1", "Let"), ["Let me", "seen", "Let"]),
    ],
)
async def test_a_message_that_is_sent_again_after_a_result_is_shown_once(
    after: Sequence[Json], expected: Sequence[str]
) -> None:
    agent = answering([*text("msg-1", "Let me"), *CALL], after)
    async with browsing(agents={"it": agent}) as browser:
        page = await turn(browser, [], user("Weather?"), 1)
        page = await turn(browser, page, DONE, 2)

    assert texts(page)[1:] == expected


async def test_an_answer_after_an_action_of_the_server_is_a_message_of_its_own() -> None:
    agent = answering([*text("msg-1", "Let me"), *CALL], text("msg-1", "Sunny"))
    async with browsing(agents={"it": agent}, actions=[look]) as browser:
        page = await turn(browser, [], user("Weather?"), 1)

    assert texts(page)[1:] == ["Let me", "found 1", "Sunny"]


async def test_a_snapshot_with_two_answers_of_the_same_id_keeps_both() -> None:
    memory = [user("A", "u0"), {"id": "msg-1", "role": "assistant", "content": "One"}]
    memory += [user("B", "u1"), {"id": "msg-1", "role": "assistant", "content": "Two"}]
    snapshot: Json = {"type": "MESSAGES_SNAPSHOT", "messages": memory}
    agent = answering(text("msg-1", "One"), [*text("msg-1", "Two"), snapshot])
    async with browsing(agents={"it": agent}) as browser:
        page = await turn(browser, [], user("A", "u0"), 0)
        page = await turn(browser, page, user("B", "u1"), 1)

    assert [one["id"] for one in page] == ["u0", "msg-1", "u1", "msg-1-2"]
