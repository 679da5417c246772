"""Traces and metrics of runs: storage, export, console pages and routes."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path

from starlette.routing import BaseRoute

from copilot_runtime import __version__
from copilot_runtime.app.extension import Contribution, Core, Extension
from copilot_runtime.config.checks import mask_credentials
from copilot_runtime.config.settings import CoreSettings
from copilot_runtime.extensions.settings import Settings, narrow_settings
from copilot_runtime.extensions.tracing.build import build_exporter_environment, build_telemetry
from copilot_runtime.extensions.tracing.http.access import TraceAccess
from copilot_runtime.extensions.tracing.http.metrics import MetricsEndpoint
from copilot_runtime.extensions.tracing.options import TelemetryOptions
from copilot_runtime.extensions.tracing.settings import WORKERS_TRACES
from copilot_runtime.security.loopback import LISTENER
from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.telemetry import Telemetry
from copilot_runtime.telemetry.worker_metrics import WORKER_METRICS
from copilot_runtime.transports.transport import Services


class TracingExtension(Extension):
    """Builds telemetry from the settings, or uses the telemetry that the program supplies."""

    name = "tracing"
    options = ("telemetry",)

    def build(self, core: Core) -> Contribution:
        settings = narrow_settings(core.settings)
        self._settings = settings
        core.operators = settings.telemetry.operators
        self._telemetry: Telemetry = core.options.get("telemetry") or build_runtime_telemetry(
            settings
        )
        self._metrics = build_metrics_endpoint(settings, self._telemetry)
        self._access = TraceAccess(
            self._telemetry,
            operators=settings.telemetry.operators,
            has_users=core.has_hook or bool(settings.access.authenticate),
            has_roles=bool(settings.access.authenticate),
            has_console=settings.console.enabled,
            guard=core.guard,
        )
        return Contribution(
            parts={Telemetry: self._telemetry, TraceAccess: self._access},
            endpoints=[_make_traces, *([_make_otlp] if settings.telemetry.receives else [])],
            page="/traces" if self._telemetry.is_recording else "",
            schema="copilot_runtime.extensions.tracing.graphql" if self._access.may_allow else "",
        )

    async def open(self) -> None:
        if (listener := LISTENER.get()) is not None and self._settings.telemetry.receives:
            token = self._settings.telemetry.receive_token
            self._telemetry.child_environment = build_exporter_environment(listener, token)
        workers = WORKER_METRICS.get()
        if workers is not None and self._metrics is not None:
            self._metrics.join(workers)
        await self._telemetry.open()

    async def aclose(self) -> None:
        await self._telemetry.aclose()

    def routes(self, prefix: str) -> Sequence[BaseRoute]:
        return [] if self._metrics is None else [self._metrics.route(f"{prefix}/metrics")]

    def find_failing_checks(self) -> Sequence[str]:
        return self._telemetry.find_failing_checks()

    def describe_settings(self, settings: CoreSettings) -> str:
        section = narrow_settings(settings).telemetry
        if not section.is_exported:
            place = "nowhere" if section.enabled_via == "disabled" else "only into the store"
            return f"Telemetry goes {place} ({section.enabled_via})."
        names = ", ".join(section.exporters) or f"OTLP ({section.protocol})"
        place = f" to {mask_credentials(section.endpoint)}" if section.endpoint else ""
        return f"Telemetry is exported by {names}{place} ({section.enabled_via})."

    def list_worker_variables(self, settings: CoreSettings) -> Mapping[str, str]:
        if narrow_settings(settings).telemetry.store != "memory":
            return {}
        return {"COPILOT_TELEMETRY_STORE": f"sqlite:{WORKERS_TRACES}"}


def find_trace_place(settings: Settings) -> tuple[str, Path]:
    """Return the kind of the trace store (`sqlite`, `jsonl` or other), and its path."""
    kind, _, path = settings.telemetry.store.partition(":")
    shared = Path(WORKERS_TRACES)  # `workers` may be on the command line only
    if kind == "memory" and (settings.workers > 1 or shared.exists()):
        return "sqlite", shared
    return kind, Path(path)


def build_runtime_telemetry(settings: Settings) -> Telemetry:
    """Return the telemetry that the settings configure."""
    names = {field.name for field in fields(TelemetryOptions)}
    options = settings.telemetry.model_dump(include=names - {"enabled_via"})
    return build_telemetry(
        TelemetryOptions(
            **options,
            environment=settings.deployment,
            version=__version__,
            enabled_via=settings.telemetry.enabled_via,
        )
    )


def build_metrics_endpoint(settings: Settings, telemetry: Telemetry) -> MetricsEndpoint | None:
    """Return the Prometheus endpoint, or `None` if it or the metrics are disabled."""
    section, metrics = settings.telemetry, telemetry.metrics
    if metrics is None or not section.metrics_endpoint:
        return None
    resource = {
        semconv.SERVICE_NAME: section.service_name,
        semconv.SERVICE_VERSION: __version__,
        semconv.DEPLOYMENT_ENVIRONMENT_NAME: settings.deployment,
        **section.resource_attributes,
    }
    return MetricsEndpoint(
        metrics,
        {
            name: value
            for name, value in resource.items()
            if value and (section.identity or not semconv.is_identity(name))
        },
        version=__version__,
        token=section.metrics_token,
    )


def _make_traces(services: Services) -> object:
    from copilot_runtime.extensions.tracing.http.endpoint import TracesEndpoint

    return TracesEndpoint(services)


def _make_otlp(services: Services) -> object:
    from copilot_runtime.extensions.tracing.http.otlp import OtlpEndpoint

    return OtlpEndpoint(services)
