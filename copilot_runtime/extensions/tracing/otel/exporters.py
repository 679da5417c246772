"""The exporters of spans, metrics and events by their names: OTLP, the console, a file."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from opentelemetry.sdk._logs.export import ConsoleLogRecordExporter, LogRecordExporter
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, MetricExporter
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SpanExporter

from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.extensions.tracing.options import EXPORTERS, TelemetryOptions


class Exporters(NamedTuple):
    """Exporters (one per signal) that send to the same endpoint, named `target`."""

    target: str
    spans: Callable[[], SpanExporter]
    metrics: Callable[[], MetricExporter]
    events: Callable[[], LogRecordExporter]


def build_exporters(name: str, options: TelemetryOptions) -> Exporters:
    """Build the exporters of a name. Opens no connection and no file."""
    makers = {
        "otlp-http": _over_http,
        "otlp-grpc": _over_grpc,
        "console": _to_console,
        "file": _to_file,
    }
    if name not in makers:
        raise ConfigurationFailed(
            f"There is no exporter {name!r}.", hint=f"There are {', '.join(EXPORTERS)}."
        )
    return makers[name](options)


def _over_http(options: TelemetryOptions) -> Exporters:
    from opentelemetry.exporter.otlp.proto.http import Compression
    from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    from copilot_runtime.extensions.tracing.otel.session import ExportSession

    base = (options.endpoint or "http://localhost:4318").rstrip("/")

    def arguments(signal: str) -> dict[str, Any]:
        return {
            "endpoint": options.endpoints.get(signal) or f"{base}/v1/{signal}",
            "headers": dict(options.headers),
            "compression": Compression(options.compression),
            "session": ExportSession(),
        }

    return Exporters(
        base,
        lambda: OTLPSpanExporter(**arguments("traces")),
        lambda: OTLPMetricExporter(**arguments("metrics")),
        lambda: OTLPLogExporter(**arguments("logs")),
    )


def _over_grpc(options: TelemetryOptions) -> Exporters:
    import grpc
    from opentelemetry.exporter.otlp.proto.grpc import _log_exporter as logs
    from opentelemetry.exporter.otlp.proto.grpc import metric_exporter as metrics
    from opentelemetry.exporter.otlp.proto.grpc import trace_exporter as traces

    base = options.endpoint or "http://localhost:4317"

    def arguments(signal: str) -> dict[str, Any]:
        endpoint = options.endpoints.get(signal) or base
        is_gzip = options.compression == "gzip"
        return {
            "endpoint": endpoint,
            "headers": {name.lower(): value for name, value in options.headers.items()},
            "insecure": not endpoint.startswith("https://"),
            "compression": grpc.Compression.Gzip if is_gzip else grpc.Compression.NoCompression,
        }

    return Exporters(
        base,
        lambda: traces.OTLPSpanExporter(**arguments("traces")),
        lambda: metrics.OTLPMetricExporter(**arguments("metrics")),
        lambda: logs.OTLPLogExporter(**arguments("logs")),
    )


def _to_console(options: TelemetryOptions) -> Exporters:
    """Export to stderr: stdout may be the transport of MCP clients."""
    del options
    return Exporters(
        "The console",
        lambda: ConsoleSpanExporter(out=sys.stderr),
        lambda: ConsoleMetricExporter(out=sys.stderr),
        lambda: ConsoleLogRecordExporter(out=sys.stderr),
    )


def _to_file(options: TelemetryOptions) -> Exporters:
    from copilot_runtime.extensions.tracing.otel import file

    path = Path(options.file or ".copilot/telemetry.jsonl")
    return Exporters(
        str(path),
        lambda: file.FileSpanExporter(path),
        lambda: file.FileMetricExporter(path),
        lambda: file.FileLogExporter(path),
    )
