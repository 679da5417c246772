"""The actions and agents of a runtime, as tools for MCP clients."""

import asyncio
import sys
from typing import Any

import httpx2
import pytest
from mcp import MCPError

from copilot_runtime import RunInput
from copilot_runtime.api.hooks import Hooks
from copilot_runtime.base.errors import AuthenticationFailed, MissingPackage
from tests.extensions.mcp.server.clients import failure_of, over_http, text_of
from tests.in_one_test import in_one_test
from tests.transports.served import Slow, at_work, by_token, runtime_of
from tests.wire_agui.http import Browser
from tests.wire_agui.server import PATH, serving

pytestmark = pytest.mark.anyio

both = pytest.mark.parametrize("modern", [False, True], ids=["session", "modern"])


async def test_actions_and_agents_are_tools_in_the_order_of_their_names() -> None:
    async with at_work() as browser, over_http(browser) as session:
        tools = (await session.list_tools()).tools
    assert [tool.name for tool in tools] == [
        "add",
        "ask_adder",
        "ask_asker",
        "ask_broken",
        "ask_choosing",
        "ask_echo",
        "ask_painter",
        "explode",
        "who",
    ]


async def test_a_tool_has_the_schema_of_its_action() -> None:
    async with at_work() as browser, over_http(browser) as session:
        tool = (await session.list_tools()).tools[0]
    assert tool.description == "Add two numbers."
    assert (tool.input_schema["required"], {*tool.input_schema["properties"]}) == (
        ["a"],
        {"a", "b"},
    )


@both
async def test_an_action_is_run(modern: bool) -> None:
    async with at_work() as browser, over_http(browser, modern=modern) as session:
        assert text_of(await session.call_tool("add", {"a": 2, "b": 3})) == "5"


@in_one_test(
    ("name", "arguments", "reason"),
    [
        ("explode", {}, "kaboom"),
        ("add", {"a": "many"}, "a: "),
        ("nonesuch", {}, "There is no action 'nonesuch'."),
        ("ask_nobody", {"message": "Hi"}, "nobody"),
        ("ask_echo", {}, "The argument `message` must be a text."),
        ("ask_broken", {"message": "Hi"}, "Well\n\nThe model is down."),
    ],
)
async def test_what_fails_is_a_result_that_says_why(
    name: str, arguments: dict[str, Any], reason: str
) -> None:
    async with at_work() as browser, over_http(browser) as session:
        assert reason in failure_of(await session.call_tool(name, arguments))


@both
async def test_an_agent_answers_with_all_that_it_says(modern: bool) -> None:
    async with at_work() as browser, over_http(browser, modern=modern) as session:
        assert text_of(await session.call_tool("ask_echo", {"message": "Hi"})) == "You said Hi"


@both
async def test_an_agents_text_is_reported_as_progress(modern: bool) -> None:
    slow, heard = Slow(), asyncio.Queue[tuple[float, str | None]]()

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        del total
        await heard.put((progress, message))

    async with (
        at_work(agents={"slow": slow}) as browser,
        over_http(browser, modern=modern) as session,
    ):
        call = session.call_tool("ask_slow", {"message": "Hi"}, progress_callback=hear)
        task = asyncio.create_task(call)
        first = await heard.get()
        slow.gate.release(2)
        result = text_of(await task)
    assert (first, result) == ((5, "tick "), "tick tock")


@both
async def test_cancelling_a_call_stops_the_agent(modern: bool) -> None:
    slow = Slow()
    async with (
        at_work(agents={"slow": slow}) as browser,
        over_http(browser, modern=modern) as session,
    ):
        task = asyncio.create_task(session.call_tool("ask_slow", {"message": "Hi"}))
        await slow.gate.wait_for_event()
        task.cancel()
        await slow.left.wait()


async def test_an_agent_uses_the_actions_of_the_runtime() -> None:
    async with at_work() as browser, over_http(browser) as session:
        assert text_of(await session.call_tool("ask_adder", {"message": "2 and 1?"})) == "It is 3."


async def test_an_agent_that_waits_for_a_person_says_so() -> None:
    async with at_work() as browser, over_http(browser) as session:
        result = text_of(await session.call_tool("ask_asker", {"message": "Hi"}))
    assert result == "The agent waits for a person, who cannot answer here: Your name?"


async def test_an_action_knows_who_asks() -> None:
    ann = {"authorization": "Bearer ann"}
    async with (
        at_work(authenticate=by_token) as browser,
        over_http(browser, ann) as session,
    ):
        assert '"user":"ann"' in text_of(await session.call_tool("who"))


async def test_unauthenticated_clients_get_nothing() -> None:
    async with at_work(authenticate=by_token) as browser:
        answer = await browser.ask("POST", "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "ping"})
    assert answer.status == 401


GREETING: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
LISTING = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
ACCEPT = {"accept": "application/json, text/event-stream"}


async def test_the_server_is_stateless() -> None:
    async with at_work() as browser:
        url = f"http://127.0.0.1:{browser.where}{PATH}/mcp"
        async with httpx2.AsyncClient(headers=ACCEPT) as http:
            begun = [await http.post(url, json=GREETING) for _ in range(2)]
            ids = [answer.headers["mcp-session-id"] for answer in begun]
            session = {"mcp-session-id": ids[0]}
            ended = await http.delete(url, headers=session)
            listed = await http.post(url, json=LISTING, headers=session)
            stream = await http.get(url, headers=session)
    assert len({*ids}) == 2
    assert [it.status_code for it in (*begun, ended, listed, stream)] == [200, 200, 200, 200, 405]
    assert stream.headers["allow"] == "POST, DELETE"


CALLING: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 3,
    "method": "tools/call",
    "params": {"name": "ask_slow", "arguments": {"message": "Hi"}},
}
CANCELLING = {"jsonrpc": "2.0", "method": "notifications/cancelled"}


@pytest.mark.parametrize(
    ("user", "session", "request_id"),
    [("bob", "s", 3), ("ann", "t", 3), ("ann", "s", "3"), ("ann", "s", None)],
)
async def test_users_cannot_cancel_calls_of_others(
    user: str, session: str, request_id: int | str | None
) -> None:
    slow = Slow()
    async with at_work(agents={"slow": slow}, authenticate=by_token) as browser:
        url = f"http://127.0.0.1:{browser.where}{PATH}/mcp"
        async with httpx2.AsyncClient(headers=ACCEPT, timeout=30) as http:
            ann = {"authorization": "Bearer ann", "mcp-session-id": "s"}
            call = asyncio.create_task(http.post(url, json=CALLING, headers=ann))
            await slow.gate.wait_for_event()
            other = {"authorization": f"Bearer {user}", "mcp-session-id": session}
            body = {**CANCELLING, "params": {"requestId": request_id}}
            cancelled = await http.post(url, json=body, headers=other)
            await http.delete(url, headers={**other, "mcp-session-id": "t"})
            slow.gate.release(2)
            answer = await call
    assert cancelled.status_code == 202
    assert "tick tock" in answer.text


async def test_ending_a_session_stops_its_calls() -> None:
    slow = Slow()
    async with at_work(agents={"slow": slow}) as browser:
        url = f"http://127.0.0.1:{browser.where}{PATH}/mcp"
        async with httpx2.AsyncClient(headers={**ACCEPT, "mcp-session-id": "s"}) as http:
            call = asyncio.create_task(http.post(url, json=CALLING))
            await slow.gate.wait_for_event()
            await http.delete(url)
            await slow.left.wait()
            answer = await call
    assert "Request cancelled" in answer.text


async def test_a_disconnect_stops_the_agent() -> None:
    slow = Slow()
    async with at_work(agents={"slow": slow}) as browser:
        url = f"http://127.0.0.1:{browser.where}{PATH}/mcp"
        async with httpx2.AsyncClient(headers=ACCEPT) as http:
            call = asyncio.create_task(http.post(url, json=CALLING))
            await slow.gate.wait_for_event()
            call.cancel()
            await slow.left.wait()


async def test_a_call_may_be_larger_than_a_greeting() -> None:
    async with at_work() as browser, over_http(browser) as session:
        question = {"message": "x" * 20_000}
        assert text_of(await session.call_tool("ask_echo", question)).endswith("x" * 20_000)


@in_one_test("body", [b"[" + b"1," * 10_000 + b"1]", b"{" * 20_000], ids=["list", "no"])
async def test_what_is_large_and_no_request_is_refused(body: bytes) -> None:
    async with at_work() as browser:
        answer = await browser.ask("POST", "/mcp", body, ACCEPT)
    assert answer.status == 400


async def test_a_page_may_not_ask_unless_its_origin_is_named() -> None:
    page = {"origin": "https://evil.example", "accept": "application/json, text/event-stream"}
    body = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    async with at_work() as browser:
        by_default = await browser.ask("POST", "/mcp", body, page)
    async with at_work(settings={"cors_origins": "https://evil.example"}) as browser:
        named = await browser.ask("POST", "/mcp", body, page)
    assert by_default.status == 403
    assert named.headers["access-control-allow-origin"] == "https://evil.example"


async def test_there_is_no_server_unless_the_settings_enable_it() -> None:
    async with at_work(settings={"serve_mcp": False}) as browser:
        answer = await browser.ask("POST", "/mcp", {})
    assert answer.status == 404


@in_one_test(("body", "status"), [(b"{", 400), (b"[]", 400), (b"1" * 2000, 413)])
async def test_what_is_no_request_is_refused(body: bytes, status: int) -> None:
    accept = {"accept": "application/json, text/event-stream"}
    async with at_work(settings={"max_body_bytes": 1000}) as browser:
        answer = await browser.ask("POST", "/mcp", body, accept)
    assert answer.status == status


async def test_a_body_of_too_many_values_is_refused_before_it_is_decoded() -> None:
    body = {**GREETING, "params": {"a": [0] * 101}}
    async with at_work(settings={"max_values": 100}) as browser:
        answer = await browser.ask("POST", "/mcp", body, ACCEPT)
    assert answer.status == 413
    assert answer.json()["message"] == "The request body has more than 100 values."


async def test_an_unknown_method_is_an_error_of_the_protocol() -> None:
    async with at_work() as browser, over_http(browser) as session:
        with pytest.raises(MCPError):
            await session.list_prompts()


async def test_many_ask_at_once() -> None:
    async with at_work() as browser, over_http(browser) as session:
        results = await asyncio.gather(
            *(session.call_tool("add", {"a": number, "b": 0}) for number in range(20))
        )
    assert [text_of(result) for result in results] == [str(number) for number in range(20)]


async def test_the_hook_before_a_request_may_refuse_a_tool() -> None:
    def never(run: RunInput) -> None:
        del run
        raise AuthenticationFailed("You may not.")

    async with at_work(hooks=Hooks(before_request=never)) as browser, over_http(browser) as session:
        assert failure_of(await session.call_tool("add", {"a": 1})) == "You may not."


async def test_a_name_that_the_protocol_has_no_place_for_is_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    agents = {"größe": Slow()}
    async with at_work(actions=[], agents=agents) as browser, over_http(browser) as session:
        assert (await session.list_tools()).tools == []
    assert "'ask_größe' is no name for a tool of MCP; it is left out." in caplog.messages


def test_a_missing_package_is_an_error_with_the_command_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "mcp.server", None)
    with pytest.raises(MissingPackage, match=r"copilot-runtime\[mcp\]"):
        runtime_of()


async def test_an_application_may_start_again() -> None:
    app = runtime_of().app(path=PATH)
    for _ in range(2):
        async with serving(app) as port, over_http(Browser(port)) as session:
            assert text_of(await session.call_tool("add", {"a": 1})) == "2"
