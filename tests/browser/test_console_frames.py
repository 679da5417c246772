"""The page of `make run` shows MCP apps and pages of models, in frames that reach nothing else."""

import json
from itertools import pairwise
from typing import Any

import pytest
from playwright.async_api import Browser, FrameLocator, Page, expect

from copilot_runtime import CopilotRuntime, DemoAdapter, ScriptedAdapter, Settings
from copilot_runtime.adapters.scripted import Gate
from copilot_runtime.api.events import (
    ActionExecutionArgs,
    ActionExecutionEnd,
    ActionExecutionStart,
    Event,
)
from copilot_runtime.api.messages import TextMessage
from copilot_runtime.testing import call
from copilot_runtime.testing import say as answer
from tests.browser.build import keep_picture
from tests.browser.console import console, say
from tests.browser.surfaces import WeatherServer, draw, part, serve_app

pytestmark = pytest.mark.anyio

SETTINGS = Settings(threads="memory")
CITY = {"city": "Oslo"}


def with_app(weather: WeatherServer, *more: Any) -> tuple[CopilotRuntime, ScriptedAdapter]:
    model = ScriptedAdapter(call("show_weather", CITY), answer("There is the weather."), *more)
    return CopilotRuntime(model, settings=SETTINGS, mcp_apps=weather.apps()), model


def frame(page: Page) -> FrameLocator:
    return page.frame_locator("iframe")


async def test_an_mcp_app_gets_its_result_and_calls_its_tool(browser: Browser):
    async with serve_app() as weather, console(browser, with_app(weather)[0]) as page:
        await say(page, "How is the weather?")
        await expect(frame(page).locator("#input")).to_have_text("For Oslo")
        await expect(frame(page).locator("#result")).to_have_text("21 degrees in Oslo")
        await expect(page.locator("iframe")).to_have_css("height", "170px")
        await frame(page).get_by_role("button", name="Refresh").click()
        await expect(frame(page).locator("#fresh")).to_have_text("Now 22 degrees")
        assert weather.calls == ["refresh"]
        await keep_picture(page, "console_mcp_app")
        await page.reload()
        await expect(frame(page).locator("#result")).to_have_text("21 degrees in Oslo")


async def test_an_app_reaches_neither_the_page_nor_other_tools(browser: Browser):
    async with serve_app() as weather, console(browser, with_app(weather)[0]) as page:
        await say(page, "How is the weather?")
        await frame(page).get_by_role("button", name="Try more").click()
        await expect(frame(page).locator("#tried")).to_have_text(
            "SecurityError | SecurityError | SecurityError | no network | "
            "Error: this tool is not for apps. | Error: this resource is not for apps. | "
            "true | -32601"
        )
        assert weather.calls == []
        assert len(page.context.pages) == 1
        await keep_picture(page, "console_mcp_app_hostile")


async def test_a_person_is_asked_before_an_app_opens_a_page_or_speaks(browser: Browser):
    async with serve_app() as weather:
        runtime, model = with_app(weather, answer("Rain."))
        async with console(browser, runtime) as page:
            await say(page, "How is the weather?")
            await frame(page).get_by_role("button", name="Open a link").click()
            question = page.get_by_role("dialog", name="Open a page?")
            await expect(question).to_contain_text("https://weather.example/oslo")
            await keep_picture(page, "console_mcp_app_asks")
            await question.get_by_role("button", name="No").click()
            assert len(page.context.pages) == 1
            await frame(page).get_by_role("button", name="Say something").click()
            await page.get_by_role("button", name="Send it").click()
            await expect(page.get_by_text("Rain.")).to_be_visible()
            last = model.requests[-1].messages[-1]
            assert isinstance(last, TextMessage)
            assert last.content == "And tomorrow?"


async def test_an_app_follows_the_theme_of_the_page(browser: Browser):
    async with serve_app() as weather, console(browser, with_app(weather)[0]) as page:
        await say(page, "How is the weather?")
        await expect(frame(page).locator("body")).to_have_attribute("data-theme", "light")
        await page.get_by_role("button", name="Dark theme").click()
        await expect(frame(page).locator("body")).to_have_attribute("data-theme", "dark")
        await keep_picture(page, "console_mcp_app_dark")


async def test_an_app_that_was_refused_three_times_may_no_longer_ask(browser: Browser):
    async with serve_app() as weather, console(browser, with_app(weather)[0]) as page:
        await say(page, "How is the weather?")
        for _ in range(3):
            await frame(page).get_by_role("button", name="Open a link").click()
            await page.get_by_role("button", name="No", exact=True).click()
        await frame(page).get_by_role("button", name="Open a link").click()
        await frame(page).get_by_role("button", name="Refresh").click()
        await expect(frame(page).locator("#fresh")).to_have_text("Now 22 degrees")
        await expect(page.get_by_role("dialog")).to_have_count(0)


async def test_an_app_whose_server_is_down_says_so(browser: Browser):
    async with serve_app() as weather:
        runtime, _ = with_app(weather)
    async with console(browser, runtime) as page:
        # a page that has not started yet would begin another conversation
        await expect(page.get_by_label("Message", exact=True)).to_be_focused()
        await page.evaluate(
            """thread.apply({ type: "ACTIVITY_SNAPSHOT", messageId: "a", activityType: "mcp-apps",
            content: { resourceUri: "ui://weather/card.html", serverId: "weather" } }); draw();"""
        )
        await expect(page.get_by_text("The app could not be shown.")).to_be_visible()


HTML = "<h1>Counter</h1><p id='count'>0</p><p id='tried'></p><button id='more'>More</button>"
WRITTEN = {
    "initialHeight": 210,
    "placeholderMessages": ["Counting"],
    "css": "h1 { color: rgb(0, 0, 255) }",
    "html": HTML,
    "jsFunctions": """let count = 0;
        function more() { document.getElementById('count').textContent = ++count; }
        async function steal() {
          const tries = [() => parent.document.title, () => localStorage.length, () => top.name];
          const names = tries.map((one) => { try { return one(); } catch (e) { return e.name; } });
          const read = await fetch('https://evil.example/').then(() => 'read', () => 'no network');
          document.getElementById('tried').textContent = [...names, read].join(' | ');
        }""",
    "jsExpressions": ["document.getElementById('more').onclick = more", "steal()", "missing()"],
}


def write(*pieces: str) -> list[Event]:
    args = [ActionExecutionArgs(call_id="p1", delta=piece) for piece in pieces]
    start = ActionExecutionStart(call_id="p1", name="generateSandboxedUi")
    return [start, *args, ActionExecutionEnd(call_id="p1")]


def drawing_pages(model: Any) -> CopilotRuntime:
    return CopilotRuntime(model, settings=SETTINGS, open_generative_ui=True)


async def test_a_page_is_shown_while_it_is_written_and_then_runs_alone(browser: Browser):
    text = json.dumps(WRITTEN)
    cuts = [0, text.index("css"), text.index("<button"), len(text)]
    pieces = [text[start:end] for start, end in pairwise(cuts)]
    gate = Gate()
    model = ScriptedAdapter(write(*pieces), answer("Count!"), gate=gate)
    async with console(browser, drawing_pages(model)) as page:
        await say(page, "Draw a counter")
        gate.release(2)
        await expect(page.get_by_text("Counting …")).to_be_visible()
        gate.release()
        await expect(frame(page).get_by_role("heading")).to_have_css("color", "rgb(0, 0, 255)")
        await expect(frame(page).get_by_role("button")).to_have_count(0)
        await keep_picture(page, "console_page_grows")
        gate.release(50)
        await expect(page.get_by_text("Count!")).to_be_visible()
        await frame(page).get_by_role("button", name="More").click()
        await expect(frame(page).locator("#count")).to_have_text("1")
        await expect(frame(page).locator("#tried")).to_have_text(
            "SecurityError | SecurityError | SecurityError | no network"
        )
        await expect(page.get_by_text("missing is not defined")).to_be_visible()
        await keep_picture(page, "console_page")
        await page.reload()
        await frame(page).get_by_role("button", name="More").click()
        await expect(frame(page).locator("#count")).to_have_text("1")


async def test_a_page_that_floods_the_chat_with_messages_is_closed(browser: Browser):
    flood = "for (let at = 0; at < 3000; at++) parent.postMessage({ type: 'sandbox/size' }, '*')"
    page_of_model = {**WRITTEN, "jsExpressions": [f"setInterval(() => {{ {flood} }}, 1)"]}
    model = ScriptedAdapter(write(json.dumps(page_of_model)), answer("Count!"), answer("Yes."))
    async with console(browser, drawing_pages(model)) as page:
        await say(page, "Draw a counter")
        await expect(page.get_by_text("It sent too many messages, and was closed.")).to_be_visible()
        await expect(page.get_by_role("button", name="Send")).to_be_visible()
        await say(page, "Still there?")
        await expect(page.get_by_text("Yes.")).to_be_visible()
        await expect(page.locator("iframe")).to_have_count(0)


async def test_a_frame_stays_as_it_is_when_the_conversation_goes_on(browser: Browser):
    model = ScriptedAdapter(write(json.dumps(WRITTEN)), answer("Count!"), answer("Yes."))
    async with console(browser, drawing_pages(model)) as page:
        await say(page, "Draw a counter")
        await expect(page.get_by_text("Count!")).to_be_visible()
        await frame(page).get_by_role("button", name="More").click()
        await expect(page.get_by_role("button", name="Send")).to_be_visible()
        await say(page, "Still there?")
        await expect(page.get_by_text("Yes.")).to_be_visible()
        await expect(frame(page).locator("#count")).to_have_text("1")


async def test_a_page_of_models_is_drawn_where_the_server_offers_it(browser: Browser):
    async with console(browser, drawing_pages(DemoAdapter(pace=0))) as page:
        await say(page, "Draw a page with a stopwatch")
        await expect(page.get_by_text("There is the page.")).to_be_visible()
        await frame(page).get_by_role("button", name="Start").click()
        await expect(frame(page).locator("#time")).not_to_have_text("00:00.0")


async def test_a_picture_of_elsewhere_is_loaded_when_somebody_asks_for_it(browser: Browser):
    class Painter:
        async def run(self, run: Any) -> Any:
            del run
            yield draw(
                part("root", "Image", url="http://127.0.0.1:5199/a.png", description="A ship")
            )

    async with console(browser, CopilotRuntime(agents={"p": Painter()}, settings=SETTINGS)) as page:
        await say(page, "Draw")
        await expect(page.locator("iframe")).to_have_count(0)
        async with page.expect_request("http://127.0.0.1:5199/a.png"):
            await page.get_by_role("button", name="Load the image from 127.0.0.1:5199").click()
        await expect(frame(page).get_by_role("img", name="A ship")).to_be_attached()
