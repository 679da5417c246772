"""What our own agents show becomes surfaces for pages that draw these."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from starlette.testclient import TestClient

from copilot_runtime import CopilotRuntime, RunInput
from copilot_runtime.adapters.scripted import call, say
from copilot_runtime.agents.agui import AguiAgent
from copilot_runtime.api.events import Activity, Event
from copilot_runtime.extensions.generative_ui.options import A2ui
from copilot_runtime.telemetry import LocalTelemetry, Span, semconv
from tests.extensions.generative_ui.apps import (
    CARD,
    Weather,
    ask_server,
    call_tool,
    read_resource,
    serve_weather,
)
from tests.in_one_test import in_one_test
from tests.telemetry.recorded import Spans, find_violations
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


OFF = {"a2uiEnabled": False, "openGenerativeUIEnabled": False}
ON = {"a2uiEnabled": True, "a2ui": {"enabled": True}, "openGenerativeUIEnabled": False}
SERVERS = {"servers": [{"type": "http", "url": "http://127.0.0.1:9/mcp"}]}


@in_one_test("single", [False, True], ids=["rest", "single"])
@in_one_test(
    ("options", "expected"),
    [
        ({}, OFF),
        ({"a2ui": {}}, ON),
        ({"a2ui": {"enabled": False, "injectA2UITool": True}}, OFF),
        ({"a2ui": {"agents": ["other"]}}, {**ON, "a2ui": {"enabled": True, "agents": ["other"]}}),
        ({"open_generative_ui": True}, {**OFF, "openGenerativeUIEnabled": True}),
        ({"open_generative_ui": {"agents": ["other"]}}, {**OFF, "openGenerativeUIEnabled": True}),
        ({"open_generative_ui": False}, OFF),
        ({"mcp_apps": SERVERS}, OFF),
    ],
)
def test_info_says_what_is_on_as_node_does(
    options: dict[str, Any], expected: dict[str, Any], single: bool
) -> None:
    agents = {"other": AguiAgent("http://127.0.0.1:9/")}
    app = CopilotRuntime(agents=agents, threads="memory", **options).app(path="/api")
    with TestClient(app) as client:
        request = {"method": "info"}
        answer = client.post("/api", json=request) if single else client.get("/api/info")

    # nothing is there of MCP Apps: a page always draws these
    info = {k: v for k, v in answer.json().items() if "ui" in k.lower() or "mcp" in k.lower()}
    assert info == expected


@pytest.fixture
async def weather(anyio_backend: str) -> AsyncGenerator[Weather, None]:
    del anyio_backend
    async with serve_weather() as weather:
        yield weather


async def caller(run: RunInput) -> AsyncGenerator[Any, None]:
    for event in (*call("show_weather", {"city": "Oslo"}, id="c"), *say("Look.", id="m")):
        yield event


def find(spans: Spans, name: str) -> Span:
    span = spans.named(name)
    assert find_violations(span) == []
    return span


async def ask(weather: Weather, *requests: dict[str, Any]) -> Spans:
    """Return the spans of requests of an app."""
    spans = Spans()
    telemetry = LocalTelemetry(spans, keeps_content=True)
    async with browsing(
        agents={"it": caller}, mcp_apps=weather.apps(), telemetry=telemetry
    ) as browser:
        for request in requests:
            await ask_server(browser, request)
    return spans


async def test_requests_of_apps_have_spans(weather: Weather) -> None:
    spans = await ask(weather, call_tool("refresh"), read_resource(CARD))
    called, read = find(spans, "execute_tool refresh"), find(spans, "resources/read")

    assert called.attributes[semconv.TOOL_NAME] == "refresh"
    assert called.attributes[semconv.TOOL_SERVER] == f"127.0.0.1:{weather.port}"
    assert called.attributes[semconv.MCP_SESSION_ID]
    assert read.attributes[semconv.MCP_METHOD_NAME] == "resources/read"


async def test_what_is_refused_is_an_error_without_the_name_that_a_page_invents(
    weather: Weather,
) -> None:
    spans = await ask(weather, call_tool("delete_everything"), call_tool("large"))

    assert find(spans, "tools/call").attributes[semconv.ERROR_TYPE] == "refused"
    assert semconv.ERROR_TYPE in find(spans, "execute_tool large").attributes


async def test_a_call_that_is_answered_behind_an_agent_has_a_span(weather: Weather) -> None:
    spans = Spans()
    telemetry = LocalTelemetry(spans, keeps_content=True)
    async with browsing(
        agents={"it": caller}, mcp_apps=weather.apps(), telemetry=telemetry
    ) as browser:
        await browser.run(agent="it")
    (tool,) = spans.of(semconv.EXECUTE_TOOL)
    request = find(spans, "tools/call")

    assert tool.attributes[semconv.TOOL_CALL_ID] == "c"
    assert request.context.trace_id == tool.context.trace_id
    assert request.attributes[semconv.MCP_SESSION_ID]


async def test_a_surface_that_cannot_be_drawn_is_an_event_of_the_run() -> None:
    spans = Spans()

    async def agent(run: RunInput) -> AsyncGenerator[Any, None]:
        del run
        for event in (*call("render_a2ui", {"surfaceId": "s"}, id="c"), *say("Look.", id="m")):
            yield event

    telemetry = LocalTelemetry(spans)
    async with browsing(agents={"it": agent}, a2ui=True, telemetry=telemetry) as browser:
        await browser.run(agent="it")

    events = [event.name for span in spans.spans for event in span.events]
    assert events == [semconv.EVENT_SURFACE_FAILED]
