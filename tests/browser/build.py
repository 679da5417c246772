"""Builds the React examples, unless the build at hand is that of their sources."""

import os
from pathlib import Path

from playwright.async_api import Browser, BrowserContext, Page, expect
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from copilot_runtime import CopilotRuntime
from tests.npm import install, npm, once

EXAMPLES = Path(__file__).parents[2] / "examples"
SOURCES = ("package-lock.json", "package.json", "tsconfig.json", "vite.config.ts")


def built_page(name: str) -> Path:
    """Return the folder of an example's built page, building it first if need be."""
    example = EXAMPLES / name
    page = example / "dist"

    def build() -> None:
        install(example)
        npm(example, "run", "build")

    sources = [*(example / source for source in SOURCES), *sorted(example.glob("*.html"))]
    once(page, [*sources, example / "src"], build)
    return page


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


def one_origin(page: Path, runtime: CopilotRuntime | ASGIApp) -> ASGIApp:
    """Return an app with the runtime at `/graphql` and the page everywhere else."""
    answers = runtime.app(path="/graphql") if isinstance(runtime, CopilotRuntime) else runtime
    files = StaticFiles(directory=page, html=True)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        ours = scope["type"] == "lifespan" or scope["path"].startswith("/graphql")
        await (answers if ours else files)(scope, receive, send)

    return app
