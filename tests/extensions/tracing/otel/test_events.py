"""The events of the conventions: what requests to models were, why they failed, how they did."""

from typing import Any

import pytest

from copilot_runtime import action
from copilot_runtime.base.errors import NetworkError
from copilot_runtime.extensions.tracing.build import TelemetryOptions, build_telemetry
from copilot_runtime.telemetry import LocalTelemetry, Span, SpanContext, semconv
from copilot_runtime.testing import call, say
from tests.extensions.tracing.otel.receivers import Inbox, read_attributes, serve_http
from tests.in_one_test import in_one_test
from tests.runs import runtime_of
from tests.telemetry.recorded import Spans, run

pytestmark = pytest.mark.anyio

DETAILS = semconv.EVENT_INFERENCE_DETAILS
SECRET = "canary-3b9e"


@action
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    if a > b:
        raise ValueError(SECRET)
    return a + b


async def export(*turns: Any, **options: Any) -> Inbox:
    """Run an agent, and return what a receiver got."""
    with serve_http() as inbox:
        telemetry = build_telemetry(TelemetryOptions(endpoint=inbox.url, **options))
        await telemetry.open()
        await run(runtime_of(*turns, sources=[[add]], telemetry=telemetry))
        await telemetry.aclose()
    return inbox


def select(inbox: Inbox, name: str) -> list[Any]:
    return [event for event in inbox.events if event.event_name == name]


def names_of_span_events(inbox: Inbox) -> list[str]:
    return [event.name for span in inbox.spans for event in span.events]


async def test_a_request_to_a_model_is_an_event_with_all_that_its_span_says() -> None:
    inbox = await export(call("add", {"a": 1, "b": 2}), say("Three."), inference_events=True)
    events = select(inbox, DETAILS)
    chats = [span for span in inbox.spans if span.name == "chat"]
    assert len(chats) == 2
    for event, span in zip(events, chats, strict=True):
        assert (event.trace_id, event.span_id) == (span.trace_id, span.span_id)
        assert read_attributes(event.attributes) == read_attributes(span.attributes)
        assert event.severity_number == 5  # DEBUG
    assert DETAILS not in names_of_span_events(inbox)


@in_one_test("content", ["none", "local", "export"])
async def test_nobody_who_does_not_ask_gets_an_event_for_each_request(content: Any) -> None:
    inbox = await export(say("Hi."), content=content)
    assert select(inbox, DETAILS) == []


async def test_what_was_written_is_structured_in_an_event() -> None:
    inbox = await export(say("Hi."), content="export", capture="event_only")
    (event,) = select(inbox, DETAILS)
    (span,) = [span for span in inbox.spans if span.name == "chat"]
    found = read_attributes(event.attributes)
    message = {"role": "assistant", "parts": [{"type": "text", "content": "Hi."}]}
    assert found[semconv.OUTPUT_MESSAGES] == [{**message, "finish_reason": "stop"}]
    assert semconv.OUTPUT_MESSAGES not in read_attributes(span.attributes)


async def test_a_request_that_failed_is_an_event_once() -> None:
    inbox = await export(NetworkError(SECRET))
    (event,) = select(inbox, semconv.EVENT_EXCEPTION)
    (span,) = [span for span in inbox.spans if span.name == "chat"]
    assert (event.trace_id, event.span_id) == (span.trace_id, span.span_id)
    assert event.severity_number == 13  # WARN
    assert read_attributes(event.attributes) == {
        semconv.EXCEPTION_TYPE: "copilot_runtime.base.errors.NetworkError"
    }
    assert [event.name for event in span.events] == []
    assert SECRET.encode() not in inbox.body


async def test_a_failed_request_is_told_at_its_span_where_there_is_no_log() -> None:
    inbox = await export(NetworkError(SECRET), signals=("traces",))
    (span,) = [span for span in inbox.spans if span.name == "chat"]
    assert [event.name for event in span.events] == [semconv.EVENT_EXCEPTION]
    assert SECRET.encode() not in inbox.body


async def test_an_exception_of_a_tool_is_told_at_its_span() -> None:
    turns = call("add", {"a": 2, "b": 1}), say("No.")
    inbox = await export(*turns, content="export", capture="span_and_event")
    (span,) = [span for span in inbox.spans if span.name == "execute_tool add"]
    (event,) = span.events
    told = read_attributes(event.attributes)
    assert event.name == "exception"
    assert (told[semconv.EXCEPTION_TYPE], told[semconv.EXCEPTION_MESSAGE]) == ("ValueError", SECRET)
    assert "raise ValueError(SECRET)" in told[semconv.EXCEPTION_STACKTRACE]


class Rude(Exception):
    """An exception that does not want to be described."""

    def __str__(self) -> str:
        raise RuntimeError("no")


@in_one_test(
    ("error", "message"),
    [
        (ValueError("half a character: \ud800"), "half a character: \ufffd"),
        (Rude(), "Rude"),
        (ValueError("x" * 100_000), "x" * 100),
    ],
)
def test_whatever_an_exception_says_can_be_kept(error: Exception, message: str) -> None:
    spans = Spans()
    span = LocalTelemetry(spans, keeps_content=True).start_span("any")
    span.fail(error)
    (event,) = span.events
    assert event.attributes[semconv.EXCEPTION_MESSAGE].startswith(message)
    assert all(len(text) <= 16 * 1024 for text in event.attributes.values())
    "".join(event.attributes.values()).encode()


@in_one_test(
    ("trace_id", "span_id", "is_known"),
    [("a" * 32, "b" * 16, True), ("no-hex", "z", False), ("f" * 40, "1", False)],
)
async def test_an_event_belongs_to_a_span_that_ended_long_ago(
    trace_id: str, span_id: str, is_known: bool
) -> None:
    with serve_http() as inbox:
        telemetry = build_telemetry(TelemetryOptions(endpoint=inbox.url))
        await telemetry.open()
        judged = Span("run", trace_id=trace_id, parent=SpanContext(trace_id, ""), span_id=span_id)
        judged.end()
        telemetry.log_event(semconv.EVENT_EVALUATION_RESULT, {}, span=judged)
        await telemetry.aclose()
    (event,) = select(inbox, semconv.EVENT_EVALUATION_RESULT)
    expected = (trace_id, span_id) if is_known else ("", "")
    assert (event.trace_id.hex(), event.span_id.hex()) == expected
