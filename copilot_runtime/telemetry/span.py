"""One span: what was done, under what, from when to when, and how it ended."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from time import time_ns
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from copilot_runtime.base.errors import CopilotError
from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.context import SpanContext, new_span_id, new_trace_id
from copilot_runtime.telemetry.exceptions import name_class, read_message

if TYPE_CHECKING:
    from copilot_runtime.telemetry.telemetry import Telemetry

Kind = Literal["internal", "server", "client", "producer", "consumer"]
Status = Literal["unset", "ok", "error"]

Attributes = Mapping[str, Any]
"""Values are texts, numbers, booleans, and lists and mappings of such; None is left out."""


class SpanEvent(NamedTuple):
    """Something that happened within a span. `time` is in nanoseconds since 1970."""

    name: str
    time: int
    attributes: dict[str, Any]


class SpanLink(NamedTuple):
    """Another span that has to do with this one, and is not its parent."""

    context: SpanContext
    attributes: dict[str, Any]


class Span:
    """A span, open until `end`. Times are in nanoseconds since 1970.

    `attributes` may leave this machine. `content` is what people and models wrote: it is kept and
    exported by rules of its own. Nothing here raises; what comes after the end is left out.
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
    """Whether anybody wants to know: attributes that are costly to find need not be, if not."""

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
            """Whether other processes are to export their part of the trace."""
        else:
            self.trace_id = trace_id or parent.trace_id
            self.parent_id = parent.span_id
            self.state = parent.state
            self.is_sampled = parent.is_sampled
        self.span_id = span_id or new_span_id()
        self.start_time = start_time or time_ns()
        self.end_time = 0
        """0 while the span is open."""
        self.attributes: dict[str, Any] = (
            {name: value for name, value in attributes.items() if value is not None}
            if attributes
            else {}
        )
        self.content: dict[str, Any] = {}
        self.events: list[SpanEvent] = []
        self.links: list[SpanLink] = []
        self.status: Status = "unset"
        self.message = ""
        """What went wrong, in words that may quote what people wrote: it is kept as content is."""
        self.scope = semconv.SCOPE
        self.resource: Mapping[str, Any] | None = None
        """The process that made the span, if it was another one; None for this server."""
        self.peer: Any = None
        """The span of OpenTelemetry's SDK that is exported for this one, if there is one."""
        self.peer_context: Any = None
        """The context of the SDK for what is done under this span."""
        self.telemetry = telemetry

    @property
    def context(self) -> SpanContext:
        """The ids, as another process gets them."""
        return SpanContext(self.trace_id, self.span_id, self.is_sampled, self.state)

    @property
    def is_ended(self) -> bool:
        """Whether `end` was called."""
        return self.end_time != 0

    @property
    def operation(self) -> str:
        """The value of `gen_ai.operation.name`, or nothing."""
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
        """Begin a span under this one."""
        if self.telemetry is None:
            return NO_SPAN
        return self.telemetry.start_span(
            name, kind=kind, attributes=attributes, parent=self, start_time=start_time
        )

    def set_attributes(self, attributes: Attributes) -> None:
        """Add attributes; later values count. None is left out."""
        if not self.end_time:
            own = self.attributes
            for key, value in attributes.items():
                if value is not None:
                    own[key] = value

    def set_content(self, attributes: Attributes) -> None:
        """Add attributes with what people and models wrote, if that is kept. None is left out."""
        if not self.end_time and self.keeps_content:
            for key, value in attributes.items():
                if value is not None:
                    self.content[key] = value

    @property
    def keeps_content(self) -> bool:
        """Whether content is of any use: it need not be gathered if not."""
        return self.telemetry is not None and self.telemetry.keeps_content

    def add_event(self, name: str, attributes: Attributes | None = None) -> None:
        """Note something that happened now."""
        if not self.end_time:
            self.events.append(SpanEvent(name, time_ns(), dict(attributes or {})))

    def add_link(self, context: SpanContext, attributes: Attributes | None = None) -> None:
        """Note another span that has to do with this one."""
        if not self.end_time:
            self.links.append(SpanLink(context, dict(attributes or {})))

    def fail(self, error: BaseException | str, message: str = "") -> None:
        """Mark the span as failed. `error` is an exception, or a word for `error.type`.

        What it says is content; its class, or the word, is kept in any case.
        """
        if self.end_time:
            return
        self.status = "error"
        if isinstance(error, BaseException):
            self.attributes[semconv.ERROR_TYPE] = name_error(error)
            if self.keeps_content:
                self.message = message or read_message(error)
            if self.telemetry is not None:
                self.telemetry.log_exception(self, error)
        else:
            self.attributes[semconv.ERROR_TYPE] = error or semconv.ERROR_TYPE_OTHER
            if self.keeps_content:
                self.message = message

    def discard(self) -> None:
        """End the span and keep it nowhere: somebody else has noted the same."""
        if not self.end_time:
            self.end_time = max(time_ns(), self.start_time)
            if self.telemetry is not None:
                self.telemetry.discard_span(self)

    def end(self, end_time: int | None = None) -> None:
        """End the span and hand it on to be kept; the second time, nothing happens."""
        if not self.end_time:
            self.end_time = max(end_time or time_ns(), self.start_time)
            if self.telemetry is not None:
                self.telemetry.finish_span(self)


class NoSpan(Span):
    """Stands where there is no span, so that nobody has to look. It takes everything, and no note.

    Its context belongs to no trace: it must not be sent to anybody.
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
    """Return the span under which the running code works: `NO_SPAN` outside of a run."""
    return _current.get()


def set_current_span(span: Span) -> None:
    """Let all that the current task does from now on, and the tasks it starts, work under a span.

    For a task or a context of its own. Elsewhere, `work_under` ends with its block.
    """
    _current.set(span)
    if span.telemetry is not None:
        span.telemetry.enter(span)


@contextmanager
def work_under(span: Span) -> Generator[Span]:
    """Let what the block does work under a span.

    Never around a `yield` of an async generator: its caller would work under the span as well.
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
    """Let what the block does work under a span, which ends with it; what it raises fails it.

    Never around a `yield` of an async generator.
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
    """Return the value of `error.type`: a word of ours, or the class of another exception."""
    if isinstance(error, CopilotError):
        return error.error_type or error.code
    return name_class(error)
