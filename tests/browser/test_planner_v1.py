"""A plan on a page of CopilotKit v1: the page has its state, and a person approves a task."""

import json

import pytest
from playwright.async_api import Browser, expect

from copilot_runtime import CopilotRuntime, Settings
from copilot_runtime.testing import call, say
from tests.browser.build import built_page, new_profile, one_origin
from tests.browser.chat import TripChat
from tests.extensions.planner.crew import ScriptedAgent, build_planner
from tests.wire_agui.server import serving

pytestmark = pytest.mark.anyio

PLAN = {
    "tasks": [
        {"name": "find", "purpose": "Find a room."},
        {
            "name": "book",
            "purpose": "Book it.",
            "depends_on": ["find"],
            "needs_approval": True,
        },
    ]
}


async def test_a_page_of_v1_has_the_plan_and_approves_a_task(browser: Browser) -> None:
    planner = build_planner(
        {"clerk": ScriptedAgent(say("A room in Oslo."))}, call("create_plan", PLAN)
    )
    runtime = CopilotRuntime(agents={"trip": planner}, settings=Settings(threads="memory"))
    async with serving(one_origin(built_page("react-v1"), runtime)) as port:
        context = await new_profile(browser, 1280, 760)
        try:
            chat = TripChat(await context.new_page())
            sent: list[str] = []
            chat.page.on("request", lambda request: sent.append(request.post_data or ""))
            await chat.open(f"http://127.0.0.1:{port}/trip.html")
            await chat.ask("Book a room in Oslo")
            await expect(chat.approval()).to_contain_text("May the task 'book' begin? Book it.")
            await chat.press("Approve")
            await chat.sees_answer("A room in Oslo. A room in Oslo.")
            await chat.keep("planner-v1")
        finally:
            await context.close()
    (answer,) = [body for body in sent if "LangGraphInterruptEvent" in body and "approved" in body]
    [state] = json.loads(answer)["variables"]["data"]["agentStates"]
    plan = json.loads(state["state"])["plan"]
    statuses = {task["name"]: task["status"] for task in plan["tasks"]}
    assert (state["agentName"], plan["status"]) == ("trip", "waiting")
    assert statuses == {"find": "finished", "book": "waiting"}
