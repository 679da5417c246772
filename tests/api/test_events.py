"""Events leave this process as JSON and come back the same."""

import random
from typing import Any, get_args

from hypothesis import given, settings
from hypothesis import strategies as st

from copilot_runtime.adapters.scripted import call, say
from copilot_runtime.api.events import (
    ActionExecutionArgs,
    ActionExecutionResult,
    AgentState,
    Event,
    Interrupt,
    RunFailed,
    RunStarted,
    TextMessageContent,
    TextMessageStart,
    Usage,
)
from copilot_runtime.api.messages import (
    ActionExecutionMessage,
    ActivityMessage,
    AgentStateMessage,
    Message,
    Part,
    ResultMessage,
    TextMessage,
)
from copilot_runtime.api.transcript import fold_messages
from copilot_runtime.base.errors import RUN_FAILED
from copilot_runtime.threads.codec import decode, encode
from tests.in_one_test import in_one_test
from tests.transports.graphql.generated import Log, logs

EVENTS = get_args(Event)
TEXT = st.text(max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
OBJECTS = st.dictionaries(TEXT, JSON, max_size=3)


def built(kind: type[Any], **known: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return values of a class of events or messages."""
    fields = {name: known[name] for name in kind.__dataclass_fields__ if name in known}
    return st.builds(kind, **fields)


PARTS = st.lists(st.one_of([st.builds(kind) for kind in get_args(Part)]), max_size=2)


def message(kind: type[Any]) -> st.SearchStrategy[Any]:
    known = {"metadata": JSON, "extra": OBJECTS, "state": OBJECTS, "parts": PARTS}
    return built(kind, **known, **({"content": JSON} if kind is ActivityMessage else {}))


MESSAGES = st.one_of([message(kind) for kind in get_args(Message)])


def events(kind: type[Any]) -> st.SearchStrategy[Event]:
    any_json = dict.fromkeys(["value", "content", "event", "result", "metadata"], JSON)
    if kind.__name__.endswith(("Content", "ActionExecutionResult", "Signature")):
        any_json = {}  # theirs is text
    messages = st.lists(MESSAGES, max_size=3)
    return built(kind, state=OBJECTS, messages=messages, parts=PARTS, **any_json)


def test_each_event_has_a_type_of_its_own() -> None:
    types = {kind.__dataclass_fields__["type"].default for kind in EVENTS}

    assert len(types) == len(EVENTS) == 24


@in_one_test("kind", EVENTS)
@given(draw=st.data())
@settings(max_examples=15, deadline=None, database=None)
def test_an_event_survives_being_written_and_read(kind: type[Any], draw: st.DataObject) -> None:
    event = draw.draw(events(kind))
    data = encode([event])

    assert encode(decode(data, "here")) == data


def test_messages_come_in_the_order_in_which_they_began() -> None:
    events = [
        RunStarted(run_id="r", thread_id="t"),
        *say(["Let me ", "see."], id="m1"),
        *call("look", {"at": 1}, id="c1", parent_id="m1"),
        ActionExecutionResult(call_id="c1", name="look", result="nothing"),
        AgentState(agent="a", state={"n": 1}, run_id="r"),
        Usage(model="m"),
    ]

    assert fold_messages(events) == [
        TextMessage(id="m1", role="assistant", content="Let me see."),
        ActionExecutionMessage(id="c1", name="look", arguments='{"at":1}', parent_id="m1"),
        ResultMessage(id="result-c1", call_id="c1", name="look", result="nothing"),
        AgentStateMessage(
            id="r-state-3", agent="a", state={"n": 1}, run_id="r", active=True, running=True
        ),
    ]


def test_messages_that_interleave_come_apart() -> None:
    text, action = say(["one", "two"], id="m"), call("act", '{"a":1}', id="c")
    mixed = [
        event for pair in zip(text, [*action, Usage(model="m")], strict=True) for event in pair
    ]

    assert fold_messages(mixed) == [
        TextMessage(id="m", role="assistant", content="onetwo"),
        ActionExecutionMessage(id="c", name="act", arguments='{"a":1}'),
    ]


def test_a_message_cut_off_is_kept_as_far_as_it_came() -> None:
    events = [
        TextMessageStart(message_id="m"),
        TextMessageContent(message_id="m", content="I was about to"),
        RunFailed(error=RUN_FAILED),
    ]

    assert fold_messages(events) == [
        TextMessage(id="m", role="assistant", content="I was about to")
    ]


def test_a_text_whose_id_begins_again_goes_on_as_on_the_page() -> None:
    events = [*say("I look. ", id="m"), *call("look"), *say("Noon.", id="m")]

    texts = [message.content for message in fold_messages(events) if message.type == "text"]
    assert texts == ["I look. Noon."]


@in_one_test(
    "stray",
    [
        TextMessageContent(message_id="nobody", content="lost"),
        ActionExecutionArgs(call_id="nobody", delta="{"),
    ],
)
def test_a_piece_of_a_message_that_never_began_is_left_out(stray: Event) -> None:
    assert fold_messages([stray, *say("Hello")]) == fold_messages(say("Hello"))


def test_nothing_makes_no_messages() -> None:
    assert fold_messages([]) == []


@given(log=logs())
@settings(deadline=None, database=None)
def test_any_events_in_any_order_can_be_folded(log: Log) -> None:
    events: list[Event] = [
        event for event in log if not isinstance(event, Exception | str | Interrupt)
    ]
    random.Random(0).shuffle(events)

    assert len(fold_messages(events)) <= len(events)
