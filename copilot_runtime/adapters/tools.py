"""Encodes actions as tools of a model, with names and schemas that every provider accepts.

OpenAI, Anthropic and Bedrock accept letters, digits, `_` and `-`, up to 64 of them; at Gemini the
first must not be a digit. An action of another name has an alias in requests and responses.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import sha256

from copilot_runtime.api.action import Action
from copilot_runtime.api.run_input import Parameters
from copilot_runtime.base.errors import Misuse
from copilot_runtime.base.jsonvalue import JsonObject

_VALID_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")
_INVALID = re.compile(r"[^a-zA-Z0-9_-]+")
_LONGEST_STEM = 54


def select_tools(actions: Sequence[Action]) -> list[JsonObject]:
    """Return name, description and parameters of the actions that are available to models."""
    return [
        {
            "name": encode_tool_name(name),
            "description": action.description,
            "parameters": action.parameters,
        }
        for name, action in select_available(actions).items()
    ]


def select_available(actions: Sequence[Action]) -> Mapping[str, Action]:
    """Return the actions that are available to models; of several with one name, the first."""
    available: dict[str, Action] = {}
    for action in actions:
        is_hidden = action.available == "remote" and action.in_browser
        if not (is_hidden or action.available == "disabled"):
            available.setdefault(action.name, action)
    return available


def build_tools(actions: Sequence[Action]) -> list[JsonObject]:
    """Return the available actions as tools in OpenAI's format, which others accept, too."""
    return [{"type": "function", "function": tool} for tool in select_tools(actions)]


@lru_cache(maxsize=1024)  # twice in each request
def encode_tool_name(name: str) -> str:
    """Return the tool name of an action: its own, or an alias if providers do not accept it."""
    if _VALID_NAME.fullmatch(name):
        return name
    stem = _INVALID.sub("_", name)[:_LONGEST_STEM]
    mark = sha256(name.encode(errors="replace")).hexdigest()[:8]  # `a.b` and `a/b` are two
    return f"{'' if _VALID_NAME.match(stem) else '_'}{stem}_{mark}"


def required_tool(parameters: Parameters) -> str:
    """Return the name of the tool that the model must call. Raises `Misuse` if it is missing."""
    if not parameters.tool_choice_name:
        raise Misuse(
            "toolChoice 'function' needs the name of a function.",
            hint="Send forwardedParameters.toolChoiceFunctionName too.",
        )
    return encode_tool_name(parameters.tool_choice_name)
