"""Builds the telemetry: none, a trace store, or a store with export by OpenTelemetry's SDK."""

import logging
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from copilot_runtime.base.concurrency import call
from copilot_runtime.base.errors import MissingPackage
from copilot_runtime.extensions.tracing.options import TelemetryOptions, has_host_provider
from copilot_runtime.security.loopback import Listener, is_loopback
from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.context import SpanContext
from copilot_runtime.telemetry.span import NO_SPAN, Attributes, Span
from copilot_runtime.telemetry.telemetry import NO_TELEMETRY, LocalTelemetry, SpanStore, Telemetry

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
            self._metrics.export(None)
            await call(mirror.close)
        await super().aclose()

    def _prepare(self, span: Span, parent: Span | SpanContext | None) -> None:
        """Start the mirrored SDK span; ours takes its ids."""
        if self._connect is not None:
            self._choose()
        if self._mirror is not None:
            self._mirror.start_span(span, parent)

    def _choose(self) -> None:
        connect, self._connect = self._connect, None
        if connect is None:
            return
        try:
            self._mirror = connect(self)
        except Exception:  # telemetry must not break the server
            logger.exception("OpenTelemetry's SDK cannot be used: nothing is exported")
        if self._mirror is not None:
            self._metrics.export(self._mirror.record)
            for metric, readers in self._gauges.items():
                self._mirror.observe(metric, readers)


def build_telemetry(options: TelemetryOptions) -> Telemetry:
    """Build the telemetry of a runtime. Opens no file and no connection.

    With a destination, OpenTelemetry's SDK exports spans; if the host program has set a tracer
    provider by the time the server starts, only that one does. Raises `MissingPackage` if the SDK
    is not installed.
    """
    if not options.enabled:
        return NO_TELEMETRY
    if options.destinations or options.bridge:
        _check_packages(options)
    store = build_store(options)

    def connect(telemetry: Telemetry) -> "SdkMirror | None":
        if options.export is False:
            return None
        if not (options.destinations or options.bridge or has_host_provider()):
            return None
        from copilot_runtime.extensions.tracing.otel.build import connect

        return connect(options, store, telemetry)

    return ExportingTelemetry(
        connect,
        store,
        keeps_content=options.content != "none",
        dialect=options.semconv,
        resource={semconv.SERVICE_NAME: options.service_name},
        description={
            "enabled_via": options.enabled_via,
            "exporters": list(options.destinations),
            "store": options.store.partition(":")[0],
        },
        emits_details=options.emits_details,
    )


def build_store(options: TelemetryOptions) -> SpanStore | None:
    """Build the trace store that the options select, or return None for `none`."""
    kind, _, place = options.store.partition(":")
    if kind == "none":
        return None
    if kind == "sqlite":
        from copilot_runtime.extensions.tracing.store.sqlite import SqliteTraceStore

        days = options.retention / 86_400
        return SqliteTraceStore(place, days=days, max_traces=options.max_traces)
    if kind == "jsonl":
        from copilot_runtime.extensions.tracing.store.jsonlines import JsonLinesTraceStore

        return JsonLinesTraceStore(place, days=options.retention / 86_400)
    from copilot_runtime.extensions.tracing.store.memory import MemoryTraceStore

    return MemoryTraceStore(max_traces=min(options.max_traces, 1_000))


def _check_packages(options: TelemetryOptions) -> None:
    """Raise `MissingPackage` if a package is missing that the export needs."""
    destinations = options.destinations
    needs = {"opentelemetry.sdk": "opentelemetry-sdk"}
    if "otlp-http" in destinations or "file" in destinations:
        needs["opentelemetry.exporter.otlp.proto.http"] = "opentelemetry-exporter-otlp-proto-http"
    if "otlp-grpc" in destinations:
        needs["opentelemetry.exporter.otlp.proto.grpc"] = "opentelemetry-exporter-otlp-proto-grpc"
    if options.http_spans:
        name = "opentelemetry-instrumentation-httpx"
        needs["opentelemetry.instrumentation.httpx"] = name
    for module, package in needs.items():
        if not _is_installed(module):
            raise MissingPackage("Exporting traces", package, "telemetry")


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # not even the package around it
        return False


_ANY: Mapping[str, str] = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # nothing binds here


def build_exporter_environment(listener: Listener, token: str = "") -> Mapping[str, str]:
    """Return the variables of OpenTelemetry's exporters for a server at a listener's address.

    `token` is the setting `telemetry.receive_token`. Return an empty mapping without a port, or
    without a token at an address that is not loopback.
    """
    address = _ANY.get(listener.address, listener.address)
    if not listener.port or not (token or is_loopback(address)):
        return {}
    host = f"[{address}]" if ":" in address else address
    headers = {"OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer%20{quote(token, safe='')}"}
    return {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{host}:{listener.port}",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_METRICS_EXPORTER": "none",
        **(headers if token else {}),
    }
