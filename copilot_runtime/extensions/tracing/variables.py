"""Telemetry settings from environment variables of other programs, and their precedence.

Highest first: COPILOT_OTEL_* as in VS Code, our own COPILOT_TELEMETRY_*, TRACING_MODE with
LANGFUSE_*, the standard OTEL_* of OpenTelemetry, and then the settings file.
"""

from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, cast
from urllib.parse import unquote

from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.config.section import Override, SectionVariables
from copilot_runtime.telemetry.semconv import SERVICE_NAME

OWN_PREFIX = "COPILOT_OTEL_"
MODE = "TRACING_MODE"
LANGFUSE_VARIABLES = ("LANGFUSE_PUBLIC_KEY", "LANGFUSE_SECRET_KEY", "LANGFUSE_BASE_URL")
LANGFUSE_CLOUD = "https://cloud.langfuse.com"
CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"

_MODES = ("langfuse", "otlp", "console", "file", "sqlite")
_NO_MODES = ("", "none", "noop", "off", "unset")
_YES = ("true", "1", "yes", "on")
_NO = ("false", "0", "no", "off")
_CAPTURES = ("span_only", "event_only", "span_and_event")
_SIGNALS = {
    "traces": "OTEL_TRACES_EXPORTER",
    "metrics": "OTEL_METRICS_EXPORTER",
    "logs": "OTEL_LOGS_EXPORTER",
}
_CLOSE = 0.94


def read_shared_variables(section: Mapping[str, Any], environ: Mapping[str, str]) -> list[Override]:
    """Return overrides from the variables shared with other programs; the last one wins."""
    _reject_misspelt(environ)
    found = [*_read_plain(_SHARED, environ)]
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        found.append(Override("export", False, "OTEL_SDK_DISABLED"))
    if attributes := _read_pairs("OTEL_RESOURCE_ATTRIBUTES", environ):
        variable = "OTEL_RESOURCE_ATTRIBUTES"
        if (name := attributes.pop(SERVICE_NAME, "")) and not environ.get("OTEL_SERVICE_NAME"):
            found.append(Override("service_name", name, variable))
        merged = {**_mapping(section.get("resource_attributes")), **attributes}
        found.append(Override("resource_attributes", merged, variable))
    if headers := _read_pairs("OTEL_EXPORTER_OTLP_HEADERS", environ):
        found.append(Override("headers", headers, "OTEL_EXPORTER_OTLP_HEADERS"))
    if not any(environ.get(name, "").strip() for name in _OWN_ENDPOINTS):
        found += _read_endpoints(environ)
    found += _read_signals(section, environ)
    if (text := environ.get(CAPTURE, "").strip()) and (found_capture := _read_capture(text)):
        found += [
            Override(key, value, CAPTURE) for key, value in _capture(found_capture, section).items()
        ]
    return [*found, *_read_mode(environ)]


def read_own_variables(section: Mapping[str, Any], environ: Mapping[str, str]) -> list[Override]:
    """Return overrides from the COPILOT_OTEL_* variables, which take precedence over all others."""
    found = [*_read_plain(_OWN, environ)]
    if environ.get("COPILOT_OTEL_ENDPOINT", "").strip():  # of all signals
        found.append(Override("endpoints", {}, "COPILOT_OTEL_ENDPOINT"))
    if path := environ.get("COPILOT_OTEL_FILE_EXPORTER_PATH", ""):
        variable = "COPILOT_OTEL_FILE_EXPORTER_PATH"
        found += [Override("exporters", ("file",), variable), Override("file", path, variable)]
    variable = "COPILOT_OTEL_CAPTURE_CONTENT"
    if text := environ.get(variable, "").strip():
        capture = "same" if _read_switch(variable, text) else ""
        found += [
            Override(key, value, variable) for key, value in _capture(capture, section).items()
        ]
    return found


def own_variables() -> list[str]:
    """Return the names of the variables COPILOT_OTEL_*."""
    others = ("CAPTURE_CONTENT", "FILE_EXPORTER_PATH")
    return [*_OWN, *(f"{OWN_PREFIX}{name}" for name in others)]


def _level(text: str) -> str:
    """Return Python's name of a log level, in lower case."""
    return {"trace": "debug", "warn": "warning", "none": "critical"}.get(text.lower(), text.lower())


def _milliseconds(text: str) -> Any:
    return float(text) / 1000 if text.replace(".", "", 1).isdigit() else text


def _same(text: str) -> str:
    return text


Rules = Mapping[str, tuple[str, Callable[[str], Any]]]

_OWN: Rules = {
    "COPILOT_OTEL_ENABLED": ("export", _same),
    "COPILOT_OTEL_ENDPOINT": ("endpoint", _same),
    "COPILOT_OTEL_PROTOCOL": ("protocol", str.lower),
    "COPILOT_OTEL_CAPTURE_IDENTITY": ("identity", _same),
    "COPILOT_OTEL_MAX_ATTRIBUTE_SIZE_CHARS": ("max_attribute_chars", _same),
    "COPILOT_OTEL_LOG_LEVEL": ("log_level", _level),
    "COPILOT_OTEL_HTTP_INSTRUMENTATION": ("http_spans", _same),
}
_OWN_ENDPOINTS = ("COPILOT_OTEL_ENDPOINT", "COPILOT_TELEMETRY_ENDPOINT")
"""Variables that also take precedence over the OTEL_* endpoints of single signals."""
_SHARED: Rules = {
    "OTEL_EXPORTER_OTLP_ENDPOINT": ("endpoint", _same),
    "OTEL_EXPORTER_OTLP_PROTOCOL": ("protocol", str.lower),
    "OTEL_EXPORTER_OTLP_COMPRESSION": ("compression", str.lower),
    "OTEL_SERVICE_NAME": ("service_name", _same),
    "OTEL_TRACES_SAMPLER": ("sampler", str.lower),
    "OTEL_TRACES_SAMPLER_ARG": ("sampler_argument", _same),
    "OTEL_BSP_SCHEDULE_DELAY": ("export_interval", _milliseconds),
    "OTEL_BSP_MAX_QUEUE_SIZE": ("max_queue", _same),
    "OTEL_INSTRUMENTATION_GENAI_EMIT_EVENT": ("inference_events", _same),
}
_NAMES = (
    *_SHARED,
    *_SIGNALS.values(),
    *("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_RESOURCE_ATTRIBUTES", "OTEL_SDK_DISABLED", CAPTURE),
    *(f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT" for signal in _SIGNALS),
    *(MODE, *LANGFUSE_VARIABLES),
)
_NEIGHBOURS = frozenset(
    [
        f"OTEL_EXPORTER_OTLP_{part}{name}"
        for part in ("", "TRACES_", "METRICS_", "LOGS_", "SPAN_")
        for name in ("ENDPOINT", "PROTOCOL", "HEADERS", "COMPRESSION", "TIMEOUT", "CERTIFICATE")
    ]
)
"""Variables of the SDK with similar names, which are not misspellings of the above."""


def _read_plain(rules: Rules, environ: Mapping[str, str]) -> Iterator[Override]:
    for variable, (key, read) in rules.items():
        if text := environ.get(variable, "").strip():
            yield Override(key, read(text), variable)


def _read_endpoints(environ: Mapping[str, str]) -> Iterator[Override]:
    """Yield the endpoints of single signals, which are used unchanged."""
    variables = {signal: f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT" for signal in _SIGNALS}
    endpoints = {
        signal: text
        for signal, variable in variables.items()
        if (text := environ.get(variable, "").strip())
    }
    if endpoints:
        yield Override("endpoints", endpoints, variables[next(iter(endpoints))])


def _read_signals(section: Mapping[str, Any], environ: Mapping[str, str]) -> Iterator[Override]:
    """Yield the exported signals: all but those whose exporter is `none`."""
    off = [signal for signal, name in _SIGNALS.items() if environ.get(name, "").strip() == "none"]
    if off:
        before = section.get("signals", tuple(_SIGNALS))
        signals = tuple(signal for signal in before if signal not in off)
        yield Override("signals", signals, _SIGNALS[off[0]])


def _read_mode(environ: Mapping[str, str]) -> Iterator[Override]:
    """Yield the overrides that TRACING_MODE implies."""
    mode = environ.get(MODE, "").strip().lower()
    if mode in _NO_MODES:
        return
    if mode not in _MODES:
        raise ConfigurationFailed(
            f"The environment variable {MODE} is {mode!r}, but there are {', '.join(_MODES)}.",
            hint="Leave it out to export nothing; runs are then traced on this machine alone.",
        )
    if mode == "langfuse":
        yield from _read_langfuse(environ)
    elif mode == "sqlite":
        yield Override("store", "sqlite:.copilot/traces.db", MODE)
    elif mode == "otlp":
        yield Override("export", True, MODE)
    else:
        yield Override("exporters", (mode,), MODE)


def _read_langfuse(environ: Mapping[str, str]) -> Iterator[Override]:
    """Yield the endpoint and credentials of Langfuse, which accepts only spans."""
    if missing := [name for name in LANGFUSE_VARIABLES[:2] if not environ.get(name, "").strip()]:
        raise ConfigurationFailed(
            f"The environment variable {MODE} is 'langfuse', but {' and '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} not set.",
            hint="Langfuse shows both keys in the settings of a project, under API Keys.",
        )
    if any(environ.get(name) for name in (*_OWN_ENDPOINTS, "COPILOT_TELEMETRY_ENDPOINTS")):
        return  # the keys are for Langfuse alone
    public, secret = (environ[name].strip() for name in LANGFUSE_VARIABLES[:2])
    base = environ.get(LANGFUSE_VARIABLES[2], "").strip() or LANGFUSE_CLOUD
    key = b64encode(f"{public}:{secret}".encode()).decode()
    yield Override("endpoint", f"{base.rstrip('/')}/api/public/otel", LANGFUSE_VARIABLES[2])
    yield Override("endpoints", {}, MODE)
    yield Override("headers", {"authorization": f"Basic {key}"}, LANGFUSE_VARIABLES[1])
    yield Override("exporters", ("otlp-http",), MODE)
    yield Override("signals", ("traces",), MODE)


def _read_capture(text: str) -> str:
    """Parse the capture mode; `none` disables the export of content, and `true` means on spans."""
    name = text.lower()
    if name in _NO or name == "no_content":
        return "none"
    if name in _YES:
        return "span_only"
    if name in _CAPTURES:
        return name
    raise ConfigurationFailed(
        f"The environment variable {CAPTURE} is {text!r}.",
        hint="It is NO_CONTENT, SPAN_ONLY, EVENT_ONLY or SPAN_AND_EVENT; true means SPAN_ONLY.",
    )


def _capture(capture: str, section: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings for a capture mode. Without a mode, local storage of content is kept."""
    if capture in ("", "none"):
        before = section.get("content", "none")
        return {"content": "local" if before in ("local", "export") else "none"}
    return {"content": "export"} if capture == "same" else {"content": "export", "capture": capture}


def _read_switch(variable: str, text: str) -> bool:
    if text.lower() in (*_YES, *_NO):
        return text.lower() in _YES
    raise ConfigurationFailed(
        f"The environment variable {variable} is {text!r}.", hint="It is true or false."
    )


def _read_pairs(variable: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Parse a list such as `name=value,name=value`, with percent-encoded names and values."""
    pairs: dict[str, str] = {}
    for part in environ.get(variable, "").split(","):
        name, equals, value = part.strip().partition("=")
        if equals and name.strip():
            pairs[unquote(name.strip())] = unquote(value.strip())
        elif part.strip():
            raise ConfigurationFailed(
                f"The environment variable {variable} has a part without '='.",
                hint="It is a list such as name=value,other=value; a comma in a value is %2C.",
            )
    return pairs


def _mapping(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _reject_misspelt(environ: Mapping[str, str]) -> None:
    """Raise `ConfigurationFailed` for a misspelt variable name."""
    for variable in environ:
        if not variable.startswith(("OTEL_", "LANGFUSE_", "TRACING_")):
            continue
        if variable in _NAMES or variable in _NEIGHBOURS:
            continue
        if close := get_close_matches(variable, _NAMES, n=1, cutoff=_CLOSE):
            raise ConfigurationFailed(
                f"The environment variable {variable} sets nothing. Did you mean {close[0]}?",
                hint="docs/telemetry/export.md lists the variables that are read.",
            )


TELEMETRY = SectionVariables(
    section="telemetry",
    names=own_variables(),
    read_before=read_shared_variables,
    read_after=read_own_variables,
)
