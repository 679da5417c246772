"""Whatever is done to them in whatever order, all stores hold what a dictionary would."""

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

import orjson
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from copilot_runtime.extensions.tracing.store import (
    MemoryTraceStore,
    Record,
    TraceFilter,
    encode_span,
)
from copilot_runtime.extensions.tracing.store.jsonlines import JsonLinesTraceStore
from copilot_runtime.extensions.tracing.store.sqlite import SqliteTraceStore
from copilot_runtime.extensions.tracing.store.traces import TraceSummary, count_spans
from copilot_runtime.telemetry import semconv
from tests.extensions.tracing.store import make_span

T = TypeVar("T")

TRACES = st.sampled_from(
    ["t1", "t2", "t3", 't"4', "t\0005", "größe", "000102030405060708090a0b0c0d0e0f"]
)
NAMES = st.sampled_from(["a", "b", "A", "ß", "100%", ""])
TIMES = st.integers(1, 6)
ATTRIBUTES = st.fixed_dictionaries(
    {},
    optional={
        semconv.OPERATION_NAME: st.sampled_from([semconv.CHAT, semconv.EXECUTE_TOOL]),
        semconv.CONVERSATION_ID: NAMES,
        semconv.RUN_ID: NAMES,
        semconv.AGENT_NAME: NAMES,
        semconv.USER_NAME: NAMES,
        semconv.TOOL_NAME: NAMES,
        semconv.REQUEST_MODEL: NAMES,
        semconv.USAGE_INPUT_TOKENS: st.integers(0, 9),
    },
)
FILTERS = st.fixed_dictionaries(
    {},
    optional={
        "trace_id": TRACES,
        "thread_id": NAMES,
        "run_id": NAMES,
        "agent": NAMES,
        "user": NAMES,
        "resource_id": NAMES,
        "since": TIMES,
        "until": TIMES,
        "has_error": st.booleans(),
        "text": NAMES,
    },
)
QUERIES: dict[str, Callable[[Sequence[Record]], bool]] = {
    "": lambda spans: True,
    "[?status.code==`2`]": lambda spans: any(is_error(span) for span in spans),
    "[?status.code=='ERROR']": lambda spans: False,
    """[?status.code==`2` && attributes."gen_ai.tool.name"=='a']""": lambda spans: any(
        is_error(span) and span["attributes"].get(semconv.TOOL_NAME) == "a" for span in spans
    ),
    """[?attributes."gen_ai.agent.name"!='a']""": lambda spans: any(
        span["attributes"].get(semconv.AGENT_NAME) != "a" for span in spans
    ),
    "[?resource.attributes.id=='a' && !(name=='b')]": lambda spans: any(
        span["resource"]["attributes"].get("id") == "a" and span["name"] != "b" for span in spans
    ),
    "[?events[?name=='a']]": lambda spans: any(
        event["name"] == "a" for span in spans for event in span["events"]
    ),
    "[?start_time_unix_nano > `3` || kind == `3`]": lambda spans: any(
        span["start_time_unix_nano"] > 3 or span["kind"] == 3 for span in spans
    ),
    "[?attributes.missing]": lambda spans: False,
    "[0].parent_span_id": lambda spans: bool(spans[0]["parent_span_id"]),
}


def is_error(span: Record) -> bool:
    return span["status"]["code"] == 2


class StoreMachine(RuleBasedStateMachine):
    """Does the same to each store and to a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = Path(tempfile.mkdtemp(prefix="traces-"))
        self.model: dict[str, dict[str, Record]] = {}
        self.memory = MemoryTraceStore()
        self.files = self.open_files()
        self.others = self.open_files()

    def open_files(self) -> list[SqliteTraceStore | JsonLinesTraceStore]:
        return [
            SqliteTraceStore(self.folder / "traces.db", days=0),
            JsonLinesTraceStore(self.folder / "lines", days=0),
        ]

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    def teardown(self) -> None:
        for store in (*self.files, *self.others):
            self.wait(store.aclose())
            assert store.dropped == 0
        self.runner.close()
        shutil.rmtree(self.folder)

    @rule(
        trace_id=TRACES,
        span_id=st.sampled_from("abcd"),
        name=NAMES,
        parent_id=st.sampled_from(["", "", "a"]),
        start=TIMES,
        error=st.sampled_from(["", "", "boom"]),
        kind=st.sampled_from(["internal", "client"]),
        attributes=ATTRIBUTES,
        resource=st.sampled_from([None, None, "a", "b"]),
        event=st.sampled_from(["", "", "a"]),
        by_other=st.booleans(),
    )
    def add(self, trace_id: str, event: str, by_other: bool, **values: Any) -> None:
        resource = values.pop("resource")
        span = make_span(trace_id, **values, resource={"id": resource} if resource else None)
        if event:
            span.end_time = 0
            span.add_event(event)
            span.end_time = values["start"] + 10
        self.model.setdefault(trace_id, {})[span.span_id] = orjson.loads(
            orjson.dumps(encode_span(span))
        )
        self.settle()
        for store in (self.memory, *(self.others if by_other else self.files)):
            store.add(span)
            if by_other:
                self.wait(store.flush())

    @rule()
    def open_anew(self) -> None:
        for store in self.files:
            self.wait(store.aclose())
        self.files = self.open_files()

    @rule(trace_id=TRACES, by_other=st.booleans())
    def delete(self, trace_id: str, by_other: bool) -> None:
        exists = self.model.pop(trace_id, None) is not None
        self.settle()
        for store in (self.memory, *(self.others if by_other else self.files)):
            assert self.wait(store.delete_trace(trace_id)) is exists

    @rule(before=st.integers(5, 20))
    def delete_old(self, before: int) -> None:
        old = [
            trace_id
            for trace_id, spans in self.model.items()
            if all(span["end_time_unix_nano"] < before for span in spans.values())
        ]
        for trace_id in old:
            del self.model[trace_id]
        for store in (self.memory, *self.files):
            assert self.wait(store.delete_traces(before)) == len(old)

    @rule(trace_id=TRACES)
    def get(self, trace_id: str) -> None:
        expected = in_order(self.model.get(trace_id, {}).values())
        self.settle()
        for store in (self.memory, *self.files, *self.others):
            assert self.wait(store.get_trace(trace_id)) == expected

    @rule(values=FILTERS, limit=st.integers(0, 4), before=st.one_of(st.just(""), TRACES))
    def list_traces(self, values: dict[str, Any], limit: int, before: str) -> None:
        expected = [one for one in self.find(values) if self.is_before(one, before)][:limit]
        for store in (self.memory, *self.files):
            found = store.list_traces(TraceFilter(**values), limit=limit, before=before)
            assert list(self.wait(found)) == expected

    @rule(query=st.sampled_from([*QUERIES]), values=FILTERS, limit=st.integers(0, 3))
    def query(self, query: str, values: dict[str, Any], limit: int) -> None:
        traces = [in_order(self.model[one.trace_id].values()) for one in self.find(values)]
        found = [spans for spans in traces if QUERIES[query](spans)]
        expected = {
            (span["trace_id"], span["span_id"])
            for spans in found[: limit or None]
            for span in spans
        }
        for store in (self.memory, *self.files):
            spans = self.wait(store.query_spans(query, TraceFilter(**values), limit=limit))
            assert {(span["trace_id"], span["span_id"]) for span in spans} == expected
            assert len(spans) == len(expected)

    @invariant()
    def nothing_fails(self) -> None:
        assert not any(store.is_failing for store in (*self.files, *self.others))

    def settle(self) -> None:
        """Let the other process see all, and come after it."""
        for store in self.files:
            self.wait(store.flush())

    def find(self, values: dict[str, Any]) -> Sequence[TraceSummary]:
        found = [
            count_spans(trace_id, spans.values())
            for trace_id, spans in self.model.items()
            if is_meant(list(spans.values()), values)
        ]
        return sorted(found, key=lambda one: (one.start, one.trace_id), reverse=True)

    def is_before(self, summary: TraceSummary, before: str) -> bool:
        if not before:
            return True
        spans = self.model.get(before)
        if spans is None:
            return False
        start = min(span["start_time_unix_nano"] for span in spans.values())
        return (summary.start, summary.trace_id) < (start, before)


def is_meant(spans: Sequence[Record], values: dict[str, Any]) -> bool:
    def has(name: str, value: str) -> bool:
        return not value or any(span["attributes"].get(name) == value for span in spans)

    resource, error = values.get("resource_id", ""), values.get("has_error")
    return (
        values.get("trace_id") in (None, spans[0]["trace_id"])
        and has(semconv.CONVERSATION_ID, values.get("thread_id", ""))
        and has(semconv.RUN_ID, values.get("run_id", ""))
        and has(semconv.AGENT_NAME, values.get("agent", ""))
        and has(semconv.USER_NAME, values.get("user", ""))
        and (
            has(semconv.CONVERSATION_ID, resource)
            or any(span["resource"]["attributes"].get("id") == resource for span in spans)
        )
        and max(span["end_time_unix_nano"] for span in spans) >= values.get("since", 0)
        and min(span["start_time_unix_nano"] for span in spans) <= values.get("until", 99)
        and error in (None, any(map(is_error, spans)))
        and any(has_text(span, values.get("text", "").lower()) for span in spans)
    )


def has_text(span: Record, text: str) -> bool:
    of = span["attributes"]
    names = (semconv.REQUEST_MODEL, semconv.ERROR_TYPE, semconv.CONVERSATION_ID)
    values = [*(of.get(name, "") for name in (*names, semconv.RUN_ID, semconv.TOOL_NAME))]
    return any(text in value.lower() for value in (span["name"], *values))


def in_order(spans: Any) -> list[Record]:
    return sorted(spans, key=lambda span: span["start_time_unix_nano"])


StoreMachine.TestCase.settings = settings(
    max_examples=12,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestWhateverIsDoneStoresHoldWhatADictionaryWould = pytest.mark.timeout(180)(StoreMachine.TestCase)
