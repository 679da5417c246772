"""Spans: an operation with its parent, start, end, attributes and status."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from time import time_ns
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from copilot_runtime.base.errors import CopilotError
from copilot_runtime.base.secrets import REDACTOR
from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.context import SpanContext, new_span_id, new_trace_id

if TYPE_CHECKING:
    from copilot_runtime.telemetry.telemetry import Telemetry


from copilot_runtime.telemetry.context import parse_traceparent

Kind = Literal["internal", "server", "client", "producer", "consumer"]
Status = Literal["unset", "ok", "error"]

Attributes = Mapping[str, Any]
"""Values are strings, numbers, booleans, and lists and mappings of these; None is skipped."""


class SpanEvent(NamedTuple):
    """A timestamped event of a span. `time` is in nanoseconds since 1970."""

    name: str
    time: int
    attributes: dict[str, Any]


class SpanLink(NamedTuple):
    """A reference to a related span that is not the parent."""

    context: SpanContext
    attributes: dict[str, Any]


class Span:
    """A span, open until `end`. Times are in nanoseconds since 1970.

    `attributes` may be exported. `content` holds text of users and models, which has storage and
    export rules of its own. No method raises; calls after the end have no effect.
    """

    __slots__ = (
        "attributes",
        "content",
        "end_time",
        "events",
        "is_sampled",
        "kind",
        "links",
        "message",
        "name",
        "parent_id",
        "peer",
        "peer_context",
        "resource",
        "scope",
        "span_id",
        "start_time",
        "state",
        "status",
        "telemetry",
        "trace_id",
    )

    is_recording = True
    """False for a no-op span: callers skip attributes that are expensive to compute."""

    def __init__(
        self,
        name: str,
        *,
        telemetry: "Telemetry | None" = None,
        parent: "Span | SpanContext | None" = None,
        kind: Kind = "internal",
        attributes: Attributes | None = None,
        start_time: int | None = None,
        trace_id: str = "",
        span_id: str = "",
    ) -> None:
        self.name = name
        self.kind: Kind = kind
        if parent is None:
            self.trace_id = trace_id or new_trace_id()
            self.parent_id = self.state = ""
            self.is_sampled = True
            """The sampling flag for other processes: True if they export their part."""
        else:
            self.trace_id = trace_id or parent.trace_id
            self.parent_id = parent.span_id
            self.state = parent.state
            self.is_sampled = parent.is_sampled
        self.span_id = span_id or new_span_id()
        self.start_time = start_time or time_ns()
        self.end_time = 0
        """0 while the span is open."""
        self.attributes: dict[str, Any] = dict(attributes) if attributes else {}
        if NoneType in map(type, self.attributes.values()):
            self.attributes = {k: v for k, v in self.attributes.items() if v is not None}
        self.content: dict[str, Any] = {}
        self.events: list[SpanEvent] = []
        self.links: list[SpanLink] = []
        self.status: Status = "unset"
        self.message = ""
        """The error message. It may quote user input, so the rules for content apply."""
        self.scope = semconv.SCOPE
        self.resource: Mapping[str, Any] | None = None
        """Resource attributes of the process that made the span, such as `service.name`; set for
        imported spans, and when a span of this server is stored."""
        self.peer: Any = None
        """The OpenTelemetry SDK span that is exported for this one, or None."""
        self.peer_context: Any = None
        """The OpenTelemetry SDK context for child spans."""
        self.telemetry = telemetry

    @property
    def context(self) -> SpanContext:
        """The span context that is propagated to other processes."""
        return SpanContext(self.trace_id, self.span_id, self.is_sampled, self.state)

    @property
    def is_ended(self) -> bool:
        """True after `end` was called."""
        return self.end_time != 0

    @property
    def operation(self) -> str:
        """The value of `gen_ai.operation.name`; empty if it is not set."""
        value = self.attributes.get(semconv.OPERATION_NAME)
        return value if isinstance(value, str) else ""

    @property
    def duration(self) -> float:
        """Seconds from start to end; 0 while the span is open."""
        return (self.end_time - self.start_time) / 1e9 if self.end_time else 0.0

    def start_child(
        self,
        name: str,
        *,
        kind: Kind = "internal",
        attributes: Attributes | None = None,
        start_time: int | None = None,
    ) -> "Span":
        """Start a child span."""
        if self.telemetry is None:
            return NO_SPAN
        return self.telemetry.start_span(
            name, kind=kind, attributes=attributes, parent=self, start_time=start_time
        )

    def set_attributes(self, attributes: Attributes) -> None:
        """Add attributes, replacing earlier values. None is skipped."""
        if not self.end_time:
            own = self.attributes
            for key, value in attributes.items():
                if value is not None:
                    own[key] = value

    def set_content(self, attributes: Attributes) -> None:
        """Add content attributes, if content is captured. None is skipped."""
        if not self.end_time and self.keeps_content:
            for key, value in attributes.items():
                if value is not None:
                    self.content[key] = value

    @property
    def keeps_content(self) -> bool:
        """True if content is captured: otherwise callers need not render it."""
        return self.telemetry is not None and self.telemetry.keeps_content

    def add_event(self, name: str, attributes: Attributes | None = None) -> None:
        """Add an event with the current time."""
        if not self.end_time:
            self.events.append(SpanEvent(name, time_ns(), dict(attributes or {})))

    def add_link(self, context: SpanContext, attributes: Attributes | None = None) -> None:
        """Add a link to a related span."""
        if not self.end_time:
            self.links.append(SpanLink(context, dict(attributes or {})))

    def fail(self, error: BaseException | str, message: str = "") -> None:
        """Mark the span as failed. `error` is an exception, or a value for `error.type`.

        The message is content; the error type is recorded in any case.
        """
        if self.end_time:
            return
        self.status = "error"
        if isinstance(error, BaseException):
            self.attributes[semconv.ERROR_TYPE] = name_error(error)
            if self.keeps_content:
                self.message = REDACTOR.redact(message or read_message(error))
            if self.telemetry is not None:
                self.telemetry.log_exception(self, error)
        else:
            self.attributes[semconv.ERROR_TYPE] = error or semconv.ERROR_TYPE_OTHER
            if self.keeps_content:
                self.message = REDACTOR.redact(message)

    def discard(self) -> None:
        """End the span without storing it: a framework has recorded the same operation."""
        if not self.end_time:
            self.end_time = max(time_ns(), self.start_time)
            if self.telemetry is not None:
                self.telemetry.discard_span(self)

    def end(self, end_time: int | None = None) -> None:
        """End the span and pass it to its telemetry. Further calls have no effect."""
        if not self.end_time:
            self.end_time = max(end_time or time_ns(), self.start_time)
            if self.telemetry is not None:
                self.telemetry.finish_span(self)


class NoSpan(Span):
    """A no-op span (null object): it accepts all calls and records nothing.

    Its context belongs to no trace and must not be propagated.
    """

    __slots__ = ()

    is_recording = False

    def __init__(self) -> None:
        super().__init__("", trace_id="0" * 32, span_id="0" * 16, start_time=1)
        self.end_time = 1

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> str:
        return "NO_SPAN"


NO_SPAN = NoSpan()

_current: ContextVar[Span] = ContextVar("copilot_runtime.span", default=NO_SPAN)


def find_current_span() -> Span:
    """Return the current span of this context: `NO_SPAN` outside of a run."""
    return _current.get()


def set_current_span(span: Span) -> None:
    """Make a span the current one for the rest of this context and the tasks started in it.

    Use it in a task or context of its own; elsewhere use the context manager `work_under`.
    """
    _current.set(span)
    if span.telemetry is not None:
        span.telemetry.enter(span)


@contextmanager
def work_under(span: Span) -> Generator[Span]:
    """Make a span the current one within the block.

    Do not use it around a `yield` of an async generator: its consumer would run in the span, too.
    """
    telemetry, token = span.telemetry, _current.set(span)
    inner = telemetry.enter(span) if telemetry is not None else None
    try:
        yield span
    finally:
        if telemetry is not None:
            telemetry.leave(inner)
        _current.reset(token)


@contextmanager
def trace_block(span: Span) -> Generator[Span]:
    """Make a span the current one within the block, and end it after; an exception fails it.

    Do not use it around a `yield` of an async generator.
    """
    if not span.is_recording:
        yield span
        return
    try:
        with work_under(span):
            yield span
    except Exception as error:
        span.fail(error)
        raise
    finally:
        span.end()


def name_error(error: BaseException) -> str:
    """Return the value of `error.type`: our error code, or the class of another exception."""
    if isinstance(error, CopilotError):
        return error.error_type or error.code
    return name_class(error)


TRACEPARENT = "traceparent"
TRACESTATE = "tracestate"


def extract_context(carrier: Mapping[str, Any]) -> SpanContext | None:
    """Return the caller's span context from headers in lower case or from `_meta` of MCP.

    Return None if it is missing or not valid W3C Trace Context: the request is served anyway.
    """
    header = carrier.get(TRACEPARENT)
    if not isinstance(header, str):
        return None
    state = carrier.get(TRACESTATE)
    return parse_traceparent(header, state if isinstance(state, str) else "")


def inject_context(span: Span) -> dict[str, str]:
    """Return the trace headers for an outgoing request; empty if the span is not recording."""
    if not span.is_recording:
        return {}
    context = span.context
    headers = {TRACEPARENT: context.traceparent}
    return {**headers, TRACESTATE: context.state} if context.state else headers


def build_environment(span: Span) -> dict[str, str]:
    """Return the environment variables for a child process, such as `TRACEPARENT`.

    If this server receives spans, they include its OTLP endpoint: `Telemetry.child_environment`.
    """
    if not span.is_recording or span.telemetry is None:
        return {}
    context = {name.upper(): value for name, value in inject_context(span).items()}
    return {**span.telemetry.child_environment, **context}


def name_class(error: BaseException) -> str:
    """Return an exception's qualified class name; built-in classes have no module."""
    kind = type(error)
    name = kind.__qualname__
    return name if kind.__module__ == "builtins" else f"{kind.__module__}.{name}"


def read_message(error: BaseException) -> str:
    """Return the message of an exception, or its class name if `__str__` raises."""
    try:
        return str(error)
    except Exception:  # a third-party `__str__` may raise anything
        return type(error).__name__
