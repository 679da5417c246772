"""The example generative-ui in a real browser: surfaces, an MCP app, and a page in a sandbox."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, FrameLocator, Locator, Page, expect

from copilot_runtime.api.messages import ActionExecutionMessage, Message, ResultMessage
from tests.browser.build import built_page, keep_picture, new_profile, one_origin
from tests.browser.chat import Steps
from tests.test_examples import load_example
from tests.wire_agui.server import serving

pytestmark = pytest.mark.anyio


class Desk:
    """One open page of the example."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.crossings = page.locator("article.crossing")
        self.bookings = page.get_by_role("region", name="Your bookings")
        self.reminders = page.get_by_role("region", name="Your reminders")
        self.form = page.locator("main", has=page.get_by_role("heading", name="Book a trip"))

    async def try_example(self, title: str) -> None:
        await self.page.locator("aside").get_by_role("button", name=title).click()

    async def press(self, button: str) -> None:
        await self.page.get_by_role("button", name=button, exact=True).click()

    async def sees_answer(self, text: str) -> None:
        """Wait until the last answer has this text, and the run is over."""
        answer = self.page.get_by_test_id("copilot-assistant-message").last
        await expect(answer).to_contain_text(text)
        await expect(self.page.locator(".examples button").first).to_be_enabled()

    async def sees_crossings(self, *names: str) -> None:
        await expect(self.crossings).to_have_count(len(names))
        for name in names:
            await expect(self.page.get_by_role("article", name=name, exact=True)).to_be_visible()

    @property
    def app(self) -> FrameLocator:
        """The page of the MCP server: CopilotKit puts it into a frame within a frame."""
        frame = self.page.frame_locator("iframe[title='Interactive MCP application']")
        return frame.frame_locator("iframe")

    def seat(self, name: str) -> Locator:
        return self.app.get_by_role("button", name=name, exact=True)

    @property
    def status(self) -> Locator:
        return self.app.get_by_role("status")

    @property
    def sandbox(self) -> FrameLocator:
        """The page that the model wrote."""
        return self.page.frame_locator("iframe.websandbox__frame")


class Site:
    """The example behind a real socket."""

    def __init__(self, port: int, browser: Browser, module: Any) -> None:
        self.port = port
        self.browser = browser
        self.module = module
        self.steps: Steps = module.model.pause

    @asynccontextmanager
    async def open(self, width: int = 1280, height: int = 860) -> AsyncGenerator[Desk, None]:
        """Yield a page in a fresh profile, which may ask nobody but the site."""
        context = await new_profile(self.browser, width, height)
        try:
            page = await context.new_page()
            requests: list[str] = []
            page.on("request", lambda request: requests.append(request.url))
            # what is asked before the chat has loaded its thread is lost: CopilotKit replaces it
            async with page.expect_request_finished(lambda it: it.url.endswith("/connect")):
                await page.goto(f"http://127.0.0.1:{self.port}/")
            yield Desk(page)
            ours = (f"http://127.0.0.1:{self.port}/", "data:", "blob:", "about:")
            assert [url for url in requests if not url.startswith(ours)] == []
        finally:
            await context.close()

    def find_clicks(self) -> list[list[Message]]:
        """Return the calls and results of clicks in each request that the model got."""
        return [
            [
                message
                for message in request.messages
                if isinstance(message, ActionExecutionMessage | ResultMessage)
                and message.name == "log_a2ui_event"
            ]
            for request in self.module.model.requests
        ]


@asynccontextmanager
async def serve_site(browser: Browser) -> AsyncGenerator[Site, None]:
    module = load_example("generative-ui", "server")
    module.model.pause = Steps()
    async with serving(one_origin(built_page("generative-ui"), module.app)) as port:
        yield Site(port, browser, module)


@pytest.fixture
async def seats(
    anyio_backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[Any, None]:
    """Serve the MCP server of the example, and say where it is."""
    monkeypatch.setenv("COPILOT_THREADS", f"sqlite:{tmp_path}/threads.db")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    module = load_example("generative-ui", "seats")
    async with serving(module.server.streamable_http_app()) as port:
        monkeypatch.setenv("SEATS_URL", f"http://127.0.0.1:{port}/mcp")
        yield module


@pytest.fixture
async def site(browser: Browser, seats: Any) -> AsyncGenerator[Site, None]:
    async with serve_site(browser) as site:
        yield site


async def test_a_surface_grows_while_it_is_written(site: Site) -> None:
    site.steps.hold("trips:1", "trips:2", "trips:3", "words")
    async with site.open() as desk:
        await desk.try_example("Trips on Saturday")
        site.steps.release("trips:1")
        await desk.sees_crossings("Kellsay to St Brannoc")
        await keep_picture(desk.page, "generative-ui-growing")
        site.steps.release("trips:2")
        await desk.sees_crossings("Kellsay to St Brannoc", "Kellsay to Corrow Town")
        site.steps.release("trips:3", "words")
        await desk.sees_answer("There you are.")
        await desk.sees_crossings(
            "Kellsay to St Brannoc", "Kellsay to Corrow Town", "St Brannoc to Corrow Town"
        )
        await keep_picture(desk.page, "generative-ui-trips")


async def test_a_button_of_a_form_reaches_the_agent_once(site: Site) -> None:
    async with site.open() as desk:
        await desk.try_example("Book a trip")
        await desk.press("Corrow Town")
        await desk.page.get_by_label("Your name").fill("Ada")
        await desk.page.get_by_label("A dog comes along").check()
        await keep_picture(desk.page, "generative-ui-form")
        await desk.press("Book")
        await desk.sees_answer("It is booked.")
        await expect(desk.bookings).to_contain_text("Corrow Town: Ada, 2 people, a dog")
        await keep_picture(desk.page, "generative-ui-booked")

    question, rendered, clicked, booked = site.find_clicks()
    assert (question, rendered) == ([], [])
    call, result = clicked
    assert isinstance(call, ActionExecutionMessage)
    assert isinstance(result, ResultMessage)
    click = json.loads(call.arguments)
    assert click["name"] == "book_trip"
    assert click["context"] == {"to": ["Corrow Town"], "name": "Ada", "people": 2, "dog": True}
    assert "User performed action" in result.result
    assert booked == clicked  # also behind the action in the browser: once, in its place


async def test_surfaces_survive_a_reload_and_a_restart(site: Site) -> None:
    async with site.open() as desk:
        await desk.try_example("Trips on Saturday")
        await desk.sees_answer("There you are.")
        await desk.page.get_by_role("button", name="£14").click()
        await desk.page.get_by_label("Your name").fill("Ada")
        await desk.press("Book")
        await desk.sees_answer("It is booked.")
        await desk.page.reload()
        await expect(desk.crossings).to_have_count(3)
        await expect(desk.bookings).to_contain_text("Corrow Town: Ada, 2 people")
    async with serve_site(site.browser) as again, again.open() as desk:
        await expect(desk.crossings).to_have_count(3)
        await expect(desk.bookings).to_contain_text("Corrow Town: Ada, 2 people")
        await desk.page.get_by_label("Your name").fill("Grace")
        await desk.press("Book")
        await expect(desk.bookings).to_contain_text("Corrow Town: Grace, 2 people")
        assert len(again.find_clicks()[0]) == 2


async def test_an_mcp_app_calls_its_tools_and_survives_a_reload(site: Site, seats: Any) -> None:
    async with site.open() as desk:
        await desk.try_example("Choose a seat")
        await desk.sees_answer("Take a seat")
        await desk.seat("4B").click()
        await expect(desk.status).to_have_text("Seat 4B is yours.")
        await keep_picture(desk.page, "generative-ui-seats")
        assert seats.reserved == {"MV Tern": "4B"}
        await desk.page.reload()
        await expect(desk.status).to_have_text("Seat 4B is yours.")
        await desk.app.get_by_role("button", name="Tell the assistant").click()
        await desk.sees_answer("Noted. Boarding begins")
        await expect(desk.page.get_by_test_id("copilot-user-message").last).to_have_text(
            "I have taken seat 4B of MV Tern."
        )


async def test_an_mcp_app_opens_a_link_in_a_page_of_its_own(site: Site) -> None:
    async with site.open() as desk:
        await desk.page.context.route("https://skerryline.example/**", lambda it: it.fulfill())
        await desk.try_example("Choose a seat")
        await expect(desk.seat("4B")).to_be_enabled()
        async with desk.page.context.expect_page() as opened:
            await desk.app.get_by_role("button", name="Deck plan").click()
        page = await opened.value
        await expect(page).to_have_url("https://skerryline.example/decks")


async def test_an_mcp_app_is_told_that_a_tool_is_not_for_it(site: Site) -> None:
    async with site.open() as desk:
        await desk.try_example("Choose a seat")
        await expect(desk.seat("4B")).to_be_enabled()
        await desk.app.get_by_role("button", name="Cancel the sailing").click()
        await expect(desk.status).to_have_text("Error: this tool is not for apps.")
        await keep_picture(desk.page, "generative-ui-refused")


async def test_a_page_with_script_runs_in_a_sandbox(site: Site) -> None:
    site.steps.hold("tides:4", "tides:6")
    async with site.open() as desk:
        await desk.try_example("See the tides")
        await expect(desk.sandbox.get_by_role("heading")).to_have_text("Tides at Kellsay")
        await expect(desk.sandbox.get_by_role("slider")).to_have_count(0)
        await keep_picture(desk.page, "generative-ui-tides-growing")
        site.steps.release("tides:4")
        await expect(desk.sandbox.get_by_role("status")).to_have_text("Script has not run.")
        site.steps.release("tides:6")
        await desk.sees_answer("Move the line")
        await expect(desk.sandbox.get_by_role("status")).to_have_text("12:00, 3.8 m")
        await desk.sandbox.get_by_role("slider").fill("18")
        await desk.sandbox.get_by_role("button", name="Remind me of this time").click()
        await expect(desk.reminders).to_contain_text("Water: 18:00")
        await keep_picture(desk.page, "generative-ui-tides")
        await desk.page.reload()
        await expect(desk.sandbox.get_by_role("status")).to_have_text("12:00, 3.8 m")


async def test_without_the_mcp_server_all_else_is_answered(
    browser: Browser, seats: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEATS_URL", "http://127.0.0.1:9/mcp")  # where nobody listens
    async with serve_site(browser) as site, site.open() as desk:
        await desk.try_example("Choose a seat")
        await desk.sees_answer("their server does not answer")
        await desk.try_example("Trips on Saturday")
        await desk.sees_answer("There you are.")


async def test_on_a_phone_everything_fits(site: Site) -> None:
    questions = {
        "Which trips are there?": "There you are.",
        "The tides, please": "Move the line",
        "Show me the seats of MV Tern": "Take a seat",
    }
    async with site.open(390, 844) as desk:
        for number, (question, answer) in enumerate(questions.items()):
            await desk.page.get_by_test_id("copilot-chat-textarea").fill(question)
            await desk.page.get_by_test_id("copilot-send-button").click()
            await desk.sees_answer(answer)
            await keep_picture(desk.page, f"generative-ui-phone-{number}")
        await expect(desk.seat("4B")).to_be_enabled()
        await expect(desk.sandbox.get_by_role("status")).to_have_text("12:00, 3.8 m")
        assert not await desk.page.evaluate("document.documentElement.scrollWidth > innerWidth")
