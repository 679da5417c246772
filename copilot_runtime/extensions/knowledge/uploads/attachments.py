"""Find the attachments of messages, and replace them with lines of text."""

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias
from urllib.parse import quote, unquote, unquote_to_bytes

from copilot_runtime.api.messages import (
    ImageMessage,
    MediaPart,
    Message,
    Part,
    TextMessage,
    TextPart,
)
from copilot_runtime.base.errors import Misuse
from copilot_runtime.base.formatting import format_size
from copilot_runtime.base.jsonvalue import get_text

_LONGEST_NAME = 120
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff\s]+")

FILES_PATH = "knowledge/files/"
"""The path of uploaded files below the URL of a runtime."""

_OURS = re.compile(
    r"(?:common\.User\.[^/]+/)?common\.Conversation\.[^/]+/file\.Upload\.[0-9a-f]{32}"
)

Slot: TypeAlias = tuple[int, int]
"""The position of an attachment: indexes of its message and of its part."""


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file in a message, as base64 text or as a reference to a stored file."""

    slot: Slot
    name: str
    kind: str
    """The kind that the page states: `image`, `audio`, `video`, `document` or `binary`."""
    value: str
    """The base64 text, which may be a whole `data:` URL."""
    uri: str = ""
    """The URI of the stored file; empty for base64 text."""

    @property
    def size(self) -> int:
        """Approximate size in bytes."""
        return len(self.value) * 3 // 4

    def write_name(self) -> str:
        """Return the line that names the file to a model, with its name quoted."""
        return f"[Attached file {quote_name(self.name)}]"

    def decode(self) -> bytes:
        """Return the decoded bytes. Raises `Misuse` for invalid base64."""
        text = self.value
        if text.startswith("data:"):
            head, _, text = text.partition(",")
            if not head.lower().endswith(";base64"):
                return unquote_to_bytes(text)
        try:
            return base64.b64decode("".join(text.split()), validate=True)
        except (binascii.Error, ValueError) as error:
            raise Misuse("The file has not arrived whole: its base64 is malformed.") from error


def find_attachments(messages: Sequence[Message]) -> Iterator[Attachment]:
    """Yield the attachments of user messages, without files at other addresses."""
    for at, message in enumerate(messages):
        match message:
            case TextMessage(role="user", parts=parts):
                for number, part in enumerate(parts):
                    if not isinstance(part, MediaPart) or part.source == "id":
                        continue
                    uri = "" if part.source == "data" else parse_address(part.value)
                    if uri or part.source == "data":
                        name = find_name(part)
                        yield Attachment((at, number), name, part.kind, part.value, uri)
            case ImageMessage(role="user"):
                name = clean_name(f"image.{message.format}")
                yield Attachment((at, 0), name, "image", message.bytes)
            case _:
                pass


def replace_attachments(
    messages: Sequence[Message], contents: Mapping[Slot, str | MediaPart]
) -> Sequence[Message]:
    """Return the messages with some attachments replaced by lines or other parts."""
    if not contents:
        return messages
    changed = {at for at, _ in contents}
    return [
        _replace(at, message, contents) if at in changed else message
        for at, message in enumerate(messages)
    ]


def find_question(messages: Sequence[Message]) -> int:
    """Return the index of the last question, or -1 if there is none."""
    return max(
        (
            at
            for at, message in enumerate(messages)
            if isinstance(message, TextMessage | ImageMessage) and message.role == "user"
        ),
        default=-1,
    )


def find_name(part: MediaPart) -> str:
    """Return the name of a file from its metadata, or an empty string."""
    metadata = part.metadata if isinstance(part.metadata, Mapping) else {}
    names = (part.filename or "", *(get_text(metadata, key) for key in ("filename", "name")))
    return clean_name(next(filter(None, names), "") or part.kind)


def quote_name(name: str) -> str:
    """Return a name quoted for a line to a model."""
    return json.dumps(name, ensure_ascii=False)


def clean_name(name: str) -> str:
    """Return the name of a file without its folders, on one line."""
    text = _UNPRINTABLE.sub(" ", re.split(r"[/\\]", name)[-1]).strip()
    if len(text) > _LONGEST_NAME:
        stem, dot, suffix = text.rpartition(".")
        ending = f"{dot}{suffix}" if stem and len(suffix) < 10 else ""
        text = text[: _LONGEST_NAME - len(ending) - 1] + "…" + ending
    return text.encode(errors="replace").decode() or "file"


def write_address(link: str, uri: str) -> str:
    """Return the URL of a stored file; `link` is the base URL of resource pages."""
    return f"{link.removesuffix('knowledge/resources/')}{FILES_PATH}{quote(uri, safe='')}"


def parse_address(url: str) -> str:
    """Return the URI of the file at a URL of `write_address`; empty for other URLs."""
    _, found, rest = re.split("[?#]", url, maxsplit=1)[0].rpartition(f"/{FILES_PATH}")
    uri = unquote(rest)
    return uri if found and _OURS.fullmatch(uri) else ""


def hash_bytes(data: bytes) -> str:
    """Return the hash of a file's bytes, which is its resource name."""
    return hashlib.sha256(data).hexdigest()[:32]


def describe_limit(most: int) -> str:
    """Return the message about a file that is too large."""
    return f"The file is larger than {format_size(most)}."


def _replace(at: int, message: Message, contents: Mapping[Slot, str | MediaPart]) -> Message:
    match message:
        case ImageMessage():
            line = contents[at, 0]
            return TextMessage(
                id=message.id,
                role=message.role,
                content=line if isinstance(line, str) else "",
                parent_id=message.parent_id,
                parts=() if isinstance(line, str) else (line,),
            )
        case TextMessage():
            parts: list[Part] = []
            for number, part in enumerate(message.parts):
                content = contents.get((at, number), part)
                is_line = isinstance(content, str)
                parts.append(TextPart(text=f"\n{content}\n") if is_line else content)
            text = "".join(part.text for part in parts if isinstance(part, TextPart)).strip()
            has_media = any(isinstance(part, MediaPart) for part in parts)
            return replace(message, content=text, parts=parts if has_media else ())
        case _:
            return message
