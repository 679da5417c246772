"""A function answers: with text, with events of ours, with events of AG-UI."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from ag_ui.core import CustomEvent, EventType, StateSnapshotEvent

from copilot_runtime import RunInput, action
from copilot_runtime.agents.function import FunctionAgent
from copilot_runtime.api.events import (
    ActionExecutionArgs,
    ActionExecutionEnd,
    ActionExecutionStart,
    AgentState,
    Interrupt,
    RunFinished,
    StepStarted,
)
from copilot_runtime.api.messages import ResultMessage, TextMessage
from copilot_runtime.base.errors import Refused
from tests.agents.pages import asked_v1, failure, page_v1, results, texts_v1
from tests.in_one_test import in_one_test
from tests.wire_agui.http import text_of
from tests.wire_agui.server import browsing

pytestmark = pytest.mark.anyio

Pieces = AsyncGenerator[Any, None]


async def echo(run: RunInput) -> Pieces:
    """Says what it hears."""
    said = [message.content for message in run.messages if isinstance(message, TextMessage)]
    yield "You said "
    yield said[-1]


async def test_pieces_of_text_are_one_message() -> None:
    async with browsing(agents={"it": echo}) as browser:
        answer = await browser.run(agent="it")

    assert text_of(answer.events()) == "You said Hi"
    assert answer.types() == [
        "RUN_STARTED",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "RUN_FINISHED",
    ]


async def test_a_v1_page_hears_it_too() -> None:
    async with page_v1(echo) as client:
        assert texts_v1(await asked_v1(client)) == ["You said Hi"]


async def returning(run: RunInput) -> str:
    return f"Thread {run.thread_id}"


def returning_slowly(run: RunInput) -> str:
    return f"Thread {run.thread_id}"


class Answering:
    async def __call__(self, run: RunInput) -> str:
        return f"Thread {run.thread_id}"


@in_one_test("function", [returning, returning_slowly, Answering()])
async def test_what_a_function_returns_is_its_answer(function: Any) -> None:
    async with browsing(agents={"it": function}) as browser:
        assert text_of((await browser.run(agent="it")).events()) == "Thread t"


async def test_events_of_three_kinds_mix_with_text() -> None:
    async def mixed(run: RunInput) -> Pieces:
        yield "One"
        yield AgentState(agent="it", state={"count": 1})
        yield " text"
        yield {"type": "STATE_DELTA", "delta": [{"op": "add", "path": "/more", "value": 2}]}
        yield StepStarted(name="second")
        yield {"type": "STEP_FINISHED", "stepName": "second"}
        yield StateSnapshotEvent(type=EventType.STATE_SNAPSHOT, snapshot={"count": 3})
        yield CustomEvent(type=EventType.CUSTOM, name="note", value=1)
        yield "Another"

    async with browsing(agents={"it": mixed}) as browser:
        events = (await browser.run(agent="it", state={})).events()

    said = [(e["type"], e.get("delta")) for e in events if e["type"].startswith("TEXT")]
    assert [kind for kind, _ in said].count("TEXT_MESSAGE_START") == 2
    assert [delta for kind, delta in said if kind == "TEXT_MESSAGE_CONTENT"] == [
        "One",
        " text",
        "Another",
    ]
    assert events[-1]["type"] == "RUN_FINISHED"
    assert [e["name"] for e in events if e["type"] == "CUSTOM"] == ["note"]


async def test_a_call_of_the_server_is_run_and_the_function_asked_again() -> None:
    @action
    def weigh(fruit: str) -> str:
        return f"{fruit}: 80 g"

    async def shop(run: RunInput) -> Pieces:
        told = [one.result for one in run.messages if isinstance(one, ResultMessage)]
        if told:
            yield f"It is {told[0]}"
            return
        yield ActionExecutionStart(call_id="c1", name="weigh")
        yield ActionExecutionArgs(call_id="c1", delta='{"fruit": "apple"}')
        yield ActionExecutionEnd(call_id="c1")

    async with browsing(agents={"it": shop}, actions=[weigh]) as browser:
        events = (await browser.run(agent="it")).events()

    assert results(events) == ["apple: 80 g"]
    assert text_of(events) == "It is apple: 80 g"


async def test_a_stopped_function_is_closed() -> None:
    waits, closed = asyncio.Event(), asyncio.Event()

    async def endless(run: RunInput) -> Pieces:
        try:
            yield "Once upon"
            waits.set()
            await asyncio.Event().wait()
        finally:
            closed.set()

    async with browsing(agents={"it": endless}) as browser, browser.running(agent="it") as answer:
        await answer.until("TEXT_MESSAGE_CONTENT")
        await waits.wait()
        await browser.stop()
        await closed.wait()


@in_one_test("end", [RunFinished(result={"done": True}), {"type": "RUN_FINISHED"}])
async def test_what_comes_after_the_end_is_not_asked_for(end: Any) -> None:
    went_on = False
    left = asyncio.Event()

    async def talkative(run: RunInput) -> Pieces:
        try:
            yield end
            nonlocal went_on
            went_on = True
        finally:
            left.set()

    async with browsing(agents={"it": talkative}) as browser:
        events = (await browser.run(agent="it")).events()

    assert events[-1]["type"] == "RUN_FINISHED"
    assert left.is_set()
    assert not went_on


async def failing(run: RunInput) -> Pieces:
    yield "Half"
    raise RuntimeError("password=hunter2")


async def refusing(run: RunInput) -> Pieces:
    yield "Half"
    raise Refused("Not for you.")


async def mumbling(run: RunInput) -> Pieces:
    yield 42


async def forgetful(run: RunInput) -> Pieces:
    yield {"content": "no type"}


async def misspelling(run: RunInput) -> Pieces:
    yield {"type": "TEXT_MESSAGE_CONTENT", "delta": "no id"}


@in_one_test(
    ("function", "message"),
    [
        (failing, "The run failed. The server's log says why."),
        (refusing, "Not for you."),
        (mumbling, "The agent 'mumbling' yielded a value of the type 'int'"),
        (forgetful, "The agent 'forgetful' yielded a value of the type 'dict'"),
        (misspelling, "The agent 'it' sent something that cannot be read."),
    ],
)
async def test_a_failure_is_a_sentence(function: Any, message: str) -> None:
    async with browsing(agents={"it": function}) as browser:
        events = (await browser.run(agent="it")).events()

    assert failure(events).startswith(message)
    assert "hunter2" not in str(events)


async def test_two_runs_at_once_know_nothing_of_each_other() -> None:
    both = asyncio.Barrier(2)

    async def patient(run: RunInput) -> Pieces:
        yield f"{run.thread_id} begins, "
        await both.wait()
        yield f"{run.thread_id} ends"

    async with browsing(agents={"it": patient}) as browser:
        answers = await asyncio.gather(
            browser.run(agent="it", thread="one", run="r1"),
            browser.run(agent="it", thread="two", run="r2"),
        )

    assert [text_of(answer.events()) for answer in answers] == [
        "one begins, one ends",
        "two begins, two ends",
    ]


def test_its_docstring_is_what_clients_are_told() -> None:
    assert FunctionAgent(echo).description == "Says what it hears."


async def ask(run: RunInput) -> Pieces:
    if run.resume:
        yield f"The answer is {run.resume[0].payload!r}."
    else:
        yield Interrupt(interrupt_id="i-1", value="How many?")


@in_one_test(
    ("text", "payload"),
    [("yes", "yes"), ('{"approved":true}', {"approved": True}), ("7", 7)],
)
async def test_the_answers_of_all_pages_are_in_one_field(text: str, payload: Any) -> None:
    async with page_v1(ask) as client:
        [question] = (await asked_v1(client))["metaEvents"]
        meta = {"name": "LangGraphInterruptEvent", "value": question["value"], "response": text}
        old = texts_v1(await asked_v1(client, metaEvents=[meta]))
    async with browsing(agents={"it": ask}) as browser:
        await browser.run(agent="it")
        resume = [{"interruptId": "i-1", "status": "resolved", "payload": payload}]
        new = text_of((await browser.run(agent="it", run="r2", resume=resume)).events())

    assert old == [new] == [f"The answer is {payload!r}."]
