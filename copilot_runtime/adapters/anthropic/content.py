"""Messages with attachments, and results with images, as Anthropic's Messages API wants them."""

from typing import Any, cast

import orjson

from copilot_runtime.adapters.attachments import add_types, build_image_parts, build_parts
from copilot_runtime.adapters.media import Media, decode_text
from copilot_runtime.jsonvalue import JsonObject
from copilot_runtime.messages import ImageMessage, TextMessage

FILES = "files-api-2025-04-14"
"""The beta that knows files by an id."""

_API = "Anthropic's Messages API"
_IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")


def build_blocks(message: TextMessage | ImageMessage, *, new: bool) -> list[JsonObject]:
    """Return the content of a message. `new` says that it is what the person sent just now.

    Raises `Misuse` for a new attachment that the API does not take.
    """
    if isinstance(message, ImageMessage):
        parts = build_image_parts(message, _build_media, new=new)
    else:
        parts = build_parts(message, _build_media, new=new)
    return add_types(parts, "text")


def parse_result_blocks(result: str) -> str | list[JsonObject]:
    """Return what came of a call: text, or the blocks of a list of texts and images.

    That list is the `content` of MCP (https://modelcontextprotocol.io, `CallToolResult`).
    """
    if '"image"' not in result:
        return result
    try:
        value: Any = orjson.loads(result)
    except orjson.JSONDecodeError:
        return result
    listed: Any = cast("JsonObject", value).get("content") if isinstance(value, dict) else value
    if not isinstance(listed, list):
        return result
    blocks = [_result_block(item) for item in cast("list[Any]", listed)]
    usable = [block for block in blocks if block is not None]
    return usable if usable and len(usable) == len(blocks) else result


def uses_files(blocks: list[JsonObject]) -> bool:
    """Return whether a file is named by its id."""
    return any(
        block["type"] in ("image", "document") and block["source"]["type"] == "file"
        for block in blocks
    )


def _result_block(item: Any) -> JsonObject | None:
    match item:
        case {"type": "text", "text": str(text)} if text.strip():
            return {"type": "text", "text": text}
        case {"type": "image", "data": str(data), "mimeType": str(mime_type)} if (
            mime_type in _IMAGES
        ):
            source = {"type": "base64", "media_type": mime_type, "data": data}
            return {"type": "image", "source": source}
        case _:
            return None


def _build_media(media: Media) -> JsonObject | str:
    """Return the block, or why there is none."""
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
    if mime_type not in _IMAGES:
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
