"""The agent `trip`, in three frameworks, does the same for the pages of the React examples."""

import json
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import pytest

from tests.agents.pages import answered, questions
from tests.extensions.frameworks.langgraph.asking import shown, state_of
from tests.extensions.frameworks.langgraph.dev import graphs_of
from tests.in_one_test import in_one_test
from tests.test_examples import EXAMPLES, loaded
from tests.wire_agui.http import Browser, Event, text_of, user
from tests.wire_agui.server import serving

pytestmark = pytest.mark.anyio

FRAMEWORKS = ("langgraph-platform", "langgraph-inprocess", "pydantic-ai")
SHOW: dict[str, Any] = {
    "name": "showDestination",
    "description": "Show a destination.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}


@pytest.fixture(scope="module")
def langgraph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start a LangGraph server with the graph of the example."""
    config = EXAMPLES / "langgraph-platform" / "langgraph.json"
    with graphs_of(config, tmp_path_factory.mktemp("langgraph")) as url:
        yield url


@pytest.fixture(params=FRAMEWORKS)
async def browser(
    anyio_backend: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[Browser, None]:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    if request.param == "langgraph-platform":
        monkeypatch.setenv("LANGGRAPH_URL", request.getfixturevalue("langgraph"))
    async with serving(loaded(request.param)) as port:
        yield Browser(port, "/graphql")


async def asked(browser: Browser, *messages: Any, **more: Any) -> list[Event]:
    answer = await browser.run(agent="trip", thread="trip-1", messages=[*messages], **more)
    return answer.events()


async def test_the_plan_is_shared_and_the_person_may_change_it(browser: Browser) -> None:
    first = user("Plan the fjord and the opera")
    planned = await asked(browser, first, state={})
    after = [*shown([first], planned), user("Plan a sauna", "user-2")]
    changed = {"stops": ["the opera"], "bookings": []}
    again = await asked(browser, *after, run="r2", state=changed)

    assert state_of(planned)["stops"] == ["the fjord", "the opera"]
    assert state_of(again)["stops"] == ["the opera", "a sauna"]
    assert text_of(again) == "Your plan has 2 stops now."


@in_one_test(
    ("approved", "bookings", "said"),
    [(True, ["a room"], "I have booked a room."), (False, [], "")],
    ids=["approved", "declined"],
)
async def test_nothing_is_booked_before_a_person_has_agreed(
    browser: Browser, approved: bool, bookings: list[str], said: str
) -> None:
    first = user("Book a room")
    waiting = await asked(browser, first, state={}, protocolVersion="1.0")
    [question] = questions(waiting)
    given = [answered(question, {"approved": approved})]
    after = shown([first], waiting)
    state = {"bookings": [], "stops": []}
    booked = await asked(browser, *after, run="r2", resume=given, state=state)

    assert "room" in question["message"]
    assert state_of(booked).get("bookings", []) == bookings
    assert text_of(booked).startswith(said)


async def test_the_page_acts_and_the_agent_hears_of_it(browser: Browser) -> None:
    first = user('Show the sunny destination "Lisbon"')
    calling = await asked(browser, first, tools=[SHOW], state={})
    after = shown([first], calling)
    [call] = after[-1]["toolCalls"]
    done = {"id": "d", "role": "tool", "toolCallId": call["id"], "content": "The page shows it."}
    told = await asked(browser, *after, done, run="r2", tools=[SHOW], state={})

    assert call["function"]["name"] == "showDestination"
    assert json.loads(call["function"]["arguments"]) == {"city": "Lisbon"}
    assert text_of(told) == "The page shows it."


def test_both_graphs_pretend_in_the_same_way() -> None:
    here, there = (EXAMPLES / name / "pretend.py" for name in FRAMEWORKS[:2])

    assert here.read_text() == there.read_text()
