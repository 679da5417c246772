"""From a chat request to the body of a request to OpenAI's Responses API.

https://platform.openai.com/docs/api-reference/responses. Nothing is kept there (`store` is false):
the whole conversation is sent each time, with the thoughts that the model signed.
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
    build_schema,
    choose_role,
    encode_call_id,
    encode_tool_choice,
    select_parameters,
)
from copilot_runtime.adapters.profiles import find_profile
from copilot_runtime.adapters.tools import build_tools, required_tool
from copilot_runtime.interfaces import ChatRequest, Parameters
from copilot_runtime.jsonvalue import JsonObject
from copilot_runtime.messages import ImageMessage, TextMessage

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
    tools = [{"type": "function", **tool["function"]} for tool in build_tools(request.actions)]
    for tool in tools:
        tool["strict"] = False  # by default it is strict, and the schema is altered
    items = fit_history(request.messages, tools, context_tokens, options.signer)
    body: JsonObject = {
        "model": model,
        "stream": True,
        "store": False,
        "input": _encode_input(items, model, options, capabilities),
    }
    if tools:
        body["tools"] = tools
        if parameters.tool_choice is not None:
            body["tool_choice"] = encode_tool_choice(parameters, options) or {
                "type": "function",
                "name": required_tool(parameters),
            }
        if parameters.parallel_tool_calls is not None:
            body["parallel_tool_calls"] = parameters.parallel_tool_calls
    plain = {
        "max_output_tokens": parameters.max_tokens,
        "temperature": parameters.temperature,
        "top_p": parameters.top_p,
    }
    body |= {name: value for name, value in plain.items() if value is not None}
    if reasoning := _reasoning(parameters, model, options):
        body |= {"reasoning": reasoning, "include": ["reasoning.encrypted_content"]}
    if parameters.response_schema is not None:
        body["text"] = {"format": {"type": "json_schema", **build_schema(parameters)}}
    return body


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
                role = choose_role(item, developer_role=options.uses_developer_role(model))
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
    """Return the reasoning item that the signature holds: its id and its encrypted content."""
    try:
        id, encrypted = orjson.loads(thought.signature)
    except ValueError:  # not written by this adapter
        return []
    summary = [{"type": "summary_text", "text": thought.content}] if thought.content else []
    return [
        {"type": "reasoning", "id": id, "summary": summary, "encrypted_content": encrypted},
    ]


def _encode(media: Media) -> JsonObject | str:
    """Return the part of the content, or why there is none."""
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
