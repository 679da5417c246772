"""What runs did, in Chromium: the page *Traces*, live and afterwards."""

import os
from pathlib import Path
from time import time_ns

import pytest
from playwright.async_api import Browser, Page, expect
from starlette.requests import HTTPConnection

from copilot_runtime import CopilotRuntime, ScriptedAdapter, Settings, action
from copilot_runtime.adapters.scripted import Gate
from copilot_runtime.telemetry import LocalTelemetry, genai, semconv
from copilot_runtime.telemetry.store import MemoryTraceStore
from copilot_runtime.testing import call, say
from tests.browser.console import answer, opened, served
from tests.browser.console import say as ask

pytestmark = pytest.mark.anyio

PICTURES = os.environ.get("BROWSER_TESTS_PICTURES", "")


@action
def get_time(zone: str) -> str:
    """Say what time it is."""
    return f"Noon in {zone}."


@action
def break_down() -> str:
    raise TimeoutError("The clock is broken.")


def a_runtime(*turns: object, **more: object) -> CopilotRuntime:
    telemetry = LocalTelemetry(MemoryTraceStore(), keeps_content=True)
    return CopilotRuntime(
        ScriptedAdapter(*turns, gate=more.pop("gate", None)),  # pyright: ignore[reportArgumentType]
        actions=[get_time, break_down],
        telemetry=telemetry,
        settings=Settings(threads="memory"),
        **more,  # pyright: ignore[reportArgumentType]
    )


async def open_traces(page: Page, url: str) -> None:
    await page.goto(f"{url}traces")
    await page.locator("#list button").first.click()
    await expect(page.locator(".row").first).to_be_visible()


async def test_a_run_is_a_waterfall_with_what_each_step_was_told(
    browser: Browser, tmp_path: Path
) -> None:
    problems: list[str] = []
    runtime = a_runtime(call("get_time", {"zone": "Oslo"}), call("break_down", {}), say("Noon."))
    async with served(runtime) as url, opened(browser) as context:
        page = await context.new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        await page.goto(url)
        await ask(page, "What time is it?")
        await expect(answer(page)).to_contain_text("Noon.")
        await page.get_by_role("link", name="Traces").click()

        await page.locator("#list button", has_text="invoke_agent default").first.click()
        names = await page.locator(".row .name span").all_inner_texts()
        assert names[0] == "invoke_agent default"
        assert "execute_tool get_time" in names
        await expect(page.locator(".bar.failed em")).to_contain_text("TimeoutError")
        await page.get_by_role("treeitem").filter(has_text="get_time").click()
        await expect(page.locator("#span-content")).to_contain_text("Oslo")
        await expect(page.locator("#span-content")).to_contain_text("Noon in Oslo.")
        if PICTURES:
            await page.screenshot(path=Path(PICTURES) / "traces.png")
        await page.get_by_role("tab", name="Flow").click()
        await expect(page.locator("#flow-box svg")).to_contain_text("get_time")
    assert problems == []


async def test_a_run_is_seen_while_it_goes_on(browser: Browser) -> None:
    gate = Gate()
    async with served(a_runtime(say("Slowly."), gate=gate)) as url, opened(browser) as context:
        chat, page = await context.new_page(), await context.new_page()
        await page.goto(f"{url}traces")
        await expect(page.locator("#nothing")).to_be_visible()
        await chat.goto(url)
        await ask(chat, "Go on.")

        running = page.locator("#list .open", has_text="goes on")
        await running.click()
        await expect(page.locator(".bar.open").first).to_be_visible()
        gate.release(100)
        await expect(page.locator("#facts")).to_contain_text("finished")
        await expect(page.locator(".bar.open")).to_have_count(0)


async def test_two_runs_are_compared_step_by_step(browser: Browser) -> None:
    turns = [say("Noon."), call("get_time", {"zone": "Oslo"}), say("Noon.")]
    async with served(a_runtime(*turns)) as url, opened(browser) as context:
        page = await context.new_page()
        await page.goto(url)
        for question in ("First?", "Second?"):
            await ask(page, question)
            await expect(answer(page)).to_contain_text("Noon.")
        await page.goto(f"{url}traces")
        items = page.locator("#list button")
        await expect(items).to_have_count(2)
        await items.nth(1).click()
        await page.get_by_role("button", name="Compare").click()
        await items.nth(0).click()

        row = page.locator("#difference-box tr").filter(has_text="execute_tool get_time")
        await expect(row).to_contain_text("new")


async def test_a_trace_of_2000_spans_has_few_rows_and_is_searched(browser: Browser) -> None:
    runtime = a_runtime()
    now = time_ns()
    run = genai.start_run_span(
        runtime.telemetry, agent="crowd", thread_id="t", run_id="r", protocol="agui"
    )
    for number in range(2000):
        name = "rare" if number == 1999 else "common"
        tool = genai.start_tool_span(run, f"{name}_{number}")
        tool.set_attributes({semconv.TOOL_TYPE: "function"})
        tool.start_time = now + number * 1_000_000
        tool.end(tool.start_time + 5_000_000)
    run.end(now + 3_000_000_000)
    async with served(runtime) as url, opened(browser) as context:
        page = await context.new_page()
        await open_traces(page, url)
        assert await page.locator(".row").count() < 100
        await page.get_by_placeholder("Find a span").fill("rare_")

        await expect(page.locator("#matches")).to_have_text("1 of 2,001")
        await expect(page.get_by_role("treeitem").filter(has_text="rare_1999")).to_be_visible()


async def test_a_user_who_is_no_operator_sees_no_trace(browser: Browser) -> None:
    def authenticate(connection: HTTPConnection) -> str:
        return connection.headers.get("authorization", "nobody")

    runtime = a_runtime(say("Hello."), authenticate=authenticate)
    async with served(runtime) as url, opened(browser) as context:
        page = await context.new_page()
        await page.goto(url)
        await ask(page, "Hello?")
        await expect(answer(page)).to_contain_text("Hello.")
        await page.goto(f"{url}traces")

        await expect(page.locator("#problem")).to_contain_text("operators")
        await expect(page.locator("#list li")).to_have_count(0)
