"""Find the files in messages, and put lines of text in their place."""

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from copilot_runtime.errors import Misuse
from copilot_runtime.jsonvalue import get_text
from copilot_runtime.messages import ImageMessage, MediaPart, Message, Part, TextMessage, TextPart

_LONGEST_NAME = 120
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff\s]+")

Slot: TypeAlias = tuple[int, int]
"""Where in a conversation a file is: which message, and which of its parts."""


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file in a message, as base64 text."""

    slot: Slot
    name: str
    kind: str
    """What the page says it is: `image`, `audio`, `video`, `document` or `binary`."""
    value: str

    @property
    def size(self) -> int:
        """About how many bytes it has."""
        return len(self.value) * 3 // 4

    def write_name(self) -> str:
        """Return the line that names it to a model: whatever its name is, it ends here."""
        return f"[Attached file {json.dumps(self.name, ensure_ascii=False)}]"

    def decode(self) -> bytes:
        """Return its bytes. Raises `Misuse` for what is no base64."""
        text = self.value
        if text.startswith("data:"):
            text = text.partition(",")[2]
        try:
            return base64.b64decode("".join(text.split()), validate=True)
        except (binascii.Error, ValueError) as error:
            raise Misuse("The file has not arrived whole: its base64 is malformed.") from error


def find_attachments(messages: Sequence[Message]) -> Iterator[Attachment]:
    """Yield the files that are in messages of the user; addresses of files are none."""
    for at, message in enumerate(messages):
        match message:
            case TextMessage(role="user", parts=parts):
                for number, part in enumerate(parts):
                    if isinstance(part, MediaPart) and part.source == "data":
                        name = find_name(part)
                        yield Attachment((at, number), name, part.kind, part.value)
            case ImageMessage(role="user"):
                name = clean_name(f"image.{message.format}")
                yield Attachment((at, 0), name, "image", message.bytes)
            case _:
                pass


def replace_attachments(
    messages: Sequence[Message], lines: Mapping[Slot, str]
) -> Sequence[Message]:
    """Return the messages with lines in the place of files; a file without a line stays."""
    if not lines:
        return messages
    return [_replace(at, message, lines) for at, message in enumerate(messages)]


def find_question(messages: Sequence[Message]) -> int:
    """Return which message is the last question; -1 without one."""
    return max(
        (
            at
            for at, message in enumerate(messages)
            if isinstance(message, TextMessage | ImageMessage) and message.role == "user"
        ),
        default=-1,
    )


def find_name(part: MediaPart) -> str:
    """Return the name of a file, as far as the page says it."""
    metadata = part.metadata if isinstance(part.metadata, Mapping) else {}
    names = (part.filename or "", *(get_text(metadata, key) for key in ("filename", "name")))
    return clean_name(next(filter(None, names), "") or part.kind)


def clean_name(name: str) -> str:
    """Return the name of a file without its folders, on one line."""
    text = _UNPRINTABLE.sub(" ", re.split(r"[/\\]", name)[-1]).strip()
    if len(text) > _LONGEST_NAME:
        stem, dot, suffix = text.rpartition(".")
        ending = f"{dot}{suffix}" if stem and len(suffix) < 10 else ""
        text = text[: _LONGEST_NAME - len(ending) - 1] + "…" + ending
    return text.encode(errors="replace").decode() or "file"


def hash_bytes(data: bytes) -> str:
    """Return what a file is called by its bytes: the same bytes are the same file."""
    return hashlib.sha256(data).hexdigest()[:32]


def too_large(most: int) -> str:
    """Return the sentence about a file that is too large."""
    return f"The file is larger than {describe_size(most)}."


def describe_size(count: int) -> str:
    """Return a number of bytes as people read it."""
    return f"{count / 1024 / 1024:.3g} MB" if count >= 1024 * 1024 else f"{count:,} bytes"


def _replace(at: int, message: Message, lines: Mapping[Slot, str]) -> Message:
    if isinstance(message, ImageMessage):
        if (line := lines.get((at, 0))) is None:
            return message
        return TextMessage(
            id=message.id, role=message.role, content=line, parent_id=message.parent_id
        )
    if not isinstance(message, TextMessage) or not any(slot[0] == at for slot in lines):
        return message
    parts: list[Part] = [
        TextPart(text=f"\n{lines[at, number]}\n") if (at, number) in lines else part
        for number, part in enumerate(message.parts)
    ]
    content = "".join(part.text for part in parts if isinstance(part, TextPart)).strip()
    has_media = any(isinstance(part, MediaPart) for part in parts)
    return replace(message, content=content, parts=parts if has_media else ())
