"""A fresh profile of the browser, patient enough for a slow and busy machine."""

from playwright.async_api import Browser, BrowserContext, expect

PATIENCE = 120_000
"""Milliseconds for a page to do what it should; Playwright's own limits are for idle machines."""

expect.set_options(timeout=PATIENCE)


async def new_profile(browser: Browser, width: int, height: int) -> BrowserContext:
    """Open a profile without a history, whose pages have this size."""
    context = await browser.new_context(viewport={"width": width, "height": height})
    context.set_default_timeout(PATIENCE)
    return context
