"""Patches of states: made, applied, and compared with a library that knows RFC 6902 well."""

import copy
from typing import Any

import jsonpatch
import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from copilot_runtime.base.jsonpatch import (
    apply_patch,
    count_repetition,
    make_patch,
    share_structure,
)
from tests.in_one_test import in_one_test

KEYS = st.sampled_from(["a", "b", "~", "/", "~1", "", "0", "-", "ü"])
LEAVES = st.none() | st.booleans() | st.integers(0, 1) | st.just(1.0) | st.text("ab", max_size=2)
STATES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
PATHS = st.lists(KEYS | st.sampled_from(["1", "2"]), max_size=3).map(
    lambda keys: "".join("/" + key.replace("~", "~0").replace("/", "~1") for key in keys)
)
OPERATIONS = st.one_of(
    st.fixed_dictionaries(
        {"op": st.sampled_from(["add", "replace", "test"]), "path": PATHS, "value": STATES}
    ),
    # nothing at all may be left of a state, says the JavaScript library, unlike the one in Python
    st.fixed_dictionaries({"op": st.just("remove"), "path": PATHS.filter(bool)}),
    st.fixed_dictionaries({"op": st.sampled_from(["move", "copy"]), "path": PATHS, "from": PATHS}),
)
ANY_ORDER = orjson.OPT_SORT_KEYS


def as_json(value: Any) -> bytes:
    """Return a text that tells 1 from true; 1.0 is 1."""
    return orjson.dumps(value, option=ANY_ORDER).replace(b"1.0", b"1")


def difference(old: Any, new: Any) -> list[dict[str, Any]]:
    """Return the patch, with so much beside it that no snapshot is as short."""
    patch = make_patch({"state": old, "long": "x" * 10_000}, {"state": new, "long": "x" * 10_000})
    assert patch is not None
    return patch


@given(STATES, STATES)
def test_a_patch_makes_the_new_state_out_of_the_old(old: Any, new: Any):
    before = copy.deepcopy((old, new))

    patched = apply_patch({"state": old}, difference(old, new))

    assert as_json(patched) == as_json({"state": new})
    assert (old, new) == before


POINTS = [{"x": at, "label": f"a point with a long name, number {at}"} for at in range(100_000)]


@in_one_test(
    "changed",
    [
        [{**point, "x": -1} for point in POINTS[:3_000]] + POINTS[3_000:],
        POINTS[1_500:],
        [*POINTS[1_500:3_000], *POINTS],
    ],
    ids=["many changes", "fewer at the start", "more at the start"],
)
def test_no_patch_is_made_that_is_too_much_to_apply(changed: Any):
    old, new = {"points": POINTS}, {"points": changed}
    patch = make_patch(old, new)
    assert patch is None or apply_patch(old, patch) == new


@given(STATES, STATES)
def test_others_read_our_patches_as_we_do(old: Any, new: Any):
    patched = jsonpatch.apply_patch({"state": old}, difference(old, new))
    assert as_json(patched) == as_json({"state": new})


@given(STATES, st.lists(OPERATIONS, max_size=4))
@example({"a": [1]}, [{"op": "copy", "from": "/a", "path": "/b"}, {"op": "remove", "path": "/a/0"}])
@example({"a": {}}, [{"op": "move", "from": "/a", "path": "/b"}, {"op": "remove", "path": "/b"}])
def test_we_apply_patches_as_others_do_and_leave_the_old_value_alone(
    state: Any, operations: list[dict[str, Any]]
):
    state = {"a": state, "0": [state]}
    before, as_given = separate(state), separate(operations)

    ours = outcome(lambda: apply_patch(state, operations))

    theirs = outcome(lambda: jsonpatch.apply_patch(before, separate(operations)))
    assert ours == theirs
    assert (as_json(state), operations) == (as_json(before), as_given)


def separate(value: Any) -> Any:
    """Return a copy in which nothing is in two places."""
    return orjson.loads(orjson.dumps(value))


def outcome(apply: Any) -> bytes | None:
    try:
        return as_json(apply())
    except (ValueError, jsonpatch.JsonPatchException, jsonpatch.JsonPointerException, TypeError):
        return None


LONG = "x" * 100


@in_one_test(
    ("old", "new", "patch"),
    [
        ({"n": LONG}, {"n": LONG}, []),
        (
            {"items": [LONG]},
            {"items": [LONG, "b", "c"]},
            [
                {"op": "add", "path": "/items/-", "value": "b"},
                {"op": "add", "path": "/items/-", "value": "c"},
            ],
        ),
        (
            {"items": [LONG, "b"]},
            {"items": ["a", LONG, "b"]},
            [{"op": "add", "path": "/items/0", "value": "a"}],
        ),
        (
            {"items": ["a", "b", LONG]},
            {"items": [LONG]},
            [{"op": "remove", "path": "/items/0"}, {"op": "remove", "path": "/items/0"}],
        ),
        (
            {"items": [LONG, {"text": "Hel", "n": 1}]},
            {"items": [LONG, {"text": "Hello", "n": 1}]},
            [{"op": "replace", "path": "/items/1/text", "value": "Hello"}],
        ),
        (
            {"long": LONG, "gone": 1, "old": 2},
            {"new": 3, "long": LONG, "old": 4},
            [
                {"op": "remove", "path": "/gone"},
                {"op": "replace", "path": "/old", "value": 4},
                {"op": "add", "path": "/new", "value": 3},
            ],
        ),
        ({"long": LONG, "n": 1}, {"long": LONG, "n": 1.0}, []),
        (
            {"long": LONG, "deep": [{"n": 1}]},
            {"long": LONG, "deep": [{"n": True}]},
            [{"op": "replace", "path": "/deep/0/n", "value": True}],
        ),
        (
            {LONG: {"a/b": {"c~d": 1}}},
            {LONG: {"a/b": {"c~d": 2}}},
            [{"op": "replace", "path": f"/{LONG}/a~1b/c~0d", "value": 2}],
        ),
        (
            {"long": LONG * 2, "a/b": {"c~d": 1}},
            {"long": LONG * 2, "a/b": {"c~d": 2}},
            [{"op": "replace", "path": "/a~1b/c~0d", "value": 2}],
        ),
        ([LONG], [LONG, 1], [{"op": "add", "path": "/-", "value": 1}]),
    ],
)
def test_a_patch_says_what_changed_and_no_more(old: Any, new: Any, patch: Any):
    assert make_patch(old, new) == patch


def test_a_long_patch_gives_way_to_a_shorter_snapshot():
    old = {f"key {number}": "a" * 100 for number in range(40)}
    new = dict.fromkeys(old, "b")

    assert make_patch(old, new) is None
    assert make_patch(old, {**old, "key 1": "b"}) is not None


def nested(depth: int, leaf: Any) -> Any:
    for _ in range(depth):
        leaf = {"in": leaf}
    return leaf


def test_a_state_too_deep_to_compare_is_sent_whole():
    assert make_patch(nested(5_000, 1), nested(5_000, 2)) is None


def test_a_path_may_be_as_deep_as_it_likes():
    path = "/in" * 5_000
    patched = apply_patch(nested(5_000, 1), [{"op": "replace", "path": path, "value": 2}])
    for _ in range(5_000):
        patched = patched["in"]
    assert patched == 2


def test_what_a_patch_does_not_touch_is_shared():
    old = {"big": {"a": [1]}, "n": 1}
    new = apply_patch(old, [{"op": "replace", "path": "/n", "value": 2}])
    assert new["big"] is old["big"]
    assert old["n"] == 1


@in_one_test(
    ("operation", "complaint"),
    [
        (
            {"op": "replace", "path": "/missing/deep", "value": 1},
            "replace /missing/deep: there is no 'missing'",
        ),
        ({"op": "remove", "path": "/b"}, "remove /b: there is no 'b'"),
        (
            {"op": "add", "path": "/n/x", "value": 1},
            "add /n/x: there is nothing that could have a 'x'",
        ),
        ({"op": "add", "path": "/items/2", "value": 1}, "add /items/2: the list ends before '2'"),
        ({"op": "remove", "path": "/items/-"}, "remove /items/-: there is no '-'"),
        (
            {"op": "add", "path": "/items/01", "value": 1},
            "add /items/01: '01' is no place in a list",
        ),
        ({"op": "add", "path": "/items/²", "value": 1}, "add /items/²: '²' is no place in a list"),
        (
            {"op": "add", "path": "/items/" + "9" * 5000, "value": 1},
            "the list ends before",
        ),
        ({"op": "add", "path": "items", "value": 1}, "add items: its 'path' must begin with '/'"),
        ({"op": "add", "value": 1}, "add: its 'path' must be a string"),
        ({"op": "move", "path": "/x"}, "move /x: its 'from' must be a string"),
        (
            {"op": "move", "path": "/items/0", "from": "/items"},
            "move /items/0: nothing can be moved into itself",
        ),
        ({"op": "add", "path": "/x"}, "add /x: it has no value"),
        ({"op": "test", "path": "/n", "value": True}, "test /n: the value is another one"),
        ({"op": "dance", "path": "/n"}, "dance /n: there is no operation 'dance'"),
        ({"path": "/n"}, "/n: there is no operation None"),
        ("add", "operation: it is no object"),
    ],
)
def test_what_does_not_apply_is_said(operation: Any, complaint: str):
    with pytest.raises(ValueError) as caught:
        apply_patch({"n": 1, "items": [1]}, [operation])
    assert complaint in str(caught.value)


@in_one_test(
    "operation",
    [
        {"op": "move", "from": "/items/0", "path": "/items/-"},
        {"op": "add", "path": "/items/0", "value": 1},
        {"op": "test", "path": "/n", "value": 1},
    ],
)
def test_a_patch_has_a_limited_number_of_operations(operation: Any):
    assert apply_patch({"n": 1, "items": [1]}, [operation] * 2_000)["n"] == 1
    with pytest.raises(ValueError, match="it has 2001 operations; 2000 are allowed"):
        apply_patch({"n": 1, "items": [1]}, [operation] * 2_001)


@in_one_test(
    "patch",
    [
        [{"op": "add", "path": "/0", "value": 1}],
        [{"op": "remove", "path": "/0"}],
        [{"op": "move", "from": "/0", "path": "/-"}],
        [{"op": "copy", "from": "/0", "path": "/-"}, {"op": "replace", "path": "/0", "value": 2}],
    ],
    ids=["add", "remove", "move", "copy"],
)
def test_a_patch_may_push_aside_only_so_many_items(patch: list[Any]):
    assert apply_patch([1] * 1_000_000, patch)
    with pytest.raises(ValueError, match="too many changes of long lists or objects"):
        apply_patch([1] * 1_000_000, patch * 100)


BOMB = [{"op": "copy", "from": "/a", "path": "/a/-"}]


def exploded(patches: list[list[dict[str, Any]]]) -> str:
    state: Any = {"a": ["x" * 100]}
    try:
        for patch in patches:
            state = apply_patch(state, patch)
    except ValueError as error:
        return str(error)
    return ""


@in_one_test("patches", [[BOMB] * 40, [BOMB * 40]], ids=["many patches", "one patch"])
def test_copies_of_copies_end_before_they_cannot_be_written(patches: list[list[dict[str, Any]]]):
    assert exploded(patches) == "copy /a/-: the copies are too large"


def test_copies_of_a_long_text_end_as_well():
    patch = [{"op": "copy", "from": "/a", "path": "/b"}, {"op": "copy", "from": "/b", "path": "/c"}]
    with pytest.raises(ValueError, match="copy /c: the copies are too large"):
        apply_patch({"a": ["x" * 600_000]}, patch)


def test_a_large_state_may_have_copies_of_something_small():
    state = {"big": ["x"] * 2_000_000, "a": [1]}
    assert apply_patch(state, [{"op": "copy", "from": "/a", "path": "/b"}])["b"] == [1]


def test_copies_do_not_nest_without_end():
    patch = [{"op": "copy", "from": "", "path": "/a" * depth} for depth in range(1, 300)]
    with pytest.raises(ValueError, match="nested too deeply"):
        apply_patch({}, patch)


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
