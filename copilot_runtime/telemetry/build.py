"""Choose what becomes of spans: nothing, a store of this process, or an export as well."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from copilot_runtime.errors import MissingPackage
from copilot_runtime.telemetry.semconv import Dialect
from copilot_runtime.telemetry.telemetry import NO_TELEMETRY, LocalTelemetry, SpanStore, Telemetry

Content = Literal["none", "local", "export"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryOptions:
    """What the settings `telemetry` say: see there."""

    enabled: bool = True
    store: str = "memory"
    retention: float = 7 * 86_400
    max_traces: int = 100_000
    content: Content = "none"
    identity: bool = False
    semconv: Dialect = "released"
    exporters: Sequence[str] = ()
    endpoint: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    file: str = ""
    max_attribute_chars: int = 0
    service_name: str = "copilot-runtime"
    resource_attributes: Mapping[str, str] = field(default_factory=dict)
    environment: str = ""
    version: str = ""

    @property
    def destinations(self) -> Sequence[str]:
        """The exporters: by OTLP over HTTP, if there is an endpoint and nothing else is said."""
        return self.exporters or (("otlp-http",) if self.endpoint else ())


def build_telemetry(options: TelemetryOptions) -> Telemetry:
    """Return what takes note of runs. Opens no file and no connection.

    With a destination, spans are exported by OpenTelemetry's SDK; where the host program has set a
    provider of its own, by that one alone. Raises `MissingPackage` without the SDK.
    """
    if not options.enabled:
        return NO_TELEMETRY
    store = build_store(options)
    if options.destinations or has_host_provider():
        try:
            from copilot_runtime.telemetry.otel.build import build_otel_telemetry
        except ImportError as error:
            raise MissingPackage(
                "Exporting traces", error.name or "opentelemetry-sdk", "telemetry"
            ) from error
        return build_otel_telemetry(options, store)
    return LocalTelemetry(store, keeps_content=options.content != "none", dialect=options.semconv)


def build_store(options: TelemetryOptions) -> SpanStore | None:
    """Return where traces are kept, or None for nowhere."""
    kind, _, place = options.store.partition(":")
    if kind == "none":
        return None
    if kind == "sqlite":
        from copilot_runtime.telemetry.store.sqlite import SqliteTraceStore

        days = options.retention / 86_400
        return SqliteTraceStore(place, days=days, max_traces=options.max_traces)
    from copilot_runtime.telemetry.store.memory import MemoryTraceStore

    return MemoryTraceStore(max_traces=min(options.max_traces, 1_000))


def has_host_provider() -> bool:
    """Return whether the host program has set a provider of OpenTelemetry's SDK."""
    sdk: Any = sys.modules.get("opentelemetry.sdk.trace")
    api: Any = sys.modules.get("opentelemetry.trace")
    return bool(sdk and api and isinstance(api.get_tracer_provider(), sdk.TracerProvider))
