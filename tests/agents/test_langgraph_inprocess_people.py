"""A compiled graph in this process waits for a person, who answers on a page of either protocol."""

from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from copilot_runtime import Settings
from tests.agents.langgraph import graphs
from tests.agents.langgraph.asking import state_of
from tests.agents.pages import GIVEN, answered, asked_v1, failure, page_v1, questions, texts_v1
from tests.wire_agui.http import run_input, text_of, user
from tests.wire_agui.server import browsing

pytestmark = pytest.mark.anyio


def kept(graph: Any) -> Any:
    """Return a graph of a server with a memory of its own."""
    return graph.builder.compile(checkpointer=InMemorySaver())


def ann(request: Any) -> str:
    return "ann"


async def test_an_agui_page_is_asked_and_answers() -> None:
    async with browsing(agents={"it": kept(graphs.asker)}, authenticate=ann) as browser:
        asked = (await browser.run(agent="it")).events()
        [question] = questions(asked)
        again = await browser.run(agent="it", run="r2", resume=[answered(question, "Ada")])
        twice = await browser.run(agent="it", run="r3", resume=[answered(question, "Eve")])

    assert (question["message"], question["reason"]) == (
        "What is your name?",
        "langgraph:interrupt",
    )
    assert text_of(again.events()) == "Hello Ada."
    assert state_of(again.events()) == {"answers": ["Ada"]}
    assert failure(twice.events()) == GIVEN


async def test_a_page_written_for_node_gets_the_value_as_text_and_sends_it_back() -> None:
    settings = Settings(threads="memory", interrupt_events="custom")
    async with browsing(agents={"it": kept(graphs.right_hand)}, settings=settings) as browser:
        asked = (await browser.run(agent="it")).events()
        [question] = [event["value"] for event in asked if event.get("name") == "on_interrupt"]
        command = {"command": {"resume": "glove", "interruptEvent": question}}
        answer = await browser.run(agent="it", run="r2", forwardedProps=command)

    assert question == '{"question":"Right?"}'
    assert questions(asked) == []
    assert state_of(answer.events()) == {"answers": ["right glove"]}


async def test_a_question_stays_open_until_it_is_answered() -> None:
    async with browsing(agents={"it": kept(graphs.asker)}) as browser:
        first = questions((await browser.run(agent="it")).events())
        messages = [user(), user("Never mind", "user-2")]
        second = questions((await browser.run(agent="it", run="r2", messages=messages)).events())

    assert second == first


async def test_two_questions_at_once_get_the_answer_that_is_theirs() -> None:
    async with browsing(agents={"it": kept(graphs.two_questions)}) as browser:
        asked = questions((await browser.run(agent="it")).events())
        by_message = {question.get("message"): question for question in asked}
        resume = [answered(by_message[None], "glove"), answered(by_message["Left hand?"], 7)]
        answer = await browser.run(agent="it", run="r2", resume=resume)

    assert state_of(answer.events()) == {"answers": ["left 7", "right glove"]}


async def test_a_person_answers_on_a_v1_page() -> None:
    async with page_v1(kept(graphs.asker)) as client:
        [question] = (await asked_v1(client))["metaEvents"]
        meta = {"name": "LangGraphInterruptEvent", "value": question["value"], "response": "Ada"}
        answer = await asked_v1(client, metaEvents=[meta])

    assert (question["name"], question["value"]) == (
        "LangGraphInterruptEvent",
        "What is your name?",
    )
    assert texts_v1(answer) == ["Hello Ada."]


async def test_a_graph_refuses_a_second_answer_also_in_runs_that_are_stored_nowhere() -> None:
    async with browsing(agents={"it": kept(graphs.asker)}) as browser:

        async def ask(**fields: Any) -> Any:
            return (await browser.ask("POST", "/agent/it/ask", run_input(**fields))).events()

        [question] = questions(await ask(run="r1"))
        again = await ask(run="r2", resume=[answered(question, "Ada")])
        twice = await ask(run="r3", resume=[answered(question, "Eve")])

    assert text_of(again) == "Hello Ada."
    assert failure(twice) == "The agent does not wait for this answer."
