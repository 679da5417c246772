"""Compares values, and writes them as a report can show them."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from copilot_runtime.base.jsontext import dumps

_LONGEST = 200


def shorten(text: str, length: int = _LONGEST) -> str:
    """Return a text on one line, cut off where it is long, without what a terminal would obey."""
    line = "".join(it for it in " ".join(text.split()) if it.isprintable())
    return line if len(line) <= length else f"{line[: length - 1]}…"


def format_value(value: Any) -> str:
    """Return a value as JSON."""
    try:
        return dumps(value).decode()
    except (TypeError, ValueError):
        return repr(value)


def is_part(expected: Any, value: Any) -> bool:
    """Return whether a value has all that is expected: objects may have other fields."""
    if isinstance(expected, Mapping):
        fields = cast("Mapping[str, Any]", expected)
        return isinstance(value, Mapping) and all(
            name in value and is_part(it, value[name]) for name, it in fields.items()
        )
    if isinstance(expected, list | tuple):
        items = cast("Sequence[Any]", expected)
        return (
            isinstance(value, list | tuple)
            and len(cast("Sequence[Any]", value)) == len(items)
            and all(map(is_part, items, cast("Sequence[Any]", value)))
        )
    is_boolean = isinstance(expected, bool) or isinstance(value, bool)
    return expected == value and (not is_boolean or type(expected) is type(value))


def read_path(value: Any, path: str) -> Any:
    """Return what stands at a path such as `filter.limit`; None if nothing does."""
    for name in path.split("."):
        if isinstance(value, Mapping):
            value = cast("Mapping[str, Any]", value).get(name)
        elif (
            isinstance(value, list) and name.isdigit() and int(name) < len(cast("list[Any]", value))
        ):
            value = cast("list[Any]", value)[int(name)]
        else:
            return None
    return value
