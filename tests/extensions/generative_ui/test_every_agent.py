"""Surfaces, apps, pages and clicks of agents of every kind, each with its real library."""

import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from copilot_runtime import RunInput
from copilot_runtime.adapters.scripted import call, say
from copilot_runtime.api.events import ActionExecutionResult
from tests.extensions.generative_ui import every_agent
from tests.extensions.generative_ui.apps import Weather
from tests.extensions.generative_ui.apps import serve_weather as serve
from tests.extensions.generative_ui.every_agent import SURFACE
from tests.extensions.generative_ui.obedient import KINDS

pytestmark = pytest.mark.anyio


@pytest.fixture(params=KINDS)
async def agent(anyio_backend: str, request: pytest.FixtureRequest) -> AsyncGenerator[Any, None]:
    del anyio_backend
    async with KINDS[request.param]() as agent:
        yield agent


@pytest.fixture
async def weather(anyio_backend: str) -> AsyncGenerator[Weather, None]:
    del anyio_backend
    async with serve() as weather:
        yield weather


async def test_an_app_is_shown_and_its_result_is_read(agent: Any, weather: Weather) -> None:
    await every_agent.show_an_app(agent, weather)


async def test_a_surface_is_drawn_and_its_result_is_read(agent: Any) -> None:
    await every_agent.draw_a_surface(agent)


async def test_a_page_is_drawn_and_its_result_is_read(agent: Any) -> None:
    await every_agent.draw_a_page(agent)


async def test_a_click_reaches_the_agent_once(agent: Any) -> None:
    await every_agent.click_once(agent)


async def test_a_v1_client_sees_what_it_saw_before(agent: Any, weather: Weather) -> None:
    before = await every_agent.ask_as_v1(agent, weather, on=False)

    assert await every_agent.ask_as_v1(agent, weather, on=True) == before
    assert weather.calls == []


async def test_a_v1_client_sees_the_results_of_tools_and_no_surface(weather: Weather) -> None:
    operations = {"a2ui_operations": [{"version": "v0.9", "createSurface": {"surfaceId": "s"}}]}

    async def drawing(run: RunInput) -> AsyncGenerator[Any, None]:
        del run
        for event in call("draw", SURFACE, id="c"):
            yield event
        yield ActionExecutionResult(call_id="c", name="draw", result=json.dumps(operations))
        for event in say("Look.", id="m"):
            yield event

    before = await every_agent.ask_as_v1(drawing, weather, on=False)
    after = await every_agent.ask_as_v1(drawing, weather, on=True)

    assert after == before
    assert [message["result"] for message in after if "result" in message] == [
        json.dumps(operations)
    ]
