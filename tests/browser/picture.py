"""The picture of the README: what `make run` shows. `python -m tests.browser.picture` takes it."""

import asyncio
import os
import re
import shutil
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.async_api import Browser, Locator, Page, async_playwright, expect

from tests.browser.conftest import FLAGS
from tests.browser.console import answer, say, threads
from tests.processes import running

ROOT = Path(__file__).parents[2]
PICTURE = ROOT / "docs" / "screenshot-console.png"
WIDTH, HEIGHT, SCALE = 1280, 850, 1.5

PARTS: Mapping[str, Callable[[Page], Locator]] = {
    "threads": lambda page: threads(page).nth(1),
    "an answer with its sources": lambda page: page.locator(".sources").first,
    "an action on the server": lambda page: page.locator(".card", has_text="get_time"),
    "an answer that is still streaming": lambda page: page.locator(".streaming"),
}
"""What the alternative text of the picture may name, and where it is on the page."""


def read_parts() -> list[str]:
    """Return what the alternative text in the README names."""
    text = (ROOT / "README.md").read_text()
    found = re.search(r"!\[[^:\]]*: ([^\]]*)\]\(docs/screenshot-console", text)
    assert found
    return re.split(r", (?:and )?", found[1])


@contextmanager
def demo(folder: Path) -> Generator[str]:
    """Serve what `make run` serves, without threads of before; yield its address."""
    stores = {
        "COPILOT_THREADS": "memory",
        "COPILOT_PLANNER_STORE": "memory",
        "COPILOT_KNOWLEDGE_STORAGE": "memory",
        "COPILOT_ANALYST_STORE": str(folder / "analyst"),
    }
    command = ["make", "--silent", "--old-file=.venv/ready", "run", "PORT=0"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), **stores}
    with running(command, cwd=ROOT, env=env) as server:
        yield server.until(r"try it +(\S+)")[1]


async def take_picture(browser: Browser, path: Path) -> None:
    """Ask what a visitor would, and take the picture in the middle of the last answer."""
    with demo(path.parent) as url:
        page = await browser.new_page(
            viewport={"width": WIDTH, "height": HEIGHT}, device_scale_factor=SCALE
        )
        await page.goto(f"{url}knowledge")
        await expect(page.locator("#status")).to_contain_text("ready")
        await page.goto(url)
        await page.get_by_label("Agent", exact=True).select_option("analyst")
        await page.get_by_role("button", name="Summarize").click()
        await _is_answered(page)
        await page.get_by_label("Agent", exact=True).select_option("default")
        for question in ("Who is the captain of MV Tern?", "What time is it in Paris?"):
            await say(page, question)
            await _is_answered(page)
        await page.mouse.move(WIDTH - 5, HEIGHT / 2)
        await say(page, "Tell me a long story")
        await expect(answer(page)).to_contain_text("You asked for something long")
        for part in read_parts():
            await expect(PARTS[part](page)).to_be_in_viewport()
        await page.screenshot(path=path)
        await page.close()


async def _is_answered(page: Page) -> None:
    await expect(answer(page)).to_be_visible()
    await expect(page.get_by_role("button", name="Send")).to_be_visible()


async def _main() -> None:
    async with async_playwright() as playwright:
        path = shutil.which("chromium")
        browser = await playwright.chromium.launch(executable_path=path, args=FLAGS)
        with TemporaryDirectory() as folder:
            await take_picture(browser, Path(folder) / PICTURE.name)
            shutil.copy(Path(folder) / PICTURE.name, PICTURE)
        await browser.close()


if __name__ == "__main__":
    asyncio.run(_main())
