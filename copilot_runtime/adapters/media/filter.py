"""Fits the media of requests into the limits of a service, and remembers those that it refused.

A file of the user's last message that does not fit ends the run with a sentence. Anywhere else a
sentence stands in its place, because one file would otherwise end the whole conversation.
"""

import asyncio
import logging
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from copilot_runtime.adapters.attachments import (
    USUAL_TYPES,
    Media,
    build_misuse,
    decode_text,
    describe_omission,
)
from copilot_runtime.adapters.media.files import File, clean_file, list_files, replace_files
from copilot_runtime.adapters.media.limits import MediaLimits, find_limits
from copilot_runtime.adapters.media.results import has_files, split_results
from copilot_runtime.adapters.media.shrink import can_shrink, shrink_image
from copilot_runtime.adapters.media.types import count_bytes, measure_image
from copilot_runtime.api.messages import Message, Part, TextPart
from copilot_runtime.base.errors import (
    AuthenticationFailed,
    CopilotError,
    LimitExceeded,
    RateLimited,
)

EARLIER_PICTURES = 5
"""Number of pictures in results of earlier turns that are sent again: the newest ones."""

_REMEMBERED = 10_000
_SMALLER = 16
_REST_OF_BODY = 1_000_000
"""Bytes of a body that are left for texts and tools."""

_ABOUT_MEDIA = re.compile(
    r"\b(images?|image_url|pictures?|photos?|pixels?|media|media_type|mime|base64|pdfs?|documents?"
    r"|files?|audio|videos?|attachments?|multimodal|multi-modal)\b"
    r"|\bcontent\W{1,3}(input )?(must|should) be a (valid )?string\b",  # models of texts
    re.IGNORECASE,
)

logger = logging.getLogger(__name__)

Key = tuple[str, int, int]
"""Identifies a file for a model within this process: its name, and length and hash of the file."""


class OversizedImages(Exception):
    """The images of a request that Pillow may make smaller, by their keys."""

    def __init__(self, images: Mapping[Key, Media]) -> None:
        super().__init__()
        self.images = images


class MediaFilter:
    """Fits the media of an adapter's requests into the limits of its service.

    One instance serves all requests of an adapter, a name in `ADAPTERS`; `service` is the name of
    the service for people. It remembers images that were made smaller, and files that the service
    has refused.
    """

    def __init__(self, adapter: str, service: str) -> None:
        self.adapter = adapter
        self.service = service
        self._refused: OrderedDict[Key, None] = OrderedDict()
        self._smaller: OrderedDict[Key, Media | None] = OrderedDict()
        self._shrinking = asyncio.Lock()  # one image at a time in memory

    def apply(
        self, messages: Sequence[Message], model: str, *, shows_results: bool = True
    ) -> Sequence[Message]:
        """Return the messages with true types, and sentences in place of files that do not fit.

        Without `shows_results`, the model takes only text in results of tools. Raises `Misuse` for
        a file of the user's last message, and `OversizedImages` for images that are to be made
        smaller first (`shrink`).
        """
        messages = split_results(messages)
        if not any(map(has_files, messages)):
            return messages
        files = list(list_files(messages))
        limits = find_limits(self.adapter, model)
        request = _Request(limits, _count_images(files, limits), shows_results)
        fitted: dict[int, list[Part]] = {}
        for file in files:
            part = self._fit(file, model, request)
            fitted.setdefault(file.at, []).append(part)
        if request.oversized:
            raise OversizedImages(request.oversized)
        return [
            replace_files(message, fitted[at][::-1]) if at in fitted else message
            for at, message in enumerate(messages)
        ]

    async def shrink(self, images: Mapping[Key, Media]) -> None:
        """Make images smaller for the next `apply`."""
        async with self._shrinking:
            for key, media in images.items():
                if key in self._smaller:
                    continue
                limits = find_limits(self.adapter, key[0])
                data = await asyncio.to_thread(
                    shrink_image, media.data, media.mime_type, limits.image_bytes
                )
                small = None if data is None else replace(media, data=data, mime_type="image/jpeg")
                self._smaller[key] = small
                outcome = "cannot be made smaller" if small is None else "was made smaller"
                logger.info("%s for %s is too large. It %s.", media, self.service, outcome)
        while len(self._smaller) > max(_SMALLER, len(images)):
            self._smaller.popitem(last=False)

    def leave_out(self, messages: Sequence[Message], model: str, error: CopilotError) -> bool:
        """Remember the files that an error of the service is about; `apply` then replaces them.

        Return whether the same request would now be another one. The files in question are those
        that the model has never answered, then those of the user's last message, with which the
        run ends, then all others.
        """
        if not is_about_media(error):
            return False
        messages = split_results(messages)
        files = {_build_key(model, clean_file(file.media)): file for file in list_files(messages)}
        others = [key for key in files if key not in self._refused]
        suspects = [key for key in others if not (files[key].is_new or files[key].is_answered)]
        if isinstance(error, LimitExceeded):  # all of them together are too large
            suspects = [key for key in others if not files[key].is_new]
        new = [key for key, file in files.items() if file.is_new]
        marked = suspects or new or others
        for key in marked:
            self._refused[key] = None
            logger.warning(
                "%s has refused a request with %s, which is left out from now on.",
                *(self.service, files[key].media),
            )
        while len(self._refused) > _REMEMBERED:
            self._refused.popitem(last=False)
        return bool(suspects or (others and not new))

    def _fit(self, file: File, model: str, request: "_Request") -> Part:
        """Return a part with the file, or with the sentence in its place. Raises `Misuse`."""
        media = clean_file(file.media)
        if file.in_result and media is not None and (text := decode_text(media)) is not None:
            return TextPart(text=text)
        found = self._find_fitting(media, file, model, request)
        if isinstance(found, str):
            if file.is_new:
                raise build_misuse(media or file.media, found)
            if file.in_result and not file.is_answered:
                logger.warning("%s in a result is left out: %s.", file.media, found)
            return TextPart(text=describe_omission(media or file.media, found))
        if found == file.media:
            return file.part
        return replace(
            file.part,
            kind=found.kind,
            source="data",
            value=found.data,
            mime_type=found.mime_type or None,
            filename=found.filename or None,
        )

    def _find_fitting(
        self, media: Media | None, file: File, model: str, request: "_Request"
    ) -> Media | str:
        """Return the file in the form that fits, or the reason why none does as half a sentence."""
        if media is None:
            return "a part of it is missing"
        if not (media.data or media.url or media.id):
            return "it is empty"
        key = _build_key(model, media)
        if file.is_new:
            self._refused.pop(key, None)  # it is asked again
        if key in self._refused:
            return f"{self.service} has refused it"
        if file.in_result and not (request.shows_results and media.kind == "image"):
            return (
                f"{self.service} takes only text{' and images' * request.shows_results} in results"
            )
        if (reason := _find_wrong_type(media, self.service, request.limits)) is not None:
            return reason
        if (reason := _find_excess(media, self.service, request.limits)) is not None:
            if media.kind != "image" or not can_shrink():
                return reason
            if key not in self._smaller:
                request.oversized[key] = media
            smaller = self._smaller.get(key)
            if smaller is None:
                return media if key in request.oversized else reason
            media = smaller
        return request.take(media, self.service, is_earlier=file.in_result and file.is_answered)


@dataclass(slots=True)
class _Request:
    """The room for files in one request."""

    limits: MediaLimits
    images: int | None
    """Maximum number of images."""
    shows_results: bool
    oversized: dict[Key, Media] = field(default_factory=dict[Key, Media])
    counts: dict[str, int] = field(default_factory=dict[str, int])
    pictures: int = 0
    size: int = _REST_OF_BODY

    def take(self, media: Media, service: str, *, is_earlier: bool) -> Media | str:
        """Return a file if there is room for it, else the reason as half a sentence.

        `is_earlier`: it is a picture in a result of an earlier turn.
        """
        if is_earlier:
            if self.pictures >= EARLIER_PICTURES:
                return f"of earlier results, only the last {EARLIER_PICTURES} images are sent again"
            self.pictures += 1
        count = self.counts.get(media.kind, 0)
        most = {"image": self.images, "document": self.limits.documents}.get(media.kind)
        if most is not None and count >= most:
            return f"{service} takes {most} {media.kind}s in a request, and there are newer ones"
        limit = self.limits.request_bytes
        if limit is not None and self.size + len(media.data) > limit:
            return f"{service} takes requests of {_format(limit)}, and with it this one is larger"
        self.counts[media.kind] = count + 1
        self.size += len(media.data)
        return media


def _build_key(model: str, media: Media | None) -> Key:
    text = "" if media is None else media.data or media.url or media.id
    return model, len(text), hash(text)


def _count_images(files: Sequence[File], limits: MediaLimits) -> int | None:
    """Return the maximum number of images in a request with these files.

    Some services take many images only if each of them is small.
    """
    few, side = limits.small_images, limits.small_side
    if few is None or side is None:
        return limits.images
    images = [file.media for file in files if file.media.kind == "image"]
    if len(images) <= few:
        return limits.images
    sizes = (measure_image(media.data, media.mime_type) or (0, 0) for media in images)
    return few if any(max(size) > side for size in sizes) else limits.images


def _find_wrong_type(media: Media, service: str, limits: MediaLimits) -> str | None:
    mime_type = media.mime_type or USUAL_TYPES[media.kind]
    if media.kind != "image" or not limits.image_types or mime_type in limits.image_types:
        return None
    if not media.data:
        return None  # the service itself reads an address
    names = [one.removeprefix("image/").upper() for one in limits.image_types]
    return f"{service} takes images as {', '.join(names[:-1])} and {names[-1]}, not as {mime_type}"


def _find_excess(media: Media, service: str, limits: MediaLimits) -> str | None:
    """Return why a file is too large as half a sentence, or `None`."""
    is_pdf = media.mime_type in ("", "application/pdf")
    document_bytes = limits.pdf_bytes if is_pdf else limits.document_bytes
    most = {"image": limits.image_bytes, "document": document_bytes}.get(media.kind)
    if most is not None and (size := count_bytes(media.data)) > most:
        return f"it has {_format(size)}, and {service} takes {media.kind}s of {_format(most)}"
    side = limits.image_side if media.kind == "image" else None
    if side is not None:
        width, height = measure_image(media.data, media.mime_type) or (0, 0)
        if max(width, height) > side:
            return f"it has {width} by {height} pixels, and {service} takes {side} on a side"
    return None


def _format(size: int) -> str:
    return f"{size / 1_000_000:.1f} MB"


def is_about_media(error: CopilotError) -> bool:
    """Return whether the service refused a request because of a file in it.

    Some servers answer with 500 to an image that they cannot read.
    """
    if isinstance(error, AuthenticationFailed | RateLimited) or error.status_code > 500:
        return False
    return error.status_code == 413 or bool(
        _ABOUT_MEDIA.search(f"{error.message} {error.hint or ''}")
    )
