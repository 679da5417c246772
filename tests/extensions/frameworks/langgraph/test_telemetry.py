"""A graph on a server that traces itself by OpenTelemetry: its spans are in our trace."""

import asyncio
import json
from pathlib import Path
from uuid import UUID

import pytest

from copilot_runtime import CopilotRuntime, Settings
from copilot_runtime.adapters.scripted import ScriptedAdapter, call, say
from copilot_runtime.extensions.frameworks.langgraph import LangGraphAgent
from copilot_runtime.extensions.tracing.store import MemoryTraceStore
from copilot_runtime.telemetry import LocalTelemetry, Span, semconv
from copilot_runtime.testing import Client
from tests.extensions.frameworks.langgraph.dev import graphs_of
from tests.wire_agui.server import PATH, serving

pytestmark = pytest.mark.anyio

STREAM = "POST /threads/{thread_id}/runs/stream"
"""The server calls the span of a request by its route."""

GRAPH = """
from langgraph.graph import END, START, MessagesState, StateGraph
from langchain_core.messages import AIMessage
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.propagate import extract
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from starlette.applications import Starlette

provider = TracerProvider(resource=Resource({{"service.name": "graphs"}}))
exporter = OTLPSpanExporter("{endpoint}/v1/traces")
provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=100))
trace.set_tracer_provider(provider)


class Traced:
    # what the package opentelemetry-instrumentation-asgi does

    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        headers = {{name.decode(): value.decode() for name, value in scope.get("headers", ())}}
        if "traceparent" not in headers:
            return await self.app(scope, receive, send)
        tracer, kind = trace.get_tracer("asgi"), trace.SpanKind.SERVER
        name = scope["method"] + " " + scope["path"].rpartition("/")[2]
        with tracer.start_as_current_span(name, context=extract(headers), kind=kind):
            await self.app(scope, receive, send)


app = Starlette()
app.add_middleware(Traced)


def answer(state):
    with trace.get_tracer("graph").start_as_current_span("work"):
        return {{"messages": [AIMessage("It is done.")]}}


graph = StateGraph(MessagesState).add_node("answer", answer)
graph = graph.add_edge(START, "answer").add_edge("answer", END).compile()
"""


async def test_one_trace_has_the_chat_its_subagent_and_what_the_graph_traced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryTraceStore()
    runtime = CopilotRuntime(
        ScriptedAdapter(call("far", {}), say("Done.")),
        settings=Settings(threads="memory"),
        telemetry=LocalTelemetry(store),
    )
    names: set[str] = set()
    arrival = asyncio.Event()

    def listen(span: Span, phase: str) -> None:
        names.add(span.name)
        if phase == "end" and {STREAM, "worker.stream_run", "work"} <= names:
            arrival.set()

    runtime.telemetry.listen(listen)
    async with serving(runtime.app(path=PATH)) as port:
        endpoint = f"http://127.0.0.1:{port}"
        (tmp_path / "graph.py").write_text(GRAPH.format(endpoint=endpoint))
        config = tmp_path / "langgraph.json"
        wanted = {
            "dependencies": ["."],
            "graphs": {"far": "./graph.py:graph"},
            "http": {"app": f"{tmp_path / 'graph.py'}:app"},
        }
        config.write_text(json.dumps(wanted))
        monkeypatch.setenv("OTEL_ENABLED", "true")
        (tmp_path / "server").mkdir()
        with graphs_of(config, tmp_path / "server") as url:
            asking = CopilotRuntime(
                ScriptedAdapter(call("far", {}), say("Done.")),
                agents={"far": LangGraphAgent(url, graph="far")},
                settings=Settings(threads="memory"),
                telemetry=runtime.telemetry,
            )
            async with Client(asking, protocol="graphql") as client:
                await client.say("Hi")
            await arrival.wait()  # while the server of the graph is still there
        traces = [await store.get_trace(one.trace_id) for one in await store.list_traces()]
    named = [{span["name"]: span for span in trace} for trace in traces]
    [spans] = [trace for trace in named if "invoke_agent far" in trace]
    chat, far = spans["invoke_agent default"], spans["invoke_agent far"]
    assert UUID(far["attributes"][semconv.AGENT_ID])
    asked, worker, work = spans[STREAM], spans["worker.stream_run"], spans["work"]
    call_of_far = spans["execute_tool far"]
    assert call_of_far["parent_span_id"] == chat["span_id"]
    assert far["parent_span_id"] == call_of_far["span_id"]
    assert asked["parent_span_id"] == far["span_id"]
    assert worker["parent_span_id"] == asked["span_id"]
    assert work["parent_span_id"] == worker["span_id"]
    assert work["resource"]["attributes"][semconv.SERVICE_NAME] == "graphs"
    assert spans["agent_step answer"]["parent_span_id"] == far["span_id"]
