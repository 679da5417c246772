"""Read the fields of decoded JSON; what is wrong with one is said by its place in the request."""

from typing import Any

from copilot_runtime.errors import Misuse


def object_at(value: Any, where: str) -> dict[str, Any]:
    """Return the object found at `where`. Raises `Misuse` for anything else."""
    if not isinstance(value, dict):
        raise Misuse(f"{where} must be an object")
    return value


def list_at(value: Any, where: str) -> list[Any]:
    """Return the list found at `where`. Raises `Misuse` for anything else."""
    if not isinstance(value, list):
        raise Misuse(f"{where} must be a list")
    return value


def string(fields: dict[str, Any], key: str, where: str) -> str:
    """Return the text `key` of the object at `where`. Raises `Misuse` if there is none."""
    value = fields.get(key)
    if not isinstance(value, str):
        raise Misuse(f"{where}.{key} must be a string")
    return value


def optional_string(fields: dict[str, Any], key: str, where: str) -> str | None:
    """Return the text `key`, or None where it is absent or null, as some servers write it."""
    return None if fields.get(key) is None else string(fields, key, where)
