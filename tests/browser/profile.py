"""A fresh profile of the browser, patient enough for a slow and busy machine."""

import os
from pathlib import Path

from playwright.async_api import Browser, BrowserContext, Page, expect

PATIENCE = 120_000
"""Milliseconds for a page to do what it should; Playwright's own limits are for idle machines."""

PICTURES = os.environ.get("BROWSER_TESTS_PICTURES")
"""The folder for pictures of how tests left their pages; without one none are taken."""

expect.set_options(timeout=PATIENCE)


async def new_profile(browser: Browser, width: int, height: int) -> BrowserContext:
    """Open a profile without a history, whose pages have this size."""
    context = await browser.new_context(viewport={"width": width, "height": height})
    context.set_default_timeout(PATIENCE)
    return context


async def keep_picture(page: Page, name: str) -> None:
    """Keep a picture of the page as it is now, if somebody wants to see it."""
    if PICTURES:
        await page.screenshot(path=Path(PICTURES) / f"{name}.png", animations="disabled")
