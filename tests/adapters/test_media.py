"""The true type and size of a file, and images that are made smaller."""

import io
import json
from base64 import b64encode
from struct import pack
from typing import Any
from zipfile import ZipFile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copilot_runtime.adapters.attachments import Media, name_document
from copilot_runtime.adapters.media.files import clean_file
from copilot_runtime.adapters.media.filter import MediaFilter, OversizedImages
from copilot_runtime.adapters.media.results import split_result
from copilot_runtime.adapters.media.shrink import shrink_image
from copilot_runtime.adapters.media.types import (
    clean_base64,
    count_bytes,
    detect_type,
    measure_image,
)
from copilot_runtime.api.messages import MediaPart, ResultMessage, TextMessage, TextPart
from tests.in_one_test import in_one_test


def encode(data: bytes) -> str:
    return b64encode(data).decode()


@in_one_test(
    ("data", "found"),
    [
        (b"\x89PNG\r\n\x1a\n", "image/png"),
        (b"GIF89a", "image/gif"),
        (b"RIFF\0\0\0\0WEBP", "image/webp"),
        (b"RIFF\0\0\0\0WAVE", "audio/wav"),
        (b"\0\0\0\x18ftypheic", "image/heic"),
        (b"\0\0\0\x18ftypisom", "video/mp4"),
        (b"\0\0\0\x18ftypwhat", None),
        (b"%PDF-1.7", "application/pdf"),
        (b"BM\x46\0\0\0\0\0\0\0", "image/bmp"),
        (b"BMW is a maker of cars.", None),
        (b"\xef\xbb\xbf<!-- by hand --><svg>", "image/svg+xml"),
        (b"", None),
    ],
)
def test_a_file_is_known_by_its_first_bytes(data: bytes, found: str | None) -> None:
    assert detect_type(encode(data)) == found


@in_one_test(
    ("name", "sent", "ending"),
    [
        ("word/document.xml", None, "docx"),
        ("xl/workbook.xml", "application/zip", "xlsx"),
        ("ppt/presentation.xml", "application/pdf", "pptx"),
        ("word/document.xml", "application/vnd.ms-word.document.macroenabled.12", ""),
        ("notes.txt", "application/zip", "zip"),
    ],
)
def test_a_document_without_a_name_is_known_by_the_files_in_it(
    name: str, sent: str | None, ending: str
) -> None:
    archive = io.BytesIO()
    with ZipFile(archive, "w") as files:
        files.writestr("[Content_Types].xml", "x" * 100_000)
        files.writestr(name, "")
    file = clean_file(Media(kind="document", mime_type=sent or "", data=encode(archive.getvalue())))
    assert file is not None
    assert name_document(file).partition(".")[2] == ending


def test_a_recording_in_a_container_is_audio_if_it_is_said_to_be() -> None:
    webm = encode(b"\x1a\x45\xdf\xa3" + bytes(20))
    assert [detect_type(webm, kind) for kind in ("audio", "video", "image")] == [
        *("audio/webm", "video/webm", "video/webm")
    ]


@in_one_test(
    ("sent", "clean"),
    [
        ("QUJD", "QUJD"),
        ("QU\r\nJD\n", "QUJD"),
        ("QUI", "QUI="),
        ("QQ=", "QQ=="),
        ("-_-_", "+/+/"),
        ("QUJDR", None),
        ("QUJé", None),
    ],
)
def test_base64_is_corrected_where_nothing_is_missing(sent: str, clean: str | None) -> None:
    assert clean_base64(sent) == clean


def test_the_size_of_a_file_is_that_of_its_bytes() -> None:
    assert [count_bytes(encode(bytes(size))) for size in range(1, 7)] == [1, 2, 3, 4, 5, 6]


EXIF = b"\xff\xe1" + pack(">H", 60_002) + bytes(60_000)
FRAME = b"\xff\xc2" + pack(">HBHH", 17, 8, 300, 400) + bytes(20)


@in_one_test(
    ("data", "mime_type", "size"),
    [
        (b"\x89PNG\r\n\x1a\n" + bytes(8) + pack(">II", 400, 300), "image/png", (400, 300)),
        (b"GIF89a" + pack("<HH", 400, 300), "image/gif", (400, 300)),
        (b"\xff\xd8" + EXIF + FRAME, "image/jpeg", (400, 300)),
        (b"\xff\xd8\xff", "image/jpeg", None),
        (b"RIFF----WEBPVP8X" + bytes(8) + pack("<HBHB", 399, 0, 299, 0), "image/webp", (400, 300)),
        (b"RIFF----WEBPVP8L----\x2f" + pack("<I", 399 | 299 << 14), "image/webp", (400, 300)),
        (b"RIFF----WEBPVP8 " + bytes(10) + pack("<HH", 400, 300), "image/webp", (400, 300)),
        (b"\x89PNG", "image/png", None),
    ],
)
def test_an_image_is_measured_without_decoding_it(
    data: bytes, mime_type: str, size: tuple[int, int] | None
) -> None:
    assert measure_image(encode(data), mime_type) == size


def test_a_small_file_with_billions_of_pixels_is_not_decoded() -> None:
    bomb = b"\x89PNG\r\n\x1a\n" + bytes(8) + pack(">II", 60_000, 60_000)
    assert shrink_image(encode(bomb), "image/png", 1_000_000) is None


PICTURE = "iVBORw0KGgo" + "A" * 5_001
LEAVES = st.one_of(
    st.none(),
    st.floats(),
    st.text(max_size=10),
    st.sampled_from(["image", "resource", "image/png", "data:", PICTURE]),
    st.just(f"data:image/png;base64,{PICTURE}"),
)
KEYS = st.sampled_from(
    [
        *("type", "data", "source", "resource", "image_url", "url", "value", "mimeType", "blob"),
        *("text", "content", "base64"),
    ]
)
RESULTS = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=6),
    max_leaves=20,
)


@given(RESULTS, st.booleans())
def test_no_result_has_a_file_among_its_words(value: Any, shows_results: bool) -> None:
    sent = ResultMessage(id="r", call_id="c", name="look", result=json.dumps(value))
    (came,) = MediaFilter("openai", "OpenAI").apply([sent], "m", shows_results=shows_results)
    assert isinstance(came, ResultMessage)
    texts = [part.text for part in came.parts if isinstance(part, TextPart)]
    assert not any(PICTURE in text for text in (came.result, *texts))
    assert split_result(came) is came


def test_json_of_a_thousand_levels_is_a_result() -> None:
    deep = f"{'[' * 900}{json.dumps(PICTURE)}{']' * 900}"
    found = split_result(ResultMessage(id="r", call_id="c", name="look", result=deep))
    assert [type(part) for part in found.parts] == [TextPart, MediaPart, TextPart]


def draw(format: str, size: tuple[int, int] = (9_000, 40), mode: str = "RGB") -> str:
    """Return an image that Pillow has drawn."""
    image: Any = pytest.importorskip("PIL.Image")
    file = io.BytesIO()
    image.effect_noise(size, 90).convert(mode).save(file, format)
    return encode(file.getvalue())


@pytest.mark.anyio
@in_one_test(
    ("format", "mode"), [("PNG", "RGB"), ("PNG", "RGBA"), ("PNG", "P"), ("GIF", "P"), ("JPEG", "L")]
)
async def test_an_image_that_is_too_large_is_made_smaller(format: str, mode: str) -> None:
    data, mime_type = draw(format, mode=mode), f"image/{format.lower()}"
    part = MediaPart(kind="image", source="data", value=data, mime_type=mime_type)
    question = TextMessage(id="u1", role="user", content="", parts=[part])
    media = MediaFilter("anthropic", "Anthropic")

    with pytest.raises(OversizedImages) as caught:
        media.apply([question], "claude")
    await media.shrink(caught.value.images)
    (sent,) = media.apply([question], "claude")

    assert isinstance(sent, TextMessage)
    (small,) = sent.parts
    assert isinstance(small, MediaPart)
    assert (small.mime_type, measure_image(small.value, "image/jpeg")) == ("image/jpeg", (2_000, 9))
