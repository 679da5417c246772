"""Tools in YAML: what is read, and what a mistake says."""

import json
from pathlib import Path
from typing import Any

import pytest

from copilot_runtime import CopilotRuntime, Settings
from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.extensions.assistants.settings import AssistantSettings
from copilot_runtime.extensions.tools.catalog.definition import parse_services, parse_tools
from copilot_runtime.extensions.tools.catalog.endpoints import ENDPOINTS
from copilot_runtime.testing import Client, ScriptedAdapter, ToolCall, call, say
from tests.adapters.provider import Provider, whole
from tests.documents import Block, blocks
from tests.extensions.mcp.client.servers import serve as serve_mcp
from tests.extensions.tools.catalog.grpc.conftest import Context
from tests.extensions.tools.catalog.grpc.conftest import serve as serve_grpc
from tests.in_one_test import in_one_test
from tests.yaml_bombs import BOMBS

CLOCK = """
clock:
  purpose: Tell the time.
  applicability: When somebody asks for it.
  instructions: Name a city.
  evaluation: The time, as hours and minutes.
  parameters:
    city: A city, such as Rome.
  endpoint:
    function: os.path:basename
"""


def test_a_tool_has_its_parts_and_its_endpoint() -> None:
    tool = parse_tools(CLOCK, "tools.yml")["clock"]

    assert (tool.name, tool.source, tool.kind) == ("clock", "tools.yml:2", "function")
    assert tool.options.model_dump() == {"target": "os.path:basename"}
    assert tool.sections == (
        "PURPOSE: Tell the time.\n\nWHEN TO USE: When somebody asks for it.\n\n"
        "HOW TO USE: Name a city.\n\nRETURNS: The time, as hours and minutes."
    )


def test_an_empty_file_has_no_tools() -> None:
    assert parse_tools("", "tools.yml") == {}


@in_one_test(
    ("text", "message"),
    [
        (
            "clock:\n  purpse: x\n  endpoint: {function: 'a:b'}\n",
            "t.yml:2: there is no 'clock.purpse'; did you mean 'purpose'?",
        ),
        (
            "clock:\n  purpose: x\n  endpoint:\n    functoin: a:b\n",
            "t.yml:4: there is no 'clock.endpoint.functoin'; did you mean 'function'?",
        ),
        (
            "clock:\n  endpoint:\n    function:\n      targett: a:b\n      target: a:b",
            "t.yml:4: there is no 'clock.endpoint.function.targett'; did you mean 'target'?",
        ),
        ("clock:\n  endpoint: {}\n", "t.yml:2: clock.endpoint: write one of function"),
        ("clock:\n  purpose: x\n", "t.yml:1: clock: it calls nothing: write an endpoint"),
        (
            "clock:\n  method: a.B.C\n  endpoint: {function: 'a:b'}\n",
            "t.yml:1: clock: it has an endpoint as well as a method",
        ),
        ("clock:\n  timeout: -1\n  endpoint: {function: 'a:b'}", "t.yml:2: clock.timeout: "),
        ("a b:\n  endpoint: {function: 'a:b'}\n", "t.yml:1: a b"),
        ("clock:\n  endpoint: {function: b}\n", "t.yml:2: clock.endpoint.function: "),
        ("- clock\n", "t.yml:1: expected fields"),
        ("clock: 1\n", "t.yml:1: clock: "),
        ("a:\n  endpoint: {function: 'a:b'}\nservices: 5\n", "t.yml:3: services: write"),
        ("clock: {}\nclock: {}\n", "t.yml:2: 'clock' is defined twice here."),
        ("clock: [\n", "t.yml:2: not YAML"),
        *((bomb, "t.yml:5: aliases (`*name`) repeat more than") for bomb in BOMBS),
        ("x" * (1024 * 1024 + 1), "t.yml:1: the file is larger than 1024 kB."),
    ],
)
def test_a_mistake_is_named_with_its_line(text: str, message: str) -> None:
    with pytest.raises(ConfigurationFailed) as caught:
        parse_tools(text, "t.yml")
        parse_services(text, "t.yml")
    assert caught.value.message.startswith(message)


@in_one_test(
    ("parameters", "message"),
    [
        (
            "{city: A city, such as Rome.}",
            "The parameter 'such as Rome.' has a name that no model takes: letters, digits, _ . "
            "and -, at most 64. A text with a comma stands in quotes: "
            '{city: "A city, such as Rome."}.',
        ),
        (
            "{city: A city, region}",
            "The parameter 'region' has no description: write one, or a JSON schema. A text with "
            'a comma stands in quotes: {city: "A city, region"}.',
        ),
        (
            "{days: {type: integer, description: How many, at most 7}}",
            "The parameter 'days' has 'at most 7' without a value. A text with a comma stands in "
            'quotes: {description: "How many, at most 7"}.',
        ),
        (
            "{type: object, properties: {city: }}",
            "The parameter 'city' has no description: write one, or a JSON schema.",
        ),
        (
            "{city: {type: string}, region: }",
            "The parameter 'region' has no description: write one, or a JSON schema.",
        ),
        ("{a b: A city}", "The parameter 'a b' has a name that no model takes: letters, digits"),
        (f"{{{'x' * 65}: A city}}", f"The parameter '{'x' * 65}' has a name that no model takes"),
        ("{city: 5}", "The parameter 'city' is 5: write a description, or a JSON schema."),
    ],
)
def test_a_parameter_that_no_model_takes_is_named_with_its_line(
    parameters: str, message: str
) -> None:
    text = f"clock:\n  endpoint: {{function: 'a:b'}}\n  parameters:\n    {parameters}\n"
    with pytest.raises(ConfigurationFailed) as caught:
        parse_tools(text, "t.yml")
    assert caught.value.message.startswith(f"t.yml:4: the tool 'clock': {message}")


def test_each_part_of_a_text_without_quotes_is_a_mistake() -> None:
    text = "clock:\n  parameters: {city: A city, town, village}\n  endpoint: {function: 'a:b'}\n"
    with pytest.raises(ConfigurationFailed) as caught:
        parse_tools(text, "t.yml")
    first, second = caught.value.message.splitlines()
    assert first.endswith('{city: "A city, town"}.')
    assert second.endswith('{city: "A city, town, village"}.')


def test_null_is_a_default_like_any_other() -> None:
    text = "clock:\n  parameters: {city: {default: null}}\n  endpoint: {function: 'a:b'}\n"
    assert parse_tools(text, "t.yml")["clock"].parameters == {"city": {"default": None}}


@in_one_test("block", blocks("yml", "learn/tools"), ids=str)
def test_the_tools_of_the_documents_can_be_read(block: Block) -> None:
    assert parse_tools(block.code, block.page)


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
