"""A compiled graph in this process waits for a person, who answers on a page of either protocol."""

import json
from collections.abc import Sequence
from itertools import pairwise
from time import process_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph.checkpoint.memory import InMemorySaver

from copilot_runtime import AguiAgent, CopilotRuntime, Events, RunInput, Settings
from copilot_runtime.api.events import Interrupt
from copilot_runtime.base.errors import NetworkError
from copilot_runtime.extensions.frameworks.langgraph import run_stream
from copilot_runtime.extensions.frameworks.langgraph.run_stream import Frame, FrameParser
from tests.agents.pages import GIVEN, answered, asked_v1, failure, page_v1, questions, texts_v1
from tests.extensions.frameworks.langgraph import graphs
from tests.extensions.frameworks.langgraph.asking import state_of
from tests.in_one_test import in_one_test
from tests.wire_agui.http import Event, run_input, text_of, user
from tests.wire_agui.server import PATH, browsing, serving

pytestmark = pytest.mark.anyio

OUTCOME = Settings(threads="memory", interrupt_events="outcome")


def kept(graph: Any) -> Any:
    """Return a graph of a server with a memory of its own."""
    return graph.builder.compile(checkpointer=InMemorySaver())


def ann(request: Any) -> str:
    return "ann"


def values_of(events: Sequence[Event]) -> list[str]:
    """Return what a page written for Node reads as `event.value`."""
    return [event["value"] for event in events if event.get("name") == "on_interrupt"]


async def test_an_agui_page_is_asked_and_answers() -> None:
    agents = {"it": kept(graphs.asker)}
    async with browsing(agents=agents, settings=OUTCOME, authenticate=ann) as browser:
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
    async with browsing(agents={"it": kept(graphs.right_hand)}) as browser:
        asked = (await browser.run(agent="it")).events()
        reopened = (await browser.connect(agent="it")).events()
        [question] = values_of(asked)
        command = {"command": {"resume": "glove", "interruptEvent": question}}
        answer = await browser.run(agent="it", run="r2", forwardedProps=command)
        answered = (await browser.connect(agent="it")).events()

    assert question == '{"question":"Right?"}'
    assert (questions(asked), questions(reopened)) == ([], [])
    assert (values_of(reopened), values_of(answered)) == ([question], [])
    assert state_of(answer.events()) == {"answers": ["right glove"]}


async def test_a_page_written_for_node_answers_the_one_of_two_questions_it_names() -> None:
    async with browsing(agents={"it": kept(graphs.two_questions)}) as browser:
        asked = values_of((await browser.run(agent="it")).events())
        [right] = [value for value in asked if "Right?" in value]
        command = {"command": {"resume": "glove", "interruptEvent": right}}
        left = values_of((await browser.run(agent="it", run="r2", forwardedProps=command)).events())
        command = {"command": {"resume": {"size": 7}, "interruptEvent": left[0]}}
        answer = await browser.run(agent="it", run="r3", forwardedProps=command)

    assert [value for value in asked if value != right] == left
    assert state_of(answer.events()) == {"answers": ["left {'size': 7}", "right glove"]}


async def test_a_page_gets_all_that_copilotkit_interrupt_asks_with_as_on_node() -> None:
    async with browsing(agents={"it": kept(graphs.approver)}) as browser:
        [question] = values_of((await browser.run(agent="it")).events())
        command = {"command": {"resume": "yes", "interruptEvent": question}}
        answer = (await browser.run(agent="it", run="r2", forwardedProps=command)).events()
        twice = await browser.run(agent="it", run="r3", forwardedProps=command)

    asked = json.loads(question)
    assert asked.keys() == {"__copilotkit_interrupt_value__", "__copilotkit_messages__"}
    assert asked["__copilotkit_interrupt_value__"] == "Shall I send it?"
    assert state_of(answer)["answers"][0] == "yes"
    assert failure(twice.events()) == GIVEN


async def test_a_page_of_agui_1_is_asked_by_the_outcome_of_the_run() -> None:
    async with browsing(agents={"it": kept(graphs.asker)}) as browser:
        asked = (await browser.run(agent="it", protocolVersion="1.0")).events()
        [question] = questions(asked)
        resume = [answered(question, "Ada")]
        answer = await browser.run(agent="it", run="r2", protocolVersion="1.0", resume=resume)

    assert values_of(asked) == []
    assert text_of(answer.events()) == "Hello Ada."


async def test_a_graph_behind_another_runtime_asks_by_the_outcome_of_the_run() -> None:
    there = CopilotRuntime(
        agents={"it": kept(graphs.right_hand)}, settings=Settings(threads="memory")
    )
    async with serving(there.app(path=PATH)) as port:
        agents = {"it": AguiAgent(f"http://127.0.0.1:{port}{PATH}/agent/it/run")}
        async with browsing(agents=agents) as browser:
            asked = (await browser.run(agent="it")).events()
            resume = [answered(question, "glove") for question in questions(asked)]
            answer = await browser.run(agent="it", run="r2", resume=resume)

    assert values_of(asked) == []
    assert state_of(answer.events()) == {"answers": ["right glove"]}


async def test_what_asks_in_place_of_a_graph_asks_by_the_outcome_of_the_run() -> None:
    metadata = {"langgraph": {"raw": "Sure?"}, "task_id": "t-1"}

    async def plan(run: RunInput) -> Events:
        yield Interrupt(interrupt_id="q", value="Sure?", metadata=metadata)

    async with browsing(agents={"it": plan}) as browser:
        asked = (await browser.run(agent="it")).events()

    assert [question["metadata"] for question in questions(asked)] == [metadata]
    assert values_of(asked) == []


async def test_a_question_stays_open_until_it_is_answered() -> None:
    async with browsing(agents={"it": kept(graphs.asker)}, settings=OUTCOME) as browser:
        first = questions((await browser.run(agent="it")).events())
        messages = [user(), user("Never mind", "user-2")]
        second = questions((await browser.run(agent="it", run="r2", messages=messages)).events())

    assert second == first


async def test_two_questions_at_once_get_the_answer_that_is_theirs() -> None:
    async with browsing(agents={"it": kept(graphs.two_questions)}, settings=OUTCOME) as browser:
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
    async with browsing(agents={"it": kept(graphs.asker)}, settings=OUTCOME) as browser:

        async def ask(**fields: Any) -> Any:
            return (await browser.ask("POST", "/agent/it/ask", run_input(**fields))).events()

        [question] = questions(await ask(run="r1"))
        again = await ask(run="r2", resume=[answered(question, "Ada")])
        twice = await ask(run="r3", resume=[answered(question, "Eve")])

    assert text_of(again) == "Hello Ada."
    assert failure(twice) == "The agent does not wait for this answer."


STREAM = (
    b"event: metadata\r\ndata: {}\r\nid: 1\r\n\r\n"
    b": comment\n\n\n"
    b"event: values\ndata: {\ndata: }\nid: 2\n\n"
    b"data: 3\r\n\r\nevent: cut\ndata: 4\n"
)
FRAMES = [Frame("metadata", b"{}", "1"), Frame("values", b"{\n}", "2"), Frame("", b"3", None)]


@given(cuts=st.lists(st.integers(0, len(STREAM))))
def test_frames_may_be_cut_anywhere_and_one_without_an_end_is_dropped(cuts: list[int]) -> None:
    parser = FrameParser()
    places = [0, *sorted(cuts), len(STREAM)]
    blocks = [STREAM[start:end] for start, end in pairwise(places)]

    assert [frame for block in blocks for frame in parser.feed(block)] == FRAMES


@in_one_test("block", [b"data: x\n" * 8, b"x" * 64], ids=["lines", "one line"])
def test_an_event_without_an_end_is_waited_for_only_so_long(
    block: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_stream, "_LIMIT", 1000)
    parser = FrameParser()

    with pytest.raises(NetworkError, match="an event larger than 1000 bytes"):
        for _ in range(1000 // len(block) + 1):
            parser.feed(block)


def test_a_large_event_of_many_lines_is_read_once() -> None:
    parser = FrameParser()
    began = process_time()
    for _ in range(3_000):
        parser.feed(b"data: x\n" * 1_000)

    assert len(parser.feed(b"\n")[0].data) == 2 * 3_000_000 - 1
    assert process_time() - began < 20  # and not for an hour
