"""Builds the request body of OpenAI's Responses API from a chat request.

https://platform.openai.com/docs/api-reference/responses. OpenAI stores nothing (`store` is false):
each request contains the whole conversation, with the model's signed reasoning.
"""

from collections.abc import Sequence
from typing import assert_never

import orjson

from copilot_runtime.adapters.capabilities import CapabilityFilter
from copilot_runtime.adapters.history import (
    HistoryItem,
    Thought,
    ToolExchange,
    find_last_turn,
    fit_history,
    format_result,
)
from copilot_runtime.adapters.media import Media, build_data_url, build_text
from copilot_runtime.adapters.openai.content import encode_content
from copilot_runtime.adapters.openai.options import RequestOptions
from copilot_runtime.adapters.openai.request import (
    build_response_format,
    build_tool_choice,
    choose_role,
    encode_call_id,
    select_parameters,
)
from copilot_runtime.adapters.profiles import find_profile
from copilot_runtime.adapters.tools import build_tools
from copilot_runtime.api.adapter import ChatRequest
from copilot_runtime.api.messages import ImageMessage, TextMessage
from copilot_runtime.api.run_input import Parameters
from copilot_runtime.base.jsonvalue import JsonObject

_API = "OpenAI's Responses API"


def build_response_body(
    request: ChatRequest,
    model: str,
    options: RequestOptions,
    capabilities: CapabilityFilter,
    context_tokens: int,
) -> JsonObject:
    """Return the body of the request."""
    parameters = select_parameters(request, model, options, capabilities)
    # by default a tool is strict, and its schema is altered
    tools = [{**_flatten(tool), "strict": False} for tool in build_tools(request.actions)]
    choice = build_tool_choice(parameters, options.preset.required) if tools else None
    reasoning = _reasoning(parameters, model, options)
    answer_format = build_response_format(parameters)
    items = fit_history(request, tools, context_tokens, options.signer)
    body: JsonObject = {
        "model": model,
        "stream": True,
        "store": False,
        "input": _encode_input(items, model, options, capabilities),
        "tools": tools or None,
        "tool_choice": _flatten(choice) if isinstance(choice, dict) else choice,
        "parallel_tool_calls": parameters.parallel_tool_calls if tools else None,
        "max_output_tokens": parameters.max_tokens,
        "temperature": parameters.temperature,
        "top_p": parameters.top_p,
        "reasoning": reasoning or None,
        "include": ["reasoning.encrypted_content"] if reasoning else None,
        "text": {"format": _flatten(answer_format)} if answer_format else None,
    }
    return {name: value for name, value in body.items() if value is not None}


def _flatten(value: JsonObject) -> JsonObject:
    """Return `{"type": "function", "function": {...}}` as one flat object."""
    kind = value["type"]
    return {"type": kind, **value[kind]}


def _reasoning(parameters: Parameters, model: str, options: RequestOptions) -> JsonObject:
    summary = options.reasoning_summary if find_profile(model).reasons else None
    reasoning = {"effort": parameters.reasoning_effort, "summary": summary}
    return {name: value for name, value in reasoning.items() if value is not None}


def _encode_input(
    items: Sequence[HistoryItem],
    model: str,
    options: RequestOptions,
    capabilities: CapabilityFilter,
) -> list[JsonObject]:
    encoded: list[JsonObject] = []
    turn = find_last_turn(items)
    for at, item in enumerate(items):
        match item:
            case TextMessage() | ImageMessage():
                content = encode_content(item, _encode, "input_text", capabilities, new=at >= turn)
                role = choose_role(item, options.preset, model)
                encoded.append({"role": role, "content": content})
            case ToolExchange():
                encoded += _encode_exchange(item)
            case Thought():
                encoded += _encode_thought(item)
            case _:
                assert_never(item)
    return encoded


def _encode_exchange(exchange: ToolExchange) -> list[JsonObject]:
    call, id = exchange.call, encode_call_id(exchange)
    return [
        {
            "type": "function_call",
            "call_id": id,
            "name": call.name,
            "arguments": call.arguments,
        },
        {"type": "function_call_output", "call_id": id, "output": format_result(exchange.result)},
    ]


def _encode_thought(thought: Thought) -> list[JsonObject]:
    """Return the reasoning item in the signature: its id and its encrypted content."""
    try:
        id, encrypted = orjson.loads(thought.signature)
    except ValueError:  # not written by this adapter
        return []
    summary = [{"type": "summary_text", "text": thought.content}] if thought.content else []
    return [
        {"type": "reasoning", "id": id, "summary": summary, "encrypted_content": encrypted},
    ]


def _encode(media: Media) -> JsonObject | str:
    """Return the content part, or the reason for a refusal."""
    match media.kind:
        case "image":
            if media.id:
                return {"type": "input_image", "detail": "auto", "file_id": media.id}
            url = media.url or build_data_url(media)
            return {"type": "input_image", "detail": "auto", "image_url": url}
        case "document":
            return _encode_document(media)
        case "audio" | "video":
            return f"{_API} takes no {media.kind}"


def _encode_document(media: Media) -> JsonObject:
    if media.id:
        return {"type": "input_file", "file_id": media.id}
    if media.url:
        return {"type": "input_file", "file_url": media.url}
    if part := build_text(media):
        return part
    filename = media.filename or "document.pdf"
    return {"type": "input_file", "filename": filename, "file_data": build_data_url(media)}
