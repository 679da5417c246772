"""Spans as they begin and end, for those who watch."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
from starlette.types import Message

from copilot_runtime import CopilotRuntime, DemoAdapter, Settings
from copilot_runtime.extensions.tracing.http import live
from copilot_runtime.extensions.tracing.http.live import LiveReader, ReaderBehind
from copilot_runtime.telemetry import LocalTelemetry, Span, semconv

pytestmark = pytest.mark.anyio


class Watcher:
    """Reads the stream of an application, one event at a time."""

    def __init__(self) -> None:
        self.status = 0
        self.is_gone = asyncio.Event()
        self._bodies = asyncio.Queue[bytes]()

    async def receive(self) -> Message:
        await self.is_gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        else:
            self._bodies.put_nowait(message["body"])

    async def next(self) -> tuple[str, Any]:
        """Return the name of the next event, and its data."""
        while not (body := await self._bodies.get()).startswith(b"event: "):
            pass
        name, data = body.decode().strip().split("\n")
        return name.removeprefix("event: "), json.loads(data.removeprefix("data: "))

    async def begin(self) -> None:
        """Wait until spans are written."""
        assert (await self._bodies.get()).startswith(b":")


@asynccontextmanager
async def watch(
    telemetry: LocalTelemetry, query: str = ""
) -> AsyncGenerator[tuple[Watcher, CopilotRuntime, "asyncio.Task[None]"], None]:
    runtime = CopilotRuntime(
        DemoAdapter(pace=0), telemetry=telemetry, settings=Settings(threads="memory")
    )
    path = "/graphql/traces/stream"
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(b"host", b"127.0.0.1:8000")],
        "client": ("127.0.0.1", 50000),
        "server": ("127.0.0.1", 8000),
    }
    watcher = Watcher()
    task = asyncio.create_task(runtime.app()(scope, watcher.receive, watcher.send))
    try:
        await watcher.begin()
        yield watcher, runtime, task
    finally:
        watcher.is_gone.set()
        await asyncio.wait([task])
        await runtime.aclose()


async def test_a_span_is_told_when_it_begins_and_when_it_ends() -> None:
    telemetry = LocalTelemetry()
    async with watch(telemetry) as (watcher, _, _):
        span = telemetry.start_span("chat gpt-4o", attributes={semconv.OPERATION_NAME: "chat"})
        span.set_attributes({semconv.USAGE_INPUT_TOKENS: 7})
        name, begun = await watcher.next()
        assert (watcher.status, name, begun["end_time_unix_nano"]) == (200, "span_start", 0)
        assert semconv.USAGE_INPUT_TOKENS not in begun["attributes"]
        span.end()
        name, done = await watcher.next()
    assert (name, done["span_id"]) == ("span_end", begun["span_id"])
    assert done["attributes"][semconv.USAGE_INPUT_TOKENS] == 7


async def test_only_the_trace_that_is_meant_is_told() -> None:
    telemetry = LocalTelemetry()
    meant, other = telemetry.start_span("meant"), telemetry.start_span("other")
    async with watch(telemetry, f"trace_id={meant.trace_id}") as (watcher, _, _):
        other.end()
        meant.end()
        assert (await watcher.next())[1]["name"] == "meant"


async def test_the_spans_of_a_thread_are_told_with_those_below_them() -> None:
    telemetry = LocalTelemetry()
    async with watch(telemetry, "thread_id=t1") as (watcher, _, _):
        for thread in ("t2", "t1"):
            of = {semconv.CONVERSATION_ID: thread}
            telemetry.start_span(thread, attributes=of).start_child("below").end()
        names = [(await watcher.next())[1]["name"] for _ in range(3)]
    assert names == ["t1", "below", "below"]


async def test_a_reader_that_left_is_no_listener_any_more() -> None:
    telemetry = LocalTelemetry()
    async with watch(telemetry):
        pass
    with LiveReader(telemetry) as reader, LiveReader(telemetry):
        telemetry.start_span("one")
        async with aclosing(reader.read()) as spans:
            assert (await anext(spans)).record["name"] == "one"


async def test_a_stream_ends_when_the_server_does() -> None:
    async with watch(LocalTelemetry()) as (_, runtime, task):
        await runtime.conversations.aclose()
        await task


async def test_a_reader_that_does_not_keep_up_is_let_go(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(live, "MOST_WAITING", 2)
    telemetry = LocalTelemetry()
    async with watch(telemetry) as (watcher, _, task):
        for _ in range(3):
            telemetry.start_span("many").end()
        while (await watcher.next())[0] != "behind":
            pass
        await task
    assert "did not keep up" in caplog.text


async def test_a_span_of_another_thread_is_told_as_well() -> None:
    telemetry = LocalTelemetry()
    with LiveReader(telemetry) as reader:
        await asyncio.to_thread(telemetry.start_span, "elsewhere")
        async with aclosing(reader.read()) as spans:
            assert (await anext(spans)).record["name"] == "elsewhere"


async def test_what_came_before_a_reader_fell_behind_is_not_told_afterwards() -> None:
    telemetry = LocalTelemetry()
    with LiveReader(telemetry) as reader:
        for _ in range(live.MOST_WAITING + 2):
            telemetry.start_span("many")
        await asyncio.sleep(0)
        async with aclosing(reader.read()) as spans:
            with pytest.raises(ReaderBehind):
                await anext(spans)


async def test_a_thread_is_remembered_for_as_many_traces_as_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live, "MOST_WAITING", 3)
    telemetry = LocalTelemetry()
    with LiveReader(telemetry, thread_id="t") as reader:
        async with aclosing(reader.read()) as spans:
            for number in range(5):
                name = str(number)
                span: Span = telemetry.start_span(name, attributes={semconv.CONVERSATION_ID: "t"})
                assert (await anext(spans)).record["name"] == span.name
