"""Traces what the events of a run tell, beside those who watch them for other reasons."""

from collections.abc import Callable, Collection, Iterator
from typing import Self

from copilot_runtime.api.current_run import CURRENT_RUN
from copilot_runtime.api.events import Custom, Event, Interrupt, is_question
from copilot_runtime.api.messages import ResultMessage
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.event_order.a2ui import A2UI_EVENTS
from copilot_runtime.event_order.event_spans import TRACED_EVENTS, EventSpans
from copilot_runtime.telemetry.genai import note_interrupt
from copilot_runtime.telemetry.span import Span
from copilot_runtime.telemetry.telemetry import ToolCalls

Watch = Callable[[Event], None]

_QUESTIONS = frozenset({Interrupt, Custom})
_WATCHED = A2UI_EVENTS | TRACED_EVENTS | _QUESTIONS


class EventTracer:
    """Takes events of the types `watched` for `watch` as well. A context, which ends with the run.

    Most runs have no event to trace, and nothing is made for them.
    """

    __slots__ = ("_run", "_spans", "_watch", "watched")

    def __init__(self, run: RunInput, watch: Watch) -> None:
        self._run = run
        self._watch = watch
        self._spans: EventSpans | None = None
        self.watched: Collection[type[Event]] = _WATCHED if run.span.is_recording else A2UI_EVENTS

    def __enter__(self) -> Self:
        if (calls := _find_calls(self._run)) is not None and calls.has_waiting:
            calls.link_results(self._run.span, self._run.thread_id, _find_results(self._run))
        return self

    def __exit__(self, *_: object) -> None:
        if self._spans is not None:
            self._spans.close()

    def feed(self, event: Event) -> None:
        """Take an event of one of the types `watched`."""
        if type(event) in _QUESTIONS and is_question(event):
            note_interrupt(self._run.span)
        if type(event) in TRACED_EVENTS and self._run.span.is_recording:
            if self._spans is None:
                self._spans = _make_spans(self._run)
            self._spans.feed(event)
        if type(event) in A2UI_EVENTS:
            self._watch(event)


def _make_spans(run: RunInput) -> EventSpans:
    return EventSpans(
        lambda: _find_span(run),
        server={action.name for action in run.actions if not action.in_browser},
        browser={action.name for action in run.actions if action.in_browser},
        has_agent=lambda: run.agent is not None and not _traces_tools(),
        is_traced=_traces_tools,
        thread=run.thread_id,
        calls=_find_calls(run),
    )


def _find_span(run: RunInput) -> Span:
    """Return the span of the agent that acts: of the one that took over, if one did."""
    slot = CURRENT_RUN.get(None)
    return slot.run.span if slot is not None and slot.run is not None else run.span


def _find_calls(run: RunInput) -> ToolCalls | None:
    telemetry = run.span.telemetry
    return telemetry.tool_calls if telemetry is not None else None


def _find_results(run: RunInput) -> Iterator[str]:
    """Yield the ids of the calls whose results are the last messages of a request."""
    for message in reversed(run.messages):
        if not isinstance(message, ResultMessage):
            break
        yield message.call_id


def _traces_tools() -> bool:
    slot = CURRENT_RUN.get(None)
    return slot is not None and slot.traces_tools
