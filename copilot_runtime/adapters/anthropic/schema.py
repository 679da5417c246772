"""Converts JSON schemas for Anthropic's structured outputs.

https://platform.claude.com/docs/en/build-with-claude/structured-outputs: every object is closed,
and limits of numbers, lengths and patterns are refused. These are moved into the description, where
the model reads them.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import orjson

_UNKNOWN = frozenset(
    {
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        *("minLength", "maxLength", "maxItems", "uniqueItems", "pattern"),
        *("minProperties", "maxProperties", "patternProperties"),
    }
)
_FORMATS = frozenset(
    {
        *("date-time", "time", "date", "duration", "email", "hostname", "uri"),
        *("ipv4", "ipv6", "uuid"),
    }
)


def close_objects(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema with closed objects and unsupported keywords in the descriptions."""
    found: dict[str, Any] = {}
    constraints: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _UNKNOWN or _is_too_much(key, value):
            constraints[key] = value
        elif key in ("properties", "$defs", "definitions"):
            inner = cast("Mapping[str, Any]", value)
            found[key] = {name: _inner(one) for name, one in inner.items()}
        elif key == "oneOf":
            found["anyOf"] = _inner(value)
        elif key in ("items", "anyOf", "allOf"):
            found[key] = _inner(value)
        elif key != "$schema":
            found[key] = value
    if found.get("type") == "object" or "properties" in found:
        found["additionalProperties"] = False
    if constraints:
        words = orjson.dumps(constraints, default=str).decode()
        found["description"] = f"{found.get('description', '')} {words}".strip()
    return found


def _is_too_much(key: str, value: Any) -> bool:
    if key == "minItems":
        return value not in (0, 1)
    return key == "format" and value not in _FORMATS


def _inner(value: Any) -> Any:
    if isinstance(value, Mapping):
        return close_objects(cast("Mapping[str, Any]", value))
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_inner(one) for one in cast("Sequence[Any]", value)]
    return value
