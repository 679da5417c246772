"""Messages with attachments, and results with images, as Anthropic's Messages API wants them."""

from copilot_runtime.adapters.attachments import add_types, build_parts
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
    return add_types(build_parts(message, _build_media, new=new), "text")


def is_file(block: JsonObject) -> bool:
    """Return whether a block names a file by its id."""
    return block.get("type") in ("image", "document") and block["source"]["type"] == "file"


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
