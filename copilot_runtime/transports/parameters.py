"""What a page asks of the model in its `properties`, by `forwardedParameters`, over any transport.

GraphQL has a place of its own for six of these parameters, `data.forwardedParameters`; AG-UI has
none, and neither has one for the others. So a page's parameters are
`properties.forwardedParameters`, which clients of v1 send in the variable `properties`, and those
of AG-UI as `forwardedProps.forwardedParameters`. They stand in an object of their own because an
application may well have a property called `model` or `temperature` that means something else.
"""

import logging
from collections.abc import Callable, Mapping, Sized
from dataclasses import replace
from typing import Any

from copilot_runtime.api.run_input import Parameters
from copilot_runtime.base.errors import LimitExceeded

logger = logging.getLogger(__name__)

NAME = "forwardedParameters"

_EFFORTS = ("minimal", "low", "medium", "high")
_LARGEST = 2**53
"""What a page can count to; larger numbers are no JSON for everybody."""


def apply_forwarded_parameters(parameters: Parameters, properties: Mapping[str, Any]) -> Parameters:
    """Return the parameters with what the properties ask for in addition.

    What is not of its kind is passed over, as GraphQL clients are used to.
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


def check_length(messages: Sized, most: int) -> None:
    """Raise `LimitExceeded` for a conversation of more messages than the settings allow."""
    if len(messages) > most:
        error = LimitExceeded(
            f"The conversation has {len(messages)} messages; {most} are allowed.",
            hint="Raise max_messages in the settings, or start a new thread.",
        )
        logger.warning("Refused a request: %s (%s)", error.message, error.hint)
        raise error


def check_count(count: int, most: int, what: str, setting: str | None = "max_items") -> None:
    """Raise `LimitExceeded` for more of `what` in one request than the `setting` allows."""
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
"""As the page calls it → as `Parameters` does, and how it is read."""
