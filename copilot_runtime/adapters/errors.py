"""Maps a provider's error response, its HTTP status and body, to one of our errors.

Codes, severity and sentences are those of the Node runtime 1.10.6, with these exceptions: rate
limits (429) and transient errors (408, 409) are not configuration errors, and a conversation that
is too long or stopped by a content filter has an error of its own.
"""

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import unescape
from time import monotonic
from traceback import format_exception
from typing import Any
from urllib.parse import unquote

import orjson

from copilot_runtime.base.errors import (
    AuthenticationFailed,
    ConfigurationFailed,
    CopilotError,
    LimitExceeded,
    NetworkError,
    RateLimited,
    Refused,
)
from copilot_runtime.base.jsonvalue import (
    JsonObject,
    as_list,
    as_object,
    as_objects,
    get_object,
    to_text,
)
from copilot_runtime.http.errors import parse_retry_after

KINDS = {
    400: "BadRequestError",
    401: "AuthenticationError",
    403: "PermissionDeniedError",
    404: "NotFoundError",
    409: "ConflictError",
    422: "UnprocessableEntityError",
    429: "RateLimitError",
}
"""Status → the name of the exception in the official clients of OpenAI and Anthropic."""

_CODES = {
    400: (
        "bio_policy content_filter context_length_exceeded failed_precondition "
        "image_content_policy_violation invalid_argument invalid_image invalid_image_url "
        "invalid_prompt invalid_request_error misalignment_policy_violation validationexception"
    ),
    401: "authentication_error invalid_api_key unauthenticated",
    402: "billing_error",
    403: "accessdeniedexception permission_denied permission_error",
    404: "model_not_found not_found not_found_error resourcenotfoundexception",
    413: "request_too_large",
    429: (
        "insufficient_quota modelnotreadyexception rate_limit_error rate_limit_exceeded "
        "requests resource_exhausted throttlingexception tokens"
    ),
    500: "api_error internalserverexception modelstreamerrorexception",
    503: "server_is_overloaded serviceunavailableexception slow_down unavailable",
    504: "deadline_exceeded modeltimeoutexception timeout_error",
    529: "overloaded_error",
}
_STATUSES = {code: status for status, codes in _CODES.items() for code in codes.split()}
"""Codes and types of errors inside a stream → the equivalent HTTP status."""

_PASSING = (408, 409, 424, 425)
"""Transient statuses below 500: the same request may succeed at the next attempt."""

_FILTERED = (
    *("content_filter", "content_policy_violation", "image_content_policy_violation"),
    *("bio_policy", "misalignment_policy_violation", "ResponsibleAIPolicyViolation"),
)
_BLOCKED = "blocked by our content filters"  # at Bedrock, which sends no code for it
_TOO_LONG = re.compile(
    r"context.length|context.window|prompt is too long|input is too long|too many (input )?tokens"
    r"|input token count|maximum.{0,30}tokens.{0,60}(messages|prompt|input)"
    r"|reduce the length of the (messages|prompt|input)",
    re.IGNORECASE,
)
_REQUEST_IDS = (
    "x-request-id",
    "request-id",
    "apim-request-id",
    "x-amzn-requestid",
    "x-goog-request-id",
    "mistral-correlation-id",
)
_WRONG_KEY = "API_KEY_INVALID"  # with status 400, at Google
_SECONDS = re.compile(r"(\d+(?:\.\d+)?)s")
_TAG = re.compile(r"<(script|style)\b.*?</\1>|<[^<>]*>", re.DOTALL | re.IGNORECASE)
_LONGEST = 500
_SHORTEST_SECRET = 8  # shorter keys are for servers that need none, and words contain them


@dataclass(frozen=True, slots=True)
class Service:
    """The service that a request goes to, for errors: they contain its `name`, never its `secret`.

    `format` describes the expected response.
    """

    name: str
    model: str = ""
    secret: str | None = field(default=None, repr=False)
    format: str = "a stream of events"

    def format_error(self, hint: str) -> NetworkError:
        """Return the error for a response of an unexpected format; it is not retryable."""
        error = NetworkError(
            f"{self.name} API error: The answer is not {self.format}.",
            kind=f"{self.name}Error",
            hint=f"Is the base URL right? {hint}",
        )
        error.retryable = False
        return error

    def payload_error(self, payload: bytes) -> NetworkError:
        """Return the error for a malformed part of a response."""
        return self.format_error(f"It sent {payload[:100].decode(errors='replace')!r}.")

    def content_filter_error(self) -> Refused:
        """Return the error for an answer that the provider's content filter stopped."""
        return Refused(
            f"The content filter of {self.name} stopped the answer. "
            "Please put the question differently.",
            hint=f"Model: {self.model!r}." if self.model else None,
            kind="ContentFilterFinishReasonError",
        )


def read_response_error(
    service: Service, status: int, body: bytes, headers: Mapping[str, str]
) -> CopilotError:
    """Return the error for a response with another status than 2xx."""
    value = _decode(body)
    reason = read_error_message(body) or "status code (no body)"
    hint = ""
    if 300 <= status < 400:
        reason = "redirects are not followed"
        if "location" in headers:
            hint = f"It redirects to {headers['location']!r}: is the base URL right?"
    return build_error(
        service,
        f"{status} {reason}",
        status,
        hint=hint,
        request_id=find_request_id(headers),
        retry_after=_find_retry_delay(value, parse_retry_after(headers)),
        codes=_codes(value),
    )


def read_stream_error(service: Service, error: Any) -> CopilotError:
    """Return the error for an `error` object in the middle of a stream."""
    codes = _codes(error)
    status = next(filter(None, map(_status_of, codes)), 500)
    reason = _shorten(_sentence(error)) or "The answer broke off with an error."
    return build_error(service, reason, status, codes=codes)


def build_error(
    service: Service,
    reason: str,
    status: int,
    *,
    hint: str = "",
    request_id: str | None = None,
    retry_after: float | None = None,
    codes: Sequence[Any] = (),
) -> CopilotError:
    """Return the error for a status, with the API key removed if the server repeated it.

    `codes` are the provider's error codes. The model and the request id are in the hint, for the
    log.
    """
    name, model, secret = service.name, service.model, service.secret
    if status == 404 and model and "model" not in reason.lower():
        reason = f"{reason} (Model: {model!r}.)"
    message = f"{name} API error: {reason}"
    model_hint = f"Model: {model!r}." if model else ""
    id_hint = f"Request id: {request_id}." if request_id else ""
    hint = " ".join(filter(None, [hint, model_hint, id_hint]))
    if secret and len(secret) >= _SHORTEST_SECRET:
        message, hint = message.replace(secret, "***"), hint.replace(secret, "***")
    kind = KINDS.get(status, "InternalServerError" if status >= 500 else "APIError")
    is_too_long = "context_length_exceeded" in codes or _TOO_LONG.search(reason)
    if status in (400, 413, 422) and is_too_long:
        return LimitExceeded(
            f"The conversation is too long for {f'{model!r}' if model else 'the model'}. {message}",
            hint=hint or None,
            kind=kind,
        )
    if status < 500 and (any(code in _FILTERED for code in codes) or _BLOCKED in reason):
        return Refused(
            f"The content filter of {name} refused the question. Please put it differently.",
            hint=f"{hint} {message}".lstrip(),
            kind=kind,
        )
    if status == 429:
        return RateLimited(message, retry_after=retry_after, hint=hint or None, kind=kind)
    if status == 413:
        return LimitExceeded(message, hint=hint or None, kind=kind)
    if status in (401, 403) or _WRONG_KEY in codes:
        error_type = AuthenticationFailed
    elif status >= 500 or status in _PASSING:
        error_type = NetworkError
    else:
        error_type = ConfigurationFailed if status >= 400 else CopilotError
    error = error_type(message, status_code=status, hint=hint or None, kind=kind)
    error.severity = "critical"
    return error


def find_request_id(headers: Mapping[str, str]) -> str | None:
    """Return the request id, which the provider's support asks for, or `None`."""
    return next((headers[name] for name in _REQUEST_IDS if headers.get(name)), None)


def read_error_message(body: bytes) -> str:
    """Return the message in an error body: JSON of any of the usual shapes, text, or HTML."""
    if (value := _decode(body)) is not None:
        return _shorten(_sentence(value))
    return _shorten(_TAG.sub(" ", body[: 64 * _LONGEST].decode(errors="replace")))


def _decode(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return None


def _codes(value: Any) -> list[Any]:
    """Return all values in an error that may be a code, the most specific first."""
    fields = as_object(_unwrap(value))
    own = [fields[key] for key in ("status", "code", "type", "__type") if fields.get(key)]
    inner = [
        code for key in ("innererror", "error") if key in fields for code in _codes(fields[key])
    ]
    reasons = [detail["reason"] for detail in _details(fields) if "reason" in detail]
    return [*own, *inner, *reasons]


def _find_retry_delay(value: Any, seconds: float | None) -> float | None:
    """Return `seconds`, or if it is `None` the delay in Google's `RetryInfo`, if there is one."""
    if seconds is None:
        for detail in _details(get_object(_unwrap(value), "error")):
            if found := _SECONDS.fullmatch(str(detail.get("retryDelay"))):
                return float(found[1])
    return seconds


def _details(error: JsonObject) -> list[JsonObject]:
    """Return the objects of Google's list of details (https://cloud.google.com/apis/design/errors)."""
    return as_objects(error.get("details"))


def _unwrap(value: Any) -> Any:
    """Return the first item of a list, and anything else as it is."""
    while items := as_list(value):
        value = items[0]
    return value


def _status_of(code: Any) -> int | None:
    if isinstance(code, str) and code.isdecimal():
        code = int(code[:4])
    if isinstance(code, int):
        return code if 400 <= code < 600 else None
    return _STATUSES.get(code.lower()) if isinstance(code, str) else None


def _sentence(value: Any) -> str:
    value = _unwrap(value)
    fields = as_object(value)
    for key in ("error", "message", "Message", "detail", "msg"):
        if fields.get(key):
            return _sentence(fields[key])
    return to_text(value) if value else ""


def _shorten(text: str) -> str:
    text = " ".join(text.split())
    # three dots: react-core 1.10.6 calls btoa on messages, which throws beyond Latin-1
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


_LEAST = 24
"""Letters and digits in a row that are no coincidence."""
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|.)")
_NO_WORD = re.compile(r"[\W_]+")

logger = logging.getLogger(__name__)


def redact_error(error: CopilotError, instructions: str) -> None:
    """Replace the message and the hint of an error that repeats a part of the instructions.

    Causes that repeat them are removed, because hooks receive these, too. The original error is
    logged at the level `debug`.
    """
    if not instructions:
        return
    cause = error.__cause__ or error.__context__
    if cause is not None and _repeats(_describe(cause), instructions):
        logger.debug("The provider repeated instructions in the cause of an error", exc_info=error)
        error.__cause__ = error.__context__ = None
    if not _repeats(f"{error.message}\n{error.hint or ''}", instructions):
        return
    logger.debug("The provider repeated instructions: %s (%s)", error.message, error.hint)
    # what adapters put before the provider's words says which of them it was
    service = error.message.partition(" API error: ")[0]
    service = "The model's provider" if service == error.message else service
    error.message = f"{service} refused the request. Why is in the server's log, at level debug."
    error.args = (error.message,)
    error.hint = "The provider's sentence repeats the instructions, so it is not shown."


def _describe(cause: BaseException) -> str:
    """Return the messages of an exception and of its causes, without tracebacks."""
    return "".join(format_exception(cause, limit=0))


def _repeats(text: str, instructions: str) -> bool:
    """Return whether a text contains a long enough part of the instructions, or all of them."""
    words, secret = _normalize(text), _normalize(instructions)
    size = min(_LEAST, len(secret))
    if size < _LEAST // 2:  # too short to be distinctive
        return False
    pieces = {words[at : at + size] for at in range(len(words) - size + 1)}
    return any(secret[at : at + size] in pieces for at in range(len(secret) - size + 1))


def _normalize(text: str) -> str:
    """Return the letters and digits of a text, which may be escaped as in JSON, HTML or a URL."""
    return _NO_WORD.sub("", _ESCAPE.sub(_decode_escape, unescape(unquote(text)))).casefold()


def _decode_escape(escape: re.Match[str]) -> str:
    return chr(int(escape[1], 16)) if escape[1] else ""


_MANY = 3
"""Consecutive failed requests that count as an outage."""

_MEMORY = 60.0
"""Seconds after the last failure for which an outage is reported."""


class ProviderHealth:
    """Counts the latest requests that failed by the provider's fault, or for a wrong key."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._failures = 0
        self._failed_at = 0.0

    @property
    def is_failing(self) -> bool:
        """Whether the latest requests have all failed, the last one in the past minute."""
        return self._failures >= _MANY and self._clock() < self._failed_at + _MEMORY

    def record_success(self) -> None:
        """Record a successful request."""
        self._failures = 0

    def record_failure(self, error: Exception) -> None:
        """Record a failed request. Errors of the request itself and rate limits do not count."""
        if isinstance(error, RateLimited):
            return
        if isinstance(error, NetworkError | AuthenticationFailed):
            self._failures += 1
            self._failed_at = self._clock()
