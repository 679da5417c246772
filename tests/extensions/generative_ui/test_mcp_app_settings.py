"""MCP Apps in copilot.yml and by variables."""

from pathlib import Path
from typing import Any

import pytest

from copilot_runtime import CopilotRuntime, McpServer, Settings
from copilot_runtime.base.errors import ConfigurationFailed, UnknownName
from copilot_runtime.cli.tables import setting_rows
from copilot_runtime.extensions.generative_ui.options import GenerativeUi, McpApps, McpAppServer
from copilot_runtime.extensions.settings import load_settings, read_settings
from tests.in_one_test import in_one_test

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
    ({"SERVERS": "[{"}, "it begins as JSON does, and is none"),
    ({"SERVERS": '{"url": "https://a.example"}'}, "it is no list"),
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
