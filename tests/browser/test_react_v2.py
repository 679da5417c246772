"""The React example in a real browser: what a person of CopilotKit 1.74 sees of us."""

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.browser.build import built_page, new_profile
from tests.browser.desk import Desk
from tests.browser.fake_model import FakeModel, Turn
from tests.browser.trip_server import page_and_runtime, running_server
from tests.wire_agui.server import serving

pytestmark = pytest.mark.anyio


@pytest.fixture
async def address(
    anyio_backend: str, chromium: str, model: FakeModel, tmp_path: Path
) -> AsyncGenerator[str, None]:
    """Serve the page and its agent; return their address."""
    model.place = "page"
    app = page_and_runtime(built_page("react-v2"), model.url, tmp_path / "threads.db")
    async with serving(app) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
async def desk(
    browser: Browser, address: str, request: pytest.FixtureRequest
) -> AsyncGenerator[Desk, None]:
    """Return an open page in a fresh profile."""
    async with opened(browser, address, request) as desk:
        yield desk


@asynccontextmanager
async def opened(
    browser: Browser, address: str, request: pytest.FixtureRequest
) -> AsyncGenerator[Desk, None]:
    """Open a page in a fresh profile; keep a picture of how the test left it.

    Whatever a test does, the page may not ask anything of another host.
    """
    context = await new_profile(browser, 1360, 800)
    desk = Desk(await context.new_page())
    try:
        await desk.open(address)
        yield desk
        await desk.keep("v2_" + request.node.name.removeprefix("test_"))
    finally:
        await context.close()  # ends its streams, so that the server can end
    assert desk.foreign_requests() == []


class Pieces:
    """An answer of which a test releases one piece after the other."""

    def __init__(self, *pieces: str) -> None:
        self._pieces = pieces
        self._allowed = asyncio.Semaphore(0)

    def release(self) -> None:
        self._allowed.release()

    async def __call__(self, turn: Turn) -> None:
        for piece in self._pieces:
            await self._allowed.acquire()
            await turn.say(piece)


async def test_an_answer_grows_on_the_page_while_the_model_is_still_speaking(
    desk: Desk, model: FakeModel
):
    answer = model.scripts["Where is it warm?"] = Pieces("Lisbon", " is warm", " in May.")
    await desk.ask("Where is it warm?")
    for so_far in ("Lisbon", "Lisbon is warm", "Lisbon is warm in May."):
        answer.release()
        await desk.sees_answer(so_far)
    await desk.is_ready()

    assert await desk.answers_seen() == ["Lisbon", "Lisbon is warm", "Lisbon is warm in May."]


async def test_a_tool_changes_the_page_and_the_answer_follows(desk: Desk, model: FakeModel):
    async def show(turn: Turn) -> None:
        await turn.call("showDestination", city="Lisbon", sky="sunny")

    model.scripts["Take me to Lisbon"] = show
    await desk.ask("Take me to Lisbon")

    await expect(desk.destination()).to_have_text("Lisbon")
    await desk.sees_answer("The page says: The page shows Lisbon.")


async def test_a_tool_draws_its_card_into_the_conversation(desk: Desk, model: FakeModel):
    async def look(turn: Turn) -> None:
        await turn.say("Let me see.")
        await turn.call("showWeather", city="Oslo")

    model.scripts["Weather in Oslo?"] = look
    await desk.ask("Weather in Oslo?")

    await expect(desk.weather("Oslo")).to_have_text(re.compile(r"Oslo.*-?\d+°"))
    await desk.sees_answer('The page says: {"city":"Oslo","sky":"cloudy","celsius":13}')


async def test_the_model_sees_what_the_page_shows(desk: Desk, model: FakeModel):
    await desk.ask("Hello?")
    await desk.sees_answer("Nobody told me what to say to 'Hello?'.")

    assert "Anywhere" in str(model.turn("Hello?").body["messages"])


async def test_the_agent_and_the_person_write_on_the_same_plan(desk: Desk):
    await desk.ask("Plan the fjord and the opera")
    await expect(desk.stops()).to_have_text(["the fjord", "the opera"])
    await desk.is_ready()
    await desk.press("Remove the fjord")
    await desk.page.get_by_label("Another stop").fill("a sauna")
    await desk.press("Add")
    await expect(desk.stops()).to_have_text(["the opera", "a sauna"])
    await desk.ask("Read the plan")

    await desk.sees_answer("Your stops: the opera, a sauna.")


async def test_a_booking_waits_for_approval_and_then_goes_on(desk: Desk):
    await desk.ask("Book a room in Oslo")
    await expect(desk.approval()).to_contain_text("Book a room in Oslo?")
    await desk.keep("v2_waiting_for_approval")
    await desk.press("Approve")

    await desk.sees_answer("It is booked.")
    await expect(desk.bookings()).to_have_text(["A room in oslo"])
    await expect(desk.approval()).to_have_count(0)


async def test_a_booking_that_is_declined_is_not_made(desk: Desk):
    await desk.ask("Book a room in Oslo")
    await desk.press("Decline")

    await desk.sees_answer("Then I book nothing.")
    await expect(desk.bookings()).to_have_count(0)


async def test_a_question_that_waits_for_approval_is_asked_again_after_a_reload(desk: Desk):
    await desk.ask("Book a room in Oslo")
    await expect(desk.approval()).to_be_visible()
    await desk.reload()
    await expect(desk.approval()).to_contain_text("Book a room in Oslo?")
    await desk.press("Approve")

    await desk.sees_answer("It is booked.")


async def test_a_question_of_one_trip_does_not_follow_into_another(desk: Desk, model: FakeModel):
    await desk.ask("Book a room in Oslo")
    await expect(desk.approval()).to_be_visible()
    await desk.page.evaluate("location.hash = 'another-trip'")
    await expect(desk.approval()).to_have_count(0)
    await desk.ask("Hello?")

    await desk.sees_answer("Nobody told me what to say to 'Hello?'.")


async def test_a_suggestion_can_be_asked(desk: Desk):
    await desk.suggestion("Plan three stops").click()

    await desk.sees_answer("Your plan has 3 stops now.")


async def test_after_an_answer_the_model_suggests_how_to_go_on(desk: Desk, model: FakeModel):
    await desk.ask("Hello?")
    await desk.suggestion("What is left?").click()

    await desk.sees_answer("Nobody told me what to say to 'What is left to do?'.")
    await expect(desk.questions()).to_have_text(["Hello?", "What is left to do?"])
    await expect(desk.trips()).to_have_count(1)


async def test_a_new_trip_begins_empty_and_the_old_one_can_be_opened_again(desk: Desk):
    await desk.ask("Plan the fjord")
    await desk.sees_answer("Your plan has 1 stops now.")
    await desk.press("New trip")
    await expect(desk.questions()).to_have_count(0)
    await expect(desk.stops()).to_have_count(0)
    await desk.trip("Plan the fjord").click()

    await desk.sees_answer("Your plan has 1 stops now.")
    await expect(desk.stops()).to_have_text(["the fjord"])


async def test_a_trip_is_renamed_for_good(desk: Desk):
    await desk.ask("Plan the fjord")
    await desk.trip("Plan the fjord").hover()
    await desk.press("Rename Plan the fjord")
    await desk.page.get_by_label("Name of the trip").fill("Norway")
    await desk.page.get_by_label("Name of the trip").press("Enter")
    await expect(desk.trip("Norway")).to_be_visible()
    await desk.reload()

    await expect(desk.trip("Norway")).to_be_visible()


async def test_a_trip_is_archived_and_restored(desk: Desk):
    await desk.ask("Plan the fjord")
    await desk.trip("Plan the fjord").hover()
    await desk.press("Archive Plan the fjord")
    await expect(desk.trip("Plan the fjord")).to_have_count(0)
    await desk.reload()
    await desk.press("Archive")
    await desk.trip("Plan the fjord").hover()
    await desk.press("Restore Plan the fjord")
    await desk.press("Active")

    await expect(desk.trip("Plan the fjord")).to_be_visible()


async def test_a_deleted_trip_is_gone(desk: Desk):
    await desk.ask("Plan the fjord")
    await desk.sees_answer("Your plan has 1 stops now.")
    old = desk.page.url
    await desk.trip("Plan the fjord").hover()
    await desk.press("Delete Plan the fjord")
    await desk.press("Delete for good")
    await expect(desk.trip("Plan the fjord")).to_have_count(0)
    await expect(desk.questions()).to_have_count(0)
    await desk.page.goto(old)
    await desk.is_ready()

    await expect(desk.questions()).to_have_count(0)
    await expect(desk.trips()).to_have_text(["New trip"])


async def test_a_reload_in_the_middle_of_an_answer_loses_nothing_and_repeats_nothing(
    desk: Desk, model: FakeModel
):
    answer = model.scripts["Tell me a story"] = Pieces("Once", " upon", " a time.")
    await desk.ask("Tell me a story")
    answer.release()
    await desk.sees_answer("Once")
    await desk.reload()
    await desk.sees_answer("Once")
    await desk.is_busy()
    answer.release()
    await desk.sees_answer("Once upon")
    await desk.keep("v2_half_an_answer_after_a_reload")
    answer.release()
    await desk.sees_answer("Once upon a time.")
    await desk.is_ready()

    await expect(desk.answers()).to_have_count(1)
    await expect(desk.questions()).to_have_text(["Tell me a story"])
    assert len([turn for turn in model.turns if not turn.wants_suggestions]) == 1


async def test_an_answer_goes_on_while_another_trip_is_open(desk: Desk, model: FakeModel):
    answer = model.scripts["Tell me a story"] = Pieces("Once", " upon a time.")
    await desk.ask("Tell me a story")
    answer.release()
    await desk.sees_answer("Once")
    await expect(desk.trip("Tell me a story")).to_be_visible()
    await desk.press("New trip")
    await expect(desk.questions()).to_have_count(0)
    answer.release()
    await desk.trip("Tell me a story").click()

    await desk.sees_answer("Once upon a time.")
    await desk.is_ready()


async def test_after_a_restart_of_the_server_the_trips_are_still_there(
    browser: Browser, model: FakeModel, tmp_path: Path, request: pytest.FixtureRequest
):
    async def show(turn: Turn) -> None:
        await turn.call("showWeather", city="Oslo")

    model.place = "page"
    model.scripts["Weather in Oslo?"] = show
    files = built_page("react-v2")
    async with (
        running_server(files, model.url, tmp_path / "threads.db") as server,
        opened(browser, server.url, request) as desk,
    ):
        await desk.ask("Weather in Oslo?")
        await desk.sees_answer('The page says: {"city":"Oslo","sky":"cloudy","celsius":13}')
        await desk.is_ready()
        await server.restart()
        await desk.reload()

        await desk.sees_answer('The page says: {"city":"Oslo","sky":"cloudy","celsius":13}')
        await expect(desk.questions()).to_have_text(["Weather in Oslo?"])
        await expect(desk.weather("Oslo")).to_have_text(re.compile(r"Oslo.*-?\d+°"))
        await expect(desk.trip("Weather in Oslo?")).to_be_visible()


async def test_a_second_browser_lists_the_trips_of_the_first_without_a_reload(
    browser: Browser, model: FakeModel, tmp_path: Path, request: pytest.FixtureRequest
):
    model.place = "page"
    app = page_and_runtime(built_page("react-v2"), model.url, tmp_path / "threads.db")
    async with serving(app) as port, AsyncExitStack() as stack:
        address = f"http://127.0.0.1:{port}"
        other = await stack.enter_async_context(opened(browser, address, request))
        desk = await stack.enter_async_context(opened(browser, address, request))
        await desk.ask("Weather in Oslo?")
        await expect(other.trip("Weather in Oslo?")).to_be_visible()
        await desk.is_ready()
        await other.keep("v2_a_trip_of_another_browser")
        await desk.press("Delete Weather in Oslo?")
        await desk.press("Delete for good")

        await expect(other.trip("Weather in Oslo?")).to_have_count(0)


async def endless(turn: Turn) -> None:
    await turn.say("Once upon a time")
    await asyncio.Event().wait()


async def test_stop_ends_the_answer_and_the_call_of_the_model(desk: Desk, model: FakeModel):
    model.scripts["Tell me a story"] = endless
    await desk.ask("Tell me a story")
    await desk.sees_answer("Once upon a time")
    await desk.stop()

    await model.turn("Tell me a story").left.wait()
    await desk.is_ready()
    await desk.sees_answer("Once upon a time")
    await expect(desk.banner()).to_have_count(0)


async def test_an_answer_can_be_stopped_after_a_reload(desk: Desk, model: FakeModel):
    model.scripts["Tell me a story"] = endless
    await desk.ask("Tell me a story")
    await desk.sees_answer("Once upon a time")
    await desk.reload()
    await desk.sees_answer("Once upon a time")
    await desk.stop()

    await model.turn("Tell me a story").left.wait()
    await desk.is_ready()


async def test_after_a_stop_the_next_question_is_answered(desk: Desk, model: FakeModel):
    model.scripts["Tell me a story"] = endless
    await desk.ask("Tell me a story")
    await desk.sees_answer("Once upon a time")
    await desk.stop()
    await desk.is_ready()
    await desk.ask("Hello?")

    await desk.sees_answer("Nobody told me what to say to 'Hello?'.")


async def refuse_the_key(turn: Turn) -> None:
    await turn.refuse(401, "Incorrect API key provided: sk-wrong.")


async def test_a_refused_key_shows_a_banner_that_names_the_cause(desk: Desk, model: FakeModel):
    model.scripts["Hello?"] = refuse_the_key
    await desk.ask("Hello?")

    await expect(desk.banner()).to_contain_text("Incorrect API key provided")
    await desk.is_ready()


async def test_trying_again_asks_the_same_question_once_more(desk: Desk, model: FakeModel):
    model.scripts["Hello?"] = refuse_the_key
    await desk.ask("Hello?")
    await expect(desk.banner()).to_be_visible()
    del model.scripts["Hello?"]
    await desk.press("Try again")

    await desk.sees_answer("Nobody told me what to say to 'Hello?'.")
    await expect(desk.questions()).to_have_text(["Hello?"])
    await expect(desk.banner()).to_have_count(0)


async def test_a_model_that_is_down_is_said(desk: Desk, model: FakeModel):
    async def hang_up(turn: Turn) -> None:
        raise ConnectionError

    model.scripts["Hello?"] = hang_up
    await desk.ask("Hello?")

    await expect(desk.banner()).to_be_visible()
    await desk.is_ready()


async def test_a_server_that_refuses_to_talk_is_said(desk: Desk):
    await desk.page.route(
        "**/graphql/**",
        lambda route: route.fulfill(status=401, json={"message": "Log in first."}),
    )
    await desk.ask("Hello?")
    await expect(desk.banner()).to_contain_text("Log in first.")


async def test_a_server_that_is_down_is_said(desk: Desk):
    await desk.page.route("**/graphql/**", lambda route: route.abort("connectionrefused"))
    await desk.page.route("**/graphql", lambda route: route.abort("connectionrefused"))
    await desk.reload()

    await expect(desk.banner()).to_be_visible()


async def test_the_page_asks_nobody_but_its_own_server(desk: Desk, address: str):
    await desk.ask("Plan the fjord")
    await desk.sees_answer("Your plan has 1 stops now.")
    await desk.is_ready()
    await expect(desk.trip("Plan the fjord")).to_be_visible()

    paths = {url.removeprefix(address).partition("/assets/")[0] for url in desk.requests}
    assert {re.sub(r"[#?].*|/threads/.*", "", path) for path in paths} == {
        "",
        "/",
        "/graphql",
        "/graphql/info",
        "/graphql/threads",
        "/graphql/agent/trip/connect",
        "/graphql/agent/trip/run",
        "/graphql/agent/trip/suggest",
    }
