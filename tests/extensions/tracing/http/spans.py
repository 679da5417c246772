"""Spans of a small run, as stores keep them, and a server whose traces may be read."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from starlette.requests import HTTPConnection
from starlette.testclient import TestClient

from copilot_runtime import CopilotRuntime, DemoAdapter, Settings
from copilot_runtime.extensions.tracing.store import (
    MemoryTraceStore,
    Record,
    TraceStore,
    decode_span,
)
from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.telemetry import LocalTelemetry, Telemetry

SECOND = 10**9
START = 1_767_268_800 * SECOND
LOCAL = "http://127.0.0.1:8000"


def span(
    name: str,
    *,
    id: str,
    parent: str = "",
    trace: str = "a" * 32,
    start: float = 0,
    seconds: float = 1,
    error: str = "",
    message: str = "",
    kind: int = 1,
    content: dict[str, Any] | None = None,
    events: list[Record] | None = None,
    **attributes: Any,
) -> Record:
    """Return a record; attributes are named as in `semconv`, such as `AGENT_NAME`."""
    of = {getattr(semconv, key, key): value for key, value in attributes.items()}
    if error:
        of[semconv.ERROR_TYPE] = error
    first = START + int(start * SECOND)
    return {
        "trace_id": trace,
        "span_id": id,
        "parent_span_id": parent,
        "name": name,
        "kind": kind,
        "start_time_unix_nano": first,
        "end_time_unix_nano": first + int(seconds * SECOND),
        "attributes": of,
        "events": events or [],
        "status": {"code": 2 if error else 0, "message": message},
        "resource": {"attributes": {}},
        **({"content": content} if content else {}),
    }


def agent(name: str, **more: Any) -> Record:
    """Return the span of an agent."""
    more = {"OPERATION_NAME": semconv.INVOKE_AGENT, "AGENT_NAME": name, **more}
    return span(f"invoke_agent {name}", **more)


def chat(model: str, read: int, written: int, **more: Any) -> Record:
    """Return the span of a request to a model."""
    more = {
        "OPERATION_NAME": semconv.CHAT,
        "REQUEST_MODEL": model,
        "USAGE_INPUT_TOKENS": read,
        "USAGE_OUTPUT_TOKENS": written,
        "kind": 3,
        **more,
    }
    return span(f"chat {model}", **more)


def tool(name: str, **more: Any) -> Record:
    """Return the span of a call of a tool."""
    more = {"OPERATION_NAME": semconv.EXECUTE_TOOL, "TOOL_NAME": name, **more}
    return span(f"execute_tool {name}", **more)


def trip(trace: str = "a" * 32, **more: Any) -> list[Record]:
    """Return a run with two requests to a model, a tool between them, and another that fails."""
    return [
        agent(
            "planner",
            id="1",
            trace=trace,
            seconds=4,
            CONVERSATION_ID="thread-1",
            RUN_ID="run-1",
            RUN_OUTCOME="finished",
            **more,
        ),
        chat("gpt-4o", 1200, 40, id="2", parent="1", trace=trace, COST_DOLLARS=0.002),
        tool("find_flights", id="3", parent="1", trace=trace, start=1),
        tool("book", id="4", parent="1", trace=trace, start=2, error="ValueError", message="Full."),
        chat("gpt-4o", 1300, 60, id="5", parent="1", trace=trace, start=3, COST_DOLLARS=0.003),
    ]


def store_of(*traces: list[Record]) -> MemoryTraceStore:
    """Return a store that has these traces."""
    store = MemoryTraceStore()
    for record in [record for trace in traces for record in trace]:
        store.add(decode_span(record))
    return store


def sign_in(connection: HTTPConnection) -> str | None:
    """Return the user whom a header names."""
    return connection.headers.get("x-user")


@contextmanager
def serve(
    store: TraceStore | None = None,
    *,
    base_url: str = LOCAL,
    telemetry: Telemetry | None = None,
    settings: dict[str, Any] | None = None,
    **more: Any,
) -> Generator[TestClient]:
    """Serve a runtime whose traces are in a store."""
    telemetry = telemetry or LocalTelemetry(store)
    runtime = CopilotRuntime(
        DemoAdapter(pace=0),
        telemetry=telemetry,
        settings=Settings(threads="memory", **(settings or {})),
        **more,
    )
    with TestClient(runtime.app(), base_url=base_url, client=("127.0.0.1", 50000)) as client:
        yield client
