"""Objects of Copilot-LD's types become resources with names."""

from uuid import UUID

import pytest

from copilot_runtime.base.errors import Misuse
from copilot_runtime.extensions.knowledge.resource_types import (
    create_resource,
    describe,
    to_resource,
)
from tests.in_one_test import in_one_test


def test_a_name_is_that_of_the_id_or_the_object() -> None:
    by_id = create_resource("common.Message", {"id": {"name": "x.y.z"}, "name": "other"})
    by_field = create_resource("common.Agent", {"name": "planner"}, parent="a.B.c")
    assert create_resource("common.Agent", {"name": "a.b"}).id.name == "a.b"
    assert (by_id.uri, by_field.uri) == ("common.Message.z", "a.B.c/common.Agent.planner")
    assert by_id.fields == {"name": "other"}


def test_without_a_name_each_object_is_another_or_equal_ones_are_the_same() -> None:
    message = {"role": "user", "content": "hello"}
    assert UUID(create_resource("common.Message", message).id.name).version == 4
    first, second = (create_resource("common.Message", message, naming="content") for _ in "12")
    assert first.uri == second.uri
    short = create_resource("common.Message", message, naming="content", digits=8)
    assert short.uri == "common.Message.c7794722"
    assert UUID(create_resource("common.Message", {}, naming="content").id.name).version == 4


def test_tokens_are_counted_unless_they_are_there() -> None:
    assert create_resource("common.Message", {"content": "Hello, world!"}).id.tokens == 7
    assert create_resource("common.Message", {"id": {"tokens": 3}, "content": "Hi"}).id.tokens == 3
    assert create_resource("tool.ToolFunction", {"name": "search"}).id.tokens == 0


def test_types_have_rules_of_their_own() -> None:
    assert create_resource("common.Assistant", {"name": "a"}).role == "system"
    assert create_resource("common.Assistant", {"name": "a", "role": "user"}).role == "user"
    tool = create_resource("tool.ToolFunction", {"id": {"name": "search"}, "parameters": {}})
    assert tool.fields == {"name": "search", "parameters": {}}
    renamed = create_resource("tool.ToolFunction", {"id": {"name": "old"}, "name": "a.search"})
    assert (renamed.id.name, renamed.fields["name"]) == ("search", "a.search")
    assert create_resource("tool.ToolFunction", {}).fields["name"]


def test_an_object_is_read_by_the_type_of_its_id() -> None:
    task = to_resource({"id": {"type": "plan.Task", "name": "t", "parent": "cld:a.B.c"}, "done": 1})
    assert (task.uri, task.fields) == ("a.B.c/plan.Task.t", {"done": 1})
    subjects = to_resource({"id": {"type": "common.Message", "subjects": ["https://a.example", 1]}})
    assert subjects.id.subjects == ("https://a.example",)


@in_one_test(
    ("fields", "message"),
    [
        ({}, "Object must have an identifier"),
        ({"id": {}}, "Object must have an identifier"),
        ({"id": "common.Message.m1"}, "Object must have an identifier"),
        ({"id": {"type": "common.Mesage"}}, "Unknown type: common.Mesage"),
    ],
)
def test_an_object_without_a_type_that_is_known_is_refused(
    fields: dict[str, object], message: str
) -> None:
    with pytest.raises(Misuse, match=message):
        to_resource(fields)


def test_a_description_has_four_sections() -> None:
    assert describe({"evaluation": "Done well.", "purpose": " Do it. ", "instructions": ""}) == (
        "**Purpose:** Do it.\n\n**Evaluation:** Done well."
    )
    assert describe({}) == ""
