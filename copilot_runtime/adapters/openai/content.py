"""The content of messages to OpenAI's APIs: texts and files."""

from functools import partial

from copilot_runtime.adapters.attachments import (
    Media,
    MediaEncoder,
    add_types,
    build_data_url,
    build_parts,
    build_result_parts,
    build_text,
    decode_text,
    has_media,
    name_document,
    separate_files,
)
from copilot_runtime.adapters.capabilities import CapabilityFilter
from copilot_runtime.adapters.history import ToolExchange, format_result
from copilot_runtime.adapters.media.types import unify_type
from copilot_runtime.api.messages import ImageMessage, TextMessage
from copilot_runtime.base.jsonvalue import JsonObject

_API = "OpenAI's chat completions API"
_AUDIO = {"audio/mpeg": "mp3", "audio/wav": "wav"}


def build_content(
    message: TextMessage | ImageMessage, capabilities: CapabilityFilter, *, new: bool
) -> str | list[JsonObject]:
    """Return the content of a message. `new` is True for the user's latest message.

    Raises `Misuse` for a new attachment that the API does not take.
    """
    return encode_content(message, _encode, "text", capabilities, new=new)


def encode_content(
    message: TextMessage | ImageMessage,
    encode_media: MediaEncoder,
    text: str,
    capabilities: CapabilityFilter,
    *,
    new: bool,
) -> str | list[JsonObject]:
    """Return the content for one of OpenAI's APIs; `text` is its name for text parts."""

    if isinstance(message, TextMessage) and not has_media(message):
        return message.content
    encode = partial(encode_for_service, capabilities, encode_media)
    return add_types(build_parts(message, encode, new=new), text)


def encode_for_service(
    capabilities: CapabilityFilter, encode_media: MediaEncoder, media: Media
) -> JsonObject | str:
    """Return the content part for a file, or the reason for a refusal by the service."""
    return _find_reason(media, capabilities) or encode_media(media)


def _find_reason(media: Media, capabilities: CapabilityFilter) -> str | None:
    """Return the reason why the service does not support an attachment, or `None`."""
    match media.kind:
        case "image":
            return capabilities.reason("image_urls" if media.url else "images")
        case "document":
            return None if decode_text(media) is not None else capabilities.reason("documents")
        case "audio" | "video":
            return None


def _encode(media: Media) -> JsonObject | str:
    """Return the content part, or the reason for a refusal."""
    match media.kind:
        case "image":
            return _encode_image(media)
        case "audio":
            return _encode_audio(media)
        case "document":
            return _encode_document(media)
        case "video":
            return f"{_API} takes no video"


def _encode_image(media: Media) -> JsonObject | str:
    if media.id:
        return {"type": "file", "file": {"file_id": media.id}}
    url = media.url or build_data_url(media)
    return {"type": "image_url", "image_url": {"url": url}}


def _encode_audio(media: Media) -> JsonObject | str:
    if not media.data:
        return f"{_API} takes audio only with its content, not by an address or an id"
    format = _AUDIO.get(unify_type(media.mime_type or "audio/wav"))
    if format is None:
        return f"{_API} takes audio as wav or mp3, not as {media.mime_type}"
    return {"type": "input_audio", "input_audio": {"data": media.data, "format": format}}


def _encode_document(media: Media) -> JsonObject | str:
    if media.id:
        return {"type": "file", "file": {"file_id": media.id}}
    if media.url:
        return f"{_API} takes documents with their content or by an id, not by an address"
    if part := build_text(media):
        return part
    file = {"filename": name_document(media), "file_data": build_data_url(media)}
    return {"type": "file", "file": file}


def encode_result(
    exchange: ToolExchange, capabilities: CapabilityFilter
) -> tuple[str, list[JsonObject]]:
    """Return the text of a result, and the content of the message that shows its images, if any.

    A result is text: https://platform.openai.com/docs/api-reference/chat/create, "Tool message".
    """
    parts = build_result_parts(exchange.result, partial(encode_for_service, capabilities, _encode))
    if not parts:
        return format_result(exchange.result), []
    text, images = separate_files(parts)
    words: JsonObject = {"type": "text", "text": f"[The result of {exchange.call.name} has:]"}
    return text, [words, *images] if images else []
