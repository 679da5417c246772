"""The page of `make run` in a browser, on a server of the test's own."""

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit
from uuid import uuid4

import uvicorn
from playwright.async_api import Browser, BrowserContext, Locator, Page

from copilot_runtime import CopilotRuntime, DemoAdapter, action
from copilot_runtime.api import Adapter, ChatRequest
from copilot_runtime.api.events import Events, TextMessageContent, TextMessageEnd, TextMessageStart
from copilot_runtime.extensions.settings import Settings
from tests.browser.build import new_profile


@action
def get_time(city: str) -> str:
    """Tell the time in a city."""
    return f"12:00 in {city}"


class HeldAdapter(Adapter):
    """Says each word only when it is let, and tells when it was left."""

    def __init__(self, *words: str) -> None:
        self._words = words
        self._allowed = asyncio.Semaphore(0)
        self.left = asyncio.Event()

    def say_one(self) -> None:
        self._allowed.release()

    async def stream(self, request: ChatRequest) -> Events:
        del request
        message_id = uuid4().hex
        try:
            yield TextMessageStart(message_id=message_id)
            for word in self._words:
                await self._allowed.acquire()
                yield TextMessageContent(message_id=message_id, content=word)
            yield TextMessageEnd(message_id=message_id)
        finally:
            self.left.set()


def a_runtime(adapter: Adapter, threads: str = "memory") -> CopilotRuntime:
    name = "demo" if isinstance(adapter, DemoAdapter) else ""
    settings = Settings.model_validate({"threads": threads, "adapter": {"name": name}})
    return CopilotRuntime(adapter=adapter, actions=[get_time], settings=settings)


@asynccontextmanager
async def served(runtime: CopilotRuntime, port: int = 0) -> AsyncGenerator[str, None]:
    """Serve the page and return its address."""
    server = uvicorn.Server(uvicorn.Config(runtime.app(), log_level="warning"))
    with socket.create_server(("127.0.0.1", port)) as listener:
        running = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        finally:
            server.should_exit = True
            await running


@asynccontextmanager
async def opened(browser: Browser) -> AsyncGenerator[BrowserContext, None]:
    """Return a profile of its own. Whatever its pages do, nothing may leave this host."""
    context = await new_profile(browser, 1200, 760)
    asked: list[str] = []
    errors: list[str] = []
    context.on("request", lambda request: asked.append(request.url))
    context.on("weberror", lambda error: errors.append(str(error.error)))
    try:
        yield context
    finally:
        await context.close()
    assert {urlsplit(url).hostname for url in asked} - {None} == {"127.0.0.1"}
    assert errors == []


@asynccontextmanager
async def console(
    browser: Browser, runtime: CopilotRuntime | Adapter
) -> AsyncGenerator[Page, None]:
    """Open the page of a running server."""
    if not isinstance(runtime, CopilotRuntime):
        runtime = a_runtime(runtime)
    async with served(runtime) as url, opened(browser) as context:
        page = await context.new_page()
        await page.goto(url)
        yield page
        await page.close()  # ends its streams, so that the server can end


async def sign_in(page: Page, token: str) -> None:
    """Enter a token in the dialog, which is open after a response 401."""
    dialog = page.get_by_role("dialog", name="Sign in")
    await page.locator("#account").dispatch_event("click")  # a response 401 may have opened it
    await dialog.get_by_label("Token or API key").fill(token)
    await dialog.get_by_role("button", name="Sign in").click()


async def open_panel(page: Page, tab: str) -> None:
    await page.get_by_role("button", name="Panel", exact=True).click()
    await page.get_by_role("tab", name=tab).click()


async def open_card(page: Page, name: str) -> Locator:
    """Open the card of a call, and return it."""
    card = page.locator(".card", has=page.locator("summary", has_text=name)).last
    await card.locator("summary").click()
    return card


async def say(page: Page, text: str) -> None:
    await page.get_by_label("Message", exact=True).fill(text)
    await page.get_by_label("Message", exact=True).press("Enter")


def answer(page: Page) -> Locator:
    return page.locator(".assistant").last


def threads(page: Page) -> Locator:
    """Return the links of the list, the latest thread first."""
    return page.get_by_role("list", name="Threads").get_by_role("link")


def titles(page: Page) -> Locator:
    return threads(page).locator(".title")


async def tool_of_thread(page: Page, thread: str, tool: str) -> None:
    await page.get_by_role("button", name=f"More for {thread}").click()
    await page.get_by_role("button", name=tool, exact=True).click()
