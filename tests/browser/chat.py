"""The page as a person sees it: a chat to the right, a board to the left."""

import asyncio
from urllib.parse import urlsplit

from playwright.async_api import Locator, Page, expect

from tests.browser.build import keep_picture

_WATCH_ANSWERS = """
  window.answersSeen = [];
  new MutationObserver(() => {
    const answers = document.querySelectorAll(".copilotKitAssistantMessage");
    const text = answers.length ? answers[answers.length - 1].innerText.trim() : "";
    if (text && text !== window.answersSeen.at(-1)) window.answersSeen.push(text);
  }).observe(document, { subtree: true, childList: true, characterData: true });
"""


class Chat:
    """One open page."""

    placeholder = "Ask about the board"

    def __init__(self, page: Page) -> None:
        self.page = page
        self.requests: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))

    async def open(self, url: str) -> None:
        """Load the page and wait until its chat is ready."""
        await self.page.add_init_script(_WATCH_ANSWERS)
        await self.page.goto(url)
        await expect(self._button("copilot-chat-ready")).to_be_visible()

    async def ask(self, question: str) -> None:
        """Type a question and send it."""
        await self.page.get_by_placeholder(self.placeholder).fill(question)
        await self._button("copilot-chat-ready").click()

    async def stop(self) -> None:
        """Press the stop button."""
        await self._button("copilot-chat-request-in-progress").click()

    async def sees_answer(self, text: str) -> None:
        """Wait until the last answer is exactly this text."""
        await expect(self.page.locator(".copilotKitAssistantMessage").last).to_have_text(text)

    async def is_ready(self) -> None:
        """Wait until nothing is going on any more."""
        await expect(self._button("copilot-chat-ready")).to_be_visible()

    async def answers_seen(self) -> list[str]:
        """Return every text the last answer had, in order, whenever the page changed."""
        return await self.page.evaluate("window.answersSeen")

    def column(self, name: str) -> Locator:
        """Return a column of the board."""
        return self.page.get_by_role("region", name=name, exact=True)

    def card(self, heading: str) -> Locator:
        """Return a card that an action has drawn into the chat."""
        return self.page.locator(".card", has=self.page.get_by_role("heading", name=heading))

    def banner(self) -> Locator:
        """Return the banner that says what went wrong."""
        return self.page.get_by_role("alert")

    async def keep(self, name: str) -> None:
        """Keep a picture of the page as it is now, if somebody wants to see it."""
        await keep_picture(self.page, name)

    def foreign_requests(self) -> list[str]:
        """Return what the page asked of any host but this one."""
        local = {"127.0.0.1", "localhost", None}
        return [url for url in self.requests if urlsplit(url).hostname not in local]

    def _button(self, state: str) -> Locator:
        return self.page.locator(f'button[data-test-id="{state}"]')


class Steps:
    """Lets the model of the example take each step that a test does not hold back."""

    def __init__(self) -> None:
        self._held: dict[str, asyncio.Event] = {}

    def hold(self, *names: str) -> None:
        self._held |= {name: asyncio.Event() for name in names}

    def release(self, *names: str) -> None:
        for name in names:
            self._held[name].set()

    async def __call__(self, name: str) -> None:
        if name in self._held:
            await self._held[name].wait()


class TripChat(Chat):
    """One open page. It has the words of `Desk`, so that a test may have either."""

    placeholder = "Ask about your trip"

    def stops(self) -> Locator:
        return self.page.get_by_role("region", name="Stops").get_by_role("listitem")

    def bookings(self) -> Locator:
        return self.page.get_by_role("region", name="Bookings").get_by_role("listitem")

    def destination(self) -> Locator:
        return self.page.get_by_role("main").get_by_role("heading", level=1)

    def approval(self) -> Locator:
        return self.page.get_by_role("group", name="Approval")

    async def press(self, button: str) -> None:
        """Press a button by its name, anywhere on the page."""
        await self.page.get_by_role("button", name=button, exact=True).click()
