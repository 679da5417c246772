"""What models may fill in, made of the types of messages."""

import pytest

from copilot_runtime.base.jsonvalue import JsonObject
from copilot_runtime.extensions.tools.catalog.grpc.schema import describe_request
from tests.extensions.tools.catalog.grpc.servers import compile_shop
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio


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
