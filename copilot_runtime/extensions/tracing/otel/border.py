"""The export filter: removes content, identity and secrets from spans, and truncates values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import orjson
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import Link, StatusCode
from opentelemetry.trace.status import Status

from copilot_runtime.extensions.tracing.dialects import clean_value, drop_secrets, has_content
from copilot_runtime.extensions.tracing.options import Capture, ContentForm
from copilot_runtime.telemetry import semconv

_SHORTEST = 8


@dataclass(frozen=True, slots=True)
class ExportRules:
    """Rules for exported data. `max_chars` limits the length of an attribute; 0 is no limit."""

    content: bool = False
    capture: Capture = "span_only"
    content_form: ContentForm = "structured"
    identity: bool = False
    max_chars: int = 0

    @property
    def spans_have_content(self) -> bool:
        """True if exported spans may contain content."""
        return self.content and self.capture != "event_only"

    @property
    def events_have_content(self) -> bool:
        """True if exported events may contain content."""
        return self.content and self.capture != "span_only"

    def allows(self, span: ReadableSpan) -> bool:
        """Return True if a span may be exported: ours by operation, third-party ones always."""
        return not _is_ours(span) or semconv.is_exported(span.attributes or {})

    def filter(self, attributes: Mapping[str, Any] | None, *, is_ours: bool) -> dict[str, Any]:
        """Return the exportable attributes of a span, truncated. Secrets are always removed."""
        found = drop_secrets(attributes or {})
        if self.spans_have_content:
            return self.limit(found)
        if is_ours:
            return self.limit({k: v for k, v in found.items() if not semconv.is_content(k)})
        return self.limit({k: clean_value(k, v) for k, v in found.items() if not has_content(k, v)})

    def limit(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        """Return attributes truncated, and without identity unless the rules allow it."""
        return {
            name: shorten(value, self.max_chars) if self.max_chars else value
            for name, value in attributes.items()
            if self.identity or not semconv.is_identity(name)
        }


def shorten(value: Any, most: int) -> Any:
    """Truncate a value so that its text or JSON has at most `most` characters.

    Nested values keep their structure, and JSON stays valid: the texts inside are truncated.
    """
    if isinstance(value, str):
        if len(value) <= most:
            return value
        if value[:1] in "{[":
            try:
                return _dump(_shorten_parts(orjson.loads(value), most))
            except ValueError:  # it only looked like JSON
                pass
        return _cut(value, most)
    if isinstance(value, Mapping | Sequence) and not isinstance(value, bytes):
        return _shorten_parts(value, most)
    return value


def _shorten_parts(value: Any, most: int) -> Any:
    """Truncate all nested texts to the same length, the longest that fits."""
    limit = most
    while len(_dump(value)) > most and limit >= _SHORTEST:
        value = _shorten_texts(value, limit)
        limit //= 2
    return value if len(_dump(value)) <= most else _cut(_dump(value), most)


def _shorten_texts(value: Any, most: int) -> Any:
    if isinstance(value, str):
        return _cut(value, most)
    if isinstance(value, Mapping):
        members = cast("Mapping[str, Any]", value)
        return {name: _shorten_texts(member, most) for name, member in members.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return [_shorten_texts(item, most) for item in cast("Sequence[Any]", value)]
    return value


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _dump(value: Any) -> str:
    return orjson.dumps(_plain(value), default=str, option=orjson.OPT_NON_STR_KEYS).decode()


def _plain(value: Any) -> Any:
    """Convert a value of the SDK, with its own mapping and tuple types, to JSON types."""
    return dict(cast("Mapping[str, Any]", value)) if isinstance(value, Mapping) else value


class FilteredExporter(SpanExporter):
    """A span exporter that passes filtered copies of exportable spans to another exporter."""

    def __init__(self, exporter: SpanExporter, rules: ExportRules) -> None:
        self.exporter = exporter
        self.rules = rules

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export filtered copies of the exportable spans."""
        allowed = [self._copy(span) for span in spans if self.rules.allows(span)]
        return self.exporter.export(allowed) if allowed else SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        """Shut down the wrapped exporter."""
        self.exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Flush the wrapped exporter."""
        return self.exporter.force_flush(timeout_millis)

    def _copy(self, span: ReadableSpan) -> ReadableSpan:
        is_ours = _is_ours(span)
        attributes = self.rules.filter(span.attributes, is_ours=is_ours)
        status = span.status
        if status.status_code is StatusCode.ERROR and not self.rules.spans_have_content:
            error_type = attributes.get(semconv.ERROR_TYPE)
            status = Status(StatusCode.ERROR, str(error_type) if error_type else None)
        return ReadableSpan(
            name=span.name,
            context=span.get_span_context(),
            parent=span.parent,
            resource=limit_resource(span.resource, self.rules),
            attributes=attributes,
            events=[
                Event(
                    event.name,
                    self.rules.filter(event.attributes, is_ours=is_ours),
                    event.timestamp,
                )
                for event in span.events
            ],
            links=[
                Link(link.context, self.rules.filter(link.attributes, is_ours=is_ours))
                for link in span.links
            ],
            kind=span.kind,
            status=status,
            start_time=span.start_time,
            end_time=span.end_time,
            instrumentation_scope=span.instrumentation_scope,
        )


def limit_resource(resource: Resource, rules: ExportRules) -> Resource:
    """Return a resource without identity attributes, unless the rules allow them."""
    if rules.identity or not any(map(semconv.is_identity, resource.attributes)):
        return resource
    return Resource(rules.limit(resource.attributes), resource.schema_url)


def _is_ours(span: ReadableSpan) -> bool:
    scope = span.instrumentation_scope
    return scope is not None and scope.name == semconv.SCOPE
