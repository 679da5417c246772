"""Three assistants in a real browser: one takes over, and two answer a part each."""

from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from copilot_runtime.extensions.knowledge import Knowledge
from tests.browser.build import built_page, keep_picture, new_profile, one_origin
from tests.test_examples import EXAMPLES, loaded
from tests.wire_agui.server import serving

pytestmark = pytest.mark.anyio


async def test_a_page_shows_who_answers_and_who_was_asked(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COPILOT_KNOWLEDGE_STORAGE", f"local:{tmp_path}")
    monkeypatch.chdir(tmp_path)  # the threads of the example are in a file below it
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    pages = EXAMPLES / "knowledge" / "pages"
    knowledge = Knowledge(f"local:{tmp_path}", sources=[pages], base="https://skerryline.example/")
    await knowledge.ingest()
    await knowledge.aclose()
    site = one_origin(built_page("react-v2"), loaded("assistants", "server"))
    async with serving(site) as port:
        context = await new_profile(browser, 1000, 760)
        try:
            page = await context.new_page()
            await page.goto(f"http://127.0.0.1:{port}/assistants.html#both")
            box = page.get_by_test_id("copilot-chat-textarea")
            await expect(page.get_by_label("Assistant", exact=True)).to_have_text("desk")

            await box.fill("Why did the engine of MV Gannet stop, and do dogs travel on a lead?")
            await page.get_by_test_id("copilot-send-button").click()
            await expect(page.get_by_text("rules has answered")).to_be_visible()
            await expect(page.get_by_text("sailings has answered")).to_be_visible()
            await expect(page.get_by_text("Dogs travel on a lead").last).to_be_visible()
            await expect(page.get_by_label("Assistant", exact=True)).to_have_text("desk")

            await box.fill("Do dogs travel on a lead?")
            await page.get_by_test_id("copilot-send-button").click()
            await expect(page.get_by_text("Handed over to rules")).to_be_visible()
            await expect(page.get_by_label("Assistant", exact=True)).to_have_text("rules")
            await keep_picture(page, "assistants")
        finally:
            await context.close()
