"""Surfaces, apps, pages and clicks of graphs, on a LangGraph server and in this process."""

from collections.abc import AsyncGenerator

import pytest

from tests.extensions.frameworks.langgraph.asking import new_thread
from tests.extensions.frameworks.langgraph.conftest import Make
from tests.extensions.generative_ui import every_agent
from tests.extensions.generative_ui.apps import Weather, serve_weather

pytestmark = pytest.mark.anyio


@pytest.fixture
async def weather(anyio_backend: str) -> AsyncGenerator[Weather, None]:
    del anyio_backend
    async with serve_weather() as weather:
        yield weather


async def test_an_app_is_shown_and_its_result_is_read(make: Make, weather: Weather) -> None:
    await every_agent.show_an_app(make("obedient"), weather, new_thread())


async def test_a_surface_is_drawn_and_its_result_is_read(make: Make) -> None:
    await every_agent.draw_a_surface(make("obedient"), new_thread())


async def test_a_page_is_drawn_and_its_result_is_read(make: Make) -> None:
    await every_agent.draw_a_page(make("obedient"), new_thread())


async def test_a_click_reaches_the_graph_once(make: Make) -> None:
    await every_agent.click_once(make("obedient"), new_thread())


async def test_a_v1_client_sees_what_it_saw_before(make: Make, weather: Weather) -> None:
    before = await every_agent.ask_as_v1(make("chat"), weather, on=False)

    assert await every_agent.ask_as_v1(make("chat"), weather, on=True) == before
