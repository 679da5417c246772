"""A task's assistant asks a person: the plan asks in its place, and hands it the answer."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from copilot_runtime import Settings
from copilot_runtime.api import Agent, RunInput
from copilot_runtime.api.events import (
    ActionExecutionEnd,
    ActionExecutionResult,
    ActionExecutionStart,
    Events,
    Interrupt,
)
from copilot_runtime.api.messages import Message, ResultMessage, TextMessage, new_id
from copilot_runtime.extensions.planner.sqlite import SqlitePlanLog
from copilot_runtime.testing import call, say
from tests.agents.pages import GIVEN, answered, asked_v1, failure, page_v1, questions, texts_v1
from tests.extensions.frameworks.langgraph import graphs
from tests.extensions.planner.crew import ScriptedAgent, build_planner, write_plan
from tests.in_one_test import in_one_test
from tests.wire_agui.http import Event, run_input, text_of, user
from tests.wire_agui.server import browsing

pytestmark = pytest.mark.anyio


def build_graph(graph: Any = graphs.asker) -> Any:
    """Return a graph of a server that outlives ours."""
    return graph.builder.compile(checkpointer=InMemorySaver())


class Clerk(Agent):
    """Asks, as agents of other servers do that keep nothing: all is in the conversation."""

    def __init__(self) -> None:
        self.runs: list[RunInput] = []

    async def run(self, run: RunInput) -> Events:
        self.runs.append(run)
        if not run.resume:
            id = new_id()
            yield ActionExecutionStart(call_id=id, name="look")
            yield ActionExecutionEnd(call_id=id)
            yield ActionExecutionResult(call_id=id, name="look", result="seen")
            yield Interrupt(interrupt_id="", value={"amount": 12}, reason="payment", call_id=id)
            return
        [answer] = run.resume
        for event in say(f"{answer.status} {answer.value} {answer.payload}"):
            yield event


@asynccontextmanager
async def restart(path: Path, agents: Mapping[str, Any], *plan: Any) -> AsyncGenerator[Any, None]:
    """Yield a page of a server with the plans of the one before it."""
    agent = build_planner(agents, *plan, log=SqlitePlanLog(path / "plans.db"))
    settings = Settings(threads=f"sqlite:{path / 'threads.db'}")
    async with browsing(agents={"it": agent}, settings=settings) as browser:
        await agent.open()
        yield browser
        await agent.aclose()


def read_plan(events: Sequence[Event]) -> Any:
    states = [event["snapshot"] for event in events if event["type"] == "STATE_SNAPSHOT"]
    return states[-1]["plan"]


async def test_a_page_gets_the_question_of_a_graph_and_the_graph_its_answer() -> None:
    planner = build_planner({"asker": build_graph()}, write_plan("greet"))
    async with browsing(agents={"it": planner}) as browser:
        [question] = questions((await browser.run(agent="it")).events())
        resume = [answered(question, "Ada")]
        outcome = await browser.run(agent="it", run="r2", resume=resume)
        twice = await browser.run(agent="it", run="r3", resume=resume)

    assert (question["message"], question["reason"]) == (
        "What is your name?",
        "langgraph:interrupt",
    )
    assert question["metadata"]["langgraph"] == {"raw": "What is your name?"}
    assert text_of(outcome.events()) == "Hello Ada."
    assert failure(twice.events()) == GIVEN


async def test_two_questions_of_one_graph_are_answered_together() -> None:
    planner = build_planner({"asker": build_graph(graphs.two_questions)}, write_plan("hands"))
    async with browsing(agents={"it": planner}) as browser:
        asked = questions((await browser.run(agent="it")).events())
        resume = [answered(question, "glove") for question in asked]
        outcome = await browser.run(agent="it", run="r2", resume=resume)

    assert sorted(question["message"] for question in asked) == [
        "Left hand?",
        "The assistant of a task asks for an answer.",
    ]
    assert read_plan(outcome.events())["questions"] == []


async def test_one_of_two_answers_leaves_the_other_question_open() -> None:
    planner = build_planner({"asker": build_graph(graphs.two_questions)}, write_plan("hands"))
    async with browsing(agents={"it": planner}) as browser:
        first, second = questions((await browser.run(agent="it")).events())
        resume = [answered(first, "glove")]
        left = questions((await browser.run(agent="it", run="r2", resume=resume)).events())

    assert [question["id"] for question in left] == [second["id"]]


async def test_two_tasks_have_a_thread_each() -> None:
    planner = build_planner({"asker": build_graph()}, write_plan("one", "two"))
    async with browsing(agents={"it": planner}) as browser:
        asked = questions((await browser.run(agent="it")).events())
        resume = [answered(question, name) for question, name in zip(asked, "AB", strict=True)]
        outcome = await browser.run(agent="it", run="r2", resume=resume)

    assert sorted(text_of(outcome.events()).split("\n\n")) == ["Hello A.", "Hello B."]


async def test_a_question_survives_a_restart_and_so_does_the_thread_of_its_task(
    tmp_path: Path,
) -> None:
    agents = {"asker": build_graph()}
    async with restart(tmp_path, agents, write_plan("greet")) as browser:
        [question] = questions((await browser.run(agent="it")).events())
    async with restart(tmp_path, agents) as browser:
        outcome = await browser.run(agent="it", run="r2", resume=[answered(question, "Ada")])

    assert text_of(outcome.events()) == "Hello Ada."


async def test_an_agent_without_memory_gets_its_conversation_back(tmp_path: Path) -> None:
    clerk = Clerk()
    async with restart(tmp_path, {"clerk": clerk}, write_plan("pay")) as browser:
        [question] = questions((await browser.run(agent="it")).events())
    async with restart(tmp_path, {"clerk": clerk}) as browser:
        outcome = await browser.run(agent="it", run="r2", resume=[answered(question, {"by": 1})])

    assert (question["reason"], question["metadata"]["amount"]) == ("payment", 12)
    assert text_of(outcome.events()) == "resolved {\"amount\":12} {'by': 1}"
    first, second = clerk.runs
    assert second.private_thread_id == first.private_thread_id
    assert [*map(describe, second.messages)] == [*map(describe, first.messages), "call", "seen"]


async def test_a_cancelled_question_reaches_its_agent() -> None:
    planner = build_planner({"clerk": Clerk()}, write_plan("pay"))
    async with browsing(agents={"it": planner}) as browser:
        [question] = questions((await browser.run(agent="it")).events())
        resume = [answered(question, None, "cancelled")]
        outcome = await browser.run(agent="it", run="r2", resume=resume)

    assert text_of(outcome.events()) == 'cancelled {"amount":12} None'


async def test_a_person_answers_a_graph_on_a_v1_page() -> None:
    planner = build_planner({"asker": build_graph()}, write_plan("greet"))
    async with page_v1(planner) as client:
        [question] = (await asked_v1(client))["metaEvents"]
        meta = {"name": "LangGraphInterruptEvent", "value": question["value"], "response": "Ada"}
        answer = await asked_v1(client, metaEvents=[meta])

    assert question["value"] == "What is your name?"
    assert texts_v1(answer)[-1] == "Hello Ada."


@in_one_test(
    ("response", "text"),
    [
        ("true", "Dear Ann,"),
        ('{"approved": false, "note": "No."}', "The plan was stopped. A person refused it: No."),
    ],
)
async def test_a_person_approves_or_refuses_a_plan_on_a_v1_page(response: str, text: str) -> None:
    writer = ScriptedAgent(say("Dear Ann,"))
    planner = build_planner({"writer": writer}, write_plan("letter"), needs_approval=True)
    async with page_v1(planner) as client:
        [question] = (await asked_v1(client))["metaEvents"]
        meta = {
            "name": "LangGraphInterruptEvent",
            "value": question["value"],
            "response": response,
        }
        answer = await asked_v1(client, metaEvents=[meta])

    assert texts_v1(answer)[-1] == text


async def test_a_run_that_is_too_long_leaves_its_plan_which_the_next_one_finds() -> None:
    writer = ScriptedAgent(say("Dear Ann,"))
    writer.may_answer.clear()
    planner = build_planner(
        {"writer": writer},
        write_plan("letter"),
        call("follow_plan", {}),
        say("You are welcome."),
        max_seconds=0.05,
    )
    async with browsing(agents={"it": planner}) as browser:
        left = (await browser.run(agent="it")).events()
        planner.max_seconds = None
        writer.may_answer.set()
        messages = [user(), user("How far is it?", "user-2")]
        found = (await browser.run(agent="it", run="r2", messages=messages)).events()
        id = next(one["messageId"] for one in found if one["type"] == "TEXT_MESSAGE_START")
        answer = {"id": id, "role": "assistant", "content": text_of(found)}
        messages += [answer, user("Thanks.", "user-3")]
        thanks = (await browser.run(agent="it", run="r3", messages=messages)).events()

    assert text_of(left) == (
        "The plan goes on: 0 of 1 tasks are over. Ask how far it is to see more."
    )
    assert text_of(found) == "Dear Ann,"
    assert text_of(thanks) == "You are welcome."
    follow = [[action.name for action in one.actions] for one in planner.adapter.requests]  # pyright: ignore
    assert follow == [["create_plan"], ["create_plan", "follow_plan"], ["create_plan"]]


async def test_the_question_of_a_plan_is_asked_again_in_a_later_run() -> None:
    planner = build_planner({"asker": build_graph()}, write_plan("greet"), call("follow_plan", {}))
    async with browsing(agents={"it": planner}) as browser:
        [question] = questions((await browser.run(agent="it")).events())
        messages = [user(), user("Well?", "user-2")]
        again = questions((await browser.run(agent="it", run="r2", messages=messages)).events())
        outcome = await browser.run(agent="it", run="r3", resume=[answered(question, "Ada")])

    assert [one["id"] for one in again] == [question["id"]]
    assert text_of(outcome.events()) == "Hello Ada."


async def test_a_stopped_plan_is_shown_so_and_done_again_when_the_person_says_so() -> None:
    writer = ScriptedAgent(say("Dear Ann,"))
    writer.may_answer.clear()
    planner = build_planner({"writer": writer}, write_plan("letter"), call("retry_plan", {}))
    async with browsing(agents={"it": planner}) as browser:
        body = run_input(run="r1")
        stream = asyncio.create_task(browser.ask("POST", "/agent/it/run", body))
        await writer.is_asked.wait()
        await browser.ask("POST", "/agent/it/stop/t", {})
        stopped = (await stream).events()
        writer.may_answer.set()
        messages = [user(), user("Try again.", "user-2")]
        outcome = (await browser.run(agent="it", run="r2", messages=messages)).events()

    status = [one["delta"] for one in stopped if one["type"] == "STATE_DELTA"][-1][0]
    assert (status["path"], status["value"]) == ("/plan/status", "stopped")
    assert text_of(outcome) == "Dear Ann,"


def describe(message: Message) -> str:
    match message:
        case TextMessage(content=text):
            return text
        case ResultMessage(result=text):
            return text
        case _:
            return "call"
