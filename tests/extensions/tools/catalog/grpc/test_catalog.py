"""Methods of gRPC services as tools of a file: in chats, in traces, and in Copilot-LD's words."""

from pathlib import Path
from typing import Any

import grpc
import orjson
import pytest

from copilot_runtime import CopilotRuntime, Settings
from copilot_runtime.api import ActionContext, RunInput
from copilot_runtime.base.jsonvalue import JsonObject
from copilot_runtime.extensions.tools.catalog import ToolCatalog
from copilot_runtime.extensions.tools.catalog.endpoints import References
from copilot_runtime.extensions.tools.catalog.grpc.schema import describe_request
from copilot_runtime.telemetry import LocalTelemetry, semconv
from copilot_runtime.testing import Client, ScriptedAdapter, ToolCall, call, say
from tests.documents import ROOT
from tests.extensions.tools.catalog.grpc.conftest import PROTO, Context, compile_shop, serve
from tests.in_one_test import in_one_test
from tests.telemetry.recorded import Spans, find_violations

pytestmark = pytest.mark.anyio

SEED = """
services:
  shop: {{address: "{address}", metadata: {{x-key: "${{secret:KEY}}"}}}}
find:
  method: shop.Shop.Find
  request: shop.Query
  purpose: Find things.
  applicability: When somebody looks for something.
  parameters:
    input: Texts to look for.
order:
  purpose: Buy.
  endpoint: {{grpc: {{method: shop.Shop.Order}}}}
  arguments: {{gift: true}}
"""


async def find(request: dict[str, Any], context: Context) -> Any:
    return {"content": f"Found {request['input'][0]}."}


async def sell(request: dict[str, Any], context: Context) -> Any:
    await context.abort(grpc.StatusCode.NOT_FOUND, "the-secret-key is wrong")


async def name_nothing(request: dict[str, Any], context: Context) -> Any:
    return {}


async def name_resource(request: dict[str, Any], context: Context) -> Any:
    return {"identifiers": [{"type": "common.Message", "name": "m1", "parent": "a.B.c"}]}


def build_catalog(folder: Path, address: str) -> ToolCatalog:
    (folder / "config").mkdir(exist_ok=True)
    if not (folder / "proto").exists():
        (folder / "proto").symlink_to(PROTO)
    path = folder / "config" / "tools.yml"
    path.write_text(SEED.format(address=address))

    async def read(uris: Any, context: ActionContext) -> Any:
        return [f"<{uri}>" for uri in uris]

    references = References({"KEY": "the-secret-key"})
    catalog = ToolCatalog(path, references=references, read_resources=read)
    catalog.load()
    return catalog


async def test_a_model_calls_a_method_and_reads_its_content(tmp_path: Path) -> None:
    async with serve({"Find": find, "Order": sell}) as shop:
        catalog = build_catalog(tmp_path, shop.address)
        spans = Spans()
        telemetry = LocalTelemetry(spans)
        adapter = ScriptedAdapter(call("find", {"input": ["tea"]}), say("It is there."))
        runtime = CopilotRuntime(
            adapter, actions=catalog, settings=Settings(threads="memory"), telemetry=telemetry
        )
        async with Client(runtime) as client:
            chat = await client.say("Where is the tea?")
        assert chat.tool_calls == [ToolCall("find", {"input": ["tea"]}, "Found tea.")]
        (offered, _) = adapter.requests
        by_name = {action.name: action for action in offered.actions}
        assert by_name["find"].description == (
            "PURPOSE: Find things.\n\nWHEN TO USE: When somebody looks for something."
        )
        assert by_name["find"].parameters == {
            "type": "object",
            "properties": {
                "input": {
                    "type": "array",
                    "items": {"type": "string"},
                    "description": "Texts to look for.",
                }
            },
        }
        assert by_name["find"].is_idempotent
        assert "gift" not in by_name["order"].parameters["properties"]

        span, tool = spans.named("shop.Shop/Find"), spans.named("execute_tool find")
        assert span.parent_id == tool.span_id
        host, port = shop.address.split(":")
        assert span.attributes == {
            semconv.RPC_SYSTEM_NAME: "grpc",
            semconv.RPC_SERVICE: "shop.Shop",
            semconv.RPC_METHOD: "shop.Shop/Find",
            semconv.SERVER_ADDRESS: host,
            semconv.SERVER_PORT: int(port),
        }
        assert shop.metadata[0]["traceparent"] == span.context.traceparent
        assert find_violations(span) == []


@in_one_test(
    ("answer", "content"),
    [
        (name_nothing, "No results found."),
        (name_resource, "<a.B.c/common.Message.m1>"),
    ],
)
async def test_identifiers_are_resolved_to_texts(
    tmp_path: Path, context: ActionContext, answer: Any, content: str
) -> None:
    async with serve({"Find": answer, "Order": sell}) as shop:
        catalog = build_catalog(tmp_path, shop.address)
        result = await catalog.call("find", '{"input": ["a"]}', context)
        assert (result.content, result.error) == (content, None)
        await catalog.aclose()


async def test_an_error_is_a_result_without_the_secrets_that_were_sent(
    tmp_path: Path, context: ActionContext
) -> None:
    async with serve({"Find": find, "Order": sell}) as shop:
        catalog = build_catalog(tmp_path, shop.address)
        result = await catalog.call("order", "{}", context)
        assert shop.requests == [{"gift": True}]
        assert shop.metadata[0]["x-key"] == "the-secret-key"
        assert orjson.loads(result.content) == {
            "error": f"The gRPC server at {shop.address!r} says NOT_FOUND: *** is wrong"
        }
        await catalog.aclose()


async def test_a_server_that_is_not_there_costs_a_run_its_own_tools_only(
    tmp_path: Path, run: RunInput
) -> None:
    path = tmp_path / "tools.yml"
    path.write_text(
        """
        gone: {endpoint: {grpc: {address: "127.0.0.1:1", method: shop.Shop.Find}}}
        here: {endpoint: {function: "tests.extensions.tools.catalog.functions:greet"}}
        """
    )
    catalog = ToolCatalog(path)
    catalog.load()
    assert [action.name for action in await catalog.actions(run)] == ["here"]
    await catalog.aclose()


def test_the_tools_of_the_documents_can_be_read(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "learn" / "grpc-tools.md").read_text(encoding="utf-8")
    path = tmp_path / "tools.yml"
    path.write_text(page.partition("```yml\n")[2].partition("```")[0])
    catalog = ToolCatalog(path, references=References({}))
    catalog.load()
    assert [*catalog.definitions] == ["find_products", "sha256_hash"]


async def describe(message: str) -> JsonObject:
    protos = await compile_shop()
    return describe_request(protos.find_message(message), protos.comments)


async def test_fields_that_the_service_fills_in_itself_are_hidden() -> None:
    assert await describe("shop.Query") == {
        "type": "object",
        "properties": {
            "input": {
                "type": "array",
                "items": {"type": "string"},
                "description": "What to look for.",
            }
        },
    }


@in_one_test("message", ["common.Empty", "google.protobuf.Empty"])
async def test_an_empty_request_has_no_parameters(message: str) -> None:
    assert await describe(message) == {"type": "object", "properties": {}}


async def test_a_request_that_is_no_object_is_the_only_parameter() -> None:
    assert await describe("google.protobuf.StringValue") == {
        "type": "object",
        "properties": {"value": {"type": "string"}},
        "required": ["value"],
    }


async def test_every_kind_of_field_has_its_json_form() -> None:
    properties = (await describe("shop.OrderRequest"))["properties"]
    money = {
        "type": "object",
        "properties": {
            "currency": {"type": "string", "description": "Three letters, such as EUR."},
            "cents": {"type": "integer"},
        },
    }
    assert properties == {
        "items": {
            "description": "items field",
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "count": {"type": "integer"},
                    "wrapped": {"type": "object"},
                },
            },
        },
        "speed": {"description": "speed field", "type": "string", "enum": ["SLOW", "FAST"]},
        "limits": {
            "description": "limits field",
            "type": "object",
            "additionalProperties": money,
        },
        "card": {
            "description": "The number of a card. (At most one of card, cash.)",
            "type": "string",
        },
        "cash": {"description": "(At most one of card, cash.)", **money},
        "weight": {"description": "weight field", "type": "number"},
        "picture": {
            "description": "picture field",
            "type": "string",
            "contentEncoding": "base64",
        },
        "due": {"description": "due field", "type": "string", "format": "date-time"},
        "patience": {
            "description": "patience field",
            "type": "string",
            "pattern": r"^-?[0-9]+(\.[0-9]{1,9})?s$",
        },
        "extra": {"description": "extra field", "type": "object"},
        "anything": {"description": "anything field"},
        "limit": {"description": "limit field", "type": "integer"},
        "proof": {
            "description": "proof field",
            "type": "object",
            "properties": {"@type": {"type": "string"}},
        },
        "mask": {"description": "mask field", "type": "string"},
        "list": {"description": "list field", "type": "array", "items": {}},
        "blob": {"description": "blob field", "type": "string", "contentEncoding": "base64"},
        "nothing": {"description": "nothing field", "type": "null"},
        "gift": {"description": "gift field", "type": "boolean"},
        "speeds": {
            "description": "speeds field",
            "type": "array",
            "items": {"type": "string", "enum": ["SLOW", "FAST"]},
        },
        "number": {"description": "number field", "type": "integer"},
        "sure": {"description": "sure field", "type": "boolean"},
    }
