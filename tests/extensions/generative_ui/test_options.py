"""Options are taken in our form and in that of the Node runtime, and mistakes are explained."""

import sys
from typing import Any, cast

import pytest

from copilot_runtime import CopilotRuntime, EmptyAdapter, Settings
from copilot_runtime.agents.agui import AguiAgent
from copilot_runtime.base.errors import ConfigurationFailed, MissingPackage
from copilot_runtime.extensions.generative_ui.options import (
    A2ui,
    A2uiRecovery,
    GenerativeUi,
    McpApps,
    McpAppServer,
    OpenGenerativeUi,
)
from copilot_runtime.extensions.mcp.client.server import McpServer
from tests.in_one_test import in_one_test

URL = "https://mcp.example/mcp"
NODE_SERVER = {"type": "http", "url": URL, "serverId": "weather"}


def build(**options: Any) -> GenerativeUi:
    agents = {name: AguiAgent("http://127.0.0.1:9/") for name in ("weather", "travel")}
    return CopilotRuntime(agents=agents, threads="memory", **options).get(GenerativeUi)


def test_nothing_is_on_that_was_not_set() -> None:
    assert build() == GenerativeUi()


def test_the_mapping_of_node_becomes_options_of_a2ui() -> None:
    a2ui = {
        "agents": ["weather"],
        "injectA2UITool": "draw",
        "a2uiToolNames": ["render_a2ui", "paint"],
        "schema": {"catalogId": "c", "components": {}},
        "defaultCatalogId": "d",
        "recovery": {
            "showProgressTokens": False,
            "maxAttempts": 2,
            "debugExposure": "verbose",
        },
    }

    assert build(a2ui=a2ui).a2ui == A2ui(
        agents=["weather"],
        inject_tool="draw",
        tool_names=["render_a2ui", "paint"],
        schema={"catalogId": "c", "components": {}},
        default_catalog_id="d",
        recovery=A2uiRecovery(show_progress_tokens=False, max_attempts=2, debug_exposure="verbose"),
    )


def test_an_empty_mapping_is_a2ui_as_it_is_and_none_in_it_is_absent() -> None:
    assert build(a2ui={"schema": None}).a2ui == A2ui()


@in_one_test("value", [True, False])
def test_true_and_false_switch_a2ui_and_open_generative_ui(value: bool) -> None:
    options = build(a2ui=value, open_generative_ui=value)

    assert options == GenerativeUi(
        a2ui=A2ui(enabled=value), open_generative_ui=OpenGenerativeUi(enabled=value)
    )


def test_the_mapping_of_node_becomes_servers_of_mcp_apps() -> None:
    server = {**NODE_SERVER, "type": "sse", "agentId": "travel", "headers": {"x-key": "1"}}

    assert build(mcp_apps={"servers": [server]}).mcp_apps == McpApps(
        servers=[
            McpAppServer(
                server=McpServer(URL, transport="sse", headers={"x-key": "1"}),
                id="weather",
                agent="travel",
            )
        ]
    )


def test_a_list_of_mcp_servers_is_for_all_agents() -> None:
    server = McpServer(URL)

    assert build(mcp_apps=[server]).mcp_apps == McpApps(servers=[McpAppServer(server=server)])


def test_two_agents_may_each_have_a_server_at_one_address() -> None:
    servers = [{**NODE_SERVER, "agentId": name} for name in ("weather", "travel")]

    options = build(mcp_apps={"servers": servers}).mcp_apps

    assert options is not None
    assert [server.agent for server in options.servers] == ["weather", "travel"]


@in_one_test(
    ("options", "problem"),
    [
        ({"a2ui": {"injectA2uiTool": True}}, "no key 'injectA2uiTool'. Did you mean 'injectA2UIT"),
        ({"a2ui": {"inject_tool": True}}, "Did you mean 'injectA2UITool'?"),
        ({"a2ui": {"colour": 1}}, "Known: enabled, agents, injectA2UITool, a2uiToolNames, schema,"),
        ({"a2ui": {"agents": "weather"}}, "'agents' of a2ui is not a list of names."),
        ({"a2ui": A2ui(agents="weather")}, "'agents' of a2ui is not a list of names."),
        ({"a2ui": A2ui(tool_names="paint")}, "'tool_names' of a2ui is not a list of names."),
        (
            {"open_generative_ui": OpenGenerativeUi(agents="weather")},
            "'agents' of open_generative_ui is not a list of names.",
        ),
        ({"a2ui": {"recovery": {"maxAttempt": 1}}}, "a2ui.recovery has no key 'maxAttempt'. Did"),
        ({"a2ui": {"recovery": {"maxAttempts": 0}}}, "is not a number from 1 on."),
        ({"a2ui": {"recovery": {"debugExposure": "all"}}}, "It is one of hidden, collapsed, verb"),
        ({"a2ui": "yes"}, "Write a2ui=True, a2ui=A2ui(...), or the mapping of the Node runtime."),
        ({"open_generative_ui": {"agent": []}}, "Did you mean 'agents'?"),
        ({"mcp_apps": {"server": []}}, "mcp_apps has no key 'server'. Did you mean 'servers'?"),
        ({"mcp_apps": URL}, "mcp_apps is a str, and not a list."),
        ({"mcp_apps": [NODE_SERVER]}, "Write mcp_apps=[McpServer('https://mcp.example/mcp')"),
        (
            {"mcp_apps": McpApps(servers=cast(Any, [McpServer(URL)]))},
            "Write servers=[McpAppServer(server=McpServer('https://...'))].",
        ),
        (
            {"mcp_apps": McpApps(servers=cast(Any, [NODE_SERVER]))},
            "Write servers=[McpAppServer(server=McpServer('https://mcp.example/mcp'))].",
        ),
        ({"mcp_apps": {"servers": ["x"]}}, "mcp_apps.servers[0] is a str, and not an object."),
        ({"mcp_apps": {"servers": [{"type": "http"}]}}, "mcp_apps.servers[0] has no 'url'."),
        ({"mcp_apps": {"servers": [{**NODE_SERVER, "type": "stdio"}]}}, "It is 'http' or 'sse'"),
        ({"mcp_apps": {"servers": [{"command": "npx"}]}}, "It is for mcp_servers="),
        ({"mcp_apps": {"servers": [{**NODE_SERVER, "serverID": ""}]}}, "Did you mean 'serverId'?"),
        ({"mcp_apps": {"servers": [{**NODE_SERVER, "includeTools": []}]}}, "Node refuses it, too."),
        (
            {"mcp_apps": {"servers": [{**NODE_SERVER, "agentId": "wether"}]}},
            "Did you mean 'weather'?",
        ),
        ({"mcp_apps": {"servers": [{**NODE_SERVER, "headers": {"a": 1}}]}}, "an object of texts"),
        ({"mcp_apps": {"servers": [NODE_SERVER, NODE_SERVER]}}, "have the id 'weather'."),
        ({"mcp_apps": [McpServer(URL), McpServer(URL)]}, "is there twice, at the same address."),
        ({"mcp_apps": [McpServer(command=["uvx", "clock"])]}, "'clock' is a command"),
        ({"mcp_apps": {"servers": [{"url": "ftp://x"}]}}, "is not an address"),
    ],
)
def test_what_cannot_be_used_is_refused_with_a_way_out(
    options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ConfigurationFailed) as refusal:
        build(**options)

    assert problem in f"{refusal.value} {refusal.value.hint}"


def test_an_address_with_a_password_is_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigurationFailed, match="has a user or password in it") as refusal:
        build(mcp_apps=[McpServer("https://anna:s3cret@mcp.example/mcp")])

    assert "s3cret" not in str(refusal.value)


@in_one_test("option", ["a2ui", "open_generative_ui"])
def test_a_scope_without_its_agent_is_logged(option: str, caplog: pytest.LogCaptureFixture) -> None:
    build(**{option: {"agents": ["weather", "wether"]}})

    assert f"{option} is for the agent 'wether', which is not there." in caplog.text


@in_one_test(
    "options",
    [
        {"mcp_apps": [McpServer(URL)]},
        {"settings": Settings.model_validate({"mcp_apps": {"servers": [URL]}})},
    ],
)
def test_servers_without_the_package_are_refused_at_the_start(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "copilot_runtime.extensions.mcp.client.pool", None)

    with pytest.raises(MissingPackage, match=r"An MCP server needs .*copilot-runtime\[mcp\]"):
        CopilotRuntime(EmptyAdapter(), threads="memory", **options)


def test_an_agent_that_may_come_later_is_not_refused() -> None:
    runtime = CopilotRuntime(agents=lambda caller: {}, threads="memory", a2ui={"agents": ["later"]})

    assert runtime.get(GenerativeUi).a2ui == A2ui(agents=["later"])
