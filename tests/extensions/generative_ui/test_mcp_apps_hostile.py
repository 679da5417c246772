"""Pages and MCP servers that mean harm: what they get, and what others notice of it."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from starlette.requests import HTTPConnection

from copilot_runtime import CopilotRuntime, McpServer, Settings
from copilot_runtime.adapters.scripted import Gate, say
from copilot_runtime.api import RunInput
from copilot_runtime.api.hooks import Hooks
from copilot_runtime.extensions.generative_ui.mcp_apps import proxy, servers
from copilot_runtime.extensions.generative_ui.mcp_apps.proxy import is_allowed
from copilot_runtime.extensions.generative_ui.options import McpApps, McpAppServer
from copilot_runtime.extensions.mcp.client import session
from tests.agents.pages import page_v1, texts_v1
from tests.extensions.generative_ui.apps import CARD, Weather, ask_server, call_tool, read_resource
from tests.extensions.generative_ui.apps import serve_weather as serve
from tests.extensions.generative_ui.rogue import (
    PAGE,
    Rogue,
    build_tool,
    nest,
    redirect,
    serve_rogue,
    stream_for_ever,
)
from tests.in_one_test import in_one_test
from tests.wire.client import chat, merge
from tests.wire.client import user as user_v1
from tests.wire_agui.http import Browser, run_input
from tests.wire_agui.server import PATH, Parrot, browsing, serving

pytestmark = pytest.mark.anyio

FAILED = {"error": "Error: MCP request failed"}
NOT_FOR_APPS = {
    "error": "Error: this tool is not for apps.",
    "content": [{"type": "text", "text": "Error: this tool is not for apps."}],
    "isError": True,
}
NO_RESOURCE = {"error": "Error: this resource is not for apps."}
TOO_MANY = {"error": "Too many requests of MCP apps. Try again in a second."}
WORK = {"serverId": "rogue", "method": "tools/call", "params": {"name": "work"}}


@pytest.fixture
async def weather(anyio_backend: str) -> AsyncGenerator[Weather, None]:
    del anyio_backend
    async with serve() as weather:
        yield weather


@pytest.fixture
async def rogue(anyio_backend: str) -> AsyncGenerator[Rogue, None]:
    del anyio_backend
    async with serve_rogue() as rogue:
        yield rogue


async def silent(run: RunInput) -> AsyncGenerator[Any, None]:
    for event in say("Hello.", id=f"m-{run.run_id}"):
        yield event


def sign_in(connection: HTTPConnection) -> str | None:
    return connection.headers.get("x-user")


async def ask_as(browser: Browser, user: str, request: Any) -> Any:
    """Return the answer to a request of the app of a user."""
    return await ask_server(replace(browser, headers={"x-user": user}), request)


URIS = [
    ("ui://weather/card.html", True),
    ("ui://weather/card.html?x=1#y", True),
    ("ui:///card", True),
    ("ui://weather/my%20card", True),
    ("UI://weather/card.html", False),
    (" ui://weather/card.html", False),
    ("ui://weather/card.html\n", False),
    ("ui://weather/ card", False),
    ("ui://weather\\..\\secret", False),
    ("ui:/weather", False),
    ("uix://weather", False),
    ("ui:///../../etc/passwd", False),
    ("ui://weather/a/./b", False),
    ("ui://weather/..", False),
    ("ui://../x", False),
    ("ui://weather/..;/x", False),
    ("ui://weather/%2e%2E/secret", False),
    ("ui://weather/.%2e/secret", False),
    ("ui://weather/%252e%252e/secret", False),
    ("ui://weather/..%2fsecret", False),
    ("ui://weather/%5c..%5csecret", False),
    ("ui://weather/%00", False),
    ("ui://weather/\u2024\u2024/secret", False),
    ("file:///etc/passwd", False),
    ("http://169.254.169.254/", False),
    ("", False),
    ("ui://" + "a" * 3_000, False),
]


@in_one_test(("uri", "expected"), URIS)
async def test_only_resources_below_ui_are_asked_for(
    uri: str, expected: bool, rogue: Rogue
) -> None:
    async with browsing(agents={"it": silent}, mcp_apps=rogue.apps()) as browser:
        answer = await ask_server(browser, read_resource(uri, serverId="rogue"))

    assert (answer != NO_RESOURCE) is expected
    assert ("resources/read" in rogue.asked) is expected


def test_an_origin_is_no_beginning_of_a_longer_one() -> None:
    allowed = ("https://a.example", "file:///srv/app/")

    assert is_allowed("https://a.example/x", allowed)
    assert not is_allowed("https://a.example.org/x", allowed)
    assert not is_allowed("https://a.example@evil.org/", allowed)
    assert not is_allowed("file:///srv/app/../secret", allowed)


@in_one_test(
    "visibility",
    [["model"], [], None, "model", "app", ["App"], [{"app": True}], {"app": True}, False],
)
async def test_a_tool_that_does_not_name_apps_is_for_none(visibility: Any, rogue: Rogue) -> None:
    tools = {"tools": [build_tool("work", visibility=visibility)]}
    rogue.answers["tools/list"] = lambda _: tools
    async with browsing(agents={"it": silent}, mcp_apps=rogue.apps()) as browser:
        assert await ask_server(browser, WORK) == NOT_FOR_APPS

    assert "tools/call" not in rogue.asked


async def test_a_tool_for_apps_needs_no_page(rogue: Rogue) -> None:
    tool = {**build_tool("work"), "_meta": {"ui": {"visibility": ["app"]}}}
    rogue.answers["tools/list"] = lambda _: {"tools": [tool]}
    async with browsing(agents={"it": silent}, mcp_apps=rogue.apps()) as browser:
        assert "content" in await ask_server(browser, WORK)


@in_one_test("tools", ["app", "all"])
async def test_tools_that_the_operator_left_out_are_not_called(tools: Any, rogue: Rogue) -> None:
    apps = McpApps(servers=[rogue.server(tools=["other_*"])], tools=tools)
    async with browsing(agents={"it": silent}, mcp_apps=apps) as browser:
        assert await ask_server(browser, WORK) == NOT_FOR_APPS

    assert "tools/call" not in rogue.asked


ODD: list[tuple[Any, str]] = [
    (0, "Unknown server: undefined"),
    ([1], "Unknown server: undefined"),
    ({"serverHash": "\u00e9\U0001f600"}, "Unknown server: \u00e9\U0001f600"),
    ({"serverHash": "x." + "A" * 5_000}, "Unknown server: x." + "A" * 98),
    ({"serverId": {"$ne": ""}, "serverHash": ["x"]}, 'Unknown server: {"$ne":""}'),
    ({"serverId": "RoGue"}, "Unknown server: RoGue"),
    (WORK | {"method": "m" * 100_000}, f"Error: MCP method not allowed for UI proxy: {'m' * 100}"),
    (WORK | {"method": "tools/call "}, "Error: MCP method not allowed for UI proxy: tools/call "),
    (WORK | {"method": 0}, "Error: MCP method not allowed for UI proxy: 0"),
    (WORK | {"params": "work"}, "Error: this tool is not for apps."),
    (WORK | {"params": {"name": ["work"]}}, "Error: this tool is not for apps."),
    (WORK | {"params": {"name": "wo\u0000rk"}}, "Error: this tool is not for apps."),
    (
        WORK | {"params": {"name": "work", "arguments": [1]}},
        FAILED["error"],
    ),
]


@in_one_test(("request_", "error"), ODD)
async def test_what_is_no_request_is_refused(request_: Any, error: str, rogue: Rogue) -> None:
    async with browsing(agents={"it": silent}, mcp_apps=rogue.apps()) as browser:
        assert (await ask_server(browser, request_))["error"] == error

    assert "tools/call" not in rogue.asked


@in_one_test("depth", [200, 10_000, 100_000])
async def test_a_request_that_is_nested_deeply_harms_nobody(depth: int, rogue: Rogue) -> None:
    deep = "[" * depth + "]" * depth
    request = f'{json.dumps(WORK)[:-2]}, "arguments": {{"x": {deep}}}}}}}'
    body = json.dumps(run_input(forwardedProps={"__proxiedMCPRequest": "DEEP"}))
    body = body.replace('"DEEP"', request)
    async with browsing(agents={"it": silent}, mcp_apps=rogue.apps()) as browser:
        answer = await browser.ask("POST", "/agent/it/run", body.encode())
        assert answer.status == (200 if depth < 250 else 400)
        assert "content" in await ask_server(browser, WORK)


async def test_a_flood_of_one_user_slows_nobody_else(weather: Weather) -> None:
    apps = weather.apps(max_requests=5)
    async with browsing(agents={"it": silent}, mcp_apps=apps, authenticate=sign_in) as browser:
        flood = [ask_as(browser, "mallory", call_tool("refresh")) for _ in range(100)]
        answers = await asyncio.gather(*flood)
        others = [await ask_as(browser, name, call_tool("refresh")) for name in ("ann", "bob")]

    assert answers.count(TOO_MANY) >= 80
    assert all("content" in answer for answer in others)
    assert len(weather.calls) == 102 - answers.count(TOO_MANY)


async def test_requests_that_wait_for_a_server_that_hangs_are_bounded(
    rogue: Rogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy, "_AT_ONCE", 2)
    monkeypatch.setattr(proxy, "_MOST_PENDING", 3)
    rogue.hanging.add("tools/list")
    apps = rogue.apps(timeout=0.5, max_requests=1000)
    async with browsing(agents={"it": silent}, mcp_apps=apps) as browser:
        answers = await asyncio.gather(*(ask_server(browser, WORK) for _ in range(30)))

    assert answers.count(FAILED) == 5
    assert answers.count(TOO_MANY) == 25


def test_whoever_asks_all_the_time_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy, "_MOST_USERS", 2)
    clock = iter(range(1000))
    monkeypatch.setattr(proxy, "monotonic", lambda: next(clock) / 1000)
    limits = proxy.RequestQuota(1.0)
    limits.enter("mallory")
    limits.enter("ann")

    with pytest.raises(Exception, match="Too many people"):
        limits.enter("bob")


async def test_a_server_that_hangs_delays_one_run_and_no_more(rogue: Rogue) -> None:
    rogue.hanging.add("tools/list")
    async with browsing(agents={"it": silent}, mcp_apps=rogue.apps(timeout=0.2)) as browser:
        assert (await browser.run(agent="it", run="r1")).types()[-1] == "RUN_FINISHED"
        began = asyncio.get_running_loop().time()
        for number in range(20):
            await browser.run(agent="it", run=f"n{number}")

    assert asyncio.get_running_loop().time() - began < 20 * 0.2


async def test_an_event_without_an_end_is_cut_off(rogue: Rogue) -> None:
    rogue.answers["tools/call"] = lambda _: stream_for_ever()
    async with browsing(agents={"it": silent}, mcp_apps=rogue.apps()) as browser:
        refusal = await ask_server(browser, WORK)

    assert "bytes that mcp_apps.max_result_bytes allows" in refusal["error"]


async def test_a_server_does_not_send_us_elsewhere(rogue: Rogue) -> None:
    async with serve_rogue() as other:
        for method in ("tools/call", "resources/read"):
            rogue.answers[method] = lambda _: redirect(other.url)
        apps = McpApps(servers=[rogue.server(headers={"authorization": "Bearer s3cr3t"})])
        async with browsing(agents={"it": silent}, mcp_apps=apps) as browser:
            assert await ask_server(browser, WORK) == FAILED
            page = await ask_server(browser, read_resource(PAGE, serverId="rogue"))

    assert page == FAILED
    assert other.asked == []


@in_one_test("depth", [230, 2_000, 100_000])
async def test_an_answer_that_is_nested_deeply_harms_nobody(depth: int, rogue: Rogue) -> None:
    def answer(params: Mapping[str, Any]) -> Any:
        del params
        return nest(depth, rogue.last_id)

    rogue.answers["tools/call"] = answer
    async with browsing(agents={"it": silent}, mcp_apps=rogue.apps(timeout=5)) as browser:
        answer_ = await ask_server(browser, WORK)
        assert "[nested too deeply]" in json.dumps(answer_)
        del rogue.answers["tools/call"]
        assert "content" in await ask_server(browser, WORK)


async def test_of_very_many_tools_an_agent_gets_as_many_as_models_take(rogue: Rogue) -> None:
    tools = [build_tool(f"tool{number}") for number in range(20_000)]
    rogue.answers["tools/list"] = lambda _: {"tools": tools}
    offered: list[str] = []

    async def agent(run: RunInput) -> AsyncGenerator[Any, None]:
        offered.extend(action.name for action in run.actions)
        for event in say("Hi.", id="m"):
            yield event

    async with browsing(agents={"it": agent}, mcp_apps=rogue.apps()) as browser:
        await browser.run(agent="it")

    assert len(offered) == servers.MAX_TOOLS


async def test_pages_of_tools_without_an_end_are_given_up(
    rogue: Rogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "MAX_PAGES", 10)
    rogue.answers["tools/list"] = lambda _: {
        "tools": [build_tool("work")],
        "nextCursor": str(len(rogue.asked)),
    }
    async with browsing(agents={"it": silent}, mcp_apps=rogue.apps()) as browser:
        assert "content" in await ask_server(browser, WORK)

    assert rogue.asked.count("tools/list") == session.MAX_PAGES


async def test_names_and_schemas_that_no_model_takes_are_not_sent(rogue: Rogue) -> None:
    large = {**build_tool("large"), "inputSchema": {"type": "object", "x": "y" * 100_000}}
    rogue.answers["tools/list"] = lambda _: {"tools": [build_tool("show weather!"), large]}
    offered: list[str] = []

    async def agent(run: RunInput) -> AsyncGenerator[Any, None]:
        offered.extend(action.name for action in run.actions)
        for event in say("Hi.", id="m"):
            yield event

    async with browsing(agents={"it": agent}, mcp_apps=rogue.apps()) as browser:
        await browser.run(agent="it")

    assert offered == ["show_weather_"]


async def test_each_caller_asks_with_headers_of_their_own(rogue: Rogue) -> None:
    def headers(run: RunInput) -> dict[str, str]:
        if run.user == "eve":
            raise ValueError("no token of eve in db.internal:5432")
        return {"authorization": f"Bearer {run.user}"}

    apps = McpApps(servers=[rogue.server(headers=headers)])
    async with browsing(agents={"it": silent}, mcp_apps=apps, authenticate=sign_in) as browser:
        for name in ("ann", "bob"):
            assert "content" in await ask_as(browser, name, WORK)
        before = len(rogue.asked)
        assert await ask_as(browser, "eve", WORK) == FAILED

    assert set(rogue.headers) == {"Bearer ann", "Bearer bob"}
    assert len(rogue.asked) == before


async def test_two_servers_of_one_id_are_not_mixed_up(weather: Weather, rogue: Rogue) -> None:
    (own,) = weather.apps().servers
    apps = McpApps(
        servers=[
            McpAppServer(server=own.server, id="one", agent="it"),
            McpAppServer(server=McpServer(rogue.url), id="one", agent="other"),
        ]
    )
    async with browsing(agents={"it": silent, "other": silent}, mcp_apps=apps) as browser:
        await ask_server(browser, call_tool("refresh") | {"serverId": "one"}, agent="it")
        await ask_server(browser, WORK | {"serverId": "one"}, agent="other")

    assert weather.calls == ["refresh"]
    assert rogue.asked.count("tools/call") == 1


async def test_a_token_does_not_open_the_server_of_another_agent(weather: Weather) -> None:
    (own,) = weather.apps().servers
    bound = McpAppServer(server=own.server, agent="other")
    runtime = CopilotRuntime(
        agents={"it": silent, "other": silent},
        mcp_apps=McpApps(servers=[bound]),
        settings=Settings(threads="memory", secret="of the tests, for an id"),
    )
    (middleware,) = [one for one in runtime.runtime.middleware if hasattr(one, "proxy")]
    run = RunInput(thread_id="t", run_id="r", messages=[])
    token = await middleware.servers.build_token(bound, run)  # type: ignore[attr-defined]
    request = read_resource(CARD, serverId="", serverHash=token)
    async with serving(runtime.app(path=PATH)) as port:
        assert "contents" in await ask_server(Browser(port), request, agent="other")
        refusal = await ask_server(Browser(port), request, agent="it")

    assert refusal == {"error": f"Unknown server: {token}"}


async def test_an_app_may_ask_while_its_thread_is_being_answered(weather: Weather) -> None:
    gate = Gate()
    async with browsing(Parrot(gate=gate), mcp_apps=weather.apps()) as browser:
        run = asyncio.create_task(browser.run(agent="default", thread="t1"))
        await gate.wait_for_event()
        answer = await ask_server(browser, call_tool("refresh"), agent="default", thread="t1")
        gate.release(10)
        ends = (await run).types()[-1]

    assert "content" in answer
    assert ends == "RUN_FINISHED"


async def test_nothing_is_asked_of_servers_while_the_runtime_stops(weather: Weather) -> None:
    runtime = CopilotRuntime(
        agents={"it": silent}, mcp_apps=weather.apps(), settings=Settings(threads="memory")
    )
    async with serving(runtime.app(path=PATH)) as port:
        await Browser(port).ask("GET", "/info")  # which waits until it has started
        runtime.runtime.close_admission()
        properties = {"__proxiedMCPRequest": call_tool("refresh")}
        events = (await Browser(port).run(agent="it", forwardedProps=properties)).events()

    assert [event["type"] for event in events] == ["RUN_STARTED", "RUN_ERROR"]
    assert weather.calls == []


async def test_the_single_endpoint_and_suggestions_are_no_way_around(weather: Weather) -> None:
    async with browsing(agents={"it": silent}, mcp_apps=weather.apps()) as browser:
        properties = {"__proxiedMCPRequest": call_tool("delete_everything")}
        body = run_input(forwardedProps=properties)
        envelope = await browser.envelope("agent/run", body, agentId="it")
        suggestion = await browser.ask("POST", "/agent/it/suggest", body)

    for answer in (envelope, suggestion):
        assert answer.events()[-1]["result"] == NOT_FOR_APPS
    assert weather.calls == []


async def test_a_v1_client_asks_no_server(weather: Weather) -> None:
    async with page_v1(silent, mcp_apps=weather.apps()) as client:
        body = chat(user_v1("Hi"), agentSession={"agentName": "it"})
        body["variables"]["properties"] = {"__proxiedMCPRequest": call_tool("refresh")}
        answer = merge((await client.ask(body)).payloads())["generateCopilotResponse"]

    assert texts_v1(answer) == ["Hello."]
    assert weather.calls == []


async def test_a_thread_of_somebody_else_is_neither_read_nor_changed(weather: Weather) -> None:
    async with browsing(
        agents={"it": silent}, mcp_apps=weather.apps(), authenticate=sign_in
    ) as browser:
        ann, eve = (replace(browser, headers={"x-user": user}) for user in ("ann", "eve"))
        await ann.run(agent="it", thread="of-ann")
        before = (await ann.connect(thread="of-ann", agent="it")).body
        assert "content" in await ask_server(eve, call_tool("refresh"), thread="of-ann")
        after = (await ann.connect(thread="of-ann", agent="it")).body
        threads = (await eve.ask("GET", "/threads?agentId=it")).json()

    assert after == before
    assert threads["threads"] == []


@in_one_test("status", [301, 307])
async def test_a_server_over_sse_does_not_send_us_elsewhere(status: int, rogue: Rogue) -> None:
    async with serve_rogue() as other:
        sse = McpServer(f"{rogue.url}?to={other.url}&status={status}", transport="sse")
        apps = McpApps(servers=[McpAppServer(server=sse, id="rogue")], timeout=5)
        async with browsing(agents={"it": silent}, mcp_apps=apps) as browser:
            assert await ask_server(browser, WORK) == FAILED

    assert other.visits == 0


async def test_a_hook_that_fails_is_no_leak(weather: Weather) -> None:
    def fail(run: RunInput) -> None:
        raise ValueError("password of db.internal is hunter2")

    async with browsing(
        agents={"it": silent}, mcp_apps=weather.apps(), hooks=Hooks(before_request=fail)
    ) as browser:
        properties = {"__proxiedMCPRequest": call_tool("refresh")}
        answer = await browser.run(agent="it", forwardedProps=properties)

    assert answer.types()[-1] == "RUN_ERROR"
    assert b"hunter2" not in answer.body
