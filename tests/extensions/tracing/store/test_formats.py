"""Lines that others wrote are read, and ours too."""

import json
from typing import Any

import pytest

from copilot_runtime.base.errors import Misuse
from copilot_runtime.extensions.tracing.dialects import translate_attributes
from copilot_runtime.extensions.tracing.extract import extract_attributes
from copilot_runtime.extensions.tracing.store import TraceFilter, TraceStore
from copilot_runtime.extensions.tracing.store.records import (
    Record,
    decode_line,
    encode_line,
    encode_span,
)
from copilot_runtime.telemetry import semconv
from tests.extensions.tracing.store import make_span
from tests.in_one_test import in_one_test


def read(value: Any) -> Record:
    [span] = decode_line(json.dumps(value))
    return encode_span(span)


def test_what_is_written_is_read_again() -> None:
    span = make_span("t", "s", kind="client", error="boom", content={"a": [1]}, scope="other")
    span.events.clear()
    record = encode_span(span)
    assert read(json.loads(encode_line(record))) == record


def test_lines_of_copilot_ld_have_names_for_kinds_and_statuses() -> None:
    record = read(
        {
            "id": "s",
            "span": {
                "trace_id": "t",
                "span_id": "s",
                "name": "agent.Process",
                "kind": "SERVER",
                "start_time_unix_nano": "1700000000000000001",
                "end_time_unix_nano": "1700000000000000009",
                "status": {"code": "ERROR", "message": "boom"},
                "resource": {"attributes": {"id": "common.Conversation.c"}},
            },
        }
    )
    assert (record["kind"], record["status"]) == (2, {"code": 2, "message": "boom"})
    assert record["start_time_unix_nano"] == 1_700_000_000_000_000_001
    assert record["resource"] == {"attributes": {"id": "common.Conversation.c"}}


def test_older_lines_are_flat_and_have_numbers_in_halves() -> None:
    half = {"low": -1, "high": 1, "unsigned": False}
    record = read(
        {"trace_id": "t", "span_id": "s", "kind": 3, "start_time_unix_nano": half, "status": None}
    )
    assert record["start_time_unix_nano"] == 2**33 - 1
    assert (record["kind"], record["status"]["code"]) == (3, 0)


def test_lines_of_vs_code_are_spans_of_the_javascript_sdk() -> None:
    record = read(
        {
            "traceId": "t",
            "spanId": "s",
            "parentSpanContext": {"traceId": "t", "spanId": "p"},
            "name": "chat gpt",
            "kind": 2,
            "startTime": [1, 5],
            "endTime": [2, 6],
            "attributes": {"a": 1},
            "status": {"code": 2},
            "events": [{"name": "e", "time": [1, 7], "attributes": {"b": 2}}, 5],
            "links": [{"context": {"traceId": "x", "spanId": "y"}}, {"context": None}],
            "resource": {"attributes": {"service.name": "copilot-chat"}},
            "instrumentationScope": {"name": "copilot"},
        }
    )
    assert record == {
        "trace_id": "t",
        "span_id": "s",
        "parent_span_id": "p",
        "name": "chat gpt",
        "kind": 3,
        "start_time_unix_nano": 1_000_000_005,
        "end_time_unix_nano": 2_000_000_006,
        "attributes": {"a": 1},
        "events": [{"name": "e", "time_unix_nano": 1_000_000_007, "attributes": {"b": 2}}],
        "status": {"code": 2, "message": ""},
        "resource": {"attributes": {"service.name": "copilot-chat"}},
        "links": [{"trace_id": "x", "span_id": "y", "attributes": {}}],
        "scope": {"name": "copilot"},
    }


@in_one_test("time", [[1], ["a", 2], "soon", -5, None, {"low": "x"}])
def test_a_time_that_is_none_is_not_trusted(time: Any) -> None:
    span = {"traceId": "t", "spanId": "s", "parentSpanId": "p", "startTime": 7, "endTime": time}
    assert read(span)["end_time_unix_nano"] == 7


@in_one_test("line", ["{", "[]", "5", "{}", '{"trace_id": "t"}', '{"span": {}}'])
def test_what_is_no_span_says_so(line: str) -> None:
    with pytest.raises(Misuse):
        list(decode_line(line))
    assert list(decode_line(" \n")) == []


def test_of_a_message_its_names_and_counts_are_noted() -> None:
    assert extract_attributes(
        {
            "type": "function",
            "function": {"name": "f"},
            "subject": "",
            "tools": [1],
            "context": "text",
            "input": [5],
            "filter": {"threshold": "0.5", "limit": "x", "max_tokens": 1e400},
            "content": "hello",
        }
    ) == {
        "type": "function",
        "function_name": "f",
        "tools_count": 1,
        "input_count": 1,
        "filter_threshold": 0.5,
        "content_length": 5,
    }
    assert extract_attributes(None) == {}
    assert extract_attributes({"function": 5, "filter": {"limit": None}}) == {}


LLM = {"openinference.span.kind": "LLM", "llm.model_name": "gpt", "session.id": "th"}


@pytest.mark.anyio
@in_one_test(
    "attributes",
    [
        {**LLM, "llm.token_count.prompt": 5, "llm.token_count.completion": 2},
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": "gpt",
            "copilot_chat.chat_session_id": "th",
            "gen_ai.usage.prompt_tokens": "5",
            "gen_ai.usage.completion_tokens": 2.0,
        },
    ],
)
async def test_tokens_of_every_dialect_are_counted(
    store: TraceStore, attributes: dict[str, Any]
) -> None:
    store.add(make_span("t", "a", attributes=attributes, scope="other"))

    [summary] = await store.list_traces(TraceFilter(thread_id="th"))
    assert (summary.model_calls, summary.input_tokens, summary.output_tokens) == (1, 5, 2)
    assert summary.models == ["gpt"]


def test_what_the_conventions_name_is_left_as_it_is() -> None:
    given = {semconv.USAGE_INPUT_TOKENS: 1, "prompt_tokens": 9, "gen_ai.request.top_k": 3}
    assert translate_attributes(given) == given
    retrieval = {semconv.OPERATION_NAME: semconv.RETRIEVAL, "gen_ai.request.top_k": 3}
    assert translate_attributes(retrieval)[semconv.RETRIEVAL_TOP_K] == 3
