"""What many runs have in common, and how people name the runs they mean."""

import pytest

from copilot_runtime.base.errors import Misuse
from copilot_runtime.extensions.tracing.mermaid import draw_sequence
from copilot_runtime.extensions.tracing.stats import compute_stats, find_percentile
from copilot_runtime.extensions.tracing.store import TraceFilter
from copilot_runtime.extensions.tracing.store.traces import (
    parse_filter,
    parse_time,
    summarize_trace,
)
from tests.extensions.tracing.http.spans import SECOND, agent, chat, span, tool, trip
from tests.in_one_test import in_one_test


def test_tokens_and_dollars_are_those_of_requests_to_models() -> None:
    stats = compute_stats(trip(USAGE_INPUT_TOKENS=2500, USAGE_OUTPUT_TOKENS=100))
    (planner,), (model,) = stats.agents, stats.models
    assert (stats.traces, stats.failed, stats.spans) == (1, 1, 5)
    assert (planner.name, planner.count, planner.input_tokens) == ("planner", 1, 2500)
    assert (model.name, model.count, model.output_tokens, model.dollars) == (
        "gpt-4o",
        2,
        100,
        0.005,
    )
    assert [(it.name, it.errors, it.p50) for it in stats.tools] == [
        ("book", 1, 1.0),
        ("find_flights", 0, 1.0),
    ]


def test_a_request_that_failed_stands_with_those_to_the_same_model_that_were_answered() -> None:
    spans = [
        chat("gpt-4o", 1, 1, id="1", RESPONSE_MODEL="gpt-4o-2024-08-06"),
        chat("gpt-4o", 0, 0, id="2", error="429"),
        span("chat", id="3", OPERATION_NAME="chat", RESPONSE_MODEL="local"),
    ]
    models = compute_stats(spans).models
    assert [(it.name, it.count, it.errors) for it in models] == [("gpt-4o", 2, 1), ("local", 1, 0)]


def test_an_agent_has_the_tokens_of_its_own_requests() -> None:
    spans = [
        agent("planner", id="1"),
        tool("ask", id="2", parent="1"),
        agent("writer", id="3", parent="2"),
        chat("m", 10, 1, id="4", parent="3"),
        chat("m", 5, 1, id="5", parent="1", COST_DOLLARS=1),
        chat("m", 3, 1, id="6", trace="b" * 32),
    ]
    stats = compute_stats(spans)
    assert {it.name: (it.input_tokens, it.unpriced) for it in stats.agents} == {
        "planner": (5, 0),
        "writer": (10, 1),
    }
    assert (stats.models[0].input_tokens, stats.models[0].unpriced) == (18, 2)


def test_a_request_of_an_mcp_client_is_no_call_beside_the_one_below_it() -> None:
    request = tool("add", id="1") | {"name": "tools/call add", "kind": 2}
    spans = [request, agent("default", id="2", parent="1"), tool("add", id="3", parent="2")]
    stats, summary = compute_stats(spans), summarize_trace(spans)
    assert summary is not None
    assert (summary.name, summary.tool_calls) == ("tools/call add", 1)
    assert [(it.name, it.count) for it in stats.tools] == [("add", 1)]
    assert draw_sequence(spans).count("call") == 1


def test_numbers_that_others_write_as_text_count_as_in_the_list_of_traces() -> None:
    odd = {"USAGE_OUTPUT_TOKENS": 7.0, "COST_DOLLARS": True}
    spans = [chat("m", "120", 1, id="1"), chat("m", -5, 1, id="2", **odd)]  # type: ignore[arg-type]
    (model,), summary = compute_stats(spans).models, summarize_trace(spans)
    assert summary is not None
    assert (model.input_tokens, summary.input_tokens) == (120, 120)
    assert (model.output_tokens, summary.output_tokens) == (8, 8)
    assert (model.unpriced, summary.unpriced) == (2, 2)


def test_what_has_no_name_or_number_is_counted_all_the_same() -> None:
    nameless = [
        span("one", id="1", OPERATION_NAME="invoke_agent"),
        span("two", id="2", OPERATION_NAME="execute_tool"),
        span("three", id="3", parent="1", OPERATION_NAME="chat", USAGE_INPUT_TOKENS="many"),
    ]
    stats = compute_stats(nameless)
    assert [it[0].name for it in (stats.agents, stats.tools, stats.models)] == [
        "one",
        "two",
        "unknown",
    ]
    assert compute_stats([]).traces == 0


def test_percentiles_are_values_that_were_measured() -> None:
    values = [float(it) for it in range(100, 0, -1)]
    assert (find_percentile(values, 0.5), find_percentile(values, 0.95)) == (50, 95)
    assert find_percentile([7], 0.95) == 7
    assert find_percentile([], 0.5) == 0


@in_one_test(
    ("text", "time"),
    [
        ("", 0),
        ("90s", 10_000 - 90),
        ("2m", 10_000 - 120),
        ("1h", 10_000 - 3600),
        ("1970-01-01T00:00:05", 5),
        ("1970-01-01T01:00:05+01:00", 5),
        ("1970-01-02", 86_400),
        ("1767268800", 1_767_268_800),
        ("1767268800000000000", 1_767_268_800),
    ],
)
def test_a_time_is_read_as_people_write_it(text: str, time: int) -> None:
    assert parse_time(text, "since", now=10_000 * SECOND) == time * SECOND


@in_one_test("text", ["tomorrow", "5 years", "-1h", "99", "2026-13-01", "٣m"])
def test_what_is_no_time_is_explained(text: str) -> None:
    with pytest.raises(Misuse, match=r"since is .*; it is a time ago, such as 15m, 2h or 7d"):
        parse_time(text, "since")


def test_a_filter_is_what_its_texts_say() -> None:
    values = {"agent": "poet", "has_error": "no", "min_duration": "800ms", "until": "1767268800"}
    assert parse_filter(values) == TraceFilter(
        agent="poet", has_error=False, min_duration=0.8, until=1_767_268_800 * SECOND
    )
