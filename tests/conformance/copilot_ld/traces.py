"""Traces, what is noted in them, and how they are drawn and exported."""

import json
import re
from typing import Any

from copilot_runtime.base.errors import CopilotError
from copilot_runtime.extensions.tracing.extract import extract_attributes
from copilot_runtime.extensions.tracing.mermaid import draw_sequence
from copilot_runtime.extensions.tracing.options import TelemetryOptions, has_host_provider
from copilot_runtime.extensions.tracing.store import MemoryTraceStore, TraceFilter
from copilot_runtime.extensions.tracing.store.records import (
    decode_line,
    decode_span,
    encode_line,
    encode_span,
)
from copilot_runtime.telemetry import LocalTelemetry, Span, SpanContext, logs
from tests.conformance.copilot_ld.cases import Case

_C1, _C2 = ({"attributes": {"id": f"common.Conversation.{name}"}} for name in ("c1", "c2"))
SEARCH = {"name": "request_sent", "time_unix_nano": "75", "attributes": {"function_name": "search"}}
SPANS: list[dict[str, Any]] = [
    {
        "trace_id": "t1",
        "span_id": "s2",
        "parent_span_id": "s1",
        "name": "tool.CallTool",
        "kind": 3,
        "start_time_unix_nano": "200",
        "attributes": {"rpc_method": "CallTool"},
    },
    {
        "trace_id": "t1",
        "span_id": "s1",
        "name": "agent.ProcessStream",
        "resource": _C1,
        "kind": 2,
        "start_time_unix_nano": "100",
        "attributes": {"rpc_method": "ProcessStream"},
    },
    {
        "trace_id": "t2",
        "span_id": "s3",
        "name": "memory.GetWindow",
        "resource": _C2,
        "kind": 2,
        "start_time_unix_nano": "50",
        "attributes": {"rpc_method": "GetWindow"},
        "status": {"code": 2, "message": "boom"},
    },
    {
        "trace_id": "t3",
        "span_id": "s4",
        "name": "work",
        "resource": _C1,
        "kind": 1,
        "start_time_unix_nano": "70",
        "events": [SEARCH],
    },
]
"""The data that the cases speak of."""
TWO_SPANS: list[dict[str, Any]] = [
    {"trace_id": "t1", "span_id": "a", "name": "na", "kind": 2, "start_time_unix_nano": "1"},
    {"trace_id": "t2", "span_id": "b", "name": "nb", "kind": 3, "start_time_unix_nano": "2"},
]
KIND_NAMES = {1: "INTERNAL", 2: "SERVER", 3: "CLIENT"}


async def answer(case: Case) -> Any:
    """Ask a store, or draw a trace."""
    if "Mermaid" in case.feature:
        return draw_trip()
    if "RecordSpan" in case.feature:
        return [refuse({"span_id": "s"}), refuse({"trace_id": "t"})]
    if "reload" in case.feature:
        return await ask(reload(SPANS), {"query": case.feature.partition("then ")[2]})
    spans = TWO_SPANS if "spans" in case.input else SPANS
    return await ask([decode_span(span) for span in spans], case.input)


def answer_telemetry(case: Case) -> Any:
    """Say what is noted of a message, or note a call between two services."""
    if case.feature == "extractAttributes":
        return extract_attributes(case.input)
    if case.feature.startswith("Logger enabled"):
        return logs.is_debug_enabled(case.input["domain"], case.input["DEBUG"])
    if case.feature.startswith("Logger"):
        return write_lines()
    return nest_calls(*re.findall(r"=(\w+)", case.input))


def answer_otlp(case: Case) -> Any:
    """Say where spans are exported to, if nobody has set anything."""
    del case
    return list(TelemetryOptions().destinations) or (has_host_provider() or None)


async def ask(spans: list[Span], fields: dict[str, Any]) -> list[str]:
    store = MemoryTraceStore()
    for span in spans:
        store.add(span)
    wanted = TraceFilter(**(fields.get("filter") or {}))
    return [one["span_id"] for one in await store.query_spans(fields.get("query") or "", wanted)]


def reload(spans: list[dict[str, Any]]) -> list[Span]:
    """Write spans as Copilot-LD does, with names for numbers, and read them again."""
    lines = [
        json.dumps({"id": span["span_id"], "span": {**span, "kind": KIND_NAMES[span["kind"]]}})
        for span in spans
    ]
    ours = [encode_line(encode_span(one)) for line in lines for one in decode_line(line)]
    return [one for line in ours for one in decode_line(line)]


def refuse(span: dict[str, Any]) -> dict[str, str]:
    try:
        decode_span(span)
    except CopilotError as error:
        return {"error": error.message}
    return {}


def draw_trip() -> str:
    """Draw a call of the memory by the agent."""
    call = {"trace_id": "t1", "start_time_unix_nano": 10**9, "end_time_unix_nano": 2 * 10**9}
    about = {"service_name": "agent", "rpc_service": "memory", "rpc_method": "GetWindow"}
    about_request = {"time": "1970-01-01T00:00:01.000Z", "messages_count": "2"}
    sent = {"name": "request_sent", "time_unix_nano": 10**9, "attributes": about_request}
    received = {
        "name": "response_sent",
        "time_unix_nano": 2 * 10**9,
        "attributes": {"messages_count": "5"},
    }
    spans = [
        {**call, "span_id": "c", "name": "memory.GetWindow", "kind": 3, "attributes": about}
        | {"events": [sent], "status": {"code": 1}},
        {**call, "span_id": "s", "parent_span_id": "c", "name": "memory.GetWindow", "kind": 2}
        | {"attributes": {**about, "service_name": "memory"}}
        | {"events": [received], "status": {"code": 1}},
    ]
    return draw_sequence([encode_span(decode_span(span)) for span in spans])


def nest_calls(trace_id: str, parent_id: str, _old: str, resource_id: str) -> Any:
    """Note a call that a service got, and one that it made meanwhile."""
    ended: list[Span] = []
    telemetry = LocalTelemetry()
    telemetry.listen(lambda span, phase: ended.append(span) if phase == "end" else None)
    about = {"service_name": "agent", "rpc_service": "agent", "rpc_method": "Process"}
    server = telemetry.start_span(
        "agent.Process",
        kind="server",
        attributes=about,
        parent=SpanContext(trace_id, parent_id),
    )
    server.resource = {"id": resource_id}
    server.add_event("request_received", describe({"messages": [1, 2]}))
    client = server.start_child("memory.Get", kind="client")
    client.resource = server.resource
    client.add_event("request_sent", describe({}))
    outgoing = client.context
    client.add_event("response_received", describe({"content": "abc"}))
    client.end()
    server.add_event("response_sent", describe({"messages": [1]}))
    server.status = "ok"
    server.end()
    first, second = (encode_span(span) for span in ended)
    return {
        "order": [first["kind"], second["kind"]],
        "server": {
            "trace": second["trace_id"],
            "parent": second["parent_span_id"],
            "res": second["resource"]["attributes"]["id"],
            "events": list_events(second),
            "status": second["status"]["code"],
            "attrs": second["attributes"],
        },
        "client": {
            "trace": first["trace_id"],
            "events": list_events(first),
            "parentIsServer": first["parent_span_id"] == second["span_id"],
            "res": first["resource"]["attributes"]["id"],
        },
        "outgoing": {
            "trace": [outgoing.trace_id],
            "spanIsClient": outgoing.span_id == first["span_id"],
            "res": [first["resource"]["attributes"]["id"]],
        },
    }


def write_lines() -> list[str]:
    """Write three lines of a log, with what a time is in place of the time."""
    lines: list[str] = []
    log = logs.DomainLogger("agent", debug="*", pid=42, write=lines.append)
    error: Any = ValueError("bad")
    error.trace_id = "t"
    log.debug("App", "msg", {"a": "1", "b": "x"})
    log.info("App", "m2")
    log.error("App", error)
    return [re.sub(r" \d{4}-\S+Z ", " <ts> ", line.rstrip()) for line in lines]


def describe(message: dict[str, Any]) -> dict[str, str]:
    """Return what is noted of a message, as text: Copilot-LD has no other values."""
    return {name: str(value) for name, value in extract_attributes(message).items()}


def list_events(span: dict[str, Any]) -> list[Any]:
    return [[event["name"], event["attributes"]] for event in span["events"]]
