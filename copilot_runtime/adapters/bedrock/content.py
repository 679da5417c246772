"""Attachments and results as Bedrock's Converse API takes them.

https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ContentBlock.html. Bedrock
fetches files from Amazon S3 only; texts are sent as texts, which every model can read.
"""

import re

from copilot_runtime.adapters.attachments import build_parts, parse_result_blocks, text_parts
from copilot_runtime.adapters.bedrock.models import Traits
from copilot_runtime.adapters.history import format_result
from copilot_runtime.adapters.media import USUAL_TYPES, Media, build_text
from copilot_runtime.api.messages import ImageMessage, ResultMessage, TextMessage
from copilot_runtime.base.jsonvalue import JsonObject

_FORMATS = {
    "image": ("gif", "jpeg", "png", "webp"),
    "document": ("csv", "doc", "docx", "html", "md", "pdf", "txt", "xls", "xlsx"),
    "video": ("flv", "mkv", "mov", "mp4", "mpeg", "three_gp", "webm", "wmv"),
    "audio": ("aac", "flac", "m4a", "mp3", "mp4", "ogg", "opus", "wav", "webm"),
}
_OFFICE = "application/vnd.openxmlformats-officedocument"
_OTHER_FORMATS = {
    "application/msword": "doc",
    "application/vnd.ms-excel": "xls",
    "audio/mpeg": "mp3",
    "audio/wave": "wav",
    "text/markdown": "md",
    "text/plain": "txt",
    "video/3gpp": "three_gp",
    "video/quicktime": "mov",
    "video/x-matroska": "mkv",
    "video/x-ms-wmv": "wmv",
    f"{_OFFICE}.spreadsheetml.sheet": "xlsx",
    f"{_OFFICE}.wordprocessingml.document": "docx",
}
"""MIME type → format, where the format is not the second half of the type."""

_NO_NAME = re.compile(r"[^a-zA-Z0-9\-()\[\]]+")
_LONGEST_NAME = 190


class MediaBuilder:
    """Makes the blocks of one request: a document's name may stand in it only once."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def __call__(self, media: Media) -> JsonObject | str:
        """Return the block, or why there is none."""
        if media.id or (media.url and not media.url.startswith("s3://")):
            return "Bedrock takes files with their content or from s3://, not by other addresses"
        if part := build_text(media):
            return part
        mime_type = media.mime_type or USUAL_TYPES[media.kind]
        format = _find_format(mime_type)
        if format not in _FORMATS[media.kind]:
            return f"Bedrock takes no {media.kind} as {mime_type}"
        source = {"s3Location": {"uri": media.url}} if media.url else {"bytes": media.data}
        block: JsonObject = {"format": format, "source": source}
        if media.kind == "document":
            block["name"] = self._name(media.filename)
        return {media.kind: block}

    def _name(self, filename: str) -> str:
        stem = filename.rpartition(".")[0] or filename
        base = _NO_NAME.sub(" ", stem).strip()[:_LONGEST_NAME] or "document"
        name, number = base, 1
        while name in self._names:
            number += 1
            name = f"{base} {number}"
        self._names.add(name)
        return name


def build_blocks(
    message: TextMessage | ImageMessage, encode_media: MediaBuilder, *, new: bool
) -> list[JsonObject]:
    """Return the blocks of a message, and a text beside documents: Bedrock insists on one."""
    blocks = build_parts(message, encode_media, new=new)
    if any("document" in block for block in blocks) and not any(
        "text" in block for block in blocks
    ):
        return [*blocks, {"text": "See the attached document."}]
    return blocks


def build_result(result: ResultMessage, traits: Traits) -> JsonObject:
    """Return what came of a call, without its id.

    An empty text would be refused, and so would images of what failed.
    """
    text = format_result(result)
    found = parse_result_blocks(text) if traits.rich_results else text
    if not isinstance(found, str):
        return {"content": [_result_block(block) for block in found]}
    content = text_parts(found) or [{"text": "(empty)"}]
    failed = {"status": "error"} if result.error and traits.rich_results else {}
    return {"content": content, **failed}


def _result_block(block: JsonObject) -> JsonObject:
    if block["type"] == "text":
        return {"text": block["text"]}
    source = block["source"]
    format = _find_format(source["media_type"])
    return {"image": {"format": format, "source": {"bytes": source["data"]}}}


def _find_format(mime_type: str) -> str:
    return _OTHER_FORMATS.get(mime_type) or mime_type.partition("/")[2].removeprefix("x-")
