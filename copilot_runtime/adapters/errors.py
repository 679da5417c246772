"""What a provider's refusal means: an HTTP status and a body become one of our errors.

Codes, severity and sentences are those of the Node runtime 1.10.6, except that asking for
patience (429) is no mistake in the configuration, nor is what passes by itself (408, 409), and
that a conversation too long and a filtered one are told apart from other requests refused.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import orjson

from copilot_runtime.errors import (
    AuthenticationFailed,
    ConfigurationFailed,
    CopilotError,
    LimitExceeded,
    NetworkError,
    RateLimited,
    Refused,
)
from copilot_runtime.http.retries import parse_retry_after

KINDS = {
    400: "BadRequestError",
    401: "AuthenticationError",
    403: "PermissionDeniedError",
    404: "NotFoundError",
    409: "ConflictError",
    422: "UnprocessableEntityError",
    429: "RateLimitError",
}
"""Status → what the official clients of OpenAI and Anthropic call it."""

_STATUSES = {
    "accessdeniedexception": 403,
    "api_error": 500,
    "authentication_error": 401,
    "billing_error": 402,
    "bio_policy": 400,
    "content_filter": 400,
    "context_length_exceeded": 400,
    "deadline_exceeded": 504,
    "failed_precondition": 400,
    "insufficient_quota": 429,
    "internalserverexception": 500,
    "invalid_api_key": 401,
    "image_content_policy_violation": 400,
    "invalid_argument": 400,
    "invalid_image": 400,
    "invalid_image_url": 400,
    "invalid_prompt": 400,
    "invalid_request_error": 400,
    "misalignment_policy_violation": 400,
    "model_not_found": 404,
    "modelnotreadyexception": 429,
    "modelstreamerrorexception": 500,
    "modeltimeoutexception": 504,
    "not_found": 404,
    "not_found_error": 404,
    "overloaded_error": 529,
    "permission_denied": 403,
    "permission_error": 403,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "request_too_large": 413,
    "requests": 429,
    "resource_exhausted": 429,
    "resourcenotfoundexception": 404,
    "server_is_overloaded": 503,
    "serviceunavailableexception": 503,
    "slow_down": 503,
    "throttlingexception": 429,
    "timeout_error": 504,
    "tokens": 429,
    "unauthenticated": 401,
    "unavailable": 503,
    "validationexception": 400,
}
"""Codes and types of errors that arrive inside a stream → the status they would have had."""

_PASSING = (408, 409, 424, 425)
"""Statuses below 500 that say nothing against the request: it may succeed next time."""

_FILTERED = (
    *("content_filter", "content_policy_violation", "image_content_policy_violation"),
    *("bio_policy", "misalignment_policy_violation", "ResponsibleAIPolicyViolation"),
)
_BLOCKED = "blocked by our content filters"  # at Bedrock, where nothing else tells
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
_SHORTEST_SECRET = 8  # shorter keys are for servers that want none, and words contain them


@dataclass(frozen=True, slots=True)
class Service:
    """Whom a request went to: errors call it `name`. `secret` must be in none of them.

    `speaks` is what its answers should have been.
    """

    name: str
    model: str = ""
    secret: str | None = field(default=None, repr=False)
    speaks: str = "a stream of events"

    def format_error(self, hint: str) -> NetworkError:
        """Return the error for an answer of another kind: the next one would be no other."""
        error = NetworkError(
            f"{self.name} API error: The answer is not {self.speaks}.",
            kind=f"{self.name}Error",
            hint=f"Is the base URL right? {hint}",
        )
        error.retryable = False
        return error

    def payload_error(self, payload: bytes) -> NetworkError:
        """Return the error for a part of an answer that makes no sense."""
        return self.format_error(f"It sent {payload[:100].decode(errors='replace')!r}.")

    def content_filter_error(self) -> Refused:
        """Return the error for an answer that the provider's filter stopped."""
        return Refused(
            f"The content filter of {self.name} stopped the answer. "
            "Please put the question differently.",
            hint=f"Model: {self.model!r}." if self.model else None,
            kind="ContentFilterFinishReasonError",
        )


def read_response_error(
    service: Service, status: int, body: bytes, headers: Mapping[str, str]
) -> CopilotError:
    """Return the error for an answer that is not 2xx."""
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
        retry_after=_find_retry_delay(_decode(body), parse_retry_after(headers)),
        codes=_codes(_decode(body)),
    )


def read_stream_error(service: Service, error: Any) -> CopilotError:
    """Return the error for an `error` object in the middle of a stream."""
    codes = _codes(error)
    statuses = [_status_of(code) for code in codes]
    status = next((status for status in statuses if status), 500)
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
    """Return the error of that status, without the key should the server have repeated it.

    `codes` are the provider's own words for what went wrong. The model and the id of the request
    are in the hint, for the log.
    """
    name, model, secret = service.name, service.model, service.secret
    if status == 404 and model and "model" not in reason.lower():
        reason = f"{reason} (Model: {model!r}.)"
    message = f"{name} API error: {reason}"
    hints = [
        hint,
        f"Model: {model!r}." if model else "",
        f"Request id: {request_id}." if request_id else "",
    ]
    hint = " ".join(filter(None, hints))
    if secret and len(secret) >= _SHORTEST_SECRET:
        message, hint = message.replace(secret, "***"), hint.replace(secret, "***")
    hint_or_none = hint or None
    kind = KINDS.get(status, "InternalServerError" if status >= 500 else "APIError")
    error: CopilotError
    if status in (400, 413, 422) and _is_too_long(reason, codes):
        return LimitExceeded(
            f"The conversation is too long for {f'{model!r}' if model else 'the model'}. {message}",
            hint=hint_or_none,
            kind=kind,
        )
    if status < 500 and (any(code in _FILTERED for code in codes) or _BLOCKED in reason):
        return Refused(
            f"The content filter of {name} refused the question. Please put it differently.",
            hint=" ".join(filter(None, [hint_or_none, message])),
            kind=kind,
        )
    if status == 429:
        return RateLimited(message, retry_after=retry_after, hint=hint_or_none, kind=kind)
    if status == 413:
        return LimitExceeded(message, hint=hint_or_none, kind=kind)
    if status in (401, 403) or _WRONG_KEY in codes:
        error = AuthenticationFailed(message, status_code=status, hint=hint_or_none, kind=kind)
    elif status >= 500 or status in _PASSING:
        error = NetworkError(message, status_code=status, hint=hint_or_none, kind=kind)
    elif status >= 400:
        error = ConfigurationFailed(message, status_code=status, hint=hint_or_none, kind=kind)
    else:
        error = CopilotError(message, status_code=status, hint=hint_or_none, kind=kind)
    error.severity = "critical"
    return error


def find_request_id(headers: Mapping[str, str]) -> str | None:
    """Return what the provider's support asks for, whatever the provider calls it."""
    return next((headers[name] for name in _REQUEST_IDS if headers.get(name)), None)


def read_error_message(body: bytes) -> str:
    """Return what an error body says: JSON of any of the usual shapes, or text, or HTML."""
    if (value := _decode(body)) is not None:
        return _shorten(_sentence(value))
    return _shorten(_TAG.sub(" ", body[: 64 * _LONGEST].decode(errors="replace")))


def _decode(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return None


def _codes(value: Any) -> list[Any]:
    """Return everything in an error that may be a code, the most telling first."""
    if isinstance(value, list) and value:
        return _codes(cast("list[Any]", value)[0])
    if not isinstance(value, dict):
        return []
    fields = cast("dict[str, Any]", value)
    own = [fields[key] for key in ("status", "code", "type", "__type") if fields.get(key)]
    reasons = [detail["reason"] for detail in _details(fields) if "reason" in detail]
    return [*own, *_codes(fields.get("innererror")), *_codes(fields.get("error")), *reasons]


def _find_retry_delay(value: Any, seconds: float | None) -> float | None:
    """Return these seconds, or those that Google writes into the body (`RetryInfo`)."""
    if isinstance(value, list) and value:
        value = cast("list[Any]", value)[0]
    error = cast("dict[str, Any]", value).get("error") if isinstance(value, dict) else None
    if seconds is None and isinstance(error, dict):
        for detail in _details(cast("dict[str, Any]", error)):
            if found := _SECONDS.fullmatch(str(detail.get("retryDelay"))):
                return float(found[1])
    return seconds


def _details(error: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the objects of Google's list of details (https://cloud.google.com/apis/design/errors)."""
    details = error.get("details")
    if not isinstance(details, list):
        return []
    return [detail for detail in cast("list[Any]", details) if isinstance(detail, dict)]


def _status_of(code: Any) -> int | None:
    if isinstance(code, str) and code.isdecimal():
        code = int(code[:4])
    if isinstance(code, int):
        return code if 400 <= code < 600 else None
    return _STATUSES.get(code.lower()) if isinstance(code, str) else None


def _is_too_long(reason: str, codes: Sequence[Any]) -> bool:
    return "context_length_exceeded" in codes or _TOO_LONG.search(reason) is not None


def _sentence(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value:
        return _sentence(cast("list[Any]", value)[0])
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        for key in ("error", "message", "Message", "detail", "msg"):
            if fields.get(key):
                return _sentence(fields[key])
    return orjson.dumps(value).decode() if value else ""


def _shorten(text: str) -> str:
    text = " ".join(text.split())
    # three dots: react-core 1.10.6 calls btoa on messages, which throws beyond Latin-1
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
