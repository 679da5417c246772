"""Parameters in CopilotKit's notation, as JSON schema."""

from typing import Any

import pytest

from copilot_runtime.extensions.frameworks.remote.catalog import build_schema, parse_catalog
from tests.in_one_test import in_one_test


def schema(**parameter: Any) -> Any:
    return build_schema([{"name": "x", **parameter}])["properties"]["x"]


@in_one_test(
    ("parameter", "expected"),
    [
        ({}, {"type": "string"}),
        ({"type": "string", "description": "A"}, {"type": "string", "description": "A"}),
        ({"type": "string", "enum": ["a"]}, {"type": "string", "enum": ["a"]}),
        ({"type": "number"}, {"type": "number"}),
        ({"type": "boolean"}, {"type": "boolean"}),
        ({"type": "object"}, {"type": "object"}),
        (
            {"type": "string[]", "enum": ["a"]},
            {"type": "array", "items": {"type": "string", "enum": ["a"]}},
        ),
        (
            {"type": "object[]", "attributes": [{"name": "y", "type": "number"}]},
            {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"y": {"type": "number"}},
                    "required": ["y"],
                },
            },
        ),
        ({"type": "colour"}, {"type": "string"}),
        ({"type": 7, "enum": 7, "description": 7}, {"type": "string"}),
    ],
)
def test_each_kind_of_parameter_has_its_schema(
    parameter: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert schema(**parameter) == expected


def test_a_json_schema_is_understood_too() -> None:
    assert build_schema({"properties": {"x": {"type": "null"}}}) == {
        "type": "object",
        "properties": {"x": {"type": "null"}},
    }


def test_whatever_a_json_schema_says_the_parameters_are_an_object() -> None:
    assert build_schema({"type": "string", "properties": ["x"]}) == {
        "type": "object",
        "properties": {},
    }


def test_of_very_much_the_beginning_counts(caplog: pytest.LogCaptureFixture) -> None:
    many = [{"name": f"n{number}", "description": "d" * 9000} for number in range(1000)]

    offer = parse_catalog({"actions": many, "agents": many})

    assert [one.name for one in offer.actions] == [f"n{number}" for number in range(128)]
    assert [one.name for one in offer.agents] == [f"n{number}" for number in range(128)]
    assert {len(one.description) for one in (*offer.actions, *offer.agents)} == {4000}
    assert "offers 1000 agents; the first 128 count" in caplog.text


def test_what_has_no_name_is_left_out_in_a_word(caplog: pytest.LogCaptureFixture) -> None:
    offer = parse_catalog({"actions": [0, {"name": ""}, {"name": "add"}, {"name": 7}]})

    assert [one.name for one in offer.actions] == ["add"]
    assert caplog.messages == ["A remote endpoint offers 3 actions without a name, left out."]


@in_one_test("parameters", [None, 7, "x", [], [7, {"type": "string"}]])
def test_what_is_none_takes_nothing(parameters: Any) -> None:
    assert build_schema(parameters) == {"type": "object", "properties": {}, "required": []}
