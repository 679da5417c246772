"""The files of a conversation: where they are, and messages with other parts in their place."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from copilot_runtime.adapters.attachments import (
    OFFICE_TYPES,
    Media,
    find_kind,
    image_part,
    parse_media,
)
from copilot_runtime.adapters.media.types import clean_base64, detect_type, unify_type
from copilot_runtime.api.messages import (
    ActionExecutionMessage,
    ImageMessage,
    MediaPart,
    Message,
    Part,
    ReasoningMessage,
    ResultMessage,
    TextMessage,
    TextPart,
)


class File(NamedTuple):
    """A file in a conversation, in the message with the index `at`."""

    at: int
    part: MediaPart
    media: Media
    is_new: bool = False
    """Whether the user's last message has it."""
    is_answered: bool = False
    """Whether the model has said something since."""
    in_result: bool = False


def list_files(messages: Sequence[Message]) -> Iterator[File]:
    """Yield the files of a conversation, the last one first."""
    is_new, is_answered = True, False
    for at in reversed(range(len(messages))):
        match message := messages[at]:
            case TextMessage(role="user") | ImageMessage(role="user"):
                parts = (
                    [image_part(message)] if isinstance(message, ImageMessage) else message.parts
                )
                yield from _files(at, parts, is_new=is_new, is_answered=is_answered)
                is_new = False
            case ImageMessage():
                if message.bytes:
                    yield from _files(at, [image_part(message)], is_answered=True)
                is_answered = True
            case ResultMessage():
                yield from _files(at, message.parts, is_answered=is_answered, in_result=True)
            case TextMessage(role="assistant") | ActionExecutionMessage() | ReasoningMessage():
                is_answered = True
            case _:
                pass


def _files(at: int, parts: Sequence[Part], **where: bool) -> Iterator[File]:
    for part in reversed(parts):
        if isinstance(part, MediaPart):
            yield File(at, part, parse_media(part), **where)


def replace_files(message: Message, fitted: Sequence[Part]) -> Message:
    """Return a message with other parts in place of its files."""
    rest = iter(fitted)
    match message:
        case ImageMessage():
            part = next(rest)
            if part == image_part(message):
                return message
            if isinstance(part, TextPart) or part.kind != "image":
                text = part.text if isinstance(part, TextPart) else ""
                return TextMessage(
                    id=message.id,
                    role=message.role,
                    content=text,
                    parent_id=message.parent_id,
                    parts=() if text else [part],
                )
            subtype = (part.mime_type or message.format).removeprefix("image/")
            return replace(message, bytes=part.value, format=subtype)
        case TextMessage() | ResultMessage():
            parts = [next(rest) if isinstance(part, MediaPart) else part for part in message.parts]
            has_files = any(isinstance(part, MediaPart) for part in parts)
            text = "\n".join(part.text for part in parts if isinstance(part, TextPart))
            if isinstance(message, ResultMessage):
                return replace(message, result=text, parts=parts if has_files else ())
            if has_files:
                return replace(message, parts=parts)
            return replace(message, content=text, parts=())
        case _:
            return message


_RIGHT_NAMES = {"image/jpg": "image/jpeg", "image/x-png": "image/png"}


def clean_file(media: Media) -> Media | None:
    """Return a file with its true type and valid base64, or `None` if its content is cut off."""
    if not media.data:
        return media
    data = clean_base64(media.data)
    if data is None:
        return None
    mime_type = _RIGHT_NAMES.get(media.mime_type, media.mime_type)
    found = detect_type(data, media.kind)
    if found == "image/svg+xml" and media.kind != "image":
        found = None  # it is text, too
    if found in OFFICE_TYPES.values() and mime_type.startswith("application/vnd."):
        found = None  # a document with macros, or a template
    if found is None or unify_type(found) == unify_type(mime_type):
        return replace(media, data=data, mime_type=mime_type)
    return replace(media, data=data, mime_type=found, kind=find_kind(found))
