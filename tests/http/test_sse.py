"""Events out of bytes, however they are cut."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copilot_runtime.base.errors import NetworkError
from copilot_runtime.http.sse import SSEDecoder
from tests.in_one_test import in_one_test


def frames_of(*blocks: bytes) -> list[bytes]:
    frames = SSEDecoder()
    return [data for block in blocks for data in frames.feed(block)] + frames.finish()


@st.composite
def streams(draw: st.DrawFn) -> tuple[list[bytes], bytes]:
    """Draw events and one of the many ways to write them."""
    newline = draw(st.sampled_from([b"\n", b"\r\n", b"\r"]))
    line = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), min_size=1)
    events: list[bytes] = []
    written = b""
    for lines in draw(st.lists(st.lists(line, min_size=1, max_size=3), max_size=5)):
        prefix = draw(st.sampled_from([b"", b": ping" + newline, b"event: x" + newline]))
        data = [line.encode() for line in lines]
        events.append(b"\n".join(data))
        written += prefix + b"".join(b"data: " + line + newline for line in data) + newline
    return events, written


@given(streams(), st.lists(st.integers(min_value=0, max_value=400)))
def test_events_are_found_wherever_the_bytes_are_cut(
    stream: tuple[list[bytes], bytes], cuts: list[int]
):
    events, written = stream
    places = sorted({0, len(written), *(cut for cut in cuts if cut < len(written))})

    assert frames_of(*(written[start:end] for start, end in pairwise(places))) == events


@given(streams())
def test_events_are_found_when_every_byte_comes_alone(stream: tuple[list[bytes], bytes]):
    events, written = stream
    assert frames_of(*(bytes([byte]) for byte in written)) == events


@given(st.lists(st.binary()))
def test_no_bytes_at_all_do_harm(blocks: list[bytes]):
    frames_of(*blocks)


def test_a_block_with_several_events_gives_all_of_them_at_once():
    assert SSEDecoder().feed(b"data: 1\n\ndata: 2\n\ndata: 3") == [b"1", b"2"]


@in_one_test(
    ("before", "expected"),
    [
        (b"data: a\n\n", [b"a", b"b"]),
        (b"data: a\n", [b"a\nb"]),
        (b"data: a\r", [b"a\nb"]),
        (b"data: a\r\r", [b"a", b"b"]),
        (b"data: a\n\ndata: c\n", [b"a", b"c\nb"]),
        (b"data: ", [b"data: b"]),
        (b"dat", []),
        (b"event: x\n", [b"b"]),
        (b": ping\n\n", [b"b"]),
    ],
)
def test_a_block_that_is_one_event_goes_on_where_the_last_one_ended(
    before: bytes, expected: list[bytes]
):
    assert frames_of(before, b"data: b\n\n") == expected


@in_one_test("block", [b"data: a\nx", b"data: a\rb\n\n", b"data: \n\n", b"data: \n"])
def test_a_block_that_looks_like_one_event_is_read_like_any_other(block: bytes):
    assert frames_of(block) == frames_of(*(bytes([byte]) for byte in block))


def test_data_may_lack_its_space_and_the_last_event_its_empty_line():
    assert frames_of(b"data:1\n\ndata: 2\n") == [b"1", b"2"]
    assert frames_of(b"data:1\n\ndata: 2") == [b"1", b"2"]


def test_a_byte_order_mark_is_no_part_of_the_first_event():
    assert frames_of(b"\xef\xbb\xbfdata: 1\n\n") == [b"1"]


def test_an_event_without_an_end_is_an_error_and_not_a_leak():
    frames = SSEDecoder(limit=100)
    with pytest.raises(NetworkError, match="larger than 100 bytes"):
        for _ in range(20):
            frames.feed(b"data: 12345")


def test_lines_without_an_end_are_an_error_and_not_a_leak():
    frames = SSEDecoder(limit=100)
    with pytest.raises(NetworkError, match="larger than 100 bytes"):
        for _ in range(20):
            frames.feed(b"data: 12345\n")


def test_the_limit_counts_one_event_and_not_the_stream():
    frames = SSEDecoder(limit=100)
    found = [
        data
        for _ in range(100)
        for data in frames.feed(b"data: 12\ndata: 3") + frames.feed(b"4\n\n")
    ]
    assert found == [b"12\n34"] * 100


def test_a_stream_of_events_can_be_told_from_other_text():
    comments, page = SSEDecoder(), SSEDecoder()
    comments.feed(b": ping\n\n")
    page.feed(b"Hello, I am no stream.\n\n")
    assert (comments.is_event_stream, page.is_event_stream) == (True, False)


def test_an_event_without_data_is_no_event():
    assert frames_of(b"data: \n\ndata:\n\ndata\n\ndata: 1\n\ndata: ") == [b"1"]


@in_one_test(
    ("block", "between"),
    [(b"data: 1\n\n", True), (b" \n ", True), (b"data: 1\n", False), (b"dat", False)],
)
def test_it_is_known_whether_an_event_has_begun(block: bytes, between: bool):
    frames = SSEDecoder()
    frames.feed(block)
    assert frames.is_between_events is between
