"""Shorten a result until a model can take it: rows first, then cells, always valid JSON."""

from collections.abc import Mapping
from typing import cast

from copilot_runtime.base.jsontext import dumps
from copilot_runtime.base.jsonvalue import JsonList, JsonObject, JsonValue

MAX_CHARACTERS = 6_000
"""Of a result, as JSON."""

FEWEST_ROWS = 10
"""As long as fewer would be left, cells are shortened instead."""

_CELLS = (1_000, 300, 120, 60, 30, 12)
"""Characters of a text, tried one after the other."""

_MAX_ITEMS = 8
"""Items of a list or of an object inside a cell that is shortened."""


def fit_output(output: JsonObject, most: int = MAX_CHARACTERS) -> JsonObject:
    """Return an output of at most `most` characters; one that fits is returned as it is.

    What is left out shows in `returned`, `total_rows` and `truncated`.
    """
    if count_characters(output) <= most:
        return output
    key = _find_rows(output)
    if key is not None:
        output = _write_compactly(output, key)
        if count_characters(output) <= most:
            return output
    for length in (None, *_CELLS):
        cut = output if length is None else cast("JsonObject", _shorten(output, length))
        if key is None:
            cut = {**cut, "truncated": True}
            if count_characters(cut) <= most:
                return cut
            continue
        total = len(cast("JsonList", output[key]))
        count = _count_rows(cut, key, most)
        if count >= min(total, FEWEST_ROWS if length != _CELLS[-1] else 1):
            return _take_rows(cut, key, count)
    return _drop_members(output, most)


def count_characters(value: JsonValue) -> int:
    """Return how long a value is as JSON."""
    return len(dumps(value).decode())


def _find_rows(output: JsonObject) -> str | None:
    """Return the key of the longest list."""
    lists = [key for key, value in output.items() if isinstance(value, list) and len(value) > 1]
    return max(lists, key=lambda key: count_characters(output[key]), default=None)


def _write_compactly(output: JsonObject, key: str) -> JsonObject:
    """Return an output whose rows are lists, with the names of their columns once, if they can."""
    rows = cast("JsonList", output[key])
    names = list(cast("JsonObject", rows[0])) if isinstance(rows[0], dict) else []
    if not names or any(not isinstance(row, dict) or list(row) != names for row in rows):
        return output
    cells = [list(cast("JsonObject", row).values()) for row in rows]
    columns: JsonObject = {} if "columns" in output else {"columns": names}
    return {**output, **columns, key: cells}


def _take_rows(output: JsonObject, key: str, count: int) -> JsonObject:
    rows = cast("JsonList", output[key])
    counts: JsonObject = {"returned": count, "truncated": True}
    if output.get("total_rows") is None and "total_rows" not in output:
        counts["total_rows"] = len(rows)
    return {**output, key: rows[:count], **counts}


def _count_rows(output: JsonObject, key: str, most: int) -> int:
    """Return how many rows fit: the search halves what is left."""
    low, high = 0, len(cast("JsonList", output[key]))
    while low < high:
        middle = (low + high + 1) // 2
        if count_characters(_take_rows(output, key, middle)) <= most:
            low = middle
        else:
            high = middle - 1
    return low


def _shorten(value: JsonValue, length: int, depth: int = 0) -> JsonValue:
    """Return a value with texts of at most `length` characters, and short lists inside cells."""
    if isinstance(value, str):
        return value if len(value) <= length else value[: length - 1] + "…"
    if isinstance(value, list):
        items = cast("JsonList", value)
        if depth > 2:
            items = items[:_MAX_ITEMS]
        return [_shorten(item, length, depth + 1) for item in items]
    if isinstance(value, Mapping):
        members = list(cast("JsonObject", value).items())
        if depth > 2:
            members = members[:_MAX_ITEMS]
        return {
            key if depth == 0 else _shorten(key, max(length, 60)): _shorten(item, length, depth + 1)
            for key, item in members
        }
    return value


def _drop_members(output: JsonObject, most: int) -> JsonObject:
    """Return what is small of an output: one row of thousands of columns may be too large."""
    small: JsonObject = {
        "truncated": True,
        "note": "Too large: ask for fewer columns.",
    }
    for key, value in sorted(output.items(), key=lambda item: count_characters(item[1])):
        if count_characters({**small, key: value}) <= most:
            small[key] = value
    return small
