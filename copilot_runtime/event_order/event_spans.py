"""Spans derived from the events of a run: remote tool calls, steps and sub-agents.

Agents in other processes and tool calls in the browser are visible only through events. The spans
have the arrival times of the events, and `copilot.span.source` is `events`.
"""

from collections.abc import Callable, Collection

from copilot_runtime.api.events import (
    ActionExecutionEnd,
    ActionExecutionResult,
    ActionExecutionStart,
    Event,
    Interrupt,
    StepFinished,
    StepStarted,
    Subagent,
)
from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.genai import start_agent_span, start_tool_span
from copilot_runtime.telemetry.span import Span
from copilot_runtime.telemetry.telemetry import ToolCalls

TRACED_EVENTS = frozenset(
    {
        ActionExecutionStart,
        ActionExecutionEnd,
        ActionExecutionResult,
        StepStarted,
        StepFinished,
        Subagent,
        Interrupt,
    }
)
"""The event types that `EventSpans.feed` handles. No chunk is among them."""

_SOURCE = {semconv.SPAN_SOURCE: "events"}


class EventSpans:
    """Starts and ends spans by the events of one run.

    `find_parent` returns the span of the current agent. Calls of the actions `server` are traced
    where they run; those of `browser` without a result end with the run and are marked as waiting.
    Any other call is an agent's own tool, and gets a span if `has_agent` returns True: an agent
    answers whose tools are not traced. `is_traced` returns True if the agent makes the spans of its
    sub-agents. `calls` lists the calls that a framework in this process traces, which get no second
    span, and receives the waiting calls of the `thread`.
    """

    def __init__(
        self,
        find_parent: Callable[[], Span],
        *,
        server: Collection[str],
        browser: Collection[str],
        has_agent: Callable[[], bool],
        is_traced: Callable[[], bool] = lambda: False,
        thread: str = "",
        calls: ToolCalls | None = None,
    ) -> None:
        self._thread = thread
        self._calls = calls
        self._find_parent = find_parent
        self._server = server
        self._browser = browser
        self._has_agent = has_agent
        self._is_traced = is_traced
        self._names: dict[str, str] = {}
        """Names of the calls without a result."""
        self._open: dict[tuple[str, str], Span] = {}
        """Open spans by kind and id."""

    def feed(self, event: Event) -> None:
        """Update the spans with an event of `TRACED_EVENTS`."""
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
            case Subagent(status="started") if self._is_traced():
                pass  # the agent makes the spans of its sub-agents itself
            case Subagent(subagent_id=id, status="started"):
                span = start_agent_span(self._find_parent(), event.name or id)
                self._begin("subagent", id, span)
            case Subagent(subagent_id=id, status="failed", message=message):
                if (span := self._open.get(("subagent", id))) is not None:
                    span.fail(semconv.ERROR_TYPE_OTHER, message or "")
                self._end("subagent", id)
            case Subagent(subagent_id=id):
                self._end("subagent", id)
            case Interrupt(call_id=id):
                asks = {} if id is None else {semconv.TOOL_CALL_ID: id}
                self._find_parent().add_event(semconv.EVENT_INTERRUPT, asks)
            case _:
                pass

    def close(self) -> None:
        """End the open spans, the innermost first, at the end of the run."""
        for (kind, id), span in reversed([*self._open.items()]):
            if span.attributes.get(semconv.TOOL_LOCATION) == "browser":
                span.set_attributes({semconv.TOOL_WAITING: True})
                if self._calls is not None:
                    self._calls.add_waiting(self._thread, id, span.context)
            self._end(kind, id)

    def _start_call(self, id: str, name: str) -> None:
        if name in self._server:
            return
        if name in self._browser:
            location = "browser"
        elif self._has_agent():
            location = "agent"
        else:
            return
        span = start_tool_span(self._find_parent(), name, call_id=id, location=location)
        self._begin("call", id, span)

    def _start_step(self, name: str) -> None:
        operation = semconv.AGENT_STEP
        names = {semconv.OPERATION_NAME: operation, semconv.STEP_NAME: name}
        span = self._find_parent().start_child(f"{operation} {name}", attributes=names)
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
