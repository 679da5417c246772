"""The options of telemetry, from its settings or from those of a program around this one."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from copilot_runtime.telemetry.semconv import Dialect

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
