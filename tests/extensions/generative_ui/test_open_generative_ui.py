"""Pages are drawn while a model writes the arguments of `generateSandboxedUi`."""

import json
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import jsonpatch
import pytest

from copilot_runtime import RunInput, Settings
from copilot_runtime.adapters.scripted import call, say
from copilot_runtime.api.events import (
    ActionExecutionArgs,
    ActionExecutionEnd,
    ActionExecutionResult,
    ActionExecutionStart,
    Event,
)
from copilot_runtime.extensions.generative_ui.open_generative_ui import MAX_ITEMS
from copilot_runtime.extensions.generative_ui.options import OpenGenerativeUi
from tests.extensions.generative_ui import every_agent
from tests.extensions.generative_ui.apps import Weather
from tests.extensions.generative_ui.apps import serve_weather as serve
from tests.extensions.generative_ui.every_agent import SURFACE
from tests.extensions.generative_ui.obedient import KINDS
from tests.in_one_test import in_one_test
from tests.wire_agui.server import browsing

pytestmark = pytest.mark.anyio

HTML = '<head></head><body><p id="x">Hi 世界</p>\n</body>'
PAGE = {
    "initialHeight": 320,
    "placeholderMessages": ["Thinking", "Drawing"],
    "css": "p{color:red}",
    "html": HTML,
    "jsFunctions": "function f(){return 1}",
    "jsExpressions": ["f()", "document.title='a'"],
}
WHOLE = {
    **{key: value for key, value in PAGE.items() if key != "html"},
    "cssComplete": True,
    "jsFunctionsComplete": True,
    "jsExpressionsComplete": True,
    "htmlComplete": True,
    "generating": False,
}


def write(arguments: Any, size: int = 24) -> Iterator[Event]:
    """Yield a call whose arguments come in pieces."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    yield ActionExecutionStart(call_id="g1", name="generateSandboxedUi")
    for at in range(0, len(text), size):
        yield ActionExecutionArgs(call_id="g1", delta=text[at : at + size])
    yield ActionExecutionEnd(call_id="g1")


async def draw(
    *events: Event, options: Any = True, error: Exception | None = None
) -> tuple[list[Any], list[str]]:
    """Run an agent that yields these events; return the contents of its page, and all types."""

    async def agent(run: RunInput) -> AsyncGenerator[Event, None]:
        for event in events:
            yield event
        if error is not None:
            raise error

    async with browsing(agents={"it": agent}, open_generative_ui=options) as browser:
        sent = (await browser.run(agent="it")).events()
    contents: list[Any] = []
    for event in sent:
        if event["type"] == "ACTIVITY_SNAPSHOT":
            assert event["messageId"] == "g1-activity"
            contents.append(event["content"])
        elif event["type"] == "ACTIVITY_DELTA":
            contents.append(jsonpatch.apply_patch(contents[-1], event["patch"]))
    return contents, [event["type"] for event in sent]


@in_one_test("size", [1, 3, 24, 100_000])
async def test_a_page_grows_key_by_key(size: int) -> None:
    contents, types = await draw(*write(PAGE, size))
    html = contents[-1].pop("html")

    assert contents[0] == {"initialHeight": 320, "generating": True}
    assert "".join(html) == HTML
    assert contents[-1] == WHOLE
    assert types[1:3] == ["ACTIVITY_SNAPSHOT", "TOOL_CALL_START"]
    assert types[-3:] == ["ACTIVITY_DELTA", "TOOL_CALL_END", "RUN_FINISHED"]


async def test_a_page_may_begin_with_anything() -> None:
    contents, _ = await draw(*write({"html": HTML, "css": "p{}"}))

    assert contents[0] == {"generating": True}
    assert contents[-1]["css"] == "p{}"


async def test_a_long_page_does_not_come_in_as_many_pieces() -> None:
    contents, _ = await draw(*write({"html": "<p>x</p>" * 4_000}, 7))

    assert len(contents) < 400
    assert "".join(contents[-1]["html"]) == "<p>x</p>" * 4_000


@in_one_test("arguments", ["{}", "", "oops", {"html": 5, "css": None, "other": "x"}])
async def test_a_call_that_draws_nothing_goes_to_the_page_in_its_place(arguments: Any) -> None:
    contents, types = await draw(*write(arguments), *say("Done.", id="m"))

    assert contents == []
    assert types.index("TOOL_CALL_START") < types.index("TOOL_CALL_END")
    assert types.index("TOOL_CALL_END") < types.index("TEXT_MESSAGE_START")


@in_one_test("broken", ['{"initialHeight": 200, "css": oops', '{"initialHeight":200,"h'])
async def test_broken_arguments_end_the_page(broken: str) -> None:
    contents, types = await draw(*write(broken))

    assert contents[-1] == {"initialHeight": 200, "generating": False}
    assert "".join(types).count("TOOL_CALL_END") == 1


async def test_a_run_that_fails_ends_the_page() -> None:
    begun = [*write({"css": "p{}", "html": HTML}, 40)][:-2]
    contents, types = await draw(*begun, error=RuntimeError("died"))

    assert contents[-1]["generating"] is False
    assert types[-1] == "RUN_ERROR"


async def test_pages_are_for_the_agents_that_were_named() -> None:
    contents, types = await draw(*write(PAGE), options=OpenGenerativeUi(agents=["other"]))

    assert contents == []
    assert types[1] == "TOOL_CALL_START"


async def test_expressions_without_end_are_left_out() -> None:
    contents, _ = await draw(*write({"jsExpressions": ["f()"] * 5_000}, 10_000))

    assert contents[-1]["jsExpressions"] == ["f()"] * MAX_ITEMS
    assert contents[-1]["jsExpressionsComplete"] is True


async def test_of_a_key_that_is_repeated_the_first_value_is_drawn() -> None:
    repeated = "{" + ",".join(f'"html":"{number}"' for number in range(2_000)) + "}"
    contents, _ = await draw(*write(repeated, 100))

    assert contents[-1]["html"] == ["0"]
    assert len(contents) < 10


async def test_a_page_that_fills_the_log_ends_its_run_and_frees_its_thread() -> None:
    async def agent(run: RunInput) -> AsyncGenerator[Event, None]:
        for event in write({"html": "<p>x</p>" * 20_000}, 100):
            yield event

    settings = Settings(threads="memory", max_bytes_per_run=100_000)
    options: Any = {"agents": {"it": agent}, "open_generative_ui": True, "settings": settings}
    async with browsing(**options) as browser:
        first = (await browser.run(run="r1", agent="it")).events()
        second = (await browser.run(run="r2", agent="it")).events()

    assert [events[-1]["code"] for events in (first, second)] == ["LIMIT_EXCEEDED"] * 2


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
