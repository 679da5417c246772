"""Makes images smaller with Pillow, if it is installed."""

from base64 import b64decode, b64encode
from binascii import Error
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from io import BytesIO
from typing import Any

from copilot_runtime.adapters.media.types import count_bytes, measure_image

PIXELS = 64_000_000
"""Maximum number of pixels that are decoded, against decompression bombs: 200 MB of memory."""

_SIDES = (2_000, 1_000, 500)
"""Long sides that are tried in turn; models see no more than 2,000 pixels of most images."""

_FORMATS = ("JPEG", "PNG", "GIF", "WEBP")
_QUALITY = 85


@lru_cache(maxsize=1)
def can_shrink() -> bool:
    """Return whether Pillow is installed."""
    return find_spec("PIL") is not None


def shrink_image(data: str, mime_type: str, max_bytes: int | None) -> str | None:
    """Return an image of at most `max_bytes` as a JPEG in base64, or `None` if that is impossible.

    It takes up to seconds: call it in a thread. Transparent pixels become white.
    """
    size = measure_image(data, mime_type)
    if size is None or size[0] * size[1] > PIXELS:
        return None
    pillow: Any = import_module("PIL.Image")
    operations: Any = import_module("PIL.ImageOps")
    try:
        with pillow.open(BytesIO(b64decode(data)), formats=_FORMATS) as image:
            if image.width * image.height > PIXELS:
                return None
            image.draft(
                "RGB", (_SIDES[0], _SIDES[0])
            )  # a JPEG is decoded at a fraction of its size
            found = image if image.mode in ("L", "RGB", "RGBA") else image.convert("RGBA")
            found.thumbnail((_SIDES[0], _SIDES[0]))
            found = operations.exif_transpose(found).convert("RGBA")
            flat = pillow.new("RGB", found.size, "white")
            flat.paste(found, mask=found.getchannel("A"))
    except (Error, OSError, SyntaxError, ValueError, pillow.DecompressionBombError):
        return None
    for side in _SIDES:
        flat.thumbnail((side, side))
        file = BytesIO()
        flat.save(file, "JPEG", quality=_QUALITY)
        small = b64encode(file.getvalue()).decode()
        if max_bytes is None or count_bytes(small) <= max_bytes:
            return small
    return None
