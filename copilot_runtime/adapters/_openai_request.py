"""A chat request as OpenAI's chat completions API wants it."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, assert_never

import orjson

from copilot_runtime.adapters._openai_parts import content_of
from copilot_runtime.adapters._prepare import (
    CHARACTERS_PER_TOKEN,
    Exchange,
    Item,
    fitted,
    last_turn,
    prepared,
)
from copilot_runtime.errors import Misuse
from copilot_runtime.interfaces import Action, ChatRequest, Parameters
from copilot_runtime.messages import ImageMessage, TextMessage

Json = dict[str, Any]


def body_of(
    request: ChatRequest,
    model: str,
    *,
    context_tokens: int,
    developer_role: bool,
    max_tokens_name: str,
    parallel_tool_calls: bool | None = None,
    include_usage: bool = False,
) -> Json:
    """Return the body of the request. Its keys come in the order of the Node runtime."""
    tools = tools_of(request.actions)
    room = context_tokens - len(dumped(tools)) // CHARACTERS_PER_TOKEN
    items = fitted(prepared(request.messages), room)
    wishes = request.parameters
    body: Json = {"model": model, "stream": True, "messages": _messages(items, developer_role)}
    if include_usage:
        body["stream_options"] = {"include_usage": True}
    if tools:
        body["tools"] = tools
    if wishes.max_tokens is not None:
        body[max_tokens_name] = wishes.max_tokens
    if wishes.stop:
        body["stop"] = list(wishes.stop)
    if tools and wishes.tool_choice is not None:
        body["tool_choice"] = _tool_choice(wishes)
    if tools and parallel_tool_calls is not None:
        body["parallel_tool_calls"] = parallel_tool_calls
    if wishes.temperature is not None:
        body["temperature"] = wishes.temperature
    return body


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


def _messages(items: Sequence[Item], developer_role: bool) -> list[Json]:
    """Each call is a message of its own, right before its result, as the Node runtime sends it.

    That is valid for every provider, and a history cut anywhere stays valid.
    """
    messages: list[Json] = []
    turn = last_turn(items)
    for at, item in enumerate(items):
        match item:
            case TextMessage():
                content = content_of(item, new=at >= turn)
                messages.append({"role": _role(item.role, developer_role), "content": content})
            case ImageMessage():
                url = {"url": _image_url(item)}
                messages.append(
                    {"role": "user", "content": [{"type": "image_url", "image_url": url}]}
                )
            case Exchange():
                messages += _exchange(item)
            case _:
                assert_never(item)
    return messages


def _exchange(exchange: Exchange) -> list[Json]:
    call, result = exchange.call, exchange.result
    function = {"name": call.name, "arguments": call.arguments}
    tool_call = {"id": call.id, "type": "function", "function": function}
    content = result.result or (f"Error: {result.error}" if result.error else "")
    return [
        {"role": "assistant", "tool_calls": [tool_call], "content": None},
        {"role": "tool", "content": content, "tool_call_id": call.id},
    ]


def _role(role: str, developer_role: bool) -> str:
    if role in ("system", "developer"):
        return "developer" if developer_role else "system"
    return role


def _image_url(image: ImageMessage) -> str:
    if image.bytes.startswith(("data:", "http://", "https://")):
        return image.bytes
    subtype = image.format.lower().removeprefix("image/")
    return f"data:image/{'jpeg' if subtype == 'jpg' else subtype};base64,{image.bytes}"


def _tool_choice(wishes: Parameters) -> Any:
    if wishes.tool_choice != "function":
        return wishes.tool_choice
    if not wishes.tool_choice_name:
        raise Misuse(
            "toolChoice 'function' needs the name of a function.",
            hint="Send forwardedParameters.toolChoiceFunctionName too.",
        )
    return {"type": "function", "function": {"name": wishes.tool_choice_name}}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {**value}
    if isinstance(value, Sequence | set | frozenset):
        return list(value)
    raise TypeError(f"{value!r} cannot be written as JSON.")
