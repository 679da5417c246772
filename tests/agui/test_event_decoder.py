"""A stream of AG-UI means the same, however its bytes are cut and its lines are ended."""

import json
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from copilot_runtime.agui.event_decoder import EventDecoder
from copilot_runtime.api import RunInput
from copilot_runtime.api.events import Event, TextMessageContent
from copilot_runtime.base.errors import CopilotError
from copilot_runtime.http.sse import SSEDecoder
from tests.in_one_test import in_one_test

EVENTS: list[dict[str, Any]] = [
    {"type": "RUN_STARTED", "threadId": "t", "runId": "r"},
    {"type": "REASONING_MESSAGE_CHUNK", "messageId": "r", "delta": "Hm"},
    {"type": "REASONING_ENCRYPTED_VALUE", "entityId": "r", "encryptedValue": "E"},
    {"type": "TEXT_MESSAGE_START", "messageId": "m"},
    {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "Grüße 👩🏽‍💻\n\ndata: x\u2028"},
    {"type": "STATE_SNAPSHOT", "snapshot": {"a": [1]}},
    {"type": "STATE_DELTA", "delta": [{"op": "add", "path": "/a/-", "value": 2}]},
    {"type": "TEXT_MESSAGE_END", "messageId": "m"},
    {"type": "TEXT_MESSAGE_CHUNK", "messageId": "n", "delta": "one"},
    {"type": "TEXT_MESSAGE_CHUNK", "delta": "two"},
    {"type": "TOOL_CALL_CHUNK", "toolCallId": "c", "toolCallName": "f", "delta": "{}"},
    {"type": "RUN_FINISHED", "result": 1},
]


def read(blocks: list[bytes]) -> tuple[list[Event], str | None]:
    run = RunInput(thread_id="t", run_id="r", messages=[])
    frames, incoming, events = SSEDecoder(), EventDecoder("agent", {}, run), list[Event]()
    for block in blocks:
        events += incoming.read(frames.feed(block))
        if incoming.ended:
            break
    else:
        events += incoming.read(frames.finish())
    events += incoming.finish()
    return events, incoming.failure and incoming.failure.message


def written(newline: str = "\n", *, bom: bool = False, indent: int | None = None) -> bytes:
    """Return the events as one server or another would write them."""
    lines = [json.dumps(event, ensure_ascii=False, indent=indent) for event in EVENTS]
    frames = [
        f": ping{newline}event: message{newline}"
        + "".join(f"data: {part}{newline}" for part in line.split("\n"))
        for line in lines
    ]
    return ("\ufeff" * bom + newline.join([*frames, ""])).encode()


EXPECTED = read([b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in EVENTS)])


def test_the_stream_is_read_at_all():
    events, failure = EXPECTED
    assert (len(events), failure) == (17, None)


@given(
    st.builds(
        written,
        st.sampled_from(["\n", "\r\n", "\r"]),
        bom=st.booleans(),
        indent=st.sampled_from([None, 1]),
    ),
    st.lists(st.integers(0, 1_200), max_size=12),
)
def test_any_cut_and_any_framing_gives_the_same_events(stream: bytes, cuts: list[int]):
    places = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    assert read([stream[start:end] for start, end in pairwise(places)]) == EXPECTED


@in_one_test("newline", ["\n", "\r\n", "\r"])
def test_every_byte_may_come_alone(newline: str):
    stream = written(newline)
    assert read([bytes([byte]) for byte in stream]) == EXPECTED


FIELDS = [
    "messageId", "delta", "role", "name", "toolCallId", "toolCallName", "parentMessageId",
    "content", "snapshot", "messages", "activityType", "patch", "replace", "subtype", "entityId",
    "encryptedValue", "stepName", "subagentRunId", "message", "code", "result", "outcome", "usage",
]  # fmt: skip
TYPES = [
    "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END", "TEXT_MESSAGE_CHUNK",
    "TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "TOOL_CALL_CHUNK", "TOOL_CALL_RESULT",
    "STATE_SNAPSHOT", "STATE_DELTA", "MESSAGES_SNAPSHOT", "ACTIVITY_SNAPSHOT", "ACTIVITY_DELTA",
    "RAW", "CUSTOM", "RUN_STARTED", "RUN_FINISHED", "RUN_ERROR", "STEP_STARTED", "STEP_FINISHED",
    "REASONING_START", "REASONING_MESSAGE_START", "REASONING_MESSAGE_CONTENT",
    "REASONING_MESSAGE_END", "REASONING_MESSAGE_CHUNK", "REASONING_END",
    "REASONING_ENCRYPTED_VALUE", "SUBAGENT_STARTED", "SUBAGENT_FINISHED", "SUBAGENT_ERROR",
]  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["", "a", "interrupt"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["op", "path", "value", "type", "interrupts", "id", "role"]), inner
        )
    ),
    max_leaves=5,
)


@given(
    st.lists(
        st.tuples(st.sampled_from(TYPES), st.dictionaries(st.sampled_from(FIELDS), JSON)),
        max_size=6,
    )
)
def test_nothing_an_agent_says_is_more_than_the_end_of_its_run(
    said: list[tuple[str, dict[str, Any]]],
):
    run = RunInput(thread_id="t", run_id="r", messages=[])
    incoming = EventDecoder("agent", {}, run)
    events = incoming.read([json.dumps({"type": kind, **more}).encode() for kind, more in said])
    events += incoming.finish()

    assert incoming.failure is None or isinstance(incoming.failure, CopilotError)
    assert all(
        event.content and isinstance(event.message_id, str)
        for event in events
        if isinstance(event, TextMessageContent)
    )


@given(st.binary())
def test_bytes_that_are_no_json_are_the_end_of_the_run(payload: bytes):
    run = RunInput(thread_id="t", run_id="r", messages=[])
    incoming = EventDecoder("agent", {}, run)
    assert incoming.read([payload]) == []


def test_half_a_character_is_no_reason_to_stop():
    run = RunInput(thread_id="t", run_id="r", messages=[])
    payload = b'{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"\\ud83d"}'
    assert EventDecoder("agent", {}, run).read([payload]) == [
        TextMessageContent(message_id="m", content="\ufffd")
    ]
