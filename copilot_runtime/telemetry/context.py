"""Span contexts: identifiers of a span, and their encoding as W3C Trace Context headers."""

import re
from random import getrandbits
from typing import NamedTuple

_TRACEPARENT = re.compile(
    r"(?P<version>[0-9a-f]{2})-(?P<trace>[0-9a-f]{32})-(?P<span>[0-9a-f]{16})-(?P<flags>[0-9a-f]{2})"
    r"(?P<more>-.*)?"
)
_MOST_STATE = 512
_SAMPLED = 1


class SpanContext(NamedTuple):
    """The identifiers of a span, as processes exchange them (W3C Trace Context).

    `trace_id` has 32 and `span_id` 16 hexadecimal digits, in lower case, not all zero.
    """

    trace_id: str
    span_id: str
    is_sampled: bool = True
    state: str = ""
    """The value of the header `tracestate`, which is forwarded unchanged."""

    @property
    def traceparent(self) -> str:
        """The value of the header `traceparent`."""
        return f"00-{self.trace_id}-{self.span_id}-{'01' if self.is_sampled else '00'}"


def parse_traceparent(text: str, state: str = "") -> SpanContext | None:
    """Return the context in the headers `traceparent` and `tracestate`, or None if invalid.

    W3C Trace Context requires that an invalid header is ignored: the caller starts a new trace.
    """
    found = _TRACEPARENT.fullmatch(text.strip())
    if found is None or found["version"] == "ff" or (found["version"] == "00" and found["more"]):
        return None
    if not found["trace"].strip("0") or not found["span"].strip("0"):
        return None
    state = state.strip()
    if len(state) > _MOST_STATE or not (state.isascii() and state.isprintable()):
        state = ""  # it would go into headers and variables of other processes
    is_sampled = bool(int(found["flags"], 16) & _SAMPLED)
    return SpanContext(found["trace"], found["span"], is_sampled, state)


def new_trace_id() -> str:
    """Return 32 random hexadecimal digits."""
    return f"{getrandbits(128) or 1:032x}"


def new_span_id() -> str:
    """Return 16 random hexadecimal digits."""
    return f"{getrandbits(64) or 1:016x}"
