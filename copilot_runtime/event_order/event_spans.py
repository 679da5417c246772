"""Spans of what only the events of a run tell: calls of tools elsewhere, steps, and subagents.

An agent in another process shows its work in events, and so does a call that the browser executes.
Their times are those at which the events came: `copilot.span.source` is `events`.
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
from copilot_runtime.telemetry.tool_calls import ToolCalls

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
"""What `EventSpans` wants to see. No chunk is among them."""

_SOURCE = {semconv.SPAN_SOURCE: "events"}


class EventSpans:
    """Begins and ends spans by the events of one run.

    `find_parent` returns the span of the agent that acts now. Calls of the actions `server` have
    spans of their own; those of `browser` end with the run and say that they wait, if no result
    came before. What is in neither is a tool of an agent, if `has_agent` returns that one answers
    whose tools have no spans; `is_traced` returns whether the agent makes the spans of those whom
    it asks itself. A call that a framework of this process has traced after all has no second
    span: `calls` knows those, and gets the calls of the `thread` that wait.
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
        """The open spans by kind and id."""

    def feed(self, event: Event) -> None:
        """Take one of `TRACED_EVENTS`."""
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
                pass  # the agent makes spans of those whom it asks itself
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
        """End what is open, the innermost first: the run is over."""
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
