"""JSON in which characters are cut in halves: as the standard library reads it, and as fast."""

import gc
import json
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copilot_runtime.base.jsontext import loads, replace_surrogates
from tests.in_one_test import in_one_test

HIGH, LOW = r"\ud83d", r"\uDE00"
PIECES = [
    HIGH,
    LOW,
    r"\u0041",
    r"\ud8",
    r"\u",
    r"\n",
    "\\\\",
    "\\",
    r"\"",
    '"',
    ",",
    "a",
    "ffff",
    "é",
]


@given(st.lists(st.sampled_from(PIECES), max_size=8))
def test_half_characters_are_replaced_and_nothing_else_is_changed(pieces: list[str]) -> None:
    data = f'["{"".join(pieces)}"]'
    try:
        expected = [replace_surrogates(text) for text in json.loads(data)]
    except ValueError:
        with pytest.raises(ValueError, match=r"\S"):
            loads(data.encode())
    else:
        assert loads(data.encode()) == expected


MILLIONS = {
    "lists": "[[[]]]," * 1_000_000 + f'"{HIGH}"',
    "texts": f'"{"x" * 8_000_000}{HIGH}"',
    "halves": f'"{HIGH * 1_300_000}"',
    "escapes": '"' + r"\n" * 4_000_000 + f'{HIGH}"',
    "no escapes": '"' + r"\ud8" * 1_600_000 + '"',
}


@in_one_test("text", MILLIONS.values(), ids=MILLIONS)
def test_half_a_character_makes_no_text_take_long(text: str) -> None:
    data = f"[{text}]".encode()
    gc.disable()
    began = process_time()
    try:
        loads(data)
    except ValueError:
        assert text is MILLIONS["no escapes"]
    spent = process_time() - began
    gc.enable()

    assert spent < 5  # seconds; 0.2 on a quiet machine, and minutes for quadratic work
