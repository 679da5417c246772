"""An assistant calls a tool of every kind of endpoint, each of which is really there."""

import json
from pathlib import Path
from typing import Any

import pytest

from copilot_runtime import CopilotRuntime, Settings
from copilot_runtime.extensions.assistants.settings import AssistantSettings
from copilot_runtime.extensions.tools.catalog.endpoints import ENDPOINTS
from copilot_runtime.testing import Client, ScriptedAdapter, ToolCall, call, say
from tests.adapters.provider import Provider, whole
from tests.extensions.mcp.client.servers import serve as serve_mcp
from tests.extensions.tools.catalog.grpc.servers import Context
from tests.extensions.tools.catalog.grpc.servers import serve as serve_grpc

pytestmark = pytest.mark.anyio

PETS: dict[str, Any] = {
    "openapi": "3.1.0",
    "paths": {"/pets/{id}": {"get": {"operationId": "getPet", "parameters": []}}},
}
PETS["paths"]["/pets/{id}"]["get"]["parameters"] = [
    {"name": "id", "in": "path", "schema": {"type": "integer"}}
]


async def _sell(request: dict[str, Any], context: Context) -> Any:
    del context
    return {"number": "n1", "items": len(request.get("items", []))}


async def test_an_assistant_calls_a_tool_of_every_kind(tmp_path: Path, server: Provider) -> None:
    server.answer([whole({"degrees": 21})], [whole({"name": "Rex"})], [whole({"data": {"a": 1}})])
    async with serve_mcp() as mcp, serve_grpc({"Order": _sell}, reflects=True) as shop:
        order = {"address": shop.address, "method": "shop.Shop.Order", "reflection": True}
        endpoints: dict[str, dict[str, Any]] = {
            "greet": {"function": "tests.extensions.tools.catalog.functions:greet"},
            "weather": {"http": {"url": f"{server.url}/{{city}}"}},
            "pet": {
                "openapi": {
                    "document": "pets.json",
                    "operations": ["getPet"],
                    "server": server.url,
                }
            },
            "shop": {"graphql": {"url": server.url, "query": "query ($n: Int!) { a(n: $n) }"}},
            "repeat": {"mcp": {"server": mcp.url, "tool": "mcpEcho"}},
            "order": {"grpc": order},
        }
        _write(tmp_path, endpoints)
        calls = [
            ToolCall("greet", {"name": "Ann"}, "Hello, Ann!"),
            ToolCall("weather", {"city": "Rome"}, '{"degrees":21}'),
            ToolCall("pet", {"id": 7}, '{"name":"Rex"}'),
            ToolCall("shop", {"n": 1}, '{"a":1}'),
            ToolCall("repeat", {"text": "hello"}, "echo hello"),
            ToolCall(
                "order",
                {"items": [{"name": "tea"}]},
                '{"number":"n1","items":1,"paid":false}',
            ),
        ]
        model = ScriptedAdapter(*(call(it.name, it.arguments) for it in calls), say("All done."))
        settings = Settings(
            threads="memory",
            tools=str(tmp_path / "tools.yml"),
            assistants=AssistantSettings(folder=str(tmp_path)),
        )

        async with Client(CopilotRuntime(model, settings=settings), agent="clerk") as client:
            chat = await client.say("Do everything.")

    assert chat.tool_calls == calls
    assert chat.text == "All done."
    assert {next(iter(endpoint)) for endpoint in endpoints.values()} == set(ENDPOINTS)


def _write(folder: Path, endpoints: dict[str, dict[str, Any]]) -> None:
    """Write the files of the operator: tools, a document, and an assistant that has all tools."""
    tools = {name: {"endpoint": endpoint} for name, endpoint in endpoints.items()}
    (folder / "tools.yml").write_text(json.dumps(tools))
    (folder / "pets.json").write_text(json.dumps({**PETS, "servers": [{"url": "http://a/"}]}))
    (folder / "clerk.agent.md").write_text("---\ndescription: Does all.\n---\nYou do all.\n")
