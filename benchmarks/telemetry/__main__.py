"""Measures the stores of traces: `python -m benchmarks.telemetry --help`, in the root."""

import argparse
import asyncio
import statistics
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import perf_counter, process_time
from typing import NamedTuple

from copilot_runtime.base.gc_tuning import tune_while_serving
from copilot_runtime.extensions.tracing.store import MemoryTraceStore, TraceStore
from copilot_runtime.extensions.tracing.store.jsonlines import JsonLinesTraceStore
from copilot_runtime.extensions.tracing.store.sqlite import SqliteTraceStore
from copilot_runtime.telemetry import LocalTelemetry, Span, semconv

ERRORS = "[?status.code==`2`]"
TOOL = "[?status.code==`2` && attributes.\"gen_ai.tool.name\"=='none']"


class Promise(NamedTuple):
    """What a measurement may take at most, in seconds, on a quiet machine; 0 for no promise."""

    name: str
    limit: float


MAKE = Promise("make and measure (CPU)", 0)
RECORD = Promise("record (CPU)", 1.5)
BY_ID = Promise("query by trace id", 0.002)
ERROR_FILTER = Promise("JMESPath errors, limit 100", 0.4)
CONDITION = Promise("JMESPath name, limit 100", 0.4)
COMPOUND = Promise("JMESPath of a tool, no match", 0)
NO_MATCH = Promise("JMESPath name, no match", 0)


def main() -> int:
    """Measure; returns 1 if a promise is not kept."""
    options = _options()
    is_kept = True
    for traces in options.traces:
        for kind in options.stores.split(","):
            print(f"\n{kind}: {options.spans:,} spans of {traces:,} traces", flush=True)
            with tempfile.TemporaryDirectory(prefix="bench-", dir=options.folder) as folder:
                store = _make_store(kind, Path(folder), options.spans)
                is_kept &= asyncio.run(_measure(store, options.spans, traces))
    return 0 if is_kept else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.telemetry")
    parser.add_argument("--stores", default="memory,sqlite,jsonl")
    parser.add_argument("--spans", type=int, default=100_000)
    parser.add_argument("--traces", type=int, nargs="+", default=[1_000, 50_000])
    parser.add_argument("--quick", action="store_true", help="10,000 spans")
    parser.add_argument("--folder", help="where files are made (the temporary folder)")
    options = parser.parse_args()
    if options.quick:
        options.spans, options.traces = 10_000, [100, 5_000]
    return options


def _make_store(kind: str, folder: Path, spans: int) -> TraceStore:
    if kind == "sqlite":
        return SqliteTraceStore(folder / "traces.db")
    if kind == "jsonl":
        return JsonLinesTraceStore(folder / "traces")
    return MemoryTraceStore(max_traces=spans, max_spans=spans)


async def _measure(store: TraceStore, spans: int, traces: int) -> bool:
    async with tune_while_serving(None):  # as in a server
        return await _measure_store(store, spans, traces)


async def _measure_store(store: TraceStore, spans: int, traces: int) -> bool:
    began = process_time()
    made = _make_spans(spans, traces)
    _report(MAKE, process_time() - began)
    trace_id = made[-1].trace_id
    began = process_time()
    for span in made:
        store.add(span)
    await store.flush()
    is_kept = _report(RECORD, process_time() - began)
    made.clear()
    if store.dropped:
        print(f"  {store.dropped:,} spans were dropped")
    is_kept &= await _time(BY_ID, lambda: store.get_trace(trace_id), 50)
    is_kept &= await _time(ERROR_FILTER, lambda: store.query_spans(ERRORS, limit=100), 5)
    condition = "[?status.code==`2` && starts_with(name, 'chat')]"
    is_kept &= await _time(CONDITION, lambda: store.query_spans(condition, limit=100), 5)
    is_kept &= await _time(COMPOUND, lambda: store.query_spans(TOOL, limit=100), 1)
    is_kept &= await _time(
        NO_MATCH, lambda: store.query_spans("[?starts_with(name, 'none')]", limit=100), 1
    )
    await store.aclose()
    return is_kept and not store.dropped


def _make_spans(spans: int, traces: int) -> list[Span]:
    """Make spans as runs do, each with an error."""
    kept = _List()
    telemetry = LocalTelemetry(kept)
    for number in range(traces):
        run = telemetry.start_span(
            "invoke_agent assistant",
            attributes={
                semconv.OPERATION_NAME: semconv.INVOKE_AGENT,
                semconv.AGENT_NAME: "assistant",
                semconv.CONVERSATION_ID: f"thread-{number // 3}",
                semconv.RUN_ID: f"run-{number}",
            },
        )
        for _ in range(spans // traces - 1):
            chat = run.start_child(
                "chat gpt",
                kind="client",
                attributes={
                    semconv.OPERATION_NAME: semconv.CHAT,
                    semconv.PROVIDER_NAME: "openai",
                    semconv.REQUEST_MODEL: "gpt",
                    semconv.USAGE_INPUT_TOKENS: 1_000,
                    semconv.USAGE_OUTPUT_TOKENS: 50,
                },
            )
            chat.fail("RATE_LIMIT", "Too many requests.")
            chat.end()
        run.fail("RATE_LIMIT")
        run.end()
    return kept.spans


class _List:
    """A store that only keeps spans."""

    dropped = 0
    is_failing = False

    def __init__(self) -> None:
        self.spans: list[Span] = []

    def add(self, span: Span) -> None:
        self.spans.append(span)

    async def flush(self) -> None: ...

    async def aclose(self) -> None: ...


async def _time(promise: Promise, work: Callable[[], Awaitable[object]], times: int) -> bool:
    """Report the median of some calls; the first one, which opens files, does not count."""
    await work()
    seconds: list[float] = []
    for _ in range(times):
        began = perf_counter()
        await work()
        seconds.append(perf_counter() - began)
    return _report(promise, statistics.median(seconds))


def _report(promise: Promise, seconds: float) -> bool:
    is_kept = not promise.limit or seconds <= promise.limit
    limit = f"   promise {promise.limit:g} s" if promise.limit else ""
    verdict = "" if is_kept else "   NOT KEPT"
    print(f"  {promise.name:28} {seconds:9.4f} s{limit}{verdict}", flush=True)
    return is_kept


if __name__ == "__main__":
    sys.exit(main())
