"""Encodes messages with attachments, whatever format a provider's content parts have.

An attachment that the provider does not support is refused in a new message. In an older message a
sentence replaces it, because one video would otherwise make the whole conversation fail.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import orjson

from copilot_runtime.adapters.media import Media, parse_media
from copilot_runtime.api.events import Activity
from copilot_runtime.api.messages import ImageMessage, MediaPart, TextMessage, new_id
from copilot_runtime.base.errors import Misuse
from copilot_runtime.base.jsonvalue import JsonObject

IMAGE = "image"
"""The `activity_type` of an image that a model made."""

RESULT_IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")
"""The MIME types of images that models accept in tool results."""

MediaEncoder = Callable[[Media], JsonObject | str]
"""Returns the content part for an attachment, or the reason for a refusal as half a sentence."""


def has_media(message: TextMessage) -> bool:
    """Return whether a message has attachments: only those of users are considered."""
    return message.role == "user" and any(isinstance(part, MediaPart) for part in message.parts)


def build_parts(
    message: TextMessage | ImageMessage, encode: MediaEncoder, *, new: bool
) -> list[JsonObject]:
    """Return the content parts of a message: `{"text": ...}`, and attachments by `encode`.

    `new` is `True` for a message that the user has just sent. Raises `Misuse` if such a message has
    an attachment that the provider does not support.
    """
    if isinstance(message, ImageMessage):
        media = parse_media(_build_part(message))
        return _encode_media(media, encode, new=new and message.role == "user")
    if not has_media(message):
        return text_parts(message.content)
    parts: list[JsonObject] = []
    for part in message.parts:
        if isinstance(part, MediaPart):
            parts += _encode_media(parse_media(part), encode, new=new)
        else:
            parts += text_parts(part.text)
    return parts


def parse_result_blocks(result: str) -> str | list[JsonObject]:
    """Return a tool result as text, or as blocks if it is a list of texts and images.

    That list is the `content` of MCP (https://modelcontextprotocol.io, `CallToolResult`), or that
    of a result in AG-UI.
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


def image_activity(mime_type: str, data: str) -> Activity:
    """Return the event for a generated image; `data` is base64 text.

    It is an activity: clients render it by its type, and its bytes are not sent to models as text.
    """
    return Activity(
        message_id=new_id(), activity_type=IMAGE, content={"mimeType": mime_type, "data": data}
    )


def image_activity_from_url(url: str) -> Activity:
    """Return the event for a generated image with a `data:` URL or another URL."""
    if url.startswith("data:"):
        media = parse_media(MediaPart(kind="image", source="data", value=url))
        return image_activity(media.mime_type or "image/png", media.data)
    content = {"url": url}
    return Activity(message_id=new_id(), activity_type=IMAGE, content=content)


def add_types(parts: Sequence[JsonObject], name: str) -> list[JsonObject]:
    """Return the parts with a `type` in each; `name` is the type of texts."""
    return [part if "type" in part else {"type": name, **part} for part in parts]


def merge_extra(body: JsonObject, extra: Mapping[str, Any]) -> JsonObject:
    """Merge the application's fields into a request body: objects by key, lists by appending."""
    for name, value in extra.items():
        below = body.get(name)
        if isinstance(below, dict) and isinstance(value, Mapping):
            body[name] = {**below, **value}
        elif isinstance(below, list) and isinstance(value, Sequence):
            body[name] = [*below, *value]
        else:
            body[name] = value
    return body


def text_parts(text: str) -> list[JsonObject]:
    """Return a list with one text part, or an empty list for blank text."""
    return [{"text": text}] if text.strip() else []


def _result_block(item: Any) -> JsonObject | None:
    match item:
        case {"type": "text", "text": str(text)} if text.strip():
            return {"type": "text", "text": text}
        case {"type": "image", "data": str(data), "mimeType": str(mime_type)} | {
            "type": "image",
            "source": {"type": "data", "value": str(data), "mimeType": str(mime_type)},
        } if mime_type in RESULT_IMAGES:
            source = {"type": "base64", "media_type": mime_type, "data": data}
            return {"type": "image", "source": source}
        case _:
            return None


def _build_part(image: ImageMessage) -> MediaPart:
    """Return an image message as a part; content without a URL scheme is base64."""
    elsewhere = image.bytes.startswith(("data:", "http://", "https://", "gs://", "s3://"))
    subtype = image.format.lower().removeprefix("image/")
    mime_type = f"image/{'jpeg' if subtype == 'jpg' else subtype}"
    return MediaPart(
        kind="image",
        source="url" if elsewhere else "data",
        value=image.bytes,
        mime_type=None if image.bytes.startswith("data:") else mime_type,  # it says so itself
    )


def _encode_media(media: Media, encode: MediaEncoder, *, new: bool) -> list[JsonObject]:
    part = encode(media)
    if not isinstance(part, str):
        return [part]
    if new:
        raise Misuse(
            f"The model cannot take {media}: {part}.",
            hint="Let the chat accept other files only, or use a model and an agent "
            "that take this kind.",
        )
    return text_parts(f"[Here was {media}. It is left out: {part}.]")
