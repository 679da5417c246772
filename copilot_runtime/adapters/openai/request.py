"""Builds the request body of OpenAI's chat completions API from a chat request."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, assert_never, cast

from copilot_runtime.adapters.capabilities import CapabilityFilter
from copilot_runtime.adapters.history import (
    HistoryItem,
    Thought,
    ToolExchange,
    find_last_turn,
    fit_history,
    format_result,
)
from copilot_runtime.adapters.openai.content import build_content
from copilot_runtime.adapters.openai.options import Preset, RequestOptions
from copilot_runtime.adapters.profiles import find_profile
from copilot_runtime.adapters.tools import build_tools, required_tool
from copilot_runtime.adapters.turns import GO_ON
from copilot_runtime.api.adapter import ChatRequest
from copilot_runtime.api.messages import ImageMessage, TextMessage
from copilot_runtime.api.run_input import Parameters
from copilot_runtime.base.jsonvalue import JsonObject

_LONGEST_ID = 40
_ACKNOWLEDGEMENT = "OK."
_GO_ON: JsonObject = {"role": "user", "content": GO_ON}


def build_body(
    request: ChatRequest,
    model: str,
    options: RequestOptions,
    capabilities: CapabilityFilter,
    context_tokens: int,
) -> JsonObject:
    """Return the body of the request, with its keys in the order of the Node runtime."""
    parameters = select_parameters(request, model, options, capabilities)
    preset = options.preset
    silent = preset.takes_no_choice and parameters.tool_choice == "none"
    tools = [] if silent else build_tools(request.actions)
    may_choose = tools and not preset.takes_no_choice
    items = fit_history(request, tools, context_tokens, options.signer)
    body: JsonObject = {
        "model": model,
        "stream": True,
        "messages": _encode_messages(items, model, options, capabilities),
        "stream_options": {"include_usage": True} if preset.asks_for_usage else None,
        "tools": tools or None,
        preset.max_tokens_name: parameters.max_tokens,
        "stop": list(parameters.stop or ()) or None,
        "tool_choice": build_tool_choice(parameters, preset.required) if may_choose else None,
        "parallel_tool_calls": parameters.parallel_tool_calls if tools else None,
        "temperature": parameters.temperature,
        "top_p": parameters.top_p,
        preset.seed_name: parameters.seed,
        "frequency_penalty": parameters.frequency_penalty,
        "presence_penalty": parameters.presence_penalty,
        "reasoning_effort": parameters.reasoning_effort,
        "response_format": build_response_format(parameters),
    }
    return {name: value for name, value in body.items() if value is not None}


def select_parameters(
    request: ChatRequest, model: str, options: RequestOptions, capabilities: CapabilityFilter
) -> Parameters:
    """Return the parameters that this service and this model support."""
    parameters = request.parameters
    if parameters.parallel_tool_calls is None and request.actions:
        parameters = replace(parameters, parallel_tool_calls=options.parallel_tool_calls)
    return capabilities.apply(parameters, find_profile(model).unsupported)


def build_tool_choice(
    parameters: Parameters, required: str = "required"
) -> str | JsonObject | None:
    """Return the tool choice; `required` is the service's name for that value.

    Raises `Misuse` for a function without a name.
    """
    match parameters.tool_choice:
        case "required":
            return required
        case "function":
            return {"type": "function", "function": {"name": required_tool(parameters)}}
        case choice:
            return choice


def build_response_format(parameters: Parameters) -> JsonObject | None:
    """Return the response format; it is `strict` if OpenAI can enforce the whole schema."""
    schema = parameters.response_schema
    if schema is None:
        return None
    name = re.sub(r"[^a-zA-Z0-9_-]", "_", parameters.response_name or "answer")[:64]
    named: JsonObject = {"name": name or "answer", "schema": schema}
    strict = {"strict": True} if _is_strict(schema) else {}
    return {"type": "json_schema", "json_schema": {**named, **strict}}


def _encode_messages(
    items: Sequence[HistoryItem],
    model: str,
    options: RequestOptions,
    capabilities: CapabilityFilter,
) -> list[JsonObject]:
    """Return the messages, each call as a message right before its result, as in Node.

    Every provider accepts that order, and a history cut at any message remains valid.
    """
    messages: list[JsonObject] = []
    turn = find_last_turn(items)
    thought = ""
    for at, item in enumerate(items):
        match item:
            case TextMessage() | ImageMessage():
                content = build_content(item, capabilities, new=at >= turn)
                role = choose_role(item, options.preset, model)
                messages.append({"role": role, "content": content})
            case Thought():
                thought = item.content
                continue
            case ToolExchange():
                pair = _encode_exchange(item, options.preset.call_id_length)
                if thought:
                    pair[0]["reasoning_content"] = thought
                messages += pair
                continue  # one thought may come before several calls
            case _:
                assert_never(item)
        thought = ""
    return _in_strict_order(messages) if options.preset.strict_order else messages


def _in_strict_order(messages: Sequence[JsonObject]) -> list[JsonObject]:
    """Return the messages in strict order: instructions first, the user's message last.

    An assistant message follows each result. Instructions after the last message of the model
    become user messages.
    """
    ordered: list[JsonObject] = []
    instructions: list[JsonObject] = []
    closing: list[JsonObject] = []
    for message in messages:
        if message["role"] in ("system", "developer"):
            closing.append(message)
            continue
        instructions += closing
        closing = []
        if message["role"] == "user" and ordered and ordered[-1]["role"] == "tool":
            ordered.append({"role": "assistant", "content": _ACKNOWLEDGEMENT})
        ordered.append(message)
    if ordered and ordered[-1]["role"] == "assistant":
        last = [{**message, "role": "user"} for message in closing]
        return [*instructions, *ordered, *(last or [_GO_ON])]
    return [*instructions, *closing, *(ordered or [_GO_ON])]


def _encode_exchange(exchange: ToolExchange, id_length: int | None) -> list[JsonObject]:
    call, id = exchange.call, encode_call_id(exchange, id_length)
    function = {"name": call.name, "arguments": call.arguments}
    tool_call = {"id": id, "type": "function", "function": function}
    return [
        {"role": "assistant", "tool_calls": [tool_call], "content": None},
        {"role": "tool", "content": format_result(exchange.result), "tool_call_id": id},
    ]


def encode_call_id(exchange: ToolExchange, length: int | None = None) -> str:
    """Return a call id that the service accepts: that of another provider may be hashed."""
    id = exchange.call.id
    fits = length is None or (len(id) == length and id.isascii() and id.isalnum())
    if fits and len(id) <= _LONGEST_ID:
        return id
    return hashlib.sha256(id.encode(errors="replace")).hexdigest()[: length or _LONGEST_ID]


def choose_role(message: TextMessage | ImageMessage, preset: Preset, model: str) -> str:
    """Return OpenAI's role of a message: `user` for images, which no other role may have."""
    if isinstance(message, ImageMessage):
        return "user"
    if message.role in ("system", "developer"):
        return "developer" if preset.uses_developer_role(model) else "system"
    return message.role


def _is_strict(schema: Any) -> bool:
    """Return whether every object of a schema is closed and requires all its properties."""
    if isinstance(schema, Mapping):
        fields = cast("Mapping[str, Any]", schema)
        properties = fields.get("properties")
        if fields.get("type") == "object" or isinstance(properties, Mapping):
            names = set(cast("Mapping[str, Any]", properties or {}))
            if fields.get("additionalProperties") is not False:
                return False
            if names != set(fields.get("required") or ()):
                return False
        return all(map(_is_strict, fields.values()))
    if isinstance(schema, list | tuple):
        return all(map(_is_strict, cast("Sequence[Any]", schema)))
    return True
