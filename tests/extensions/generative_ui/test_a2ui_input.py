"""What agents get where surfaces are drawn, as recorded of the Node runtime."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import MessagesState, StateGraph  # pyright: ignore[reportMissingTypeStubs]
from pydantic_ai import Agent
from pydantic_ai.models.function import AgentInfo, FunctionModel

from copilot_runtime import RunInput
from copilot_runtime.adapters.scripted import ScriptedAdapter, say
from copilot_runtime.api import ContextItem
from copilot_runtime.extensions.generative_ui.a2ui.catalog import CATALOG_CONTEXT
from copilot_runtime.extensions.generative_ui.a2ui.clicks import ClickLog
from copilot_runtime.extensions.generative_ui.a2ui.input import prepare_input
from copilot_runtime.extensions.generative_ui.options import A2ui
from tests.extensions.generative_ui.agui_agent import receive_one
from tests.in_one_test import in_one_test
from tests.wire_agui.http import user
from tests.wire_agui.server import browsing

pytestmark = pytest.mark.anyio

ASK = {"messages": [user("scenario:text", "u-1")]}
HAS_CATALOG = {"a2uiCatalogAvailable": True}
PAGE_CATALOG = [
    {
        "description": CATALOG_CONTEXT,
        "value": '{"catalogId":"front-cat","components":{"Text":{}}}',
    }
]
SCHEMA = {
    "catalogId": "https://acme.example/catalog",
    "components": {"Text": {"type": "object", "properties": {"text": {}}, "required": ["text"]}},
}
TOOL: dict[str, Any] = {
    "name": "render_a2ui",
    "description": "Render a dynamic A2UI v0.9 surface with structured parameters. Follow the "
    "A2UI render tool usage guide provided in context.",
    "parameters": {
        "type": "object",
        "properties": {
            "surfaceId": {"type": "string", "description": "Unique surface identifier."},
            "components": {
                "type": "array",
                "description": "A2UI v0.9 component array (flat format). The root component must "
                'have id "root".',
                "items": {"type": "object"},
            },
            "data": {
                "type": "object",
                "description": "Initial data model for the surface. Written to the root path. Use "
                'for pre-filling form values (e.g. {"form": {"name": "Alice"}}) or providing data '
                "for components bound to data model paths.",
            },
        },
        "required": ["surfaceId", "components"],
    },
}


def guide(name: str = "render_a2ui") -> dict[str, str]:
    text = f"A2UI render tool usage guide \u2014 how to call {name} with valid arguments."
    return {"description": text, "value": "<long text>"}


def shortened(got: dict[str, Any]) -> dict[str, Any]:
    """Return an input with long values of its context as in the recordings."""
    for item in got["context"]:
        item["value"] = "<long text>" if len(item["value"]) > 300 else item["value"]
    return got


def expected(**changes: Any) -> dict[str, Any]:
    return {"tools": [], "context": [], "forwardedProps": {}, "state": {}, **ASK} | changes


@in_one_test(
    ("options", "fields", "changes"),
    [
        pytest.param(A2ui(), {}, {}, id="input-default-no-injection"),
        pytest.param(A2ui(agents=["other"], inject_tool=True), {}, {}, id="input-agents-scope"),
        pytest.param(
            A2ui(inject_tool=True),
            {},
            {"tools": [TOOL], "context": [guide()], "forwardedProps": {"injectA2UITool": True}},
            id="input-inject",
        ),
        pytest.param(
            A2ui(inject_tool="draw_ui"),
            {},
            {
                "tools": [TOOL | {"name": "draw_ui"}],
                "context": [guide("draw_ui")],
                "forwardedProps": {"injectA2UITool": "draw_ui"},
            },
            id="input-named",
        ),
        pytest.param(
            A2ui(inject_tool=True, schema=SCHEMA),
            {"context": PAGE_CATALOG},
            {
                "tools": [TOOL],
                "context": [
                    {
                        "description": CATALOG_CONTEXT,
                        "value": json.dumps(SCHEMA, separators=(",", ":")),
                    },
                    guide(),
                ],
                "forwardedProps": {"injectA2UITool": True},
            },
            id="input-schema",
        ),
        pytest.param(
            None,
            {"context": PAGE_CATALOG, "forwardedProps": HAS_CATALOG},
            {
                "tools": [TOOL],
                "context": [*PAGE_CATALOG, guide()],
                "forwardedProps": {**HAS_CATALOG, "injectA2UITool": True},
            },
            id="input-catalog-available",
        ),
        pytest.param(
            A2ui(enabled=False),
            {"forwardedProps": HAS_CATALOG},
            {"forwardedProps": HAS_CATALOG},
            id="input-catalog-available-off",
        ),
        pytest.param(
            A2ui(inject_tool=False),
            {"forwardedProps": HAS_CATALOG},
            {"forwardedProps": HAS_CATALOG},
            id="no injection whatever the page has",
        ),
        pytest.param(
            A2ui(inject_tool=True),
            {
                "tools": [
                    {"name": n, "description": "", "parameters": {}} for n in ("a", TOOL["name"])
                ]
            },
            {
                "tools": [{"name": "a", "description": "", "parameters": {}}, TOOL],
                "context": [guide()],
                "forwardedProps": {"injectA2UITool": True},
            },
            id="the page's tool of that name is replaced",
        ),
        pytest.param(
            A2ui(schema=[{"name": "Väre", "props": {}}]),
            {},
            {
                "context": [
                    {"description": CATALOG_CONTEXT, "value": '[{"name":"Väre","props":{}}]'}
                ]
            },
            id="a catalog in the older form",
        ),
        pytest.param(
            A2ui(schema={"catalogId": "a", "components": {}}),
            {"context": PAGE_CATALOG},
            {"context": PAGE_CATALOG},
            id="an empty catalog replaces none",
        ),
    ],
)
async def test_an_agent_gets_what_node_gives(
    options: A2ui | None, fields: dict[str, Any], changes: dict[str, Any]
) -> None:
    assert shortened(await receive_one(options, **ASK, **fields)) == expected(**changes)


async def test_what_an_agent_gets_is_stored_nowhere() -> None:
    async with browsing(ScriptedAdapter(say("Hello")), a2ui=A2ui(inject_tool=True)) as browser:
        await browser.run()
        replay = (await browser.connect()).events()
    started = next(event for event in replay if event["type"] == "RUN_STARTED")
    assert started["input"]["tools"] == [] and started["input"]["context"] == []


@in_one_test(
    ("options", "value", "catalog"),
    [
        (A2ui(default_catalog_id="ours"), '{"catalogId":"theirs"}', "ours"),
        (A2ui(schema=SCHEMA), '{"catalogId":"theirs"}', "theirs"),
        (A2ui(schema=SCHEMA), "{}", ""),
        (A2ui(), "no JSON", ""),
        (A2ui(), '{"catalogId":3}', ""),
        (A2ui(), " " * 200_001 + '{"catalogId":"theirs"}', "theirs"),
    ],
    ids=lambda value: str(value)[:20],
)
async def test_the_catalog_of_a_surface_is_the_operators_or_the_pages(
    options: A2ui, value: str, catalog: str
) -> None:
    items = [ContextItem(description=CATALOG_CONTEXT, value=value)]
    run = RunInput(thread_id="t", run_id="r", messages=[], context=items)
    prepared = await prepare_input(run, options, ClickLog(), executes_actions=False)
    assert prepared.catalog_id == catalog


async def test_components_are_compared_with_the_operators_catalog_alone() -> None:
    run = RunInput(thread_id="t", run_id="r", messages=[])
    found = [
        (await prepare_input(run, A2ui(schema=one), ClickLog(), executes_actions=False)).catalog
        for one in (SCHEMA, [{"name": "Text"}], {"components": {}}, None)
    ]
    assert found == [SCHEMA, None, None, None]


async def test_calls_of_the_tool_under_any_of_its_names_are_surfaces() -> None:
    run = RunInput(thread_id="t", run_id="r", messages=[])
    options = A2ui(tool_names=["render_a2ui", "paint"], inject_tool="draw_ui")
    prepared = await prepare_input(run, options, ClickLog(), executes_actions=False)
    assert prepared.tool_names == {"render_a2ui", "paint", "draw_ui"}


async def test_the_run_itself_does_not_change() -> None:
    run = RunInput(thread_id="t", run_id="r", messages=[])
    copy = replace(run)
    await prepare_input(run, A2ui(inject_tool=True), ClickLog(), executes_actions=True)
    assert run == copy


async def test_our_own_model_gets_tool_guide_and_catalog() -> None:
    model = ScriptedAdapter(say("Hello"))
    async with browsing(model, a2ui=A2ui(inject_tool=True)) as browser:
        await browser.run(context=PAGE_CATALOG)
    [request] = model.requests
    [system] = [one for one in request.messages if getattr(one, "role", "") == "system"]
    assert request.actions[0].name == "render_a2ui"
    assert all(part in repr(system) for part in ("front-cat", "how to call render_a2ui"))


async def test_a_graph_gets_the_catalog_where_ag_ui_langgraph_puts_it() -> None:
    states: list[Any] = []

    class State(MessagesState):
        tools: list[Any]
        copilotkit: dict[str, Any]

    State.__annotations__["ag-ui"] = dict[str, Any]

    def node(state: Any) -> dict[str, Any]:
        states.append(state)
        return {"messages": [AIMessage("Hello", id="a1")]}

    graph = StateGraph(State).add_node("node", node)
    graph.set_entry_point("node")
    app = graph.compile(checkpointer=InMemorySaver())
    options = A2ui(inject_tool="draw_ui")
    async with browsing(agents={"default": app}, a2ui=options) as browser:
        (await browser.run(context=PAGE_CATALOG)).events()
    [state] = states
    for place in ("ag-ui", "copilotkit"):
        descriptions = [item["description"] for item in state[place]["context"]]
        assert descriptions == [guide("draw_ui")["description"]]
    assert [tool["name"] for tool in state["tools"]] == ["draw_ui"]
    assert state["ag-ui"]["a2ui_schema"] == PAGE_CATALOG[0]["value"]
    assert state["ag-ui"]["inject_a2ui_tool"] == "draw_ui"
    assert state["copilotkit"]["actions"] == state["ag-ui"]["tools"] == state["tools"]


async def test_an_agent_of_pydantic_ai_gets_tool_guide_and_catalog() -> None:
    infos: list[AgentInfo] = []

    async def play(_: Any, info: AgentInfo) -> Any:
        infos.append(info)
        yield "Hello"

    stream: Callable[..., Any] = play
    agent: Any = Agent(FunctionModel(stream_function=stream))
    async with browsing(agents={"default": agent}, a2ui=A2ui(inject_tool=True)) as browser:
        (await browser.run(context=PAGE_CATALOG)).events()
    [info] = infos
    assert [tool.name for tool in info.function_tools] == ["render_a2ui"]
    assert all(
        part in (info.instructions or "") for part in ("front-cat", "how to call render_a2ui")
    )
