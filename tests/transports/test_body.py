"""The values of a body are counted before they are read."""

import json
from time import process_time
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from copilot_runtime.transports.body import has_more_values
from tests.in_one_test import in_one_test

TEXTS = st.text(st.sampled_from(['"', "\\", ",", "[", "{", "a", "\n", "\ud800"]))
VALUES = st.recursive(
    st.one_of(st.none(), st.integers(), TEXTS),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(TEXTS, inner)),
)


def count(value: Any) -> int:
    """Return how many brackets open and how many commas stand in the JSON of a value."""
    if not isinstance(value, list | dict):
        return 0
    members = [*value.values()] if isinstance(value, dict) else value
    return 1 + max(len(members) - 1, 0) + sum(map(count, members))


@given(value=VALUES, indent=st.sampled_from([None, 1]), ascii=st.booleans())
def test_commas_and_brackets_in_texts_are_no_values(
    value: Any, indent: int | None, ascii: bool
) -> None:
    data = json.dumps(value, indent=indent, ensure_ascii=ascii).encode(errors="surrogatepass")

    assert [has_more_values(data, most) for most in range(count(value) + 2)] == [
        *[True] * count(value),
        False,
        False,
    ]


@in_one_test(
    "start",
    [b'"', b'"' * 3_000_000, b'"\\', b" ", b'"a,', b'\\"', b'"\\",' * 600_000],
    ids=["text", "quotes", "backslash", "space", "commas", "not in a text", "escapes"],
)
def test_what_is_no_json_is_read_through_once(start: bytes) -> None:
    began = process_time()
    has_more_values(start + b"," * 300_000 + b" " * (4_000_000 - len(start)), 250_000)
    has_more_values(start + b" ," * 2_000_000, 1_900_000)

    assert process_time() - began < 5  # and not for hours
