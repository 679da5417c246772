"""Builds the telemetry: none, a trace store, or a store with export by OpenTelemetry's SDK."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

from copilot_runtime.base.errors import MissingPackage
from copilot_runtime.extensions.tracing.exporting import ExportingTelemetry
from copilot_runtime.telemetry.semconv import Dialect
from copilot_runtime.telemetry.telemetry import NO_TELEMETRY, SpanStore, Telemetry

if TYPE_CHECKING:
    from copilot_runtime.extensions.tracing.otel.mirror import SdkMirror

Content = Literal["none", "local", "export"]
ContentForm = Literal["structured", "json"]
Capture = Literal["span_only", "event_only", "span_and_event"]

EXPORTERS = ("otlp-http", "otlp-grpc", "console", "file")
"""The names of exporters."""

_OURS = __name__.partition(".")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryOptions:
    """Options of the telemetry: the fields of `TelemetrySettings` that it needs."""

    enabled: bool = True
    store: str = "memory"
    retention: float = 7 * 86_400
    max_traces: int = 100_000
    content: Content = "none"
    capture: Capture = "span_only"
    inference_events: bool | None = None
    identity: bool = False
    semconv: Dialect = "released"
    export: bool | None = None
    exporters: Sequence[str] = ()
    protocol: str = "http/protobuf"
    endpoint: str = ""
    endpoints: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    compression: Literal["none", "gzip"] = "none"
    signals: Sequence[str] = ("traces", "metrics", "logs")
    bridge: bool = False
    http_spans: bool = False
    file: str = ""
    content_form: ContentForm = "structured"
    max_attribute_chars: int = 0
    max_queue: int = 2048
    export_interval: float = 5
    sampler: str = "parentbased_always_on"
    sampler_argument: str = ""
    service_name: str = "copilot-runtime"
    resource_attributes: Mapping[str, str] = field(default_factory=dict)
    log_level: str | None = None
    environment: str = ""
    version: str = ""
    enabled_via: str = ""
    """The source that enabled the export: `TelemetrySettings.enabled_via`."""

    @property
    def destinations(self) -> Sequence[str]:
        """The exporter names: OTLP by the configured protocol, if only an endpoint is set."""
        if self.export is False:
            return ()
        if self.exporters:
            return self.exporters
        has_target = self.export or self.endpoint or self.endpoints
        usual = "otlp-grpc" if self.protocol == "grpc" else "otlp-http"
        return (usual,) if has_target else ()

    @property
    def emits_details(self) -> bool:
        """True if model requests are events as well; by default, if events carry content."""
        if self.inference_events is not None:
            return self.inference_events
        return self.content == "export" and self.capture != "span_only"


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


def has_host_provider() -> bool:
    """Return True if the host program has set an OpenTelemetry tracer provider."""
    api: Any = sys.modules.get("opentelemetry.trace")
    if api is None:
        return False
    provider = api.get_tracer_provider()
    is_ours = type(provider).__module__.partition(".")[0] == _OURS
    return not is_ours and not isinstance(
        provider, api.ProxyTracerProvider | api.NoOpTracerProvider
    )


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
