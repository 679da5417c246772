"""What we write and read is what others say of the protocol: its own package for Python (1.0),
and a referee from outside.
"""

import json
from collections.abc import Sequence
from typing import Any

from ag_ui.core import Event as TheirEvent
from ag_ui.core import RunAgentInput
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from copilot_runtime.api import Caller, RunInput
from copilot_runtime.api.events import (
    LAST,
    ActionExecutionStart,
    Event,
    RunFinished,
    TextMessageStart,
)
from copilot_runtime.api.messages import TextMessage
from copilot_runtime.base.jsontext import replace_surrogates
from copilot_runtime.transports.agui.decode import run_input
from tests.in_one_test import in_one_test
from tests.orders import any_runs, encoded
from tests.referee import find_faults

THEIRS: TypeAdapter[Any] = TypeAdapter(TheirEvent)


@given(events=any_runs(), legacy=st.booleans())
@settings(database=None)
def test_every_event_we_write_is_one_of_the_protocol(events: Any, legacy: bool) -> None:
    for event in encoded(events, legacy=legacy):
        # their parser takes no half characters, which a browser joins
        THEIRS.validate_json(replace_surrogates(json.dumps(event, ensure_ascii=False)))


@given(events=any_runs(), legacy=st.booleans())
@settings(database=None)
def test_a_referee_from_outside_finds_no_fault_with_any_run(events: Any, legacy: bool) -> None:
    ended = events if isinstance(events[-1], LAST) else [*events, RunFinished()]
    ended = begin_each_once(ended)

    assert find_faults(encoded(ended, legacy=legacy)) == []


def begin_each_once(events: Sequence[Event]) -> list[Event]:
    """Leave out what begins a text or a call again, which clients take and the referee does not."""
    begun: set[str] = set()
    kept: list[Event] = []
    for event in events:
        if isinstance(event, TextMessageStart | ActionExecutionStart):
            id = event.message_id if isinstance(event, TextMessageStart) else event.call_id
            if id in begun:
                continue
            begun.add(id)
        kept.append(event)
    return kept


def test_the_referee_finds_faults() -> None:
    faults = find_faults([{"type": "TEXT_MESSAGE_START", "messageId": "m"}])

    assert [fault.partition(":")[0] for fault in faults] == ["AGUI001", "AGUI003", "AGUI103"]


TEXTS = st.text(max_size=10)
TOOL = {"name": "t", "description": "", "parameters": {"type": "object"}}


def decoded(body: Any) -> RunInput:
    return run_input(body, Caller(), agent=None, max_messages=10)


@given(text=TEXTS, state=st.dictionaries(TEXTS, TEXTS), props=st.dictionaries(TEXTS, TEXTS))
@settings(database=None)
def test_their_request_is_read_whole(text: str, state: Any, props: Any) -> None:
    theirs = RunAgentInput.model_validate(
        {
            "threadId": "t",
            "runId": "r",
            "messages": [{"id": "1", "role": "user", "content": text}],
            "tools": [TOOL],
            "context": [{"description": "who", "value": text}],
            "state": state,
            "forwardedProps": props,
            "protocolVersion": "1.0",
        }
    )
    run = decoded(theirs.model_dump(mode="json", by_alias=True))

    assert run.messages == [TextMessage(id="1", role="user", content=text)]
    assert (run.thread_id, run.run_id) == ("t", "r")
    assert run.agents["default"].state == state
    assert run.properties == props
    assert run.context[0].value == text
    assert run.actions[0].name == "t"


@in_one_test("status", ["resolved", "cancelled"])
def test_their_answers_to_interrupts_are_read(status: str) -> None:
    answer = {"interruptId": "i", "status": status, "payload": {"yes": True}}
    fields = {"threadId": "t", "runId": "r", "messages": [], "tools": [], "context": []}
    given = {**fields, "state": {}, "forwardedProps": {}, "resume": [answer]}
    theirs = RunAgentInput.model_validate(given)

    (read,) = decoded(theirs.model_dump(mode="json", by_alias=True)).resume

    assert (read.interrupt_id, read.status, read.payload) == ("i", status, {"yes": True})
