"""Attachments: what the model is shown, and what is refused with a reason."""

from base64 import b64encode
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any

import pytest

from copilot_runtime.adapters.openai import OpenAIAdapter
from copilot_runtime.api import ChatRequest
from copilot_runtime.api.events import Event
from copilot_runtime.api.messages import (
    ActionExecutionMessage,
    MediaPart,
    Message,
    Part,
    ResultMessage,
    TextMessage,
    TextPart,
)
from copilot_runtime.base.errors import CopilotError, Misuse, NetworkError, RateLimited, Refused
from tests.adapters.asking import answer_to, called, failure_of, said
from tests.adapters.provider import (
    CLOSE,
    END,
    HANG,
    HEAD,
    RESET,
    Provider,
    Step,
    piece,
    saying,
    streamed,
    text,
    tool,
    tools,
    whole,
)
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
            MediaPart(kind="audio", source="data", value="SUQzBAAA", mime_type="audio/wav"),
            {"type": "input_audio", "input_audio": {"data": "SUQzBAAA", "format": "mp3"}},
        ),
        (
            MediaPart(kind="audio", source="data", value="GkXfowAA", mime_type="audio/wav"),
            "audio as wav or mp3, not as audio/webm",
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
            "file": {"filename": "document.txt", "file_data": "data:text/plain;base64,/w=="},
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
        ("data:image/gif,GIF89a%3B", "data:image/gif;base64,R0lGODlhOw=="),
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


PREMATURE = "OpenAI API error: Premature close"
NO_STREAM = "OpenAI API error: The answer is not a stream of chat completion chunks."


FAILURES: dict[str, tuple[Sequence[Step], Sequence[Event], type[CopilotError], str]] = {
    "cut in mid-text": (
        [HEAD, piece(text("Par")), RESET],
        said("Par", ended=False),
        NetworkError,
        PREMATURE,
    ),
    "closed in mid-text": (
        [HEAD, piece(text("Par")), CLOSE],
        said("Par", ended=False),
        NetworkError,
        PREMATURE,
    ),
    "ended without a reason": (
        streamed(text("Par")),
        said("Par", ended=False),
        NetworkError,
        PREMATURE,
    ),
    "cut in mid-call": (
        [HEAD, piece(tools(tool('{"col', id="call_1", name="setColor"))), RESET],
        called("setColor", '{"col')[:-1],
        NetworkError,
        PREMATURE,
    ),
    "nothing at all": (streamed(), [], NetworkError, NO_STREAM),
    "garbage": (
        [whole(b"\x00\xff\x17 what?", content_type="text/event-stream")],
        [],
        NetworkError,
        NO_STREAM,
    ),
    "a web page": (
        [whole(b"<!doctype html><h1>Welcome", content_type="text/html")],
        [],
        NetworkError,
        NO_STREAM,
    ),
    "events that are no JSON": (
        streamed(text("Par"), b"data: {nope\n\n"),
        said("Par", ended=False),
        NetworkError,
        NO_STREAM,
    ),
    "JSON of another kind": (streamed(b"data: [1]\n\n"), [], NetworkError, NO_STREAM),
    "JSON of an odd shape": (
        streamed(b'data: {"choices":[{"delta":{"tool_calls":[3]}}]}\n\n'),
        [],
        NetworkError,
        NO_STREAM,
    ),
    "JSON that is very deep": (
        streamed(b"data: " + b"[" * 100_000 + b"\n\n"),
        [],
        NetworkError,
        NO_STREAM,
    ),
    "stopped by the content filter": (
        saying(text("How to"), reason="content_filter"),
        said("How to", ended=False),
        Refused,
        "The content filter of OpenAI stopped the answer. Please put the question differently.",
    ),
    "an error in mid-stream": (
        streamed(
            text("Par"), b'data: {"error":{"message":"Overloaded.","type":"server_error"}}\n\n'
        ),
        said("Par", ended=False),
        NetworkError,
        "OpenAI API error: Overloaded.",
    ),
    "a rate limit in mid-stream": (
        streamed(b'data: {"error":{"message":"Slow down.","code":"rate_limit_exceeded"}}\n\n'),
        [],
        RateLimited,
        "OpenAI API error: Slow down.",
    ),
    "an error by number, beside choices": (
        streamed(
            b'data: {"choices":[{"delta":{}}],"error":{"message":"Slow down.","code":429}}\n\n'
        ),
        [],
        RateLimited,
        "OpenAI API error: Slow down.",
    ),
    "an error of vLLM": (
        streamed(b'data: {"object":"error","message":"Too long.","code":500}\n\n'),
        [],
        NetworkError,
        "OpenAI API error: Too long.",
    ),
    "an error that says nothing": (
        streamed(b'data: {"choices":[{"delta":{},"finish_reason":"error"}]}\n\n'),
        [],
        NetworkError,
        "OpenAI API error: The answer broke off with an error.",
    ),
    "an error with status 200": (
        [whole({"error": {"message": "No.", "type": "server_error"}})],
        [],
        NetworkError,
        "OpenAI API error: No.",
    ),
}


@in_one_test("case", FAILURES)
async def test_what_came_before_an_error_is_kept(
    provider: Provider, adapter: OpenAIAdapter, case: str
):
    script, events, kind, message = FAILURES[case]
    provider.answer(script)

    seen, error = await failure_of(adapter)

    assert (seen, type(error), error.message) == (events, kind, message)


async def test_a_premature_close_is_reported_as_the_node_runtime_does(
    provider: Provider, adapter: OpenAIAdapter
):
    provider.answer([HEAD, piece(text("Par")), RESET])
    report = (await failure_of(adapter))[1].report()
    assert (report.code, report.status_code, report.severity, report.visibility, report.kind) == (
        "NETWORK_ERROR",
        503,
        "critical",
        "banner",
        "OpenAIError",
    )


async def test_an_answer_whose_last_frame_lacks_its_end_is_not_asked_for_again(provider: Provider):
    adapter = OpenAIAdapter(api_key="sk-test", base_url=f"{provider.url}/v1", max_retries=2)
    cut = text("agraph")[:-20]
    provider.answer([HEAD, piece(text("Par")), piece(cut), END], saying(text("Paragraph")))

    seen, error = await failure_of(adapter)
    await adapter.aclose()

    assert (seen, type(error)) == (said("Par", ended=False), NetworkError)
    assert len(provider.requests) == 1


async def test_an_endless_event_is_an_error(provider: Provider, adapter: OpenAIAdapter):
    provider.answer([HEAD, *[piece(b"x" * 2**20)] * 10, HANG])
    assert "larger than" in (await failure_of(adapter))[1].message


async def test_an_error_in_the_answer_tells_the_id_of_its_request(
    provider: Provider, adapter: OpenAIAdapter
):
    head = HEAD.replace(b"\r\n\r\n", b"\r\nx-request-id: req-7\r\n\r\n")
    broken = b'data: {"error": {"code": "429", "message": "Slow down"}}\n\n'
    provider.answer([head, piece(text("Par")), piece(broken), END])
    _, error = await failure_of(adapter)
    assert isinstance(error, RateLimited)
    assert error.hint == "Model: 'gpt-4o'. Request id: req-7."
