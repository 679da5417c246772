"""Pages that are open show what others do with threads, without a reload."""

from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from copilot_runtime import DemoAdapter
from tests.browser.console import (
    HeldAdapter,
    a_runtime,
    answer,
    console,
    opened,
    say,
    served,
    titles,
    tool_of_thread,
)

pytestmark = pytest.mark.anyio


async def test_two_browsers_see_each_others_threads_without_a_reload(browser: Browser):
    model = HeldAdapter("One", " two")
    async with console(browser, model) as page, opened(browser) as elsewhere:
        other = await elsewhere.new_page()
        await other.goto(page.url)
        await say(page, "count")
        model.say_one()
        await expect(titles(other)).to_have_text(["count"])
        await expect(other.locator("#list .running")).to_have_count(1)
        model.say_one()
        await expect(other.locator("#list .running")).to_have_count(0)
        await tool_of_thread(other, "count", "Rename")
        await other.get_by_label("Name of the thread").fill("Numbers")
        await other.keyboard.press("Enter")
        await expect(titles(page)).to_have_text(["Numbers"])
        await tool_of_thread(page, "Numbers", "Archive")

        await expect(titles(other)).to_have_count(0)
        await leave(other)


async def test_a_browser_that_shows_a_thread_follows_the_answer_that_another_asked_for(
    browser: Browser,
):
    model = HeldAdapter("One", " two")
    async with console(browser, model) as page, opened(browser) as elsewhere:
        await say(page, "count")
        for _ in range(2):
            model.say_one()
        await expect(answer(page)).to_have_text("One two")
        other = await elsewhere.new_page()
        await other.goto(page.url)
        await expect(answer(other)).to_have_text("One two")
        await say(page, "again")
        model.say_one()
        await expect(other.locator(".assistant")).to_have_text(["One two", "One"])
        model.say_one()

        await expect(other.locator(".assistant")).to_have_text(["One two", "One two"])
        await leave(other)


async def test_a_page_at_another_server_shows_a_new_thread(browser: Browser, tmp_path: Path):
    store = f"sqlite:{tmp_path}/threads.db"
    async with (
        served(a_runtime(DemoAdapter(pace=0), store)) as first,
        served(a_runtime(DemoAdapter(pace=0), store)) as second,
        opened(browser) as context,
    ):
        page, other = await context.new_page(), await context.new_page()
        await other.goto(second)
        await page.goto(first)
        await say(page, "hello")
        await other.bring_to_front()

        await expect(titles(other)).to_have_text(["hello"])
        for each in (page, other):
            await leave(each)


async def leave(page: Page) -> None:
    """Close a page, which ends its streams, so that its server can end."""
    await page.close()
