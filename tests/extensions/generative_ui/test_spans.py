"""Spans of what frames of MCP apps ask, of calls answered behind an agent, and of surfaces."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from copilot_runtime import RunInput
from copilot_runtime.adapters.scripted import call, say
from copilot_runtime.telemetry import LocalTelemetry, Span, semconv
from tests.extensions.generative_ui.apps import (
    CARD,
    Weather,
    ask_server,
    call_tool,
    read_resource,
    serve_weather,
)
from tests.telemetry.recorded import Spans, find_violations
from tests.wire_agui.server import browsing

pytestmark = pytest.mark.anyio


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
    assert called.attributes[semconv.TOOL_SERVER] == "127.0.0.1"
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
