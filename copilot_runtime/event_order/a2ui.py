"""Warn about A2UI operations in tool results that are not rendered, because A2UI is disabled."""

import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager

from copilot_runtime.api.events import ActionExecutionResult, Activity, Event
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.jsonvalue import parse_text

logger = logging.getLogger(__name__)

A2UI_EVENTS = frozenset({ActionExecutionResult, Activity})
"""The event types that `watch_a2ui` needs."""

_OPERATIONS, _SURFACE = "a2ui_operations", "a2ui-surface"


@contextmanager
def watch_a2ui(run: RunInput) -> Generator[Callable[[Event], None]]:
    """Log a warning at the end of a run if results with operations of A2UI led to no surface.

    Yields the function that takes the events. An agent may draw its surfaces itself.
    """
    names: dict[str, None] = {}
    surfaces: set[str] = set()

    def feed(event: Event) -> None:
        if isinstance(event, Activity):
            surfaces.add(event.activity_type)
        elif isinstance(event, ActionExecutionResult) and _has_operations(event.result):
            names[event.name] = None

    try:
        yield feed
    finally:
        if names and _SURFACE not in surfaces:
            logger.warning(
                "Run %s: the page does not draw the result of %s: it has operations of A2UI, which "
                "is not on for this agent. CopilotRuntime(a2ui=True) switches it on.",
                run.run_id,
                ", ".join(map(repr, names)),
            )


def _has_operations(result: str) -> bool:
    """Return whether a result is an object with operations, also as JSON in a text of JSON."""
    if _OPERATIONS not in result:
        return False
    value = parse_text(parse_text(result))
    operations = value.get(_OPERATIONS) if isinstance(value, dict) else None
    return isinstance(operations, list) and bool(operations)
