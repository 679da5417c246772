"""Read decoded JSON: leniently (`as_…`), or with an error that names the path (`require_…`)."""

from collections.abc import Iterator, Mapping
from typing import Any

from copilot_runtime.base.errors import Misuse
from copilot_runtime.base.jsontext import dumps, loads

JsonValue = Any
"""A decoded JSON value: an object, a list, a string, a number, a boolean or None."""

JsonObject = dict[str, JsonValue]
JsonList = list[JsonValue]

DEFINITIONS = "#/$defs/"
"""The prefix of references in a JSON schema; the name of the definition follows."""


def as_object(value: JsonValue) -> JsonObject:
    """Return `value` if it is an object, else an empty object."""
    return value if isinstance(value, dict) else {}


def as_list(value: JsonValue) -> JsonList:
    """Return `value` if it is a list, else an empty list."""
    return value if isinstance(value, list) else []


def as_objects(value: JsonValue) -> list[JsonObject]:
    """Return the items of a list that are objects; an empty list if `value` is not a list."""
    return [item for item in as_list(value) if isinstance(item, dict)]


def as_text(value: JsonValue) -> str:
    """Return `value` if it is a string, else an empty string."""
    return value if isinstance(value, str) else ""


def as_optional_text(value: JsonValue) -> str | None:
    """Return `value` if it is a string, else None."""
    return value if isinstance(value, str) else None


def as_count(value: JsonValue) -> int | None:
    """Return a non-negative integer, also from a float or a numeric string; else None."""
    if isinstance(value, str | float):
        try:
            value = int(value)
        except (ValueError, OverflowError):  # not a number, or too long
            return None
    return value if type(value) is int and value >= 0 else None


def add_counts(fields: Mapping[str, JsonValue], *keys: str) -> int | None:
    """Return the sum of the counts at `keys`, or None if the object has none of them."""
    counts = [count for key in keys if (count := as_count(fields.get(key))) is not None]
    return sum(counts) if counts else None


def get_object(value: JsonValue, *keys: str) -> JsonObject:
    """Return the object at a path of keys, or an empty object if there is none."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return as_object(value)


def get_text(fields: Mapping[str, JsonValue], key: str) -> str:
    """Return the string at `key`, or an empty string if there is none."""
    return as_text(fields.get(key))


def drop_none(fields: Mapping[str, JsonValue]) -> JsonObject:
    """Return a copy of an object without the members that are None."""
    return {name: value for name, value in fields.items() if value is not None}


def list_references(schema: JsonValue) -> Iterator[str]:
    """Yield the names of the definitions that a JSON schema refers to."""
    if isinstance(schema, dict):
        if isinstance(reference := schema.get("$ref"), str):
            yield reference.removeprefix(DEFINITIONS)
        schema = [*schema.values()]
    for one in as_list(schema):
        yield from list_references(one)


def parse_text(value: JsonValue) -> JsonValue:
    """Decode a string that is JSON; return any other value unchanged."""
    if not isinstance(value, str):
        return value
    try:
        return loads(value.encode(errors="replace"))
    except ValueError:
        return value


def parse_object(text: str) -> JsonObject:
    """Decode a JSON object; return an empty object for any other text."""
    return as_object(parse_text(text))


def to_text(value: JsonValue) -> str:
    """Return a string unchanged, and any other value as JSON."""
    return value if isinstance(value, str) else dumps(value).decode()


def require_object(value: JsonValue, where: str) -> JsonObject:
    """Return `value` if it is an object. Raises `Misuse` that names `where` if it is not."""
    if not isinstance(value, dict):
        raise Misuse(f"{where} must be an object.")
    return value


def require_list(value: JsonValue, where: str) -> JsonList:
    """Return `value` if it is a list. Raises `Misuse` that names `where` if it is not."""
    if not isinstance(value, list):
        raise Misuse(f"{where} must be a list.")
    return value


def require_text(fields: Mapping[str, JsonValue], key: str, where: str = "") -> str:
    """Return the string at `key` of the object at path `where` (empty for the root).

    Raises `Misuse` if there is no such string.
    """
    value = fields.get(key)
    if not isinstance(value, str):
        raise Misuse(f"{where}.{key} must be a string." if where else f"{key} must be a string.")
    return value


def optional_text(fields: Mapping[str, JsonValue], key: str, where: str = "") -> str | None:
    """Return the string at `key`, or None if it is absent or null. Raises `Misuse` otherwise."""
    return None if fields.get(key) is None else require_text(fields, key, where)
