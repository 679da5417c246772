"""Actions as tools of a model, with names and schemas that every provider takes.

OpenAI, Anthropic and Bedrock take letters, digits, `_` and `-`, up to 64 of them; at Gemini the
first is no digit. An action of another name has a stand-in in requests and responses.
"""

import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from copilot_runtime.api.action import Action
from copilot_runtime.api.run_input import Parameters
from copilot_runtime.base.errors import Misuse
from copilot_runtime.base.jsonvalue import JsonObject

_VALID_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")
_INVALID = re.compile(r"[^a-zA-Z0-9_-]+")
_LONGEST_STEM = 54


def select_tools(actions: Sequence[Action]) -> list[JsonObject]:
    """Return name, description and parameters of the actions a model may see.

    The first action of each name counts.
    """
    tools: dict[str, JsonObject] = {}
    for action in actions:
        hidden = action.available == "remote" and action.in_browser
        if not (hidden or action.available == "disabled" or action.name in tools):
            tools[action.name] = {
                "name": encode_tool_name(action.name),
                "description": action.description,
                "parameters": _complete(action.parameters),
            }
    return list(tools.values())


def build_tools(actions: Sequence[Action]) -> list[JsonObject]:
    """Return the actions a model may see in OpenAI's words, which others take too."""
    return [{"type": "function", "function": tool} for tool in select_tools(actions)]


def encode_tool_name(name: str) -> str:
    """Return the name of an action's tool: nearly always its own."""
    if _VALID_NAME.fullmatch(name):
        return name
    stem = _INVALID.sub("_", name)[:_LONGEST_STEM]
    mark = sha256(name.encode(errors="replace")).hexdigest()[:8]  # `a.b` and `a/b` are two
    return f"{'' if _VALID_NAME.match(stem) else '_'}{stem}_{mark}"


def required_tool(parameters: Parameters) -> str:
    """Return the tool that the model must call. Raises `Misuse` if it has no name."""
    if not parameters.tool_choice_name:
        raise Misuse(
            "toolChoice 'function' needs the name of a function.",
            hint="Send forwardedParameters.toolChoiceFunctionName too.",
        )
    return encode_tool_name(parameters.tool_choice_name)


def _complete(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a schema that lists its properties, even if it has none: OpenAI insists."""
    if "properties" in schema or schema.get("type", "object") != "object":
        return schema
    return {"type": "object", **schema, "properties": {}}
