"""The bytes of a LangGraph server, cut anywhere, and those of one that never comes to an end."""

from itertools import pairwise
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copilot_runtime.base.errors import NetworkError
from copilot_runtime.extensions.frameworks.langgraph import sse
from copilot_runtime.extensions.frameworks.langgraph.sse import Frame, FrameParser
from tests.in_one_test import in_one_test

STREAM = (
    b"event: metadata\r\ndata: {}\r\nid: 1\r\n\r\n"
    b": comment\n\n\n"
    b"event: values\ndata: {\ndata: }\nid: 2\n\n"
    b"data: 3\r\n\r\nevent: cut\ndata: 4\n"
)
FRAMES = [Frame("metadata", b"{}", "1"), Frame("values", b"{\n}", "2"), Frame("", b"3", None)]


@given(cuts=st.lists(st.integers(0, len(STREAM))))
def test_frames_may_be_cut_anywhere_and_one_without_an_end_is_dropped(cuts: list[int]) -> None:
    parser = FrameParser()
    places = [0, *sorted(cuts), len(STREAM)]
    blocks = [STREAM[start:end] for start, end in pairwise(places)]

    assert [frame for block in blocks for frame in parser.feed(block)] == FRAMES


@in_one_test("block", [b"data: x\n" * 8, b"x" * 64], ids=["lines", "one line"])
def test_an_event_without_an_end_is_waited_for_only_so_long(
    block: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sse, "_LIMIT", 1000)
    parser = FrameParser()

    with pytest.raises(NetworkError, match="an event larger than 1000 bytes"):
        for _ in range(1000 // len(block) + 1):
            parser.feed(block)


def test_a_large_event_of_many_lines_is_read_once() -> None:
    parser = FrameParser()
    began = process_time()
    for _ in range(3_000):
        parser.feed(b"data: x\n" * 1_000)

    assert len(parser.feed(b"\n")[0].data) == 2 * 3_000_000 - 1
    assert process_time() - began < 20  # and not for an hour
