"""A tool of a pydantic-ai agent waits for a person, who answers on a page of either protocol."""

from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo

from tests.agents.pages import (
    answered,
    asked_v1,
    failure,
    followed_up,
    page_v1,
    questions,
    texts_v1,
)
from tests.extensions.frameworks.test_pydantic_ai import Pieces, agent_of, called, returned
from tests.in_one_test import in_one_test
from tests.wire.client import user as user_v1
from tests.wire_agui.http import text_of
from tests.wire_agui.server import browsing

pytestmark = pytest.mark.anyio


def careful() -> Agent[Any, Any]:
    async def play(messages: list[ModelMessage], info: AgentInfo) -> Pieces:
        if told := returned(messages):
            yield f"Then: {told[-1]}"
        else:
            yield called("launch", '{"rocket": "A"}')

    agent = agent_of(play)

    @agent.tool_plain(requires_approval=True)
    def launch(rocket: str) -> str:
        return f"{rocket} is gone"

    return agent


@in_one_test(
    ("payload", "then"),
    [
        ({"approved": True}, "Then: A is gone"),
        (True, "Then: A is gone"),
        ({"approved": True, "editedArgs": {"rocket": "B"}}, "Then: B is gone"),
        ({"approved": False, "reason": "Too windy"}, "Then: Too windy"),
    ],
)
async def test_a_tool_may_wait_for_a_person(payload: Any, then: str) -> None:
    async with browsing(agents={"it": careful()}) as browser:
        asked = (await browser.run(agent="it")).events()
        [question] = questions(asked)
        again = await browser.run(
            agent="it",
            run="r2",
            messages=followed_up(asked, "")[:2],
            resume=[answered(question, payload)],
        )

    assert question["message"] == 'Approve launch({"rocket":"A"})?'
    assert text_of(again.events()) == then


async def test_a_page_may_write_the_answer_down_as_the_result_of_the_call() -> None:
    async with browsing(agents={"it": careful()}) as browser:
        asked = (await browser.run(agent="it")).events()
        [question] = questions(asked)
        again = await browser.run(
            agent="it",
            run="r2",
            messages=followed_up(asked, '{"approved":true}'),
            resume=[answered(question, {"approved": True})],
        )
        done = {"id": "done", "role": "tool", "toolCallId": "c1", "content": "A is gone"}
        messages = [*followed_up(asked, '{"approved":true}'), done]
        later = await browser.run(agent="it", run="r3", messages=messages)

    assert text_of(again.events()) == "Then: A is gone"
    assert text_of(later.events()) == "Then: A is gone"


async def test_an_answer_that_says_neither_yes_nor_no_launches_nothing() -> None:
    async with browsing(agents={"it": careful()}) as browser:
        asked = (await browser.run(agent="it")).events()
        [question] = questions(asked)
        again = await browser.run(
            agent="it",
            run="r2",
            messages=followed_up(asked, "")[:2],
            resume=[answered(question, "perhaps")],
        )

    assert failure(again.events()) == (
        "The agent cannot go on with this answer: $: 'perhaps' is not of type 'object'"
    )


async def test_a_person_answers_on_a_v1_page() -> None:
    async with page_v1(careful()) as client:
        asked = await asked_v1(client)
        [question] = asked["metaEvents"]
        [call] = [message for message in asked["messages"] if "arguments" in message]
        execution = {
            "id": call["id"],
            "createdAt": "2026-01-01T00:00:00.000Z",
            "actionExecutionMessage": {
                "name": call["name"],
                "arguments": "".join(call["arguments"]),
            },
        }
        meta = {
            "name": "LangGraphInterruptEvent",
            "value": question["value"],
            "response": "true",
        }
        answer = await asked_v1(client, user_v1(), execution, metaEvents=[meta])

    assert texts_v1(answer) == ["Then: A is gone"]
