"""Errors of upstream services, the validation of their URLs, and retries.

Messages are shown to end users, so they contain no internal address; hints are for the log and
name the remedy.
"""

import random
import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from math import isfinite
from time import time
from typing import Literal, assert_never
from urllib.parse import SplitResult, urlsplit

from copilot_runtime.base.errors import ConfigurationFailed, NetworkError, RunStalled
from copilot_runtime.config.checks import mask_credentials

Failure = Literal["connect timeout", "timeout", "dns", "tls", "refused", "unreachable", "closed"]
"""Why a request got no response."""


class InvalidAddress(ValueError):
    """An address that nothing can be sent to."""


class ConnectionFailed(OSError):
    """A request got no response; the cause is the error of the socket or of the client."""

    def __init__(self, failure: Failure, error: BaseException) -> None:
        super().__init__(str(error))
        self.failure: Failure = failure


def find_failure(error: BaseException) -> Failure:
    """Return the kind of a connection failure, from an error or its chain of causes."""
    causes: list[BaseException] = [error]
    for cause in causes:
        match cause:
            case socket.gaierror():
                return "dns"
            case ssl.SSLError():
                return "tls"
            case ConnectionRefusedError():
                return "refused"
            case BaseExceptionGroup():
                causes += cause.exceptions
            case _:
                pass
        causes += [one for one in (cause.__cause__, cause.__context__) if one and one not in causes]
    return "unreachable"


def parse_url(url: str, what: str, hint: str, *, has_authorization: bool = False) -> SplitResult:
    """Parse the URL of `what`. Raises `ConfigurationFailed` if it is invalid.

    With `has_authorization`, requests have an `Authorization` header: the URL must then contain
    no user and password, which would set the same header.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigurationFailed(
            f"The {what} {mask_credentials(url)!r} is not an address.", hint=hint
        )
    if has_authorization and (parts.username or parts.password):
        raise ConfigurationFailed(
            f"The {what} has a user or a password in it, but requests have a key already.",
            hint=f"Leave out what stands before the @. {hint}",
        )
    return parts


def get_origin(url: str) -> str:
    """Return the scheme, the host and the port of an address, without a password."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


@dataclass(frozen=True, slots=True)
class UpstreamErrors:
    """The errors of the service `name`. Kinds are those of the official clients of providers."""

    name: str
    connect_timeout: float
    idle_timeout: float

    def build_connection_error(self, error: Exception, url: str, failure: Failure) -> NetworkError:
        """Return the error for a request without a response; only its hint names the address."""
        origin, cause = get_origin(url), str(error).rstrip(".")
        match failure:
            case "timeout":
                return self.build_timeout()
            case "connect timeout":
                return NetworkError(
                    f"{self.name} API error: Connection timed out.",
                    status_code=504,
                    kind="APIConnectionTimeoutError",
                    hint=f"{origin} took longer than {self.connect_timeout:g} s to accept a "
                    "connection. Check the base URL, the firewall and the proxy settings.",
                )
            case "dns":
                reason = "Its host name was not found."
                hint = f"No address is known for {origin}. Check the base URL and the DNS."
            case "tls":
                reason = "No secure connection could be made."
                hint = (
                    f"TLS with {origin} failed: {error}. Check the certificate and the date, and "
                    "that https is right; SSL_CERT_FILE names a file with further authorities."
                )
            case "refused":
                reason = "The connection was refused."
                hint = f"Nothing listens at {origin}. Check the base URL and that the server runs."
            case "unreachable":
                reason = "It could not be reached."
                hint = f"Connecting to {origin} failed: {cause}."
            case "closed":
                reason = "The server hung up without an answer."
                hint = f"{origin} closed the connection: {cause}."
            case _:
                assert_never(failure)
        return NetworkError(
            f"{self.name} API error: Connection error. {reason}",
            kind="APIConnectionError",
            hint=hint,
        )

    def build_timeout(self, times: int = 1) -> RunStalled:
        """Return the error for an idle timeout, or for so many without an event."""
        return RunStalled(
            f"{self.name} API error: No answer for {times * self.idle_timeout:g} seconds.",
            kind="APIConnectionTimeoutError",
            hint="The upstream went silent. Raise idle_timeout if the model may think that long.",
        )

    def build_premature_close(self, hint: str) -> NetworkError:
        """Return the error for a response that was cut off."""
        return NetworkError(
            f"{self.name} API error: Premature close", kind=f"{self.name}Error", hint=hint
        )


RETRYABLE_STATUSES = frozenset({408, 409, 429, 499})
"""Retryable statuses, besides everything from 500 on."""


MAX_WAIT = 30.0
"""The longest time that the retries of a request wait in all, in seconds."""


def is_retryable(status: int, headers: Mapping[str, str]) -> bool:
    """Return whether the same request may succeed later."""
    if status < 400:
        return False
    header = headers.get("x-should-retry")
    if header in ("true", "false"):
        return header == "true"
    return status in RETRYABLE_STATUSES or status >= 500


def backoff(attempt: int) -> float:
    """Return a pause that doubles with each attempt, a little different each time."""
    longest = min(0.5 * 2**attempt, 8.0)
    return longest * random.uniform(0.75, 1.0)  # noqa: S311 - spreads retries, guards nothing


def parse_retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds to wait that the response names, or None."""
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    seconds = _number(value)
    if seconds is None and value:
        with suppress(ValueError, TypeError, OverflowError):
            seconds = parsedate_to_datetime(value).timestamp() - time()
    return None if seconds is None else max(seconds, 0.0)


def _number(text: str | None) -> float | None:
    try:
        number = float(text) if text else -1.0
    except ValueError:
        return None
    return number if isfinite(number) and number >= 0 else None
