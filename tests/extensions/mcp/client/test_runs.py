"""Tools of MCP servers in runs, as clients of both protocols meet them."""

import json
import logging
from collections.abc import Sequence
from typing import Any

import pytest

from copilot_runtime import CopilotRuntime, McpServer, ScriptedAdapter, Settings
from copilot_runtime.adapters.scripted import call, say
from copilot_runtime.base.errors import ConfigurationFailed, MissingPackage
from tests.extensions.mcp.client.servers import Served, serve
from tests.in_one_test import in_one_test
from tests.wire.client import PLAIN, chat, client_of
from tests.wire_agui.http import text_of
from tests.wire_agui.server import browsing

pytestmark = pytest.mark.anyio


def calling(name: str, **values: Any) -> ScriptedAdapter:
    """Return a model that calls one action and then says that it is done."""
    return ScriptedAdapter(call(name, values), say("Done.", id="message-2"))


def runtime_with(adapter: ScriptedAdapter, *servers: McpServer, **options: Any) -> CopilotRuntime:
    settings = Settings(threads="memory")
    return CopilotRuntime(adapter, mcp_servers=servers, settings=settings, **options)


async def asked_by_v1(runtime: CopilotRuntime, properties: Any = None) -> Any:
    """Return the answer to a client of CopilotKit v1."""
    body = chat(query=PLAIN)
    body["variables"]["properties"] = properties or {}
    async with client_of(runtime) as client:
        return (await client.ask(body)).json()


def results_in(answer: Any) -> Sequence[str]:
    messages = answer["data"]["generateCopilotResponse"]["messages"]
    return [message["result"] for message in messages if "result" in message]


async def test_an_agui_client_sees_the_call_the_result_and_the_answer(served: Served) -> None:
    adapter = calling("mcpEcho", text="hey")

    async with browsing(adapter, mcp_servers=[McpServer(served.url)]) as browser:
        events = (await browser.run()).events()

    (result,) = [event["content"] for event in events if event["type"] == "TOOL_CALL_RESULT"]
    assert (result, text_of(events)) == ("echo hey", "Done.")
    assert [action.name for action in adapter.requests[0].actions][:2] == ["mcpEcho", "find"]


async def test_a_v1_client_sees_the_call_and_the_result(served: Served) -> None:
    runtime = runtime_with(calling("mcpEcho", text="hey"), McpServer(served.url))

    assert results_in(await asked_by_v1(runtime)) == ["echo hey"]


async def test_a_failed_tool_is_a_failed_action(served: Served) -> None:
    answer = await asked_by_v1(runtime_with(calling("boom"), McpServer(served.url)))

    (result,) = results_in(answer)
    error = json.loads(result)["error"]
    assert (error["code"], "The disk is full." in error["message"]) == ("HANDLER_ERROR", True)


async def test_an_answer_of_ten_megabytes_is_a_failed_action(served: Served) -> None:
    (result,) = results_in(await asked_by_v1(runtime_with(calling("large"), McpServer(served.url))))

    assert len(result) < 1000
    assert "HANDLER_ERROR" in result


async def test_stop_in_the_browser_cancels_the_tool_on_the_server(served: Served) -> None:
    served_by = browsing(calling("forever"), mcp_servers=[McpServer(served.url)])
    async with served_by as browser, browser.running() as exchange:
        await served.began.wait()
        await browser.stop()
        await served.cancelled.wait()
        events = await exchange.rest()

    assert events[-1]["type"] in ("RUN_FINISHED", "RUN_ERROR")


async def test_a_server_that_is_down_costs_its_actions_and_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serve() as served:
        url = served.url
    adapter = ScriptedAdapter(say("Hello."))

    async with browsing(adapter, mcp_servers=[McpServer(url)]) as browser:
        assert text_of((await browser.run()).events()) == "Hello."

    assert "mcpEcho" not in [action.name for action in adapter.requests[0].actions]
    assert "is left out of this run" in caplog.text


@in_one_test("name", ["mcpServers", "mcpEndpoints"])
async def test_a_page_may_name_a_server_with_a_key_of_its_own(served: Served, name: str) -> None:
    adapter = calling("mcpEcho", text="hey")
    named = {name: [{"endpoint": served.url, "apiKey": "mine"}]}
    allowed = [McpServer(served.url)]

    async with browsing(adapter, mcp_allowed=allowed) as browser:
        events = (await browser.run(forwardedProps=named)).events()

    assert text_of(events) == "Done."
    assert {it["authorization"] for it in served.headers} == {"Bearer mine"}


async def test_a_v1_page_may_name_one_too(served: Served) -> None:
    runtime = runtime_with(calling("mcpEcho", text="hey"), mcp_allowed=[McpServer(served.url)])
    named = {"mcpServers": [{"endpoint": served.url}]}

    assert results_in(await asked_by_v1(runtime, named)) == ["echo hey"]


async def test_a_page_that_names_another_server_is_refused_before_any_request(
    served: Served,
) -> None:
    named = {"mcpServers": [{"endpoint": served.url, "apiKey": "mine"}]}
    adapter = ScriptedAdapter()

    async with browsing(adapter) as browser:
        (*_, last) = (await browser.run(forwardedProps=named)).events()
    answer = await asked_by_v1(runtime_with(adapter), named)

    words = f"The MCP server '{served.url}' is not one that this runtime allows."
    assert (last["type"], last["message"]) == ("RUN_ERROR", words)
    assert words in json.dumps(answer)
    assert (served.headers, adapter.requests) == ([], [])


async def test_who_signed_in_is_passed_on_if_the_operator_says_so(served: Served) -> None:
    adapter = ScriptedAdapter(say("Hi."), say("Hi.", id="message-2"))
    plain = McpServer(served.url)
    signed = McpServer(
        served.url,
        prefix="my_",
        headers=lambda run: {"authorization": run.headers["authorization"]},
    )

    async with browsing(adapter, mcp_servers=[plain, signed]) as browser:
        await browser.signed_in("ann").run(run="a")
        await browser.signed_in("bob").run(run="b")

    assert {it.get("authorization") for it in served.headers} == {None, "Bearer ann", "Bearer bob"}


async def test_settings_name_servers_too(served: Served) -> None:
    mcp: Any = {"servers": [served.url], "allowed": ["https://mcp.example"]}
    settings = Settings.model_validate({"threads": "memory", "mcp": mcp})
    runtime = CopilotRuntime(calling("mcpEcho", text="hey"), settings=settings)

    assert results_in(await asked_by_v1(runtime)) == ["echo hey"]


async def test_nothing_of_a_key_is_logged(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "copilot_runtime")
    served.refuse = 401
    server = McpServer(served.url + "?key=hush", headers={"authorization": "Bearer hush"})

    await asked_by_v1(runtime_with(ScriptedAdapter(say("Hi.")), server))

    assert "it answered with status 401" in caplog.text
    assert "hush" not in repr(server).partition("headers")[2]
    assert "hush" not in "".join(
        record.getMessage() for record in caplog.records if record.name.startswith("copilot")
    )


def test_without_the_package_there_is_a_word_about_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        __import__("sys").modules, "copilot_runtime.extensions.mcp.client.pool", None
    )

    with pytest.raises(MissingPackage, match=r"copilot-runtime\[mcp\]"):
        runtime_with(ScriptedAdapter(), McpServer("https://mcp.example/mcp"))


def test_a_wrong_list_of_allowed_servers_is_an_error_at_the_start() -> None:
    with pytest.raises(ConfigurationFailed, match="mcp_allowed is a list"):
        runtime_with(ScriptedAdapter(), mcp_allowed="https://mcp.example")
