"""Attachments in a uniform form, and as content parts in whatever format a provider has.

An attachment that the provider does not support is refused in a new message. In an older message a
sentence replaces it, because one video would otherwise make the whole conversation fail.
"""

from base64 import b64decode, b64encode
from binascii import Error
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from mimetypes import guess_extension, guess_type
from typing import Any, Literal
from urllib.parse import unquote_to_bytes, urlsplit

from copilot_runtime.api.events import Activity
from copilot_runtime.api.messages import ImageMessage, MediaPart, ResultMessage, TextMessage, new_id
from copilot_runtime.base.errors import Misuse
from copilot_runtime.base.jsonvalue import JsonObject

Kind = Literal["image", "audio", "video", "document"]

IMAGE_TOKENS = 1_500
"""An estimate for a large image, whose base64 length says nothing about its tokens."""

USUAL_TYPES = {
    "image": "image/png",
    "audio": "audio/wav",
    "video": "video/mp4",
    "document": "application/pdf",
}
"""Kind → the default MIME type of an attachment without one."""

_OFFICE = "application/vnd.openxmlformats-officedocument"
OFFICE_TYPES = {
    ".docx": f"{_OFFICE}.wordprocessingml.document",
    ".pptx": f"{_OFFICE}.presentationml.presentation",
    ".xlsx": f"{_OFFICE}.spreadsheetml.sheet",
}
"""Ending of a file → its MIME type, which Python 3.11 does not know."""

_ENDINGS = {mime_type: ending for ending, mime_type in OFFICE_TYPES.items()}
_UNKNOWN_BYTES = "application/octet-stream"
_TEXTS = ("application/json", "application/xml", "application/yaml", "application/javascript")
_FILE_TOKENS = 5_000
_BASE64_PER_TOKEN = {"audio": 2_000, "video": 400, "document": 40}
"""Speech has ten tokens a second, a page of a document is some 100 kB and costs 3,000."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Media:
    """One attachment. One of `data` (base64), `url` and `id` is not empty.

    `mime_type` is in lower case and without parameters, or empty if it is unknown.
    """

    kind: Kind
    mime_type: str = ""
    data: str = ""
    url: str = ""
    id: str = ""
    filename: str = ""

    def __str__(self) -> str:
        """Return a noun phrase for error messages, such as `the image 'photo.png'`."""
        if self.filename:
            return f"the {self.kind} {self.filename!r}"
        return f"the {self.kind} ({self.mime_type})" if self.mime_type else f"the {self.kind}"


def parse_media(part: MediaPart) -> Media:
    """Return an attachment in uniform form, from any of the forms that clients send."""
    data, url, mime_type = "", "", part.mime_type or ""
    if part.value.startswith("data:"):
        inner_type, data = _split_data_url(part.value)
        mime_type = mime_type or inner_type
    elif part.source == "data":
        data = part.value
    elif part.source == "url":
        url = part.value
    filename = part.filename or _filename_in(part.metadata)
    if mime_type in ("", _UNKNOWN_BYTES):
        mime_type = guess_type(filename or _path_in(url))[0] or ""
    mime_type = mime_type.partition(";")[0].strip().lower()
    return Media(
        kind=find_kind(mime_type) if part.kind == "binary" else part.kind,
        mime_type=mime_type,
        data=data,
        url=url,
        id=part.value if part.source == "id" and not data else "",
        filename=filename,
    )


def decode_text(media: Media) -> str | None:
    """Return the text of an attached text file, or `None` for other files."""
    mime_type = media.mime_type
    is_text = mime_type.startswith("text/") or mime_type.endswith(("+json", "+xml"))
    if not media.data or not (is_text or mime_type in _TEXTS):
        return None
    try:
        return b64decode(media.data).decode("utf-8-sig")
    except (Error, ValueError):
        return None


def build_text(media: Media) -> JsonObject | None:
    """Return an attached text file as a text part, or `None` for other files."""
    if media.kind != "document" or (text := decode_text(media)) is None:
        return None
    return {"text": f"{media.filename or 'Attached document'}:\n\n{text}"}


def build_data_url(media: Media) -> str:
    """Return the content of an attachment as a `data:` URL."""
    return f"data:{media.mime_type or USUAL_TYPES[media.kind]};base64,{media.data}"


def name_document(media: Media) -> str:
    """Return the name of an attached document, by its type if it has none."""
    mime_type = media.mime_type or USUAL_TYPES["document"]
    ending = _ENDINGS.get(mime_type) or guess_extension(mime_type) or ""
    return media.filename or f"document{ending}"


def estimate_tokens(part: MediaPart) -> int:
    """Return an estimate of an attachment's tokens."""
    media = parse_media(part)
    if media.kind == "image":
        return IMAGE_TOKENS
    if not media.data:
        return _FILE_TOKENS
    if (text := decode_text(media)) is not None:
        return len(text) // 3
    return max(100, len(media.data) // _BASE64_PER_TOKEN[media.kind])


def _path_in(url: str) -> str:
    try:
        return urlsplit(url).path
    except ValueError:  # the provider will say so
        return ""


def _filename_in(metadata: Any) -> str:
    """Return the file name in the metadata of CopilotKit's chat, or an empty string."""
    match metadata:
        case {"filename": str(name)}:
            return name
        case _:
            return ""


def _split_data_url(url: str) -> tuple[str, str]:
    """Return the type and the base64 text of a `data:` URL."""
    head, _, data = url.removeprefix("data:").partition(",")
    if not head.endswith(";base64"):
        data = b64encode(unquote_to_bytes(data)).decode()
    return head.partition(";")[0], data


def find_kind(mime_type: str) -> Kind:
    """Return the kind of a file with a MIME type."""
    match mime_type.partition("/")[0]:
        case "image" | "audio" | "video" as kind:
            return kind
        case _:
            return "document"


IMAGE = "image"
"""The `activity_type` of an image that a model made."""

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
        media = parse_media(image_part(message))
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


def build_result_parts(result: ResultMessage, encode: MediaEncoder) -> list[JsonObject]:
    """Return the content parts of a result with files, by `encode`; none if it has no files."""
    parts: list[JsonObject] = []
    has_files = False
    for part in result.parts:
        if isinstance(part, MediaPart):
            has_files = True
            parts += _encode_media(parse_media(part), encode, new=False)
        else:
            parts += text_parts(part.text)
    return parts if has_files else []


def separate_files(parts: Sequence[JsonObject]) -> tuple[str, list[JsonObject]]:
    """Return the texts of content parts as one, in which a phrase stands for each file; the files.

    They are for services whose results of tools are text.
    """
    files = [part for part in parts if "text" not in part]
    return "\n".join(part.get("text", _FOLLOWS) for part in parts), files


_FOLLOWS = "[An image, which follows in the next message.]"


def describe_omission(media: Media, reason: str) -> str:
    """Return the sentence in the place of a file; `reason` is half a sentence."""
    return f"[Here was {media}. It is left out: {reason}.]"


def build_misuse(media: Media, reason: str) -> Misuse:
    """Return the error for a file of the user's last message; `reason` is half a sentence."""
    return Misuse(
        f"The model cannot take {media}: {reason}.",
        hint="Let the chat accept other files only, or use a model and an agent "
        "that take this kind.",
    )


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


def image_part(image: ImageMessage) -> MediaPart:
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
        raise build_misuse(media, part)
    return text_parts(describe_omission(media, part))
