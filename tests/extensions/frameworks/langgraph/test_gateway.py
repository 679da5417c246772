"""Headers of the caller reach the gateway of a graph's model through CopilotKit's Python SDK."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from copilot_runtime import Settings
from copilot_runtime.extensions.frameworks.langgraph import LangGraphAgent
from tests.adapters.provider import Provider, serving, whole
from tests.extensions.frameworks.langgraph import graphs_gateway
from tests.extensions.frameworks.langgraph.asking import new_thread
from tests.extensions.frameworks.langgraph.conftest import Make
from tests.extensions.generative_ui import every_agent
from tests.extensions.generative_ui.apps import Weather, serve_weather
from tests.wire_agui.http import run_input, text_of, user
from tests.wire_agui.server import browsing

pytestmark = pytest.mark.anyio

THEIRS = {
    "X-Gateway-Key": "k-person",
    "X-Tenant": "theirs",
    "X-Copilotcloud-Public-Api-Key": "k-cloud",
    "X-Forwarded-For": "10.0.0.1",
    "X-Denied": "k-denied",
    "Authorization": "Bearer k-login",
}


@pytest.fixture
async def provider(anyio_backend: str) -> AsyncGenerator[Provider, None]:
    async with serving() as provider:
        provider.answer([whole({"word": "Hello."})])
        yield provider


async def ask(
    agent: Any, question: str, headers: dict[str, str], **fields: Any
) -> list[dict[str, Any]]:
    settings = Settings(threads="memory", deny_headers=("x-forwarded-*", "x-denied"))
    async with browsing(agents={"it": agent}, settings=settings) as browser:
        body = run_input(thread=new_thread(), messages=[user(question)], **fields)
        return (await browser.ask("POST", "/agent/it/run", body, headers)).events()


def extra_headers(provider: Provider) -> dict[str, str]:
    [request] = provider.requests
    return {name: value for name, value in request.headers.items() if name.startswith("x-")}


async def test_the_gateway_of_a_graph_gets_the_headers_that_may_be_forwarded(
    make: Make, provider: Provider
) -> None:
    events = await ask(make("gateway"), provider.url, THEIRS)

    assert text_of(events) == "Hello."
    found = extra_headers(provider)
    assert found == {"x-gateway-key": "k-person", "x-tenant": "theirs"}
    assert "authorization" not in provider.requests[0].headers


async def test_headers_that_the_operator_sets_are_not_those_of_the_page(
    make: Make, provider: Provider
) -> None:
    forwarded = {"copilotkit_forwarded_headers": {"X-Tenant": "ours"}}
    await ask(make("gateway", config={"configurable": forwarded}), provider.url, THEIRS)

    assert extra_headers(provider)["x-tenant"] == "ours"


async def test_a_page_adds_no_headers_by_its_configuration(make: Make, provider: Provider) -> None:
    smuggled = {
        "copilotkit_forwarded_headers": {"x-admin": "1"},
        "x-admin": "2",
        "X-Admin": "3",
    }
    config = {"config": {"configurable": smuggled}}
    await ask(make("gateway"), provider.url, {"X-Ok": "1"}, forwardedProps=config)

    assert extra_headers(provider) == {"x-ok": "1"}


async def test_a_graph_that_knows_its_context_runs_beside_headers(make: Make) -> None:
    agent = make("strict", config={"configurable": {"tone": "kind"}})
    events = await ask(agent, "Hi", THEIRS)

    assert text_of(events) == "In a kind tone."


async def test_a_header_of_the_page_that_the_server_gets_otherwise_goes_no_further(
    langgraph: str, provider: Provider
) -> None:
    agent = LangGraphAgent(
        langgraph, graph="gateway", api_key="k-ours", headers={"X-Tenant": "ours"}
    )
    await ask(agent, provider.url, {**THEIRS, "X-Api-Key": "theirs"})

    assert set(extra_headers(provider)) == {"x-gateway-key"}
    assert "k-ours" not in str(provider.requests)


async def test_headers_are_not_kept_with_the_thread_of_a_graph(provider: Provider) -> None:
    saver = InMemorySaver()
    agent = graphs_gateway.gateway.builder.compile(checkpointer=saver)
    await ask(agent, provider.url, THEIRS)

    assert "k-person" in str(provider.requests)
    assert "k-person" not in str([*saver.list(None)])


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
