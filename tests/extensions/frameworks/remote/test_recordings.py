"""What the Python SDK 0.1.67 really sends for a LangGraph agent, and what we make of it.

The lines in `recordings/` were written by a graph behind `add_fastapi_endpoint`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from copilot_runtime.api import RunInput
from copilot_runtime.api.events import AgentState, Event, Interrupt
from copilot_runtime.api.messages import TextMessage
from copilot_runtime.event_order.verify import verify_events
from copilot_runtime.extensions.frameworks.remote.translate import RemoteEventDecoder
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
