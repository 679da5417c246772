"""The facade: where spans, metrics and events go. Nothing else knows what becomes of them."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import time_ns
from typing import Any, Literal, Protocol

from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.context import SpanContext
from copilot_runtime.telemetry.exceptions import describe_exception, name_class
from copilot_runtime.telemetry.log_records import LogBuffer, LogRecord
from copilot_runtime.telemetry.measurement import CLIENT_OPERATIONS, measure_span
from copilot_runtime.telemetry.metrics import Measurement, Metrics
from copilot_runtime.telemetry.semconv import Dialect
from copilot_runtime.telemetry.span import NO_SPAN, Attributes, Kind, Span, SpanEvent
from copilot_runtime.telemetry.tool_calls import ToolCalls

logger = logging.getLogger(__name__)

Phase = Literal["start", "end"]

SpanListener = Callable[[Span, Phase], None]
"""Called on the event loop or in a thread when a span begins and when it ends. It must not block,
and what it raises is logged."""


class SpanStore(Protocol):
    """Keeps spans that have ended. `add` never blocks and never raises."""

    dropped: int
    """How many spans were left out."""
    is_failing: bool
    """Whether spans cannot be written at the moment."""

    def add(self, span: Span) -> None: ...

    async def flush(self) -> None: ...

    async def aclose(self) -> None: ...


class Telemetry:
    """Takes note of nothing. `LocalTelemetry` keeps what happened, and others export it, too.

    None of its methods raises or waits: what cannot be noted is left out.
    """

    is_recording = False
    """Whether spans are of any use: nothing need be gathered for them if not."""
    keeps_content = False
    """Whether what people and models wrote is kept or exported."""
    emits_details = False
    """Whether every request to a model is also an event, which is opt-in."""
    child_environment: Mapping[str, str] = {}
    """Variables for processes that this one starts: where they send their spans."""

    @property
    def metrics(self) -> Metrics | None:
        """The instruments that `record` and `observe` fill, if there are any."""

    @property
    def tool_calls(self) -> ToolCalls | None:
        """The calls of tools that others trace, or end, if such are remembered."""

    def start_span(
        self,
        name: str,
        *,
        kind: Kind = "internal",
        attributes: Attributes | None = None,
        parent: Span | SpanContext | None = None,
        start_time: int | None = None,
    ) -> Span:
        """Begin a span; without a `parent`, a trace begins with it."""
        del name, kind, attributes, parent, start_time
        return NO_SPAN

    def finish_span(self, span: Span) -> None:
        """Take a span that has ended: called by `Span.end`."""

    def discard_span(self, span: Span) -> None:
        """Take a span that is not kept after all: called by `Span.discard`."""

    def import_span(self, span: Span) -> None:
        """Keep a span that another program made and ended. It is exported to nobody."""

    def import_logs(self, records: Iterable[LogRecord]) -> None:
        """Keep what another process logged until its spans come, as events of those."""

    def enter(self, span: Span) -> Any:
        """Let other tracers of this task work under a span; return what `leave` takes."""
        del span

    def leave(self, token: Any) -> None:
        """End what `enter` began."""

    def record(self, metric: str, value: float, attributes: Attributes | None = None) -> None:
        """Add a value to a histogram, or to a counter of `semconv.METRICS`."""

    def observe(self, metric: str, read: Callable[[], float]) -> None:
        """Let a gauge be read by a function, whenever somebody asks for it."""

    def find_problems(self) -> Sequence[str]:
        """Return what does not work at the moment: `traces` for the store, `exporter`."""
        return ()

    def log_event(
        self,
        name: str,
        attributes: Attributes | None = None,
        *,
        span: Span = NO_SPAN,
        content: Attributes | None = None,
    ) -> None:
        """Note an event of `semconv`, under a span if there is one."""

    def log_exception(self, span: Span, error: BaseException) -> None:
        """Note the exception by which a span has failed: called by `Span.fail`."""

    def listen(self, listener: SpanListener) -> Callable[[], None]:
        """Call a function for every span that begins or ends; return what ends that."""
        del listener
        return lambda: None

    def describe(self) -> Mapping[str, Any]:
        """Return what is on, and what enabled it, for an operator to read."""
        return {"enabled": False}

    async def open(self) -> None:
        """Begin, when the server starts."""

    async def flush(self) -> None:
        """Write and send what is held back."""

    async def aclose(self) -> None:
        """Write and send what is held back, and end."""


NO_TELEMETRY = Telemetry()


class LocalTelemetry(Telemetry):
    """Keeps spans in a store of this process, and counts. Needs no package of OpenTelemetry."""

    is_recording = True

    def __init__(
        self,
        store: SpanStore | None = None,
        *,
        keeps_content: bool = False,
        dialect: Dialect = "released",
    ) -> None:
        self.store = store
        self.keeps_content = keeps_content
        self.dialect: Dialect = dialect
        self._metrics = Metrics()
        self._record_all: Callable[[Sequence[Measurement]], None] = self._metrics.record_all
        """What takes values: an exporter may want them as well."""
        self._listeners: tuple[SpanListener, ...] = ()
        self._tool_calls = ToolCalls()
        self.logs = LogBuffer()
        """What other processes logged under spans that have not come yet."""
        if store is not None:
            self._metrics.observe(
                semconv.TELEMETRY_DROPPED, lambda: store.dropped + self.logs.dropped
            )

    @property
    def metrics(self) -> Metrics:
        """The instruments that `record` and `observe` fill."""
        return self._metrics

    @property
    def tool_calls(self) -> ToolCalls:
        """The calls of tools that others trace, or end."""
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
        """Begin a span; without a `parent`, a trace begins with it."""
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
        """Measure a span that has ended, and hand it to the store and the listeners."""
        self._record_all(measure_span(span, self.dialect))
        if not self.keeps_content:
            _drop_content(span)
        if self.logs.count:
            self.logs.attach(span)
        if self.store is not None:
            self.store.add(span)
        if self._listeners:
            self._notify(span, "end")

    def discard_span(self, span: Span) -> None:
        """Tell the listeners that a span has ended which is not kept."""
        if self._listeners:
            self._notify(span, "end")

    def record(self, metric: str, value: float, attributes: Attributes | None = None) -> None:
        """Add a value to a histogram, or to a counter of `semconv.METRICS`."""
        self._record_all([(metric, value, attributes or {})])

    def observe(self, metric: str, read: Callable[[], float]) -> None:
        """Let a gauge be read by a function, whenever somebody asks for it."""
        self._metrics.observe(metric, read)

    def import_span(self, span: Span) -> None:
        """Keep a span that another program made and ended. It is exported to nobody."""
        if self.logs.count:
            self.logs.attach(span)
        if self.store is not None:
            self.store.add(span)
        if self._listeners:
            self._notify(span, "end")

    def import_logs(self, records: Iterable[LogRecord]) -> None:
        """Keep what another process logged until its spans come, as events of those."""
        self.logs.add(records)

    def log_event(
        self,
        name: str,
        attributes: Attributes | None = None,
        *,
        span: Span = NO_SPAN,
        content: Attributes | None = None,
    ) -> None:
        """Note an event at its span, also one that has ended and is stored after this."""
        if span.is_recording:
            values = {**(attributes or {}), **((content or {}) if self.keeps_content else {})}
            span.events.append(SpanEvent(name, time_ns(), values))

    def log_exception(self, span: Span, error: BaseException) -> None:
        """Note the exception by which a span has failed, with its trace where content is kept."""
        attributes = {semconv.EXCEPTION_TYPE: name_class(error)}
        content = describe_exception(error) if self.keeps_content else {}
        if span.operation in semconv.INFERENCES or span.operation in CLIENT_OPERATIONS:
            self.log_event(semconv.EVENT_EXCEPTION, attributes, span=span, content=content)
        else:
            span.add_event(semconv.EVENT_SPAN_EXCEPTION, {**attributes, **content})

    def listen(self, listener: SpanListener) -> Callable[[], None]:
        """Call a function for every span that begins or ends; return what ends that."""
        self._listeners = (*self._listeners, listener)

        def end() -> None:
            self._listeners = tuple(one for one in self._listeners if one is not listener)

        return end

    def find_problems(self) -> Sequence[str]:
        """Return what does not work at the moment: `traces` for the store."""
        return ("traces",) if self.store is not None and self.store.is_failing else ()

    def describe(self) -> Mapping[str, Any]:
        """Return what is on, and what enabled it, for an operator to read."""
        return {"enabled": True, "content": self.keeps_content}

    async def flush(self) -> None:
        """Write what is held back."""
        if self.store is not None:
            await self.store.flush()

    async def aclose(self) -> None:
        """Write what is held back, and end."""
        if self.store is not None:
            await self.store.aclose()

    def _prepare(self, span: Span, parent: Span | SpanContext | None) -> None:
        """Make a span ready before anybody sees it. For those who export."""

    def _notify(self, span: Span, phase: Phase) -> None:
        for listener in self._listeners:
            try:
                listener(span, phase)
            except Exception:  # telemetry breaks nothing
                logger.exception("A listener of spans failed")


def _drop_content(span: Span) -> None:
    """Take out what an application has set as attributes, in the words that mean content."""
    if not semconv.FACTS.issuperset(span.attributes):
        span.attributes = _list_facts(span.attributes)
    for number, event in enumerate(span.events):
        if not semconv.FACTS.issuperset(event.attributes):
            span.events[number] = event._replace(attributes=_list_facts(event.attributes))


def _list_facts(attributes: Attributes) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if not semconv.is_content(name)}
