"""The settings section `telemetry`: traces, metrics, and their export."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PrivateAttr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from copilot_runtime.config.checks import check_secret
from copilot_runtime.config.section import (
    Count,
    Seconds,
    SecondsOrNone,
    Section,
    Words,
    check_match,
    read_object,
)

TELEMETRY_EXPORTERS = ("otlp-http", "otlp-grpc", "console", "file")
TELEMETRY_SIGNALS = ("traces", "metrics", "logs")

_ADDRESS = r"https?://[^\s@]+"
_ADDRESS_RULE = (
    "should begin with http:// or https://, and have no user or password in it: those are for "
    "telemetry.headers."
)

WORKERS_TRACES = ".copilot/traces.db"
"""File that several workers share instead of traces in memory."""


class TelemetrySettings(Section):
    """Storage and export of telemetry. Runs are traced unless `enabled` is false."""

    enabled: bool = Field(default=True, description="Whether to record traces and metrics of runs.")
    store: Annotated[
        str,
        check_match(
            r"^(memory|none|(sqlite|jsonl):.+)$", "memory, sqlite:PATH, jsonl:FOLDER or none"
        ),
    ] = Field(
        default="memory",
        description="Where traces are kept: memory, sqlite:PATH, jsonl:FOLDER with a file a day, "
        "or none.",
    )
    retention: SecondsOrNone = Field(
        default=7 * 86_400, description="Seconds after which a trace is deleted; 0 for never."
    )
    max_traces: Count = Field(
        default=100_000, description="Most traces in a file; in memory, at most 1000."
    )
    content: Literal["none", "local", "export"] = Field(
        default="none",
        description="Whether message content is recorded: none, local (with the traces), or "
        "export (exported as well).",
    )
    capture: Literal["span_only", "event_only", "span_and_event"] = Field(
        default="span_only",
        description="Whether exported content is on spans, events or both. "
        "OTEL_INSTRUMENTATION_GENAI_COMPLETION_HOOK is not supported.",
    )
    inference_events: bool | None = Field(
        default=None,
        description="Whether model requests are also events. Empty: if content is exported on "
        "events.",
    )
    identity: bool = Field(
        default=False, description="Whether exported spans contain the user and the host."
    )
    semconv: Literal["released", "head", "dual"] = Field(
        default="released",
        description="Semantic conventions of metric names.",
    )
    export: bool | None = Field(
        default=None,
        description="Whether telemetry is exported. Empty: with an exporter, an endpoint, or a "
        "provider of OpenTelemetry in the host program.",
    )
    exporters: Words = Field(
        default=(),
        description="Exporters of spans, metrics and events: otlp-http, otlp-grpc, console, "
        "file. Empty: OTLP by the protocol, if there is an endpoint.",
    )
    protocol: Literal["http/protobuf", "grpc", "http/json", "http"] = Field(
        default="http/protobuf",
        description="Protocol of OTLP if exporters is empty. Over HTTP, protobuf is sent.",
    )
    endpoint: str = Field(
        default="",
        pattern=f"^({_ADDRESS})?$",
        description="Receiver of OTLP, such as http://localhost:4318.",
    )
    endpoints: Annotated[Mapping[str, str], BeforeValidator(read_object)] = Field(
        default={},
        description="Whole addresses for traces, metrics or logs alone.",
    )
    headers: Annotated[Mapping[str, str], BeforeValidator(read_object)] = Field(
        default={},
        description="Headers for the receiver, such as a key.",
        repr=False,
    )
    compression: Literal["none", "gzip"] = Field(default="none", description="Compression of OTLP.")
    signals: Words = Field(
        default=("traces", "metrics", "logs"),
        description="Signals to export; logs are events. Langfuse and Phoenix accept only traces.",
    )
    bridge: bool = Field(
        default=False,
        description="Whether to record spans of frameworks if the host program sets no tracer "
        "provider: ours is then installed for the process.",
    )
    http_spans: bool = Field(
        default=False,
        description="Whether to trace outgoing HTTP requests, with "
        "opentelemetry-instrumentation-httpx.",
    )
    file: str = Field(
        default="",
        description="File of the exporter file: a line of OTLP's JSON per batch. Empty: "
        ".copilot/telemetry.jsonl.",
    )
    content_form: Literal["structured", "json"] = Field(
        default="structured",
        description="Form of exported content: structured values, or a JSON string, as Arize "
        "Phoenix and others require.",
    )
    max_attribute_chars: int = Field(
        default=0, ge=0, description="Longest exported attribute; 0 for no limit."
    )
    max_queue: Count = Field(default=2048, description="Most queued spans; others are dropped.")
    export_interval: Seconds = Field(default=5, description="Seconds between exports.")
    sampler: Literal[
        "parentbased_always_on",
        "parentbased_always_off",
        "parentbased_traceidratio",
        "always_on",
        "always_off",
        "traceidratio",
    ] = Field(
        default="parentbased_always_on",
        description="Sampler of exported traces, as in OTEL_TRACES_SAMPLER. All traces are stored.",
    )
    sampler_argument: str = Field(
        default="",
        pattern=r"^(0|1|0?\.\d+|[01]\.0*|0\.\d+)?$",
        description="Ratio of the ratio-based samplers, such as 0.1.",
    )
    service_name: str = Field(
        default="copilot-runtime", min_length=1, description="Service name of exported spans."
    )
    resource_attributes: Annotated[Mapping[str, str], BeforeValidator(read_object)] = Field(
        default={}, description="Further resource attributes."
    )
    log_level: Literal["critical", "error", "warning", "info", "debug"] | None = Field(
        default=None,
        description="Log level of OpenTelemetry. Empty: the server's.",
    )
    metrics_endpoint: bool = Field(
        default=True,
        description="Whether Prometheus may read /metrics, from this machine.",
    )
    metrics_token: Annotated[str, AfterValidator(check_secret)] = Field(
        default="",
        description="Bearer token for /metrics from any machine.",
        repr=False,
    )
    receive: Literal["off", "loopback", "token"] = Field(
        default="loopback",
        description="Who may send spans by OTLP to v1/traces: no client (off), this machine "
        "(loopback), or clients with the token.",
    )
    receive_token: Annotated[str, AfterValidator(check_secret)] = Field(
        default="", description="Bearer token of these clients.", repr=False
    )
    operators: Words = Field(
        default=(),
        description="Users who may read traces. Without authentication: programs of this machine.",
    )

    _enabled_via: str = PrivateAttr(default="")

    @property
    def enabled_via(self) -> str:
        """Source of the export: envVar, setting, otlpEndpointEnvVar, storeOnly or disabled."""
        return self._enabled_via

    @property
    def is_exported(self) -> bool:
        """Whether the runtime's own exporters send telemetry to a target."""
        has_target = self.export or self.exporters or self.endpoint or self.endpoints
        return self.enabled and self.export is not False and bool(has_target)

    @field_validator("exporters")
    @classmethod
    def _are_exporters(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        return _check_names(names, TELEMETRY_EXPORTERS, "an exporter")

    @field_validator("signals")
    @classmethod
    def _are_signals(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        return _check_names(names, TELEMETRY_SIGNALS, "a signal")

    @field_validator("endpoints")
    @classmethod
    def _are_of_signals(cls, endpoints: Mapping[str, str]) -> Mapping[str, str]:
        _check_names(tuple(endpoints), TELEMETRY_SIGNALS, "a signal")
        for signal, address in endpoints.items():
            if not re.fullmatch(_ADDRESS, address):
                raise ValueError(f"The address for {signal} {_ADDRESS_RULE}")
        return endpoints

    @field_validator("endpoint", mode="before")
    @classmethod
    def _is_address(cls, endpoint: Any) -> Any:
        if isinstance(endpoint, str) and endpoint and not re.fullmatch(_ADDRESS, endpoint):
            raise ValueError(_ADDRESS_RULE)
        return endpoint

    @model_validator(mode="after")
    def _find_origin(self, info: ValidationInfo) -> "TelemetrySettings":
        """Record which kind of setting enabled the export, in the precedence of VS Code."""
        if info.context is not None or not self._enabled_via:
            self._enabled_via = self._describe_origin(getattr(info.context, "overrides", {}))
        return self

    def _describe_origin(self, overrides: Mapping[str, str]) -> str:
        if not self.is_exported:
            return "storeOnly" if self.enabled and self.store != "none" else "disabled"
        switches = ("telemetry.export", "telemetry.exporters")
        if any(name in overrides for name in switches):
            return "envVar"
        if self.export or self.exporters:
            return "setting"
        endpoint = overrides.get("telemetry.endpoint") or overrides.get("telemetry.endpoints")
        if endpoint is None:
            return "setting"
        return "otlpEndpointEnvVar" if "OTEL" in endpoint else "envVar"

    @property
    def receives(self) -> bool:
        """Whether spans of other processes are accepted."""
        return self.enabled and self.receive != "off"

    @model_validator(mode="after")
    def _check_token(self) -> Self:
        if self.receive == "token" and not self.receive_token:
            raise ValueError("receive is 'token', so receive_token must be set")
        return self


def _check_names(names: tuple[str, ...], choices: tuple[str, ...], noun: str) -> tuple[str, ...]:
    """Return names. Raises `ValueError` for a name that is not one of the choices."""
    for name in names:
        if name not in choices:
            raise ValueError(f"{name!r} is not {noun}: there are {', '.join(choices)}")
    return names
