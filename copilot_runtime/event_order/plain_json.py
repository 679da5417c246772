"""Converts values of Python into those that JSON has, so that they are sent and stored alike."""

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from math import isfinite
from types import NoneType
from typing import Any, get_args

import orjson

from copilot_runtime.api.messages import Message, Part

DEEPEST = 240
"""Levels of a value. JSON is written with more, of which events, lists and requests need some."""

_MESSAGES = (*get_args(Message), *get_args(Part))
"""Dataclasses that stay what they are."""


class TooDeep(Exception):
    """A value is nested too deeply, or holds itself."""


def to_plain_json(value: Any, level: int = 0) -> Any:
    """Return a value as texts, numbers, booleans, None, lists and dicts; messages stay messages.

    Raises `TypeError` that says what is no JSON, and `TooDeep`.
    """
    if level == DEEPEST and not isinstance(value, (str, int, float, NoneType)):
        raise TooDeep
    match value:
        case Enum():
            return to_plain_json(value.value, level)
        case str() | int() | None:
            return value
        case float():
            return float(value) if isfinite(value) else None
        case Mapping():
            return {_to_key(key): to_plain_json(part, level + 1) for key, part in value.items()}
        case list() | tuple():
            return [to_plain_json(part, level + 1) for part in value]
        case _ if is_dataclass(value) and not isinstance(value, type):
            parts = {
                field.name: to_plain_json(getattr(value, field.name), level + 1)
                for field in fields(value)
            }
            return replace(value, **parts) if isinstance(value, _MESSAGES) else parts
        case _:
            return _convert_object(value, level)


def _to_key(key: Any) -> str:
    """Return a key as the text that JSON has for it."""
    if isinstance(key, Enum):
        key = key.value
    if isinstance(key, str):
        return str.__str__(key)  # an exact `str`, which orjson demands of keys
    if isinstance(key, (int, float, type(None))):
        return json.dumps(key)
    raise TypeError(f"it has a key of the type {type(key).__name__!r}")


def _convert_object(value: Any, level: int) -> Any:
    """Return a model of pydantic as JSON, and a time or an UUID as its text."""
    if hasattr(value, "model_dump") and not isinstance(value, type):
        try:
            return to_plain_json(value.model_dump(mode="json"), level)
        except ValueError as error:  # of pydantic, for a field that is no JSON
            raise TypeError(f"{type(value).__name__!r} cannot be written: {error}") from error
    try:
        return orjson.loads(orjson.dumps(value))
    except TypeError:
        raise TypeError(f"it has a value of the type {type(value).__name__!r}") from None
