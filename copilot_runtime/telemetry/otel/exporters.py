"""What may leave this machine: exporters behind a border that strips and shortens."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import StatusCode
from opentelemetry.trace.status import Status

from copilot_runtime.telemetry import semconv


@dataclass(frozen=True, slots=True)
class ExportRules:
    """What exporters may send. `max_chars` is the longest text of an attribute; 0 for any."""

    content: bool = False
    identity: bool = False
    max_chars: int = 0

    def allows(self, span: ReadableSpan) -> bool:
        """Return whether a span may leave: ours by its operation, others always."""
        scope = span.instrumentation_scope
        if scope is None or scope.name != semconv.SCOPE:
            return True
        operation = (span.attributes or {}).get(semconv.OPERATION_NAME, "")
        return semconv.EXPORTED_OPERATIONS.get(str(operation), False)

    def filter(self, attributes: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the attributes that may leave, shortened."""
        return {
            name: self._shorten(value)
            for name, value in (attributes or {}).items()
            if (self.content or not semconv.is_content(name))
            and (self.identity or not semconv.is_identity(name))
        }

    def _shorten(self, value: Any) -> Any:
        if self.max_chars and isinstance(value, str) and len(value) > self.max_chars:
            return value[: self.max_chars - 1] + "…"
        return value


class FilteredExporter(SpanExporter):
    """Gives an exporter copies of the spans that may leave, without what must not."""

    def __init__(self, exporter: SpanExporter, rules: ExportRules) -> None:
        self.exporter = exporter
        self.rules = rules

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export what may leave."""
        allowed = [self._copy(span) for span in spans if self.rules.allows(span)]
        return self.exporter.export(allowed) if allowed else SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        """End the exporter."""
        self.exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Send what the exporter holds back."""
        return self.exporter.force_flush(timeout_millis)

    def _copy(self, span: ReadableSpan) -> ReadableSpan:
        attributes = self.rules.filter(span.attributes)
        status = span.status
        if status.status_code is StatusCode.ERROR and not self.rules.content:
            error_type = attributes.get(semconv.ERROR_TYPE)
            status = Status(StatusCode.ERROR, str(error_type) if error_type else None)
        return ReadableSpan(
            name=span.name,
            context=span.get_span_context(),
            parent=span.parent,
            resource=span.resource,
            attributes=attributes,
            events=[
                Event(event.name, self.rules.filter(event.attributes), event.timestamp)
                for event in span.events
            ],
            links=span.links,
            kind=span.kind,
            status=status,
            start_time=span.start_time,
            end_time=span.end_time,
            instrumentation_scope=span.instrumentation_scope,
        )
