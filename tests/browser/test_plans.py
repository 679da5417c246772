"""Plans in Chromium: the page *Plans*, while they are carried out and afterwards."""

import asyncio
import re
from dataclasses import replace
from typing import Any

import pytest
from playwright.async_api import Browser, Page, expect

from copilot_runtime import CopilotRuntime, Settings
from copilot_runtime.api import RunInput
from copilot_runtime.api.events import Activity, Events
from copilot_runtime.extensions.planner.engine import PlanEngine
from copilot_runtime.extensions.planner.plan import Plan, TaskState
from copilot_runtime.extensions.planner.roles import Assignment, TaskContext, Verdict
from copilot_runtime.extensions.planner.tasks import PlanLimits
from copilot_runtime.testing import say
from tests.browser.build import keep_picture
from tests.browser.console import answer, opened, served
from tests.browser.console import say as ask
from tests.extensions.planner.crew import (
    Crew,
    ScriptedAgent,
    build_engine,
    build_plan,
    build_planner,
    write_plan,
)
from tests.extensions.planner.http.server import sign_in, wrap_engine

pytestmark = pytest.mark.anyio

ASSISTANTS = {
    "Read the fares": Assignment("researcher", 0.91),
    "Ask the harbour about dogs": Assignment("researcher", 0.78),
    "Compare the fares": Assignment("analyst", 0.84),
    "Say it in pounds": Assignment("analyst", 0.69),
    "Book the ferry": Assignment("clerk", None),
    "Write to the guests": Assignment("writer", 0.88),
}
TRIP = (
    {
        "name": "Find the best sailing",
        "purpose": "Find the sailing that suits four people and a dog.",
        "subtasks": [
            {"name": "Read the fares", "purpose": "Read the fares of all three routes."},
            {"name": "Ask the harbour about dogs", "purpose": "Find out whether dogs sail."},
            {
                "name": "Compare the fares",
                "purpose": "Say which route is the cheapest.",
                "instructions": "Count the dog as well.",
                "evaluation": "Names one route and its price in pounds.",
                "depends_on": ["Read the fares", "Ask the harbour about dogs"],
            },
        ],
    },
    {
        "name": "Book the ferry",
        "purpose": "Book the sailing that was found.",
        "needs_approval": True,
        "depends_on": ["Find the best sailing"],
    },
    {
        "name": "Write to the guests",
        "purpose": "Tell the guests when to be at the harbour.",
        "depends_on": ["Find the best sailing"],
    },
)


class Harbour(Crew):
    """A crew in which each task is done by somebody else, and one writes until it is let go."""

    def __init__(self) -> None:
        self.let_go = asyncio.Event()
        works = {
            "Read the fares": self.read_fares,
            "Compare the fares": self.compare,
            "Write to the guests": self.write,
        }
        corrections = [{"name": "Say it in pounds", "purpose": "Turn euros into pounds."}]
        verdict = Verdict(False, "The price is in euros.", corrections)
        super().__init__(works, {"Compare the fares": [verdict]})

    async def elect(self, state: TaskState, plan: Plan) -> Assignment:
        return ASSISTANTS.get(state.task.name) or await super().elect(state, plan)

    async def read_fares(self, state: TaskState, context: TaskContext) -> str:
        for number, route in enumerate(("North", "South", "Island")):

            async def run(number: int = number) -> str:
                return f'{{"adult": {24 + number}, "dog": 5}}'

            arguments = f'{{"route": "{route}"}}'
            await context.call_tool(f"c{number}", "find_fares", arguments, run, is_idempotent=True)
        await context.add_usage(3_120, 0.0094)
        return "North: 24, South: 25, Island: 26. A dog is 5 on each."

    async def compare(self, state: TaskState, context: TaskContext) -> str:
        await context.add_usage(1_480, 0.0041)
        return "The northern route is the cheapest: 118 euros."

    async def write(self, state: TaskState, context: TaskContext) -> str:
        for word in ("Dear guests, ", "the ferry ", "leaves at eight. "):
            context.emit_text(word)
        await context.add_usage(640, 0.0016)
        await self.let_go.wait()
        context.emit_text("Bring the dog.")
        await asyncio.sleep(0)
        return "Dear guests,\n\n- the ferry leaves at eight\n- bring the dog"


def build_runtime(engine: PlanEngine, **options: Any) -> CopilotRuntime:
    return CopilotRuntime(
        agents={"planner": wrap_engine(engine)}, settings=Settings(threads="memory"), **options
    )


def row(page: Page, name: str) -> Any:
    return page.get_by_role("treeitem").filter(has_text=name)


async def submit_trip(engine: PlanEngine) -> str:
    created = build_plan(
        *TRIP,
        thread_id="holidays",
        agent="planner",
        traceparent=f"00-{'a' * 32}-{'b' * 16}-01",
        limits=PlanLimits(dollars=0.5),
    )
    request = "Take four people and a dog to the island, as cheaply as can be."
    return await engine.submit(replace(created, request=request))


async def test_a_plan_is_seen_while_it_grows_and_its_questions_are_answered(
    browser: Browser,
) -> None:
    crew = Harbour()
    engine = build_engine(crew)
    async with served(build_runtime(engine)) as url, opened(browser) as context:
        page = await context.new_page()
        await page.set_viewport_size({"width": 1280, "height": 800})
        await page.goto(url)
        await page.get_by_role("link", name="Plans").click()
        await expect(page.locator("#nothing")).to_contain_text("No plan yet.")
        plan_id = await submit_trip(engine)
        await page.locator("#list button", has_text="Take four people").click(timeout=15_000)

        await expect(row(page, "Read the fares")).to_contain_text("researcher, fits 0.91")
        await expect(row(page, "Say it in pounds")).to_contain_text("correction, round 1")
        await expect(row(page, "Compare the fares")).to_contain_text("✓ checked")
        await expect(page.locator("#progress-text")).to_contain_text("5 of 7 tasks")
        await expect(page.locator("#facts")).to_contain_text(
            re.compile(r"cost\s*\$0\.02 of \$0\.50, planning included")
        )
        await row(page, "Write to the guests").click()
        await expect(page.locator("#words")).to_have_text(
            "Dear guests, the ferry leaves at eight. "
        )
        await expect(page.locator("#questions li")).to_contain_text("May the task")
        grounds = page.locator("#questions details[open]")
        await expect(grounds.locator("summary")).to_have_text("Find the best sailing")
        await expect(grounds.locator("pre")).to_be_visible()
        await keep_picture(page, "plans")
        await row(page, "Read the fares").click()
        await page.locator("#task-content summary", has_text="find_fares").first.click()
        result = page.locator("#task-content details[open] .pairs").last
        await expect(result).to_have_text("adult24dog5")
        await row(page, "Compare the fares").click()
        await expect(page.locator("#task-content")).to_contain_text("✗ The price is in euros.")
        await keep_picture(page, "plans_task")

        await page.get_by_label("A note, if you like").fill("Window seats.")
        crew.let_go.set()
        await expect(row(page, "Write to the guests")).to_contain_text("finished")
        await expect(page.get_by_label("A note, if you like")).to_have_value("Window seats.")
        await page.get_by_role("button", name="Approve").click()
        await expect(page.locator("#status")).to_have_text("finished")
        await expect(page.locator("#questions")).to_be_hidden()
        await row(page, "Book the ferry").click()
        await expect(page.locator("#task-content")).to_contain_text("approved: Window seats.")
        await row(page, "The plan").click()
        await expect(page.locator("#task-content li")).to_contain_text(["eight", "bring the dog"])
        await expect(page.get_by_role("link", name="Trace", exact=True)).to_have_attribute(
            "href", f"/traces#{'a' * 32}"
        )
        await expect(page).to_have_url(re.compile(f"#{plan_id}/0$"))


async def test_the_chat_goes_on_after_an_answer_on_the_page_of_plans(browser: Browser) -> None:
    writer = ScriptedAgent(say("Dear Ann,"))
    planner = build_planner({"writer": writer}, write_plan("letter"), needs_approval=True)
    runtime = CopilotRuntime(agents={"it": planner}, settings=Settings(threads="memory"))
    async with served(runtime) as url, opened(browser) as context:
        chat = await context.new_page()
        await chat.goto(url)
        await ask(chat, "Write to Ann.")
        question = chat.get_by_role("region", name="Question of the agent")
        await expect(question.get_by_role("button", name="Approve")).to_be_visible()
        plans = await context.new_page()
        await plans.goto(f"{url}plans")
        await plans.locator("#list button").click()
        await plans.get_by_role("button", name="Approve").click()
        await expect(plans.locator("#status")).to_have_text("finished")
        await expect(answer(chat)).to_have_text("Dear Ann,")
        await expect(question.get_by_role("button", name="Approve")).to_be_hidden()
        await chat.reload()
        await expect(answer(chat)).to_have_text("Dear Ann,")


async def test_a_task_and_a_plan_are_stopped_and_done_again(browser: Browser) -> None:
    crew = Crew()
    hung = True

    async def hang(state: TaskState, context: TaskContext) -> str:
        if hung:
            await asyncio.Event().wait()
        return "Done."

    crew.works = {"a": hang, "b": hang}
    engine = build_engine(crew)
    async with served(build_runtime(engine)) as url, opened(browser) as context:
        page = await context.new_page()
        plan_id = await engine.submit(build_plan("a", "b"))
        await page.goto(f"{url}plans#{plan_id}/1")
        await page.get_by_role("button", name="Stop this task").click()
        await expect(row(page, "a").nth(1)).to_contain_text("stopped")
        await expect(page.get_by_role("button", name="Stop this task")).to_be_hidden()
        await page.get_by_role("button", name="Stop", exact=True).click()
        await expect(page.locator("#status")).to_have_text("stopped")
        hung = False
        await page.get_by_role("button", name="Retry this task").click()
        await expect(page.locator("#task-content")).to_contain_text("attempts2")
        await expect(page.locator("#task-content")).to_contain_text("Done.")
        await expect(page.locator("#status")).to_have_text("finished")


async def test_a_plan_of_1000_tasks_has_few_rows_and_is_read_with_the_keyboard(
    browser: Browser,
) -> None:
    limits = PlanLimits(tasks=2_000, width=100, concurrency=50)
    groups = [
        {
            "name": f"group {group}",
            "subtasks": [{"name": f"task {group}.{n}", "purpose": "Do."} for n in range(40)],
        }
        for group in range(25)
    ]
    engine = build_engine(Crew())
    async with served(build_runtime(engine)) as url, opened(browser) as context:
        page = await context.new_page()
        plan_id = await engine.submit(build_plan(*groups, limits=limits))
        await page.goto(f"{url}plans#{plan_id}")
        await expect(page.locator("#progress-text")).to_contain_text("1,025 of 1,025 tasks")
        assert await page.locator(".row").count() < 60
        tree = page.get_by_role("tree")
        await tree.focus()
        await tree.press("End")
        await expect(page.locator("#task-title")).to_have_text("task 24.39")
        await expect(row(page, "task 24.39")).to_be_visible()
        await tree.press("ArrowLeft")
        await expect(page.locator("#task-title")).to_have_text("group 24")
        await tree.press("ArrowLeft")
        await expect(row(page, "task 24.39")).to_have_count(0)
        await tree.press("ArrowRight")
        await tree.press("ArrowRight")
        await expect(page.locator("#task-title")).to_have_text("task 24.0")
        await tree.press("Home")
        await expect(page.locator("#task-title")).to_have_text("The plan")
        await tree.press("Escape")
        await expect(page.locator("#task")).to_be_hidden()


async def test_what_models_write_is_shown_as_it_is(browser: Browser) -> None:
    markup = "<img src=x onerror=alert(1)>"

    async def write(state: TaskState, context: TaskContext) -> str:
        async def run() -> str:
            return markup

        await context.call_tool("c", markup, "{no json", run, is_idempotent=True)
        return markup * 10

    name = "N" * 170 + markup  # as long as names may be
    task = {"name": name, "purpose": markup, "evaluation": markup, "instructions": markup * 400}
    verdicts = [Verdict(False, markup * 200)]
    crew = Crew({name: write}, {name: verdicts, "plan": [Verdict(False, markup)]})
    engine = build_engine(crew)
    async with served(build_runtime(engine)) as url, opened(browser) as context:
        page = await context.new_page()
        created = build_plan(task, {"name": markup, "needs_approval": True, "purpose": markup})
        reversing = "delete \u202etxt.gnihton"  # reads as "delete nothing.txt"
        plan_id = await engine.submit(replace(created, request=reversing + markup * 400))
        await page.goto(f"{url}plans#{plan_id}")
        await expect(page.locator("#title")).to_contain_text("delete \ufffdtxt.gnihton")
        await expect(page.locator("#questions")).to_contain_text(markup)
        await row(page, "NNNN").click()
        await expect(page.locator("#task-content")).to_contain_text(markup)
        await expect(page.locator("#task-content summary")).to_contain_text(markup)
        await page.get_by_role("button", name="Decline").click()
        await expect(page.locator("#status")).to_have_text("failed")
        assert await page.locator("#plan img").count() == 0
        width = await page.evaluate("document.documentElement.scrollWidth")
        await keep_picture(page, "plans_long")
    assert width <= 1200


async def test_on_a_phone_there_is_one_thing_at_a_time_and_none_is_too_wide(
    browser: Browser,
) -> None:
    engine = build_engine(Harbour())
    async with served(build_runtime(engine)) as url, opened(browser) as context:
        page = await context.new_page()
        await page.set_viewport_size({"width": 390, "height": 844})
        await submit_trip(engine)
        await page.goto(f"{url}plans")
        await page.locator("#list button").first.click()
        await expect(page.locator("#list")).to_be_hidden()
        await expect(page.locator("#progress-text")).to_contain_text("5 of 7 tasks")
        await keep_picture(page, "plans_on_a_phone")
        widths = [await page.evaluate("document.documentElement.scrollWidth")]
        await row(page, "Write to the guests").click()
        await expect(page.locator("#words")).to_contain_text("the ferry")
        await keep_picture(page, "plans_task_on_a_phone")
        widths.append(await page.evaluate("document.documentElement.scrollWidth"))
        await page.get_by_role("button", name="Close the task").click()
        await page.locator("#plan .back").click()
        await expect(page.locator("#list")).to_be_visible()
    assert widths == [390, 390]


_COLOURS = """card => [...new Set([...card.querySelectorAll("summary, li")]
    .map(it => getComputedStyle(it, "::before").backgroundColor))]"""


async def test_the_chat_shows_how_far_a_plan_is_and_leads_to_it(browser: Browser) -> None:
    tasks: list[dict[str, Any]] = [
        {"id": str(n), "name": f"task {n}", "status": "finished"} for n in range(50)
    ]
    tasks[3]["decision"] = {"answer": "reject", "user": "ann", "note": "Too dear."}
    tasks[0] |= {"status": "running", "tasks": [{"name": "below", "status": "waiting"}, None]}
    progress = {"over": 49, "total": 52}
    spent = {"tokens": 5_240, "dollars": 0.0151}
    plan = {"id": "a plan", "status": "running", "progress": progress, "tasks": tasks, **spent}
    failed = {**plan, "status": "failed", "tasks": [{"name": "a task", "status": "failed"}]}
    pictures = [
        Activity(message_id="f", activity_type="plan", content=failed),
        Activity(message_id="p", activity_type="plan", content={**plan, "progress": {"total": 9}}),
        Activity(message_id="p", activity_type="plan", content=plan),
        Activity(message_id="q", activity_type="plan", content={"tasks": "none"}),
    ]

    async def draw(run: RunInput) -> Events:
        del run
        for picture in pictures:
            yield picture

    engine = build_engine(Crew())
    planners = {"other": wrap_engine(engine), "planner": draw}
    runtime = CopilotRuntime(agents=planners, settings=Settings(threads="memory"))
    async with served(runtime) as url, opened(browser) as context:
        page = await context.new_page()
        await page.goto(url)
        await page.get_by_label("Agent", exact=True).select_option("planner")
        await ask(page, "Plan it.")
        card = page.locator(".card").nth(1)
        await expect(card).to_contain_text("running · 49 of 52 tasks are over")
        await expect(card.locator("li")).to_have_count(40)
        await expect(card.locator("li").nth(1)).to_contain_text("belowwaiting")
        await expect(card).to_contain_text("40 of 52 tasks.")
        await expect(card).to_contain_text("declined by ann: Too dear.")
        await expect(page.locator(".card pre")).to_contain_text('"tasks": "none"')
        assert await page.locator(".card").first.evaluate(_COLOURS) == ["rgb(180, 35, 24)"]
        await keep_picture(page, "plans_in_the_chat")
        link = card.get_by_role("link", name="Open the plan")
        await expect(link).to_have_attribute("href", "/plans#a%20plan")
        await expect(page.locator(".usage")).to_have_text("Plan: 5,240 tokens · $0.02")


async def test_who_may_not_see_a_plan_is_told_what_all_are_told(browser: Browser) -> None:
    engine = build_engine(Crew())
    runtime = build_runtime(engine, authenticate=sign_in)
    async with served(runtime) as url, opened(browser) as context:
        page = await context.new_page()
        plan_id = await engine.submit(build_plan("a", user="ann"))
        await page.goto(f"{url}plans#{plan_id}")
        await expect(page.locator("#problem")).to_have_text(f"There is no plan '{plan_id}'.")
        await expect(page.locator("#nothing")).to_contain_text("Without authentication")
        await expect(page.locator("#plan")).to_be_hidden()
        await page.set_extra_http_headers({"x-user": "bob"})
        await page.reload()
        await expect(page.locator("#nothing")).to_have_text(
            "No plan of yours yet. Ask the agent that plans, and it is here."
        )
        await page.set_extra_http_headers({"x-user": "ann"})
        await page.reload()
        await expect(page.locator("#status")).to_have_text("finished")
        await expect(page.locator("#task-title")).to_have_text("The plan")  # its outcome is open


async def test_plans_are_found_by_thread_and_status(browser: Browser) -> None:
    engine = build_engine(Crew())
    async with served(build_runtime(engine)) as url, opened(browser) as context:
        page = await context.new_page()
        for number in range(60):
            await engine.submit(build_plan("a", thread_id=f"t{number}"))
        await page.goto(f"{url}plans")
        items = page.locator("#list li")
        await expect(items).to_have_count(50)
        await page.get_by_role("button", name="More").click()
        await expect(items).to_have_count(60)
        await page.get_by_label("Thread").fill("t7")
        await page.get_by_label("Thread").press("Enter")
        await expect(items).to_have_count(1)
        await page.get_by_label("show").select_option("failed")
        await expect(page.locator("#nothing")).to_have_text("Nothing was found.")
