"""JSON schemas in CopilotKit's own notation, which says less."""

from enum import Enum
from typing import Annotated, Any

from pydantic import BaseModel, Field

from copilot_runtime import Action, action
from copilot_runtime.extensions.frameworks.remote.catalog import build_schema
from copilot_runtime.extensions.frameworks.remote.server.endpoint import parameters_of
from tests.in_one_test import in_one_test


class Size(Enum):
    SMALL = "s"
    LARGE = "l"


class Place(BaseModel):
    """Where something is."""

    street: str
    number: int | None = None


@action
def order(
    places: Annotated[list[Place], Field(description="Where to")],
    size: Size,
    tags: list[str] | None = None,
    extra: Place | None = None,
    hurry: bool = False,
) -> None:
    """Order something."""
    del places, size, tags, extra, hurry


def test_every_kind_of_argument_has_its_word() -> None:
    assert isinstance(order, Action)
    place = [
        {"name": "street", "required": True, "type": "string"},
        {"name": "number", "required": False, "type": "number"},
    ]
    found = parameters_of(order.parameters)
    assert [{**item, "description": None} for item in found] == [
        {
            "name": "places",
            "required": True,
            "type": "object[]",
            "attributes": place,
            "description": None,
        },
        {
            "name": "size",
            "required": True,
            "type": "string",
            "enum": ["s", "l"],
            "description": None,
        },
        {"name": "tags", "required": False, "type": "string[]", "description": None},
        {
            "name": "extra",
            "required": False,
            "type": "object",
            "attributes": place,
            "description": None,
        },
        {"name": "hurry", "required": False, "type": "boolean", "description": None},
    ]
    assert found[0]["description"] == "Where to"


def test_what_is_said_in_that_notation_is_a_schema_again() -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            "a": {"type": "number", "description": "first"},
            "b": {"type": "array", "items": {"type": "boolean"}},
            "c": {"type": "string", "enum": ["x", "y"]},
        },
        "required": ["a"],
    }
    assert build_schema(parameters_of(schema)) == schema


@in_one_test(
    "schema",
    [
        {},
        {"properties": []},
        {"properties": {"a": None}},
        {"properties": {"a": {"type": 7, "anyOf": "x"}}, "required": "a"},
        {"properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"$ref": "#/$defs/A"}}},
        {
            "properties": {"a": {"$ref": "#/$defs/A"}},
            "$defs": {"A": {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}}},
        },
        {"properties": {"a": {"type": "array", "items": {"type": "array"}}}},
    ],
)
def test_an_odd_schema_breaks_nothing(schema: dict[str, Any]) -> None:
    assert build_schema(parameters_of(schema))["type"] == "object"
