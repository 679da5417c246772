"""Compute the difference of two JSON values as JSON Patch operations (RFC 6902).

Optimised for states that are streamed token by token, mostly with a few changed keys or items
appended to a list: objects that both values share by identity are not compared.
"""

from typing import Any

import orjson

_MAX_MOVES = 1_000_000
"""Maximum number of items that the changes of one list may shift; beyond it, replace the list."""


def find_difference(old: Any, new: Any, path: str = "") -> list[dict[str, Any]]:
    """Return the operations (RFC 6902) that make `new` out of `old`.

    Raises `RecursionError` for values that are nested too deeply.
    """
    operations: list[dict[str, Any]] = []
    _compare(old, new, path, operations)
    return operations


def is_same_json(one: Any, other: Any) -> bool:
    """Return whether two values are equal as JSON: 1 equals 1.0, but not true."""
    if one is other:
        return True
    if one != other:
        return False
    if type(one) is type(other) and not isinstance(one, (dict, list, tuple)):
        return True
    try:
        # in Python 1 == True, also in nested values; comparing the serialised text is fast
        if orjson.dumps(one) == orjson.dumps(other):
            return True
    except TypeError:
        pass
    return _same_slowly(one, other)


def _same_slowly(one: Any, other: Any) -> bool:
    """Compare two equal values recursively; a boolean never equals a number."""
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
    """Skip the common prefix and suffix; compare, remove or add the items in between."""
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
        index = f"{at + offset}" if end else "-"
        operations.append({"op": "add", "path": f"{path}/{index}", "value": value})


def _escape(key: str) -> str:
    key = str(key)
    return key.replace("~", "~0").replace("/", "~1") if "~" in key or "/" in key else key
