"""Read decoded JSON: leniently (`as_…`), or with an error that names the place (`require_…`)."""

from collections.abc import Mapping
from typing import Any

from copilot_runtime.base.errors import Misuse
from copilot_runtime.base.jsontext import dumps, loads

JsonValue = Any
"""What JSON can hold: an object, a list, a text, a number, a boolean or null."""

JsonObject = dict[str, JsonValue]
JsonList = list[JsonValue]


def as_object(value: JsonValue) -> JsonObject:
    """Return an object as it is, and an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def as_list(value: JsonValue) -> JsonList:
    """Return a list as it is, and an empty one for anything else."""
    return value if isinstance(value, list) else []


def as_objects(value: JsonValue) -> list[JsonObject]:
    """Return the objects of a list; its other items are left out. No list has none."""
    return [item for item in as_list(value) if isinstance(item, dict)]


def as_text(value: JsonValue) -> str:
    """Return a text as it is, and an empty one for anything else."""
    return value if isinstance(value, str) else ""


def as_optional_text(value: JsonValue) -> str | None:
    """Return a text as it is, and None for anything else."""
    return value if isinstance(value, str) else None


def as_count(value: JsonValue) -> int | None:
    """Return how many of something there are, also from the text of a number; else None."""
    if isinstance(value, str | float):
        try:
            value = int(value)
        except (ValueError, OverflowError):  # no number, or too long a one
            return None
    return value if type(value) is int and value >= 0 else None


def add_counts(fields: Mapping[str, JsonValue], *keys: str) -> int | None:
    """Return the sum of those counts that an object has, or None if it has none of them."""
    counts = [count for key in keys if (count := as_count(fields.get(key))) is not None]
    return sum(counts) if counts else None


def get_object(value: JsonValue, *keys: str) -> JsonObject:
    """Return the object at the end of a path of keys, or an empty one if there is none."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return as_object(value)


def get_text(fields: Mapping[str, JsonValue], key: str) -> str:
    """Return the text `key` of an object, or an empty one if there is none."""
    return as_text(fields.get(key))


def drop_none(fields: Mapping[str, JsonValue]) -> JsonObject:
    """Return an object without the members that are None."""
    return {name: value for name, value in fields.items() if value is not None}


def parse_text(value: JsonValue) -> JsonValue:
    """Return the value of a text that is JSON; any other value is returned as it is."""
    if not isinstance(value, str):
        return value
    try:
        return loads(value.encode(errors="replace"))
    except ValueError:
        return value


def parse_object(text: str) -> JsonObject:
    """Read the text of a JSON object; anything else, JSON or not, is an empty one."""
    return as_object(parse_text(text))


def to_text(value: JsonValue) -> str:
    """Return a text as it is, and any other value as JSON."""
    return value if isinstance(value, str) else dumps(value).decode()


def require_object(value: JsonValue, where: str) -> JsonObject:
    """Return the object found at `where`. Raises `Misuse` for anything else."""
    if not isinstance(value, dict):
        raise Misuse(f"{where} must be an object.")
    return value


def require_list(value: JsonValue, where: str) -> JsonList:
    """Return the list found at `where`. Raises `Misuse` for anything else."""
    if not isinstance(value, list):
        raise Misuse(f"{where} must be a list.")
    return value


def require_text(fields: Mapping[str, JsonValue], key: str, where: str = "") -> str:
    """Return the text `key` of the object at `where`, which is empty for the outermost.

    Raises `Misuse` if there is no such text.
    """
    value = fields.get(key)
    if not isinstance(value, str):
        raise Misuse(f"{where}.{key} must be a string." if where else f"{key} must be a string.")
    return value


def optional_text(fields: Mapping[str, JsonValue], key: str, where: str = "") -> str | None:
    """Return the text `key`, or None where it is absent or null, as some servers write it."""
    return None if fields.get(key) is None else require_text(fields, key, where)
