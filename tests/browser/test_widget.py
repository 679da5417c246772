"""The widget: a chat that a page of another site gets with one script element."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from fastapi import FastAPI
from fastapi.responses import HTMLResponse
from playwright.async_api import Browser, Page, expect

from copilot_runtime import CopilotRuntime, Events, RunInput
from copilot_runtime.adapters.scripted import say
from copilot_runtime.api.events import Activity
from copilot_runtime.extensions.settings import Settings
from tests.browser.console import HeldAdapter, a_runtime, opened, served
from tests.browser.test_console import BOOKING, EXPORT, ScriptedAgent
from tests.browser.test_markdown import HOSTILE
from tests.wire_agui.server import serving

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def shop(
    browser: Browser, runtime: CopilotRuntime, attributes: str = ""
) -> AsyncGenerator[Page, None]:
    """Open a page of another origin, whose policy permits the server and nothing else."""
    site = FastAPI()
    async with served(runtime) as url:

        @site.get("/")
        def show() -> HTMLResponse:
            policy = f"default-src 'none'; script-src {url}; connect-src {url}"
            headers = {"content-security-policy": policy}
            script = f'<script src="{url}widget.js" {attributes}></script>'
            return HTMLResponse(f"<title>Shop</title>{script}", headers=headers)

        async with serving(site) as port, opened(browser) as context:
            page = await context.new_page()
            await page.goto(f"http://127.0.0.1:{port}/")
            yield page
            await page.close()


async def ask(page: Page, words: str) -> None:
    await page.get_by_label("Message").fill(words)
    await page.get_by_label("Message").press("Enter")


async def test_a_page_without_react_has_a_chat_that_lasts_over_a_reload(browser: Browser):
    adapter = HeldAdapter("**Ahoy**", " from [the log](/log).")
    async with shop(browser, a_runtime(adapter)) as page:
        await page.get_by_role("button", name="Chat").click()
        await ask(page, "hello")
        adapter.say_one()
        await expect(page.locator(".assistant strong")).to_have_text("Ahoy")
        await page.reload()
        await expect(page.locator(".assistant strong")).to_have_text("Ahoy")
        adapter.say_one()
        await expect(page.get_by_role("link", name="the log")).not_to_have_attribute("href", "/log")
        await expect(page.get_by_role("button", name="Send")).to_be_visible()

        await page.get_by_role("button", name="Close", exact=True).click()
        await page.reload()
        await page.get_by_role("button", name="Chat:").click()
        await expect(page.locator(".user")).to_have_text("hello")
        await expect(page.locator(".assistant")).to_have_text("Ahoy from the log.")


async def test_a_widget_asks_for_approval_and_stops_an_answer(browser: Browser):
    agents = {"booker": ScriptedAgent(BOOKING)}
    adapter = HeldAdapter("never")
    runtime = CopilotRuntime(adapter=adapter, agents=agents, settings=Settings(threads="memory"))
    async with shop(browser, runtime, "data-fill data-agent=booker") as page:
        await ask(page, "book")
        await expect(page.locator(".ask")).to_contain_text("Book a room in Oslo?")
        await page.get_by_role("button", name="Decline").click()
        await expect(page.locator(".assistant")).to_have_text("cancelled with None")
    async with shop(browser, runtime, "data-fill") as page:
        await ask(page, "wait")
        await page.get_by_role("button", name="Stop").click()
        await expect(page.locator(".log")).to_contain_text("Stopped.")


async def test_a_widget_says_what_would_be_done_without_characters_that_reorder_it(
    browser: Browser,
):
    export = replace(EXPORT, message="Export \u202e20,000 rows?")
    runtime = CopilotRuntime(agents={"clerk": ScriptedAgent(export)})
    async with shop(browser, runtime, "data-fill data-agent=clerk") as page:
        await ask(page, "export")
        await expect(page.locator(".ask h2")).to_have_text("Export \ufffd20,000 rows?")
        await expect(page.locator(".ask")).to_contain_text("clerk would call download with:")
        await expect(page.locator(".ask .pairs .pairs")).to_have_text("shopOslo")
        await page.get_by_label("Note").fill("Too many.")
        await page.get_by_role("button", name="Decline").click()
        told = "resolved with {'note': 'Too many.', 'approved': False}"
        await expect(page.locator(".assistant")).to_have_text(told)


async def test_content_of_another_form_ends_no_chat_and_runs_no_program(browser: Browser):
    urls = ["javascript:alert(1)", "https://[", "https://example.com/", "/doc"]
    sources = [{"title": f"Source {number}", "url": url} for number, url in enumerate(urls)]

    async def quote(_run: RunInput) -> Events:
        yield Activity(message_id="s1", activity_type="sources", content={"sources": sources})
        yield Activity(message_id="s2", activity_type="sources", content={"sources": {"a": 1}})
        for event in say("Done."):
            yield event

    runtime = CopilotRuntime(agents={"quoter": quote})
    async with shop(browser, runtime, "data-fill data-agent=quoter") as page:
        await ask(page, "quote")
        await expect(page.locator(".assistant")).to_have_text("Done.")
        await expect(page.locator(".sources li")).to_have_count(4)
        await expect(page.locator(".note")).to_have_text("This part of the answer cannot be shown.")
        hrefs = await page.locator(".sources a").evaluate_all("all => all.map((a) => a.protocol)")
        assert set(hrefs) == {":", "http:", "https:"}  # of one that is no address, too


async def test_a_hostile_answer_does_nothing_to_the_page_around_a_widget(browser: Browser):
    adapter = HeldAdapter(HOSTILE)
    adapter.say_one()
    async with shop(browser, CopilotRuntime(adapter=adapter), "data-fill") as page:
        await ask(page, "attack")
        await expect(page.get_by_role("button", name="Send")).to_be_visible()
        await expect(page.locator(".assistant")).to_contain_text("click")
        await expect(page).to_have_title("Shop")
        assert await page.locator(".assistant :is(script, img, form, style)").count() == 0
        hrefs = await page.locator(".assistant a").evaluate_all("all => all.map((a) => a.protocol)")
        assert set(hrefs) <= {"https:"}


async def test_on_a_phone_a_widget_fills_the_screen_and_opens_at_the_end(browser: Browser):
    adapter = HeldAdapter("Ahoy\n\n" * 99)
    adapter.say_one()
    async with shop(browser, CopilotRuntime(adapter=adapter)) as page:
        await page.set_viewport_size({"width": 360, "height": 640})
        await page.get_by_role("button", name="Chat").click()
        await ask(page, "hello")
        await expect(page.get_by_role("button", name="Send")).to_be_visible()
        box = await page.locator(".panel").bounding_box()
        await page.get_by_role("button", name="Close", exact=True).click()
        await page.get_by_role("button", name="Chat:").click()

        assert box == {"x": 0, "y": 0, "width": 360, "height": 640}
        log = page.locator(".log")
        assert await log.evaluate("it => it.scrollHeight - it.scrollTop - it.clientHeight < 2")
