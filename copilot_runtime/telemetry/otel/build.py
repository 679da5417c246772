"""Put a provider of OpenTelemetry's SDK together, or take that of the host program."""

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    ConsoleSpanExporter,
    SimpleSpanProcessor,
    SpanExporter,
)

from copilot_runtime.errors import ConfigurationFailed
from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.build import TelemetryOptions
from copilot_runtime.telemetry.otel.bridge import BridgeProcessor
from copilot_runtime.telemetry.otel.exporters import ExportRules, FilteredExporter
from copilot_runtime.telemetry.otel.telemetry import OtelTelemetry
from copilot_runtime.telemetry.telemetry import SpanStore


def build_otel_telemetry(options: TelemetryOptions, store: SpanStore | None) -> OtelTelemetry:
    """Return telemetry with the host's provider, if it has set one, else with one of our own."""
    keeps_content, exports_content = options.content != "none", options.content == "export"
    provider = trace.get_tracer_provider()
    is_ours = not isinstance(provider, TracerProvider)
    if is_ours:
        provider = TracerProvider(resource=_build_resource(options), shutdown_on_exit=False)
        for name in options.destinations:
            provider.add_span_processor(_build_processor(name, options))
    assert isinstance(provider, TracerProvider)
    if store is not None:
        provider.add_span_processor(BridgeProcessor(store, keeps_content=keeps_content))
    return OtelTelemetry(
        provider,
        store,
        version=options.version,
        keeps_content=keeps_content,
        exports_content=exports_content,
        shutdown=provider.shutdown if is_ours else None,
        flush=provider.force_flush if is_ours else None,
    )


def _build_resource(options: TelemetryOptions) -> Resource:
    attributes = {
        semconv.SERVICE_NAME: options.service_name,
        semconv.SERVICE_VERSION: options.version,
        semconv.DEPLOYMENT_ENVIRONMENT_NAME: options.environment,
        **options.resource_attributes,
    }
    return Resource.create({name: value for name, value in attributes.items() if value})


def _build_processor(name: str, options: TelemetryOptions) -> SpanProcessor:
    rules = ExportRules(
        content=options.content == "export",
        identity=options.identity,
        max_chars=options.max_attribute_chars,
    )
    exporter = FilteredExporter(_build_exporter(name, options), rules)
    return SimpleSpanProcessor(exporter) if name == "console" else BatchSpanProcessor(exporter)


def _build_exporter(name: str, options: TelemetryOptions) -> SpanExporter:
    headers = dict(options.headers)
    if name == "console":
        return ConsoleSpanExporter()
    if name == "otlp-http":
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        url = f"{options.endpoint.rstrip('/')}/v1/traces" if options.endpoint else None
        return OTLPSpanExporter(endpoint=url, headers=headers)
    if name == "otlp-grpc":
        from opentelemetry.exporter.otlp.proto.grpc import trace_exporter

        return trace_exporter.OTLPSpanExporter(
            endpoint=options.endpoint or None,
            headers=headers,
            insecure=options.endpoint.startswith("http://") or None,
        )
    raise ConfigurationFailed(
        f"There is no exporter {name!r}.", hint="There are otlp-http, otlp-grpc, console and file."
    )
