"""Derive spans from a run's events: remote tool calls, steps, sub-agents; and warn of unused A2UI.

Agents in other processes and tool calls in the browser are visible only through events. The spans
have the arrival times of the events, and `copilot.span.source` is `events`.
"""

import logging
from collections.abc import Collection, Iterator
from typing import Self

from copilot_runtime.api.events import (
    ActionExecutionEnd,
    ActionExecutionResult,
    ActionExecutionStart,
    Activity,
    Custom,
    Event,
    Interrupt,
    StepFinished,
    StepStarted,
    Subagent,
    is_question,
)
from copilot_runtime.api.messages import ResultMessage
from copilot_runtime.api.run_input import CURRENT_RUN, RunInput
from copilot_runtime.base.jsonvalue import parse_text
from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.genai import note_interrupt, start_agent_span, start_tool_span
from copilot_runtime.telemetry.span import Span
from copilot_runtime.telemetry.telemetry import ToolCalls

logger = logging.getLogger(__name__)

_CALLS = frozenset({ActionExecutionStart, ActionExecutionEnd, ActionExecutionResult})
_TRACED = _CALLS | {StepStarted, StepFinished, Subagent, Interrupt}
_QUESTIONS = frozenset({Interrupt, Custom})
_A2UI = frozenset({ActionExecutionResult, Activity})
_WATCHED = _TRACED | _QUESTIONS | _A2UI
"""The event types that are traced or watched. No chunk is among them."""

_OPERATIONS, _SURFACE = "a2ui_operations", "a2ui-surface"
_SOURCE = {semconv.SPAN_SOURCE: "events"}


class EventTracer:
    """A context for the duration of a run, which is fed the events of the types `watched`.

    For the many runs without an event to trace, no objects are created.
    """

    __slots__ = ("_run", "_spans", "_surfaces", "watched")

    def __init__(self, run: RunInput) -> None:
        self._run = run
        self._spans: _EventSpans | None = None
        self._surfaces: _Surfaces | None = None
        self.watched: Collection[type[Event]] = _WATCHED if run.span.is_recording else _A2UI

    def __enter__(self) -> Self:
        if (calls := _find_calls(self._run)) is not None and calls.has_waiting:
            calls.link_results(self._run.span, self._run.thread_id, _find_results(self._run))
        return self

    def __exit__(self, *_: object) -> None:
        if self._spans is not None:
            self._spans.close()
        if self._surfaces is not None:
            self._surfaces.close()

    def feed(self, event: Event) -> None:
        """Process an event of one of the types `watched`."""
        if type(event) in _QUESTIONS and is_question(event):
            note_interrupt(self._run.span)
        if type(event) in _TRACED and self._run.span.is_recording:
            if self._spans is None:
                self._spans = _EventSpans(self._run)
            self._spans.feed(event)
        if type(event) in _A2UI:
            if self._surfaces is None:
                self._surfaces = _Surfaces(self._run)
            self._surfaces.feed(event)


class _EventSpans:
    """Starts and ends spans by the events of one run.

    Calls of the server's actions are traced where they run; those of the browser without a result
    end with the run and are marked as waiting. Any other call is an agent's own tool, and gets a
    span if an agent answers whose tools are not traced. A call that a framework in this process
    traces gets no second span.
    """

    def __init__(self, run: RunInput) -> None:
        self._run = run
        self._server = {action.name for action in run.actions if not action.in_browser}
        self._browser = {action.name for action in run.actions if action.in_browser}
        self._calls = _find_calls(run)
        self._names: dict[str, str] = {}
        """Names of the calls without a result."""
        self._open: dict[tuple[str, str], Span] = {}
        """Open spans by kind and id."""

    def feed(self, event: Event) -> None:
        """Update the spans with an event."""
        match event:
            case ActionExecutionStart(call_id=id, name=name):
                self._names[id] = name
            case ActionExecutionEnd(call_id=id) if id in self._names:
                self._start_call(id, self._names[id])
            case ActionExecutionResult(call_id=id, result=result):
                self._names.pop(id, None)
                if (span := self._open.get(("call", id))) is not None:
                    span.set_content({semconv.TOOL_CALL_RESULT: result})
                self._end("call", id)
            case StepStarted(name=name):
                self._start_step(name)
            case StepFinished(name=name):
                self._end("step", name)
            case Subagent(status="started") if _traces_tools():
                pass  # the agent makes the spans of its sub-agents itself
            case Subagent(subagent_id=id, status="started"):
                span = start_agent_span(_find_span(self._run), event.name or id)
                self._begin("subagent", id, span)
            case Subagent(subagent_id=id, status="failed", message=message):
                if (span := self._open.get(("subagent", id))) is not None:
                    span.fail(semconv.ERROR_TYPE_OTHER, message or "")
                self._end("subagent", id)
            case Subagent(subagent_id=id):
                self._end("subagent", id)
            case Interrupt(call_id=id):
                asks = {} if id is None else {semconv.TOOL_CALL_ID: id}
                _find_span(self._run).add_event(semconv.EVENT_INTERRUPT, asks)
            case _:
                pass

    def close(self) -> None:
        """End the open spans, the innermost first, at the end of the run."""
        for (kind, id), span in reversed([*self._open.items()]):
            if span.attributes.get(semconv.TOOL_LOCATION) == "browser":
                span.set_attributes({semconv.TOOL_WAITING: True})
                if self._calls is not None:
                    self._calls.add_waiting(self._run.thread_id, id, span.context)
            self._end(kind, id)

    def _start_call(self, id: str, name: str) -> None:
        if name in self._server:
            return
        if name in self._browser:
            location = "browser"
        elif self._run.agent is not None and not _traces_tools():
            location = "agent"
        else:
            return
        span = start_tool_span(_find_span(self._run), name, call_id=id, location=location)
        self._begin("call", id, span)

    def _start_step(self, name: str) -> None:
        operation = semconv.AGENT_STEP
        names = {semconv.OPERATION_NAME: operation, semconv.STEP_NAME: name}
        span = _find_span(self._run).start_child(f"{operation} {name}", attributes=names)
        self._begin("step", name, span)

    def _begin(self, kind: str, id: str, span: Span) -> None:
        span.set_attributes(_SOURCE)
        self._end(kind, id)
        self._open[kind, id] = span

    def _end(self, kind: str, id: str) -> None:
        if (span := self._open.pop((kind, id), None)) is not None:
            if kind == "call" and self._calls and self._calls.is_foreign(span.trace_id, id):
                span.discard()
            span.end()


def _find_span(run: RunInput) -> Span:
    """Return the span of the acting agent, which may be one that took over the run."""
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


class _Surfaces:
    """Logs a warning at the end of a run if results with A2UI operations led to no surface.

    An agent may render its surfaces itself.
    """

    def __init__(self, run: RunInput) -> None:
        self._run = run
        self._names: dict[str, None] = {}
        """Names of the actions with such results."""
        self._types: set[str] = set()
        """Types of the activities."""

    def feed(self, event: Event) -> None:
        """Process a result or an activity."""
        if isinstance(event, Activity):
            self._types.add(event.activity_type)
        elif isinstance(event, ActionExecutionResult) and _has_operations(event.result):
            self._names[event.name] = None

    def close(self) -> None:
        """Log the warning."""
        if self._names and _SURFACE not in self._types:
            logger.warning(
                "Run %s: the page does not draw the result of %s: it has operations of A2UI, which "
                "is not on for this agent. CopilotRuntime(a2ui=True) switches it on.",
                self._run.run_id,
                ", ".join(map(repr, self._names)),
            )


def _has_operations(result: str) -> bool:
    """Return whether a result is an object with operations, also as JSON in a text of JSON."""
    if _OPERATIONS not in result:
        return False
    value = parse_text(parse_text(result))
    operations = value.get(_OPERATIONS) if isinstance(value, dict) else None
    return isinstance(operations, list) and bool(operations)
