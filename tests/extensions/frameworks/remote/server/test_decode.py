"""What a remote endpoint is asked, read as it was meant."""

from enum import Enum
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from copilot_runtime import Action, Caller, RunInput, action
from copilot_runtime.api import AgentInput, Resume
from copilot_runtime.api.messages import (
    ActionExecutionMessage,
    AgentStateMessage,
    ImageMessage,
    Message,
    ResultMessage,
    TextMessage,
)
from copilot_runtime.base.errors import LimitExceeded, Misuse
from copilot_runtime.extensions.frameworks.remote.discovery import build_schema
from copilot_runtime.extensions.frameworks.remote.endpoint import build_request_body
from copilot_runtime.extensions.frameworks.remote.server.decode import get_caller, run_fields
from copilot_runtime.extensions.frameworks.remote.server.endpoint import parameters_of
from tests.in_one_test import in_one_test

MESSAGES: list[Message] = [
    TextMessage(id="s", role="system", content="Be brief."),
    TextMessage(id="u", role="user", content="Hi", parent_id="s"),
    ImageMessage(id="i", role="user", format="png", bytes="AAAA"),
    ActionExecutionMessage(id="c", name="add", arguments='{"a":1}', parent_id="u"),
    ResultMessage(id="r", call_id="c", name="add", result="2"),
    AgentStateMessage(
        id="a",
        agent="echo",
        state={"n": 1},
        node="think",
        thread_id="t",
        run_id="r",
        active=True,
        running=True,
    ),
]
SET_COLOR = Action(
    name="setColor",
    description="Set the color.",
    parameters={"type": "object", "properties": {"color": {"type": "string"}}},
)


def read(**fields: Any) -> dict[str, Any]:
    return run_fields({"name": "echo", **fields}, max_messages=10)


def test_what_our_own_client_asks_is_read_as_it_was() -> None:
    known = AgentInput(state={"topic": "dogs"}, config={"depth": 2})
    run = RunInput(
        thread_id="t",
        run_id="r",
        agent="echo",
        messages=MESSAGES,
        actions=[SET_COLOR],
        agents={"echo": known},
        node="think",
        resume=[Resume("Your name?", "Ann")],
    )
    fields = run_fields(build_request_body(run, "echo"), max_messages=10)
    assert fields | {"parameters": run.parameters, "operation": run.operation} == {
        "agent": "echo",
        "thread_id": "t",
        "messages": MESSAGES,
        "actions": [SET_COLOR],
        "agents": {"echo": known},
        "node": "think",
        "parameters": run.parameters,
        "resume": run.resume,
        "operation": run.operation,
    }


@in_one_test(
    "message",
    [
        {},
        {"type": "TextMessage", "content": None},
        {"type": "ResultMessage"},
        {"type": "NoSuchMessage", "content": "Hi"},
        {"type": ["TextMessage"]},
    ],
)
def test_a_message_that_nobody_can_read_is_passed_over(message: Any) -> None:
    assert read(messages=[message])["messages"] == []


def test_a_role_that_nobody_knows_is_the_assistant_s() -> None:
    message = {"type": "TextMessage", "id": "m", "role": ["user"], "content": "Hi"}
    assert read(messages=[message])["messages"][0].role == "assistant"


def test_null_is_nothing() -> None:
    fields = dict.fromkeys(("messages", "state", "config", "actions", "metaEvents", "threadId"))
    assert read(**fields)["messages"] == []


def test_an_answer_that_is_no_text_is_kept_as_it_is() -> None:
    answered = {"name": "LangGraphInterruptEvent", "value": {"q": 1}, "response": {"yes": True}}
    assert read(metaEvents=[answered])["resume"] == [
        Resume('{"q":1}', '{"yes":true}', payload={"yes": True})
    ]


def test_an_interrupt_without_an_answer_answers_nothing() -> None:
    assert read(metaEvents=[{"name": "LangGraphInterruptEvent", "value": "?"}])["resume"] == []


def test_too_long_a_conversation_is_refused() -> None:
    with pytest.raises(LimitExceeded):
        read(messages=[{}] * 11)


def test_a_run_needs_an_agent() -> None:
    with pytest.raises(Misuse, match=r"body\.name must be a string"):
        run_fields({}, max_messages=10)


def test_the_page_and_its_properties_are_the_caller_s() -> None:
    body = {"properties": {"a": 1}, "frontendUrl": "https://app.example/"}
    caller = get_caller(body, Caller(user="ann", headers={"x-a": "b"}))
    assert caller == Caller(
        user="ann",
        headers={"x-a": "b"},
        properties={"a": 1},
        url="https://app.example/",
    )


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
