"""Messages with attachments, whatever a provider's parts look like.

What a provider has no place for is refused when the person sends it. In an older message a
sentence stands in its place, or one video would end the whole conversation.
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
"""The types of images that models take as what came of a call."""

MediaEncoder = Callable[[Media], JsonObject | str]
"""Returns the part for an attachment, or why there is none: the end of a sentence."""


def has_media(message: TextMessage) -> bool:
    """Return whether a message is more than a text: only the user's may be."""
    return message.role == "user" and any(isinstance(part, MediaPart) for part in message.parts)


def build_parts(
    message: TextMessage | ImageMessage, encode: MediaEncoder, *, new: bool
) -> list[JsonObject]:
    """Return the parts of a message: `{"text": ...}`, and what `encode` returns for attachments.

    `new` is True for what the user has just sent. Raises `Misuse` for a new attachment
    that the provider does not take.
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
    """Return what came of a call: text, or the blocks of a list of texts and images.

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
    """Return the event for an image that the model made; `data` is base64 text.

    It is an activity: clients draw it by its type, and no model is sent its bytes as words.
    """
    return Activity(
        message_id=new_id(), activity_type=IMAGE, content={"mimeType": mime_type, "data": data}
    )


def image_activity_from_url(url: str) -> Activity:
    """Return the event for an image that the model made, of its `data:` URL or its address."""
    if url.startswith("data:"):
        media = parse_media(MediaPart(kind="image", source="data", value=url))
        return image_activity(media.mime_type or "image/png", media.data)
    content = {"url": url}
    return Activity(message_id=new_id(), activity_type=IMAGE, content=content)


def add_types(parts: Sequence[JsonObject], name: str) -> list[JsonObject]:
    """Return the parts with a type in each, where a text's is called `name`."""
    return [part if "type" in part else {"type": name, **part} for part in parts]


def merge_extra(body: JsonObject, extra: Mapping[str, Any]) -> JsonObject:
    """Return a body with what the application adds: members of objects, items of lists."""
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
    """Return the part with a text, if it says anything."""
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
    """Return an image message as a part; what is no address and no `data:` is base64."""
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
