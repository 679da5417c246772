"""An operator changes an agent for one question, in Chromium."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect
from starlette.requests import HTTPConnection

from copilot_runtime import ChatRequest, CopilotRuntime, Settings, action
from copilot_runtime.api import Adapter
from copilot_runtime.api.events import Events
from copilot_runtime.api.messages import ResultMessage
from copilot_runtime.extensions.scenarios.files import load_scenarios
from copilot_runtime.extensions.tracing.store import MemoryTraceStore
from copilot_runtime.telemetry import LocalTelemetry
from copilot_runtime.testing import call
from copilot_runtime.testing import say as speak
from tests.browser.console import answer, open_panel, opened, say, served, sign_in, threads

pytestmark = pytest.mark.anyio


@action
def get_time(city: str) -> str:
    """Tell the time in a city."""
    return f"12:00 in {city}"


class Reciter(Adapter):
    """Says its instructions, after a call of the tool that it has."""

    async def stream(self, request: ChatRequest) -> Events:
        tools = [it.name for it in request.actions if it.name == "get_time"]
        is_done = any(isinstance(it, ResultMessage) for it in request.messages[-1:])
        words = f"{request.instructions} ({request.parameters.model})"
        for event in call("get_time", {"city": "Oslo"}) if tools and not is_done else speak(words):
            yield event


def a_runtime(*, operators: Sequence[str] = ("ann",), has_login: bool = False) -> CopilotRuntime:
    def authenticate(connection: HTTPConnection) -> str | None:
        return connection.headers.get("authorization", "").removeprefix("Bearer ") or None

    return CopilotRuntime(
        Reciter(),
        actions=[get_time],
        instructions="Be polite.",
        authenticate=authenticate if has_login else None,
        telemetry=LocalTelemetry(MemoryTraceStore(), keeps_content=True),
        settings=Settings.model_validate(
            {"threads": "memory", "telemetry": {"operators": operators}}
        ),
    )


async def change_instructions(page: Page, words: str) -> None:
    await open_panel(page, "Playground")
    await expect(page.get_by_label("Instructions")).to_have_value("Be polite.")
    await page.get_by_label("Instructions").fill(words)
    await page.get_by_label("Model").fill("gpt-5")


async def test_the_next_question_alone_is_asked_with_the_changes(browser: Browser) -> None:
    async with served(a_runtime()) as url, opened(browser) as context:
        page = await context.new_page()
        await page.goto(url)
        await change_instructions(page, "Be a pirate.")
        await page.get_by_label("get_time").uncheck()
        await expect(page.locator("#changed")).to_contain_text("instructions, model, tools")
        await say(page, "Who are you?")
        await expect(answer(page)).to_have_text("Be a pirate. (gpt-5)")
        await expect(page.locator("#changed")).to_be_hidden()
        await expect(page.get_by_role("button", name="Send")).to_be_visible()
        await say(page, "And now?")

        await expect(answer(page)).to_have_text("Be polite. (None)")
        mark = "Asked in the playground, with other instructions · model gpt-5 · tools none"
        await expect(page.locator(".changed")).to_have_text([mark])
        await page.reload()
        await expect(page.locator(".changed")).to_have_text([mark])
        await page.get_by_role("link", name="Trace", exact=True).first.click()
        await expect(page.locator("#facts")).to_contain_text("instructions, model, tools")


async def test_both_ways_are_shown_side_by_side_and_neither_is_kept(browser: Browser) -> None:
    async with served(a_runtime()) as url, opened(browser) as context:
        page = await context.new_page()
        await page.goto(url)
        await change_instructions(page, "Be a pirate.")
        await page.get_by_label("Message", exact=True).fill("Who are you?")
        await page.get_by_role("button", name="Ask both ways").click()
        dialog = page.get_by_role("dialog", name="Who are you?")

        await expect(dialog.locator(".assistant")).to_have_text(
            ["Be polite. (None)", "Be a pirate. (gpt-5)"]
        )
        await dialog.get_by_role("button", name="Close").click()
        await expect(threads(page)).to_have_count(0)


async def test_whoever_is_no_operator_sees_no_playground(browser: Browser) -> None:
    async with served(a_runtime(has_login=True)) as url, opened(browser) as context:
        page = await context.new_page()
        await page.goto(url)
        await sign_in(page, "bob")
        await say(page, "Hi")
        await expect(answer(page)).to_be_visible()
        await page.get_by_role("button", name="Panel", exact=True).click()
        await expect(page.get_by_role("tab")).to_have_text(["State", "Wire", "Connect"])
        await sign_in(page, "ann")

        await expect(page.get_by_role("tab", name="Playground")).to_be_visible()


async def test_a_trace_is_asked_again_and_saved_as_a_scenario(
    browser: Browser, tmp_path: Path
) -> None:
    async with served(a_runtime()) as url, opened(browser) as context:
        page = await context.new_page()
        await page.goto(url)
        await say(page, "What time is it in Oslo?")
        await expect(answer(page)).to_have_text("Be polite. (None)")
        await expect(page.get_by_role("button", name="Send")).to_be_visible()
        await page.get_by_role("link", name="Trace", exact=True).click()
        async with page.expect_download() as download:
            await page.get_by_role("button", name="Save as scenario").click()
        await (await download.value).save_as(tmp_path / "time.test.yml")
        await page.get_by_role("button", name="Ask again").click()
        await expect(page.get_by_label("Message", exact=True)).to_have_value(
            "What time is it in Oslo?"
        )
        await expect(page.get_by_label("Instructions")).to_have_value("Be polite.")

    (place,) = load_scenarios([tmp_path])
    assert place.scenario.say == "What time is it in Oslo?"
    assert [it.model_dump()["arguments"] for it in place.scenario.expect.calls or ()] == [
        {"city": "Oslo"}
    ]
