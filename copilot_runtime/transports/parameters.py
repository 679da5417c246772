"""Model parameters in a frontend's properties (`forwardedParameters`), for any transport.

GraphQL has its own field for six of these parameters, `data.forwardedParameters`; AG-UI has none,
and neither has one for the others. So a frontend's parameters are `properties.forwardedParameters`,
which v1 clients send in the variable `properties`, and AG-UI clients as
`forwardedProps.forwardedParameters`. They are in an object of their own because an application may
have a property called `model` or `temperature` with another meaning.
"""

import logging
from collections.abc import Callable, Mapping, Sized
from dataclasses import replace
from typing import Any

from copilot_runtime.api.run_input import Parameters
from copilot_runtime.base.errors import LimitExceeded, Misuse

logger = logging.getLogger(__name__)

NAME = "forwardedParameters"

_EFFORTS = ("minimal", "low", "medium", "high")
_LARGEST = 2**53
"""Largest integer that JavaScript represents exactly; larger numbers are not portable JSON."""


def apply_forwarded_parameters(parameters: Parameters, properties: Mapping[str, Any]) -> Parameters:
    """Return the parameters, overridden by those in the properties.

    Values of the wrong type are ignored, as GraphQL clients expect.
    """
    fields = properties.get(NAME)
    if not isinstance(fields, dict):
        return parameters
    changes = {
        field: value
        for name, (field, read) in _FIELDS.items()
        if (value := read(fields.get(name))) is not None
    }
    return replace(parameters, **changes) if changes else parameters


def parse_forwarded_parameters(fields: Mapping[str, Any], place: str) -> Parameters:
    """Return the parameters. Raises `Misuse` for an unknown name or a value of the wrong type."""
    for name, value in fields.items():
        if name not in _FIELDS:
            raise Misuse(f"{place} has {name[:100]!r}, and may have {[*_FIELDS]}.")
        read = _FIELDS[name][1]
        if read(value) != value:
            raise Misuse(f"{place}.{name} must be {_KINDS[read]}.")
    return apply_forwarded_parameters(Parameters(), {NAME: fields})


def check_length(messages: Sized, most: int) -> None:
    """Raise `LimitExceeded` if a conversation has more messages than the settings allow."""
    if len(messages) > most:
        error = LimitExceeded(
            f"The conversation has {len(messages)} messages; {most} are allowed.",
            hint="Raise max_messages in the settings, or start a new thread.",
        )
        logger.warning("Refused a request: %s (%s)", error.message, error.hint)
        raise error


def check_count(count: int, most: int, what: str, setting: str | None = "max_items") -> None:
    """Raise `LimitExceeded` if a request has more of `what` than the `setting` allows."""
    if count > most:
        error = LimitExceeded(
            f"The request has {count} {what}; {most} are allowed.",
            hint=f"Raise {setting} in the settings." if setting else None,
        )
        logger.warning("Refused a request: %s %s", error.message, error.hint or "")
        raise error


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if abs(value) <= _LARGEST else None


def _whole(value: Any) -> int | None:
    return None if (number := _number(value)) is None else int(number)


def _flag(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _texts(value: Any) -> list[str] | None:
    if not isinstance(value, list):
        return None
    return [text for text in value if isinstance(text, str)] or None


def _schema(value: Any) -> dict[str, Any] | None:
    return value if isinstance(value, dict) and value else None


def _effort(value: Any) -> str | None:
    return value if value in _EFFORTS else None


_FIELDS: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "model": ("model", _text),
    "temperature": ("temperature", _number),
    "maxTokens": ("max_tokens", _whole),
    "stop": ("stop", _texts),
    "toolChoice": ("tool_choice", _text),
    "toolChoiceFunctionName": ("tool_choice_name", _text),
    "parallelToolCalls": ("parallel_tool_calls", _flag),
    "topP": ("top_p", _number),
    "seed": ("seed", _whole),
    "frequencyPenalty": ("frequency_penalty", _number),
    "presencePenalty": ("presence_penalty", _number),
    "reasoningEffort": ("reasoning_effort", _effort),
    "responseSchema": ("response_schema", _schema),
    "responseName": ("response_name", _text),
}
"""Property name to the field of `Parameters` and its parser, which returns `None` for a wrong type.
"""

_KINDS: Mapping[Callable[[Any], Any], str] = {
    _text: "a non-empty text",
    _number: "a number",
    _whole: "a whole number",
    _flag: "true or false",
    _texts: "a non-empty list of texts",
    _schema: "a JSON schema",
    _effort: f"one of {', '.join(_EFFORTS)}",
}
"""Parser → the values that it accepts, in words."""
