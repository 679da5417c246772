"""Find what changed between two states: mostly a few keys, or items at the end of a list.

Made for states that are streamed by tokens, where the same difference is asked for many times a
second: what both values share is not looked into.
"""

from typing import Any

import orjson

_MAX_MOVES = 1_000_000
"""Items that changes of one list may push aside. It is replaced before that."""


def find_difference(old: Any, new: Any, path: str = "") -> list[dict[str, Any]]:
    """Return the operations (RFC 6902) that make `new` out of `old`.

    Raises `RecursionError` for what is nested too deeply.
    """
    operations: list[dict[str, Any]] = []
    _compare(old, new, path, operations)
    return operations


def is_same_json(one: Any, other: Any) -> bool:
    """Return whether two values are the same JSON: 1 is 1.0, and neither is true."""
    if one is other:
        return True
    if one != other:
        return False
    if type(one) is type(other) and not isinstance(one, (dict, list, tuple)):
        return True
    try:
        # Python takes 1 for True, also deep inside; that the text is the same is quickly seen
        if orjson.dumps(one) == orjson.dumps(other):
            return True
    except TypeError:
        pass
    return _same_slowly(one, other)


def _same_slowly(one: Any, other: Any) -> bool:
    """Look for what only Python takes for the same, in two values that are equal."""
    if isinstance(one, dict) and isinstance(other, dict):
        return all(_same_slowly(value, other[key]) for key, value in one.items())
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return all(map(_same_slowly, one, other))
    return isinstance(one, bool) == isinstance(other, bool)


def _compare(old: Any, new: Any, path: str, operations: list[dict[str, Any]]) -> None:
    if old is new:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        _compare_objects(old, new, path, operations)
    elif isinstance(old, list) and isinstance(new, list):
        _compare_lists(old, new, path, operations)
    elif not is_same_json(old, new):
        operations.append({"op": "replace", "path": path, "value": new})


def _compare_objects(
    old: dict[str, Any], new: dict[str, Any], path: str, operations: list[dict[str, Any]]
) -> None:
    for key, value in old.items():
        if key not in new:
            operations.append({"op": "remove", "path": f"{path}/{_escape(key)}"})
        elif value is not new[key]:
            _compare(value, new[key], f"{path}/{_escape(key)}", operations)
    for key, value in new.items():
        if key not in old:
            operations.append({"op": "add", "path": f"{path}/{_escape(key)}", "value": value})


def _compare_lists(
    old: list[Any], new: list[Any], path: str, operations: list[dict[str, Any]]
) -> None:
    """Take away what both begin and end with; what is left was changed, added or removed."""
    start, shorter = 0, min(len(old), len(new))
    while start < shorter and is_same_json(old[start], new[start]):
        start += 1
    end, longest = 0, shorter - start
    while end < longest and is_same_json(old[-1 - end], new[-1 - end]):
        end += 1
    changed = longest - end
    if end * abs(len(old) - len(new)) > _MAX_MOVES:
        operations.append({"op": "replace", "path": path, "value": new})
        return
    for at in range(start, start + changed):
        _compare(old[at], new[at], f"{path}/{at}", operations)
    at = start + changed
    for _ in range(len(old) - end - at):
        operations.append({"op": "remove", "path": f"{path}/{at}"})
    added = new[at : len(new) - end]
    for offset, value in enumerate(added):
        place = f"{at + offset}" if end else "-"
        operations.append({"op": "add", "path": f"{path}/{place}", "value": value})


def _escape(key: str) -> str:
    key = str(key)
    return key.replace("~", "~0").replace("/", "~1") if "~" in key or "/" in key else key
