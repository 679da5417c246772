"""A provider of the host program is used, and never replaced; spans of frameworks come to us."""

import ast
import subprocess
import sys
from collections.abc import Iterator, Sequence

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from copilot_runtime import action
from copilot_runtime.extensions.tracing.build import build_telemetry
from copilot_runtime.extensions.tracing.options import TelemetryOptions
from copilot_runtime.extensions.tracing.store.store import TraceStore
from copilot_runtime.telemetry import (
    LocalTelemetry,
    Telemetry,
    parse_traceparent,
    semconv,
    work_under,
)
from copilot_runtime.testing import call, say
from tests.extensions.mcp.server.clients import over_memory
from tests.extensions.tracing.otel.receivers import serve_http
from tests.runs import runtime_of
from tests.sources import PACKAGE, read_nodes
from tests.telemetry.test_spans import PARENT, run
from tests.transports import served

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("no_provider")]


CHAT = {semconv.OPERATION_NAME: semconv.CHAT}


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def provider(exporter: InMemorySpanExporter) -> Iterator[TracerProvider]:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield provider
    provider.shutdown()


def store_of(telemetry: Telemetry) -> TraceStore:
    assert isinstance(telemetry, LocalTelemetry)
    assert isinstance(telemetry.store, TraceStore)
    return telemetry.store


async def test_a_hosts_provider_gets_our_spans_and_no_exporter_of_ours(
    provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    with serve_http() as inbox:
        telemetry = build_telemetry(TelemetryOptions(endpoint=inbox.url, signals=("traces",)))
        trace.set_tracer_provider(provider)  # after our runtime was made
        await telemetry.open()
        await run(runtime_of(say("Hi."), telemetry=telemetry))
        await telemetry.aclose()
    assert telemetry.describe()["enabled"]
    names = [span.name for span in exporter.get_finished_spans()]
    assert names == ["chat", "invoke_agent default"]
    assert inbox.spans == []
    assert trace.get_tracer_provider() is provider


async def test_a_request_of_mcp_is_one_span_though_its_package_traces_as_well(
    provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    trace.set_tracer_provider(provider)
    telemetry = build_telemetry(TelemetryOptions())
    async with over_memory(served.runtime_of(telemetry=telemetry)) as session:
        await session.call_tool("add", {"a": 1})
    requests = [it for it in exporter.get_finished_spans() if it.kind is trace.SpanKind.SERVER]
    calls = [it for it in requests if it.name.startswith("tools/call")]
    assert {it.instrumentation_scope.name for it in requests if it.instrumentation_scope} == {
        semconv.SCOPE
    }
    assert [it.name for it in calls] == ["tools/call add"]
    assert "initialize" in {it.name for it in requests}
    assert semconv.CLIENT_ADDRESS not in (calls[0].attributes or {})


async def test_a_provider_is_found_without_a_server_that_says_when_it_starts(
    provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    telemetry = build_telemetry(TelemetryOptions())
    trace.set_tracer_provider(provider)
    telemetry.start_span("chat", attributes=CHAT).end()
    assert [span.name for span in exporter.get_finished_spans()] == ["chat"]
    assert telemetry.describe()["provider"] == "host"


async def test_spans_of_frameworks_are_below_ours_and_in_our_store(
    provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    @action
    async def work() -> str:
        """Work as a framework does, which knows nothing of us."""
        with trace.get_tracer("framework").start_as_current_span("inner", attributes={"n": (1,)}):
            return "done"

    trace.set_tracer_provider(provider)
    telemetry = build_telemetry(TelemetryOptions())
    await run(runtime_of(call("work", {}), say("Hi."), sources=[[work]], telemetry=telemetry))
    spans: dict[str, ReadableSpan] = {span.name: span for span in exporter.get_finished_spans()}
    tool, inner = spans["execute_tool work"], spans["inner"]
    assert inner.parent is not None
    assert tool.context is not None
    assert inner.context is not None
    assert inner.parent.span_id == tool.context.span_id
    (summary,) = await store_of(telemetry).list_traces()
    trace_id = f"{inner.context.trace_id:032x}"
    found = await store_of(telemetry).get_trace(trace_id)
    kept = {record["name"]: record for record in found}
    assert kept["inner"]["parent_span_id"] == kept["execute_tool work"]["span_id"]
    assert kept["inner"]["scope"] == {"name": "framework"}
    assert kept["inner"]["attributes"] == {"n": [1]}
    assert summary.trace_id == trace_id


async def test_our_run_is_below_a_span_of_the_host(
    provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    trace.set_tracer_provider(provider)
    telemetry = build_telemetry(TelemetryOptions())
    with trace.get_tracer("host").start_as_current_span("POST /graphql") as host:
        telemetry.start_span("chat", attributes=CHAT).end()
        ids = host.get_span_context()
        client = parse_traceparent(f"00-{ids.trace_id:032x}-{'1' * 16}-01")
        telemetry.start_span("chat", attributes=CHAT, parent=client).end()
    first, second, above = exporter.get_finished_spans()
    for span in (first, second):
        assert span.parent is not None
        assert span.parent == above.context


async def test_a_client_of_another_trace_is_the_parent() -> None:
    with serve_http() as inbox:
        telemetry = build_telemetry(TelemetryOptions(endpoint=inbox.url, signals=("traces",)))
        client = parse_traceparent(PARENT, "vendor=1")
        span = telemetry.start_span("chat", attributes=CHAT, parent=client)
        span.end()
        await telemetry.aclose()
    assert client is not None
    assert (span.trace_id, span.parent_id, span.state) == (
        client.trace_id,
        client.span_id,
        "vendor=1",
    )
    assert inbox.spans[0].parent_span_id.hex() == client.span_id
    assert inbox.spans[0].trace_state == "vendor=1"


async def test_what_stays_here_hands_its_parent_on() -> None:
    with serve_http() as inbox:
        telemetry = build_telemetry(TelemetryOptions(endpoint=inbox.url, signals=("traces",)))
        root = telemetry.start_span("chat", attributes=CHAT)
        step = root.start_child("step", attributes={semconv.OPERATION_NAME: semconv.AGENT_STEP})
        leaf = step.start_child("chat", attributes=CHAT)
        for span in (leaf, step, root):
            span.end()
        await telemetry.aclose()
    assert (leaf.parent_id, step.parent_id) == (step.span_id, root.span_id)
    assert [span.span_id.hex() for span in inbox.spans] == [leaf.span_id, root.span_id]
    assert inbox.spans[0].parent_span_id.hex() == root.span_id


async def test_a_provider_that_is_switched_off_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    trace.set_tracer_provider(TracerProvider(shutdown_on_exit=False))
    telemetry = build_telemetry(TelemetryOptions())
    root = telemetry.start_span("chat", attributes=CHAT)
    child = root.start_child("chat", attributes=CHAT)
    assert int(root.trace_id, 16)
    assert (child.trace_id, child.parent_id) == (root.trace_id, root.span_id)
    assert child.span_id != root.span_id


async def test_no_export_means_that_the_hosts_provider_gets_nothing_either(
    provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    trace.set_tracer_provider(provider)
    telemetry = build_telemetry(TelemetryOptions(export=False))
    telemetry.start_span("chat", attributes=CHAT).end()
    assert exporter.get_finished_spans() == ()


async def test_content_does_not_reach_the_exporters_of_a_host(
    provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    trace.set_tracer_provider(provider)
    telemetry = build_telemetry(TelemetryOptions(content="local"))
    span = telemetry.start_span("chat", attributes={**CHAT, semconv.USER_NAME: "ann"})
    span.set_content({semconv.INPUT_MESSAGES: "canary"})
    span.fail(ValueError("canary"))
    said = {semconv.EXCEPTION_MESSAGE: "canary"}
    telemetry.log_event(semconv.EVENT_EXCEPTION, {}, span=span, content=said)
    span.end()
    output = exporter.get_finished_spans()[0].to_json()
    assert "canary" not in output
    assert "ann" not in output


async def test_with_the_bridge_frameworks_use_our_provider_where_there_is_none() -> None:
    with serve_http() as inbox:
        telemetry = build_telemetry(
            TelemetryOptions(endpoint=inbox.url, bridge=True, signals=("traces",))
        )
        await telemetry.open()
        span = telemetry.start_span("chat", attributes=CHAT)
        with work_under(span), trace.get_tracer("framework").start_as_current_span("inner"):
            pass
        span.end()
        await telemetry.aclose()
    inner = next(one for one in inbox.spans if one.name == "inner")
    assert inner.parent_span_id.hex() == span.span_id


async def test_a_second_runtime_does_not_take_the_first_ones_provider_for_a_hosts() -> None:
    first = build_telemetry(TelemetryOptions(bridge=True))
    second = build_telemetry(TelemetryOptions(bridge=True, export=None))
    await first.open()
    second.start_span("chat", attributes=CHAT).end()
    assert second.describe()["provider"] == "own"


async def test_a_live_view_shows_spans_of_frameworks_until_the_server_ends(
    provider: TracerProvider,
) -> None:
    trace.set_tracer_provider(provider)
    telemetry = build_telemetry(TelemetryOptions())
    await telemetry.open()
    seen: list[str] = []
    telemetry.listen(lambda span, phase: seen.append(f"{phase} {span.name}"))
    tracer = trace.get_tracer("framework")
    tracer.start_span("inner", attributes={semconv.REQUEST_MODEL: "m"}).end()
    await telemetry.aclose()
    tracer.start_span("later", attributes={semconv.REQUEST_MODEL: "m"}).end()
    assert seen == ["end inner"]


def _imports(nodes: Sequence[ast.AST]) -> set[str]:
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.add((node.module or "").partition(".")[0])
    return names


def test_only_one_folder_imports_opentelemetry() -> None:
    found = {
        path.parent for path, nodes in read_nodes().items() if "opentelemetry" in _imports(nodes)
    }
    assert found == {PACKAGE / "extensions" / "tracing" / "otel"}


def test_a_runtime_that_exports_nothing_does_not_load_it() -> None:
    code = (
        "import sys; from copilot_runtime import CopilotRuntime, Settings; "
        "from copilot_runtime.adapters.empty import EmptyAdapter; "
        "runtime = CopilotRuntime(EmptyAdapter(), settings=Settings(threads='memory')); "
        "runtime.telemetry.start_span('chat').end(); "
        "assert 'opentelemetry' not in sys.modules, 'it is loaded'"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
