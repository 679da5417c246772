"""What our own agents show becomes surfaces for pages that draw these."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from copilot_runtime import RunInput
from copilot_runtime.api.events import Activity, Event
from copilot_runtime.extensions.generative_ui.options import A2ui
from tests.in_one_test import in_one_test
from tests.wire_agui.server import browsing

pytestmark = pytest.mark.anyio

PLAN = {
    "request": "Book *everything*",
    "status": "running",
    "progress": {"over": 1, "finished": 1, "total": 2},
    "questions": [{"text": "Which day?"}],
    "tasks": [
        {
            "name": "Find ships",
            "status": "finished",
            "assistant": "scout",
            "tasks": [{"name": "Ask Oslo", "status": "failed", "reason": "closed"}],
        }
    ],
}
SOURCES = {
    "sources": [
        {"number": 1, "id": "a", "title": "Tern", "url": "https://x.example/tern", "score": 1},
        {"number": 2, "id": "b", "title": "", "url": "/relative", "score": 1},
    ]
}
TABLE = {
    "title": "Sales",
    "columns": [{"name": "region"}, {"name": "total"}],
    "rows": [["north", 12345], ["a|b", None]],
}
CHART = {
    "id": "c1",
    "title": "Total",
    "plotly": {},
    "vega_lite": {
        "mark": "bar",
        "data": {"values": [{"x": "a", "y": 1}]},
        "encoding": {"x": {"field": "x"}, "y": {"field": "y", "type": "quantitative"}},
    },
}


async def draw(kind: str, content: Any, a2ui: Any = True, **fields: Any) -> Any:
    """Return what a page gets of an activity of an agent."""

    async def agent(run: RunInput) -> AsyncGenerator[Event, None]:
        yield Activity(message_id="m", activity_type=kind, content=content)

    async with browsing(agents={"it": agent}, a2ui=a2ui) as browser:
        events = (await browser.run(agent="it", **fields)).events()
    (event,) = [event for event in events if event["type"] == "ACTIVITY_SNAPSHOT"]
    assert event["messageId"] == "m"
    return event


def components(event: Any) -> list[Any]:
    assert event["activityType"] == "a2ui-surface"
    create, update = event["content"]["a2ui_operations"]
    assert create["createSurface"]["surfaceId"] == "m"
    found: list[Any] = update["updateComponents"]["components"]
    ids = {one["id"] for one in found}
    for one in found:
        children = [*one.get("children", ()), *([one["child"]] if "child" in one else ())]
        assert ids.issuperset(children)
    assert found[0]["id"] == "root"
    return found


def texts(event: Any) -> list[str]:
    return [one["text"] for one in components(event) if one["component"] == "Text"]


async def test_a_plan_is_a_tree_of_tasks() -> None:
    assert texts(await draw("plan", PLAN)) == [
        "Book \\*everything\\*",
        "running · 1 of 2",
        "✓ Find ships (scout)",
        "\u00a0\u00a0\u00a0\u00a0✗ Ask Oslo: closed",
        "**Which day?**",
    ]


async def test_sources_with_an_address_are_links() -> None:
    found = components(await draw("sources", SOURCES))
    (link,) = [one for one in found if one["component"] == "Button"]

    call = {"call": "openUrl", "args": {"url": "https://x.example/tern"}}
    assert link["action"] == {"functionCall": call}


async def test_a_table_has_its_first_rows() -> None:
    assert texts(await draw("analyst-table", TABLE)) == [
        "Sales",
        "**region**",
        "**total**",
        "north",
        "12,345",
        "a\\|b",
        "",
    ]


async def test_a_chart_is_an_image() -> None:
    found = components(await draw("analyst-chart", CHART))
    (image,) = [one for one in found if one["component"] == "Image"]

    assert image["url"].startswith("data:image/png;base64,iVBOR")
    assert image["description"] == "Total"


async def test_how_far_an_answer_can_be_trusted_is_a_card() -> None:
    lineage = [{"tables": ["sales"], "filters": ["region = 'north'"]}]
    found = texts(await draw("analyst-answer", {"trust": "verified", "lineage": lineage}))

    assert found == ["**verified**", "From sales", "region = 'north'"]


async def test_a_question_names_its_options() -> None:
    question = {"question": "Which total?", "options": ["net", "gross"]}

    assert texts(await draw("analyst-question", question)) == ["Which total?", "• net", "• gross"]


@in_one_test(
    ("kind", "content"),
    [
        ("plan", {"steps": []}),
        ("sources", {"sources": ["a"]}),
        ("sources", "text"),
        ("analyst-chart", {"id": "x", "vega_lite": {"mark": "oops"}}),
        ("other", {"tasks": []}),
    ],
)
async def test_what_is_not_ours_stays_as_it_is(kind: str, content: Any) -> None:
    event = await draw(kind, content)

    assert (event["activityType"], event["content"]) == (kind, content)


@in_one_test("a2ui", [None, False, A2ui(cards=False), A2ui(agents=["other"])])
async def test_pages_without_surfaces_get_activities(a2ui: Any) -> None:
    assert (await draw("plan", PLAN, a2ui))["activityType"] == "plan"


async def test_a_page_that_draws_them_by_itself_gets_activities() -> None:
    properties = {"a2uiCatalogAvailable": True, "a2uiCards": False}

    assert (await draw("plan", PLAN, forwardedProps=properties))["activityType"] == "plan"


async def test_a_plan_of_thousands_of_tasks_is_a_card_of_the_first() -> None:
    tasks = [{"name": f"t{number}", "status": "pending"} for number in range(5000)]
    found = texts(await draw("plan", {**PLAN, "tasks": tasks, "questions": []}))

    assert len(found) == 203
    assert found[-1] == "and 4800 more"
