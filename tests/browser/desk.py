"""The page of `examples/react-v2` as a person sees it: trips, a conversation, a plan."""

from urllib.parse import urlsplit

from playwright.async_api import Locator, Page, expect

from tests.browser.build import keep_picture

_WATCH_ANSWERS = """
  window.answersSeen = [];
  new MutationObserver(() => {
    const answers = document.querySelectorAll('[data-testid="copilot-assistant-message"]');
    const text = answers.length ? answers[answers.length - 1].innerText.trim() : "";
    if (text && text !== window.answersSeen.at(-1)) window.answersSeen.push(text);
  }).observe(document, { subtree: true, childList: true, characterData: true });
"""


class Desk:
    """One open page."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.requests: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))

    async def open(self, url: str) -> None:
        """Load the page and wait until one can ask."""
        await self.page.add_init_script(_WATCH_ANSWERS)
        await self.page.goto(url)
        await self.is_ready()

    async def reload(self) -> None:
        """Load the page again, without waiting for more than its first answer."""
        await self.page.reload()

    async def ask(self, question: str) -> None:
        """Type a question and send it."""
        await self.page.get_by_test_id("copilot-chat-textarea").fill(question)
        await self.page.get_by_test_id("copilot-send-button").click()

    async def stop(self) -> None:
        """Press the button that ends an answer: it is the one that sends, in other clothes."""
        await self.page.get_by_test_id("copilot-send-button").click()

    async def is_ready(self) -> None:
        """Wait until nothing is going on any more."""
        await expect(self.page.locator('[data-copilot-running="false"]')).to_be_visible()

    async def is_busy(self) -> None:
        """Wait until an answer is under way."""
        await expect(self.page.locator('[data-copilot-running="true"]')).to_be_visible()

    async def sees_answer(self, text: str) -> None:
        """Wait until the last answer is exactly this text."""
        await expect(self.answers().last).to_have_text(text)

    async def answers_seen(self) -> list[str]:
        """Return every text the last answer had since the page was loaded, in order."""
        return await self.page.evaluate("window.answersSeen")

    def answers(self) -> Locator:
        return self.page.get_by_test_id("copilot-assistant-message")

    def questions(self) -> Locator:
        return self.page.get_by_test_id("copilot-user-message")

    def suggestion(self, title: str) -> Locator:
        return self.page.get_by_test_id("copilot-suggestion").filter(has_text=title)

    def weather(self, city: str) -> Locator:
        """Return the card that the tool has drawn into the conversation."""
        return self.page.get_by_role("article", name=f"Weather in {city}")

    def destination(self) -> Locator:
        return self.page.get_by_role("complementary", name="Plan").get_by_role("heading", level=2)

    def stops(self) -> Locator:
        return self.page.get_by_role("region", name="Stops").get_by_role("listitem")

    def bookings(self) -> Locator:
        return self.page.get_by_role("region", name="Bookings").get_by_role("listitem")

    def approval(self) -> Locator:
        return self.page.get_by_role("dialog")

    def banner(self) -> Locator:
        """Return the banner that says what went wrong."""
        return self.page.get_by_role("main").get_by_role("alert")

    def trips(self) -> Locator:
        """Return the rows of the list of threads."""
        return self.page.get_by_role("navigation", name="Trips").get_by_role("listitem")

    def trip(self, name: str) -> Locator:
        return self.trips().filter(has=self.page.get_by_text(name, exact=True))

    async def press(self, button: str) -> None:
        """Press a button by its name, anywhere on the page."""
        await self.page.get_by_role("button", name=button, exact=True).click()

    async def keep(self, name: str) -> None:
        """Keep a picture of the page as it is now, if somebody wants to see it."""
        await keep_picture(self.page, name)

    def foreign_requests(self) -> list[str]:
        """Return what the page asked of any host but this one."""
        local = {"127.0.0.1", "localhost", None}
        return [url for url in self.requests if urlsplit(url).hostname not in local]
