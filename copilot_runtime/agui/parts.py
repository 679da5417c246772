"""The parts of a user's message: texts, images, audio, video and documents.

Parts of `source` are those of AG-UI 0.0.5x and 1.0, `binary` is their predecessor.
"""

from typing import Any

from copilot_runtime.errors import Misuse
from copilot_runtime.jsonvalue import optional_text, require_list, require_object, require_text
from copilot_runtime.messages import MediaPart, Part, TextPart

_KINDS = ("image", "audio", "video", "document")
_BINARY = ("data", "url", "id")
_UNKNOWN_BYTES = "application/octet-stream"


def decode_parts(value: Any, where: str) -> tuple[Part, ...]:
    """Read a list of parts. Raises `Misuse`, which names the place of what is wrong."""
    parts = enumerate(require_list(value, where))
    return tuple(_decode_part(part, f"{where}[{at}]") for at, part in parts)


def encode_part(part: Part) -> dict[str, Any]:
    """Return a part as JSON."""
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    if part.kind == "binary" or part.source == "id":
        filename_field = {"filename": part.filename} if part.filename is not None else {}
        mime_type = part.mime_type or _UNKNOWN_BYTES
        return {"type": "binary", "mimeType": mime_type, part.source: part.value, **filename_field}
    source = {"type": part.source, "value": part.value}
    mime_type = part.mime_type or (_UNKNOWN_BYTES if part.source == "data" else None)
    if mime_type is not None:
        source["mimeType"] = mime_type
    metadata = part.metadata
    if metadata is None and part.filename is not None:
        metadata = {"filename": part.filename}
    extra = {"metadata": metadata} if metadata is not None else {}
    return {"type": part.kind, "source": source, **extra}


def _decode_part(value: Any, where: str) -> Part:
    part = require_object(value, where)
    kind = require_text(part, "type", where)
    if kind == "text":
        return TextPart(text=require_text(part, "text", where))
    if kind == "binary":
        return _decode_binary(part, where)
    if kind not in _KINDS:
        kinds = ", ".join(["text", *_KINDS, "binary"])
        raise Misuse(f"{where}.type is {kind!r}, which is none of {kinds}.")
    within = f"{where}.source"
    source = require_object(part.get("source"), within)
    match source.get("type"):
        case "data":
            origin, mime_type = "data", require_text(source, "mimeType", within)
        case "url":
            origin, mime_type = "url", optional_text(source, "mimeType", within)
        case _:
            raise Misuse(f"{within}.type must be 'data' or 'url'.")
    return MediaPart(
        kind=kind,
        source=origin,
        value=require_text(source, "value", within),
        mime_type=mime_type,
        metadata=part.get("metadata"),
    )


def _decode_binary(part: dict[str, Any], where: str) -> MediaPart:
    for source in _BINARY:
        if value := optional_text(part, source, where):
            return MediaPart(
                kind="binary",
                source=source,
                value=value,
                mime_type=require_text(part, "mimeType", where),
                filename=optional_text(part, "filename", where),
            )
    raise Misuse(f"{where} must have data, url or id.")
