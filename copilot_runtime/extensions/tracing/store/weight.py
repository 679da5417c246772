"""About how much memory a span takes, so that what is held back has a limit."""

from collections.abc import Mapping
from sys import getsizeof
from typing import Any

from copilot_runtime.telemetry.span import Span

_SCALARS = frozenset({str, int, float, bool, bytes, type(None)})
_OF_A_CONTAINER = 64
_MOST_STEPS = 100_000
"""Most values that are looked at: a list may hold itself."""


def weigh_span(span: Span) -> int:
    """Return about how many bytes the values of a span take."""
    size = getsizeof(span.name) + len(span.message) + _weigh(span.attributes)
    if span.content:
        size += _weigh(span.content)
    if span.resource:
        size += _weigh(span.resource)
    for event in span.events:
        size += _weigh(event.attributes)
    for link in span.links:
        size += _weigh(link.attributes)
    return size


def _weigh(values: Mapping[str, Any]) -> int:
    if _SCALARS.issuperset(map(type, values.values())):  # most are, and are weighed at once
        return sum(map(getsizeof, values.values()))
    size, waiting = 0, list[Any](values.values())
    for _ in range(_MOST_STEPS):
        if not waiting:
            break
        match waiting.pop():
            case dict() as entries:
                size += _OF_A_CONTAINER
                waiting += entries
                waiting += entries.values()
            case list() | tuple() | set() | frozenset() as items:
                size += _OF_A_CONTAINER
                waiting += items
            case value:
                size += getsizeof(value)
    return size
