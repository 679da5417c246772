"""Attachments: what the model is shown, and what is refused with a reason."""

from base64 import b64encode
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import pytest

from copilot_runtime.adapters.openai import OpenAIAdapter
from copilot_runtime.api import ChatRequest
from copilot_runtime.api.messages import (
    ActionExecutionMessage,
    MediaPart,
    Message,
    Part,
    ResultMessage,
    TextMessage,
    TextPart,
)
from copilot_runtime.base.errors import Misuse
from tests.adapters.asking import answer_to
from tests.adapters.provider import Provider, saying, text
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

LOOK = TextPart(text="Look")
VIDEO = MediaPart(kind="video", source="data", value="AA==", mime_type="video/mp4")

Ask = Callable[..., Awaitable[Any]]


def shown(*parts: Part) -> TextMessage:
    words = "".join(part.text for part in parts if isinstance(part, TextPart))
    return TextMessage(id="u1", role="user", content=words, parts=parts)


@pytest.fixture
async def ask(provider: Provider, adapter: OpenAIAdapter) -> AsyncGenerator[Ask, None]:
    """Ask the model something; return the messages that reach it."""
    provider.answer(saying(text("I see.")))

    async def ask(*messages: Message) -> Any:
        await answer_to(adapter, ChatRequest(messages=messages))
        return provider.requests[-1].body["messages"]

    yield ask


@in_one_test(
    ("part", "content"),
    [
        (
            MediaPart(kind="image", source="data", value="iVBO", mime_type="image/png"),
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBO"}},
        ),
        (
            MediaPart(kind="image", source="data", value="data:image/gif;base64,R0lG"),
            {"type": "image_url", "image_url": {"url": "data:image/gif;base64,R0lG"}},
        ),
        (
            MediaPart(kind="image", source="url", value="https://x.example/a.jpg"),
            {"type": "image_url", "image_url": {"url": "https://x.example/a.jpg"}},
        ),
        (
            MediaPart(kind="binary", source="url", value="https://x.example/a?b=c"),
            "not by an address",
        ),
        (
            MediaPart(
                kind="binary", source="url", value="https://x.example/a", mime_type="image/jpeg"
            ),
            {"type": "image_url", "image_url": {"url": "https://x.example/a"}},
        ),
        (
            MediaPart(kind="image", source="id", value="file-1"),
            {"type": "file", "file": {"file_id": "file-1"}},
        ),
        (
            MediaPart(kind="audio", source="data", value="UklG", mime_type="audio/x-wav"),
            {"type": "input_audio", "input_audio": {"data": "UklG", "format": "wav"}},
        ),
        (
            MediaPart(kind="binary", source="data", value="SUQz", mime_type="audio/MPEG; rate=1"),
            {"type": "input_audio", "input_audio": {"data": "SUQz", "format": "mp3"}},
        ),
        (
            MediaPart(kind="audio", source="data", value="GkXf", mime_type="audio/webm"),
            "audio as wav or mp3, not as audio/webm",
        ),
        (
            MediaPart(kind="audio", source="url", value="https://x.example/a.mp3"),
            "audio only with its content",
        ),
        (
            MediaPart(
                kind="document",
                source="data",
                value="JVBE",
                mime_type="application/pdf",
                metadata={"filename": "report.pdf"},
            ),
            {
                "type": "file",
                "file": {
                    "filename": "report.pdf",
                    "file_data": "data:application/pdf;base64,JVBE",
                },
            },
        ),
        (
            MediaPart(kind="binary", source="id", value="file-2", mime_type="application/pdf"),
            {"type": "file", "file": {"file_id": "file-2"}},
        ),
        (
            MediaPart(kind="document", source="url", value="https://x.example/a.pdf"),
            "the document (application/pdf): OpenAI's",
        ),
        (VIDEO, "the video (video/mp4): OpenAI's chat completions API takes no video"),
    ],
)
async def test_a_part_is_shown_or_refused(ask: Ask, part: Part, content: Any):
    if isinstance(content, str):
        with pytest.raises(Misuse, match=r"^The model cannot take ") as refused:
            await ask(shown(LOOK, part))
        assert content in refused.value.message
        return
    look = {"type": "text", "text": "Look"}
    assert await ask(shown(LOOK, part)) == [{"role": "user", "content": [look, content]}]


@in_one_test("mime_type", ["text/csv", "application/json", "application/octet-stream"])
async def test_a_text_file_is_read_out(ask: Ask, mime_type: str):
    value = b64encode("\ufeffa,b\n1,ü".encode()).decode()
    part = MediaPart(
        kind="document", source="data", value=value, mime_type=mime_type, filename="a.csv"
    )
    assert (await ask(shown(part)))[0]["content"] == [
        {"type": "text", "text": "a.csv:\n\na,b\n1,ü"}
    ]


async def test_a_file_that_only_claims_to_be_text_is_sent_as_it_is(ask: Ask):
    part = MediaPart(kind="document", source="data", value="/w==", mime_type="text/plain")
    assert (await ask(shown(part)))[0]["content"] == [
        {
            "type": "file",
            "file": {"filename": "document.pdf", "file_data": "data:text/plain;base64,/w=="},
        }
    ]


async def test_texts_in_parts_are_one_text(ask: Ask):
    message = TextMessage(id="u1", role="user", content="Hi there", parts=[TextPart(text="Hi")])
    assert await ask(message) == [{"role": "user", "content": "Hi there"}]


async def test_an_attachment_that_was_refused_does_not_end_the_conversation(ask: Ask):
    named = MediaPart(kind="video", source="url", value="https://x/a", filename="clip.mp4")
    messages = await ask(shown(LOOK, named), TextMessage(id="u2", role="user", content="Then not."))

    assert messages[0]["content"] == [
        {"type": "text", "text": "Look"},
        {
            "type": "text",
            "text": "[Here was the video 'clip.mp4'. It is left out: OpenAI's chat completions "
            "API takes no video.]",
        },
    ]


async def test_an_attachment_is_still_new_when_an_action_has_run(ask: Ask):
    call = ActionExecutionMessage(id="c", name="act", arguments="{}")
    result = ResultMessage(id="r", call_id="c", name="act", result="done")
    with pytest.raises(Misuse, match="takes no video"):
        await ask(shown(LOOK, VIDEO), call, result)


@in_one_test(
    ("url", "shown_as"),
    [
        ("http://[x/a.png", "http://[x/a.png"),
        ("data:image/svg+xml,%3Csvg/%3E", "data:image/svg+xml;base64,PHN2Zy8+"),
    ],
)
async def test_odd_addresses_are_for_the_provider_to_judge(ask: Ask, url: str, shown_as: str):
    part = MediaPart(kind="image", source="url", value=url)
    assert (await ask(shown(part)))[0]["content"] == [
        {"type": "image_url", "image_url": {"url": shown_as}}
    ]


async def test_the_error_of_a_browser_action_reaches_the_model(ask: Ask):
    call = ActionExecutionMessage(id="c", name="act", arguments="{}")
    result = ResultMessage(id="r", call_id="c", name="act", result="", error="No camera.")
    assert (await ask(shown(LOOK), call, result))[-1]["content"] == "Error: No camera."
