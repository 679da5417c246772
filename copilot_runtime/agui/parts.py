"""The parts of a message or a result: texts, images, audio, video and documents.

Parts with a `source` are those of AG-UI 0.0.5x and 1.0; `binary` is their predecessor. Only 1.0 has
the source `file`, a file id at a model provider.
"""

import logging
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal

from copilot_runtime.api.messages import MediaPart, Part, TextPart
from copilot_runtime.base.errors import Misuse
from copilot_runtime.base.jsonvalue import (
    JsonObject,
    drop_none,
    optional_text,
    require_list,
    require_object,
    require_text,
    to_text,
)
from copilot_runtime.base.outages import OnceLogger

PROTOCOL_VERSION = "1.0"
"""The version that this package implements and declares."""

_CURRENT = (1, 0)
_VERSION = re.compile(r"(\d{1,9})\.(\d{1,9})", re.ASCII)
_LONGEST = 32
"""Maximum number of characters of a version that are parsed."""

logger = logging.getLogger(__name__)

report_unknown = OnceLogger(logger, most=32).warn
"""Logs, once, that a peer sent something that this package does not support."""


def is_legacy(declared: str | None) -> bool:
    """Return whether the peer is older than AG-UI 1.0: it declares so, or declares no version.

    A newer or malformed version counts as 1.0.
    """
    return declared is None or _is_before_current(declared[:_LONGEST])


@lru_cache(maxsize=32)
def _is_before_current(declared: str) -> bool:
    match = _VERSION.fullmatch(declared)
    version = (int(match[1]), int(match[2])) if match else None
    if version is None or version > _CURRENT:
        report_unknown(
            f"A client declares AG-UI {declared!r}; it is served with {PROTOCOL_VERSION}"
        )
        return False
    return version < _CURRENT


_KINDS = ("image", "audio", "video", "document")
_BINARY = ("data", "url", "id")
_UNKNOWN_BYTES = "application/octet-stream"
_SOURCES: dict[str, Literal["data", "url", "id"]] = {"data": "data", "url": "url", "file": "id"}
"""A source in AG-UI → the source of a `MediaPart`."""


def decode_parts(value: Any, where: str) -> tuple[Part, ...]:
    """Decode a list of parts. Raises `Misuse` with the path of the error.

    Parts of unknown types are dropped: the peer may use a later version of the protocol.
    """
    parts = enumerate(require_list(value, where))
    decoded = (_decode_part(part, f"{where}[{at}]") for at, part in parts)
    return tuple(part for part in decoded if part is not None)


def find_parts(value: Any) -> tuple[Part, ...]:
    """Return the parts in `value` if it is a valid list of parts, else an empty tuple."""
    if not isinstance(value, list):
        return ()
    try:
        return decode_parts(value, "content")
    except Misuse:
        return ()


def join_texts(parts: Sequence[Part]) -> str:
    """Return the concatenated texts of the parts."""
    return "".join(part.text for part in parts if isinstance(part, TextPart))


def flatten_result(content: Any, parts: Sequence[Part]) -> str:
    """Return the content of a result as text: its texts if all parts are texts, else JSON."""
    if content is None:
        return ""
    if parts and all(isinstance(part, TextPart) for part in parts):
        return join_texts(parts)
    return to_text(content)


def encode_part(part: Part, *, legacy: bool) -> JsonObject:
    """Return a part as JSON; with `legacy`, for peers older than AG-UI 1.0."""
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text, **_encode_extra(part)}
    if legacy and (part.kind == "binary" or part.source == "id"):
        filename_field = {"filename": part.filename} if part.filename is not None else {}
        mime_type = part.mime_type or _UNKNOWN_BYTES
        return {"type": "binary", "mimeType": mime_type, part.source: part.value, **filename_field}
    source: JsonObject = {"type": part.source, "value": part.value}
    if part.source == "id":
        source = {"type": "file", "value": part.value, **drop_none({"provider": part.provider})}
    mime_type = part.mime_type or (_UNKNOWN_BYTES if part.source == "data" else None)
    if mime_type is not None:
        source["mimeType"] = mime_type
    return {"type": _find_kind(part), "source": source, **_encode_extra(part)}


def _encode_extra(part: Part) -> JsonObject:
    metadata = part.metadata
    if isinstance(part, MediaPart) and metadata is None and part.filename is not None:
        metadata = {"filename": part.filename}
    return drop_none({"id": part.id, "metadata": metadata})


def _find_kind(part: MediaPart) -> str:
    """Return the kind of a part; that of a `binary` part is derived from its MIME type."""
    if part.kind != "binary":
        return part.kind
    kind = (part.mime_type or "").partition("/")[0]
    return kind if kind in _KINDS else "document"


def _decode_part(value: Any, where: str) -> Part | None:
    part = require_object(value, where)
    kind = require_text(part, "type", where)
    if kind == "text":
        return TextPart(
            text=require_text(part, "text", where),
            id=optional_text(part, "id", where),
            metadata=part.get("metadata"),
        )
    if kind == "binary":
        return _decode_binary(part, where)
    if kind not in _KINDS:
        return _leave_out(f"Parts of type {kind[:40]!r}")
    within = f"{where}.source"
    source = require_object(part.get("source"), within)
    name = require_text(source, "type", within)
    if name not in _SOURCES:
        return _leave_out(f"Parts with a source of type {name[:40]!r}")
    return MediaPart(
        kind=kind,
        source=_SOURCES[name],
        value=require_text(source, "value", within),
        mime_type=(require_text if name == "data" else optional_text)(source, "mimeType", within),
        metadata=part.get("metadata"),
        id=optional_text(part, "id", where),
        provider=optional_text(source, "provider", within) if name == "file" else None,
    )


def _leave_out(what: str) -> None:
    report_unknown(f"{what} are left out: AG-UI {PROTOCOL_VERSION} does not know them")


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
