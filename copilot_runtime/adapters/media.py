"""Attachments in a uniform form: their kind, MIME type, and content or URL."""

from base64 import b64decode, b64encode
from binascii import Error
from dataclasses import dataclass
from mimetypes import guess_type
from typing import Any, Literal
from urllib.parse import unquote_to_bytes, urlsplit

from copilot_runtime.api.messages import MediaPart
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
        kind=_kind_of(mime_type) if part.kind == "binary" else part.kind,
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


def _kind_of(mime_type: str) -> Kind:
    match mime_type.partition("/")[0]:
        case "image" | "audio" | "video" as kind:
            return kind
        case _:
            return "document"
