"""Speech by OpenAI's API: the form that is sent, and what each answer means."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from starlette.datastructures import Headers, UploadFile
from starlette.formparsers import MultiPartParser

from copilot_runtime.adapters.transcription import AudioRefused, OpenAITranscriber
from copilot_runtime.api.budget import Budget, Limit
from copilot_runtime.api.run_input import CURRENT_RUN, RunSlot
from copilot_runtime.base.errors import (
    AuthenticationFailed,
    ConfigurationFailed,
    CopilotError,
    LimitExceeded,
    NetworkError,
    RateLimited,
    RunStalled,
)
from tests.adapters.provider import CLOSE, HANG, Provider, Request, Step, whole
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

AUDIO = bytes(range(256)) * 100


@asynccontextmanager
async def transcriber_of(
    provider: Provider, **options: Any
) -> AsyncGenerator[OpenAITranscriber, None]:
    options = {"api_key": "sk-0123456789", "max_retries": 0, **options}
    transcriber = OpenAITranscriber(base_url=f"{provider.url}/v1/", **options)
    try:
        yield transcriber
    finally:
        await transcriber.aclose()


async def heard(provider: Provider, *steps: Step, **options: Any) -> str:
    """Return what is understood of an answer."""
    provider.answer(steps)
    async with transcriber_of(provider, **options) as transcriber:
        return await transcriber.transcribe(AUDIO, "a.webm", "audio/webm")


@dataclass(frozen=True, slots=True)
class Sent:
    fields: dict[str, Any]
    filename: str | None
    mime_type: str | None
    data: bytes


async def form_of(request: Request) -> Sent:
    """Read a form as servers in Python do."""

    async def blocks() -> AsyncGenerator[bytes, None]:
        yield request.body

    form = await MultiPartParser(Headers(request.headers), blocks()).parse()
    file = form["file"]
    assert isinstance(file, UploadFile)
    fields = {name: value for name, value in form.items() if name != "file"}
    sent = Sent(fields, file.filename, file.content_type, await file.read())
    await form.close()
    return sent


async def test_the_recording_is_sent_as_a_form(provider: Provider):
    said = await heard(
        provider,
        whole({"text": " Hello.\n"}),
        model="whisper-large",
        language="en",
        headers={"X-Tenant": "a"},
    )
    assert said == "Hello."

    request = provider.requests[0]
    assert request.line == "POST /v1/audio/transcriptions HTTP/1.1"
    fields = {"model": "whisper-large", "response_format": "json", "language": "en"}
    assert await form_of(request) == Sent(fields, "a.webm", "audio/webm", AUDIO)
    assert request.headers["authorization"] == "bearer sk-0123456789"
    assert request.headers["x-tenant"] == "a"


@in_one_test(
    ("filename", "mime_type", "sent"),
    [
        ("recording.webm", "audio/wav", "recording.wav"),
        ("recording", "Audio/MPEG; rate=1", "recording.mp3"),
        ("../../etc/passwd", "audio/ogg", "passwd.ogg"),
        ("speech.m4a", "audio/x-m4a", "speech.m4a"),
        ("", "audio/webm", "recording.webm"),
        ('my "größte"\r\node.wav', "audio/wav", "my 'größte'ode.wav"),
        ("half \ud83d.wav", "audio/wav", "half .wav"),
    ],
)
async def test_a_file_ends_as_its_type_wants(
    provider: Provider, filename: str, mime_type: str, sent: str
):
    provider.answer([whole({"text": "Hi"})])
    async with transcriber_of(provider) as transcriber:
        await transcriber.transcribe(AUDIO, filename, mime_type)

    form = await form_of(provider.requests[0])
    assert (form.filename, form.mime_type) == (sent, mime_type)


def refused(status: str, message: str) -> bytes:
    return whole({"error": {"message": message}}, status=status)


@in_one_test(
    ("answer", "reason"),
    [
        (refused("413 Payload Too Large", "Maximum content size limit exceeded"), "audio_too_long"),
        (refused("400 Bad Request", "audio duration is longer than 1400 s"), "audio_too_long"),
        (
            refused("400 Bad Request", "Audio file is too short. Minimum is 0.1 seconds."),
            "audio_too_short",
        ),
        (refused("400 Bad Request", "Invalid file format."), "invalid_audio_format"),
    ],
)
async def test_a_recording_that_nobody_understands_is_refused(
    provider: Provider, answer: bytes, reason: str
):
    with pytest.raises(AudioRefused) as error:
        await heard(provider, answer)
    assert error.value.reason == reason


@in_one_test(
    ("answer", "kind"),
    [
        (refused("401 Unauthorized", "Bad key"), AuthenticationFailed),
        (refused("429 Too Many Requests", "Slow down"), RateLimited),
    ],
)
async def test_a_provider_may_refuse_us(
    provider: Provider, answer: bytes, kind: type[CopilotError]
):
    with pytest.raises(kind):
        await heard(provider, answer)


@in_one_test(
    ("answer", "message"),
    [
        (
            refused("500 Internal Server Error", "Key sk-0123456789 broke it"),
            "Transcription API error: 500 Key *** broke it",
        ),
        (refused("404 Not Found", "No such model"), "Transcription API error: 404 No such model"),
        (whole({"words": []}), "Transcription API error: The answer is no transcript."),
        (whole(b"<html>"), "Transcription API error: The answer is no transcript."),
    ],
)
async def test_an_answer_without_a_text_is_not_a_matter_of_the_network(
    provider: Provider, answer: bytes, message: str
):
    with pytest.raises(CopilotError) as error:
        await heard(provider, answer)
    assert not isinstance(error.value, NetworkError)
    assert error.value.message == message


async def test_a_provider_that_hangs_up_is_a_matter_of_the_network(provider: Provider):
    with pytest.raises(NetworkError):
        await heard(provider, CLOSE)


async def test_a_provider_that_says_nothing_is_left(provider: Provider):
    with pytest.raises(RunStalled):
        await heard(provider, HANG, idle_timeout=0.05, connect_timeout=2)


async def test_a_busy_provider_is_asked_again(provider: Provider):
    busy = whole({"error": "busy"}, status="503 Service Unavailable", retry_after_ms="1")
    provider.answer([busy], [whole({"text": "Hi"})])
    async with transcriber_of(provider, max_retries=1) as transcriber:
        assert await transcriber.transcribe(AUDIO, "a.webm", "audio/webm") == "Hi"


async def test_openai_wants_a_key(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(ConfigurationFailed, match="no API key"):
        await OpenAITranscriber().transcribe(AUDIO, "a.webm", "audio/webm")


async def test_other_servers_may_want_none(provider: Provider, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert await heard(provider, whole({"text": "Hi"}), api_key=None) == "Hi"
    assert "authorization" not in provider.requests[0].headers


def test_an_address_is_checked_at_once():
    with pytest.raises(ConfigurationFailed, match="is not an address"):
        OpenAITranscriber(base_url="localhost:9000/v1")


async def test_the_tokens_of_a_recording_count_for_who_speaks(provider: Provider) -> None:
    tokens = Limit("tokens", 1000, lambda _: LimitExceeded("Enough."))
    CURRENT_RUN.set(RunSlot(None, Budget([tokens])))
    usage = {"type": "tokens", "input_tokens": 300, "output_tokens": 50, "total_tokens": 350}
    await heard(provider, whole({"text": "Hello.", "usage": usage}))

    assert tokens.amount == 350
