"""What the Python SDK 0.1.67 really sends for a LangGraph agent, and what we make of it.

The lines in `recordings/` were written by a graph behind `add_fastapi_endpoint`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from copilot_runtime.api import ActionContext, RunInput
from copilot_runtime.api.events import AgentState, Event, Interrupt
from copilot_runtime.api.messages import TextMessage
from copilot_runtime.base.errors import CopilotError
from copilot_runtime.event_order.verify import verify_events
from copilot_runtime.extensions.frameworks.remote import RemoteEndpoint
from copilot_runtime.extensions.frameworks.remote.discovery import build_schema, parse_catalog
from copilot_runtime.extensions.frameworks.remote.translate import RemoteEventDecoder
from tests.adapters.provider import RESET, Provider, whole
from tests.extensions.frameworks.remote.endpoint import GONE, OFFERED, asked
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

RECORDINGS = Path(__file__).parent / "recordings"
NAMES = sorted(path.stem for path in RECORDINGS.glob("*.jsonl"))
RUN = RunInput(thread_id="t", run_id="r", messages=[], agent="research_agent")


def replayed(name: str, *, at_once: int = 1 << 20) -> tuple[list[Event], Exception | None]:
    """Return the events of a recording that arrives in blocks of so many bytes."""
    said = RemoteEventDecoder("research_agent", RUN)
    data = (RECORDINGS / f"{name}.jsonl").read_bytes()
    events: list[Event] = []
    for start in range(0, len(data), at_once):
        events += said.feed(data[start : start + at_once])
    return [*events, *said.finish()], said.failure


def told(events: Sequence[Event]) -> list[Any]:
    """Return the events without their ids: kind, and what was said."""
    kept = ("content", "name", "delta", "result", "value")
    return [
        (event.type, *(getattr(event, key) for key in kept if hasattr(event, key)))
        for event in events
        if not isinstance(event, AgentState)
    ]


def states(events: Sequence[Event]) -> list[Any]:
    return [
        (event.node, event.active, event.running, event.state)
        for event in events
        if isinstance(event, AgentState)
    ]


TEXT = [
    ("text_message_start",),
    ("text_message_content", "Hello"),
    ("text_message_content", " from"),
    ("text_message_content", " LangGraph."),
    ("text_message_end",),
]
CALL = [
    ("action_execution_start", "setColor"),
    ("action_execution_args", '{"color"'),
    ("action_execution_args", ': "lime"}'),
    ("action_execution_end",),
]
TOOLS = [
    ("text_message_start",),
    ("text_message_content", "Let me look. "),
    ("text_message_end",),
    ("action_execution_start", "weather"),
    ("action_execution_args", '{"city": "Paris"}'),
    ("action_execution_start", "weather"),
    ("action_execution_args", '{"city": "Rome"}'),
    ("action_execution_end",),
    ("action_execution_end",),
    ("action_execution_result", "weather", "Sunny in Rome"),
    ("action_execution_result", "weather", "Sunny in Paris"),
    *TEXT,
]
MANUAL = [
    ("text_message_start",),
    ("text_message_content", "Half way."),
    ("text_message_end",),
    ("action_execution_start", "setColor"),
    ("action_execution_args", '{"color":"gold"}'),
    ("action_execution_end",),
]
BLOCKS = [
    ("text_message_start",),
    ("text_message_content", "In "),
    ("text_message_content", "blocks."),
    ("text_message_end",),
]


@in_one_test(
    ("name", "expected"),
    [
        ("text", TEXT),
        ("call", CALL),
        ("tools", TOOLS),
        ("blocks", BLOCKS),
        ("hidden", []),
        ("manual", MANUAL),
        ("interrupt", [("interrupt", "What is your name?")]),
        ("copilotkit_interrupt", [("interrupt", "Is that right?")]),
        ("resumed", []),
        ("error", []),
    ],
)
def test_a_recorded_agent_says_what_its_graph_said(name: str, expected: list[Any]) -> None:
    events, _ = replayed(name)

    assert told(events) == expected


def test_a_state_has_its_node_and_says_whether_the_agent_is_at_work() -> None:
    events, _ = replayed("text")

    last = {
        "copilotkit": {"actions": []},
        "topic": "cats",
        "count": 1,
        "messages": [
            {"role": "user", "content": "Hi", "id": "u1"},
            {
                "role": "assistant",
                "content": "Hello from LangGraph.",
                "id": "run-7833b10f-2837-4630-a3bd-ac56f250b851",
                "parentMessageId": "run-7833b10f-2837-4630-a3bd-ac56f250b851",
            },
        ],
    }
    assert states(events) == [
        ("answer", True, True, {"copilotkit": {"actions": []}}),
        ("answer", False, True, {"copilotkit": {"actions": []}, "count": 1, "topic": "cats"}),
        ("__end__", False, True, last),
    ]
    assert {event.thread_id for event in events if isinstance(event, AgentState)} == {"t"}


def test_an_agent_that_exits_no_longer_runs() -> None:
    events, _ = replayed("manual")

    assert states(events)[-1][:3] == ("__end__", False, False)


def test_a_question_of_copilotkit_brings_its_messages() -> None:
    events, _ = replayed("copilotkit_interrupt")

    [question] = [event for event in events if isinstance(event, Interrupt)]
    id = "d203a8e7-8884-407a-ac48-2c17505cc970"
    [message] = question.messages
    assert message == TextMessage(id=id, role="assistant", content="Is that right?", parent_id=id)


def test_an_agent_that_fails_says_why() -> None:
    _, failure = replayed("error")

    assert str(failure) == "The agent exploded."


@in_one_test("name", NAMES)
def test_lines_may_be_cut_anywhere(name: str) -> None:
    whole, _ = replayed(name)
    cut, _ = replayed(name, at_once=7)

    assert told(cut) == told(whole)
    assert states(cut) == states(whole)


@in_one_test("name", NAMES)
async def test_what_is_said_is_in_an_order_that_clients_accept(name: str) -> None:
    events, _ = replayed(name)

    async def said():
        for event in events:
            yield event

    assert told([event async for event in verify_events(said(), RUN)]) == told(events)


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


CONTEXT = ActionContext(
    thread_id="t", run_id="r", call_id="c", properties={"team": "blue"}, headers={"x-a": "1"}
)


async def ran(endpoint: RemoteEndpoint) -> Any:
    [action] = await endpoint.actions(asked())
    assert action.run is not None
    return await action.run({"a": 1, "b": 2}, CONTEXT)


@pytest.mark.parametrize("result", [5, "five", None, {"a": [1]}, False])
async def test_what_it_returns_is_the_result(
    server: Provider, endpoint: RemoteEndpoint, result: Any
) -> None:
    server.answer(OFFERED, [whole({"result": result})])

    assert await ran(endpoint) == result
    assert server.requests[1].line == "POST /copilotkit/actions/execute HTTP/1.1"
    assert server.requests[1].headers["x-a"] == "1"
    assert server.requests[1].body == {
        "name": "add",
        "arguments": {"a": 1, "b": 2},
        "properties": {"team": "blue"},
    }


async def test_a_server_that_has_only_the_newer_routes_is_asked_there(
    server: Provider, endpoint: RemoteEndpoint
) -> None:
    server.answer(OFFERED, GONE, [whole({"result": 3})])

    assert await ran(endpoint) == 3
    assert server.requests[2].line == "POST /copilotkit/action/add HTTP/1.1"


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ([whole({"error": "Too large"}, status="500 No")], "Too large"),
        ([whole(b"<html>", status="503 No")], "The remote action 'add' failed."),
        ([whole(b"[]")], "returned something that cannot be read"),
        ([whole(b"no")], "returned something that cannot be read"),
        ([RESET], "The server hung up without an answer"),
    ],
)
async def test_one_that_fails_is_not_run_again(
    server: Provider, endpoint: RemoteEndpoint, script: Any, message: str
) -> None:
    server.answer(OFFERED, script)

    with pytest.raises(CopilotError, match=message):
        await ran(endpoint)

    assert len(server.requests) == 2
