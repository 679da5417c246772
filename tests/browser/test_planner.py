"""A plan in a real browser: it grows, is corrected, asks a person, is stopped, and survives all."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Locator, Page, expect

from tests.browser.build import built_page, keep_picture, new_profile, one_origin
from tests.browser.chat import Steps
from tests.test_examples import load_example
from tests.wire_agui.server import serving

pytestmark = pytest.mark.anyio

REQUEST = "Plan an extra sailing to St Brannoc on Saturday."


class Planner:
    """One open page of the example."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.question = page.get_by_role("group", name="Question")
        self.plan = page.get_by_role("region", name="Plan")

    async def ask(self, text: str) -> None:
        await self.page.get_by_test_id("copilot-chat-textarea").fill(text)
        await self.page.get_by_test_id("copilot-send-button").click()

    async def press(self, button: str) -> None:
        await self.page.get_by_role("button", name=button, exact=True).click()

    def task(self, name: str) -> Locator:
        return self.plan.get_by_role("listitem", name=name, exact=True)

    async def sees(self, **statuses: str) -> None:
        """Wait until tasks have these statuses."""
        for name, status in statuses.items():
            sign = self.task(name).get_by_role("img", name=status, exact=True).first
            await expect(sign).to_be_visible()

    async def sees_answer(self, text: str) -> None:
        answer = self.page.get_by_test_id("copilot-assistant-message").last
        await expect(answer).to_contain_text(text)


class Site:
    """The example behind a real socket."""

    def __init__(self, port: int, browser: Browser, module: Any) -> None:
        self.port = port
        self.browser = browser
        self.module = module
        self.steps = module.model.pause

    @asynccontextmanager
    async def open(self, width: int = 1280, height: int = 860) -> AsyncGenerator[Planner, None]:
        """Yield a page in a fresh profile."""
        context = await new_profile(self.browser, width, height)
        try:
            page = await context.new_page()
            await page.goto(f"http://127.0.0.1:{self.port}/planner.html#sailing")
            yield Planner(page)
        finally:
            await context.close()


@pytest.fixture
async def site(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[Site, None]:
    monkeypatch.chdir(tmp_path)  # the threads and plans of the example are in files below it
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    module = load_example("planner", "server")
    module.model.pause = Steps()
    async with serving(one_origin(built_page("react-v2"), module.app)) as port:
        yield Site(port, browser, module)


async def test_a_plan_grows_is_corrected_and_asks_before_it_publishes(site: Site) -> None:
    site.steps.hold("weather", "fares", "children", "publish:words")
    async with site.open() as planner:
        await planner.ask(REQUEST)
        await planner.sees(tides="finished", weather="running", times="pending", fares="running")
        await expect(planner.task("tides")).to_contain_text("harbour")
        await expect(planner.task("tides")).to_contain_text("$0.00")
        await keep_picture(planner.page, "planner-growing")

        site.steps.release("fares", "weather")
        await planner.sees(children="running", times="finished", timetable="finished")
        await expect(planner.task("fares")).to_contain_text("Not good enough: The fare for child")
        await expect(planner.task("children")).to_contain_text("correction")
        await keep_picture(planner.page, "planner-correction")

        site.steps.release("children")
        await expect(planner.question).to_contain_text("May the task 'publish' begin?")
        await expect(planner.question).to_contain_text("Adults pay £18, children £9.")
        await planner.sees(fares="finished", notice="finished", publish="waiting")
        await expect(planner.task("fares")).to_contain_text("Checked after 1 correction")
        await keep_picture(planner.page, "planner-approval")

        await planner.press("Approve")
        await planner.sees(publish="running")
        site.steps.release("publish:words")
        await planner.sees_answer("https://skerryline.example/notices/1")
        await planner.sees(publish="finished")
        await expect(planner.question).not_to_be_visible()
        await keep_picture(planner.page, "planner-finished")


async def test_a_plan_is_stopped_and_done_again_without_what_was_done(site: Site) -> None:
    site.steps.hold("weather", "children")
    async with site.open() as planner:
        await planner.ask(REQUEST)
        await planner.sees(tides="finished", weather="running", children="running")
        await planner.press("Stop")
        await planner.sees(weather="stopped", fares="stopped", timetable="stopped")
        await expect(planner.plan).to_contain_text("A person stopped it.")
        await keep_picture(planner.page, "planner-stopped")

        site.steps.release("weather", "children")
        await planner.press("Try again")
        await expect(planner.question).to_be_visible()
        await planner.press("Decline")
        await planner.sees(publish="stopped")
        await planner.sees_answer("Nothing is published. It is stopped. A person refused it.")


async def test_a_page_that_is_loaded_again_shows_the_plan_and_goes_on_with_it(site: Site) -> None:
    site.steps.hold("weather")
    async with site.open() as planner:
        await planner.ask(REQUEST)
        await planner.sees(tides="finished", weather="running", fares="finished")
        await planner.page.reload()
        await planner.sees(tides="finished", weather="running", fares="finished")
        site.steps.release("weather")
        await expect(planner.question).to_be_visible()
        await planner.page.reload()
        await planner.sees(publish="waiting")
        await planner.press("Approve")
        await planner.sees_answer("https://skerryline.example/notices/1")


async def test_a_second_approval_publishes_nothing_twice(site: Site) -> None:
    async with site.open() as planner, site.open() as other:
        await planner.ask(REQUEST)
        await expect(planner.question).to_be_visible()
        await other.page.reload()
        await expect(other.question).to_be_visible()
        await planner.press("Approve")
        await planner.sees_answer("https://skerryline.example/notices/1")
        await other.press("Approve")
        await expect(other.page.get_by_role("alert")).to_contain_text("it has been given before")
        await other.page.reload()
        await other.sees(publish="finished")


async def test_a_narrow_page_shows_the_plan_in_the_chat(site: Site) -> None:
    site.steps.hold("children")
    async with site.open(390, 844) as planner:
        await planner.ask(REQUEST)
        await planner.sees(timetable="finished", children="running")
        wide = "document.documentElement.scrollWidth > innerWidth"
        assert not await planner.page.evaluate(wide)
        await keep_picture(planner.page, "planner-narrow")
        site.steps.release("children")
        await expect(planner.question).to_be_in_viewport(ratio=1)
        await keep_picture(planner.page, "planner-narrow-approval")
