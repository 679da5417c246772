"""Builds the providers of OpenTelemetry's SDK, or uses those of the host program."""

import logging
from collections.abc import Callable, Sequence
from getpass import getuser
from importlib import import_module
from socket import gethostname
from threading import Lock
from typing import Any

from opentelemetry import _logs, metrics, trace
from opentelemetry._logs import LoggerProvider
from opentelemetry.context import Context
from opentelemetry.metrics import MeterProvider
from opentelemetry.sdk import trace as sdk_trace
from opentelemetry.sdk._logs import LoggerProvider as SdkLoggerProvider
from opentelemetry.sdk.metrics import MeterProvider as SdkMeterProvider
from opentelemetry.sdk.metrics.export import (
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, sampling

from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.extensions.tracing.dialects import strip_url, tells_of_models
from copilot_runtime.extensions.tracing.options import TelemetryOptions, has_host_provider
from copilot_runtime.extensions.tracing.otel.border import (
    ExportRules,
    FilteredExporter,
    limit_resource,
)
from copilot_runtime.extensions.tracing.otel.convert import from_sdk_span
from copilot_runtime.extensions.tracing.otel.delivery import (
    ExportQueue,
    QueueLogProcessor,
    QueueSpanProcessor,
    QuietMetricExporter,
    Receiver,
)
from copilot_runtime.extensions.tracing.otel.exporters import Exporters, build_exporters
from copilot_runtime.extensions.tracing.otel.mirror import Providers, SdkMirror
from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.telemetry import NO_TELEMETRY, SpanStore, Telemetry

SAMPLERS = {
    "always_on": sampling.ALWAYS_ON,
    "always_off": sampling.ALWAYS_OFF,
    "parentbased_always_on": sampling.DEFAULT_ON,
    "parentbased_always_off": sampling.DEFAULT_OFF,
}
"""The SDK's samplers without a ratio, by their OTEL_TRACES_SAMPLER names."""


class OwnTracerProvider(sdk_trace.TracerProvider):
    """Our own tracer provider, distinguishable from a host's by its class."""


def connect(options: TelemetryOptions, store: SpanStore | None, telemetry: Telemetry) -> SdkMirror:
    """Build a mirror that uses the host's providers if it has set some, otherwise our own."""
    rules = ExportRules(
        content=options.content == "export",
        capture=options.capture,
        content_form=options.content_form,
        identity=options.identity,
        max_chars=options.max_attribute_chars,
    )
    if options.log_level is not None:
        logging.getLogger("opentelemetry").setLevel(options.log_level.upper())

    builder = _Builder(options, rules, store, telemetry)
    mirror = SdkMirror(builder.build(), rules, options.version)
    telemetry.observe(semconv.TELEMETRY_DROPPED, lambda: builder.dropped)
    return mirror


class _Builder:
    """Builds the providers, and collects the functions that flush and close them."""

    def __init__(
        self,
        options: TelemetryOptions,
        rules: ExportRules,
        store: SpanStore | None,
        telemetry: Telemetry,
    ) -> None:
        self.options = options
        self.rules = rules
        self.store = store
        self.telemetry = telemetry
        self.dropped = 0
        self.resource = limit_resource(_build_resource(options), rules)
        self.destinations: Sequence[tuple[Exporters, Receiver]] = [
            (exporters, Receiver(strip_url(exporters.target)))
            for exporters in (build_exporters(name, options) for name in options.destinations)
        ]
        self.flush: list[Callable[[], Any]] = []
        self.close: list[Callable[[], Any]] = []

    def build(self) -> Providers:
        is_host = has_host_provider()
        return Providers(
            tracers=trace.get_tracer_provider() if is_host else self._build_tracers(),
            meters=self._build_meters(),
            loggers=self._build_loggers(),
            owner="host" if is_host else "own",
            flush=self.flush,
            close=self._bridge_host() + self.close if is_host else self.close,
            is_failing=lambda: any(receiver.is_failing for _, receiver in self.destinations),
        )

    def _bridge_host(self) -> list[Callable[[], Any]]:
        """Store framework spans of the host's provider, too; return the functions that end it."""
        add: Any = getattr(trace.get_tracer_provider(), "add_span_processor", None)
        if self.store is None or add is None:
            return []
        bridge = BridgeProcessor(self.telemetry)
        add(bridge)
        return [bridge.close]

    def _build_tracers(self) -> sdk_trace.TracerProvider:
        provider = OwnTracerProvider(
            sampler=build_sampler(self.options.sampler, self.options.sampler_argument),
            resource=self.resource,
            shutdown_on_exit=False,
        )
        if self.store is not None:
            provider.add_span_processor(BridgeProcessor(self.telemetry))
        if "traces" in self.options.signals:
            for exporters, receiver in self.destinations:
                exporter = FilteredExporter(exporters.spans(), self.rules)
                processor = QueueSpanProcessor(exporter, receiver, self._queue)
                provider.add_span_processor(processor)
                self._manage(processor)
        if self.options.bridge:
            trace.set_tracer_provider(provider)
        if self.options.http_spans:
            self._trace_requests(provider)
        return provider

    def _trace_requests(self, provider: sdk_trace.TracerProvider) -> None:
        """Trace outgoing HTTP requests by OpenTelemetry's instrumentation of httpx."""
        module = import_module("opentelemetry.instrumentation.httpx")
        instrumentor: Any = module.HTTPXClientInstrumentor()
        instrumentor.instrument(tracer_provider=provider)
        self.close.append(instrumentor.uninstrument)

    def _build_meters(self) -> MeterProvider | None:
        if isinstance(host := metrics.get_meter_provider(), SdkMeterProvider):
            return host
        if "metrics" not in self.options.signals or not self.destinations:
            return None
        readers = [
            PeriodicExportingMetricReader(QuietMetricExporter(exporters.metrics(), receiver))
            for exporters, receiver in self.destinations
        ]
        provider = SdkMeterProvider(readers, resource=self.resource, shutdown_on_exit=False)
        for reader in readers:
            self.flush.append(reader.force_flush)
            self.close.append(reader.shutdown)
        return provider

    def _build_loggers(self) -> LoggerProvider | None:
        if isinstance(host := _logs.get_logger_provider(), SdkLoggerProvider):
            return host
        if "logs" not in self.options.signals or not self.destinations:
            return None
        provider = SdkLoggerProvider(resource=self.resource, shutdown_on_exit=False)
        for exporters, receiver in self.destinations:
            processor = QueueLogProcessor(exporters.events(), receiver, self._queue)
            provider.add_log_record_processor(processor)
            self._manage(processor)
        return provider

    def _queue(self, name: str, export: Callable[[Sequence[Any]], bool]) -> ExportQueue[Any]:
        options = self.options
        return ExportQueue(
            name,
            export,
            self._count,
            interval=options.export_interval,
            max_items=options.max_queue,
        )

    def _count(self, left_out: int) -> None:
        self.dropped += left_out

    def _manage(self, processor: "QueueSpanProcessor | QueueLogProcessor") -> None:
        self.flush.append(processor.force_flush)
        self.close.append(processor.shutdown)


def build_sampler(name: str, argument: str) -> sampling.Sampler:
    """Return the sampler that OTEL_TRACES_SAMPLER names."""
    if name in SAMPLERS:
        return SAMPLERS[name]
    ratio = float(argument or 1)
    if name == "traceidratio":
        return sampling.TraceIdRatioBased(ratio)
    if name == "parentbased_traceidratio":
        return sampling.ParentBasedTraceIdRatio(ratio)
    raise ConfigurationFailed(f"There is no sampler {name!r}.")


def _build_resource(options: TelemetryOptions) -> Resource:
    attributes = {
        semconv.SERVICE_NAME: options.service_name,
        semconv.SERVICE_VERSION: options.version,
        semconv.DEPLOYMENT_ENVIRONMENT_NAME: options.environment,
        **(_find_identity() if options.identity else {}),
        **options.resource_attributes,
    }
    return Resource.create({name: value for name, value in attributes.items() if value})


def _find_identity() -> dict[str, str]:
    """Return host name and process user as resource attributes, as far as they are known."""
    try:
        user = getuser()
    except (ImportError, KeyError, OSError):  # a container may have no name for its user
        user = ""
    return {semconv.HOST_NAME: gethostname(), semconv.PROCESS_USER_NAME: user}


_MOST_TRACES = 10_000
"""Maximum number of remembered own traces: third-party spans may end much later."""


class BridgeProcessor(SpanProcessor):
    """A span processor that imports third-party SDK spans into our telemetry.

    It imports spans of our traces and spans of models and agents; others would fill the store. A
    provider cannot remove processors, so `close` detaches the telemetry.
    """

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._traces: dict[int, None] = {}
        """Ids of the traces with a span of ours, the oldest first."""
        self._lock = Lock()

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Register a framework's tool call, so that its events produce no second span."""
        del parent_context
        if not _is_foreign(span):
            self._add_trace(span.get_span_context().trace_id)
            return
        of = span.attributes
        calls = self._telemetry.tool_calls
        if calls is None or of is None:
            return
        id, context = of.get(semconv.TOOL_CALL_ID), span.get_span_context()
        if isinstance(id, str) and of.get(semconv.OPERATION_NAME) == semconv.EXECUTE_TOOL:
            calls.add_foreign(f"{context.trace_id:032x}", id)

    def on_end(self, span: ReadableSpan) -> None:
        """Import a third-party span that belongs to a run's trace, or to a model or an agent."""
        telemetry = self._telemetry
        if telemetry.is_recording and _is_foreign(span) and self._is_relevant(span):
            telemetry.import_span(from_sdk_span(span, keeps_content=telemetry.keeps_content))

    def close(self) -> None:
        """Stop importing spans."""
        self._telemetry = NO_TELEMETRY

    def shutdown(self) -> None:
        """Do nothing: the telemetry has its own lifecycle."""

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Return True: nothing is buffered here."""
        del timeout_millis
        return True

    def _add_trace(self, trace_id: int) -> None:
        with self._lock:
            self._traces[trace_id] = None
            if len(self._traces) > _MOST_TRACES:
                del self._traces[next(iter(self._traces))]

    def _is_relevant(self, span: ReadableSpan) -> bool:
        context = span.get_span_context()
        return (context is not None and context.trace_id in self._traces) or tells_of_models(
            span.attributes or {}
        )


def _is_foreign(span: ReadableSpan) -> bool:
    scope = span.instrumentation_scope
    return scope is None or scope.name != semconv.SCOPE
