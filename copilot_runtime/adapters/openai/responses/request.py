"""A chat request as OpenAI's Responses API wants it.

https://platform.openai.com/docs/api-reference/responses. Nothing is kept there (`store` is false):
the whole conversation is sent each time, with the thoughts that the model signed.
"""

from collections.abc import Sequence
from typing import assert_never

import orjson

from copilot_runtime.adapters.capabilities import CapabilityFilter
from copilot_runtime.adapters.history import HistoryItem, Thought, ToolExchange, find_last_turn
from copilot_runtime.adapters.media import Media, decode_text
from copilot_runtime.adapters.openai.content import content_with
from copilot_runtime.adapters.openai.request import (
    Habits,
    call_id_of,
    items_of,
    result_of,
    role_of,
    schema_of,
    tool_choice_of,
    wishes_of,
)
from copilot_runtime.adapters.tools import build_tools, required_tool
from copilot_runtime.interfaces import ChatRequest, Parameters
from copilot_runtime.jsonvalue import JsonObject
from copilot_runtime.messages import ImageMessage, TextMessage

_API = "OpenAI's Responses API"


def response_body_of(
    request: ChatRequest, model: str, habits: Habits, capabilities: CapabilityFilter
) -> JsonObject:
    """Return the body of the request."""
    wishes = wishes_of(request, habits, capabilities)
    tools = [{"type": "function", **tool["function"]} for tool in build_tools(request.actions)]
    for tool in tools:
        tool["strict"] = False  # here it is strict unless told otherwise, and alters the schema
    items = items_of(request, habits, tools)
    body: JsonObject = {
        "model": model,
        "stream": True,
        "store": False,
        "input": _input(items, habits, capabilities),
    }
    if tools:
        body["tools"] = tools
        if wishes.tool_choice is not None:
            body["tool_choice"] = tool_choice_of(wishes, habits) or {
                "type": "function",
                "name": required_tool(wishes),
            }
        if wishes.parallel_tool_calls is not None:
            body["parallel_tool_calls"] = wishes.parallel_tool_calls
    plain = {
        "max_output_tokens": wishes.max_tokens,
        "temperature": wishes.temperature,
        "top_p": wishes.top_p,
    }
    body |= {name: value for name, value in plain.items() if value is not None}
    if reasoning := _reasoning(wishes, habits):
        body |= {"reasoning": reasoning, "include": ["reasoning.encrypted_content"]}
    if wishes.response_schema is not None:
        body["text"] = {"format": {"type": "json_schema", **schema_of(wishes)}}
    return body


def _reasoning(wishes: Parameters, habits: Habits) -> JsonObject:
    asked = {"effort": wishes.reasoning_effort, "summary": habits.reasoning_summary}
    return {name: value for name, value in asked.items() if value is not None}


def _input(
    items: Sequence[HistoryItem], habits: Habits, capabilities: CapabilityFilter
) -> list[JsonObject]:
    written: list[JsonObject] = []
    turn = find_last_turn(items)
    for at, item in enumerate(items):
        match item:
            case TextMessage() | ImageMessage():
                content = content_with(item, _shown, "input_text", capabilities, new=at >= turn)
                role = role_of(item, developer_role=habits.developer_role)
                written.append({"role": role, "content": content})
            case ToolExchange():
                written += _exchange(item)
            case Thought():
                written += _thought(item)
            case _:
                assert_never(item)
    return written


def _exchange(exchange: ToolExchange) -> list[JsonObject]:
    call, id = exchange.call, call_id_of(exchange)
    return [
        {
            "type": "function_call",
            "call_id": id,
            "name": call.name,
            "arguments": call.arguments,
        },
        {"type": "function_call_output", "call_id": id, "output": result_of(exchange)},
    ]


def _thought(thought: Thought) -> list[JsonObject]:
    """Return the reasoning item that the signature holds: its id and its encrypted content."""
    try:
        id, encrypted = orjson.loads(thought.signature)
    except ValueError:  # whoever wrote it, it was not us
        return []
    summary = [{"type": "summary_text", "text": thought.content}] if thought.content else []
    return [
        {"type": "reasoning", "id": id, "summary": summary, "encrypted_content": encrypted},
    ]


def _shown(media: Media) -> JsonObject | str:
    """Return the part of the content, or why there is none."""
    match media.kind:
        case "image":
            if media.id:
                return {"type": "input_image", "detail": "auto", "file_id": media.id}
            url = media.url or f"data:{media.mime_type or 'image/png'};base64,{media.data}"
            return {"type": "input_image", "detail": "auto", "image_url": url}
        case "document":
            return _document(media)
        case "audio" | "video":
            return f"{_API} takes no {media.kind}"


def _document(media: Media) -> JsonObject:
    if media.id:
        return {"type": "input_file", "file_id": media.id}
    if media.url:
        return {"type": "input_file", "file_url": media.url}
    if (text := decode_text(media)) is not None:  # every model can read it
        return {"text": f"{media.filename or 'Attached document'}:\n\n{text}"}
    data = f"data:{media.mime_type or 'application/pdf'};base64,{media.data}"
    return {
        "type": "input_file",
        "filename": media.filename or "document.pdf",
        "file_data": data,
    }
