"""Subagents of a graph, in this process and on a real server, as pages see them."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from copilot_runtime import Settings
from copilot_runtime.extensions.frameworks.langgraph import LangGraphAgent
from tests.agents.pages import asked_v1, page_v1, results, texts_v1
from tests.extensions.frameworks.langgraph import graphs_deep
from tests.extensions.frameworks.langgraph.asking import new_thread, shown, state_of
from tests.wire.client import user as user_v1
from tests.wire_agui.http import Browser, Event, text_of, user
from tests.wire_agui.server import browsing

pytestmark = pytest.mark.anyio

PLACES = ("in this process", "on a server")


def _agent(place: str, graph: str, url: str) -> Any:
    if place == "on a server":
        return LangGraphAgent(url, graph=graph)
    return getattr(graphs_deep, graph).builder.compile(checkpointer=InMemorySaver())


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest) -> str:
    return request.param


@asynccontextmanager
async def _page(
    place: str, graph: str, url: str, *, subagents: bool = True
) -> AsyncGenerator[Browser, None]:
    settings = Settings(threads="memory", subagent_events=subagents, interrupt_events="outcome")
    agents = {"it": _agent(place, graph, url)}
    async with browsing(agents=agents, settings=settings) as browser:
        yield browser


def _subagents(events: Sequence[Event]) -> list[dict[str, Any]]:
    """Return the events of subagents, with a number in place of each id."""
    found = [{**event} for event in events if event["type"].startswith("SUBAGENT_")]
    numbers: dict[str, int] = {}
    for event in found:
        event["subagentRunId"] = numbers.setdefault(event["subagentRunId"], len(numbers))
        event.pop("timestamp", None)
    return found


async def test_a_subagent_starts_and_finishes_with_its_result(place: str, langgraph: str) -> None:
    async with _page(place, "deep", langgraph) as browser:
        events = (await browser.run(agent="it", thread=new_thread())).events()

    assert _subagents(events) == [
        {"type": "SUBAGENT_STARTED", "subagentRunId": 0, "name": "researcher"},
        {"type": "SUBAGENT_FINISHED", "subagentRunId": 0, "result": "A tree."},
    ]
    kinds = [event["type"] for event in events]
    first, last = kinds.index("SUBAGENT_STARTED"), kinds.index("SUBAGENT_FINISHED")
    within = [e.get("toolCallName") for e in events[first:last] if e["type"] == "TOOL_CALL_START"]
    assert within == ["look_up"]
    assert results(events) == ["oak: known", "A tree."]
    assert events[-1]["type"] == "RUN_FINISHED"


async def test_a_page_without_the_setting_gets_all_but_these_events(
    place: str, langgraph: str
) -> None:
    async with _page(place, "deep", langgraph, subagents=False) as browser:
        without = (await browser.run(agent="it", thread=new_thread())).events()
    async with _page(place, "deep", langgraph) as browser:
        events = (await browser.run(agent="it", thread=new_thread())).events()

    rest = [event["type"] for event in events if not event["type"].startswith("SUBAGENT_")]
    assert [event["type"] for event in without] == rest
    assert text_of(without) == text_of(events) == "Let me see. A tree.It is done."


async def test_a_page_of_v1_gets_the_answer(place: str, langgraph: str) -> None:
    async with page_v1(_agent(place, "deep", langgraph)) as client:
        answer = await asked_v1(client, user_v1("Hi"))

    assert texts_v1(answer)[-1] == "It is done."


async def test_subagents_run_beside_and_inside_each_other(place: str, langgraph: str) -> None:
    async with _page(place, "team", langgraph) as browser:
        events = (await browser.run(agent="it", thread=new_thread())).events()

    subagents = _subagents(events)
    started = [e["name"] for e in subagents if e["type"] == "SUBAGENT_STARTED"]
    ends = [e["result"] for e in subagents if e["type"] == "SUBAGENT_FINISHED"]
    assert sorted(started) == ["lead", "researcher", "researcher"]
    assert ends == ["A tree.", "A tree.", "It is done."]
    assert len({event["subagentRunId"] for event in subagents}) == 3


async def test_a_subagent_that_asks_a_person_starts_again_with_the_answer(
    place: str, langgraph: str
) -> None:
    thread = new_thread()
    async with _page(place, "deep_asking", langgraph) as browser:
        before = [user()]
        first = (await browser.run(agent="it", thread=thread, messages=before)).events()
        [question] = first[-1]["outcome"]["interrupts"]
        answer = {"interruptId": question["id"], "status": "resolved", "payload": "A tree"}
        second = await browser.run(
            agent="it", thread=thread, run="r2", messages=shown(before, first), resume=[answer]
        )

    assert question["message"] == "What is oak?"
    assert [event["type"] for event in _subagents(first)] == [
        "SUBAGENT_STARTED",
        "SUBAGENT_FINISHED",
    ]
    assert _subagents(second.events())[-1]["result"] == "A tree."
    assert results(second.events()) == ["The person: A tree", "A tree."]


async def test_a_subagent_fails_without_its_secrets(place: str, langgraph: str) -> None:
    async with _page(place, "deep_failing", langgraph) as browser:
        answer = await browser.run(agent="it", thread=new_thread())

    assert _subagents(answer.events())[-1] == {
        "type": "SUBAGENT_ERROR",
        "subagentRunId": 0,
        "message": "The subagent 'researcher' failed.",
    }
    assert answer.events()[-1]["type"] == "RUN_FINISHED"
    assert "secret_index" not in answer.body.decode()


async def test_the_state_of_a_subagent_is_not_that_of_the_graph(place: str, langgraph: str) -> None:
    async with _page(place, "deep_planning", langgraph) as browser:
        events = (await browser.run(agent="it", thread=new_thread())).events()

    states = [e["snapshot"] for e in events if e["type"] == "STATE_SNAPSHOT"]
    assert state_of(events) == {"plan": "ours"}
    assert {"plan": "theirs"} not in states
    assert not [e for e in events if e["type"] == "STATE_DELTA"]
