"""The telemetry interface: receives spans, metrics and events, and hides store and exporters."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Lock
from time import time_ns
from typing import Any, Literal, Protocol

from copilot_runtime.base.secrets import REDACTOR
from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.content import describe_exception
from copilot_runtime.telemetry.context import SpanContext
from copilot_runtime.telemetry.log_records import LogBuffer, LogRecord
from copilot_runtime.telemetry.measurements import CLIENT_OPERATIONS
from copilot_runtime.telemetry.metrics import Metrics
from copilot_runtime.telemetry.semconv import Dialect
from copilot_runtime.telemetry.span import NO_SPAN, Attributes, Kind, Span, SpanEvent, name_class

_MOST = 1024
"""Maximum number of calls of each kind; the oldest are evicted."""


class ToolCalls:
    """Tool calls that a framework traces itself, and calls that wait for the browser's result.

    A result that arrives at another process, or after a restart, is not linked.
    """

    def __init__(self) -> None:
        self._foreign: dict[tuple[str, str], None] = {}
        self._waiting: dict[tuple[str, str], SpanContext] = {}
        self._lock = Lock()  # frameworks begin spans in threads

    def add_foreign(self, trace_id: str, call_id: str) -> None:
        """Register a call for which a framework in this process makes the span."""
        with self._lock:
            self._foreign[trace_id, call_id] = None
            if len(self._foreign) > _MOST:
                del self._foreign[next(iter(self._foreign))]

    def is_foreign(self, trace_id: str, call_id: str) -> bool:
        """Return True if a framework makes the span of this call."""
        return (trace_id, call_id) in self._foreign

    def add_waiting(self, thread: str, call_id: str, context: SpanContext) -> None:
        """Register the span of a call in a thread that ended without a result."""
        with self._lock:
            self._waiting[thread, call_id] = context
            if len(self._waiting) > _MOST:
                del self._waiting[next(iter(self._waiting))]

    @property
    def has_waiting(self) -> bool:
        """True if any call waits for a result."""
        return bool(self._waiting)

    def link_results(self, span: Span, thread: str, call_ids: Iterable[str]) -> None:
        """Link a run's span to the waiting calls of its thread whose results it received."""
        for call_id in call_ids:
            with self._lock:
                context = self._waiting.pop((thread, call_id), None)
            if context is not None:
                span.add_link(context, {semconv.TOOL_CALL_ID: call_id})


logger = logging.getLogger(__name__)

Phase = Literal["start", "end"]

SpanListener = Callable[[Span, Phase], None]
"""A callback on span start and end, from the event loop or any thread. It must not block; its
exceptions are logged."""


class SpanStore(Protocol):
    """A store of ended spans. `add` never blocks and never raises."""

    dropped: int
    """Number of dropped spans."""
    is_failing: bool
    """True while writes fail."""

    def add(self, span: Span) -> None: ...

    async def flush(self) -> None: ...

    async def aclose(self) -> None: ...


class Telemetry:
    """The interface and no-op implementation (null object) of telemetry.

    `LocalTelemetry` stores spans and aggregates metrics. Recording methods neither raise nor block.
    """

    is_recording = False
    """False for the no-op telemetry: callers need not compute attributes."""
    keeps_content = False
    """True if content (text of users and models) is stored or exported."""
    emits_details = False
    """True if each model request is also emitted as an event (opt-in)."""
    child_environment: Mapping[str, str] = {}
    """OTLP exporter variables for child processes, so that they send their spans here."""

    @property
    def metrics(self) -> Metrics | None:
        """The metrics registry behind `record` and `observe`, or None."""

    @property
    def tool_calls(self) -> ToolCalls | None:
        """The registry of tool calls that are traced or finished elsewhere, or None."""

    def start_span(
        self,
        name: str,
        *,
        kind: Kind = "internal",
        attributes: Attributes | None = None,
        parent: Span | SpanContext | None = None,
        start_time: int | None = None,
    ) -> Span:
        """Start a span; without a `parent`, it is the root of a new trace."""
        del name, kind, attributes, parent, start_time
        return NO_SPAN

    def finish_span(self, span: Span) -> None:
        """Handle an ended span. Called by `Span.end`."""

    def discard_span(self, span: Span) -> None:
        """Handle a discarded span. Called by `Span.discard`."""

    def import_span(self, span: Span) -> None:
        """Store an ended span of another process. It is not exported."""

    def import_logs(self, records: Iterable[LogRecord]) -> None:
        """Buffer log records of another process, and attach them to their spans as events."""

    def enter(self, span: Span) -> Any:
        """Make a span the parent of other tracers' spans; return the token for `leave`."""
        del span

    def leave(self, token: Any) -> None:
        """Restore the state before `enter`."""

    def record(self, metric: str, value: float, attributes: Attributes | None = None) -> None:
        """Add a value to a histogram, or to a counter of `semconv.METRICS`."""

    def observe(self, metric: str, read: Callable[[], float]) -> None:
        """Register a callback that returns the current value of a gauge."""

    def find_failing_checks(self) -> Sequence[str]:
        """Return the names of failing parts: `traces` for the store, `exporter`."""
        return ()

    def log_event(
        self,
        name: str,
        attributes: Attributes | None = None,
        *,
        span: Span = NO_SPAN,
        content: Attributes | None = None,
    ) -> None:
        """Record an event of `semconv`, on its span if there is one."""

    def log_exception(self, span: Span, error: BaseException) -> None:
        """Record the exception that failed a span. Called by `Span.fail`."""

    def listen(self, listener: SpanListener) -> Callable[[], None]:
        """Register a listener for span starts and ends; return the function that removes it."""
        del listener
        return lambda: None

    def describe(self) -> Mapping[str, Any]:
        """Return the telemetry status for operators: what is enabled, and by which setting."""
        return {"enabled": False}

    async def open(self) -> None:
        """Start the telemetry, when the server starts."""

    async def flush(self) -> None:
        """Write pending spans and send pending exports."""

    async def aclose(self) -> None:
        """Write pending spans, send pending exports, and close."""


NO_TELEMETRY = Telemetry()


class LocalTelemetry(Telemetry):
    """Telemetry that stores spans and aggregates metrics, without OpenTelemetry's packages.

    `resource` has the attributes of this process for stored spans, such as `service.name`.
    """

    is_recording = True

    def __init__(
        self,
        store: SpanStore | None = None,
        *,
        keeps_content: bool = False,
        dialect: Dialect = "released",
        resource: Attributes | None = None,
    ) -> None:
        self.store = store
        self._resource = resource
        self.keeps_content = keeps_content
        self._metrics = Metrics(dialect)
        self._listeners: tuple[SpanListener, ...] = ()
        self._tool_calls = ToolCalls()
        self.logs = LogBuffer()
        """Log records of other processes whose spans have not arrived yet."""
        if store is not None:
            self._metrics.observe(
                semconv.TELEMETRY_DROPPED, lambda: store.dropped + self.logs.dropped
            )

    @property
    def metrics(self) -> Metrics:
        """The metrics registry behind `record` and `observe`."""
        return self._metrics

    @property
    def tool_calls(self) -> ToolCalls:
        """The registry of tool calls that are traced or finished elsewhere."""
        return self._tool_calls

    def start_span(
        self,
        name: str,
        *,
        kind: Kind = "internal",
        attributes: Attributes | None = None,
        parent: Span | SpanContext | None = None,
        start_time: int | None = None,
    ) -> Span:
        """Start a span; without a `parent`, it is the root of a new trace."""
        above = None if parent is NO_SPAN else parent
        span = Span(
            name,
            telemetry=self,
            parent=above,
            kind=kind,
            attributes=attributes,
            start_time=start_time,
        )
        self._prepare(span, above)
        if self._listeners:
            self._notify(span, "start")
        return span

    def finish_span(self, span: Span) -> None:
        """Derive metrics from an ended span, and pass it to the store and the listeners."""
        self._metrics.record_span(span)
        if self.keeps_content:
            span.content = REDACTOR.redact_all(span.content)  # results of tools may repeat a key
        else:
            _drop_content(span)
        if self.logs.count:
            self.logs.attach(span)
        if self.store is not None:
            span.resource = self._resource
            self.store.add(span)
        if self._listeners:
            self._notify(span, "end")

    def discard_span(self, span: Span) -> None:
        """Notify the listeners of the end of a discarded span."""
        if self._listeners:
            self._notify(span, "end")

    def record(self, metric: str, value: float, attributes: Attributes | None = None) -> None:
        """Add a value to a histogram, or to a counter of `semconv.METRICS`."""
        self._metrics.record(metric, value, attributes)

    def observe(self, metric: str, read: Callable[[], float]) -> None:
        """Register a callback that returns the current value of a gauge."""
        self._metrics.observe(metric, read)

    def import_span(self, span: Span) -> None:
        """Store an ended span of another process. It is not exported."""
        if self.logs.count:
            self.logs.attach(span)
        if self.store is not None:
            self.store.add(span)
        if self._listeners:
            self._notify(span, "end")

    def import_logs(self, records: Iterable[LogRecord]) -> None:
        """Buffer log records of another process, and attach them to their spans as events."""
        self.logs.add(records)

    def log_event(
        self,
        name: str,
        attributes: Attributes | None = None,
        *,
        span: Span = NO_SPAN,
        content: Attributes | None = None,
    ) -> None:
        """Append an event to its span, even if the span has ended but is not stored yet."""
        if span.is_recording:
            values = {**(attributes or {}), **((content or {}) if self.keeps_content else {})}
            span.events.append(SpanEvent(name, time_ns(), values))

    def log_exception(self, span: Span, error: BaseException) -> None:
        """Record the exception that failed a span, with its traceback if content is captured."""
        attributes = {semconv.EXCEPTION_TYPE: name_class(error)}
        content = describe_exception(error) if self.keeps_content else {}
        if span.operation in semconv.INFERENCES or span.operation in CLIENT_OPERATIONS:
            self.log_event(semconv.EVENT_EXCEPTION, attributes, span=span, content=content)
        else:
            span.add_event(semconv.EVENT_SPAN_EXCEPTION, {**attributes, **content})

    def listen(self, listener: SpanListener) -> Callable[[], None]:
        """Register a listener for span starts and ends; return the function that removes it."""
        self._listeners = (*self._listeners, listener)

        def end() -> None:
            self._listeners = tuple(one for one in self._listeners if one is not listener)

        return end

    def find_failing_checks(self) -> Sequence[str]:
        """Return the names of failing parts: `traces` for the store."""
        return ("traces",) if self.store is not None and self.store.is_failing else ()

    def describe(self) -> Mapping[str, Any]:
        """Return the telemetry status for operators: what is enabled, and by which setting."""
        return {"enabled": True, "content": self.keeps_content}

    async def flush(self) -> None:
        """Write pending spans."""
        if self.store is not None:
            await self.store.flush()

    async def aclose(self) -> None:
        """Write pending spans, and close the store."""
        if self.store is not None:
            await self.store.aclose()

    def _prepare(self, span: Span, parent: Span | SpanContext | None) -> None:
        """Prepare a new span before listeners see it. A hook for exporting subclasses."""

    def _notify(self, span: Span, phase: Phase) -> None:
        for listener in self._listeners:
            try:
                listener(span, phase)
            except Exception:  # telemetry breaks nothing
                logger.exception("A listener of spans failed")


def _drop_content(span: Span) -> None:
    """Remove content that the application set as plain attributes."""
    if not semconv.FACTS.issuperset(span.attributes):
        span.attributes = _list_facts(span.attributes)
    for number, event in enumerate(span.events):
        if not semconv.FACTS.issuperset(event.attributes):
            span.events[number] = event._replace(attributes=_list_facts(event.attributes))


def _list_facts(attributes: Attributes) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if not semconv.is_content(name)}
