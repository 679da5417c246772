"""Servers that a request names have apps, too, by the rules for MCP servers."""

from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import HTTPConnection

from copilot_runtime import CopilotRuntime, McpServer, RunInput, Settings, action
from copilot_runtime.adapters.scripted import call, say
from copilot_runtime.api.messages import ResultMessage
from copilot_runtime.base.errors import ConfigurationFailed, UnknownName
from copilot_runtime.cli.tables import setting_rows
from copilot_runtime.extensions.generative_ui.options import GenerativeUi, McpApps, McpAppServer
from copilot_runtime.extensions.settings import load_settings, read_settings
from tests.extensions.generative_ui.apps import ask_server, read_resource
from tests.extensions.generative_ui.rogue import PAGE, Rogue, serve_rogue
from tests.in_one_test import in_one_test
from tests.wire_agui.http import Browser
from tests.wire_agui.server import browsing

pytestmark = pytest.mark.anyio

KEY = "key-of-the-page"


@pytest.fixture
async def rogue(anyio_backend: str) -> AsyncGenerator[Rogue, None]:
    del anyio_backend
    async with serve_rogue() as rogue:
        yield rogue


async def caller(run: RunInput) -> AsyncGenerator[Any, None]:
    """Call the tool once: an agent that knows nothing of apps."""
    if not any(isinstance(message, ResultMessage) for message in run.messages):
        for event in call("work", {}, id=f"c-{run.run_id}"):
            yield event
    for event in say("Look.", id=f"m-{run.run_id}-{len(run.messages)}"):
        yield event


def sign_in(connection: HTTPConnection) -> str | None:
    return connection.headers.get("x-user")


def named(rogue: Rogue, **fields: Any) -> dict[str, Any]:
    return {"mcpServers": [{"endpoint": rogue.url, **fields}]}


def origin(rogue: Rogue) -> str:
    return f"http://127.0.0.1:{rogue.port}"


async def show(browser: Browser, rogue: Rogue, **fields: Any) -> list[dict[str, Any]]:
    """Return the apps of a run that names the server."""
    answer = await browser.run(agent="it", forwardedProps=named(rogue, **fields))
    return [one["content"] for one in answer.events() if one["type"] == "ACTIVITY_SNAPSHOT"]


def read_page(token: str) -> dict[str, Any]:
    return read_resource(PAGE, serverId="", serverHash=token)


async def test_an_allowed_server_of_the_page_has_apps_that_may_ask_it(rogue: Rogue) -> None:
    async with browsing(
        agents={"it": caller}, mcp_apps=McpApps(), mcp_allowed=[origin(rogue)]
    ) as browser:
        (app,) = await show(browser, rogue)
        page = await ask_server(browser, read_page(app["serverHash"]))

    assert app["resourceUri"] == PAGE
    assert page["contents"][0]["text"] == "<p>"
    assert rogue.asked.count("tools/call") == 1


async def test_without_the_option_its_tools_are_plain_actions(rogue: Rogue) -> None:
    async with browsing(agents={"it": caller}, mcp_allowed=[origin(rogue)]) as browser:
        assert await show(browser, rogue) == []

    assert rogue.asked.count("tools/call") == 1


async def test_a_server_that_is_not_allowed_is_refused_as_for_a_run(rogue: Rogue) -> None:
    async with browsing(
        agents={"it": caller}, mcp_apps=McpApps(), mcp_allowed=["https://other.example"]
    ) as browser:
        properties = {"__proxiedMCPRequest": read_page("x"), **named(rogue)}
        answer = await browser.run(agent="it", forwardedProps=properties)

    assert "is not one that this runtime allows" in answer.events()[-1]["message"]
    assert rogue.asked == []


async def test_the_key_of_the_page_goes_with_what_its_frames_ask(rogue: Rogue) -> None:
    async with browsing(
        agents={"it": caller}, mcp_apps=McpApps(), mcp_allowed=[origin(rogue)]
    ) as browser:
        (app,) = await show(browser, rogue, apiKey=KEY)
        await ask_server(browser, read_page(app["serverHash"]))
        elsewhere = await ask_server(browser, read_page(app["serverHash"]), thread="t2")

    assert {*rogue.headers} == {f"Bearer {KEY}"}
    assert KEY not in str(app)
    assert elsewhere["error"].startswith("Unknown server")


async def test_a_token_is_of_no_use_to_another_user(rogue: Rogue) -> None:
    async with browsing(
        agents={"it": caller},
        mcp_apps=McpApps(),
        mcp_allowed=[origin(rogue)],
        authenticate=sign_in,
    ) as browser:
        ann, eve = (replace(browser, headers={"x-user": user}) for user in ("ann", "eve"))
        (app,) = await show(ann, rogue, apiKey=KEY)
        assert "contents" in await ask_server(ann, read_page(app["serverHash"]))
        refusal = await ask_server(eve, read_page(app["serverHash"]))

    assert refusal["error"].startswith("Unknown server")


async def test_a_token_with_another_address_opens_nothing(rogue: Rogue) -> None:
    async with serve_rogue() as other:
        allowed = [origin(rogue), origin(other)]
        async with browsing(
            agents={"it": caller}, mcp_apps=McpApps(), mcp_allowed=allowed
        ) as browser:
            (app,) = await show(browser, rogue)
            (another,) = await show(browser, other)
            before = len(other.asked)
            mixed = app["serverHash"].split(".")[0] + "." + another["serverHash"].split(".")[1]
            refusal = await ask_server(browser, read_page(mixed))

    assert refusal["error"].startswith("Unknown server")
    assert len(other.asked) == before


async def test_what_is_allowed_no_longer_is_asked_no_longer(rogue: Rogue, tmp_path: Path) -> None:
    settings = Settings(threads=f"sqlite:{tmp_path / 't.db'}")
    options: dict[str, Any] = {"mcp_apps": McpApps(), "settings": settings}
    async with browsing(agents={"it": caller}, mcp_allowed=[origin(rogue)], **options) as browser:
        (app,) = await show(browser, rogue)
    async with browsing(agents={"it": caller}, mcp_allowed=[origin(rogue)], **options) as browser:
        assert "contents" in await ask_server(browser, read_page(app["serverHash"]))
    async with browsing(
        agents={"it": caller}, mcp_allowed=["https://other.example"], **options
    ) as browser:
        refusal = await ask_server(browser, read_page(app["serverHash"]))

    assert refusal["error"].startswith("Unknown server")


async def test_a_page_takes_no_action_of_the_operator_away(rogue: Rogue) -> None:
    done: list[str] = []

    @action
    def work() -> str:
        """Work."""
        done.append("ours")
        return "ours"

    async with browsing(
        agents={"it": caller}, actions=[work], mcp_apps=McpApps(), mcp_allowed=[origin(rogue)]
    ) as browser:
        assert await show(browser, rogue) == []

    assert done == ["ours"]
    assert "tools/call" not in rogue.asked


async def test_a_server_may_be_among_both(rogue: Rogue) -> None:
    async with browsing(
        agents={"it": caller}, mcp_servers=[McpServer(rogue.url)], mcp_apps=rogue.apps()
    ) as browser:
        events = (await browser.run(agent="it")).events()

    apps = [one["content"] for one in events if one["type"] == "ACTIVITY_SNAPSHOT"]
    assert [app["serverId"] for app in apps] == ["rogue"]
    assert rogue.asked.count("tools/call") == 1


async def test_tokens_last_as_long_as_the_threads(rogue: Rogue, tmp_path: Path) -> None:
    apps = McpApps(servers=[McpAppServer(server=McpServer(rogue.url))])
    settings = Settings(threads=f"sqlite:{tmp_path / 't.db'}")
    tokens: list[str] = []
    for _ in range(2):
        async with browsing(agents={"it": caller}, mcp_apps=apps, settings=settings) as browser:
            events = (await browser.run(agent="it")).events()
            tokens += [it["content"]["serverHash"] for it in events if "activityType" in it]
            assert "contents" in await ask_server(browser, read_page(tokens[0]))

    assert tokens[0] == tokens[1]


FILE = """
threads: memory
mcp_apps:
  servers:
    - url: https://mcp.example/mcp?key=s3cr3t
      id: weather
      agent: default
      transport: sse
      headers: {authorization: "Bearer ${APP_KEY}"}
    - https://maps.example/mcp
  tools: all
  uris: [ui://, file:///srv/app/]
  timeout: 5
  max_request_bytes: 10
  max_result_bytes: 20
  max_requests: 2.5
"""


def build(settings: Settings, **options: Any) -> McpApps | None:
    return CopilotRuntime(settings=settings, **options).get(GenerativeUi).mcp_apps


def read(variables: dict[str, str]) -> McpApps | None:
    names = {f"COPILOT_MCP_APPS_{name}": text for name, text in variables.items()}
    return build(load_settings(None, {"COPILOT_THREADS": "memory", **names}))


def test_every_option_may_stand_in_the_file(tmp_path: Path) -> None:
    (tmp_path / "copilot.yml").write_text(FILE)
    settings = load_settings(tmp_path / "copilot.yml", {"APP_KEY": "s3cr3t"})
    weather = McpServer(
        "https://mcp.example/mcp?key=s3cr3t",
        transport="sse",
        headers={"authorization": "Bearer s3cr3t"},
    )

    assert build(settings) == McpApps(
        servers=[
            McpAppServer(server=weather, id="weather", agent="default"),
            McpAppServer(server=McpServer("https://maps.example/mcp")),
        ],
        tools="all",
        uris=("ui://", "file:///srv/app/"),
        timeout=5,
        max_request_bytes=10,
        max_result_bytes=20,
        max_requests=2.5,
    )


@in_one_test(
    ("text", "ids"),
    [
        ("https://a.example/mcp, https://b.example/mcp", ["", ""]),
        ('[{"url": "https://a.example/mcp", "id": "a"}]', ["a"]),
    ],
)
def test_servers_in_a_variable_are_addresses_or_json(text: str, ids: list[str]) -> None:
    options = read({"SERVERS": text})

    assert options is not None
    assert [server.id for server in options.servers] == ids


def test_pages_may_be_shown_of_servers_that_pages_name_alone() -> None:
    options = read({"ENABLED": "true"})

    assert options is not None
    assert not options.servers


@in_one_test("variables", [{}, {"ENABLED": "false", "SERVERS": "https://a.example"}])
def test_they_may_be_off(variables: dict[str, str]) -> None:
    assert read(variables) is None


def test_what_a_program_gives_counts_more() -> None:
    settings = load_settings(
        None, {"COPILOT_THREADS": "memory", "COPILOT_MCP_APPS_SERVERS": "https://a.example/mcp"}
    )
    options = build(settings, mcp_apps=[McpServer("https://b.example/mcp")])

    assert options is not None
    assert [server.server.url for server in options.servers] == ["https://b.example/mcp"]


WRONG = [
    ({"SERVERS": "ftp://a.example"}, "is not an address"),
    ({"SERVERS": "[{"}, "it starts like JSON, but is not valid JSON"),
    ({"SERVERS": '{"url": "https://a.example"}'}, "it is not a list"),
    ({"SERVERS": "[1]"}, "a server is an address, or a mapping with a url"),
    ({"SERVERS": '[{"id": "a"}]'}, "a server has a url"),
    ({"SERVERS": '[{"url": "https://a.example", "serverId": "a"}]'}, "has no key 'serverId'"),
    ({"SERVERS": '[{"url": "https://a.example", "transport": "stdio"}]'}, "'http' or 'sse'"),
    ({"SERVERS": "https://u:p@a.example"}, "has a user or password in it"),
    ({"SERVERS": "https://a.example, https://a.example"}, "is there twice"),
    ({"TIMEOUT": "0"}, "greater than 0"),
    ({"TOOLS": "none"}, "'app' or 'all'"),
    ({"TIMEOUT": "5"}, "name no servers"),
]


@in_one_test(("variables", "problem"), WRONG)
def test_what_cannot_be_used_is_refused_at_the_start(
    variables: dict[str, str], problem: str
) -> None:
    with pytest.raises(ConfigurationFailed, match=problem):
        read(variables)


def test_a_server_of_an_agent_that_is_not_there_is_refused() -> None:
    with pytest.raises(UnknownName, match="'travel'"):
        read({"SERVERS": '[{"url": "https://a.example", "agent": "travel"}]'})


def test_no_message_and_no_table_repeats_a_key(tmp_path: Path) -> None:
    (tmp_path / "copilot.yml").write_text(FILE)
    rows = setting_rows(*read_settings(tmp_path / "copilot.yml", {"APP_KEY": "s3cr3t"}))
    with pytest.raises(ConfigurationFailed) as caught:
        read(
            {"SERVERS": '[{"url": "https://a.example", "headers": {"authorization": ["s3cr3t"]}}]'}
        )

    assert "s3cr3t" not in str(rows)
    assert "s3cr3t" not in f"{caught.value.message} {caught.value.hint}"


def test_a_catalog_of_a2ui_may_stand_in_the_file(tmp_path: Path) -> None:
    catalog = {"catalogId": "https://acme.example/c", "components": {"Text": {"$ref": "#/$defs/T"}}}
    (tmp_path / "copilot.yml").write_text(
        "threads: memory\na2ui:\n  catalog:\n    catalogId: https://acme.example/c\n"
        "    components: {Text: {$ref: '#/$defs/T'}}\n"
    )
    options = CopilotRuntime(settings=load_settings(tmp_path / "copilot.yml", {})).get(GenerativeUi)

    assert options.a2ui is not None
    assert options.a2ui.schema == catalog


@in_one_test(
    "options",
    [
        {"uris": "ui://"},
        {"uris": [1]},
        {"tools": "any"},
        {"timeout": 0},
        {"max_requests": float("nan")},
        {"max_result_bytes": "1"},
    ],
)
def test_options_that_would_allow_what_is_not_meant_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationFailed):
        CopilotRuntime(mcp_apps=McpApps(**options), settings=Settings(threads="memory"))
