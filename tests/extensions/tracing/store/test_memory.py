"""Traces in memory take a limited part of it, whatever is in them."""

import asyncio
import threading

import pytest

from copilot_runtime.extensions.tracing.store import MemoryTraceStore, TraceFilter
from copilot_runtime.telemetry.span import Span
from tests.extensions.tracing.store import make_span
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio


async def list_ids(store: MemoryTraceStore) -> list[str]:
    return [summary.trace_id for summary in await store.list_traces()]


def make_large(trace_id: str, part: str, span_id: str = "a") -> Span:
    """Return a span with 10,000 characters somewhere."""
    text = "x" * 10_000
    values = {"a": ["b", {"c": text}]}
    span = make_span(trace_id, span_id, resource=values if part == "resource" else None)
    match part:
        case "name":
            span.name = text
        case "message":
            span.message = text
        case "attributes":
            span.attributes["x"] = text
        case "content":
            span.content["x"] = values
        case _:
            span.end_time = 0
            span.add_event("e", values) if part == "event" else None
            span.add_link(span.context, values) if part == "link" else None
            span.end_time = 1
    return span


@in_one_test("part", ["name", "message", "attributes", "content", "resource", "event", "link"])
async def test_the_oldest_traces_go_when_spans_are_too_large(part: str) -> None:
    store = MemoryTraceStore(max_size=35_000)
    for number in range(5):
        store.add(make_large(f"t{number}", part))
    assert len(await store.get_trace("t4")) == 1
    assert sorted(await list_ids(store)) == ["t2", "t3", "t4"]


async def test_a_span_that_comes_again_weighs_what_it_weighs_now() -> None:
    store = MemoryTraceStore(max_size=35_000)
    span = make_span("t1", "a")
    for number in range(20):
        span.attributes["x"] = "x" * 1_000 * number
        store.add(span)
    store.add(make_large("t2", "name"))
    assert sorted(await list_ids(store)) == ["t1", "t2"]


async def test_of_a_trace_that_is_too_large_alone_the_first_spans_stay() -> None:
    store = MemoryTraceStore(max_size=35_000, max_spans=10)
    for number in range(10):
        store.add(make_large("t", "attributes", f"s{number}"))
    assert (len(await store.get_trace("t")), store.dropped) == (4, 6)
    for number in range(20):
        store.add(make_span("u", f"s{number}"))
    assert (len(await store.get_trace("u")), store.dropped) == (10, 16)
    assert await list_ids(store) == ["u"]


async def test_traces_are_counted_while_spans_come() -> None:
    store, has_ended = MemoryTraceStore(max_spans=100_000), threading.Event()

    def add() -> None:
        for number in range(3_000):
            store.add(make_span("t", f"s{number % 1_000}", error="boom" if number > 2_000 else ""))
        has_ended.set()

    thread = threading.Thread(target=add)
    thread.start()
    while not has_ended.is_set():
        await store.list_traces(TraceFilter(has_error=True))
        await asyncio.sleep(0)
    thread.join()
    [summary] = await store.list_traces()
    assert (summary.spans, summary.errors) == (1_000, 999)
