"""The page `trip.html` of `examples/react-v1` as a person sees it: a plan, and a chat beside it."""

from playwright.async_api import Locator

from tests.browser.chat import Chat


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
