import asyncio
import re
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest
import uvicorn
from playwright.async_api import Browser, Locator, Page, expect

from copilot_runtime import CopilotRuntime, DemoAdapter, action
from copilot_runtime.errors import AuthenticationFailed
from copilot_runtime.events import TextMessageContent, TextMessageEnd, TextMessageStart
from copilot_runtime.interfaces import Adapter, ChatRequest, Events

pytestmark = pytest.mark.anyio


@action
def get_time(city: str) -> str:
    """Tell the time in a city."""
    return f"12:00 in {city}"


class HeldAdapter:
    """Says each word only when it is let, and tells when it was left."""

    def __init__(self, *words: str) -> None:
        self._words = words
        self._allowed = asyncio.Semaphore(0)
        self.left = asyncio.Event()

    def say_one(self) -> None:
        self._allowed.release()

    async def stream(self, request: ChatRequest) -> Events:
        try:
            yield TextMessageStart(message_id="m1")
            for word in self._words:
                await self._allowed.acquire()
                yield TextMessageContent(message_id="m1", content=word)
            yield TextMessageEnd(message_id="m1")
        finally:
            self.left.set()


class RefusedAdapter:
    async def stream(self, request: ChatRequest) -> Events:
        if request.messages:
            raise AuthenticationFailed("OpenAI refused the key 'sk-…'. Is OPENAI_API_KEY right?")
        yield TextMessageStart(message_id="never")


@asynccontextmanager
async def playground(browser: Browser, adapter: Adapter) -> AsyncGenerator[Page, None]:
    """Open the page of a running server. Whatever a test does, nothing may leave this host."""
    app = CopilotRuntime(adapter=adapter, actions=[get_time]).app()
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        running = asyncio.create_task(server.serve(sockets=[listener]))
        context = await browser.new_context(viewport={"width": 1200, "height": 760})
        page = await context.new_page()
        asked: list[str] = []
        errors: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: errors.append(str(error)))
        await page.goto(f"http://127.0.0.1:{listener.getsockname()[1]}/")
        yield page
        await context.close()
        server.should_exit = True
        await running
    assert {urlsplit(url).hostname for url in asked} - {None} == {"127.0.0.1"}
    assert errors == []


async def say(page: Page, text: str) -> None:
    await page.get_by_label("Message").fill(text)
    await page.get_by_label("Message").press("Enter")


def answer(page: Page) -> Locator:
    return page.locator(".assistant").last


async def test_text_grows_while_the_model_speaks(browser: Browser):
    model = HeldAdapter("One", " two", " three")
    async with playground(browser, model) as page:
        await say(page, "count")
        for so_far in ("One", "One two", "One two three"):
            model.say_one()
            await expect(answer(page)).to_have_text(so_far)
        await expect(page.get_by_role("button", name="Send")).to_be_visible()


async def test_actions_of_the_browser_change_the_page_and_are_reported_to_the_model(
    browser: Browser,
):
    async with playground(browser, DemoAdapter(pace=0)) as page:
        await say(page, 'Make it orange and dark; add a note "water the plants"')

        await expect(answer(page)).to_contain_text("The page is dark now.")
        await expect(page.locator(".card")).to_have_count(3)
        await expect(page.locator("html")).to_have_attribute("data-theme", "dark")
        await expect(page.locator("html")).to_have_css("--accent", "orange")
        await expect(page.get_by_role("list", name="Notes")).to_have_text("water the plants")


async def test_an_action_of_the_server_shows_its_arguments_and_its_result(browser: Browser):
    async with playground(browser, DemoAdapter(pace=0)) as page:
        await page.get_by_role("button", name="What time is it in Paris?").click()

        await expect(page.locator(".card .arguments")).to_have_text('{"city": "Paris"}')
        await expect(page.locator(".card .result")).to_have_text("12:00 in Paris")
        await expect(answer(page)).to_have_text("The action get_time answered: 12:00 in Paris")


@pytest.mark.parametrize("how", ["button", "key"])
async def test_stop_keeps_what_was_said_and_frees_the_model(browser: Browser, how: str):
    model = HeldAdapter("One", " two")
    async with playground(browser, model) as page:
        await say(page, "count")
        model.say_one()
        await expect(answer(page)).to_have_text("One")
        if how == "button":
            await page.get_by_role("button", name="Stop").click()
        else:
            await page.keyboard.press("Escape")

        await asyncio.wait_for(model.left.wait(), 5)
        await expect(page.locator(".stopped")).to_have_text("Stopped.")
        await expect(page.get_by_role("button", name="Send")).to_be_visible()
        await expect(answer(page)).to_have_text("One")


async def test_a_refused_key_is_a_banner_that_names_the_cause(browser: Browser):
    async with playground(browser, RefusedAdapter()) as page:
        await say(page, "hello")

        banner = page.get_by_role("alert")
        await expect(banner).to_contain_text("AUTHENTICATION_ERROR")
        await expect(banner).to_contain_text("Is OPENAI_API_KEY right?")
        await banner.get_by_role("button", name="Try again").click()
        await expect(page.get_by_role("alert")).to_have_count(1)


async def test_an_error_in_the_middle_keeps_the_words_before_it(browser: Browser):
    async with playground(browser, DemoAdapter(pace=0)) as page:
        await say(page, "Show me an error")

        await expect(page.get_by_role("alert")).to_contain_text("NETWORK_ERROR")
        await expect(answer(page)).to_have_text("Here it comes: I start a sentence and")


@pytest.mark.parametrize(
    ("status", "kind", "body", "said"),
    [
        (401, "application/json", '{"detail": "Log in first."}', ["HTTP 401", "Log in first."]),
        (502, "text/html", "<h1>Bad gateway</h1>", ["HTTP 502", "<h1>Bad gateway</h1>"]),
        (
            200,
            "application/json",
            '{"errors": [{"message": "No such agent."}]}',
            ["No such agent."],
        ),
        (200, 'multipart/mixed; boundary="-"', "\r\n---\r\n\r\n{}", ["Connection lost"]),
        (200, 'multipart/mixed; boundary="-"', "\r\n---\r\n\r\n{\r\n---", ["Connection lost"]),
    ],
)
async def test_an_answer_that_is_none_says_what_it_was(
    browser: Browser, status: int, kind: str, body: str, said: list[str]
):
    async with playground(browser, DemoAdapter(pace=0)) as page:
        headers = {"content-type": kind}
        await page.route(
            "**/graphql", lambda route: route.fulfill(status=status, headers=headers, body=body)
        )
        await say(page, "hello")

        for words in said:
            await expect(page.get_by_role("alert")).to_contain_text(words)


async def test_a_server_that_is_gone_is_said_and_can_be_tried_again(browser: Browser):
    async with playground(browser, DemoAdapter(pace=0)) as page:
        await page.route("**/graphql", lambda route: route.abort("connectionrefused"))
        await say(page, "think")
        await expect(page.get_by_role("alert")).to_contain_text("could not be reached")

        await page.unroute("**/graphql")
        await page.get_by_role("button", name="Try again").click()

        await expect(answer(page)).to_have_text("I have thought about it. (I cannot really think.)")
        await expect(page.get_by_role("alert")).to_have_count(0)


async def test_a_new_chat_forgets_the_old_one_even_in_the_middle_of_it(browser: Browser):
    model = HeldAdapter("One", " two")
    async with playground(browser, model) as page:
        await say(page, "count")
        model.say_one()
        await expect(answer(page)).to_have_text("One")
        await page.get_by_role("button", name="New chat").click()

        await asyncio.wait_for(model.left.wait(), 5)
        await expect(page.get_by_role("button", name="Send")).to_be_visible()
        await expect(page.locator(".user, .assistant, .stopped")).to_have_count(0)


async def test_what_a_model_says_is_never_markup(browser: Browser):
    model = HeldAdapter('<img src=x onerror="document.title=1"> **bold** `<b>`')
    async with playground(browser, model) as page:
        model.say_one()
        await say(page, "attack")

        await expect(answer(page)).to_have_text(re.compile(r"^<img src=x .*> bold <b>$"))
        await expect(answer(page).locator("strong")).to_have_text("bold")
        await expect(answer(page).locator("img, b")).to_have_count(0)


async def test_the_wire_can_be_watched(browser: Browser):
    async with playground(browser, DemoAdapter(pace=0)) as page:
        await page.get_by_text("On the wire").click()
        await say(page, "hello")

        await expect(page.locator("#wire li").last).to_contain_text('"hasNext":false')


async def test_a_phone_shows_chat_and_panel_one_at_a_time(browser: Browser):
    async with playground(browser, DemoAdapter(pace=0)) as page:
        await page.set_viewport_size({"width": 390, "height": 780})
        await expect(page.get_by_role("complementary")).to_be_hidden()

        await page.get_by_role("button", name="Panel").click()

        await expect(page.get_by_role("complementary")).to_be_visible()
        await expect(page.get_by_label("Message")).to_be_hidden()
