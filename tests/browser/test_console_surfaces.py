"""The page of `make run` draws surfaces of A2UI: while they come, to fill in, and hostile ones."""

import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from playwright.async_api import Browser, Page, expect

from copilot_runtime import CopilotRuntime, DemoAdapter, RunInput, ScriptedAdapter, Settings
from copilot_runtime.adapters.scripted import Gate
from copilot_runtime.api.events import (
    ActionExecutionArgs,
    ActionExecutionEnd,
    ActionExecutionStart,
    Event,
)
from copilot_runtime.api.messages import ResultMessage
from copilot_runtime.testing import say as answer
from tests.browser.build import keep_picture
from tests.browser.console import console, say
from tests.browser.surfaces import DATA, GALLERY, HOSTILE, at, column, draw, event, part, show

pytestmark = pytest.mark.anyio


class SurfaceAgent:
    """Shows activities, and keeps what it was asked."""

    def __init__(self, *events: Event) -> None:
        self.events = events
        self.runs: list[RunInput] = []

    async def run(self, run: RunInput) -> AsyncGenerator[Event, None]:
        self.runs.append(run)
        for one in self.events if len(self.runs) == 1 else answer("Heard.", id=run.log_id):
            yield one

    def clicks(self) -> list[str]:
        """Return the clicks of the last run, as the agent reads them."""
        results = [one for one in self.runs[-1].messages if isinstance(one, ResultMessage)]
        return [one.result for one in results]


def runtime(agent: SurfaceAgent, **options: Any) -> CopilotRuntime:
    settings = Settings(threads="memory")
    return CopilotRuntime(agents={"default": agent}, settings=settings, **options)


def write(call_id: str, *pieces: str) -> list[Event]:
    args = [ActionExecutionArgs(call_id=call_id, delta=piece) for piece in pieces]
    start = ActionExecutionStart(call_id=call_id, name="render_a2ui")
    return [start, *args, ActionExecutionEnd(call_id=call_id)]


def surface(page: Page) -> Any:
    return page.get_by_role("region", name="Surface")


async def test_a_surface_grows_while_a_model_writes_it(browser: Browser):
    components = [
        column("list"),
        part("list", "List", children={"componentId": "ship", "path": "/ships"}),
        part("ship", "Text", text=at("name")),
    ]
    pieces = (
        f'{{"surfaceId": "ships", "components": {json.dumps(components)}',
        ', "data": {"ships": [{"name": "Tern"}',
        ', {"name": "Gannet"}',
        "]}}",
    )
    gate = Gate()
    model = ScriptedAdapter(write("c1", *pieces), answer("There."), gate=gate)
    async with console(browser, model) as page:
        await say(page, "Draw the ships")
        gate.release()
        await expect(page.get_by_text("A surface is being written")).to_be_visible()
        gate.release(2)
        await expect(surface(page).get_by_role("listitem")).to_have_text(["Tern"])
        gate.release()
        await expect(surface(page).get_by_role("listitem")).to_have_text(["Tern", "Gannet"])
        await keep_picture(page, "console_surface_grows")
        gate.release(50)
        await expect(page.get_by_text("There.")).to_be_visible()
        await page.reload()
        await expect(surface(page).get_by_role("listitem")).to_have_text(["Tern", "Gannet"])


async def test_a_button_reaches_the_agent_once_with_what_was_filled_in(browser: Browser):
    agent = SurfaceAgent(draw(*GALLERY, data=DATA))
    async with console(browser, runtime(agent)) as page:
        await say(page, "Draw")
        await page.get_by_role("tab", name="Inputs").click()
        await expect(page.get_by_role("button", name="Send it")).to_be_disabled()
        await surface(page).get_by_label("Name").fill("Grace")
        await page.get_by_label("Mail").fill("grace@navy")
        await surface(page).get_by_label("Age").fill("3")
        await expect(page.get_by_text("This is no address.")).to_be_visible()
        await page.get_by_label("Mail").fill("grace@navy.example")
        await expect(page.get_by_text("This is no address.")).to_have_count(0)
        await page.get_by_text("Red").first.click()
        await page.get_by_role("radio", name="Green").check()
        await page.get_by_label("Fine").uncheck()
        await keep_picture(page, "console_surface_form")
        await page.get_by_role("button", name="Send it").dblclick()
        await expect(page.get_by_text("Heard.")).to_be_visible()
        filled = {
            **DATA,
            "name": "Grace",
            "mail": "grace@navy.example",
            "n": 3,
            "fine": False,
            "colors": ["r", "g"],
            "size": ["g"],
        }
        assert len(agent.runs) == 2
        assert len(agent.clicks()) == 1
        assert 'action "send" on surface "s" (component: send)' in agent.clicks()[0]
        assert json.loads(agent.clicks()[0].partition("Context: ")[2]) == {"all": filled}


async def test_an_item_of_a_list_says_which_it_is(browser: Browser):
    agent = SurfaceAgent(
        draw(
            part("root", "List", children={"componentId": "pick", "path": "/ships"}),
            part("pick", "Button", child="name", action=event("pick", ship=at("name"))),
            part("name", "Text", text=at("name")),
            data={"ships": [{"name": "Tern"}, {"name": "Gannet"}]},
        )
    )
    async with console(browser, runtime(agent)) as page:
        await say(page, "Draw")
        await page.get_by_role("button", name="Gannet").click()
        await expect(page.get_by_text("Heard.")).to_be_visible()
        assert agent.clicks()[0].endswith('Context: {"ship":"Gannet"}')


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_every_component_of_the_basic_catalog_is_drawn(browser: Browser, theme: str):
    agent = SurfaceAgent(draw(*GALLERY, data=DATA))
    async with console(browser, runtime(agent)) as page:
        await page.locator("html").evaluate(f"root => root.dataset.theme = '{theme}'")
        await say(page, "Draw")
        drawn = surface(page)
        await expect(drawn.get_by_role("heading", level=1)).to_have_text("A gallery")
        await expect(drawn).to_contain_text("€1,234.50")
        await expect(drawn).to_contain_text("Sat, 4 May 2030")
        await expect(drawn).to_contain_text("Ada has 1 seat")
        await expect(drawn).to_contain_text("2. two")
        await expect(drawn.get_by_role("img", name="star")).to_be_visible()
        await expect(drawn.get_by_role("listitem").filter(has_text="Tern")).to_have_text(
            "TernSkerryBrannoc"
        )
        await expect(drawn).to_contain_text('This page has no component "Carousel".')
        await expect(drawn.get_by_role("button", name="from pictures.example")).to_be_visible()
        await keep_picture(page, f"console_surface_{theme}")
        await drawn.get_by_role("button", name="Open").click()
        await expect(page.get_by_role("dialog")).to_contain_text("Inside of the dialog")
        await keep_picture(page, f"console_surface_dialog_{theme}")
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("dialog")).to_have_count(0)


async def test_a_hostile_surface_does_no_harm(browser: Browser):
    data = {"list": [{}] * 10_000, "slow": "a" * 40 + "!"}
    agent = SurfaceAgent(draw(*HOSTILE, data=data), draw(column("x"), data="no object", name="t"))
    async with console(browser, runtime(agent)) as page:
        await say(page, "Draw")
        drawn = surface(page).first
        await expect(drawn).to_contain_text("<script>document.title = 'taken'</script>")
        await expect(drawn).to_contain_text("loop is its own child.")
        await expect(drawn).to_contain_text("This surface is nested too deeply.")
        await expect(drawn).to_contain_text("Only the first 1,000 components and 3,000 parts")
        await expect(drawn.get_by_text("row", exact=True)).to_have_count(500)
        await expect(drawn.locator("a, script, img, iframe")).to_have_count(0)
        await drawn.get_by_role("button", name="Press me").click()
        await page.get_by_label("Slow").fill("a" * 60 + "!")
        await expect(page.get_by_role("button", name="Send")).to_be_enabled()
        assert "taken" not in await page.title()
        assert len(page.context.pages) == 1
        assert len(agent.runs) == 1
        await keep_picture(page, "console_surface_hostile")


@pytest.mark.parametrize(
    "content",
    [
        None,
        {"a2ui_operations": [None, 7, {"updateComponents": {"surfaceId": "s", "components": 7}}]},
        {"a2ui_operations": [{"updateDataModel": {"surfaceId": "s", "path": "/__proto__/x"}}]},
        {"status": "nonsense", "errors": 7},
    ],
)
async def test_what_is_no_surface_leaves_the_page_whole(browser: Browser, content: Any):
    async with console(browser, runtime(SurfaceAgent(show(content)))) as page:
        await say(page, "Draw")
        await expect(page.get_by_role("button", name="Send")).to_be_visible()
        await say(page, "and?")
        await expect(page.get_by_text("Heard.")).to_be_visible()


async def test_a_surface_that_cannot_be_drawn_says_why(browser: Browser):
    agent = SurfaceAgent(
        show(
            {"status": "retrying", "attempt": 2, "maxAttempts": 3, "errors": [{"code": "x"}]}, "a"
        ),
        show({"status": "failed", "error": "There is no root."}, "b"),
        show(
            {
                "status": "failed",
                "error": "The surface could not be drawn.",
                "errors": [{"code": "no_root"}],
                "debugExposure": "verbose",
            },
            "c",
        ),
    )
    async with console(browser, runtime(agent)) as page:
        await say(page, "Draw")
        await expect(page.get_by_text("attempt 2 of 3")).to_be_visible()
        await expect(page.get_by_text("There is no root.")).to_be_visible()
        await expect(
            page.get_by_text("The surface could not be drawn.", exact=True)
        ).to_be_visible()
        await expect(page.get_by_text('"no_root"')).to_be_visible()
        await keep_picture(page, "console_surface_failed")


async def test_what_an_agent_changes_later_keeps_what_a_person_wrote(browser: Browser):
    parts = [column("a", "b"), part("a", "TextField", label="A", value=at("/a"))]
    parts.append(part("b", "TextField", label="B", value=at("/b")))

    class Changing(SurfaceAgent):
        async def run(self, run: RunInput) -> AsyncGenerator[Event, None]:
            self.runs.append(run)
            b = "old" if len(self.runs) == 1 else "new"
            yield draw(*parts, data={"a": "old", "b": b})

    async with console(browser, runtime(Changing())) as page:
        await say(page, "Draw")
        await page.get_by_label("A", exact=True).fill("mine")
        await page.get_by_label("B", exact=True).fill("mine")
        await say(page, "Change it")
        await expect(page.get_by_label("B", exact=True)).to_have_value("new")
        await expect(page.get_by_label("A", exact=True)).to_have_value("mine")


@pytest.mark.parametrize(("a2ui", "tells"), [(None, True), (False, False), (True, True)])
async def test_agents_learn_of_the_catalog_unless_surfaces_are_off(
    browser: Browser, a2ui: bool | None, tells: bool
):
    agent = SurfaceAgent()
    async with console(browser, runtime(agent, a2ui=a2ui)) as page:
        await say(page, "Hello")
        await expect(page.get_by_role("button", name="Send")).to_be_visible()
        catalogs = [
            item for item in agent.runs[0].context if "Component Schema" in item.description
        ]
        assert bool(catalogs) is tells
        assert sum(len(item.value) for item in agent.runs[0].context) < 8_000


async def test_the_demo_draws_a_form_and_hears_of_its_button(browser: Browser):
    async with console(browser, DemoAdapter(pace=0)) as page:
        await say(page, "Draw a form for a booking")
        await expect(page.get_by_text("There it is.")).to_be_visible()
        await page.get_by_label("Name").fill("Ada")
        await expect(page.get_by_text("2 seats on Saturday, 4 May")).to_be_visible()
        await page.get_by_role("button", name="Book", exact=True).click()
        await expect(page.locator(".assistant").last).to_contain_text('"name":"Ada"')
