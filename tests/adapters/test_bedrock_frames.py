"""Amazon's event streams, cut anywhere, damaged, and as botocore reads them."""

from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from copilot_runtime.adapters.bedrock.stream import Frames
from copilot_runtime.base.errors import NetworkError
from tests.adapters.contract.bedrock_fake import event, exception, framed, message
from tests.in_one_test import in_one_test

EVENTS = [
    ("contentBlockDelta", {"delta": {"text": "Hé 🙂"}}),
    ("metadata", {}),
    ("messageStop", {}),
]
STREAM = b"".join(event(name, value) for name, value in EVENTS)
READ = [{name: {**value, "p": "abcdefgh"}} for name, value in EVENTS]


def read(blocks: list[bytes]) -> list[Any]:
    frames = Frames()
    return [orjson.loads(payload) for block in blocks for payload in frames.feed(block)]


@given(st.lists(st.integers(min_value=0, max_value=len(STREAM)), max_size=12))
def test_a_stream_may_be_cut_anywhere(cuts: list[int]):
    places = [0, *sorted(cuts), len(STREAM)]
    assert read([STREAM[a:b] for a, b in pairwise(places)]) == READ


def test_a_stream_may_come_byte_by_byte():
    assert read([STREAM[at : at + 1] for at in range(len(STREAM))]) == READ


@given(st.integers(min_value=0, max_value=len(STREAM) - 1), st.integers(min_value=1, max_value=255))
def test_no_damage_goes_unseen(at: int, change: int):
    damaged = bytearray(STREAM)
    damaged[at] ^= change
    with pytest.raises(NetworkError):
        read([bytes(damaged)])


@given(
    st.lists(
        st.tuples(
            st.from_regex(r"[a-zA-Z]{1,20}", fullmatch=True),
            st.dictionaries(st.text(max_size=5), st.text(max_size=20), max_size=3),
        )
    )
)
def test_botocore_reads_the_same(events: list[tuple[str, dict[str, str]]]):
    eventstream: Any = pytest.importorskip("botocore.eventstream")
    stream = b"".join(event(name, value) for name, value in events)
    buffer = eventstream.EventStreamBuffer()
    buffer.add_data(stream)
    theirs = [{found.headers[":event-type"]: orjson.loads(found.payload)} for found in buffer]
    assert read([stream]) == theirs


def test_an_exception_keeps_its_name():
    assert read([exception("throttlingException", "Slow down.")]) == [
        {"throttlingException": {"message": "Slow down."}}
    ]


def test_an_error_is_all_in_its_headers():
    headers = {":message-type": "error", ":error-code": "InternalError", ":error-message": "Oh."}
    assert read([message(headers, b"")]) == [{"error": {"message": "Oh.", "code": "InternalError"}}]


def test_a_message_without_a_kind_is_passed_over():
    assert read([message({":other": "x"}, b"{}") + STREAM]) == READ


def test_headers_that_are_no_strings_are_passed_over():
    extra = b"".join(
        [
            b"\x01t\x00",  # true
            b"\x01i\x04\x00\x00\x00\x01",  # a number
            b"\x01b\x06\x00\x02hi",  # bytes
        ]
    )
    plain = message({":message-type": "event", ":event-type": "metadata"}, b"{}")
    size = int.from_bytes(plain[4:8], "big")
    longer = framed(extra + plain[12 : 12 + size], b"{}")
    assert read([longer]) == [{"metadata": {}}]


def test_another_text_is_no_event_stream():
    with pytest.raises(NetworkError, match="not an event stream"):
        read([b"<html>Nothing to see here.</html>"])


def test_a_message_beyond_the_limit_is_not_waited_for():
    frames = Frames(limit=1_000)
    with pytest.raises(NetworkError, match="2016 bytes"):
        frames.feed(message({}, b"x" * 2_000)[:100])


@in_one_test("headers", [b"\x05ab", b"\x02\xff\xfe\x07\x00\x00"])
def test_headers_cut_short_are_an_error(headers: bytes):
    with pytest.raises(NetworkError, match="unreadable headers"):
        read([framed(headers, b"{}")])
