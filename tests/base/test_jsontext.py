"""JSON in which characters are cut in halves: as the standard library reads it, and as fast."""

import gc
import json
from time import process_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copilot_runtime.base.jsonstream import JsonPart, JsonReader
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
        assert text.count("\\") > 1_000_000
    spent = process_time() - began
    gc.enable()

    assert spent < 5  # seconds; 0.2 on a quiet machine, and minutes for quadratic work


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda children: st.lists(children, max_size=4) | st.dictionaries(TEXTS, children, max_size=4),
    max_leaves=20,
)  # fmt: skip
PATHS = (("*",), ("*", "*"), ("data", "*", "*"))


def read(text: str, size: int, paths: Any = PATHS) -> tuple[JsonReader, list[JsonPart]]:
    """Feed a text in pieces of a size."""
    reader = JsonReader(paths)
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    return reader, [part for piece in pieces for part in reader.feed(piece)]


@given(st.dictionaries(TEXTS, VALUES, max_size=5), st.integers(1, 9), st.booleans())
def test_values_are_what_json_says_wherever_they_are_cut(
    value: dict[str, Any], size: int, is_ascii: bool
) -> None:
    reader, parts = read(json.dumps(value, ensure_ascii=is_ascii, indent=1), size)
    ends = {part.path: part.value for part in parts if part.kind == "end"}

    assert (reader.error, reader.is_complete) == (None, True)
    assert {path[0]: found for path, found in ends.items() if len(path) == 1} == value
    for path, found in ends.items():
        expected: Any = value
        for step in path:
            expected = expected[step]
        assert found == expected


@given(st.dictionaries(TEXTS, TEXTS, max_size=5), st.integers(1, 9))
def test_the_pieces_of_a_text_are_the_text(value: dict[str, str], size: int) -> None:
    _, parts = read(json.dumps(value), size)
    texts = dict.fromkeys(value, "")
    for part in parts:
        if part.kind == "text":
            texts[str(part.path[0])] += part.value

    assert texts == value


def test_a_text_is_told_as_it_comes() -> None:
    reader = JsonReader()

    assert reader.feed('{"a": "x') == [(("a",), "begin", "string"), (("a",), "text", "x")]
    assert reader.feed("y\\u00") == [(("a",), "text", "y")]
    assert reader.feed('e9"') == [(("a",), "text", "é"), (("a",), "end", "xyé")]
    assert not reader.is_complete


@in_one_test(
    ("text", "error"),
    [
        ("[1]", "An object is expected at character 1."),
        ('{"a" 1}', "A colon is expected, and not '1' at character 6."),
        ('{"a": oops}', "'o' is not expected at character 7."),
        ('{"a": 1,}', "'}' is not expected at character 9."),
        ('{"a": "\\x"}', "'\\x' is no escape at character 8."),
        ('{"a": 01}', "'01' is no value at character 8."),
        ('{"a": NaN}', "'N' is not expected at character 7."),
        ('{"a": "\n"}', "A control character stands in a text at character 8."),
        ('{} {}', "Something stands behind the object at character 4."),
        ('{"a":' + "[" * 300, "There are more than 200 values inside each other at character 205."),
    ],
)  # fmt: skip
@in_one_test("size", [1, 3, 1000])
def test_what_is_no_json_is_an_error_with_its_place(text: str, error: str, size: int) -> None:
    reader, _ = read(text, size)

    assert reader.error == error
    assert reader.feed('"more"') == []


def test_what_is_not_complete_is_no_error() -> None:
    reader, parts = read('{"a": 1, "b": [1, 2', 4)

    assert (reader.error, reader.is_complete) == (None, False)
    assert (("a",), "end", 1) in parts


def test_half_a_pair_of_escapes_is_a_replacement_character() -> None:
    _, parts = read('{"a": "\\ud83dx\\ude00\\ud83d\\ude00"}', 1)

    assert parts[-1] == (("a",), "end", "\ufffdx\ufffd😀")


def test_a_reader_that_lags_reports_texts_and_arrays_with_what_follows() -> None:
    reader = JsonReader((("*",), ("list", "*")), lags=True)
    pieces = ['{"a":"x"', " ", ',"list":[', '"y"', "]}"]
    found = [[(part.kind, part.value) for part in reader.feed(piece)] for piece in pieces]

    assert found == [
        [("begin", "string"), ("text", "x")],
        [],
        [("end", "x")],
        [("begin", "array"), ("begin", "string"), ("text", "y")],
        [("end", "y"), ("end", ["y"])],
    ]
