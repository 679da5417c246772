"""Values made of the parts of older ones are the same values, and change neither."""

import copy
from typing import Any

import orjson
from hypothesis import given

from copilot_runtime.base.jsonpatch import count_repetition, share_structure
from tests.agui.test_patch import STATES, as_json
from tests.in_one_test import in_one_test


@given(STATES, STATES)
def test_a_shared_value_is_the_same_value(old: Any, new: Any):
    before = copy.deepcopy((old, new))

    assert as_json(share_structure(old, new)) == as_json(new)
    assert orjson.dumps([old, new]) == orjson.dumps([*before])


def test_what_is_the_same_is_kept_once():
    old: Any = {"n": 1, "list": [{"id": 1}, {"id": 2}], "text": "x" * 100}
    new = copy.deepcopy(old) | {"n": 2, "text": "".join(["x" * 50, "x" * 50])}
    new["list"].append({"id": 3})

    value = share_structure(old, new)

    assert value["text"] is old["text"]
    assert [value["list"][at] is old["list"][at] for at in (0, 1)] == [True, True]
    assert value == new


@in_one_test("value", [1, "text", [], {}, [1, [2]], {"a": {"b": "c"}}])
def test_a_value_without_copies_repeats_nothing(value: Any):
    assert count_repetition(value) == 0


def test_each_place_of_a_copy_counts():
    inner = ["x" * 10]
    assert count_repetition([inner, inner, [inner]]) == 2 * (10 + 2)
