"""The limits of providers for images and documents in one request: a table with its sources."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

_MB = 1_000_000
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaLimits:
    """The limits of one service; `None` or an empty tuple: none is documented.

    Sizes are those of files in bytes, before base64; sides are in pixels.
    """

    image_types: tuple[str, ...] = ()
    image_bytes: int | None = None
    image_side: int | None = None
    images: int | None = None
    """Maximum number of images in a request."""
    small_images: int | None = None
    """The number of images above which `small_side` applies to each of them."""
    small_side: int | None = None
    pdf_bytes: int | None = None
    document_bytes: int | None = None
    """Maximum size of other documents than PDF."""
    documents: int | None = None
    """Maximum number of documents in a request."""
    request_bytes: int | None = None
    """Maximum size of the body, in which files are base64."""
    sources: tuple[str, ...] = ()
    """The pages that state the limits."""


_WEB_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")
_OPENAI = MediaLimits(
    image_types=_WEB_TYPES,
    images=500,
    pdf_bytes=50 * _MB,
    document_bytes=50 * _MB,
    request_bytes=50 * _MB,
    sources=(
        "https://platform.openai.com/docs/guides/images-vision",
        "https://developers.openai.com/api/docs/guides/file-inputs",
    ),
)

LIMITS: Mapping[str, MediaLimits] = {
    "anthropic": MediaLimits(
        image_types=_WEB_TYPES,
        image_bytes=5 * _MIB * 3 // 4,  # counted as base64, as the error of the second page says
        image_side=8_000,
        images=100,
        small_images=20,
        small_side=2_000,
        request_bytes=32 * _MB,
        sources=(
            "https://platform.claude.com/docs/en/build-with-claude/vision",
            "https://github.com/anthropics/claude-code/issues/19631",
            "https://platform.claude.com/docs/en/build-with-claude/pdf-support",
        ),
    ),
    "azure": _OPENAI,
    "bedrock": MediaLimits(
        image_types=_WEB_TYPES,
        image_bytes=int(3.75 * _MIB),
        image_side=8_000,
        images=20,
        pdf_bytes=int(4.5 * _MB),  # see `find_limits`
        document_bytes=int(4.5 * _MB),
        documents=5,
        sources=(
            "https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Message.html",
            "https://docs.aws.amazon.com/bedrock/latest/userguide/inference-api-restrictions.html",
        ),
    ),
    "google": MediaLimits(
        image_types=("image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"),
        images=3_000,
        pdf_bytes=50 * _MB,
        request_bytes=100 * _MB,
        sources=(
            "https://ai.google.dev/gemini-api/docs/image-understanding",
            "https://ai.google.dev/gemini-api/docs/file-input-methods",
        ),
    ),
    "openai": _OPENAI,
    "openai_responses": _OPENAI,
}
"""Adapter → the limits of its service."""

UNKNOWN = MediaLimits()

_TAKES_LONG_PDFS = re.compile(r"amazon\.nova|anthropic\.claude-([a-z]+-)+[4-9]")


def find_limits(adapter: str, model: str) -> MediaLimits:
    """Return the limits for a model of an adapter, a name in `ADAPTERS`.

    Bedrock's limit for PDF does not apply to Claude 4 and newer ones, and to Nova.
    """
    limits = LIMITS.get(adapter, UNKNOWN)
    if adapter == "bedrock" and _TAKES_LONG_PDFS.search(model):
        return replace(limits, pdf_bytes=None)
    return limits
