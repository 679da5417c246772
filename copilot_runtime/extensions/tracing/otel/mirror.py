"""The OpenTelemetry bridge: mirrors our spans, metrics and events into its SDK, by the same ids."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import Token
from dataclasses import dataclass
from threading import Thread
from time import monotonic, time_ns
from typing import Any, Literal

from opentelemetry import context as sdk_context
from opentelemetry import trace
from opentelemetry._logs import LoggerProvider, SeverityNumber
from opentelemetry.context import Context
from opentelemetry.metrics import (
    CallbackOptions,
    Counter,
    Histogram,
    Meter,
    MeterProvider,
    Observation,
)
from opentelemetry.trace import NonRecordingSpan, SpanKind, TracerProvider, set_span_in_context

from copilot_runtime.extensions.tracing.otel.border import ExportRules
from copilot_runtime.extensions.tracing.otel.convert import (
    to_json,
    to_sdk_attributes,
    to_sdk_context,
    to_sdk_status,
)
from copilot_runtime.extensions.tracing.otel.delivery import PATIENCE
from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.context import SpanContext
from copilot_runtime.telemetry.metrics import is_measure
from copilot_runtime.telemetry.span import Attributes, Span

_SEVERITIES = {
    semconv.EVENT_INFERENCE_DETAILS: SeverityNumber.DEBUG,
    semconv.EVENT_EXCEPTION: SeverityNumber.WARN,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Providers:
    """The SDK's providers: the host program's or our own; None for a disabled signal."""

    tracers: TracerProvider | None = None
    meters: MeterProvider | None = None
    loggers: LoggerProvider | None = None
    owner: Literal["host", "own"] = "own"
    """The owner of the tracer provider."""
    flush: Sequence[Callable[[], Any]] = ()
    """Functions that send queued data."""
    close: Sequence[Callable[[], Any]] = ()
    """Functions that shut down our own providers."""
    is_failing: Callable[[], bool] = lambda: False
    """True while one of our receivers rejects or misses exports."""


class SdkMirror:
    """Starts and ends an SDK span for each of our spans that may be exported.

    Content reaches the SDK only if `rules` allow it, so that no exporter, not even one of the
    host, can send it otherwise. Spans of operations that are not exported have no SDK span; their
    children are attached to the nearest exported ancestor.
    """

    def __init__(self, providers: Providers, rules: ExportRules, version: str = "") -> None:
        self._providers = providers
        self._rules = rules
        tracers, meters, loggers = providers.tracers, providers.meters, providers.loggers
        self._tracer = tracers.get_tracer(semconv.SCOPE, version) if tracers else None
        self._meter = meters.get_meter(semconv.SCOPE, version) if meters else None
        self._logger = loggers.get_logger(semconv.SCOPE, version) if loggers else None
        self._instruments: dict[str, Histogram | Counter] = {}

    @property
    def is_failing(self) -> bool:
        """True while a receiver fails."""
        return self._providers.is_failing()

    def start_span(self, span: Span, parent: Span | SpanContext | None) -> None:
        """Start the SDK span for one of ours, which takes its ids.

        Without a `parent`, both are children of the SDK's current span, if there is one.
        """
        above = _context_of(parent)
        peer = self._start_peer(span, above)
        above_ids = trace.get_current_span(above).get_span_context()
        if above_ids.is_valid:
            span.trace_id, span.parent_id, span.is_sampled, span.state = _to_context(above_ids)
        if isinstance(parent, Span):
            span.parent_id = parent.span_id  # it may be one that is not exported
        if peer is None:
            span.peer_context = above if above_ids.is_valid else _set_ids(span.context, above)
            return
        ids = _to_context(peer.get_span_context())
        span.trace_id, span.span_id, span.is_sampled, span.state = ids
        span.peer = peer
        span.peer_context = set_span_in_context(peer, above)

    def finish_span(self, span: Span) -> None:
        """End the SDK span that mirrors ours."""
        peer: trace.Span | None = span.peer
        if peer is None or not peer.is_recording():
            return
        peer.update_name(span.name)
        peer.set_attributes(self._filter(span.attributes))
        if self._rules.spans_have_content:
            peer.set_attributes(self._render_content(span))
        for event in span.events:
            if self._logger is not None and event.name in semconv.LOGGED_EVENTS:
                continue  # already emitted as a log record
            # an event of a span with content may contain content as well
            peer.add_event(event.name, self._filter(event.attributes), event.time)
        for link in span.links:
            peer.add_link(to_sdk_context(link.context), self._filter(link.attributes))
        if (
            status := to_sdk_status(span, exports_content=self._rules.spans_have_content)
        ) is not None:
            peer.set_status(status)
        peer.end(span.end_time)

    def enter(self, span: Span) -> Token[Context] | None:
        """Make a span the parent of SDK spans that frameworks start in this context."""
        return sdk_context.attach(span.peer_context) if span.peer_context is not None else None

    def leave(self, token: Token[Context]) -> None:
        """Restore the context before `enter`."""
        sdk_context.detach(token)

    def record(self, metric: str, value: float, attributes: Attributes) -> None:
        """Record a value on the SDK's instrument of a metric."""
        definition = semconv.METRICS.get(metric)
        if self._meter is None or definition is None or not is_measure(value):
            return
        instrument = self._instruments.get(metric)
        if instrument is None:
            instrument = self._instruments[metric] = _build_instrument(self._meter, definition)
        bounded = {name: attributes[name] for name in definition.attributes if name in attributes}
        if isinstance(instrument, Histogram):
            instrument.record(value, bounded)
        else:
            instrument.add(value, bounded)

    def observe(self, metric: str, readers: Sequence[Callable[[], float]]) -> None:
        """Register callbacks whose sum is the value of a gauge or counter at each export."""
        if self._meter is None or (definition := semconv.METRICS.get(metric)) is None:
            return

        def observe(_: CallbackOptions) -> Iterable[Observation]:
            return (Observation(sum(read() for read in readers)),)

        meter = self._meter
        is_counter = definition.kind == "counter"
        create = meter.create_observable_counter if is_counter else meter.create_observable_gauge
        create(metric, [observe], definition.unit, definition.about)

    def log_event(self, name: str, attributes: Attributes, span: Span, content: Attributes) -> None:
        """Emit an event as a log record, with its content if the rules allow it."""
        if self._logger is None:
            return
        values = self._limit(attributes)
        if self._rules.events_have_content:
            values.update(self._limit(content))
        self._logger.emit(
            timestamp=time_ns(),
            context=_find_context(span),
            severity_number=_SEVERITIES.get(name, SeverityNumber.INFO),
            attributes=values,
            event_name=name,
        )

    def describe(self) -> Mapping[str, Any]:
        """Return the owner of the tracer provider, and whether content is exported."""
        return {"provider": self._providers.owner, "exports_content": self._rules.content}

    def flush(self) -> None:
        """Send queued data, for a few seconds at most."""
        run_together(self._providers.flush)

    def close(self) -> None:
        """Send queued data for a few seconds at most, and shut down our own providers."""
        run_together(self._providers.close)

    def _start_peer(self, span: Span, above: Context) -> trace.Span | None:
        """Start the SDK span, or return None if spans of this operation are not exported."""
        if self._tracer is None or not semconv.is_exported(span.attributes):
            return None
        peer = self._tracer.start_span(
            span.name,
            context=above,
            kind=SpanKind[span.kind.upper()],
            attributes=self._filter(span.attributes),
            start_time=span.start_time,
        )
        # a provider that is switched off hands out spans without ids
        is_own = peer.get_span_context() != trace.get_current_span(above).get_span_context()
        return peer if is_own and peer.get_span_context().is_valid else None

    def _filter(self, attributes: Attributes) -> dict[str, Any]:
        """Return the exportable attributes: an application may have set content as an attribute."""
        return self._limit(
            attributes
            if self._rules.spans_have_content
            else {k: v for k, v in attributes.items() if not semconv.is_content(k)}
        )

    def _render_content(self, span: Span) -> dict[str, Any]:
        if self._rules.content_form == "json":
            return self._limit({name: to_json(value) for name, value in span.content.items()})
        return self._limit(span.content)

    def _limit(self, attributes: Attributes) -> dict[str, Any]:
        present = {name: value for name, value in attributes.items() if value is not None}
        return to_sdk_attributes(self._rules.limit(present))


def run_together(works: Sequence[Callable[[], Any]]) -> None:
    """Call functions in parallel threads, and wait for them for a few seconds at most."""
    threads = [Thread(target=work, name="telemetry-end", daemon=True) for work in works]
    for thread in threads:
        thread.start()
    until = monotonic() + PATIENCE
    for thread in threads:
        thread.join(max(0.0, until - monotonic()))


def _build_instrument(meter: Meter, metric: semconv.Metric) -> Histogram | Counter:
    if metric.kind == "histogram":
        return meter.create_histogram(
            metric.name,
            metric.unit,
            metric.about,
            explicit_bucket_boundaries_advisory=metric.buckets,
        )
    return meter.create_counter(metric.name, metric.unit, metric.about)


def _context_of(parent: Span | SpanContext | None) -> Context:
    """Return the SDK context for children of `parent`.

    If the host program traces the same request, its span is between the client's span and ours.
    """
    current = sdk_context.get_current()
    if isinstance(parent, SpanContext):
        host = trace.get_current_span(current).get_span_context()
        if host.is_valid and f"{host.trace_id:032x}" == parent.trace_id:
            return current
        return _set_ids(parent, current)
    if parent is None or not parent.is_recording:
        return current
    if parent.peer_context is not None:
        return parent.peer_context
    return _set_ids(parent.context, current)


def _find_context(span: Span) -> Context:
    """Return the SDK context of an event: that of its span, even if the span has ended.

    Ids of other programs may be invalid for the SDK.
    """
    try:
        context = _context_of(span)
    except ValueError:
        return sdk_context.get_current()
    is_valid = trace.get_current_span(context).get_span_context().is_valid
    return context if is_valid else sdk_context.get_current()


def _set_ids(context: SpanContext, current: Context) -> Context:
    """Return an SDK context whose current span has the given ids."""
    return set_span_in_context(NonRecordingSpan(to_sdk_context(context)), current)


def _to_context(ids: trace.SpanContext) -> SpanContext:
    return SpanContext(
        f"{ids.trace_id:032x}",
        f"{ids.span_id:016x}",
        bool(ids.trace_flags.sampled),
        ids.trace_state.to_header(),
    )
