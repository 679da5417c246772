"""Traces in text: a waterfall for a terminal, and a sequence diagram of Mermaid."""

from collections.abc import Sequence
from typing import Any

import pytest

from copilot_runtime.base.errors import Misuse
from copilot_runtime.base.formatting import format_dollars, format_duration, format_time
from copilot_runtime.extensions.tracing.mermaid import MOST_CALLS, NOTHING, draw_sequence
from copilot_runtime.extensions.tracing.stats import compute_stats, find_percentile
from copilot_runtime.extensions.tracing.store import Record, TraceFilter
from copilot_runtime.extensions.tracing.store.traces import (
    parse_filter,
    parse_time,
    summarize_trace,
)
from copilot_runtime.extensions.tracing.waterfall import draw_waterfall
from copilot_runtime.telemetry import semconv
from tests.extensions.tracing.http.spans import SECOND, agent, chat, span, tool, trip
from tests.in_one_test import in_one_test

RED = "\x1b[31m"


def draw(records: Sequence[Record], **more: int | bool) -> str:
    return draw_waterfall(records, **{"width": 80, **more})  # type: ignore[arg-type]


def test_a_waterfall_shows_when_what_was_done_and_what_it_took() -> None:
    assert draw(trip()) == (
        "trace aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n"
        "agent planner  thread thread-1  run run-1\n"
        "2026-01-01T12:00:00.000Z  4.00s  5 spans  1 failed  2,500→100  $0.0050\n"
        "\n"
        "invoke_agent planner        ▕█████████████████████████▏ 4.00s\n"
        "  chat gpt-4o               ▕███████                  ▏ 1.00s  1,200→40  $0.0020\n"
        "  execute_tool find_flights ▕      ███████            ▏ 1.00s\n"
        "  ✗ execute_tool book       ▕            ███████      ▏ 1.00s\n"
        "  chat gpt-4o               ▕                  ███████▏ 1.00s  1,300→60  $0.0030\n"
        "\n"
        "✗ execute_tool book: ValueError: Full.\n"
    )


def test_what_failed_is_red_where_there_are_colors() -> None:
    lines = draw(trip(), color=True).splitlines()
    red = [line for line in lines if line.startswith(RED)]
    assert len(red) == 2
    assert all("execute_tool book" in line and line.endswith("\x1b[0m") for line in red)


def test_a_terminal_without_unicode_gets_plain_characters() -> None:
    text = draw(trip(), ascii_only=True)
    assert text.isascii()
    assert "chat gpt-4o               |#######                  | 1.00s  1,200>40" in text
    assert "x execute_tool book" in text


@in_one_test("width", [1, 40, 57, 80, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    spans = [*trip(), tool("名" * 90, id="6", parent="5", error="E", message="長" * 400)]
    for line in draw(spans, width=width).splitlines()[3:]:
        assert len(line) + sum(char in "名長" for char in line) <= max(40, width)


def test_names_are_cut_and_command_no_terminal() -> None:
    text = draw([tool("a\x1b[2J\nb" + "c" * 200, id="1")])
    assert "\x1b" not in text
    assert "execute_tool a [2J bccccc" in text
    assert "…" in text


def test_two_thousand_spans_are_a_few_lines() -> None:
    many = [tool("look", id=f"t{n}", parent="1", start=n / 1000) for n in range(1998)]
    many[7] |= {"status": {"code": 2, "message": "Gone."}}
    below = span("GET", id="below", parent="t5")
    text = draw([agent("planner", id="1", seconds=4), *many, below])
    assert "✗ 1,998x execute_tool look +1: 1 failed" in text
    assert len(text.splitlines()) < 12


def test_many_spans_that_are_not_alike_are_cut_with_the_way_to_all() -> None:
    many = [tool(f"tool {n}", id=f"t{n}", parent="1") for n in range(300)]
    assert "… and 201 more lines: --all draws each span" in draw([agent("a", id="1"), *many])
    assert draw([agent("a", id="1"), *many], color=True).count("\x1b[2m") == 1
    assert "tool 299" in draw([agent("a", id="1"), *many], most_rows=0)


def test_ten_errors_are_explained_and_the_others_counted() -> None:
    text = draw([tool(str(n), id=str(n), error="KeyError") for n in range(12)])
    assert text.endswith("… and 2 more that failed\n")


def test_a_trace_as_deep_as_it_likes_is_drawn() -> None:
    deep = [span("step", id=str(n), parent=str(n - 1)) for n in range(20_000)]
    assert len(draw(deep, most_rows=0).splitlines()) == 20_000 + 3


def test_spans_above_each_other_are_drawn_each_once() -> None:
    circle = [span("a", id="1", parent="2"), span("b", id="2", parent="1")]
    itself, below = span("c", id="3", parent="3"), tool("d", id="4", parent="2")
    assert draw([*circle, itself, below]).count("▕") == 4


def test_nothing_is_said_to_be_nothing() -> None:
    assert draw([]) == "The trace has no spans.\n"
    assert draw_sequence([]) == NOTHING


@in_one_test(
    ("seconds", "text"),
    [
        (0, "0µs"),
        (0.00085, "850µs"),
        (0.0121, "12ms"),
        (0.9999, "1.00s"),
        (2.314, "2.31s"),
        (59.999, "1m00s"),
        (185, "3m05s"),
        (7800, "2h10m"),
    ],
)
def test_a_time_is_written_as_people_read_it(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_a_cost_says_what_has_no_price() -> None:
    assert format_dollars(0.0123) == "$0.0123"
    assert format_dollars(12.5, 2) == "$12.50+"
    assert format_dollars(0, 2) == "unpriced"


def test_a_time_that_no_calendar_has_is_a_number() -> None:
    assert format_time(2**70) == str(2**70)


def test_a_sequence_diagram_shows_who_called_whom() -> None:
    assert draw_sequence(trip()).splitlines() == [
        "sequenceDiagram",
        f"    title Trace: {'a' * 32}",
        "",
        "    actor user",
        "    participant planner",
        "    participant p3 as gpt-4o",
        "    participant find_flights",
        "    participant book",
        "",
        "    user->>+planner: run",
        "    planner->>+p3: chat",
        "    p3-->>-planner: OK (read=1200, written=40)",
        "    planner->>+find_flights: call",
        "    find_flights-->>-planner: OK",
        "    planner->>+book: call",
        "    book-->>-planner: ERROR (ValueError)",
        "    planner->>+p3: chat",
        "    p3-->>-planner: OK (read=1300, written=60)",
        "    planner-->>-user: OK",
    ]


def rpc(trace: str = "t1", **more: Any) -> list[Record]:
    """Return a call between two services, as Copilot-LD traces it."""
    sent = {"time": "1970-01-01T00:00:01.000Z", "messages_count": "2", "filter_x": "1", "no": ""}
    back = {"messages_count": "5"}
    client = span(
        "memory.GetWindow",
        id="c",
        trace=trace,
        kind=3,
        events=[{"name": "request_sent", "time_unix_nano": 1, "attributes": sent}],
        service_name="agent",
        rpc_service="memory",
        rpc_method="GetWindow",
    )
    server = span(
        "memory.GetWindow",
        id="s",
        parent="c",
        trace=trace,
        kind=2,
        events=[{"name": "response_sent", "time_unix_nano": 2, "attributes": back}],
        service_name="memory",
        **more,
    )
    server["status"]["code"] = 2 if more.get("error") else 1
    return [client, server]


def test_calls_of_services_are_drawn_as_copilot_ld_does() -> None:
    assert draw_sequence(rpc()) == (
        "sequenceDiagram\n    title Trace: t1\n\n    participant agent\n    participant memory\n\n"
        "    agent->>+memory: GetWindow (time=1970-01-01T00:00:01.000Z, messages_count=2)\n"
        "    memory-->>-agent: OK (messages_count=5)"
    )


def test_an_error_of_a_service_is_shown_in_place_of_what_it_sent() -> None:
    text = draw_sequence(rpc(error="E", message="It broke; #1"))
    assert "    memory-->>-agent: ERROR (It broke#59; #35;1)" in text


def test_the_traces_of_a_resource_are_one_diagram() -> None:
    text = draw_sequence(
        [*rpc("t1"), *rpc("t2"), span("quiet", id="q", trace="t3")], resource_id="r"
    )
    assert text.startswith("sequenceDiagram\n    title Resource: r\n")
    assert text.count("    Note over agent: Trace: t") == 2
    assert text.count("participant") == 2


def test_traces_are_a_diagram_each_without_a_resource() -> None:
    assert draw_sequence([*rpc("t1"), *rpc("t2")]).count("sequenceDiagram") == 2


def test_a_client_whose_server_is_not_known_is_left_out() -> None:
    assert "->>" not in draw_sequence(rpc()[:1])
    nameless = rpc()
    nameless[1]["attributes"] = {}
    assert "->>" not in draw_sequence(nameless)


def test_names_that_mean_something_to_mermaid_get_an_alias() -> None:
    text = draw_sequence([agent("end", id="1"), tool("a;b", id="2", parent="1")])
    assert "    participant p2 as end\n    participant p3 as a#59;b" in text


def test_an_alias_is_nobody_elses_name() -> None:
    text = draw_sequence([agent("p3", id="1"), tool("look up", id="2", parent="1")])
    assert "    participant p2 as p3\n    participant p3 as look up" in text


def test_steps_of_every_kind_are_drawn() -> None:
    sub = agent("writer", id="2", parent="1")
    found = span("retrieval", id="3", parent="1", OPERATION_NAME="retrieval", DATA_SOURCE_ID="docs")
    text = draw_sequence([agent("planner", id="1"), sub, found, span("plain", id="4", parent="1")])
    assert "    planner->>+writer: hand off" in text
    assert "    planner->>+docs: retrieval" in text
    assert "plain" not in text


def test_a_diagram_has_as_many_calls_as_can_be_read() -> None:
    many = [tool("t", id=str(n), parent="a") for n in range(MOST_CALLS + 5)]
    assert "    Note over user: 6 more calls are left out" in draw_sequence(
        [agent("a", id="a"), *many]
    )


def test_a_chat_without_tokens_is_drawn() -> None:
    spans = [chat("m", 1, 1, id="1", kind=3)]
    spans[0]["attributes"].pop("gen_ai.usage.input_tokens")
    assert "    m-->>-user: OK (written=1)" in draw_sequence(spans)


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


def test_a_request_around_a_run_has_its_agent_and_question_in_any_order_of_spans() -> None:
    question = [{"role": "user", "parts": [{"type": "text", "content": "How many?"}]}]
    request = span("copilot.request", id="1", OPERATION_NAME="copilot.request")
    run = agent("analyst", id="2", parent="1", content={semconv.INPUT_MESSAGES: question})
    found = [summarize_trace(spans) for spans in ([request, run], [run, request])]
    assert [it and (it.agent, it.question) for it in found] == [("analyst", "How many?")] * 2


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
