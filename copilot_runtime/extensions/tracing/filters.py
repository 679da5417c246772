"""Parsers of trace filters from text: threads, agents, times such as `1h`."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from time import time_ns

from copilot_runtime.base.errors import Misuse
from copilot_runtime.extensions.tracing.store.traces import RATINGS, TraceFilter

_AGO = re.compile(r"(\d{1,6})([smhdw])", re.ASCII)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_TEXTS = ("trace_id", "resource_id", "thread_id", "run_id", "agent", "user", "text")
_LONGEST = 1_000

NAMES = (*_TEXTS, "rating", "since", "until", "has_error", "min_duration")
"""The parameter names of a filter: the fields of `TraceFilter`."""


def parse_filter(values: Mapping[str, str]) -> TraceFilter:
    """Parse a filter from texts by parameter name. Raises `Misuse` for an invalid value."""
    texts = {name: values.get(name, "") for name in _TEXTS}
    for name, text in texts.items():
        if len(text) > _LONGEST:
            raise Misuse(f"{name} has {len(text)} characters; {_LONGEST} are allowed.")
    return TraceFilter(
        **texts,
        since=parse_time(values.get("since", ""), "since"),
        until=parse_time(values.get("until", ""), "until"),
        rating=_parse_rating(values.get("rating", "")),
        has_error=_parse_flag(values.get("has_error", "")),
        min_duration=parse_seconds(values.get("min_duration", ""), "min_duration"),
    )


def parse_time(text: str, name: str, now: int | None = None) -> int:
    """Parse a time to nanoseconds since 1970; 0 for an empty text. Raises `Misuse`.

    The text is an age such as `90s`, `15m`, `2h`, `7d` or `1w`, an ISO 8601 date or time (UTC
    unless it has an offset), or a number of seconds since 1970.
    """
    text = text.strip()
    if not text:
        return 0
    if found := _AGO.fullmatch(text):
        ago = int(found[1]) * _SECONDS[found[2]] * 10**9
        return max(1, (time_ns() if now is None else now) - ago)
    if text.isdecimal() and text.isascii() and len(text) in range(9, 20):
        return int(text) * 10**9 if len(text) < 13 else int(text)
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return max(1, int(moment.timestamp() * 1_000_000) * 1_000)
    except (ValueError, OverflowError):
        raise Misuse(
            f"{name} is {text[:40]!r}; it is a time ago, such as 15m, 2h or 7d, or a time such as "
            "2026-01-31T12:00:00Z."
        ) from None


def parse_seconds(text: str, name: str) -> float:
    """Parse seconds with an optional suffix `s` or `ms`; 0 for an empty text. Raises `Misuse`."""
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)\s*(ms|s)?", text.strip(), re.ASCII)
    if not text.strip():
        return 0.0
    if found is None:
        raise Misuse(f"{name} is {text[:40]!r}; it is a number of seconds, such as 2.5 or 800ms.")
    return float(found[1]) / (1000 if found[2] == "ms" else 1)


def _parse_rating(text: str) -> str:
    rating = text.strip().lower()
    if rating and rating not in RATINGS:
        raise Misuse(f"rating is {text[:40]!r}; it is up or down.")
    return rating


def _parse_flag(text: str) -> bool | None:
    match text.strip().lower():
        case "":
            return None
        case "true" | "1" | "yes":
            return True
        case "false" | "0" | "no":
            return False
        case _:
            raise Misuse(f"has_error is {text[:40]!r}; it is true or false.")
