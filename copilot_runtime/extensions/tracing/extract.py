"""Span attributes of service messages: names and counts, as Copilot-LD records them."""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, TypeGuard

_TEXTS = ("type", "tool_call_id", "agent_id", "label", "subject", "predicate", "object")
_LISTS = ("tools", "identifiers", "messages", "context", "conversation")
_NUMBERS = ("threshold", "limit", "max_tokens")


def extract_attributes(message: object) -> dict[str, Any]:
    """Return the attributes that describe a message on a span or an event.

    These are names, counts and the first text of `input`; that text and the terms of triples may be
    user input. Fields that are missing, empty or of another type are left out.
    """
    if not isinstance(message, Mapping):
        return {}
    fields: Mapping[Any, Any] = message
    found = {name: fields[name] for name in _TEXTS if _is_text(fields.get(name))}
    function = fields.get("function")
    if isinstance(function, Mapping) and _is_text(name := function.get("name")):
        found["function_name"] = name
    for name in _LISTS:
        if _is_list(items := fields.get(name)):
            found[f"{name}_count"] = len(items)
    if _is_list(texts := fields.get("input")):
        found["input_count"] = len(texts)
        if texts and _is_text(texts[0]):
            found["input_0"] = texts[0]
    if isinstance(limits := fields.get("filter"), Mapping):
        for name in _NUMBERS:
            if (number := _read_number(limits.get(name))) is not None:
                found[f"filter_{name}"] = number
    if _is_text(content := fields.get("content")):
        found["content_length"] = len(content)
    return found


def _is_text(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and bool(value)


def _is_list(value: Any) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _read_number(value: Any) -> float | None:
    """Parse a number, which messages send as text; return None if it is not one."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return (int(number) if number.is_integer() else number) if isfinite(number) else None
