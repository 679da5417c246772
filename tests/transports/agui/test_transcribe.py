"""The two ways in which clients send a recording, and every answer they know."""

import json
from typing import Any

import pytest

from copilot_runtime.adapters.transcription import AudioRefused, ScriptedTranscriber
from copilot_runtime.api.budget import Budget, Limit
from copilot_runtime.api.run_input import CURRENT_RUN, RunSlot
from copilot_runtime.base.errors import (
    AuthenticationFailed,
    ConfigurationFailed,
    CopilotError,
    LimitExceeded,
    NetworkError,
    RateLimited,
)
from copilot_runtime.transports.agui.transcribe import Answer, transcribe
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

FORM = "multipart/form-data; boundary=----formdata-undici-083046163703"
RECORDING = {"audio": "AQIDBA==", "mimeType": "audio/webm"}


def described(audio: bytes, filename: str, mime_type: str) -> str:
    return f"transcript of {filename} {mime_type} {len(audio)}"


def part(
    mime_type: str | None, name: str = "audio", filename: str | None = "recording.webm"
) -> bytes:
    """Return a part as undici writes it, with four bytes in it."""
    disposition = f'Content-Disposition: form-data; name="{name}"'
    if filename is not None:
        disposition += f'; filename="{filename}"'
    head = [disposition] if mime_type is None else [disposition, f"Content-Type: {mime_type}"]
    return "\r\n".join([*head, "", ""]).encode() + b"\x01\x02\r\x04"


def form(*parts: bytes) -> bytes:
    line = b"------formdata-undici-083046163703"
    return b"".join(line + b"\r\n" + each + b"\r\n" for each in parts) + line + b"--\r\n"


async def of_form(body: bytes, content_type: str = FORM) -> Answer:
    return await transcribe(ScriptedTranscriber(described), body, content_type)


async def of_json(body: Any) -> Answer:
    return await transcribe(ScriptedTranscriber(described), body)


def refusal(error: str, message: str, status: int = 400) -> Answer:
    return status, {"error": error, "message": message, "retryable": False}


def transcript(filename: str, mime_type: str) -> Answer:
    text = f"transcript of {filename} {mime_type} 4"
    return 200, {"text": text, "size": 4, "type": mime_type}


UNSUPPORTED = (
    "Unsupported audio format: text/plain. Supported: audio/mpeg, audio/mp3, audio/mp4, "
    "audio/wav, audio/webm, audio/ogg, audio/flac, audio/aac"
)
NO_FILE = "No audio file found in form data. Please include an 'audio' field."


@in_one_test(
    ("body", "answer"),
    [
        (
            form(part("audio/webm;codecs=opus")),
            transcript("recording.webm", "audio/webm;codecs=opus"),
        ),
        (form(part("application/octet-stream")), transcript("recording.webm", "audio/webm")),
        (form(part(None, filename="a.webm")), transcript("a.webm", "audio/webm")),
        (form(part("audio/wav", filename="")), transcript("recording.webm", "audio/wav")),
        (
            form(part(None, "note", None), part("Audio/WAV")),
            transcript("recording.webm", "Audio/WAV"),
        ),
        (form(part("text/plain")), refusal("invalid_audio_format", UNSUPPORTED)),
        (form(part("audio/wav", name="file")), refusal("invalid_request", NO_FILE)),
        (form(part("audio/wav", filename=None)), refusal("invalid_request", NO_FILE)),
        (
            form(part("audio/wav").removesuffix(b"\x01\x02\r\x04")),
            refusal("audio_too_short", "Audio is too short to transcribe"),
        ),
        (form(part("audio/wav"))[:-40], refusal("invalid_request", NO_FILE)),
        (b"no form", refusal("invalid_request", "The form cannot be read.")),
        (
            form(*[part(None, f"field{number}", None) for number in range(101)]),
            refusal("invalid_request", "The form has more than 100 fields."),
        ),
    ],
)
async def test_a_form_is_answered_as_node_does(body: bytes, answer: Answer):
    assert await of_form(body) == answer


@in_one_test(
    ("content_type", "message"),
    [
        ("text/plain", "Request must be multipart/form-data or application/json with base64 audio"),
        ("", "Request must be multipart/form-data or application/json with base64 audio"),
        ("multipart/form-data", "The form has no boundary."),
        ("application/json", "Request body must be valid JSON"),
    ],
)
async def test_other_bodies_are_refused(content_type: str, message: str):
    assert await of_form(b"x", content_type) == refusal("invalid_request", message)


async def test_json_may_come_where_a_form_is_expected():
    body = json.dumps(RECORDING).encode()
    assert await of_form(body, "application/json; charset=utf-8") == transcript(
        "recording.webm", "audio/webm"
    )


@in_one_test(
    ("body", "answer"),
    [
        (RECORDING, transcript("recording.webm", "audio/webm")),
        ({**RECORDING, "filename": "a.ogg"}, transcript("a.ogg", "audio/webm")),
        ({**RECORDING, "filename": 7}, transcript("recording.webm", "audio/webm")),
        (
            {**RECORDING, "mimeType": "audio/webm;codecs=opus"},
            transcript("recording.webm", "audio/webm;codecs=opus"),
        ),
        (
            {"audio": "data:audio/wav;base64,AQIDBA==", "mimeType": "audio/wav"},
            transcript("recording.webm", "audio/wav"),
        ),
        ({**RECORDING, "audio": "AQ ID\nBA"}, transcript("recording.webm", "audio/webm")),
        ({**RECORDING, "mimeType": "text/plain"}, refusal("invalid_audio_format", UNSUPPORTED)),
        (
            {"mimeType": "audio/wav"},
            refusal(
                "invalid_request",
                "Request must include 'audio' field with base64-encoded audio data",
            ),
        ),
        (
            None,
            refusal(
                "invalid_request",
                "Request must include 'audio' field with base64-encoded audio data",
            ),
        ),
        (
            {"audio": "AQIDBA=="},
            refusal(
                "invalid_request", "Request must include 'mimeType' field (e.g., 'audio/webm')"
            ),
        ),
        (
            {**RECORDING, "audio": "A!"},
            refusal("invalid_request", "Failed to decode base64 audio data"),
        ),
        (
            {**RECORDING, "audio": "ü"},
            refusal("invalid_request", "Failed to decode base64 audio data"),
        ),
        (
            {**RECORDING, "audio": "data:audio/wav;base64,"},
            refusal("audio_too_short", "Audio is too short to transcribe"),
        ),
    ],
)
async def test_json_is_answered_as_node_does(body: Any, answer: Answer):
    assert await of_json(body) == answer


@in_one_test(
    ("error", "status", "answer"),
    [
        (
            RateLimited("429 slow down"),
            429,
            ("rate_limited", "Rate limited. Please try again later.", True),
        ),
        (
            AuthenticationFailed("Incorrect API key provided: sk-ab***yz"),
            401,
            ("auth_failed", "Authentication failed with transcription provider", False),
        ),
        (AudioRefused("Too long", "audio_too_long"), 400, ("audio_too_long", "Too long", False)),
        (
            ConfigurationFailed("There is no API key for OpenAI."),
            503,
            ("service_not_configured", "Transcription service is not configured", False),
        ),
        (NetworkError("Cut off"), 502, ("network_error", "Cut off", True)),
        (CopilotError("500 oops"), 500, ("provider_error", "500 oops", True)),
        (
            RuntimeError("secret"),
            500,
            ("provider_error", "The transcription failed. The server's log says why.", True),
        ),
    ],
)
async def test_each_failure_is_one_the_client_knows(
    error: Exception, status: int, answer: tuple[str, str, bool]
):
    body = dict(zip(("error", "message", "retryable"), answer, strict=True))
    assert await transcribe(ScriptedTranscriber(error), RECORDING) == (status, body)


async def test_without_a_transcriber_nothing_is_read():
    missing = refusal("service_not_configured", "Transcription service is not configured", 503)
    assert await transcribe(None, None) == missing
    assert await transcribe(None, b"x", "text/plain") == missing


async def test_the_bytes_arrive_as_they_were_sent():
    transcriber = ScriptedTranscriber("Hello")
    data = bytes(range(256)) * 4_000 + b"\r\n------formdata-undici-08"
    head = b'Content-Disposition: form-data; name="audio"; filename="a.webm"\r\n\r\n'
    await transcribe(transcriber, form(head + data), FORM)
    assert transcriber.heard == [(data, "a.webm", "audio/webm")]


async def test_who_has_used_up_a_limit_is_told_so_before_anybody_listens() -> None:
    spent = Limit("tokens", 0, lambda _: LimitExceeded("You have used up 0 tokens."))
    transcriber = ScriptedTranscriber(described)
    CURRENT_RUN.set(RunSlot(None, Budget([spent])))

    assert await transcribe(transcriber, RECORDING) == (
        429,
        {"error": "rate_limited", "message": "You have used up 0 tokens.", "retryable": True},
    )
    assert transcriber.heard == []
