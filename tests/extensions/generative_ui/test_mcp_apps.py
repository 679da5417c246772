"""Tools of MCP servers with user interfaces: agents call them, and pages show them in frames."""

import json
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import pytest

from copilot_runtime import McpServer, RunInput
from copilot_runtime.adapters.scripted import ScriptedAdapter, call, say
from copilot_runtime.api.events import ActionExecutionResult, Event
from copilot_runtime.api.hooks import Hooks
from copilot_runtime.api.run_input import CURRENT_RUN
from copilot_runtime.base.errors import Refused, StoreFailed
from copilot_runtime.extensions.generative_ui.options import McpApps, McpAppServer
from tests.extensions.generative_ui.apps import CARD, Weather, ask_server, call_tool, read_resource
from tests.extensions.generative_ui.apps import serve_weather as serve
from tests.in_one_test import in_one_test
from tests.wire_agui.server import browsing

pytestmark = pytest.mark.anyio


@pytest.fixture
async def weather(anyio_backend: str) -> AsyncGenerator[Weather, None]:
    del anyio_backend
    async with serve() as weather:
        yield weather


class Caller:
    """An agent that yields these events, and notes the tools it was offered."""

    def __init__(self, *events: Event) -> None:
        self.events = events
        self.tools: dict[str, str] = {}

    async def run(self, run: RunInput) -> AsyncGenerator[Event, None]:
        self.tools = {action.name: action.description for action in run.actions}
        for event in self.events:
            yield event


async def run(weather: Weather, agent: Any, **options: Any) -> list[Any]:
    """Return the events of a run after its calls."""
    async with browsing(agents={"it": agent}, mcp_apps=weather.apps(**options)) as browser:
        events = (await browser.run(agent="it")).events()
    last = {"TOOL_CALL_RESULT", "ACTIVITY_SNAPSHOT", "RUN_FINISHED", "RUN_ERROR"}
    return [event for event in events if event["type"] in last]


async def test_an_agent_is_offered_the_tools_for_models(weather: Weather) -> None:
    agent = Caller(*say("Hello.", id="m"))
    await run(weather, agent)

    assert set(agent.tools) == {"show_weather", "model_only", "fail", "large"}
    assert agent.tools["model_only"].endswith(f"\n[UI Resource: {CARD}]")


async def test_a_call_is_answered_and_shown_when_the_agent_is_done(weather: Weather) -> None:
    agent = Caller(*call("show_weather", {"city": "Oslo"}, id="c1"), *say("Look.", id="m"))
    result, app, end = await run(weather, agent)

    assert (result["toolCallId"], result["content"]) == ("c1", "Weather in Oslo: 21")
    content = app["content"]
    assert (app["activityType"], content["resourceUri"]) == ("mcp-apps", CARD)
    assert (content["serverId"], content["toolInput"]) == ("weather", {"city": "Oslo"})
    assert content["result"]["content"][0]["text"] == "Weather in Oslo: 21"
    assert end["type"] == "RUN_FINISHED"


async def test_a_model_of_ours_reads_the_result_in_the_same_run(weather: Weather) -> None:
    model = ScriptedAdapter(call("show_weather", {"city": "Rome"}, id="c1"), say("It is warm."))
    async with browsing(model, mcp_apps=weather.apps()) as browser:
        types = (await browser.run()).types()

    at = types.index("TOOL_CALL_RESULT")
    assert types[at : at + 3] == ["TOOL_CALL_RESULT", "ACTIVITY_SNAPSHOT", "TEXT_MESSAGE_START"]
    assert weather.calls == ["show Rome"]


async def test_what_the_agent_answered_itself_is_not_called(weather: Weather) -> None:
    answered = ActionExecutionResult(call_id="c1", name="show_weather", result="done")
    events = await run(weather, Caller(*call("show_weather", {"city": "x"}, id="c1"), answered))

    assert [event["type"] for event in events] == ["TOOL_CALL_RESULT", "RUN_FINISHED"]
    assert weather.calls == []


async def test_a_call_that_cannot_be_stored_is_not_made(weather: Weather) -> None:
    async def fail() -> None:
        raise StoreFailed("The disk is full.")

    async def ask(run: RunInput) -> AsyncGenerator[Event, None]:
        CURRENT_RUN.get().wait_for_storage = fail
        for event in call("show_weather", {"city": "Oslo"}):
            yield event

    assert [event["type"] for event in await run(weather, ask)] == ["RUN_ERROR"]
    assert weather.calls == []


@in_one_test("name", ["refresh", "delete_everything"])
async def test_other_tools_of_the_server_are_not_called(weather: Weather, name: str) -> None:
    events = await run(weather, Caller(*call(name, {}, id="c1")))

    assert [event["type"] for event in events] == ["RUN_FINISHED"]
    assert weather.calls == []


async def test_a_tool_that_fails_says_so_and_is_shown(weather: Weather) -> None:
    result, app, _ = await run(weather, Caller(*call("fail", {}, id="c1")))

    assert app["content"]["result"]["isError"] is True
    assert result["type"] == "TOOL_CALL_RESULT"


async def test_an_answer_that_is_too_large_is_an_error(weather: Weather) -> None:
    result, end = await run(weather, Caller(*call("large", {}, id="c1")))

    assert json.loads(result["content"]) == {"error": "The tool could not be called."}
    assert end["type"] == "RUN_FINISHED"


async def test_a_server_that_is_down_is_left_out_with_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gone = McpApps(servers=[McpAppServer(server=McpServer("http://127.0.0.1:9/mcp"), id="gone")])
    async with browsing(agents={"it": Caller(*say("Hi.", id="m"))}, mcp_apps=gone) as browser:
        for number in range(2):
            assert (await browser.run(agent="it", run=f"r{number}")).types()[-1] == "RUN_FINISHED"

        refused = await ask_server(browser, call_tool("refresh") | {"serverId": "gone"})
        assert refused == {"error": "Error: MCP request failed"}

    lines = [it for it in caplog.messages if "MCP apps of 'gone' at 127.0.0.1:9 are left out" in it]
    assert len(lines) == 1
    assert "A request of an app of 'gone' at 127.0.0.1:9 failed: " in caplog.text


async def test_servers_may_be_those_of_one_agent(weather: Weather) -> None:
    (server,) = weather.apps().servers
    bound = McpApps(servers=[McpAppServer(server=server.server, id="weather", agent="other")])
    agent = Caller(*say("Hi.", id="m"))
    async with browsing(agents={"it": agent, "other": agent}, mcp_apps=bound) as browser:
        await browser.run(agent="it")
        assert agent.tools == {}
        refusal = await ask_server(browser, call_tool("refresh"), agent="it")
        assert refusal == {"error": "Unknown server: weather"}
        assert "content" in await ask_server(browser, call_tool("refresh"), agent="other")


async def test_an_app_reads_its_page_and_calls_its_tools(weather: Weather) -> None:
    agent = Caller(*call("show_weather", {"city": "Oslo"}, id="c1"))
    async with browsing(agents={"it": agent}, mcp_apps=weather.apps()) as browser:
        events = (await browser.run(agent="it")).events()
        (token,) = [
            it["content"]["serverHash"]
            for it in events
            if "content" in it and it["type"] == "ACTIVITY_SNAPSHOT"
        ]
        page = await ask_server(browser, read_resource(CARD))
        same = await ask_server(browser, read_resource(CARD, serverId="", serverHash=token))
        result = await ask_server(browser, call_tool("refresh"))
        ping = await ask_server(browser, {"serverId": "weather", "method": "ping"})

    assert page == same
    assert page["contents"][0]["text"] == "<!doctype html><p id=x></p>"
    assert result["content"][0]["text"] == "22"
    assert ping == {}


async def test_requests_of_apps_are_stored_nowhere(weather: Weather) -> None:
    agent = Caller(*say("Hi.", id="m"))
    async with browsing(agents={"it": agent}, mcp_apps=weather.apps()) as browser:
        await ask_server(browser, call_tool("refresh"), thread="t2")
        threads = (await browser.ask("GET", "/threads?agentId=it")).json()

    assert threads["threads"] == []
    assert agent.tools == {}


async def test_an_agent_without_apps_answers_no_request_of_one() -> None:
    agent = Caller(*say("Hi.", id="m"))
    async with browsing(agents={"it": agent}) as browser:
        refusal = await ask_server(browser, call_tool("refresh"))

    assert refusal == {"error": "This agent has no MCP servers with apps."}


NOT_ALLOWED = "Error: MCP method not allowed for UI proxy"

TOO_LARGE = (
    "The answer of the MCP server is too large. It is larger than the 4000000 bytes that "
    "mcp_apps.max_result_bytes allows."
)

HOSTILE: list[tuple[Any, str]] = [
    (call_tool("delete_everything"), "Error: this tool is not for apps."),
    (call_tool("model_only"), "Error: this tool is not for apps."),
    (read_resource("file:///etc/passwd"), "Error: this resource is not for apps."),
    (read_resource("https://example.com/"), "Error: this resource is not for apps."),
    (read_resource(CARD, serverId="nope", serverHash="guess"), "Unknown server: nope"),
    (
        {"serverId": "weather", "method": "tools/list"},
        "Error: MCP method not allowed for UI proxy: tools/list",
    ),
    ({"serverId": "weather"}, "Error: MCP method not allowed for UI proxy: undefined"),
    ({}, "Unknown server: undefined"),
    ("text", "Unknown server: undefined"),
    (call_tool("refresh", x="y" * 1_100_000), "The request of the app is too large."),
    (call_tool("large"), TOO_LARGE),
]


@in_one_test(("request_", "error"), HOSTILE)
async def test_a_hostile_page_gets_nothing_else(
    weather: Weather, request_: Any, error: str
) -> None:
    async with browsing(agents={"it": Caller()}, mcp_apps=weather.apps()) as browser:
        assert (await ask_server(browser, request_))["error"] == error

    assert weather.calls == []


async def test_a_refused_call_is_a_result_that_an_app_can_read(weather: Weather) -> None:
    async with browsing(agents={"it": Caller()}, mcp_apps=weather.apps()) as browser:
        refusal = await ask_server(browser, call_tool("model_only"))

    text = "Error: this tool is not for apps."
    content = [{"type": "text", "text": text}]
    assert refusal == {"error": text, "content": content, "isError": True}


async def test_answers_are_as_large_as_the_operator_allows(
    weather: Weather, caplog: pytest.LogCaptureFixture
) -> None:
    apps = weather.apps(max_result_bytes=50)
    async with browsing(agents={"it": Caller()}, mcp_apps=apps) as browser:
        answer = await ask_server(browser, call_tool("refresh"))

    limit = "It is larger than the 50 bytes that mcp_apps.max_result_bytes allows."
    assert answer == {"error": f"The answer of the MCP server is too large. {limit}"}
    assert limit in caplog.text


WAYS = [{"json_response": False}, {"json_response": True}, {"sse": True}]
LINE = '<p>Grüße, „Ann“: "1,2,3"</p>\n'


@pytest.mark.parametrize("how", WAYS, ids=["sse", "json", "older sse"])
@in_one_test("size", [5_000_000, 10_000_000])
async def test_a_page_is_as_large_as_the_operator_allows(
    size: int, how: Mapping[str, bool]
) -> None:
    async with serve(**how) as weather:
        weather.page = LINE * (size // len(LINE.encode()))
        apps = weather.apps(max_result_bytes=20_000_000)
        async with browsing(agents={"it": Caller()}, mcp_apps=apps) as browser:
            answer = await ask_server(browser, read_resource(CARD))

    assert answer["contents"][0]["text"] == weather.page


@pytest.mark.parametrize("how", WAYS, ids=["sse", "json", "older sse"])
@in_one_test("size", [2_000_000, 5_000_000])
async def test_a_page_that_is_too_large_is_refused_with_the_name_of_the_setting(
    size: int, how: Mapping[str, bool], caplog: pytest.LogCaptureFixture
) -> None:
    async with serve(**how) as weather:
        weather.page = LINE * (size // len(LINE.encode()))
        apps = weather.apps(max_result_bytes=1_000_000)
        async with browsing(agents={"it": Caller()}, mcp_apps=apps) as browser:
            answer = await ask_server(browser, read_resource(CARD))
            assert "content" in await ask_server(browser, call_tool("refresh"))

    limit = "It is larger than the 1000000 bytes that mcp_apps.max_result_bytes allows."
    assert answer == {"error": f"The answer of the MCP server is too large. {limit}"}
    assert limit in caplog.text


async def test_a_flood_of_requests_is_cut_off(weather: Weather) -> None:
    async with browsing(agents={"it": Caller()}, mcp_apps=weather.apps(max_requests=2)) as browser:
        answers = [await ask_server(browser, call_tool("refresh")) for _ in range(20)]

    refusal = {"error": "Too many requests of MCP apps. Try again in a second."}
    assert answers.count(refusal) > 0
    assert len(weather.calls) == 20 - answers.count(refusal)


async def test_the_operator_may_allow_more(weather: Weather) -> None:
    apps = weather.apps(tools="all", uris=("ui://", "file:///etc/"))
    async with browsing(agents={"it": Caller()}, mcp_apps=apps) as browser:
        assert "content" in await ask_server(browser, call_tool("delete_everything"))
        assert "contents" in await ask_server(browser, read_resource("file:///etc/passwd"))


async def test_whoever_may_not_run_the_agent_may_not_ask_its_servers(weather: Weather) -> None:
    def refuse(run: RunInput) -> None:
        raise Refused("Not you.")

    async with browsing(
        agents={"it": Caller()}, mcp_apps=weather.apps(), hooks=Hooks(before_request=refuse)
    ) as browser:
        answer = await browser.run(
            agent="it", forwardedProps={"__proxiedMCPRequest": call_tool("refresh")}
        )

    assert answer.events()[-1]["message"] == "Not you."
    assert weather.calls == []
