"""Decide whether to repeat a request, and how long to wait before."""

import random
from collections.abc import Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from math import isfinite
from time import time

RETRYABLE_STATUSES = frozenset({408, 409, 429, 499})
"""Statuses that may be different next time, besides everything from 500 on."""


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
