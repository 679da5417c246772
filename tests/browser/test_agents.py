"""A graph on a real LangGraph server, as people see it on pages of both generations."""

import re
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from playwright.async_api import Browser, expect

from tests.browser.build import built_page, new_profile, one_origin
from tests.browser.chat import TripChat
from tests.browser.desk import Desk
from tests.extensions.frameworks.langgraph.asking import operator
from tests.extensions.frameworks.langgraph.dev import graphs_of
from tests.extensions.frameworks.langgraph.proxy import Proxy, proxied
from tests.test_examples import EXAMPLES, loaded
from tests.wire_agui.server import serving

pytestmark = pytest.mark.anyio

PAGES = {"v1": ("react-v1", "/trip.html", TripChat), "v2": ("react-v2", "", Desk)}
STORY = "".join(f"Day {day} was fine. " for day in range(1, 41)).strip()

Trip = TripChat | Desk


@pytest.fixture(scope="module")
def langgraph(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start a LangGraph server with the graph of the example."""
    config = EXAMPLES / "langgraph-platform" / "langgraph.json"
    with graphs_of(config, tmp_path_factory.mktemp("langgraph")) as url:
        yield url


@pytest.fixture
async def proxy(anyio_backend: str, langgraph: str) -> AsyncGenerator[Proxy, None]:
    """The way between us and the LangGraph server."""
    async with proxied(langgraph) as proxy:
        yield proxy


@asynccontextmanager
async def opened(
    example: str, page: str, browser: Browser, picture: str
) -> AsyncGenerator[Trip, None]:
    """Open a page of an example in a fresh profile; keep a picture of how it was left.

    Whatever a test does, the page may not ask anything of another host.
    """
    folder, path, kind = PAGES[page]
    files = built_page(folder)
    async with serving(one_origin(files, loaded(example))) as port:
        context = await new_profile(browser, 1280, 760)
        trip = kind(await context.new_page())
        await trip.open(f"http://127.0.0.1:{port}{path}")
        try:
            yield trip
        finally:
            await trip.keep(f"agents_{picture}")
            await context.close()
    assert trip.foreign_requests() == []


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


@pytest.fixture(params=PAGES)
async def trip(
    browser: Browser,
    proxy: Proxy,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncGenerator[Trip, None]:
    """Return an open page whose agent is on the LangGraph server."""
    monkeypatch.setenv("LANGGRAPH_URL", proxy.url)
    picture = request.node.name.removeprefix("test_")
    async with opened("langgraph-platform", request.param, browser, picture) as trip:
        yield trip


def thread_of(proxy: Proxy) -> str:
    """Return what the LangGraph server calls the thread of the first question."""
    runs = [re.search(rb"POST /threads/(.+)/runs/stream", line) for line in proxy.requests]
    return next(run for run in runs if run)[1].decode()


async def test_what_the_graph_remembers_is_on_the_page_and_may_be_changed_there(trip: Trip):
    await trip.ask("Plan the fjord and the opera")
    await expect(trip.stops()).to_have_text([re.compile("the fjord"), re.compile("the opera")])
    await trip.sees_answer("Your plan has 2 stops now.")
    await trip.is_ready()
    await trip.press("Remove the fjord")
    await trip.ask("Plan a sauna")

    await trip.sees_answer("Your plan has 2 stops now.")
    await expect(trip.stops()).to_have_text([re.compile("the opera"), re.compile("a sauna")])


async def test_the_graph_waits_for_a_click(trip: Trip):
    await trip.ask("Book a room in Oslo")
    await expect(trip.approval()).to_contain_text("Book a room in Oslo?")
    await expect(trip.bookings()).to_have_count(0)
    await trip.keep(f"agents_{type(trip).__name__}_waits_for_a_click")
    await trip.press("Approve")

    await trip.sees_answer("I have booked a room in Oslo.")
    await expect(trip.bookings()).to_have_text(["a room in Oslo"])
    await expect(trip.approval()).to_have_count(0)


async def test_what_a_person_declines_is_not_done(trip: Trip):
    await trip.ask("Book a room in Oslo")
    await trip.press("Decline")

    await trip.sees_answer("Then I book nothing.")
    await expect(trip.bookings()).to_have_count(0)


async def test_the_page_acts_for_the_graph_which_hears_of_it(
    trip: Trip, proxy: Proxy, langgraph: str
):
    await trip.ask('Show the sunny destination "Lisbon"')

    await expect(trip.destination()).to_have_text("Lisbon")
    await trip.sees_answer("The page shows Lisbon.")
    await trip.is_ready()
    async with operator(langgraph) as server:
        values: Any = (await server.threads.get_state(thread_of(proxy)))["values"]
    messages = values["messages"]
    assert [message["type"] for message in messages] == ["human", "ai", "tool", "ai"]
    assert messages[2]["content"] == "The page shows Lisbon."


async def test_stop_ends_the_run_on_the_langgraph_server(trip: Trip, proxy: Proxy, langgraph: str):
    await trip.ask("Tell me a long story")
    await expect(trip.page.get_by_text("Day 3 was fine")).to_be_visible()
    await trip.stop()
    await trip.is_ready()

    async with operator(langgraph) as server:
        thread = thread_of(proxy)
        [run] = await server.runs.list(thread)
        await server.runs.join(thread, run["run_id"])  # to its end, whichever that is
        [run] = await server.runs.list(thread)
    assert run["status"] == "interrupted"


async def test_a_broken_connection_to_the_graph_costs_no_word_and_doubles_none(
    trip: Trip, proxy: Proxy
):
    proxy.cut_at = [b'"content":"7 "', b'"content":"8 "', b'"content":"30 "']
    await trip.ask("Tell me a long story")
    await expect(trip.page.get_by_text("Day 40 was fine.")).to_be_visible()
    await trip.sees_answer(STORY)
    await trip.is_ready()

    assert proxy.cuts == 3
    seen = [text for text in await trip.answers_seen() if text.startswith("Day")]
    assert [text for text in seen if not STORY.startswith(text)] == []


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("example", ["langgraph-inprocess", "pydantic-ai"])
async def test_pages_find_no_difference_to_an_agent_in_this_process(
    browser: Browser, example: str, page: str
):
    async with opened(example, page, browser, f"{example}_{page}") as trip:
        await trip.ask("Plan the fjord and the opera")
        await trip.sees_answer("Your plan has 2 stops now.")
        await trip.is_ready()
        await trip.press("Remove the fjord")
        await trip.ask("Book a room in Oslo")
        await expect(trip.approval()).to_contain_text("room in Oslo")
        await trip.press("Approve")
        await trip.sees_answer("I have booked a room in Oslo.")
        await trip.is_ready()
        await trip.ask('Show the sunny destination "Lisbon"')

        await trip.sees_answer("The page shows Lisbon.")
        await expect(trip.destination()).to_have_text("Lisbon")
        await expect(trip.stops()).to_have_text([re.compile("the opera")])
        await expect(trip.bookings()).to_have_text(["a room in Oslo"])
