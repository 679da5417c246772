"""Values that are too long: what is left of them is JSON, short enough, and tells what is gone."""

import random
from typing import Any

import orjson

from copilot_runtime.telemetry.content import truncate
from tests.in_one_test import in_one_test


def measure(value: Any) -> int:
    return len(orjson.dumps(value).decode())


def test_what_is_short_enough_stays_as_it_is() -> None:
    value = {"a": [1, 2.5, True, None, "text"], "b": {"c": "d"}}
    assert truncate(value, 100) is value


def test_a_text_tells_how_much_of_it_is_gone() -> None:
    assert truncate("x" * 100, 40) == "x" * 24 + "…[+76]"


def test_long_texts_are_cut_before_short_ones() -> None:
    short = {"role": "user", "parts": [{"type": "text", "content": "Hi"}]}
    long = {"role": "user", "parts": [{"type": "text", "content": "a" * 1000}]}
    first, second = truncate([short, long], 300)
    assert first == short
    assert second["parts"][0]["content"].startswith("aaaa")


def test_a_long_list_loses_its_middle() -> None:
    cut = truncate(["one", *(str(number) for number in range(1000)), "last"], 200)
    assert (cut[0], cut[-1]) == ("one", "last")
    assert any(item.startswith("…[+") for item in cut)


def test_a_long_list_of_objects_stays_one_of_objects() -> None:
    cut = truncate([{"number": number} for number in range(1000)], 500)
    assert {"type": "omitted", "count": 1000 - len(cut) + 1} in cut


def test_an_object_with_many_members_loses_the_last() -> None:
    cut = truncate({f"key{number}": number for number in range(1000)}, 300)
    assert cut["key0"] == 0
    assert cut["…"] == f"+{1000 - len(cut) + 1}"


def test_what_is_nested_too_deeply_or_no_json_is_left_out() -> None:
    deep: Any = "bottom"
    for _ in range(100):
        deep = [deep]
    assert "…" in orjson.dumps(truncate(deep, 1000)).decode()
    assert truncate({"a": object(), "b": 1}, 1000) == {"a": "…", "b": 1}


@in_one_test("characters", [40, 100, 1000])
def test_whatever_comes_the_rest_is_short_enough(characters: int) -> None:
    draw = random.Random(characters)

    def make(depth: int) -> Any:
        kind = draw.random()
        if depth > 3 or kind < 0.3:
            return "".join(draw.choices('ab"\\\n\x01é🙂', k=draw.randrange(200)))
        if kind < 0.4:
            return draw.randrange(10**6)
        if kind < 0.7:
            return [make(depth + 1) for _ in range(draw.randrange(6))]
        names = ("".join(draw.choices('ab"', k=draw.choice((3, 300)))) for _ in range(4))
        return {name: make(depth + 1) for name in names}

    for _ in range(30):
        assert measure(truncate(make(0), characters)) <= characters
