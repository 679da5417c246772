"""What a provider's refusal means: an HTTP status and a body become one of our errors.

Codes, severity and sentences are those of the Node runtime 1.10.6, except that asking for
patience (429) is no mistake in the configuration.
"""

import re
from collections.abc import Mapping
from typing import Any, cast

import orjson

from copilot_runtime.errors import (
    AuthenticationFailed,
    ConfigurationFailed,
    CopilotError,
    NetworkError,
    RateLimited,
)
from copilot_runtime.upstream_retries import asked_wait

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
    "authentication_error": 401,
    "billing_error": 403,
    "context_length_exceeded": 400,
    "insufficient_quota": 429,
    "invalid_api_key": 401,
    "invalid_request_error": 400,
    "model_not_found": 404,
    "not_found_error": 404,
    "overloaded_error": 529,
    "permission_error": 403,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "requests": 429,
    "tokens": 429,
}
"""Codes and types of errors that arrive inside a stream → the status they would have had."""

_TAG = re.compile(r"<(script|style)\b.*?</\1>|<[^>]*>", re.DOTALL | re.IGNORECASE)
_LONGEST = 500
_SHORTEST_SECRET = 8  # shorter keys are for servers that want none, and words contain them


def failure(
    name: str, status: int, body: bytes, headers: Mapping[str, str], *, secret: str | None = None
) -> CopilotError:
    """Return the error for an answer of the service `name` that is not 2xx."""
    reason = message_in(body) or "status code (no body)"
    if 300 <= status < 400:
        reason = "redirects are not followed"
    request_id = headers.get("x-request-id") or headers.get("request-id")
    hints = [
        f"Request id: {request_id}." if request_id else "",
        f"It redirects to {headers['location']!r}: is the base URL right?"
        if 300 <= status < 400 and "location" in headers
        else "",
    ]
    return failed(
        name,
        f"{status} {reason}",
        status,
        hint=" ".join(filter(None, hints)) or None,
        secret=secret,
        retry_after=asked_wait(headers),
    )


def failure_inside(name: str, error: Any, *, secret: str | None = None) -> CopilotError:
    """Return the error for an `error` object in the middle of a stream."""
    status = 500
    if isinstance(error, dict):
        known = cast("dict[str, Any]", error)
        for key in ("status", "code", "type"):
            value = known.get(key)
            if isinstance(value, int) and 400 <= value < 600:
                status = value
                break
            if isinstance(value, str) and value in _STATUSES:
                status = _STATUSES[value]
                break
    reason = _sentence(error) or "The answer broke off with an error."
    return failed(name, reason, status, secret=secret)


def failed(
    name: str,
    reason: str,
    status: int,
    *,
    hint: str | None = None,
    secret: str | None = None,
    retry_after: float | None = None,
) -> CopilotError:
    """Return the error of that status, without the key should the server have repeated it."""
    message = f"{name} API error: {reason}"
    if secret and len(secret) >= _SHORTEST_SECRET:
        message = message.replace(secret, "***")
    kind = KINDS.get(status, "InternalServerError" if status >= 500 else "APIError")
    error: CopilotError
    if status == 429:
        return RateLimited(message, retry_after=retry_after, hint=hint, kind=kind)
    if status == 401:
        error = AuthenticationFailed(message, hint=hint, kind=kind)
    elif status >= 500:
        error = NetworkError(message, status_code=status, hint=hint, kind=kind)
    elif status >= 400:
        error = ConfigurationFailed(message, status_code=status, hint=hint, kind=kind)
    else:
        error = CopilotError(message, status_code=status, hint=hint, kind=kind)
    error.severity = "critical"
    return error


def message_in(body: bytes) -> str:
    """Return what an error body says: JSON of any of the usual shapes, or text, or HTML."""
    try:
        return _shortened(_sentence(orjson.loads(body)))
    except orjson.JSONDecodeError:
        return _shortened(_TAG.sub(" ", body[: 64 * _LONGEST].decode(errors="replace")))


def _sentence(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value:
        return _sentence(cast("list[Any]", value)[0])
    if isinstance(value, dict):
        known = cast("dict[str, Any]", value)
        for key in ("error", "message", "detail", "msg"):
            if known.get(key):
                return _sentence(known[key])
    return orjson.dumps(value).decode() if value else ""


def _shortened(text: str) -> str:
    text = " ".join(text.split())
    # three dots: react-core 1.10.6 calls btoa on messages, which throws beyond Latin-1
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
