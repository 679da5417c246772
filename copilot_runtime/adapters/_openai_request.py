"""A chat request as OpenAI's chat completions API wants it."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, assert_never, cast

import orjson

from copilot_runtime.adapters._abilities import Lacks
from copilot_runtime.adapters._openai_parts import content_of
from copilot_runtime.adapters._prepare import (
    CHARACTERS_PER_TOKEN,
    Exchange,
    Item,
    Thought,
    fitted,
    last_turn,
    prepared,
)
from copilot_runtime.errors import Misuse
from copilot_runtime.interfaces import Action, ChatRequest, Parameters
from copilot_runtime.messages import ImageMessage, TextMessage

Json = dict[str, Any]


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
    call_id_length: int | None = None
    reasoning_summary: str | None = None
    thoughts_of: str = ""
    """Whose signed thoughts are sent back; empty: nobody's."""
    lacking: Mapping[str, str] = field(default_factory=dict[str, str])
    """What the model does not take, besides what the service does not: wish → why."""


def body_of(request: ChatRequest, model: str, habits: Habits, lacks: Lacks) -> Json:
    """Return the body of the request. Its keys come in the order of the Node runtime."""
    wishes = wishes_of(request, habits, lacks)
    silent = habits.takes_no_choice and wishes.tool_choice == "none"
    tools = [] if silent else tools_of(request.actions)
    items = items_of(request, habits, tools)
    body: Json = {"model": model, "stream": True, "messages": _messages(items, habits, lacks)}
    if habits.include_usage:
        body["stream_options"] = {"include_usage": True}
    if tools:
        body["tools"] = tools
    if wishes.max_tokens is not None:
        body[habits.max_tokens_name] = wishes.max_tokens
    if wishes.stop:
        body["stop"] = list(wishes.stop)
    if tools and wishes.tool_choice is not None and not habits.takes_no_choice:
        choice = tool_choice_of(wishes, habits)
        named = {"type": "function", "function": {"name": wishes.tool_choice_name}}
        body["tool_choice"] = choice or named
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


def wishes_of(request: ChatRequest, habits: Habits, lacks: Lacks) -> Parameters:
    """Return what can be asked of this model by this service."""
    wishes = request.parameters
    if wishes.parallel_tool_calls is None and request.actions:
        wishes = replace(wishes, parallel_tool_calls=habits.parallel_tool_calls)
    return lacks.without(lacks.without(wishes), habits.lacking)


def items_of(request: ChatRequest, habits: Habits, tools: Sequence[Json]) -> list[Item]:
    """Return as much of the conversation as fits beside the tools."""
    room = habits.context_tokens - len(dumped(tools)) // CHARACTERS_PER_TOKEN
    return fitted(prepared(request.messages, habits.thoughts_of), room)


def tool_choice_of(wishes: Parameters, habits: Habits) -> str | None:
    """Return the word for the choice, or None for a function by its name."""
    if wishes.tool_choice == "required":
        return habits.required
    if wishes.tool_choice != "function":
        return wishes.tool_choice
    if not wishes.tool_choice_name:
        raise Misuse(
            "toolChoice 'function' needs the name of a function.",
            hint="Send forwardedParameters.toolChoiceFunctionName too.",
        )
    return None


def schema_of(wishes: Parameters) -> Json:
    """Return name, schema and whether OpenAI can hold the model to every letter of it."""
    schema = wishes.response_schema or {}
    name = re.sub(r"[^a-zA-Z0-9_-]", "_", wishes.response_name or "answer")[:64]
    named: Json = {"name": name or "answer", "schema": schema}
    return {**named, "strict": True} if _is_strict(schema) else named


def tools_of(actions: Sequence[Action]) -> list[Json]:
    """Return the actions a model may see, the first of each name."""
    tools: dict[str, Json] = {}
    for action in actions:
        hidden = action.available == "remote" and action.run is None
        if hidden or action.available == "disabled" or action.name in tools:
            continue
        tools[action.name] = {
            "type": "function",
            "function": {
                "name": action.name,
                "description": action.description,
                "parameters": action.parameters,
            },
        }
    return list(tools.values())


def dumped(value: Any) -> bytes:
    """Write JSON; half characters of broken texts become question marks."""
    try:
        return orjson.dumps(value, default=_plain)
    except TypeError:
        return json.dumps(value, ensure_ascii=False, default=_plain).encode(errors="replace")


def _messages(items: Sequence[Item], habits: Habits, lacks: Lacks) -> list[Json]:
    """Each call is a message of its own, right before its result, as the Node runtime sends it.

    That is valid for every provider, and a history cut anywhere stays valid.
    """
    messages: list[Json] = []
    turn = last_turn(items)
    thought = ""
    for at, item in enumerate(items):
        match item:
            case TextMessage():
                content = content_of(item, lacks, new=at >= turn)
                role = role_of(item.role, developer_role=habits.developer_role)
                messages.append({"role": role, "content": content})
            case ImageMessage():
                url = {"url": image_url_of(item)}
                messages.append(
                    {"role": "user", "content": [{"type": "image_url", "image_url": url}]}
                )
            case Thought():
                thought = item.content
                continue
            case Exchange():
                said = _exchange(item, habits.call_id_length)
                if thought:
                    said[0]["reasoning_content"] = thought
                messages += said
                continue  # one thought may come before several calls
            case _:
                assert_never(item)
        thought = ""
    return messages


def _exchange(exchange: Exchange, id_length: int | None) -> list[Json]:
    call, id = exchange.call, exchange.call.id
    if id_length is not None and not (len(id) == id_length and id.isascii() and id.isalnum()):
        # a conversation may begin with another provider, whose ids are longer
        id = hashlib.sha256(id.encode(errors="replace")).hexdigest()[:id_length]
    function = {"name": call.name, "arguments": call.arguments}
    tool_call = {"id": id, "type": "function", "function": function}
    return [
        {"role": "assistant", "tool_calls": [tool_call], "content": None},
        {"role": "tool", "content": result_of(exchange), "tool_call_id": id},
    ]


def result_of(exchange: Exchange) -> str:
    """Return what the model is told that came of its call."""
    result = exchange.result
    return result.result or (f"Error: {result.error}" if result.error else "")


def role_of(role: str, *, developer_role: bool) -> str:
    """Return the role in OpenAI's words: instructions come from the developer or the system."""
    if role in ("system", "developer"):
        return "developer" if developer_role else "system"
    return role


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


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {**value}
    if isinstance(value, Sequence | set | frozenset):
        return list(value)
    raise TypeError(f"{value!r} cannot be written as JSON.")
