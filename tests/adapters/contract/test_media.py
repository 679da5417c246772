"""Files in messages and in results of tools, as services take them."""

import json
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import replace
from struct import pack
from typing import Any

import pytest

from copilot_runtime.adapters.media.limits import LIMITS
from copilot_runtime.api.messages import (
    ActionExecutionMessage,
    ImageMessage,
    MediaPart,
    Message,
    ResultMessage,
    TextMessage,
    TextPart,
)
from copilot_runtime.base.errors import CopilotError, Misuse
from tests.adapters.asking import HELLO, answer, answer_of, asking, failure
from tests.adapters.contract.fakes import Fails, Fake, Say, Stop
from tests.adapters.contract.test_requests import asked, needs
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio


def encode(data: bytes) -> str:
    return b64encode(data).decode()


def png(width: int = 2, height: int = 2, size: int = 300) -> str:
    head = b"\x89PNG\r\n\x1a\n" + pack(">I", 13) + b"IHDR" + pack(">II", width, height)
    return encode(head + bytes(size))


JPEG = encode(b"\xff\xd8\xff\xe0" + bytes(300))
CALL = ActionExecutionMessage(id="call_1", name="setColor", arguments="{}")
WHAT = TextPart(text="What is it?")
NEXT = TextMessage(id="u2", role="user", content="What time is it?")


def shown(*parts: MediaPart) -> TextMessage:
    return TextMessage(id="u1", role="user", content=WHAT.text, parts=[WHAT, *parts])


def image(data: str, mime_type: str = "image/png", **more: Any) -> MediaPart:
    return MediaPart(kind="image", source="data", value=data, mime_type=mime_type, **more)


def result(value: Any) -> ResultMessage:
    text = value if isinstance(value, str) else json.dumps(value)
    return ResultMessage(id="r1", call_id="call_1", name="setColor", result=text)


def sees_results(fake: Fake) -> dict[str, str]:
    """Return the options for a model that takes images in results, where not all do."""
    return {"model": "us.anthropic.claude-3-haiku-20240307-v1:0"} if fake.name == "bedrock" else {}


async def body_of(fake: Fake, *messages: Message) -> str:
    """Return the whole body that reached the service."""
    await asked(fake, asking(*messages), **sees_results(fake))
    return json.dumps(fake.asked[-1].body, default=str)


@in_one_test(
    "message",
    [
        shown(image(JPEG, "image/png")),
        shown(image(f"data:image/png;base64,{JPEG}")),
        shown(MediaPart(kind="document", source="data", value=JPEG, mime_type="application/pdf")),
        ImageMessage(id="i1", role="user", format="png", bytes=JPEG),
        ImageMessage(id="i1", role="user", format="png", bytes=f"data:image/png;base64,{JPEG}"),
    ],
)
async def test_a_jpeg_that_is_called_otherwise_is_sent_as_a_jpeg(fake: Fake, message: Message):
    needs(fake, "images")
    body = await body_of(fake, message)
    assert (JPEG in body, "jpeg" in body, "png" in body, "pdf" in body) == (
        True,
        True,
        False,
        False,
    )


@in_one_test(
    ("data", "reason"),
    [
        ("", "it is empty"),
        ("data:image/png;base64,", "it is empty"),
        (png()[:101], "a part of it is missing"),
    ],
)
async def test_a_file_without_its_content_is_refused_with_a_sentence(
    fake: Fake, data: str, reason: str
):
    needs(fake, "images")
    photo = shown(image(data, filename="a.png"))
    with pytest.raises(Misuse, match=f"the image 'a.png': {reason}"):
        await answer(fake, asking(photo))
    assert reason in await body_of(fake, photo, NEXT)


@in_one_test(
    ("data", "name"),
    [
        (encode(b"\0\0\0\x18ftypheic" + bytes(300)), "image/heic"),
        (encode(b"II*\0" + bytes(300)), "image/tiff"),
        (encode(b"BM\x46\0\0\0\0\0\0\0" + bytes(300)), "image/bmp"),
        (encode(b'<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg"/>'), "image/svg"),
    ],
)
async def test_a_type_that_the_service_does_not_take_is_refused_by_its_bytes(
    fake: Fake, data: str, name: str
):
    limits = LIMITS.get(fake.name)
    if limits is None or name in limits.image_types:
        pytest.skip("It has no limits, or takes the type.")
    with pytest.raises(Misuse, match=f"takes images as .*, not as {name}"):
        await answer(fake, asking(shown(image(data))))
    assert data not in await body_of(fake, shown(image(data)), NEXT)


@in_one_test(
    "too_large", [image(png(size=4_000_000)), image(png(9_000, 10)), image(png(10, 8_001))]
)
async def test_an_image_beyond_the_limits_is_refused_once(fake: Fake, too_large: MediaPart):
    if fake.name not in ("anthropic", "bedrock"):
        pytest.skip("Its limits are larger than what a page may send.")
    with pytest.raises(Misuse, match=r"the image .*: it has .* and .* takes"):
        await answer(fake, asking(shown(too_large)))
    body = await body_of(fake, shown(too_large), NEXT)
    assert (too_large.value in body, "It is left out: it has" in body) == (False, True)


async def test_a_pdf_of_six_megabytes_is_sent_where_it_is_taken(fake: Fake):
    needs(fake, "documents")
    pdf = encode(b"%PDF-1.7\n" + bytes(6_000_000))
    part = MediaPart(kind="document", source="data", value=pdf, mime_type="application/pdf")
    if fake.name == "bedrock":
        with pytest.raises(Misuse, match=r"it has 6\.0 MB, and Bedrock takes documents of 4\.5 MB"):
            await answer(fake, asking(shown(part)))
    else:
        assert pdf in await body_of(fake, shown(part))


async def test_of_many_images_the_newest_are_sent(fake: Fake):
    if fake.name not in ("anthropic", "bedrock"):
        pytest.skip("It takes hundreds.")
    photos = [image(png(2_001 + at, 10)) for at in range(25)]
    talk: list[Message] = []
    for photo in photos:
        talk += [shown(photo), TextMessage(id="a1", role="assistant", content="A photo.")]
    body = await body_of(fake, *talk, NEXT)
    assert [photo.value in body for photo in photos] == [False] * 5 + [True] * 20


@in_one_test("status", [400, 413, 422])
async def test_an_image_that_the_service_refuses_does_not_end_the_conversation(
    fake: Fake, status: int
):
    needs(fake, "images")
    photo, later = shown(image(png())), shown(image(png(3)))

    fake.plays(Fails(status, message="Could not process image"))
    fake.plays(Say("Five."), Stop())
    adapter = fake.adapter()

    with pytest.raises(CopilotError, match="image"):
        await answer_of(adapter, asking(photo))
    await answer_of(adapter, asking(photo, NEXT))
    await answer_of(
        adapter, asking(photo, NEXT, TextMessage(id="a", role="assistant", content="5"), later)
    )

    bodies = [json.dumps(one.body, default=str) for one in fake.asked]
    assert [png() in body for body in bodies] == [True, False, False]
    assert [png(3) in body for body in bodies] == [False, False, True]


async def test_another_process_finds_the_image_by_asking_once_more(fake: Fake):
    needs(fake, "images")
    photo, good = shown(image(png())), shown(image(png(3)))
    seen: Sequence[Message] = [good, TextMessage(id="a", role="assistant", content="A cat.")]
    fake.plays(Fails(400, message="Could not process image"))
    fake.plays(Say("Five."), Stop())

    await answer(fake, asking(*seen, photo, NEXT))

    bodies = [json.dumps(one.body, default=str) for one in fake.asked]
    assert [png() in body for body in bodies] == [True, False]
    assert [png(3) in body for body in bodies] == [True, True]


def strings_in(value: Any) -> Iterator[str]:
    """Yield every string in a body, or in the messages of LangChain."""
    match value:
        case str():
            yield value
        case dict():
            for item in value.values():
                yield from strings_in(item)
        case list():
            for item in value:
                yield from strings_in(item)
        case _:
            yield from strings_in(getattr(value, "content", []))


MCP_IMAGE = {"type": "image", "data": png(), "mimeType": "image/png"}
RESULTS: dict[str, Any] = {
    "MCP": {"content": [{"type": "text", "text": "Took it."}, MCP_IMAGE]},
    "AG-UI": [
        {"type": "image", "source": {"type": "data", "value": png(), "mimeType": "image/png"}}
    ],
    "LangChain": [{"type": "image", "base64": png(), "mime_type": "image/png"}],
    "OpenAI": [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{png()}"}}],
    "Anthropic": [
        {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": png()}}
    ],
    "a blob": [
        {
            "type": "resource",
            "resource": {"uri": "file:///a.png", "blob": png(), "mimeType": "image/png"},
        }
    ],
    "a field": {"name": "Paris", "map": f"data:image/png;base64,{png()}"},
    "a deep block": {"pages": [{"number": 1, "shot": MCP_IMAGE}]},
    "bytes": png(),
    "Markdown": f"See ![the map](data:image/png;base64,{png()}).",
}


@in_one_test("value", RESULTS.values(), ids=RESULTS)
async def test_a_picture_in_a_result_is_a_picture_or_a_sentence(fake: Fake, value: Any):
    needs(fake, "calls", "history")
    await asked(fake, asking(HELLO, CALL, result(value)), **sees_results(fake))

    found = [one for one in strings_in(fake.asked[-1].body) if png()[:100] in one]
    assert [one.removeprefix("data:image/png;base64,") for one in found] == [png()]


async def test_two_pictures_of_a_result_keep_their_order(fake: Fake):
    needs(fake, "calls", "history")
    pictures = [{**MCP_IMAGE, "data": png(10 + at)} for at in range(2)]
    content = [{"type": "text", "text": "Before:"}, pictures[0]]
    content += [{"type": "text", "text": "After:"}, pictures[1]]

    body = await body_of(fake, HELLO, CALL, result({"content": content}))

    first, second = (body.index(one["data"]) for one in pictures)
    assert first < second
    assert body.index("Before:") < body.index("After:")


@in_one_test(
    ("block", "sentence"),
    [
        (
            {"type": "audio", "data": encode(b"ID3" + bytes(300)), "mimeType": "audio/mpeg"},
            "Here was the audio (audio/mpeg)",
        ),
        (
            {
                "type": "resource",
                "resource": {
                    "uri": "file:///x/a.zip",
                    "blob": encode(bytes(300)),
                    "mimeType": "application/zip",
                },
            },
            "Here was the document 'a.zip'",
        ),
        (
            {
                "type": "resource",
                "resource": {
                    "uri": "file:///x/a.txt",
                    "blob": encode(b"Hello!"),
                    "mimeType": "text/plain",
                },
            },
            "Hello!",
        ),
        ({**MCP_IMAGE, "data": ""}, "it is empty"),
        ({**MCP_IMAGE, "data": png()[:101]}, "a part of it is missing"),
    ],
)
async def test_other_files_of_a_result_are_sentences(fake: Fake, block: Any, sentence: str):
    needs(fake, "calls", "history")
    body = await body_of(fake, HELLO, CALL, result({"content": [block]}))
    assert (sentence in body, encode(bytes(60)) in body) == (True, False)


async def test_a_picture_that_the_service_refuses_ends_no_run(fake: Fake):
    needs(fake, "calls", "history")
    fake.plays(Fails(400, message="messages.2: image exceeds the maximum"))
    fake.plays(Say("I cannot see it."), Stop())

    await answer(fake, asking(HELLO, CALL, result(RESULTS["MCP"])), **sees_results(fake))

    bodies = [json.dumps(one.body, default=str) for one in fake.asked]
    assert [png() in body for body in bodies] == [True, False]


async def test_pictures_of_earlier_results_are_not_sent_forever(fake: Fake):
    needs(fake, "calls", "history")
    talk: list[Message] = [HELLO]
    for at in range(8):
        picture = {**MCP_IMAGE, "data": png(10 + at)}
        talk.append(replace(CALL, id=f"call_{at}"))
        talk.append(replace(result({"content": [picture]}), id=f"r{at}", call_id=f"call_{at}"))
    body = await body_of(fake, *talk)
    assert [png(10 + at) in body for at in range(8)] == [False] * 2 + [True] * 6


async def test_an_error_about_something_else_is_not_asked_again(fake: Fake):
    needs(fake, "images")
    fake.plays(Fails(400, message="temperature must be positive"))
    _, error = await failure(fake, asking(shown(image(png())), NEXT))
    assert ("temperature" in error.message, len(fake.asked)) == (True, 1)
