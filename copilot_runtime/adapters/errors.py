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
from math import ceil
from time import monotonic
from traceback import format_exception
from typing import Any
from urllib.parse import unquote

from copilot_runtime.adapters.error_classes import classify, find_status
from copilot_runtime.adapters.provider_errors import (
    decode_body,
    find_error,
    find_retry_delay,
    read_codes,
    read_error_message,
    read_sentence,
    shorten,
)
from copilot_runtime.base.errors import (
    AuthenticationFailed,
    CopilotError,
    InvalidAnswer,
    LimitExceeded,
    NetworkError,
    PaymentRequired,
    RateLimited,
    Refused,
    ToolsRefused,
)
from copilot_runtime.base.secrets import REDACTOR
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

_REQUEST_IDS = (
    "x-request-id",
    "request-id",
    "apim-request-id",
    "x-amzn-requestid",
    "x-goog-request-id",
    "mistral-correlation-id",
)


@dataclass(frozen=True, slots=True)
class Service:
    """The service that a request goes to, for errors: they contain its `name`, never its `secret`.

    `format` describes the expected response.
    """

    name: str
    model: str = ""
    secret: str | None = field(default=None, repr=False)
    format: str = "a stream of events"
    origin: str = ""
    """The service in `added_fields.name_origin`; empty: no added fields are sent back."""

    def __post_init__(self) -> None:
        if self.secret:
            REDACTOR.add_key(self.secret)

    def format_error(self, hint: str) -> NetworkError:
        """Return the error for a response of an unexpected format; it is not retryable."""
        error = NetworkError(
            f"{self.name} API error: The answer is not {self.format}.",
            kind=f"{self.name}Error",
            hint=f"Is the base URL right? {hint}",
        )
        error.retryable = False
        return error

    def body_error(self, body: bytes) -> CopilotError:
        """Return the error in a response, or in a part of it, else that it is malformed."""
        sent = f"It sent {body[:100].decode(errors='replace')!r}."
        nothing = "It answered with something else."
        return find_body_error(self, body) or self.format_error(sent if body else nothing)

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
    value = decode_body(body)
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
        retry_after=parse_retry_after(headers) or find_retry_delay(value, reason),
        codes=read_codes(value),
    )


def find_delay(status: int, body: bytes) -> float | None:
    """Return after how many seconds a request is repeated, by its error response.

    It is 0 if the body names no time, and None if the class of the error is not repeated, or only
    once, as after an `InvalidAnswer`.
    """
    value, reason = decode_body(body), read_error_message(body)
    found, _ = classify(status, read_codes(value), reason)
    if not found.is_retried or found.error is InvalidAnswer:
        return None
    return find_retry_delay(value, reason) or 0.0


def find_body_error(service: Service, body: bytes) -> CopilotError | None:
    """Return the error in JSON, in a page or in a text; `None` if it is none that is known."""
    if (value := decode_body(body)) is not None:
        error = find_error(value)
    elif body.lstrip()[:1] in (b"{", b"["):  # JSON that is cut off
        error = None
    else:
        reason = read_error_message(body)
        status = find_status(reason)
        error = None if status is None else {"message": reason, "code": status}
    return None if error is None else read_stream_error(service, error)


def read_stream_error(service: Service, error: Any) -> CopilotError:
    """Return the error for what `find_error` found in a response with a status of success."""
    reason = shorten(read_sentence(error)) or "The answer broke off with an error."
    retry_after = find_retry_delay(error, reason)
    return build_error(service, reason, None, codes=read_codes(error), retry_after=retry_after)


def build_error(
    service: Service,
    reason: str,
    status: int | None,
    *,
    hint: str = "",
    request_id: str | None = None,
    retry_after: float | None = None,
    codes: Sequence[Any] = (),
) -> CopilotError:
    """Return the error of the class in `ERROR_CLASSES`.

    `status` is None for an error without a status; `codes` are the provider's error codes. The
    model and the request id are in the hint, for the log.
    """
    found, status = classify(status, codes, reason)
    name, model = service.name, service.model
    if status == 404 and model and "model" not in reason.lower():
        reason = f"{reason} (Model: {model!r}.)"
    message = f"{name} API error: {reason}"
    model_hint = f"Model: {model!r}." if model else ""
    id_hint = f"Request id: {request_id}." if request_id else ""
    hint = " ".join(filter(None, [hint, model_hint, id_hint]))
    kind = KINDS.get(status, "InternalServerError" if status >= 500 else "APIError")
    if found.name == "context length":
        of_model = repr(model) if model else "the model"
        message = f"The conversation is too long for {of_model}. {message}"
    elif found.name == "content filter":
        hint = f"{hint} {message}".lstrip()
        message = f"The content filter of {name} refused the question. Please put it differently."
    elif found.error is ToolsRefused:
        message = (
            f"{message.rstrip('.')}. This model takes no tools: name another 'model', or offer it "
            "none (the tools of the page, 'actions', 'mcp', 'shared_state')."
        )
    if found.error is RateLimited:
        if retry_after is not None and retry_after >= 1 and find_retry_delay(None, reason) is None:
            message = f"{message.rstrip('.')}. Please try again in {ceil(retry_after)} seconds."
        error = RateLimited(message, retry_after=retry_after, hint=hint or None, kind=kind)
    elif found.error in (LimitExceeded, Refused, InvalidAnswer):
        error = found.error(message, hint=hint or None, kind=kind)
    else:
        error = found.error(message, status_code=status, hint=hint or None, kind=kind)
        error.severity = "critical"
    error.retryable = found.is_retried
    return error


def find_request_id(headers: Mapping[str, str]) -> str | None:
    """Return the request id, which the provider's support asks for, or `None`."""
    return next((headers[name] for name in _REQUEST_IDS if headers.get(name)), None)


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
        if isinstance(error, RateLimited | InvalidAnswer):
            return
        if isinstance(error, NetworkError | AuthenticationFailed | PaymentRequired):
            self._failures += 1
            self._failed_at = self._clock()
