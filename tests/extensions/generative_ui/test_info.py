"""A page learns from `/info` which interfaces of models it may draw."""

from typing import Any

from starlette.testclient import TestClient

from copilot_runtime import CopilotRuntime
from copilot_runtime.agents.agui import AguiAgent
from tests.in_one_test import in_one_test

OFF = {"a2uiEnabled": False, "openGenerativeUIEnabled": False}
ON = {"a2uiEnabled": True, "a2ui": {"enabled": True}, "openGenerativeUIEnabled": False}
SERVERS = {"servers": [{"type": "http", "url": "http://127.0.0.1:9/mcp"}]}


@in_one_test("single", [False, True], ids=["rest", "single"])
@in_one_test(
    ("options", "expected"),
    [
        ({}, OFF),
        ({"a2ui": {}}, ON),
        ({"a2ui": {"enabled": False, "injectA2UITool": True}}, OFF),
        ({"a2ui": {"agents": ["other"]}}, {**ON, "a2ui": {"enabled": True, "agents": ["other"]}}),
        ({"open_generative_ui": True}, {**OFF, "openGenerativeUIEnabled": True}),
        ({"open_generative_ui": {"agents": ["other"]}}, {**OFF, "openGenerativeUIEnabled": True}),
        ({"open_generative_ui": False}, OFF),
        ({"mcp_apps": SERVERS}, OFF),
    ],
)
def test_info_says_what_is_on_as_node_does(
    options: dict[str, Any], expected: dict[str, Any], single: bool
) -> None:
    agents = {"other": AguiAgent("http://127.0.0.1:9/")}
    app = CopilotRuntime(agents=agents, threads="memory", **options).app(path="/api")
    with TestClient(app) as client:
        request = {"method": "info"}
        answer = client.post("/api", json=request) if single else client.get("/api/info")

    # nothing is there of MCP Apps: a page always draws these
    info = {k: v for k, v in answer.json().items() if "ui" in k.lower() or "mcp" in k.lower()}
    assert info == expected
