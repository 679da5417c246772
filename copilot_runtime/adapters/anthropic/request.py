"""Builds the request body of Anthropic's Messages API from a chat request.

https://platform.claude.com/docs/en/api/messages/create. `options` omits the parameters that a model
refuses with 400; `turns` arranges conversations as the API requires: the calls of one answer in one
turn, and all their results at the start of the next one.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Literal, cast

import orjson

from copilot_runtime.adapters.anthropic.options import (
    ThinkingOptions,
    Traits,
    build_thinking,
    build_tool_choice,
    filter_parameters,
    filter_sampling,
    find_traits,
)
from copilot_runtime.adapters.attachments import (
    USUAL_TYPES,
    Media,
    add_types,
    build_parts,
    build_result_parts,
    decode_text,
)
from copilot_runtime.adapters.capabilities import CapabilityFilter
from copilot_runtime.adapters.history import Thought, ToolExchange, fit_history, format_result
from copilot_runtime.adapters.tools import select_tools
from copilot_runtime.adapters.turns import Turn, build_turns
from copilot_runtime.api.action import Action
from copilot_runtime.api.adapter import ChatRequest
from copilot_runtime.api.messages import ImageMessage, TextMessage
from copilot_runtime.api.run_input import Parameters
from copilot_runtime.base.jsontext import loads
from copilot_runtime.base.jsonvalue import JsonObject, drop_none

PROVIDER = "anthropic"

NEWEST = "2026-10-21"
"""The version of the API without `temperature`, `top_p` and `top_k`."""

_WITH_SAMPLING = "2023-06-01"
_BINDING = "thinking-binding-controls-2026-08-01"
_FILES = "files-api-2025-04-14"
"""The beta that accepts files by their ids."""

_USUAL_MAX_TOKENS = 32_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The options of an adapter for all its requests.

    `context_tokens` is the window without the answer's tokens. `thinking` enables or disables
    reasoning (None: the model's default), or is the budget in tokens for older models. `cache`
    enables prompt caching, or is its duration. With `eager`, arguments are streamed. Without
    `version`, the newest API version that accepts the parameters is used.
    """

    context_tokens: int = 200_000
    max_tokens: int | None = None
    thinking: bool | int | None = None
    cache: bool | Literal["5m", "1h"] = True
    eager: bool = True
    version: str | None = None
    betas: Sequence[str] = ()


def build_request(
    request: ChatRequest,
    model: str,
    settings: Settings,
    capabilities: CapabilityFilter,
    origin: str = "",
) -> tuple[JsonObject, dict[str, str]]:
    """Return the body, and the headers for its API version and betas.

    Parameters that the model does not support are recorded in `capabilities`. Reasoning is that of
    the service of `origin`.
    """
    traits = find_traits(model)
    parameters = filter_parameters(request.parameters, traits, capabilities)
    tools = _tools(request.actions, eager=settings.eager and traits.eager)
    max_tokens = _max_tokens(parameters, settings, traits)
    room = settings.context_tokens
    if parameters.max_tokens is None:
        room -= min(max_tokens, settings.context_tokens // 4)
    items = fit_history(request, tools, room, origin, capabilities)
    turns = build_turns(
        request.messages,
        items,
        encode_message=build_blocks,
        encode_exchange=build_exchange,
        encode_thought=build_thought,
    )
    blocks = [block for turn in turns.turns for block in turn.blocks]
    choice = build_tool_choice(parameters, traits, capabilities) if tools else None
    names = dict.fromkeys(item.call.name for item in items if isinstance(item, ToolExchange))
    if names and not tools:  # calls of tools that are not listed are refused
        tools = [{"name": name, "input_schema": {"type": "object"}} for name in names]
        choice = {"type": "none"}
    thoughts = build_thinking(
        settings.thinking,
        parameters,
        traits,
        capabilities,
        max_tokens=max_tokens,
        forced=choice is not None and choice["type"] in ("any", "tool"),
        resumed=turns.resumes_without_thought(is_result, is_thought),
        has_thoughts=any(map(is_thought, blocks)),
    )
    if traits.bound and not thoughts.on:  # otherwise they would be an error
        for turn in turns.turns:
            turn.blocks[:] = [block for block in turn.blocks if not is_thought(block)]
    if traits.versioned:
        parameters = filter_sampling(parameters, capabilities, thinks=thoughts.on)
    body = drop_none(
        {
            "model": model,
            "max_tokens": max_tokens,
            "stream": True,
            "system": add_types(turns.instructions, "text") or None,
            "messages": [
                {
                    "role": "user" if turn.speaker == "user" else "assistant",
                    "content": add_types(turn.blocks, "text"),
                }
                for turn in turns.turns
            ],
            "tools": tools or None,
            "tool_choice": choice,
            "stop_sequences": [word for word in parameters.stop or () if word.strip()] or None,
            "thinking": thoughts.thinking,
            "output_config": _output(parameters, thoughts) or None,
            "temperature": parameters.temperature,
            "top_p": parameters.top_p,
        }
    )
    if settings.cache:
        _mark_for_cache(body, turns.stable, settings.cache)
    betas = [*settings.betas]
    if thoughts.bound:
        betas.append(_BINDING)
    if any(map(is_file, blocks)):
        betas.append(_FILES)
    samples = "temperature" in body or "top_p" in body
    version = settings.version or (_WITH_SAMPLING if samples or not traits.versioned else NEWEST)
    named = {"anthropic-beta": ",".join(dict.fromkeys(betas))} if betas else {}
    return body, {"anthropic-version": version, **named}


def _max_tokens(parameters: Parameters, settings: Settings, traits: Traits) -> int:
    """Return the maximum length of the answer, reasoning included; the API requires a limit."""
    limit = settings.max_tokens if parameters.max_tokens is None else parameters.max_tokens
    if limit is None:
        return min(traits.max_tokens, _USUAL_MAX_TOKENS)
    return min(limit, traits.max_tokens) if traits.versioned else limit


def _tools(actions: Sequence[Action], *, eager: bool) -> list[JsonObject]:
    return [
        drop_none(
            {
                "name": tool["name"],
                "description": tool["description"] or None,
                "input_schema": {**tool["parameters"], "type": "object"},
                "eager_input_streaming": eager or None,
            }
        )
        for tool in select_tools(actions)
    ]


def _output(parameters: Parameters, thoughts: ThinkingOptions) -> JsonObject:
    output: JsonObject = {}
    if thoughts.effort:
        output["effort"] = thoughts.effort
    if parameters.response_schema is not None:
        output["format"] = {
            "type": "json_schema",
            "schema": close_objects(parameters.response_schema),
        }
    return output


def _mark_for_cache(
    body: JsonObject, stable: Turn | None, cache: bool | Literal["5m", "1h"]
) -> None:
    """Add cache breakpoints after the stable parts: tools, instructions, conversation.

    https://platform.claude.com/docs/en/build-with-claude/prompt-caching: the prefix before a
    breakpoint is cached, in this order; a prefix that is too short is not an error.
    """
    mark: JsonObject = {"type": "ephemeral"}
    if isinstance(cache, str):
        mark["ttl"] = cache
    if "tools" in body:
        body["tools"][-1]["cache_control"] = mark
    if "system" in body:
        body["system"][-1]["cache_control"] = mark
    for block in reversed(stable.blocks if stable else []):
        if not is_thought(block):  # these must not have breakpoints
            block["cache_control"] = mark
            break


_API = "Anthropic's Messages API"
_ID = re.compile(r"[^a-zA-Z0-9_-]")
_LONG_ID = 64


def build_blocks(message: TextMessage | ImageMessage, *, new: bool) -> list[JsonObject]:
    """Return the content of a message. `new` is True for the user's latest message.

    Raises `Misuse` for a new attachment that the API does not take.
    """
    return add_types(build_parts(message, _build_media, new=new), "text")


def build_exchange(exchange: ToolExchange, *, first: bool) -> tuple[JsonObject, JsonObject]:
    """Return the blocks of a call and of its result.

    A failed result may contain texts only, so `is_error` is not set on a result with images.
    """
    del first  # nothing is special about it
    call, result = exchange.call, exchange.result
    id = exchange.service_id or _encode_id(call.id)
    arguments = loads(call.arguments.encode())
    parts = build_result_parts(result, _build_media)
    content = add_types(parts, "text") or format_result(result)
    has_images = any("text" not in part for part in parts)
    failed = {"is_error": True} if result.error and not has_images else {}
    return (
        {
            **exchange.own_fields,
            "type": "tool_use",
            "id": id,
            "name": call.name,
            "input": arguments,
        },
        {"type": "tool_result", "tool_use_id": id, "content": content, **failed},
    )


def _encode_id(call_id: str) -> str:
    """Return a call id that the API accepts: that of another service may be hashed."""
    if len(call_id) > _LONG_ID:
        return sha256(call_id.encode(errors="replace")).hexdigest()
    return _ID.sub("_", call_id)


def build_thought(thought: Thought) -> JsonObject:
    """Return the block of reasoning, unchanged from the response."""
    if "data" in thought.fields:
        return {**thought.own_fields, "type": "redacted_thinking"}
    return {**thought.own_fields, "type": "thinking", "thinking": thought.content}


def is_thought(block: JsonObject) -> bool:
    """Return whether a block is reasoning."""
    return block.get("type") in ("thinking", "redacted_thinking")


def is_result(block: JsonObject) -> bool:
    """Return whether a block is a tool result."""
    return block.get("type") == "tool_result"


def is_file(block: JsonObject) -> bool:
    """Return whether a block references a file by its id."""
    return block.get("type") in ("image", "document") and block["source"]["type"] == "file"


def _build_media(media: Media) -> JsonObject | str:
    """Return the block, or the reason for a refusal."""
    match media.kind:
        case "image":
            return _image(media)
        case "document":
            return _document(media)
        case "audio" | "video":
            return f"{_API} takes no {media.kind}"


def _image(media: Media) -> JsonObject:
    if media.id or media.url:
        return {"type": "image", "source": _elsewhere(media)}
    mime_type = media.mime_type or USUAL_TYPES["image"]
    source = {"type": "base64", "media_type": mime_type, "data": media.data}
    return {"type": "image", "source": source}


def _document(media: Media) -> JsonObject | str:
    mime_type = media.mime_type or "application/pdf"
    if media.id or media.url:
        source = _elsewhere(media)
    elif (text := decode_text(media)) is not None:
        if not text.strip():
            return "it is empty"
        source = {"type": "text", "media_type": "text/plain", "data": text}
    elif mime_type == "application/pdf":
        source = {"type": "base64", "media_type": mime_type, "data": media.data}
    else:
        return f"{_API} takes documents as PDF or as text, not as {mime_type}"
    named = {"title": media.filename} if media.filename else {}
    return {"type": "document", "source": source, **named}


def _elsewhere(media: Media) -> JsonObject:
    if media.id:
        return {"type": "file", "file_id": media.id}
    return {"type": "url", "url": media.url}


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
    """Return the schema with closed objects and unsupported keywords in the descriptions.

    Limits of numbers, lengths and patterns are refused; the model reads them in the description.
    https://platform.claude.com/docs/en/build-with-claude/structured-outputs
    """
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
