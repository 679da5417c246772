"""Finds the media in results of tools, so that no base64 reaches a model as text.

They are blocks of MCP, AG-UI, LangChain, OpenAI or Anthropic, `data:` URLs, and bare base64.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

import orjson

from copilot_runtime.adapters.attachments import parse_media
from copilot_runtime.adapters.media.types import detect_type
from copilot_runtime.api.messages import (
    ImageMessage,
    MediaPart,
    Message,
    Part,
    ResultMessage,
    TextMessage,
    TextPart,
)
from copilot_runtime.base.jsonvalue import JsonObject, as_object, as_text

_BLOCKS = (
    *('"image', '"input_image"', '"audio"', '"video"'),
    *('"document"', '"file"', '"resource"'),
)
"""The types of blocks with files, or their start."""

_STARTS = ("iVBORw0KGgo", "/9j/", "R0lGOD", "UklGR", "JVBERi0")
"""The first characters of usual files in base64."""

_LONG = 4_096
_STRIDE = 1_500
_SAMPLE = re.compile(r"[\w+/=\s\\-]{64}", re.ASCII)
"""A long result has files only if one of its samples, `_STRIDE` characters apart, may be base64."""

_KINDS = {
    "image": "image",
    "image_url": "image",
    "input_image": "image",
    "audio": "audio",
    "video": "video",
    "document": "document",
    "file": "binary",
    "resource": "binary",
}
"""The type of a block → the kind of the part."""

_FILE = re.compile(
    r"data:[a-z]+/[\w.+-]+(?:;[\w=.-]+)*;base64,[A-Za-z0-9+/_-]{40,}={0,2}"
    r"|(?<![\w+/])(?:iVBORw0KGgo|/9j/|R0lGOD|UklGR|JVBERi0)[A-Za-z0-9+/_-]{200,}={0,2}",
    re.ASCII,
)
"""A `data:` URL, or the base64 of a usual file, within a text."""

_BASE64 = re.compile(r"[A-Za-z0-9+/_\s-]{200}")
"""The start of a text that may be base64: shorter ones cost little."""

_HEAD = re.compile(r"[A-Za-z0-9+/_-]*={0,2}\s*")
_SHORT = 64
"""Length of a text that is not searched for files."""


def has_files(message: Message) -> bool:
    """Return whether files are among the parts of a message, or whether it is an image."""
    if type(message) is TextMessage or type(message) is ResultMessage:
        return bool(message.parts)
    return type(message) is ImageMessage


def split_results(messages: Sequence[Message]) -> list[Message]:
    """Return a conversation with each result as `split_result` returns it."""
    return [split_result(one) if type(one) is ResultMessage else one for one in messages]


def split_result(message: ResultMessage) -> ResultMessage:
    """Return a result whose media are among its `parts`, and whose `result` has only its texts.

    A result without media is returned unchanged.
    """
    if message.parts:
        if not any(isinstance(part, MediaPart) for part in message.parts):
            return message
        parts = message.parts
    elif not _may_hold_files(message.result) or (parts := _parse(message.result)) is None:
        return message
    texts = "\n".join(part.text for part in parts if isinstance(part, TextPart))
    if message.parts and texts == message.result:
        return message
    return replace(message, result=texts, parts=parts)


def replace_text(result: ResultMessage, text: str) -> ResultMessage:
    """Return a result with another text, before its files."""
    files = [part for part in result.parts if isinstance(part, MediaPart)]
    return replace(result, result=text, parts=[TextPart(text=text), *files] if files else ())


def _may_hold_files(text: str) -> bool:
    """Return whether a result has to be parsed: most have no files."""
    if len(text) > _LONG and not any(
        _SAMPLE.match(text, at) for at in range(0, len(text), _STRIDE)
    ):
        return False
    if '"type"' in text and any(mark in text for mark in _BLOCKS):
        return True
    if ";base64," in text or any(start in text for start in _STARTS):
        return True
    return _BASE64.match(text) is not None and detect_type(text) is not None


def _parse(text: str) -> Sequence[Part] | None:
    """Return the parts of a result with media, or `None` for any other result."""
    value: Any = text
    if text.lstrip().startswith(("{", "[", '"')):
        with suppress(orjson.JSONDecodeError):
            value = orjson.loads(text)
    try:
        parts = [part for block in _find_blocks(value) for part in _split_block(block)]
    except RecursionError:  # JSON of a thousand levels
        parts = _split_text(text)
    if not any(isinstance(part, MediaPart) for part in parts):
        return None
    return [part for part in parts if isinstance(part, MediaPart) or part.text.strip()]


def _split_block(block: Any) -> list[Part]:
    if (part := _read_block(block)) is not None:
        return [part]
    if isinstance(block, str):
        return _split_text(block)
    found: list[Part] = []
    rest = _take_media(block, found)
    return [TextPart(text=_find_text(rest)), *found]


def _find_blocks(value: Any) -> list[Any]:
    """Return the blocks of a list, or of a `CallToolResult` of MCP; any other value as one block.

    https://modelcontextprotocol.io/specification/2025-06-18/server/tools#tool-result
    """
    match value:
        case {"content": list(content)} if value.keys() <= {"content", "isError", "_meta"}:
            return cast("list[Any]", content)
        case list() if all("type" in as_object(item) for item in cast("list[Any]", value)):
            return cast("list[Any]", value)
        case _:
            return [value]


def _find_text(block: Any) -> str:
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "resource", "resource": {"text": str(text)}}:
            return text
        case _:
            return orjson.dumps(block).decode()


def _take_media(value: Any, found: list[Part]) -> Any:
    """Return a value with a phrase in the place of each file, which is added to `found`."""
    match value:
        case dict():
            if (part := _read_block(value)) is not None:
                found.append(part)
                return _name(part)
            fields = cast("JsonObject", value)
            return {key: _take_media(item, found) for key, item in fields.items()}
        case list():
            return [_take_media(item, found) for item in cast("list[Any]", value)]
        case str() if len(value) > _SHORT:
            parts = _split_text(value)
            found += [part for part in parts if isinstance(part, MediaPart)]
            return "".join(map(_name, parts))
        case _:
            return value


def _name(part: Part) -> str:
    return part.text if isinstance(part, TextPart) else f"[{parse_media(part)}]"


def _split_text(text: str) -> list[Part]:
    """Return a text as parts: base64 in it is files, and so is a text that is base64."""
    if _BASE64.match(text) and (mime_type := detect_type(text)):
        return [MediaPart(kind="binary", source="data", value=text, mime_type=mime_type)]
    parts: list[Part] = []
    at = 0
    for found in _FILE.finditer(text):
        parts.append(TextPart(text=text[at : found.start()]))
        mime_type = None if found[0].startswith("data:") else detect_type(found[0])
        parts.append(MediaPart(kind="binary", source="data", value=found[0], mime_type=mime_type))
        at = found.end()
    return [*parts, TextPart(text=text[at:])]


def _read_block(block: Any) -> MediaPart | None:
    """Return the file whose content is in a block, else `None`.

    An address is left to the model as text: it may be one among many that a search has found.
    """
    fields = as_object(block)
    kind = _KINDS.get(as_text(fields.get("type")))
    if kind is None:
        return None
    source = fields
    for name in ("source", "resource", "image_url"):
        source = as_object(fields.get(name)) or source
    data = _first_text(source, "data", "base64", "blob", "value", "url", "image_url")
    mime_type = _first_text(source, "mimeType", "mime_type", "media_type")
    if data is None or not (data.startswith("data:") or (mime_type and _HEAD.fullmatch(data[:64]))):
        return None
    name = _first_text(source, "uri", "filename", "name") or ""
    return MediaPart(
        kind=cast("Any", kind),
        source="data",
        value=data,
        mime_type=mime_type,
        filename=name.rpartition("/")[2] or None,
    )


def _first_text(fields: JsonObject, *names: str) -> str | None:
    return next((fields[name] for name in names if isinstance(fields.get(name), str)), None)
