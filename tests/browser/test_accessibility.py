"""axe-core finds nothing on the pages, at three widths and in both themes."""

from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Page, expect

from copilot_runtime import CopilotRuntime, DemoAdapter, Settings
from tests.browser.console import answer, open_card, open_panel, opened, say, served
from tests.browser.test_console import EXPORT, ScriptedAgent
from tests.extensions.knowledge.library import library, write_pages
from tests.npm import install

pytestmark = pytest.mark.anyio

AXE = Path(__file__).parent / "axe"
SIZES = ((1440, 900), (1024, 768), (390, 844))


@pytest.fixture(scope="session")
def axe(chromium: str) -> str:
    """Return the script of axe-core."""
    install(AXE)
    return (AXE / "node_modules/axe-core/axe.min.js").read_text()


async def find_violations(page: Page, axe: str) -> list[Any]:
    """Return what axe finds, by width and theme."""
    await page.emulate_media(reduced_motion="reduce")  # a colour on its way to another is neither
    await page.evaluate(axe)
    found: list[Any] = []
    for width, height in SIZES:
        await page.set_viewport_size({"width": width, "height": height})
        for theme in ("light", "dark"):
            await page.evaluate("theme => setTheme(theme)", theme)
            names = "(it) => [it.id, ...it.nodes.map(({ target }) => target.join(' '))]"
            rules = await page.evaluate(f"async () => (await axe.run()).violations.map({names})")
            found += [[width, theme, *rule] for rule in rules]
    return found


async def test_axe_finds_nothing_in_the_chat(browser: Browser, axe: str) -> None:
    clerk = ScriptedAgent(EXPORT)
    settings = Settings.model_validate({"threads": "memory", "adapter": {"name": "demo"}})
    runtime = CopilotRuntime(DemoAdapter(pace=0), agents={"clerk": clerk}, settings=settings)
    async with served(runtime) as url, opened(browser) as context:
        page = await context.new_page()
        await page.goto(url)
        assert await find_violations(page, axe) == []

        await say(page, 'Add a note "tea"')
        await expect(answer(page)).to_contain_text("number 1.")
        await open_card(page, "add_note")
        await say(page, "Show me an error")
        await expect(page.get_by_role("alert")).to_be_visible()
        await page.set_viewport_size({"width": 1440, "height": 900})
        await open_panel(page, "Connect")
        assert await find_violations(page, axe) == []
        await page.get_by_role("tab", name="Playground").click()
        await page.get_by_label("Model").fill("gpt-5")
        assert await find_violations(page, axe) == []
        await page.get_by_role("button", name="Ask both ways").click()
        await expect(page.locator("#columns .changed")).to_be_visible()
        assert await find_violations(page, axe) == []

        await page.get_by_role("button", name="Close", exact=True).click()
        await page.get_by_role("button", name="Close the panel").click()
        await page.get_by_label("Agent", exact=True).select_option("clerk")
        await say(page, "export")
        await expect(page.get_by_role("button", name="Approve")).to_be_visible()
        assert await find_violations(page, axe) == []
        await page.close()


@pytest.mark.parametrize("path", ["knowledge", "data", "traces", "traces#costs", "plans", "access"])
async def test_axe_finds_nothing_on_the_pages_of_extensions(
    browser: Browser, axe: str, path: str, tmp_path: Path
) -> None:
    table = tmp_path / "sales.csv"
    table.write_text("region,total\nnorth,1\nsouth,2\n")
    sections: Any = {
        "threads": "memory",
        "analyst": {"name": "analyst", "data": [str(table)], "store": str(tmp_path / "store")},
        "planner": {"name": "planner"},
        "telemetry": {"store": "memory", "operators": ["ann"]},
    }
    runtime = CopilotRuntime(
        DemoAdapter(pace=0),
        knowledge=library(write_pages(tmp_path)),
        authenticate=lambda connection: "ann",
        settings=Settings.model_validate(sections),
    )
    async with served(runtime) as url, opened(browser) as context:
        page = await context.new_page()
        await page.goto(url)
        await say(page, "Hello")
        await expect(answer(page)).to_contain_text("Hello!")
        await page.goto(f"{url}{path}")
        await expect(page.get_by_role("heading", level=1).first).to_be_visible()

        assert await find_violations(page, axe) == []
        await page.close()
