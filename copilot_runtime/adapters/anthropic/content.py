"""Encodes messages, calls, results and reasoning as blocks of Anthropic's Messages API.

A failed result may contain texts only, so `is_error` is not set on a result with images.
"""

import re

from copilot_runtime.adapters.attachments import (
    RESULT_IMAGES,
    add_types,
    build_parts,
    parse_result_blocks,
)
from copilot_runtime.adapters.history import Thought, ToolExchange, format_result
from copilot_runtime.adapters.media import Media, decode_text
from copilot_runtime.api.messages import ImageMessage, TextMessage
from copilot_runtime.base.jsontext import loads
from copilot_runtime.base.jsonvalue import JsonObject

REDACTED = "redacted/"
"""The prefix of the signature of reasoning whose text is encrypted."""

_API = "Anthropic's Messages API"
_ID = re.compile(r"[^a-zA-Z0-9_-]")


def build_blocks(message: TextMessage | ImageMessage, *, new: bool) -> list[JsonObject]:
    """Return the content of a message. `new` is True for what the user has just sent.

    Raises `Misuse` for a new attachment that the API does not take.
    """
    return add_types(build_parts(message, _build_media, new=new), "text")


def build_exchange(exchange: ToolExchange, *, first: bool) -> tuple[JsonObject, JsonObject]:
    """Return the blocks of a call and of its result."""
    del first  # nothing is special about it
    call, result = exchange.call, exchange.result
    id = _ID.sub("_", call.id)  # other providers write ids with other characters
    arguments = loads(call.arguments.encode())
    content = parse_result_blocks(format_result(result))
    failed = {"is_error": True} if result.error and isinstance(content, str) else {}
    return (
        {"type": "tool_use", "id": id, "name": call.name, "input": arguments},
        {"type": "tool_result", "tool_use_id": id, "content": content, **failed},
    )


def build_thought(thought: Thought) -> JsonObject:
    """Return the block of reasoning, unchanged from the response."""
    if thought.signature.startswith(REDACTED):
        return {"type": "redacted_thinking", "data": thought.signature.removeprefix(REDACTED)}
    return {"type": "thinking", "thinking": thought.content, "signature": thought.signature}


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


def _image(media: Media) -> JsonObject | str:
    if media.id or media.url:
        return {"type": "image", "source": _elsewhere(media)}
    mime_type = media.mime_type or "image/png"
    if mime_type not in RESULT_IMAGES:
        return f"{_API} takes images as JPEG, PNG, GIF and WebP, not as {mime_type}"
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
