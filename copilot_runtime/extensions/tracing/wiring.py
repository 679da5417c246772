"""Builds the telemetry of a runtime and its metrics endpoint from the settings."""

from dataclasses import fields

from copilot_runtime import __version__
from copilot_runtime.config.settings import Settings
from copilot_runtime.extensions.tracing.build import TelemetryOptions, build_telemetry
from copilot_runtime.extensions.tracing.http.metrics import MetricsEndpoint
from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.telemetry import Telemetry


def build_runtime_telemetry(settings: Settings) -> Telemetry:
    """Build the telemetry from the settings."""
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
    """Build the metrics endpoint, or return None if there are no metrics or it is disabled."""
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
