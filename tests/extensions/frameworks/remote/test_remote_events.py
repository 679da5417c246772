"""Lines of an agent behind a remote endpoint, well and badly made."""

import json
from typing import Any

import pytest

from copilot_runtime.api import RunInput
from copilot_runtime.api.events import (
    ActionExecutionArgs,
    ActionExecutionEnd,
    ActionExecutionResult,
    ActionExecutionStart,
    AgentState,
    Event,
    Interrupt,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
)
from copilot_runtime.base.errors import IncompleteStream, NetworkError
from copilot_runtime.extensions.frameworks.remote.translate import RemoteEventDecoder
from tests.extensions.frameworks.remote.endpoint import text
from tests.in_one_test import in_one_test

RUN = RunInput(thread_id="t", run_id="r", messages=[])


def read(*said: Any) -> tuple[list[Event], Exception | None]:
    """Return the events of these lines, and why not all were read."""
    events = RemoteEventDecoder("crew", RUN)
    whole = b"".join(
        (line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n" for line in said
    )
    return [*events.feed(whole), *events.finish()], events.failure


def piece(id: str = "m", run_id: str = "model", **chunk: Any) -> dict[str, Any]:
    """Return what a model of LangGraph streams."""
    data = {"chunk": {"kwargs": {"id": id, "content": "", **chunk}}}
    return {"event": "on_chat_model_stream", "run_id": run_id, "metadata": {}, "data": data}


def part(index: int | None, args: str = "", **first: str) -> dict[str, Any]:
    return {"index": index, "args": args, "name": None, "id": None, **first}


def test_events_of_a_crew_are_ours() -> None:
    state = {"threadId": "private", "agentName": "crew", "nodeName": "n", "runId": "r-2"}
    said = [
        *text("m", "Crew", ""),
        {"type": "ActionExecutionStart", "actionExecutionId": "c", "actionName": "paint"},
        {"type": "ActionExecutionArgs", "actionExecutionId": "c", "args": "{}"},
        {"type": "ActionExecutionEnd", "actionExecutionId": "c"},
        {
            "type": "ActionExecutionResult",
            "actionExecutionId": "c",
            "actionName": "paint",
            "result": {"ok": True},
        },
        {"type": "AgentStateMessage", **state, "active": True, "running": True, "state": '{"a":1}'},
        {"type": "MetaEvent", "name": "LangGraphInterruptEvent", "value": "Go on?"},
        {"type": "NodeStarted", "node_name": "n"},
    ]

    events, failure = read(*said)

    assert isinstance(question := events.pop(), Interrupt)
    assert question.value == "Go on?"
    assert failure is None
    assert events == [
        TextMessageStart(message_id="m"),
        TextMessageContent(message_id="m", content="Crew"),
        TextMessageEnd(message_id="m"),
        ActionExecutionStart(call_id="c", name="paint"),
        ActionExecutionArgs(call_id="c", delta="{}"),
        ActionExecutionEnd(call_id="c"),
        ActionExecutionResult(call_id="c", name="paint", result='{"ok":true}'),
        AgentState(agent="crew", state={"a": 1}, node="n", thread_id="t", run_id="r-2"),
    ]


def test_texts_of_a_crewai_flow_come_without_an_id_and_get_one_each() -> None:
    """`copilotkit_stream` of CopilotKit's SDK up to 0.1.96 sends an empty id for every text."""
    call = {"type": "ActionExecutionStart", "actionExecutionId": "c", "actionName": "paint"}
    said = [*text("", "One"), {**call, "parentMessageId": ""}, *text("", "Two")]

    events, failure = read(*said)

    assert failure is None
    first, second = [event.message_id for event in events if isinstance(event, TextMessageStart)]
    assert "" not in (first, second)
    assert first != second
    assert events == [
        TextMessageStart(message_id=first),
        TextMessageContent(message_id=first, content="One"),
        TextMessageEnd(message_id=first),
        ActionExecutionStart(call_id="c", name="paint"),
        TextMessageStart(message_id=second),
        TextMessageContent(message_id=second, content="Two"),
        TextMessageEnd(message_id=second),
    ]


def test_a_crew_that_fails_says_why() -> None:
    _, failure = read({"type": "RunError", "error": "No key."})

    assert str(failure) == "No key."


@in_one_test(
    ("data", "message"),
    [
        ({"message": "Agent exploded", "type": "ValueError"}, "Agent exploded"),
        ({"error": {"message": "Agent exploded"}}, "Agent exploded"),
        ({"error": "Agent exploded"}, "Agent exploded"),
        ("Agent exploded", "Agent exploded"),
        (None, "The agent failed."),
        ({"message": 7}, "The agent failed."),
    ],
)
def test_a_bare_error_ends_the_run_with_its_reason(data: Any, message: str) -> None:
    events, failure = read({"event": "error", "data": data}, *text("m", "Never heard"))

    assert (events, str(failure)) == ([], message)


def test_models_that_answer_at_the_same_time_are_told_apart() -> None:
    events, _ = read(
        piece("a", "one", content="A"),
        piece("b", "two", content="B"),
        piece("a", "one", content="A"),
        {"event": "on_chat_model_end", "run_id": "one"},
        piece("b", "two", content="B"),
    )

    assert events == [
        TextMessageStart(message_id="a"),
        TextMessageContent(message_id="a", content="A"),
        TextMessageStart(message_id="b"),
        TextMessageContent(message_id="b", content="B"),
        TextMessageContent(message_id="a", content="A"),
        TextMessageEnd(message_id="a"),
        TextMessageContent(message_id="b", content="B"),
        TextMessageEnd(message_id="b"),
    ]


def test_pieces_of_calls_that_come_mixed_find_their_call() -> None:
    events, _ = read(
        piece(tool_call_chunks=[part(0, name="x", id="c0"), part(1, name="y", id="c1")]),
        piece(tool_call_chunks=[part(1, "{1}"), part(0, "{0}")]),
        piece(response_metadata={"finish_reason": "tool_calls"}),
    )

    assert events == [
        ActionExecutionStart(call_id="c0", name="x", parent_id="m"),
        ActionExecutionStart(call_id="c1", name="y", parent_id="m"),
        ActionExecutionArgs(call_id="c1", delta="{1}"),
        ActionExecutionArgs(call_id="c0", delta="{0}"),
        ActionExecutionEnd(call_id="c0"),
        ActionExecutionEnd(call_id="c1"),
    ]


@in_one_test(
    ("shown", "names"),
    [(True, ["x", "y"]), (False, []), ("y", ["y"]), (["x"], ["x"]), (None, [])],
)
def test_an_agent_chooses_which_calls_are_seen(shown: Any, names: list[str]) -> None:
    said = piece(tool_call_chunks=[part(0, name="x", id="c0"), part(1, name="y", id="c1")])
    said["metadata"] = {"copilotkit:emit-tool-calls": shown}

    events, _ = read(said)

    assert [e.name for e in events if isinstance(e, ActionExecutionStart)] == names


def test_text_after_a_call_is_a_message_of_its_own() -> None:
    events, _ = read(
        piece(content="A"), piece(tool_call_chunks=[part(0, name="x", id="c")]), piece(content="B")
    )

    first, second = [e.message_id for e in events if isinstance(e, TextMessageStart)]
    assert first == "m" != second


def test_the_result_of_a_call_that_was_not_shown_is_not_shown() -> None:
    output = {"kwargs": {"tool_call_id": "c", "content": "secret"}}

    events, _ = read({"event": "on_tool_end", "data": {"output": output}})

    assert events == []


@in_one_test(
    "line",
    [
        {"event": None},
        {"event": "on_chat_model_stream"},
        {"event": "on_chat_model_stream", "data": {"chunk": [1]}, "metadata": 3},
        piece(content=[3, {"text": None}], tool_call_chunks=[7, {"name": 1}]),
        piece(response_metadata={"finish_reason": {}}, tool_call_chunks=[{"index": []}]),
        {"event": "on_tool_end", "data": {"output": "plain"}},
        {"event": "on_custom_event", "name": "copilotkit_manually_emit_message", "data": "no"},
        {"event": "on_chat_model_end", "run_id": ["?"]},
        {"type": "SomethingNew"},
        {},
    ],
)
def test_what_lacks_its_parts_costs_nothing_but_itself(line: dict[str, Any]) -> None:
    events, failure = read(line, *text("m", "Hi"))

    assert failure is None
    assert events[-2] == TextMessageContent(message_id="m", content="Hi")


@in_one_test(
    "line",
    [
        b"Internal Server Error",
        b"[1]",
        b'{"type":"TextMessageStart"}',
        b'{"type":"TextMessageContent","messageId":"m","content":7}',
        b'{"type":"AgentStateMessage","state":"{"}',
        b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}",
    ],
)
def test_what_cannot_be_read_ends_the_run(line: bytes) -> None:
    events, failure = read(line, *text("m", "Never heard"))

    assert events == []
    assert isinstance(failure, IncompleteStream)
    assert failure.message.startswith("The agent 'crew' sent something that cannot be read.")


def test_an_empty_answer_is_no_answer() -> None:
    _, failure = read(b"", b"  ")

    assert str(failure) == "The agent 'crew' ended without a word."


def test_a_line_has_a_limit() -> None:
    events = RemoteEventDecoder("crew", RUN, limit=1000)
    assert [*events.feed(b"x" * 600)] == []

    with pytest.raises(NetworkError, match="a line longer than 1000 bytes"):
        list(events.feed(b"x" * 600))


def test_many_long_lines_are_no_long_line() -> None:
    line = json.dumps({"event": "on_chain_end", "data": "x" * 600}).encode() + b"\n"
    events = RemoteEventDecoder("crew", RUN, limit=1000)

    assert [*events.feed(line * 5), *events.feed(line)] == []
    assert events.failure is None
