"""Agents of all kinds, asked by many people at once, in one process."""

import asyncio
import json
import re
from dataclasses import dataclass
from typing import Any

import pytest

from tests.extensions.frameworks.langgraph.asking import operator, state_of
from tests.extensions.frameworks.langgraph.everybody import KINDS, STATELESS, everybody
from tests.wire.client import HEADERS, Client
from tests.wire.documents import chat
from tests.wire.documents import user as user_v1
from tests.wire.merge import merge
from tests.wire_agui.http import Browser, text_of, user
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
