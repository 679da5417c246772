"""The true type, the size and the dimensions of a file in base64, from its first bytes."""

import re
import struct
from base64 import b64decode
from binascii import Error

from copilot_runtime.adapters.attachments import OFFICE_TYPES

_HEAD = 1_024
_JPEG_HEAD = 256 * 1_024
"""Characters of a JPEG in which its dimensions are searched: metadata may precede them."""

_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"II*\0", "image/tiff"),
    (b"MM\0*", "image/tiff"),
    (b"%PDF-", "application/pdf"),
    (b"ID3", "audio/mpeg"),
    (b"\xff\xfb", "audio/mpeg"),
    (b"\xff\xf3", "audio/mpeg"),
    (b"\xff\xf2", "audio/mpeg"),
    (b"\xff\xf1", "audio/aac"),
    (b"\xff\xf9", "audio/aac"),
    (b"fLaC", "audio/flac"),
    (b"OggS", "audio/ogg"),
    (b"\x1a\x45\xdf\xa3", "video/webm"),
)
_RIFF = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}
_BRANDS = {
    b"avif": "image/avif",
    b"avis": "image/avif",
    b"M4A ": "audio/mp4",
    **dict.fromkeys((b"isom", b"iso2", b"mp41", b"mp42"), "video/mp4"),
    **dict.fromkeys((b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis"), "image/heic"),
    **dict.fromkeys((b"mif1", b"msf1"), "image/heif"),
}
"""Major brand of an ISO base media file → its type."""

_CONTAINERS = ("audio/mp4", "audio/ogg", "video/mp4", "video/webm")
"""Types of files that have audio or video; which of them is known only from what is in it."""

_ARCHIVES = {
    b"word/document.xml": OFFICE_TYPES[".docx"],
    b"ppt/presentation.xml": OFFICE_TYPES[".pptx"],
    b"xl/workbook.xml": OFFICE_TYPES[".xlsx"],
}
"""File in a ZIP archive → the type of the archive."""

_DIRECTORY = 64 * 1024
"""Characters at the end of an archive in which the names of its files are searched."""

_SVG = re.compile(rb"\s*(<\?xml.*?\?>\s*)?(<!--.*?-->\s*|<!DOCTYPE[^>]*>\s*)*<svg\b", re.DOTALL)
_SAME = {
    "audio/mp3": "audio/mpeg",
    "audio/vnd.wave": "audio/wav",
    "audio/wave": "audio/wav",
    "audio/x-wav": "audio/wav",
    "audio/m4a": "audio/mp4",
    "audio/x-m4a": "audio/mp4",
    "audio/opus": "audio/ogg",
    "audio/x-flac": "audio/flac",
    "image/heif": "image/heic",
    "video/x-matroska": "video/webm",
}
"""Another name of a type → the name that stands for both."""

_URL_SAFE = str.maketrans("-_", "+/")


def detect_type(data: str, kind: str = "") -> str | None:
    """Return the MIME type of a file in base64 by its first bytes, or `None` if it is unknown.

    `kind` is what the file is said to be, such as `audio`: some containers may be both.
    """
    head = _decode(data, _HEAD)
    if head.startswith(b"PK\x03\x04"):
        end = _decode(data[max(0, len(data) - _DIRECTORY) // 4 * 4 :], _DIRECTORY + 4)
        return next((type for name, type in _ARCHIVES.items() if name in end), None)
    found = _detect(head)
    if found in _CONTAINERS and kind in ("audio", "video"):
        return f"{kind}/{found.partition('/')[2]}"
    return found


def unify_type(mime_type: str) -> str:
    """Return the name of a MIME type that stands for all of its names."""
    return _SAME.get(mime_type, mime_type)


def clean_base64(data: str) -> str | None:
    """Return valid base64 for what clients send, or `None` if a part of it is missing.

    Line breaks, the alphabet of URLs and absent padding are corrected.
    """
    if "\n" in data or " " in data or "\r" in data:
        data = "".join(data.split())
    if "-" in data or "_" in data:
        data = data.translate(_URL_SAFE)
    excess = len(data) % 4
    if excess and data.endswith("="):
        data = data.rstrip("=")
        excess = len(data) % 4
    if excess == 1 or not data.isascii():
        return None
    return data + "=" * (4 - excess) if excess else data


def count_bytes(data: str) -> int:
    """Return the size of a file in base64, in bytes."""
    return len(data) * 3 // 4 - data.count("=", len(data) - 2)


def measure_image(data: str, mime_type: str) -> tuple[int, int] | None:
    """Return the width and the height of an image in pixels, or `None` if they are unknown."""
    head = _decode(data, _JPEG_HEAD if mime_type == "image/jpeg" else _HEAD)
    if _detect(head) != mime_type:
        return None
    try:
        match mime_type:
            case "image/png":
                return struct.unpack(">II", head[16:24])
            case "image/gif":
                return struct.unpack("<HH", head[6:10])
            case "image/jpeg":
                return _measure_jpeg(head)
            case "image/webp":
                return _measure_webp(head)
            case _:
                return None
    except struct.error:  # the file ends before them
        return None


def _detect(head: bytes) -> str | None:
    if head.startswith(b"RIFF"):
        return _RIFF.get(head[8:12])
    if head[4:8] == b"ftyp":
        return _BRANDS.get(head[8:12])
    if head.startswith(b"BM") and head[6:10] == b"\0\0\0\0":
        return "image/bmp"
    if _SVG.match(head.removeprefix(b"\xef\xbb\xbf")):
        return "image/svg+xml"
    return next((type for magic, type in _MAGIC if head.startswith(magic)), None)


def _decode(data: str, characters: int) -> bytes:
    head = "".join(data[:characters].split())
    try:
        return b64decode(head[: len(head) // 4 * 4])
    except (Error, ValueError):
        return b""


def _measure_jpeg(head: bytes) -> tuple[int, int] | None:
    """Return the dimensions in the frame header, the first segment SOF."""
    at = 2
    while at + 9 <= len(head) and head[at] == 0xFF:
        marker = head[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", head[at + 5 : at + 9])
            return width, height
        at += 1 if marker == 0xFF else 2 + struct.unpack(">H", head[at + 2 : at + 4])[0]
    return None


def _measure_webp(head: bytes) -> tuple[int, int] | None:
    """Return the dimensions; https://developers.google.com/speed/webp/docs/riff_container."""
    match head[12:16]:
        case b"VP8X":
            low_width, high_width, low_height, high_height = struct.unpack("<HBHB", head[24:30])
            return (high_width << 16) + low_width + 1, (high_height << 16) + low_height + 1
        case b"VP8L":
            (bits,) = struct.unpack("<I", head[21:25])
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8 ":
            width, height = struct.unpack("<HH", head[26:30])
            return width & 0x3FFF, height & 0x3FFF
        case _:
            return None
