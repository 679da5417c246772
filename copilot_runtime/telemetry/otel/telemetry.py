"""Spans that are also spans of OpenTelemetry's SDK: of the host's provider, or of ours."""

from collections.abc import Callable, Mapping
from contextvars import Token
from typing import Any

from opentelemetry import context as sdk_context
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, TracerProvider, set_span_in_context

from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.context import SpanContext
from copilot_runtime.telemetry.otel.convert import (
    KINDS,
    to_sdk_attributes,
    to_sdk_context,
    to_sdk_status,
)
from copilot_runtime.telemetry.span import Attributes, Kind, Span
from copilot_runtime.telemetry.telemetry import LocalTelemetry, SpanStore


class OtelTelemetry(LocalTelemetry):
    """Keeps spans as `LocalTelemetry` does, and makes each one with a provider of the SDK, too.

    `content` is `export` where what people and models wrote may leave this machine. Otherwise it
    never reaches a span of the SDK, so no exporter, also none of the host, can send it. Spans of
    operations that are not exported stay here, and those below them get the next span above.
    `shutdown` ends a provider of our own.
    """

    def __init__(
        self,
        provider: TracerProvider,
        store: SpanStore | None = None,
        *,
        version: str = "",
        keeps_content: bool = False,
        exports_content: bool = False,
        shutdown: Callable[[], None] | None = None,
        flush: Callable[[], Any] | None = None,
    ) -> None:
        super().__init__(store, keeps_content=keeps_content or exports_content)
        self.exports_content = exports_content
        self._tracer = provider.get_tracer(semconv.SCOPE, version or None)
        self._shutdown = shutdown
        self._flush = flush

    def start_span(
        self,
        name: str,
        *,
        kind: Kind = "internal",
        attributes: Attributes | None = None,
        parent: Span | SpanContext | None = None,
        start_time: int | None = None,
    ) -> Span:
        """Begin a span; without a `parent`, it is below the current span of the SDK, if any."""
        operation = (attributes or {}).get(semconv.OPERATION_NAME, "")
        if not semconv.EXPORTED_OPERATIONS.get(operation, False):
            span = super().start_span(
                name, kind=kind, attributes=attributes, parent=parent, start_time=start_time
            )
            span.peer_context = _context_of(parent)
            return span
        above = _context_of(parent)
        exported = {key: value for key, value in (attributes or {}).items() if value is not None}
        peer = self._tracer.start_span(
            name,
            context=above,
            kind=KINDS[kind],
            attributes=to_sdk_attributes(exported),
            start_time=start_time,
        )
        ids = peer.get_span_context()
        span = Span(
            name,
            telemetry=self,
            kind=kind,
            attributes=attributes,
            start_time=start_time,
            trace_id=f"{ids.trace_id:032x}",
            span_id=f"{ids.span_id:016x}",
        )
        span.parent_id = _parent_id(parent, above)
        span.peer = peer
        span.peer_context = set_span_in_context(peer, above)
        self._notify(span, "start")
        return span

    def finish_span(self, span: Span) -> None:
        """End the span of the SDK, and hand ours to the store and the listeners."""
        if (peer := span.peer) is not None and peer.is_recording():
            peer.update_name(span.name)
            peer.set_attributes(to_sdk_attributes(span.attributes))
            if self.exports_content:
                peer.set_attributes(to_sdk_attributes(span.content))
            for event in span.events:
                peer.add_event(event.name, to_sdk_attributes(event.attributes), event.time)
            for link in span.links:
                peer.add_link(to_sdk_context(link.context), to_sdk_attributes(link.attributes))
            if (status := to_sdk_status(span, exports_content=self.exports_content)) is not None:
                peer.set_status(status)
            peer.end(span.end_time)
        super().finish_span(span)

    def enter(self, span: Span) -> Token[Context] | None:
        """Let frameworks that use the SDK work under a span."""
        if span.peer_context is None:
            return None
        return sdk_context.attach(span.peer_context)

    def leave(self, token: Any) -> None:
        """End what `enter` began."""
        if token is not None:
            sdk_context.detach(token)

    def describe(self) -> Mapping[str, Any]:
        """Return what is on, for an operator to read."""
        return {**super().describe(), "exports_content": self.exports_content}

    async def flush(self) -> None:
        """Write and send what is held back."""
        await super().flush()
        if self._flush is not None:
            from copilot_runtime.concurrency import call

            await call(self._flush)

    async def aclose(self) -> None:
        """Write and send what is held back, and end a provider of our own."""
        await super().aclose()
        if self._shutdown is not None:
            from copilot_runtime.concurrency import call

            await call(self._shutdown)


def _context_of(parent: Span | SpanContext | None) -> Context:
    """Return the context of the SDK that has a parent of ours as its span."""
    current = sdk_context.get_current()
    if isinstance(parent, SpanContext):
        return set_span_in_context(NonRecordingSpan(to_sdk_context(parent)), current)
    if parent is None or not parent.is_recording:
        return current
    if parent.peer_context is not None:
        return parent.peer_context
    return set_span_in_context(NonRecordingSpan(to_sdk_context(parent.context)), current)


def _parent_id(parent: Span | SpanContext | None, above: Context) -> str:
    if parent is not None and not (isinstance(parent, Span) and not parent.is_recording):
        return parent.span_id
    ids = trace.get_current_span(above).get_span_context()
    return f"{ids.span_id:016x}" if ids.is_valid else ""
