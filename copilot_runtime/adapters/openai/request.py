"""A chat request as OpenAI's chat completions API wants it."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, assert_never, cast

from copilot_runtime.adapters.capabilities import CapabilityFilter
from copilot_runtime.adapters.history import (
    CHARACTERS_PER_TOKEN,
    HistoryItem,
    Thought,
    ToolExchange,
    find_last_turn,
    repair_history,
    truncate_history,
)
from copilot_runtime.adapters.openai.content import content_of
from copilot_runtime.adapters.streaming import encode_body
from copilot_runtime.adapters.tools import build_tools, required_tool
from copilot_runtime.adapters.turns import GO_ON
from copilot_runtime.interfaces import ChatRequest, Parameters
from copilot_runtime.jsonvalue import JsonObject
from copilot_runtime.messages import ImageMessage, TextMessage

_LONGEST_ID = 40
_HEARD = "OK."
_GOES_ON: JsonObject = {"role": "user", "content": GO_ON}


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """What a service and the settings of its adapter say of every request."""

    context_tokens: int
    developer_role: bool
    max_tokens_name: str = "max_completion_tokens"
    parallel_tool_calls: bool | None = None
    include_usage: bool = False
    seed_name: str = "seed"
    required: str = "required"
    takes_no_choice: bool = False
    strict_order: bool = False
    call_id_length: int | None = None
    reasoning_summary: str | None = None
    thoughts_of: str = ""
    """Whose signed thoughts are sent back; empty: nobody's."""
    unsupported: Mapping[str, str] = field(default_factory=dict[str, str])
    """What the model does not take, besides what the service does not: wish → why."""


def body_of(
    request: ChatRequest, model: str, habits: Habits, capabilities: CapabilityFilter
) -> JsonObject:
    """Return the body of the request. Its keys come in the order of the Node runtime."""
    wishes = wishes_of(request, habits, capabilities)
    silent = habits.takes_no_choice and wishes.tool_choice == "none"
    tools = [] if silent else build_tools(request.actions)
    items = items_of(request, habits, tools)
    body: JsonObject = {
        "model": model,
        "stream": True,
        "messages": _messages(items, habits, capabilities),
    }
    if habits.include_usage:
        body["stream_options"] = {"include_usage": True}
    if tools:
        body["tools"] = tools
    if wishes.max_tokens is not None:
        body[habits.max_tokens_name] = wishes.max_tokens
    if wishes.stop:
        body["stop"] = list(wishes.stop)
    if tools and wishes.tool_choice is not None and not habits.takes_no_choice:
        body["tool_choice"] = tool_choice_of(wishes, habits) or {
            "type": "function",
            "function": {"name": required_tool(wishes)},
        }
    if tools and wishes.parallel_tool_calls is not None:
        body["parallel_tool_calls"] = wishes.parallel_tool_calls
    plain = {
        "temperature": wishes.temperature,
        "top_p": wishes.top_p,
        habits.seed_name: wishes.seed,
        "frequency_penalty": wishes.frequency_penalty,
        "presence_penalty": wishes.presence_penalty,
        "reasoning_effort": wishes.reasoning_effort,
    }
    body |= {name: value for name, value in plain.items() if value is not None}
    if wishes.response_schema is not None:
        body["response_format"] = {"type": "json_schema", "json_schema": schema_of(wishes)}
    return body


def wishes_of(request: ChatRequest, habits: Habits, capabilities: CapabilityFilter) -> Parameters:
    """Return what can be asked of this model by this service."""
    wishes = request.parameters
    if wishes.parallel_tool_calls is None and request.actions:
        wishes = replace(wishes, parallel_tool_calls=habits.parallel_tool_calls)
    return capabilities.apply(capabilities.apply(wishes), habits.unsupported)


def items_of(
    request: ChatRequest, habits: Habits, tools: Sequence[JsonObject]
) -> list[HistoryItem]:
    """Return as much of the conversation as fits beside the tools."""
    room = habits.context_tokens - len(encode_body(tools)) // CHARACTERS_PER_TOKEN
    return truncate_history(repair_history(request.messages, habits.thoughts_of), room)


def tool_choice_of(wishes: Parameters, habits: Habits) -> str | None:
    """Return the word for the choice, or None for a function by its name."""
    if wishes.tool_choice == "required":
        return habits.required
    return None if wishes.tool_choice == "function" else wishes.tool_choice


def schema_of(wishes: Parameters) -> JsonObject:
    """Return name, schema and whether OpenAI can hold the model to every letter of it."""
    schema = wishes.response_schema or {}
    name = re.sub(r"[^a-zA-Z0-9_-]", "_", wishes.response_name or "answer")[:64]
    named: JsonObject = {"name": name or "answer", "schema": schema}
    return {**named, "strict": True} if _is_strict(schema) else named


def _messages(
    items: Sequence[HistoryItem], habits: Habits, capabilities: CapabilityFilter
) -> list[JsonObject]:
    """Each call is a message of its own, right before its result, as the Node runtime sends it.

    That is valid for every provider, and a history cut anywhere stays valid.
    """
    messages: list[JsonObject] = []
    turn = find_last_turn(items)
    thought = ""
    for at, item in enumerate(items):
        match item:
            case TextMessage() | ImageMessage():
                content = content_of(item, capabilities, new=at >= turn)
                role = role_of(item, developer_role=habits.developer_role)
                messages.append({"role": role, "content": content})
            case Thought():
                thought = item.content
                continue
            case ToolExchange():
                said = _exchange(item, habits.call_id_length)
                if thought:
                    said[0]["reasoning_content"] = thought
                messages += said
                continue  # one thought may come before several calls
            case _:
                assert_never(item)
        thought = ""
    return _in_strict_order(messages) if habits.strict_order else messages


def _in_strict_order(messages: Sequence[JsonObject]) -> list[JsonObject]:
    """Return the messages with instructions first, an answer to each result, and the user last.

    Instructions after the last word of the model become the user's: it is to follow them now.
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
            ordered.append({"role": "assistant", "content": _HEARD})
        ordered.append(message)
    if ordered and ordered[-1]["role"] == "assistant":
        said = [{**message, "role": "user"} for message in closing]
        return [*instructions, *ordered, *(said or [_GOES_ON])]
    return [*instructions, *closing, *(ordered or [_GOES_ON])]


def _exchange(exchange: ToolExchange, id_length: int | None) -> list[JsonObject]:
    call, id = exchange.call, call_id_of(exchange, id_length)
    function = {"name": call.name, "arguments": call.arguments}
    tool_call = {"id": id, "type": "function", "function": function}
    return [
        {"role": "assistant", "tool_calls": [tool_call], "content": None},
        {"role": "tool", "content": result_of(exchange), "tool_call_id": id},
    ]


def call_id_of(exchange: ToolExchange, length: int | None = None) -> str:
    """Return an id that is taken: a conversation may begin with a provider whose ids are longer."""
    id = exchange.call.id
    taken = length is None or (len(id) == length and id.isascii() and id.isalnum())
    if taken and len(id) <= _LONGEST_ID:
        return id
    return hashlib.sha256(id.encode(errors="replace")).hexdigest()[: length or _LONGEST_ID]


def result_of(exchange: ToolExchange) -> str:
    """Return what the model is told that came of its call."""
    result = exchange.result
    return result.result or (f"Error: {result.error}" if result.error else "")


def role_of(message: TextMessage | ImageMessage, *, developer_role: bool) -> str:
    """Return who speaks, in OpenAI's words: only the user's message may hold an image."""
    if isinstance(message, ImageMessage):
        return "user"
    if message.role in ("system", "developer"):
        return "developer" if developer_role else "system"
    return message.role


def image_url_of(image: ImageMessage) -> str:
    """Return an address, or the image itself as one."""
    if image.bytes.startswith(("data:", "http://", "https://")):
        return image.bytes
    subtype = image.format.lower().removeprefix("image/")
    return f"data:image/{'jpeg' if subtype == 'jpg' else subtype};base64,{image.bytes}"


def _is_strict(schema: Any) -> bool:
    """Return whether every object of a schema names all it may have, as strict mode demands."""
    if isinstance(schema, Mapping):
        known = cast("Mapping[str, Any]", schema)
        properties = known.get("properties")
        if known.get("type") == "object" or isinstance(properties, Mapping):
            names = set(cast("Mapping[str, Any]", properties or {}))
            if known.get("additionalProperties") is not False:
                return False
            if names != set(known.get("required") or ()):
                return False
        return all(map(_is_strict, known.values()))
    if isinstance(schema, list | tuple):
        return all(map(_is_strict, cast("Sequence[Any]", schema)))
    return True
