import re
from asyncio import Event
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, Route, expect

from copilot_runtime import DemoAdapter
from tests.browser.console import (
    HeldAdapter,
    a_runtime,
    answer,
    console,
    opened,
    say,
    served,
    threads,
    titles,
    tool_of_thread,
)

pytestmark = pytest.mark.anyio


async def test_a_reload_in_the_middle_goes_on_with_the_answer_complete_and_once(browser: Browser):
    model = HeldAdapter("One", " two", " three")
    async with console(browser, model) as page:
        await say(page, "count")
        model.say_one()
        await expect(answer(page)).to_have_text("One")
        await page.reload()
        await expect(answer(page)).to_have_text("One")
        await expect(page.get_by_role("button", name="Stop")).to_be_visible()
        model.say_one()
        await expect(answer(page)).to_have_text("One two")
        model.say_one()
        await expect(page.get_by_role("button", name="Send")).to_be_visible()

        await expect(page.locator(".assistant")).to_have_text(["One two three"])
        await expect(page.locator(".user")).to_have_text(["count"])


async def test_what_a_reload_shows_is_what_was_there(browser: Browser):
    async with console(browser, DemoAdapter(pace=0)) as page:
        await say(page, 'What time is it in Paris and add a note "water the plants"')
        await expect(answer(page)).to_contain_text("number 1.")
        await say(page, "Show me an error")
        await expect(page.get_by_role("alert")).to_contain_text("Network error")
        before = await shown(page)
        await page.reload()
        await expect(page.get_by_role("alert")).to_contain_text("Network error")

        assert await shown(page) == before
        await expect(page.get_by_role("list", name="Notes")).to_have_text("water the plants")


async def test_a_second_tab_sees_the_running_answer_and_the_ones_after_it(browser: Browser):
    model = HeldAdapter("One", " two")
    async with console(browser, model) as page:
        await say(page, "count")
        model.say_one()
        await expect(answer(page)).to_have_text("One")
        second = await page.context.new_page()
        await second.goto(page.url)
        await expect(answer(second)).to_have_text("One")
        model.say_one()
        for each in (page, second):
            await expect(answer(each)).to_have_text("One two")
            await expect(each.get_by_role("button", name="Send")).to_be_visible()

        await say(page, "again")
        model.say_one()
        await expect(second.locator(".assistant")).to_have_text(["One two", "One"])
        await second.get_by_role("button", name="Stop").click()
        for each in (page, second):
            await expect(each.locator(".stopped")).to_have_text("Stopped.")
        await second.close()


async def test_threads_survive_a_restart_of_the_server(browser: Browser, tmp_path: Path):
    store = f"sqlite:{tmp_path}/threads.db"
    async with opened(browser) as context:
        page = await context.new_page()
        async with served(a_runtime(DemoAdapter(pace=0), store)) as url:
            await page.goto(url)
            await say(page, "hello")
            await expect(answer(page)).to_contain_text("Hello!")
            address = page.url.removeprefix(url)
            await page.goto("about:blank")
        async with served(a_runtime(DemoAdapter(pace=0), store)) as url:
            await page.goto(url + address)

            await expect(titles(page)).to_have_text(["hello"])
            await expect(answer(page)).to_contain_text("Hello!")
            await page.close()


async def test_a_new_chat_leaves_the_answer_to_the_server_which_goes_on_with_it(browser: Browser):
    model = HeldAdapter("One", " two")
    async with console(browser, model) as page:
        await say(page, "count")
        model.say_one()
        await expect(answer(page)).to_have_text("One")
        await page.get_by_role("button", name="New chat").click()
        await expect(page.locator(".user, .assistant, .stopped")).to_have_count(0)
        await expect(page.get_by_role("button", name="Send")).to_be_visible()
        model.say_one()
        await model.left.wait()
        await threads(page).get_by_text("count").click()

        await expect(page.locator(".assistant")).to_have_text(["One two"])


async def test_back_and_forward_go_from_thread_to_thread(browser: Browser):
    async with console(browser, DemoAdapter(pace=0)) as page:
        await two_threads(page)
        await threads(page).nth(1).click()
        await expect(page.locator(".user")).to_have_text(["hello"])
        await page.go_back()

        await expect(page.locator(".user")).to_have_text(["think"])
        await expect(threads(page).nth(0)).to_have_attribute("aria-current", "page")


async def test_a_thread_can_be_given_a_name(browser: Browser):
    async with console(browser, DemoAdapter(pace=0)) as page:
        await two_threads(page)
        await tool_of_thread(page, "hello", "Rename")
        name = page.get_by_label("Name of the thread")
        await expect(name).to_be_focused()
        await name.fill("Greetings")
        await name.press("Enter")
        await expect(page.get_by_role("button", name="More for Greetings")).to_be_focused()
        await expect(page.get_by_role("button", name="Rename")).to_have_count(0)
        await expect(titles(page)).to_have_text(["Greetings", "think"])
        await page.reload()

        await expect(titles(page)).to_have_text(["Greetings", "think"])


async def test_escape_keeps_the_name_as_it_was(browser: Browser):
    async with console(browser, DemoAdapter(pace=0)) as page:
        await two_threads(page)
        await tool_of_thread(page, "think", "Rename")
        await page.get_by_label("Name of the thread").fill("Never")
        await page.keyboard.press("Escape")

        await expect(titles(page)).to_have_text(["think", "hello"])
        await expect(page.get_by_role("button", name="More for think")).to_be_focused()


async def test_an_archived_thread_is_out_of_the_way_and_can_come_back(browser: Browser):
    async with console(browser, DemoAdapter(pace=0)) as page:
        await two_threads(page)
        await tool_of_thread(page, "hello", "Archive")
        await expect(titles(page)).to_have_text(["think"])
        await page.get_by_label("Show archived").check()
        await tool_of_thread(page, "hello", "Unarchive")
        await expect(page.locator("li.archived")).to_have_count(0)
        await page.get_by_label("Show archived").uncheck()

        await expect(threads(page)).to_have_count(2)


async def test_a_thread_is_deleted_only_after_a_question(browser: Browser):
    async with console(browser, DemoAdapter(pace=0)) as page:
        await two_threads(page)
        await tool_of_thread(page, "think", "Delete")
        await page.get_by_role("dialog").get_by_role("button", name="Keep it").click()
        await expect(threads(page)).to_have_count(2)
        await page.get_by_role("button", name="Delete").click()
        await page.get_by_role("dialog").get_by_role("button", name="Delete").click()

        await expect(titles(page)).to_have_text(["hello"])
        await expect(page.locator(".user")).to_have_count(0)
        assert "#" not in page.url


async def test_older_threads_come_a_page_at_a_time(browser: Browser):
    async with console(browser, DemoAdapter(pace=0)) as page:
        await page.evaluate(FILL, 33)
        await page.reload()
        await expect(threads(page)).to_have_count(30)
        await page.get_by_role("button", name="More", exact=True).click()

        await expect(threads(page)).to_have_count(33)
        await expect(page.get_by_role("button", name="More", exact=True)).to_be_hidden()


async def test_the_page_looks_itself_what_became_of_an_answer_that_broke_off(browser: Browser):
    model = HeldAdapter("One", " two")
    async with console(browser, model) as page:
        await page.evaluate(BREAKS)
        await page.route("**/connect", lambda route: None)  # until the server answers
        await say(page, "count")
        model.say_one()
        await expect(page.get_by_role("alert")).to_contain_text("Looking whether the server goes")
        await page.unroute("**/connect")
        model.say_one()

        await expect(page.locator(".assistant")).to_have_text(["One two"])
        await expect(page.get_by_role("alert")).to_have_count(0)


async def test_a_thread_that_somebody_else_is_asking_says_so_until_it_is_free(browser: Browser):
    model = HeldAdapter("One")
    async with console(browser, model) as page:
        await page.route("**/threads/changes?*", lambda route: route.abort())
        await page.reload()  # into a page that is not told what others do
        model.say_one()
        await say(page, "count")
        await expect(answer(page)).to_have_text("One")
        await expect(page.get_by_role("button", name="Send")).to_be_visible()
        await page.evaluate(ASKS, page.url.rpartition("/")[2])
        await say(page, "more")
        await expect(page.get_by_role("alert")).to_contain_text("Thread busy")
        model.left.clear()
        model.say_one()
        await model.left.wait()
        model.say_one()
        await page.get_by_role("button", name="Try again").click()

        await expect(page.locator(".assistant")).to_have_text(["One", "One"])
        await expect(page.get_by_role("alert")).to_have_count(0)


async def test_a_call_that_a_reload_left_unanswered_can_be_run_after_it(browser: Browser):
    async with console(browser, DemoAdapter(pace=0)) as page:
        await page.evaluate(LEAVES)
        await page.evaluate("location.hash = '#default/left'")
        await page.get_by_role("button", name="Run it here").click()

        await expect(answer(page)).to_contain_text("The note is on the page, number 1.")
        await expect(page.get_by_role("button", name="Run it here")).to_be_hidden()


async def test_a_list_that_cannot_be_read_says_so_and_the_chat_goes_on(browser: Browser):
    async with console(browser, DemoAdapter(pace=0)) as page:
        await page.route(
            "**/threads?*", lambda route: route.fulfill(status=503, body='{"message": "No disk."}')
        )
        await say(page, "hello")

        await expect(answer(page)).to_contain_text("Hello!")
        await expect(page.get_by_text("The threads could not be read: No disk.")).to_be_visible()


async def test_a_message_waits_until_the_page_knows_its_server(
    browser: Browser,
):
    asked, may_answer = Event(), Event()

    async def answer_late(route: Route) -> None:
        asked.set()
        await may_answer.wait()
        await route.continue_()

    async with console(browser, DemoAdapter(pace=0)) as page:
        await page.route("**/info", answer_late)
        await page.reload()
        await asked.wait()
        async with page.expect_request("**/run") as asking:
            await say(page, "hello")
            await expect(page.get_by_label("Message", exact=True)).to_have_value("hello")
            assert not asking.is_done()
            may_answer.set()

        await expect(answer(page)).to_contain_text("Hello!")


async def shown(page: Page) -> str:
    """Return the text of the conversation, without the durations that only a live page measures."""
    text = await page.locator("#items").inner_text()
    return re.sub(r"\n[\d.]+ [mµ]?s", "", text)


async def two_threads(page: Page) -> None:
    """Talk in two threads; the second one stays open."""
    await say(page, "hello")
    await expect(page.get_by_role("button", name="Send")).to_be_visible()
    await expect(answer(page)).to_contain_text("Hello!")
    await page.get_by_role("button", name="New chat").click()
    await say(page, "think")
    await expect(answer(page)).to_contain_text("I have thought about it.")
    await expect(titles(page)).to_have_text(["think", "hello"])


ASK = """async (threadId, content, tools = []) => {
  const messages = [{ id: `m-${threadId}-${content}`, role: "user", content }];
  const body = { threadId, runId: `r-${threadId}`, messages, tools, context: [] };
  return await fetch("graphql/agent/default/run", {
    method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body),
  });
}"""
"""How another client asks. It is answered as soon as the run has begun."""

FILL = f"""async (count) => {{
  for (let i = 0; i < count; i++) await (await ({ASK})(`t${{i}}`, `hello ${{i}}`)).text();
}}"""

ASKS = f"async (thread) => {{ await ({ASK})(thread, 'from elsewhere'); }}"

LEAVES = f"""async () => {{
  const [, note] = offeredTools();
  await (await ({ASK})("left", "Add a note: tea", [note])).text();
}}"""

BREAKS = """() => {
  const original = window.fetch;
  window.fetch = async (url, options) => {
    const response = await original(url, options);
    if (!url.endsWith("/run")) return response;
    const reader = response.body.getReader();
    let heard = "";
    const body = new ReadableStream({ async pull(to) {
      if (heard.includes("One")) return to.error(new TypeError("network error"));
      const { done, value } = await reader.read();
      heard += new TextDecoder().decode(value ?? new Uint8Array());
      if (done) to.close(); else to.enqueue(value);
    } });
    return new Response(body, { status: 200, headers: response.headers });
  };
}"""
