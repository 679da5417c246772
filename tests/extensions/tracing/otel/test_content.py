"""What people and models wrote, and who they are, leaves this machine only where allowed."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from copilot_runtime import action
from copilot_runtime.api.messages import TextMessage
from copilot_runtime.base.errors import NetworkError
from copilot_runtime.extensions.tracing.build import build_telemetry
from copilot_runtime.extensions.tracing.options import TelemetryOptions
from copilot_runtime.extensions.tracing.otel.border import shorten
from copilot_runtime.extensions.tracing.otel.build import OwnTracerProvider
from copilot_runtime.extensions.tracing.store.store import TraceStore
from copilot_runtime.telemetry import LocalTelemetry, Span, SpanContext, Telemetry, semconv
from copilot_runtime.testing import call, say
from tests.extensions.tracing.otel.receivers import Inbox, read_attributes, serve_grpc, serve_http
from tests.in_one_test import in_one_test
from tests.runs import run_input, runtime_of
from tests.telemetry.recorded import Spans, run

pytestmark = pytest.mark.anyio


CANARY = "canary-7f3a"
ME = "ann-9c1b"

FOREIGN_ATTRIBUTES: Mapping[str, Any] = {
    "gen_ai.prompt.0.content": CANARY,
    "gen_ai.input.messages": [{"role": "user", "content": CANARY}],
    "llm.input_messages.0.message.content": CANARY,
    "input.value": CANARY,
    "db.statement": CANARY,
    "db.query.text": CANARY,
    "tool_arguments": CANARY,
    "my.own.prompt": CANARY,
    "url.full": f"https://me:{CANARY}@example.com/path?word={CANARY}",
    "http.request.header.x-word": [CANARY],
    "enduser.id": ME,
    "gen_ai.usage.input_tokens": 7,
}


@action
async def fail(text: str) -> str:
    """Fail with what was said."""
    raise ValueError(text)


@action
async def repeat(text: str) -> str:
    """Return what was said."""
    return text


class Wire:
    """An exporter of each kind, and the bytes that came out of it."""

    def __init__(self, name: str, options: Mapping[str, Any], read: Any) -> None:
        self.name = name
        self.options = options
        self.read = read


@pytest.fixture(params=["otlp-http", "otlp-grpc", "console", "file"])
def wire(
    request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Iterator[Wire]:
    name = request.param
    if name.startswith("otlp"):
        with (serve_http if name == "otlp-http" else serve_grpc)() as inbox:
            options = {"exporters": (name,), "endpoint": inbox.url}
            yield Wire(name, options, lambda: inbox.body.decode(errors="replace"))
    elif name == "console":
        yield Wire(name, {"exporters": (name,)}, lambda: capsys.readouterr().err)
    else:
        path = tmp_path / "out.jsonl"
        yield Wire(name, {"exporters": (name,), "file": str(path)}, path.read_text)


async def trace_everything(telemetry: Telemetry) -> None:
    """Run an agent whose every part says the canary, and what a framework says beside it."""
    await telemetry.open()
    turns = [call("repeat", {"text": CANARY}), call("fail", {"text": CANARY}), say(CANARY)]
    runtime = runtime_of(*turns, sources=[[repeat, fail]], telemetry=telemetry)
    run = run_input(detached=True)
    run.messages.append(TextMessage(id="u2", role="user", content=CANARY))  # type: ignore[attr-defined]
    started = await runtime.start(run)
    assert started.task is not None
    await started.task
    chat = {semconv.OPERATION_NAME: semconv.CHAT, semconv.USER_NAME: ME}
    span = telemetry.start_span("chat", attributes=chat)
    span.set_content({semconv.INPUT_MESSAGES: [{"role": "user", "content": CANARY}]})
    span.fail(ValueError(CANARY))
    telemetry.log_event(
        semconv.EVENT_INFERENCE_DETAILS,
        {semconv.REQUEST_MODEL: "m", semconv.USER_NAME: ME},
        span=span,
        content={semconv.OUTPUT_MESSAGES: [{"role": "assistant", "content": CANARY}]},
    )
    trace_foreign_work(telemetry)
    span.end()
    await telemetry.flush()


def trace_foreign_work(telemetry: Telemetry) -> None:
    """Make a span as frameworks do, with the provider that the runtime has made."""
    mirror = getattr(telemetry, "_mirror", None)
    assert mirror is not None
    provider = mirror._providers.tracers
    assert isinstance(provider, OwnTracerProvider)
    tracer = provider.get_tracer("some-framework")
    with (
        pytest.raises(ValueError, match=CANARY),
        tracer.start_as_current_span("foreign work", attributes=FOREIGN_ATTRIBUTES) as span,
    ):
        span.add_event("gen_ai.user.message", {"content": CANARY})
        span.add_link(span.get_span_context(), {"my.prompt": CANARY})
        raise ValueError(CANARY)


@in_one_test("content", ["none", "local"])
async def test_a_canary_is_in_no_byte_that_is_exported(wire: Wire, content: Any) -> None:
    telemetry = build_telemetry(
        TelemetryOptions(**wire.options, content=content, resource_attributes={"host.name": ME})
    )
    await trace_everything(telemetry)
    assert isinstance(telemetry, LocalTelemetry)
    store = telemetry.store
    assert isinstance(store, TraceStore)
    records = json.dumps([await store.query_spans("[]")], default=str)
    await telemetry.aclose()
    output = wire.read()
    assert "execute_tool repeat" in output
    assert "foreign work" in output
    assert CANARY not in output
    assert ME not in output
    assert content == "none" or CANARY in records


async def test_what_may_be_exported_is_exported(wire: Wire) -> None:
    telemetry = build_telemetry(
        TelemetryOptions(**wire.options, content="export", capture="span_and_event", identity=True)
    )
    await trace_everything(telemetry)
    await telemetry.aclose()
    output = wire.read()
    assert output.count(CANARY) > 5
    assert ME in output


@in_one_test(
    ("capture", "on_spans", "on_events"),
    [("span_only", True, False), ("event_only", False, True), ("span_and_event", True, True)],
)
async def test_content_stands_where_it_is_captured(
    capture: Any, on_spans: bool, on_events: bool
) -> None:
    with serve_http() as inbox:
        telemetry = build_telemetry(
            TelemetryOptions(endpoint=inbox.url, content="export", capture=capture)
        )
        await trace_everything(telemetry)
        await telemetry.aclose()
    spans = "".join(str(span) for span in inbox.spans)
    events = [read_attributes(event.attributes) for event in inbox.events]
    details = next(event for event in events if event.get(semconv.REQUEST_MODEL) == "m")
    assert (CANARY in spans) is on_spans
    assert (semconv.OUTPUT_MESSAGES in details) is on_events
    assert telemetry.emits_details is on_events


async def test_a_text_is_not_longer_than_is_set() -> None:
    with serve_http() as inbox:
        telemetry = build_telemetry(
            TelemetryOptions(endpoint=inbox.url, content="export", max_attribute_chars=100)
        )
        await telemetry.open()
        span = telemetry.start_span("chat", attributes={semconv.OPERATION_NAME: semconv.CHAT})
        message = {"role": "user", "content": "x" * 5000}
        span.set_content({semconv.INPUT_MESSAGES: [message, message]})
        span.set_attributes({semconv.REQUEST_MODEL: "y" * 5000})
        span.end()
        await telemetry.aclose()
    found = read_attributes(inbox.spans[0].attributes)
    assert len(found[semconv.REQUEST_MODEL]) == 100
    assert len(json.dumps(found[semconv.INPUT_MESSAGES])) <= 130
    assert found[semconv.INPUT_MESSAGES][0]["role"] == "user"


async def test_content_is_valid_json_where_receivers_read_that() -> None:
    with serve_http() as inbox:
        telemetry = build_telemetry(
            TelemetryOptions(
                endpoint=inbox.url, content="export", content_form="json", max_attribute_chars=100
            )
        )
        await telemetry.open()
        span = telemetry.start_span("chat", attributes={semconv.OPERATION_NAME: semconv.CHAT})
        part = {"type": "text", "content": "half \ud800" + "x" * 500}
        span.set_content(
            {
                semconv.INPUT_MESSAGES: [{"role": "user", "parts": [part]}],
                semconv.TOOL_CALL_RESULT: "as it is",
                semconv.TOOL_CALL_ARGUMENTS: {"number": 2**70, "share": 0.5},
            }
        )
        span.end()
        await telemetry.aclose()
    found = read_attributes(inbox.spans[0].attributes)
    [message] = json.loads(found[semconv.INPUT_MESSAGES])
    assert message["role"] == "user"
    assert message["parts"][0]["content"].startswith("half ?x")
    assert len(found[semconv.INPUT_MESSAGES]) <= 100
    assert found[semconv.TOOL_CALL_RESULT] == "as it is"
    assert json.loads(found[semconv.TOOL_CALL_ARGUMENTS]) == {"number": str(2**70), "share": 0.5}


@in_one_test(
    ("value", "found"),
    [
        ("short", "short"),
        ("x" * 30, "x" * 19 + "…"),
        ("{" + "x" * 30, "{" + "x" * 18 + "…"),
        ('{"a": "' + "x" * 40 + '"}', '{"a":"xxxxxxxxx…"}'),
        ([1, 2, 3], [1, 2, 3]),
        (5, 5),
        (list(range(100)), "[0,1,2,3,4,5,6,7,8,…"),
    ],
)
def test_what_is_too_long_is_cut_inside_of_its_parts(value: Any, found: Any) -> None:
    assert shorten(value, 20) == found


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
