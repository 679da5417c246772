"""Transcribes speech, with any server that has OpenAI's `/audio/transcriptions`."""

from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING, Literal

from copilot_runtime.adapters.budget import count_request
from copilot_runtime.adapters.errors import Service, read_response_error
from copilot_runtime.adapters.http_adapter import ApiKey
from copilot_runtime.adapters.openai.auth import OpenAIAuth
from copilot_runtime.adapters.provider_errors import read_error_message
from copilot_runtime.api.events import Usage
from copilot_runtime.base.errors import AuthenticationFailed, CopilotError, RateLimited
from copilot_runtime.base.jsonvalue import JsonObject, as_count, get_object, parse_object
from copilot_runtime.http.client import Upstream

if TYPE_CHECKING:
    import httpx

_NAME = "Transcription"
_ENDINGS = {
    "audio/aac": "aac",
    "audio/flac": "flac",
    "audio/mp3": "mp3",
    "audio/mp4": "mp4",
    "audio/mpeg": "mp3",
    "audio/ogg": "ogg",
    "audio/wav": "wav",
    "audio/webm": "webm",
}
"""MIME type of a recording → the file extension by which providers recognise it."""

_TOO_LONG = ("too long", "longer than", "maximum content size", "too large")
_TOO_SHORT = ("too short",)
_FORMAT = ("invalid file format", "could not be decoded", "unsupported file format", "corrupted")


class AudioRefused(CopilotError):
    """A recording that cannot be transcribed; `reason` is a code of CopilotKit's client."""

    code = "AUDIO_REFUSED"
    status_code = 400

    def __init__(
        self,
        message: str,
        reason: Literal["audio_too_long", "audio_too_short", "invalid_audio_format"],
    ) -> None:
        super().__init__(message)
        self.reason = reason


class OpenAITranscriber:
    """Sends recordings to a model of OpenAI, or of any server with the same API.

    Args:
        model: The name of the model.
        api_key: The key, or a function that returns it; by default `OPENAI_API_KEY`.
        base_url: The address, with its version; by default `OPENAI_BASE_URL`, or OpenAI's.
        language: The ISO 639-1 code of the language; None: the model detects it.
        headers: Sent with each request, in place of the adapter's own of the same names.
        connect_timeout: How long connecting may take, in seconds.
        idle_timeout: How long the server may be silent, in seconds.
        max_retries: How often a request that failed is sent again.
        http_client: An `httpx.AsyncClient` of the application to send requests with; it stays open.

    Raises:
        ConfigurationFailed: The base URL is not an address.
    """

    def __init__(
        self,
        model: str = "whisper-1",
        *,
        api_key: ApiKey | None = None,
        base_url: str | None = None,
        language: str | None = None,
        headers: Mapping[str, str] | None = None,
        connect_timeout: float = 10.0,
        idle_timeout: float = 60.0,
        max_retries: int = 2,
        http_client: "httpx.AsyncClient | None" = None,
    ) -> None:
        self.model = model
        self.language = language
        self._auth = OpenAIAuth(api_key, base_url)
        self._url = self._auth.url("audio/transcriptions")
        self._headers = {name.lower(): value for name, value in (headers or {}).items()}
        self._upstream = Upstream(
            _NAME,
            connect_timeout=connect_timeout,
            idle_timeout=idle_timeout,
            max_retries=max_retries,
            http_client=http_client,
        )

    async def transcribe(self, audio: bytes, filename: str, mime_type: str) -> str:
        """Return the text of a recording.

        Args:
            audio: The bytes of the file.
            filename: Its name, which gets the ending that belongs to the type.
            mime_type: Its type, such as `audio/webm`.

        Raises:
            AudioRefused: The recording is too long, too short, or in an unknown format.
            NetworkError: There was no whole answer.
            CopilotError: The server refused the request.
        """
        from aiohttp import FormData

        authorization = await self._auth.authorize()
        language = {"language": self.language} if self.language else {}
        fields = {"model": self.model, "response_format": "json", **language}
        form = FormData(fields, quote_fields=False)
        name = _name_file(filename, mime_type)
        form.add_field("file", audio, filename=name, content_type=_printable(mime_type))
        body = form()
        headers = {
            "content-type": body.content_type,
            "accept": "application/json",
            "user-agent": "copilot-runtime",
            **authorization.headers,
            **self._headers,
        }
        async with count_request(Usage(model=self.model, provider="openai")) as usages:
            async with self._upstream.post(self._url, await body.as_bytes(), headers) as reply:
                answer = await reply.text()
                if not 200 <= reply.status < 300:
                    raise _refusal(reply.status, answer, reply.headers, authorization.secret)
            found = parse_object(answer.decode(errors="replace"))
            used = get_object(found, "usage")  # whisper-1 counts seconds, which have no price
            usages.append(
                Usage(
                    model=self.model,
                    provider="openai",
                    input_tokens=as_count(used.get("input_tokens")),
                    output_tokens=as_count(used.get("output_tokens")),
                )
            )
        return _get_transcript(found)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._upstream.aclose()


class ScriptedTranscriber:
    """Returns scripted texts, and records its requests: the public test double.

    Args:
        answers: The texts in order; the last one is repeated. A function is called with the
            arguments of `transcribe` and returns the text; an exception is raised.
    """

    def __init__(self, *answers: str | Callable[[bytes, str, str], str] | Exception) -> None:
        self.heard: list[tuple[bytes, str, str]] = []
        self._answers = answers

    async def transcribe(self, audio: bytes, filename: str, mime_type: str) -> str:
        """Return the next answer. Raises it if it is an exception."""
        self.heard.append((audio, filename, mime_type))
        answer = self._answers[min(len(self.heard), len(self._answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer(audio, filename, mime_type) if callable(answer) else answer


def _name_file(filename: str, mime_type: str) -> str:
    """Return the name with the ending that belongs to the type."""
    ending = _ENDINGS.get(mime_type.partition(";")[0].strip().lower())
    stem = PurePath(filename).stem if ending else filename
    # clients differ in how they escape special characters
    safe = _printable(stem).replace('"', "'").replace("\\", "_")[:100] or "recording"
    return f"{safe}.{ending}" if ending else safe


def _printable(text: str) -> str:
    return "".join(character for character in text if character.isprintable())


def _refusal(
    status: int, body: bytes, headers: Mapping[str, str], secret: str | None
) -> CopilotError:
    reason = read_error_message(body).lower()
    if status == 413 or (status == 400 and any(word in reason for word in _TOO_LONG)):
        return AudioRefused("Audio file is too long", "audio_too_long")
    if status == 400 and any(word in reason for word in _TOO_SHORT):
        return AudioRefused("Audio is too short to transcribe", "audio_too_short")
    if status == 415 or (status == 400 and any(word in reason for word in _FORMAT)):
        return AudioRefused("The recording could not be read", "invalid_audio_format")
    error = read_response_error(Service(_NAME, secret=secret), status, body, headers)
    if isinstance(error, AuthenticationFailed | RateLimited):
        return error
    # not a NetworkError: the server refused the request
    return CopilotError(error.message, status_code=status, hint=error.hint, kind=error.kind)


def _get_transcript(answer: JsonObject) -> str:
    text = answer.get("text")
    if not isinstance(text, str):
        raise CopilotError(
            f"{_NAME} API error: The answer is no transcript.",
            status_code=502,
            hint="Is the base URL right? It answered with something else.",
        )
    return text.strip()
