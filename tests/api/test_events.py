"""Events leave this process as JSON and come back the same."""

from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from copilot_runtime.api.events import Event, dump_event, load_event
from copilot_runtime.api.messages import ActivityMessage, Message, Part
from tests.in_one_test import in_one_test

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

    assert load_event(dump_event(event)) == event


@in_one_test(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"type":"nobody_knows"}',
        b'{"type":"text_message_start"}',
        b'{"type":"text_message_content","message_id":1,"content":"a"}',
    ],
)
def test_what_is_no_event_is_refused(data: bytes) -> None:
    with pytest.raises(ValidationError):
        load_event(data)
