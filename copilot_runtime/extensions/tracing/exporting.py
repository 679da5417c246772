"""Telemetry that stores spans and also passes them to OpenTelemetry's SDK."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from copilot_runtime.base.concurrency import call
from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.context import SpanContext
from copilot_runtime.telemetry.metrics import Measurement
from copilot_runtime.telemetry.span import NO_SPAN, Attributes, Span
from copilot_runtime.telemetry.telemetry import LocalTelemetry, SpanStore, Telemetry

if TYPE_CHECKING:
    from copilot_runtime.extensions.tracing.otel.mirror import SdkMirror

logger = logging.getLogger(__name__)


class ExportingTelemetry(LocalTelemetry):
    """Stores spans as `LocalTelemetry` does, and mirrors spans, metrics and events into the SDK.

    `connect` returns the mirror, or None if nothing is exported. It is called once, at server
    start or at the first span: until then a host program may set its provider.
    """

    def __init__(
        self,
        connect: "Callable[[Telemetry], SdkMirror | None]",
        store: SpanStore | None = None,
        *,
        description: Mapping[str, Any] | None = None,
        emits_details: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(store, **options)
        self.emits_details = emits_details
        self._connect: Callable[[Telemetry], SdkMirror | None] | None = connect
        self._mirror: SdkMirror | None = None
        self._description = dict(description or {})
        self._gauges: dict[str, list[Callable[[], float]]] = {}
        if store is not None:
            self._gauges[semconv.TELEMETRY_DROPPED] = [lambda: store.dropped + self.logs.dropped]

    def finish_span(self, span: Span) -> None:
        """End the mirrored SDK span, and pass ours to the store and the listeners."""
        if self._mirror is not None:
            if self.emits_details and span.operation in semconv.INFERENCES:
                self._mirror.log_event(
                    semconv.EVENT_INFERENCE_DETAILS, span.attributes, span, span.content
                )
            self._mirror.finish_span(span)
        super().finish_span(span)

    def enter(self, span: Span) -> Any:
        """Make a span the parent of SDK spans that frameworks start in this context."""
        return self._mirror.enter(span) if self._mirror is not None else None

    def leave(self, token: Any) -> None:
        """Restore the state before `enter`."""
        if token is not None and self._mirror is not None:
            self._mirror.leave(token)

    def observe(self, metric: str, read: Callable[[], float]) -> None:
        """Register a callback that returns the current value of a gauge."""
        super().observe(metric, read)
        readers = self._gauges.setdefault(metric, [])
        readers.append(read)
        if self._mirror is not None and len(readers) == 1:
            self._mirror.observe(metric, readers)

    def log_event(
        self,
        name: str,
        attributes: Attributes | None = None,
        *,
        span: Span = NO_SPAN,
        content: Attributes | None = None,
    ) -> None:
        """Record an event of `semconv`, on its span if there is one."""
        super().log_event(name, attributes, span=span, content=content)
        if self._mirror is not None:
            self._mirror.log_event(name, attributes or {}, span, content or {})

    def find_failing_checks(self) -> Sequence[str]:
        """Return the names of failing parts: `traces` for the store, `exporter`."""
        is_failing = self._mirror is not None and self._mirror.is_failing
        return (*super().find_failing_checks(), *(("exporter",) if is_failing else ()))

    def describe(self) -> Mapping[str, Any]:
        """Return the telemetry status for operators, including the owner of the provider."""
        found = self._mirror.describe() if self._mirror is not None else {"provider": "none"}
        return {**super().describe(), **self._description, **found}

    async def open(self) -> None:
        """Connect the SDK, unless the first span has done so."""
        await super().open()
        self._choose()

    async def flush(self) -> None:
        """Write pending spans and send pending exports, for a few seconds at most."""
        await super().flush()
        if self._mirror is not None:
            await call(self._mirror.flush)

    async def aclose(self) -> None:
        """Write pending spans, send pending exports for a few seconds at most, and close."""
        mirror, self._mirror, self._connect = self._mirror, None, None
        if mirror is not None:
            await call(mirror.close)
        await super().aclose()

    def _prepare(self, span: Span, parent: Span | SpanContext | None) -> None:
        """Start the mirrored SDK span; ours takes its ids."""
        if self._connect is not None:
            self._choose()
        if self._mirror is not None:
            self._mirror.start_span(span, parent)

    def _record_twice(self, measurements: Sequence[Measurement]) -> None:
        self._metrics.record_all(measurements)
        if self._mirror is not None:
            for metric, value, attributes in measurements:
                self._mirror.record(metric, value, attributes)

    def _choose(self) -> None:
        connect, self._connect = self._connect, None
        if connect is None:
            return
        try:
            self._mirror = connect(self)
        except Exception:  # telemetry breaks nothing
            logger.exception("OpenTelemetry's SDK cannot be used: nothing is exported")
        if self._mirror is not None:
            self._record_all = self._record_twice
            for metric, readers in self._gauges.items():
                self._mirror.observe(metric, readers)
