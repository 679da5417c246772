"""Traces what the events of a run tell, beside those who watch them for other reasons."""

from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager

from copilot_runtime.event_order.a2ui import A2UI_EVENTS
from copilot_runtime.events import Event
from copilot_runtime.interfaces import CURRENT_RUN, RunInput
from copilot_runtime.telemetry.event_spans import TRACED_EVENTS, EventSpans
from copilot_runtime.telemetry.span import Span

Watch = Callable[[Event], None]


@contextmanager
def trace_events(run: RunInput, watch: Watch) -> Generator[tuple[Watch, Collection[type[Event]]]]:
    """Yield a function that takes events for `watch` as well, and the types of those it wants.

    Where nobody takes note of the run, that is `watch` itself.
    """
    if not run.span.is_recording:
        yield watch, A2UI_EVENTS
        return
    spans = EventSpans(
        lambda: _find_span(run),
        server={action.name for action in run.actions if not action.in_browser},
        browser={action.name for action in run.actions if action.in_browser},
        has_agent=run.agent is not None,
    )

    def feed(event: Event) -> None:
        if type(event) in TRACED_EVENTS:
            spans.feed(event)
        if type(event) in A2UI_EVENTS:
            watch(event)

    try:
        yield feed, A2UI_EVENTS | TRACED_EVENTS
    finally:
        spans.close()


def _find_span(run: RunInput) -> Span:
    """Return the span of the agent that acts: of the one that took over, if one did."""
    slot = CURRENT_RUN.get(None)
    return slot.run.span if slot is not None and slot.run is not None else run.span
