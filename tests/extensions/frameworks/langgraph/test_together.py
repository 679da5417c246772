"""Agents of all kinds, asked by many people at once, in one process."""

import asyncio
import json
import re
from dataclasses import dataclass
from typing import Any

import pytest

from copilot_runtime import Settings
from tests.extensions.frameworks.langgraph.asking import (
    Json,
    asked_v1,
    new_thread,
    operator,
    page,
    page_v1,
    state_of,
)
from tests.extensions.frameworks.langgraph.everybody import KINDS, STATELESS, everybody
from tests.wire.client import HEADERS, Client, chat, merge
from tests.wire.client import user as user_v1
from tests.wire_agui.http import Browser, Event, text_of, user
from tests.wire_agui.server import PATH, serving

pytestmark = pytest.mark.anyio

EACH = 40
"""How many people ask each agent."""


@dataclass(frozen=True)
class Heard:
    """What a person ends up with."""

    said: str
    topic: str | None
    numbers: frozenset[str]
    """Those of all questions that are named anywhere in the answer."""


def question(number: int) -> str:
    return f"question {number}"


def wanted(number: int) -> Heard:
    topic = None if kind(number) in STATELESS else question(number)
    return Heard(f"You said: {question(number)}", topic, frozenset([str(number)]))


def kind(number: int) -> str:
    return KINDS[number % len(KINDS)]


def thread(number: int) -> str:
    """Return a name that two people have for a thread of theirs with the same agent."""
    return f"thread {number // len(KINDS) // 2}"


async def by_agui(browser: Browser, number: int) -> Heard:
    person = browser.signed_in(f"person {number}")
    asked = [user(question(number), f"user-{number}")]
    answer = await person.run(
        agent=kind(number), thread=thread(number), run=f"run {number}", messages=asked
    )
    events = answer.events()
    assert events[-1]["type"] == "RUN_FINISHED", events[-1]
    ids = {(e.get("threadId"), e["runId"]) for e in events if "runId" in e}
    assert ids == {(thread(number), f"run {number}")}
    text = text_of(events)
    others = [event for event in events if event["type"] != "TEXT_MESSAGE_CONTENT"]
    return Heard(text.strip(), state_of(events).get("topic"), numbers_in([text, *others]))


async def by_v1(client: Client, number: int) -> Heard:
    asked = chat(
        user_v1(question(number), f"user-{number}"),
        threadId=thread(number),
        agentSession={"agentName": kind(number)},
    )
    headers = {**HEADERS, "authorization": f"Bearer person {number}"}
    answer = await client.ask(asked, headers=headers)
    response = merge(answer.payloads())["generateCopilotResponse"]
    messages: list[Any] = response["messages"]
    text = "".join(piece for message in messages for piece in message.get("content", ()))
    states = [json.loads(message["state"]) for message in messages if "state" in message]
    topic = states[-1].get("topic") if states else None
    return Heard(text.strip(), topic, numbers_in([text, *states, *response["metaEvents"]]))


def numbers_in(answer: Any) -> frozenset[str]:
    return frozenset(re.findall(r"question (\d+)", json.dumps(answer)))


async def test_everybody_gets_the_answer_to_their_own_question(langgraph: str) -> None:
    before = asyncio.all_tasks()
    count = EACH * len(KINDS)
    async with everybody(langgraph) as runtime:
        app = runtime.app(path=PATH)
        async with serving(app) as port:
            browser, client = Browser(port), Client(app)
            heard = await asyncio.gather(
                *(
                    # every other round of all kinds asks in the other protocol
                    by_v1(client, number) if number // len(KINDS) % 2 else by_agui(browser, number)
                    for number in range(count)
                )
            )
    async with operator(langgraph) as server:
        busy = await server.threads.search(status="busy")

    assert heard == [wanted(number) for number in range(count)]
    assert busy == []
    assert asyncio.all_tasks() == before


OUTCOME = Settings(threads="memory", interrupt_events="outcome")


def questions(events: list[Event]) -> list[Json]:
    """Return the interrupts with which a run ended."""
    return events[-1].get("outcome", {}).get("interrupts", [])


def answered(question: Json, payload: Any, status: str = "resolved") -> Json:
    return {"interruptId": question["id"], "status": status, "payload": payload}


async def test_an_agui_page_is_asked_and_answers(langgraph: str) -> None:
    thread = new_thread()
    async with page(langgraph, "asker", settings=OUTCOME) as browser:
        asked = (await browser.run(agent="asker", thread=thread)).events()
        [question] = questions(asked)
        resume = [answered(question, "Ada")]
        answer = await browser.run(agent="asker", thread=thread, run="r2", resume=resume)

    assert (question["message"], question["reason"]) == (
        "What is your name?",
        "langgraph:interrupt",
    )
    assert text_of(asked) == ""
    assert text_of(answer.events()) == "Hello Ada."
    assert state_of(answer.events()) == {"answers": ["Ada"]}
    assert questions(answer.events()) == []


async def test_a_page_written_for_node_is_asked_and_answers_by_a_command(langgraph: str) -> None:
    thread = new_thread()
    async with page(langgraph, "asker") as browser:
        asked = (await browser.run(agent="asker", thread=thread)).events()
        [question] = [event["value"] for event in asked if event.get("name") == "on_interrupt"]
        command = {"command": {"resume": "Ada", "interruptEvent": question}}
        answer = await browser.run(agent="asker", thread=thread, run="r2", forwardedProps=command)

    assert (question, questions(asked)) == ("What is your name?", [])
    assert text_of(answer.events()) == "Hello Ada."


async def test_a_v1_page_is_asked_and_answers(langgraph: str) -> None:
    thread = new_thread()
    async with page_v1(langgraph, "asker") as client:
        asked = await asked_v1(client, "asker", threadId=thread)
        [question] = asked["metaEvents"]
        meta = {"name": "LangGraphInterruptEvent", "value": question["value"], "response": "Ada"}
        answer = await asked_v1(client, "asker", threadId=thread, metaEvents=[meta])

    assert question["name"] == "LangGraphInterruptEvent"
    assert question["value"] == "What is your name?"
    texts = ["".join(message["content"]) for message in answer["messages"] if "content" in message]
    assert texts == ["Hello Ada."]
    assert answer["metaEvents"] == []


async def test_a_question_of_copilotkit_comes_with_what_to_show(langgraph: str) -> None:
    thread = new_thread()
    async with page_v1(langgraph, "approver") as client:
        asked = await asked_v1(client, "approver", threadId=thread)
        [question] = asked["metaEvents"]
        value = question["data"]["value"]
        meta = {"name": "CopilotKitLangGraphInterruptEvent", "value": value, "response": "yes"}
        answer = await asked_v1(client, "approver", threadId=thread, metaEvents=[meta])

    assert question["name"] == "CopilotKitLangGraphInterruptEvent"
    assert value == "Shall I send it?"
    [shown] = question["data"]["messages"]
    assert shown["content"] == ["Shall I send it?"]
    assert "You said yes." in json.dumps(answer["messages"])


async def test_two_questions_at_once_get_the_answer_that_is_theirs(langgraph: str) -> None:
    thread = new_thread()
    async with page(langgraph, "two_questions", settings=OUTCOME) as browser:
        asked = questions((await browser.run(agent="two_questions", thread=thread)).events())
        by_message = {question.get("message"): question for question in asked}
        resume = [answered(by_message[None], "glove"), answered(by_message["Left hand?"], 7)]
        answer = await browser.run(agent="two_questions", thread=thread, run="r2", resume=resume)

    assert state_of(answer.events()) == {"answers": ["left 7", "right glove"]}


async def test_one_of_two_questions_stays_open(langgraph: str) -> None:
    thread = new_thread()
    async with page_v1(langgraph, "two_questions") as client:
        await asked_v1(client, "two_questions", threadId=thread)
        meta = {
            "name": "LangGraphInterruptEvent",
            "value": '{"question":"Right?"}',
            "response": "x",
        }
        first = await asked_v1(client, "two_questions", threadId=thread, metaEvents=[meta])
        [left] = first["metaEvents"]
        second = await asked_v1(
            client, "two_questions", threadId=thread, metaEvents=[{**meta, "value": left["value"]}]
        )

    assert json.loads(left["value"])["question"] == "Left?"
    [*_, last] = [message for message in second["messages"] if "state" in message]
    assert json.loads(last["state"]) == {"answers": ["left x", "right x"]}


async def test_a_person_may_decline_to_answer(langgraph: str) -> None:
    thread = new_thread()
    async with page(langgraph, "asker", settings=OUTCOME) as browser:
        [question] = questions((await browser.run(agent="asker", thread=thread)).events())
        resume = [answered(question, None, "cancelled")]
        answer = await browser.run(agent="asker", thread=thread, run="r2", resume=resume)

    assert "__agui_cancelled__" in text_of(answer.events())


async def test_who_says_something_else_is_asked_again(langgraph: str) -> None:
    thread = new_thread()
    async with page(langgraph, "asker", settings=OUTCOME) as browser:
        first = questions((await browser.run(agent="asker", thread=thread)).events())
        messages = [user(), user("Never mind", "user-2")]
        again = await browser.run(agent="asker", thread=thread, run="r2", messages=messages)

    assert questions(again.events()) == first


async def test_an_answer_that_comes_twice_is_refused(langgraph: str) -> None:
    thread = new_thread()
    async with page(langgraph, "asker", settings=OUTCOME) as browser:
        [question] = questions((await browser.run(agent="asker", thread=thread)).events())
        resume = [answered(question, "Ada")]
        await browser.run(agent="asker", thread=thread, run="r2", resume=resume)
        again = await browser.run(agent="asker", thread=thread, run="r3", resume=resume)
        after = await browser.run(
            agent="asker", thread=thread, run="r4", messages=[user("Again", "user-2")]
        )

    error = again.events()[-1]
    assert (error["type"], error["code"]) == ("RUN_ERROR", "MISUSE")
    assert len(questions(after.events())) == 1  # the thread has taken no harm
