"""A client that asks is told the trace of its answer; nobody else gets a byte more."""

import re
from collections.abc import Mapping
from typing import Any

import pytest

from copilot_runtime import AguiAgent, CopilotRuntime, Settings
from copilot_runtime.telemetry import NO_TELEMETRY, LocalTelemetry, Telemetry
from tests.in_one_test import in_one_test
from tests.telemetry.test_spans import Spans
from tests.wire.client import PLAIN, chat, data
from tests.wire.test_subscriptions import opened
from tests.wire_agui.http import Answer, run_input
from tests.wire_agui.server import PATH, Browser, Parrot, serving

pytestmark = pytest.mark.anyio

ASKS = {"x-copilot-trace": "1"}
ORIGIN = {"origin": "http://localhost:3000"}
_IDS = re.compile(rb"[0-9a-f]{8}-[0-9a-f-]{27}|ck-[0-9a-f-]+|\d{4}-\d\d-\d\dT[\d:.]+Z?")
PROTOCOLS = ("agui", "envelope", "graphql", "graphql in one body")


def request_of(protocol: str, **properties: Any) -> tuple[str, Any]:
    """Return a path and a body."""
    match protocol:
        case "agui":
            return "/agent/default/run", run_input(forwardedProps=properties)
        case "envelope":
            params = {"agentId": "default"}
            body = run_input(forwardedProps=properties)
            return "", {"method": "agent/run", "params": params, "body": body}
        case _:
            body = chat(query=PLAIN) if protocol.endswith("body") else chat()
            body["variables"]["properties"] = properties
            return "", body


async def ask(
    telemetry: Telemetry,
    protocol: str,
    headers: Mapping[str, str] | None = None,
    **properties: Any,
) -> Answer:
    runtime = CopilotRuntime(Parrot(), settings=Settings(threads="memory"), telemetry=telemetry)
    async with serving(runtime.app(path=PATH)) as port:
        path, body = request_of(protocol, **properties)
        accept = "text/event-stream" if "graphql" not in protocol else "multipart/mixed"
        return await Browser(port).ask("POST", path, body, {"accept": accept, **(headers or {})})


@in_one_test("protocol", PROTOCOLS)
async def test_without_being_asked_not_one_byte_differs(protocol: str) -> None:
    off = await ask(NO_TELEMETRY, protocol, ORIGIN)
    on = await ask(LocalTelemetry(Spans(), keeps_content=True), protocol, ORIGIN)
    assert _IDS.sub(b"", on.body) == _IDS.sub(b"", off.body)
    assert len(on.body) == len(off.body)
    ignored = ("date",)
    assert [it for it in on.headers.items() if it[0] not in ignored] == [
        it for it in off.headers.items() if it[0] not in ignored
    ]


@in_one_test("protocol", PROTOCOLS)
@in_one_test("by_header", [True, False])
async def test_who_asks_is_told_in_a_header_and_in_the_answer(
    protocol: str, by_header: bool
) -> None:
    spans = Spans()
    properties = {} if by_header else {"trace": True}
    headers = ASKS if by_header else {}
    answer = await ask(LocalTelemetry(spans), protocol, headers, **properties)
    trace_id = spans.named("invoke_agent default").trace_id
    assert answer.headers["x-trace-id"] == trace_id
    assert "access-control-expose-headers" not in answer.headers
    if "graphql" in protocol:
        assert f'"extensions":{{"trace":{{"traceId":"{trace_id}"}}}}'.encode() in answer.body
    else:
        assert answer.types()[:2] == ["RUN_STARTED", "CUSTOM"]
        event = answer.events()[1]
        assert event == {
            "type": "CUSTOM",
            "name": "copilot.trace",
            "value": {"traceId": trace_id},
        }


@in_one_test("protocol", PROTOCOLS)
async def test_a_page_of_another_origin_may_read_it(protocol: str) -> None:
    answer = await ask(LocalTelemetry(Spans()), protocol, {**ASKS, **ORIGIN})
    assert answer.headers["access-control-expose-headers"] == "x-trace-id"


@in_one_test("protocol", PROTOCOLS)
async def test_where_nothing_is_traced_there_is_nothing_to_tell(protocol: str) -> None:
    answer = await ask(NO_TELEMETRY, protocol, {**ASKS, **ORIGIN}, trace=True)
    assert "x-trace-id" not in answer.headers
    assert b"traceId" not in answer.body


async def test_what_does_not_start_has_no_trace() -> None:
    spans = Spans()
    runtime = CopilotRuntime(
        agents={"far": AguiAgent("http://127.0.0.1:9/")},
        settings=Settings(threads="memory"),
        telemetry=LocalTelemetry(spans),
    )
    async with serving(runtime.app(path=PATH)) as port:
        answer = await Browser(port).ask("POST", "/agent/none/run", run_input(), ASKS)
    assert answer.status == 404
    assert "x-trace-id" not in answer.headers


SUBSCRIPTION = """
subscription ($data: GenerateCopilotResponseInput!, $properties: JSONObject) {
  generateCopilotResponse(data: $data, properties: $properties) { cursor }
}
"""
MUTATION = """
mutation ($data: GenerateCopilotResponseInput!, $properties: JSONObject) {
  generateCopilotResponse(data: $data, properties: $properties) { threadId }
}
"""


@in_one_test("query", [SUBSCRIPTION, MUTATION])
@in_one_test(
    ("headers", "properties", "is_told"),
    [(ASKS, {}, True), ({}, {"trace": True}, True), ({}, {"trace": "yes"}, False), ({}, {}, False)],
)
async def test_who_asks_over_a_websocket_is_told_once(
    query: str, headers: Mapping[str, str], properties: dict[str, Any], is_told: bool
) -> None:
    spans = Spans()
    telemetry = LocalTelemetry(spans)
    runtime = CopilotRuntime(Parrot(), settings=Settings(threads="memory"), telemetry=telemetry)
    async with serving(runtime.app(path=PATH)) as port, opened(port, **headers) as socket:
        await socket.subscribe(query, data=data(), properties=properties)
        messages: list[Any] = []
        while (message := await socket.hear())["type"] == "next":
            messages.append(message["payload"])
    root = spans.named("invoke_agent default")
    told = [message["extensions"] for message in messages if message.get("extensions")]
    assert told == ([{"trace": {"traceId": root.trace_id}}] if is_told else [])
    assert messages[0].get("extensions", {}) == (told[0] if is_told else {})
