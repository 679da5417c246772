"""Which variable says what becomes of telemetry, and in which order they count."""

from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from copilot_runtime import CopilotRuntime, Settings
from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.cli.main import cli
from copilot_runtime.extensions.settings import load_settings
from copilot_runtime.extensions.tracing.settings import TelemetrySettings
from tests.extensions.tracing.otel.receivers import serve_http
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

LANGFUSE = {
    "TRACING_MODE": "langfuse",
    "LANGFUSE_PUBLIC_KEY": "pk-lf-1",
    "LANGFUSE_SECRET_KEY": "sk-lf-2",
    "LANGFUSE_BASE_URL": "https://langfuse.example.com/",
}


def read(
    environ: Mapping[str, str], text: str = "", tmp_path: Path = Path("/nowhere")
) -> TelemetrySettings:
    if not text:
        return load_settings(environ=environ).telemetry
    file = tmp_path / "copilot.yml"
    file.write_text(text)
    return load_settings(file, environ).telemetry


@in_one_test(
    ("variable", "text", "key", "value"),
    [
        ("COPILOT_OTEL_ENABLED", "true", "export", True),
        ("COPILOT_OTEL_ENDPOINT", "http://a:1", "endpoint", "http://a:1"),
        ("COPILOT_OTEL_PROTOCOL", "grpc", "protocol", "grpc"),
        ("COPILOT_OTEL_CAPTURE_CONTENT", "true", "content", "export"),
        ("COPILOT_OTEL_CAPTURE_CONTENT", "false", "content", "none"),
        ("COPILOT_OTEL_CAPTURE_IDENTITY", "1", "identity", True),
        ("COPILOT_OTEL_MAX_ATTRIBUTE_SIZE_CHARS", "99", "max_attribute_chars", 99),
        ("COPILOT_OTEL_LOG_LEVEL", "trace", "log_level", "debug"),
        ("COPILOT_OTEL_FILE_EXPORTER_PATH", "/x", "exporters", ("file",)),
        ("COPILOT_OTEL_FILE_EXPORTER_PATH", "/x", "file", "/x"),
        ("COPILOT_OTEL_HTTP_INSTRUMENTATION", "true", "http_spans", True),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a:1", "endpoint", "http://a:1"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "protocol", "grpc"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip", "compression", "gzip"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "a=b%2Cc, d=e", "headers", {"a": "b,c", "d": "e"}),
        (
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
            "http://a/x",
            "endpoints",
            {"traces": "http://a/x"},
        ),
        ("OTEL_SERVICE_NAME", "shop", "service_name", "shop"),
        ("OTEL_RESOURCE_ATTRIBUTES", "service.name=shop", "service_name", "shop"),
        ("OTEL_RESOURCE_ATTRIBUTES", "a=b", "resource_attributes", {"a": "b"}),
        ("OTEL_METRICS_EXPORTER", "none", "signals", ("traces", "logs")),
        ("OTEL_SDK_DISABLED", "true", "export", False),
        ("OTEL_TRACES_SAMPLER", "always_off", "sampler", "always_off"),
        ("OTEL_TRACES_SAMPLER_ARG", "0.25", "sampler_argument", "0.25"),
        ("OTEL_BSP_SCHEDULE_DELAY", "250", "export_interval", 0.25),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "7", "max_queue", 7),
        ("OTEL_INSTRUMENTATION_GENAI_EMIT_EVENT", "true", "inference_events", True),
        ("TRACING_MODE", "otlp", "export", True),
        ("TRACING_MODE", "console", "exporters", ("console",)),
        ("TRACING_MODE", "file", "exporters", ("file",)),
        ("TRACING_MODE", "sqlite", "store", "sqlite:.copilot/traces.db"),
        ("TRACING_MODE", "noop", "export", None),
    ],
)
def test_a_variable_says_one_thing(variable: str, text: str, key: str, value: Any) -> None:
    assert getattr(read({variable: text}), key) == value


@in_one_test(
    ("text", "content", "capture"),
    [
        ("true", "export", "span_only"),
        ("SPAN_ONLY", "export", "span_only"),
        ("event_only", "export", "event_only"),
        ("SPAN_AND_EVENT", "export", "span_and_event"),
        ("NO_CONTENT", "none", "span_only"),
        ("false", "none", "span_only"),
    ],
)
def test_content_is_captured_as_opentelemetry_has_it(text: str, content: str, capture: str) -> None:
    found = read({"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": text})
    assert (found.content, found.capture) == (content, capture)


def test_what_is_kept_here_is_kept_when_its_export_is_refused(tmp_path: Path) -> None:
    text = "telemetry: {content: export}"
    assert read({"COPILOT_OTEL_CAPTURE_CONTENT": "false"}, text, tmp_path).content == "local"


def test_our_variables_win_over_those_of_all_programs_and_these_over_the_file(
    tmp_path: Path,
) -> None:
    text = "telemetry: {endpoint: 'http://file:1', service_name: file, headers: {a: file}}"
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://shared:1"}
    assert read({}, text, tmp_path).endpoint == "http://file:1"
    assert read(environ, text, tmp_path).endpoint == "http://shared:1"
    environ["COPILOT_TELEMETRY_ENDPOINT"] = "http://ours:1"
    assert read(environ, text, tmp_path).endpoint == "http://ours:1"
    environ["COPILOT_OTEL_ENDPOINT"] = "http://copilot:1"
    assert read(environ, text, tmp_path).endpoint == "http://copilot:1"
    assert read(environ, text, tmp_path).headers == {"a": "file"}


@in_one_test("variable", ["COPILOT_OTEL_ENDPOINT", "COPILOT_TELEMETRY_ENDPOINT"])
def test_our_endpoint_wins_over_that_of_a_single_signal(variable: str) -> None:
    shared = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://shared/v1/traces"}
    settings = read({**shared, variable: "http://ours:1"})
    assert (settings.endpoint, settings.endpoints) == ("http://ours:1", {})


def test_the_first_of_all_variables_names_the_receiver_of_every_signal(tmp_path: Path) -> None:
    text = "telemetry: {endpoints: {logs: 'http://file/v1/logs'}}"
    assert read({"COPILOT_OTEL_ENDPOINT": "http://a:1"}, text, tmp_path).endpoints == {}


@in_one_test(
    ("environ", "text", "origin"),
    [
        ({}, "", "storeOnly"),
        ({}, "telemetry: {enabled: false}", "disabled"),
        ({}, "telemetry: {store: none}", "disabled"),
        ({"COPILOT_OTEL_ENABLED": "true"}, "", "envVar"),
        ({"COPILOT_OTEL_ENABLED": "false"}, "telemetry: {endpoint: 'http://a'}", "storeOnly"),
        ({"TRACING_MODE": "console"}, "", "envVar"),
        ({"COPILOT_TELEMETRY_ENDPOINT": "http://a"}, "", "envVar"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a"}, "", "otlpEndpointEnvVar"),
        ({"COPILOT_OTEL_ENDPOINT": "http://a"}, "", "otlpEndpointEnvVar"),
        ({"OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": "http://a"}, "", "otlpEndpointEnvVar"),
        ({}, "telemetry: {endpoint: 'http://a'}", "setting"),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a"},
            "telemetry: {exporters: [console]}",
            "setting",
        ),
    ],
)
def test_it_is_told_what_enabled_the_export(
    environ: Mapping[str, str], text: str, origin: str, tmp_path: Path
) -> None:
    settings = read(environ, text, tmp_path)
    assert settings.enabled_via == origin
    described = CopilotRuntime(settings=Settings(telemetry=settings)).telemetry.describe()
    assert described.get("enabled_via", "disabled") == origin


@in_one_test(
    ("environ", "message"),
    [
        ({"TRACING_MODE": "lanfuse"}, "TRACING_MODE is 'lanfuse', but there are langfuse, otlp"),
        ({"TRACING_MODE": "langfuse"}, "LANGFUSE_PUBLIC_KEY and LANGFUSE_SECRET_KEY are not set"),
        ({**LANGFUSE, "LANGFUSE_SECRET_KEY": ""}, "LANGFUSE_SECRET_KEY is not set"),
        ({"COPILOT_OTEL_ENABELD": "true"}, "Did you mean COPILOT_OTEL_ENABLED?"),
        ({"OTEL_EXPORTER_OTLP_ENDPONT": "x"}, "Did you mean OTEL_EXPORTER_OTLP_ENDPOINT?"),
        ({"LANGFUSE_PUBLC_KEY": "x"}, "Did you mean LANGFUSE_PUBLIC_KEY?"),
        ({"COPILOT_OTEL_ENABLED": "maybe"}, "COPILOT_OTEL_ENABLED: 'telemetry.export' is 'maybe'"),
        ({"COPILOT_OTEL_CAPTURE_CONTENT": "maybe"}, "COPILOT_OTEL_CAPTURE_CONTENT is 'maybe'"),
        ({"COPILOT_OTEL_PROTOCOL": "udp"}, "COPILOT_OTEL_PROTOCOL: 'telemetry.protocol' is 'udp'"),
        ({"OTEL_EXPORTER_OTLP_HEADERS": "secret"}, "OTEL_EXPORTER_OTLP_HEADERS has a part without"),
        ({"OTEL_BSP_SCHEDULE_DELAY": "soon"}, "OTEL_BSP_SCHEDULE_DELAY: 'telemetry.export_interv"),
        ({"OTEL_TRACES_SAMPLER": "some"}, "OTEL_TRACES_SAMPLER: 'telemetry.sampler' is 'some'"),
        (
            {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "all"},
            "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT is 'all'",
        ),
        ({"COPILOT_TELEMETRY_EXPORTERS": "otlp"}, "'otlp' is not an exporter: there are otlp-http"),
        ({"COPILOT_TELEMETRY_SIGNALS": "spans"}, "'spans' is not a signal: there are traces"),
        ({"COPILOT_TELEMETRY_ENDPOINTS": '{"x": "y"}'}, "'x' is not a signal"),
    ],
)
def test_a_wrong_variable_is_told_with_the_way_out(
    environ: Mapping[str, str], message: str
) -> None:
    with pytest.raises(ConfigurationFailed) as caught:
        load_settings(environ=environ)
    assert message in caught.value.message
    assert caught.value.hint
    assert "secret" not in caught.value.message


@in_one_test(
    "environ",
    [
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "https://ann:se/cret@host:4318"},
        {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://ann:se/cret@host:4318"},
        {"COPILOT_OTEL_ENDPOINT": f"https://ann:{'cret' * 50}@host:4318"},
        {
            "TRACING_MODE": "langfuse",
            "LANGFUSE_BASE_URL": "https://ann:se/cret@host",
            "LANGFUSE_PUBLIC_KEY": "p",
            "LANGFUSE_SECRET_KEY": "s",
        },
    ],
)
def test_a_password_in_an_address_is_refused_and_not_repeated(environ: Mapping[str, str]) -> None:
    with pytest.raises(ConfigurationFailed) as caught:
        load_settings(environ={**environ, "COPILOT_OTEL_ENABLED": "true"})
    assert "cret" not in f"{caught.value.message} {caught.value.hint}"
    assert "those are for telemetry.headers" in caught.value.message


def test_variables_of_other_programs_are_no_mistakes() -> None:
    environ = {
        "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "a=b",
        "OTEL_PYTHON_LOG_CORRELATION": "true",
        "OTEL_INSTRUMENTATION_GENAI_COMPLETION_HOOK": "upload",
        "OTEL_INSTRUMENTATION_GENAI_UPLOAD_BASE_PATH": "content",
        "LANGFUSE_TRACING_ENVIRONMENT": "prod",
        "OTEL_SERVICE_NAME": " ",
    }
    assert load_settings(environ=environ) == Settings()


def test_langfuse_gets_spans_with_basic_authentication_at_its_own_path() -> None:
    settings = read(LANGFUSE)
    key = b64encode(b"pk-lf-1:sk-lf-2").decode()
    assert settings.endpoint == "https://langfuse.example.com/api/public/otel"
    assert settings.headers == {"authorization": f"Basic {key}"}
    assert settings.signals == ("traces",)
    assert settings.enabled_via == "envVar"


def test_the_keys_of_langfuse_go_to_no_other_address() -> None:
    other = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://other:1", "OTEL_EXPORTER_OTLP_HEADERS": "a=b"}
    assert read({**LANGFUSE, **other}).endpoint == "https://langfuse.example.com/api/public/otel"
    assert read({**LANGFUSE, "COPILOT_OTEL_ENDPOINT": "http://other:1"}).headers == {}
    elsewhere = {"COPILOT_TELEMETRY_ENDPOINTS": '{"traces": "http://other:1"}'}
    assert read({**LANGFUSE, **elsewhere}).headers == {}


async def test_langfuse_on_loopback_gets_what_it_wants() -> None:
    with serve_http() as inbox:
        telemetry = read({**LANGFUSE, "LANGFUSE_BASE_URL": inbox.url})
        runtime = CopilotRuntime(settings=Settings(telemetry=telemetry, threads="memory"))
        runtime.telemetry.start_span("chat", attributes={"gen_ai.operation.name": "chat"}).end()
        await runtime.telemetry.aclose()
    assert inbox.paths == ["/api/public/otel/v1/traces"]
    assert inbox.headers[0]["authorization"].startswith("Basic ")


def show(environ: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> str:
    """Return what `copilot-runtime settings` prints."""
    for name, text in environ.items():
        monkeypatch.setenv(name, text)
    result = CliRunner().invoke(cli, ["settings"])
    assert result.exit_code == 0
    return result.output


def line_of(output: str, setting: str) -> list[str]:
    (line,) = [line.split() for line in output.splitlines() if line.split()[:1] == [setting]]
    return line


def test_the_command_says_where_each_value_came_from_and_what_enabled_the_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "copilot.yml").write_text("port: 1\ntelemetry:\n  service_name: shop\n")
    output = show({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a:1"}, monkeypatch)
    for setting, value, source in (
        ("port", "1", "[copilot.yml:1]"),
        ("telemetry.service_name", "shop", "[copilot.yml:3]"),
        ("telemetry.endpoint", "http://a:1", "[OTEL_EXPORTER_OTLP_ENDPOINT]"),
    ):
        line = line_of(output, setting)
        assert (line[2], line[-1]) == (value, source)
    assert line_of(output, "telemetry.semconv")[-1] == "names."
    last = "Telemetry is exported by OTLP (http/protobuf) to http://a:1 (otlpEndpointEnvVar)."
    assert output.splitlines()[-1] == last


@in_one_test(
    ("environ", "sentence"),
    [
        ({}, "Telemetry goes only into the store (storeOnly)."),
        ({"COPILOT_TELEMETRY_ENABLED": "false"}, "Telemetry goes nowhere (disabled)."),
        ({"TRACING_MODE": "console"}, "Telemetry is exported by console (envVar)."),
    ],
)
def test_the_command_says_where_telemetry_goes(
    environ: Mapping[str, str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert show(environ, monkeypatch).splitlines()[-1] == sentence


def test_no_message_and_no_table_has_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = load_settings(environ=LANGFUSE)
    output = show({**LANGFUSE, "COPILOT_TELEMETRY_METRICS_TOKEN": "token-1"}, monkeypatch)
    assert "Basic" not in repr(settings) + output
    assert "token-1" not in output
    assert line_of(output, "telemetry.headers")[2] == "authorization"


@in_one_test("address", ["collector", "ftp://collector", "http://me:secret@collector"])
def test_the_address_of_a_signal_is_one(address: str) -> None:
    with pytest.raises(
        ValueError, match=r"The address for traces should begin with http"
    ) as caught:
        TelemetrySettings(endpoints={"traces": address})
    assert "secret" not in str(caught.value).partition("[type=")[0]
