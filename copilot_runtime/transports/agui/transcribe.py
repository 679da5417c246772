"""`transcribe`: convert a recording, as a form or as base64 in JSON, to text.

Statuses, codes and messages are those of the Node runtime 1.74, which its clients know: an error
is `{error, message, retryable}`. Unlike Node, we do not guess the error from its text.
"""

import logging
from base64 import b64decode
from typing import Any

from copilot_runtime.adapters.transcription import AudioRefused
from copilot_runtime.api.adapter import Transcriber
from copilot_runtime.api.run_input import check_budget
from copilot_runtime.base.concurrency import convert_exits
from copilot_runtime.base.errors import (
    AuthenticationFailed,
    ConfigurationFailed,
    CopilotError,
    LimitExceeded,
    NetworkError,
    RateLimited,
)
from copilot_runtime.base.jsontext import loads
from copilot_runtime.base.jsonvalue import as_object, get_text
from copilot_runtime.transports.form import FormFile, parse_form

logger = logging.getLogger(__name__)

Answer = tuple[int, dict[str, Any]]
"""The status and the body of a response."""

_TYPES = (
    "audio/mpeg",
    "audio/mp3",
    "audio/mp4",
    "audio/wav",
    "audio/webm",
    "audio/ogg",
    "audio/flac",
    "audio/aac",
)
_UNKNOWN_BYTES = ("", "application/octet-stream")
_USUAL_TYPE = "audio/webm"
_USUAL_NAME = "recording.webm"


class _Problem(Exception):
    def __init__(self, status: int, error: str, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        body = {"error": error, "message": message, "retryable": retryable}
        self.answer: Answer = status, body


async def transcribe(
    transcriber: Transcriber | None, body: Any, content_type: str | None = None
) -> Answer:
    """Return the response to `POST /transcribe`; without a content type, `body` is decoded JSON.

    A form has the file `audio`. JSON is `{audio, mimeType, filename?}`; `audio` is base64 or a
    `data:` URL with it.
    """
    try:
        if transcriber is None:
            raise _build_missing_service()
        upload = _read_json(body) if content_type is None else _read_body(body, content_type)
        return await _transcribe(transcriber, upload)
    except _Problem as problem:
        return problem.answer


def _read_body(body: bytes, content_type: str) -> FormFile:
    content_type = content_type.strip()
    if content_type.lower().startswith("application/json"):
        try:
            decoded = loads(body)
        except ValueError:
            raise _invalid_request("Request body must be valid JSON") from None
        return _read_json(decoded)
    if not content_type.lower().startswith("multipart/form-data"):
        raise _invalid_request(
            "Request must be multipart/form-data or application/json with base64 audio"
        )
    try:
        upload = parse_form(content_type, body).files.get("audio")
    except ValueError as error:
        raise _invalid_request(str(error)) from None
    if upload is None:
        raise _invalid_request("No audio file found in form data. Please include an 'audio' field.")
    return upload


def _read_json(body: Any) -> FormFile:
    fields = as_object(body)
    audio, mime_type = get_text(fields, "audio"), get_text(fields, "mimeType")
    if not audio:
        raise _invalid_request("Request must include 'audio' field with base64-encoded audio data")
    if not mime_type:
        raise _invalid_request("Request must include 'mimeType' field (e.g., 'audio/webm')")
    try:
        data = _decode_base64(audio)
    except ValueError:
        raise _invalid_request("Failed to decode base64 audio data") from None
    return FormFile(data, get_text(fields, "filename"), mime_type)


async def _transcribe(transcriber: Transcriber, upload: FormFile) -> Answer:
    kind = upload.mime_type.partition(";")[0].strip().lower()
    if kind not in (*_TYPES, *_UNKNOWN_BYTES):
        message = f"Unsupported audio format: {upload.mime_type}. Supported: {', '.join(_TYPES)}"
        raise _Problem(400, "invalid_audio_format", message)
    if not upload.data:
        raise _Problem(400, "audio_too_short", "Audio is too short to transcribe")
    mime_type = _USUAL_TYPE if kind in _UNKNOWN_BYTES else upload.mime_type
    try:
        await check_budget()
        name = upload.filename or _USUAL_NAME
        text = await convert_exits(transcriber.transcribe(upload.data, name, mime_type))
    except CopilotError as error:
        logger.warning("No transcript: %s%s", error.message, f" ({error.hint})" * bool(error.hint))
        raise _problem(error) from error
    except Exception as error:  # a transcriber is third-party code
        logger.exception("No transcript")
        message = "The transcription failed. The server's log says why."
        raise _Problem(500, "provider_error", message, retryable=True) from error
    return 200, {"text": text, "size": len(upload.data), "type": mime_type}


def _problem(error: CopilotError) -> _Problem:
    match error:
        case AudioRefused():
            return _Problem(400, error.reason, error.message)
        case RateLimited():
            message = "Rate limited. Please try again later."
            return _Problem(429, "rate_limited", message, retryable=True)
        case LimitExceeded():
            return _Problem(429, "rate_limited", error.message, retryable=True)
        case AuthenticationFailed():  # the provider's message about a key is not for clients
            message = "Authentication failed with transcription provider"
            return _Problem(401, "auth_failed", message)
        case ConfigurationFailed():
            return _build_missing_service()
        case NetworkError():
            return _Problem(502, "network_error", error.message, retryable=True)
        case _:
            return _Problem(500, "provider_error", error.message, retryable=True)


def _invalid_request(message: str) -> _Problem:
    return _Problem(400, "invalid_request", message)


def _build_missing_service() -> _Problem:
    return _Problem(503, "service_not_configured", "Transcription service is not configured")


def _decode_base64(audio: str) -> bytes:
    """Decode base64 as browsers do, ignoring whitespace and missing padding."""
    if audio.startswith("data:"):
        audio = audio.partition(",")[2]
    audio = "".join(audio.split()).rstrip("=")
    return b64decode(audio + "=" * (-len(audio) % 4), validate=True)
