"""Instruments add values up, by bounded sets of attributes, and never get in the way."""

import threading
from collections.abc import Sequence
from math import inf, nan

import pytest

from copilot_runtime.telemetry import NO_TELEMETRY, Attributes, semconv
from copilot_runtime.telemetry.metrics import Metrics, Point
from copilot_runtime.telemetry.semconv import METRICS
from tests.extensions.tracing.metrics import names_of, points_of, values_of
from tests.in_one_test import in_one_test


def test_a_histogram_sorts_values_into_buckets_whose_upper_bound_belongs_to_them() -> None:
    metrics = Metrics()
    for value in (0.5, 1, 1.5, 34, 35):
        metrics.record(semconv.INVOKE_AGENT_TOOL_CALLS, value, {semconv.AGENT_NAME: "a"})
    assert points_of(metrics, semconv.INVOKE_AGENT_TOOL_CALLS) == [
        Point({semconv.AGENT_NAME: "a"}, 72.0, 5, (2, 1, 0, 0, 0, 0, 0, 1, 1))
    ]


def test_a_counter_adds_up() -> None:
    metrics = Metrics()
    metrics.record(semconv.COST, 0.25)
    metrics.record(semconv.COST, 0.5)
    assert points_of(metrics, semconv.COST) == [Point({}, 0.75, 2)]


def test_a_value_has_only_the_attributes_that_its_instrument_names() -> None:
    metrics = Metrics()
    attributes = {semconv.AGENT_NAME: "a", semconv.CONVERSATION_ID: "t1", "user.name": "Ann"}
    metrics.record(semconv.INVOKE_AGENT_DURATION, 1, attributes)
    (point,) = points_of(metrics, semconv.INVOKE_AGENT_DURATION)
    assert point.attributes == {semconv.AGENT_NAME: "a"}


def test_sets_beyond_the_most_are_counted_together_and_none_is_lost() -> None:
    metrics = Metrics(max_sets=3)
    for number in range(10):
        metrics.record(semconv.RUN_COUNT, 1, {semconv.AGENT_NAME: f"a{number}"})
    metrics.record(semconv.RUN_COUNT, 1, {semconv.AGENT_NAME: "a0"})
    assert [(point.attributes, point.value) for point in points_of(metrics, semconv.RUN_COUNT)] == [
        ({semconv.AGENT_NAME: "a0"}, 2.0),
        ({semconv.AGENT_NAME: "a1"}, 1.0),
        ({"otel.metric.overflow": True}, 8.0),
    ]


def test_a_long_text_is_cut_and_a_list_is_a_text() -> None:
    metrics = Metrics()
    for _ in range(2):
        metrics.record(semconv.RUN_COUNT, 1, {semconv.AGENT_NAME: "a" * 10_000})
        metrics.record(semconv.RUN_COUNT, 1, {semconv.AGENT_NAME: ["a", "b"]})
    assert values_of(metrics, semconv.RUN_COUNT, semconv.AGENT_NAME) == {
        "a" * 128: 2.0,
        "['a', 'b']": 2.0,
    }


@in_one_test("value", [nan, inf, -1])
def test_what_is_no_measure_is_left_out(value: float) -> None:
    metrics = Metrics()
    metrics.record(semconv.COST, value)
    assert names_of(metrics) == set()


def test_what_is_no_measure_takes_nothing_else_along() -> None:
    metrics = Metrics()
    for value in (1, nan, 2, inf, "3", True, None, -1, 10**400, 0.5):
        metrics.record(semconv.INVOKE_AGENT_TOOL_CALLS, value)  # type: ignore[arg-type]  # on purpose
    assert points_of(metrics, semconv.INVOKE_AGENT_TOOL_CALLS) == [
        Point({}, 3.5, 3, (2, 1, 0, 0, 0, 0, 0, 0, 0))
    ]


def test_values_are_the_same_whether_somebody_looks_early_or_late() -> None:
    early, late = Metrics(), Metrics()
    for number in range(1_200):
        for metrics in (early, late):
            attributes = {semconv.AGENT_NAME: f"a{number % 3}"}
            metrics.record(semconv.INVOKE_AGENT_DURATION, number / 4, attributes)
            metrics.record(semconv.RUN_COUNT, 1, attributes)
            metrics.record(semconv.INVOKE_AGENT_TOOL_CALLS, number % 7)
        early.collect()
    assert early.collect() == late.collect()
    assert sum(points_of(late, semconv.INVOKE_AGENT_TOOL_CALLS)[0].buckets) == 1_200


def test_an_exporter_gets_the_values_that_come_while_it_is_there() -> None:
    metrics, exported = Metrics(), list[tuple[str, float, Attributes]]()
    attributes = {semconv.AGENT_NAME: "a", semconv.CONVERSATION_ID: "t1"}

    def export(name: str, value: float, attributes: Attributes) -> None:
        exported.append((name, value, attributes))

    metrics.record(semconv.RUN_COUNT, 0, attributes)
    metrics.export(export)
    metrics.record(semconv.RUN_COUNT, 1, attributes)
    metrics.export(None)
    metrics.record(semconv.RUN_COUNT, 2, attributes)

    assert exported == [(semconv.RUN_COUNT, 1, {semconv.AGENT_NAME: "a"})]
    assert values_of(metrics, semconv.RUN_COUNT, semconv.AGENT_NAME) == {"a": 3.0}


def test_names_without_end_are_not_kept() -> None:
    metrics = Metrics(max_sets=3)
    for number in range(3_000):
        metrics.record(semconv.RUN_COUNT, 1, {semconv.AGENT_NAME: f"a{number}"})
    metrics.record(semconv.RUN_COUNT, 1, {semconv.AGENT_NAME: "a0"})
    assert [point.value for point in points_of(metrics, semconv.RUN_COUNT)] == [2.0, 1.0, 2998.0]


def test_an_unknown_name_gets_in_nobodys_way() -> None:
    metrics = Metrics()
    metrics.record("copilot.unheard", 1)
    metrics.observe("copilot.unheard", lambda: 1)
    metrics.record(semconv.RUNS_OPEN, 1)  # a gauge is read, not recorded
    assert names_of(metrics) == set()


def test_a_gauge_is_read_when_somebody_looks() -> None:
    metrics, number = Metrics(), 3
    metrics.observe(semconv.RUNS_OPEN, lambda: number)
    number = 4
    assert points_of(metrics, semconv.RUNS_OPEN) == [Point({}, 4.0)]


def test_gauges_of_two_runtimes_are_one_sum_and_one_that_fails_counts_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    metrics = Metrics()
    for read in (lambda: 1, lambda: 2, lambda: 1 // 0):
        metrics.observe(semconv.READERS_OPEN, read)
    assert values_of(metrics, semconv.READERS_OPEN) == {None: 3.0}
    assert "cannot be read" in caplog.text


def test_threads_lose_no_value() -> None:
    metrics = Metrics()

    def work() -> None:
        for _ in range(2000):
            metrics.record(semconv.FEEDBACK_COUNT, 1, {semconv.FEEDBACK_RATING: "up"})

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert values_of(metrics, semconv.FEEDBACK_COUNT, semconv.FEEDBACK_RATING) == {"up": 8000.0}


def test_without_telemetry_nothing_is_counted() -> None:
    NO_TELEMETRY.record(semconv.COST, 1)
    NO_TELEMETRY.observe(semconv.RUNS_OPEN, lambda: 1)
    assert NO_TELEMETRY.metrics is None
    assert NO_TELEMETRY.find_failing_checks() == ()


D = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864)
AGENT = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 102.4, 204.8, 409.6)
WORKFLOW = (1, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200)
MCP = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
CALLS = (1, 2, 3, 5, 8, 13, 21, 34)

MODEL = (
    "gen_ai.operation.name gen_ai.provider.name gen_ai.request.model gen_ai.response.model "
    "server.address server.port"
)
MCP_ATTRIBUTES = "mcp.method.name gen_ai.tool.name error.type network.transport"
CONTRACT = [
    ("gen_ai.client.operation.duration", "histogram", "s", f"{MODEL} error.type", D, "released"),
    (
        "gen_ai.client.token.usage",
        "histogram",
        "{token}",
        f"{MODEL} gen_ai.token.type",
        TOKENS,
        "released",
    ),
    ("gen_ai.client.operation.time_to_first_chunk", "histogram", "s", MODEL, D, "released"),
    ("gen_ai.client.inference.duration", "histogram", "s", f"{MODEL} error.type", D, "head"),
    ("gen_ai.client.inference.time_to_first_chunk", "histogram", "s", MODEL, D, "head"),
    *(
        (
            f"gen_ai.client.inference.usage.{kind}",
            "counter",
            "{token}",
            f"{MODEL} gen_ai.token.modality",
            (),
            "head",
        )
        for kind in (
            *("input_tokens", "output_tokens", "cache_read.input_tokens"),
            *("cache_write.input_tokens", "reasoning.output_tokens"),
        )
    ),
    *(
        (
            f"gen_ai.client.inference.operation.{kind}",
            "histogram",
            "{token}",
            MODEL,
            TOKENS,
            "head",
        )
        for kind in ("input_tokens", "output_tokens")
    ),
    (
        "gen_ai.invoke_agent.duration",
        "histogram",
        "s",
        "gen_ai.agent.name gen_ai.request.model error.type",
        AGENT,
        "dual",
    ),
    (
        "gen_ai.invoke_agent.inference_calls",
        "histogram",
        "{inference_call}",
        "gen_ai.agent.name",
        CALLS,
        "dual",
    ),
    (
        "gen_ai.invoke_agent.tool_calls",
        "histogram",
        "{tool_call}",
        "gen_ai.agent.name",
        CALLS,
        "dual",
    ),
    (
        "gen_ai.invoke_workflow.duration",
        "histogram",
        "s",
        "gen_ai.workflow.name error.type",
        WORKFLOW,
        "dual",
    ),
    (
        "gen_ai.execute_tool.duration",
        "histogram",
        "s",
        "gen_ai.tool.name gen_ai.tool.type gen_ai.agent.name error.type",
        D,
        "dual",
    ),
    ("mcp.client.operation.duration", "histogram", "s", MCP_ATTRIBUTES, MCP, "dual"),
    ("mcp.server.operation.duration", "histogram", "s", MCP_ATTRIBUTES, MCP, "dual"),
]


@in_one_test(
    ("name", "kind", "unit", "attributes", "buckets", "dialect"),
    CONTRACT,
    ids=[str(row[0]) for row in CONTRACT],
)
def test_a_metric_is_as_the_conventions_have_it(
    name: str, kind: str, unit: str, attributes: str, buckets: Sequence[float], dialect: str
) -> None:
    metric = METRICS[name]
    assert (metric.kind, metric.unit, metric.dialect) == (kind, unit, dialect)
    assert sorted(metric.attributes) == sorted(attributes.split())
    assert tuple(metric.buckets) == pytest.approx(buckets)


def test_no_other_metric_has_a_name_of_the_conventions() -> None:
    ours = {name for name in METRICS if not name.startswith(("gen_ai.", "mcp."))}
    sessions = {"mcp.client.session.duration", "mcp.server.session.duration"}
    assert METRICS.keys() - ours - sessions == {row[0] for row in CONTRACT}
    assert all(name.startswith("copilot.") for name in ours)


@in_one_test("metric", METRICS.values(), ids=METRICS)
def test_no_metric_says_who_or_which_conversation_it_was(metric: semconv.Metric) -> None:
    too_many = {semconv.CONVERSATION_ID, semconv.RUN_ID, semconv.TOOL_CALL_ID, semconv.RESPONSE_ID}
    assert not too_many.intersection(metric.attributes)
    assert not any(
        semconv.is_identity(name) or semconv.is_content(name) for name in metric.attributes
    )


@in_one_test("metric", METRICS.values(), ids=METRICS)
def test_histograms_alone_have_buckets_and_those_rise(metric: semconv.Metric) -> None:
    assert bool(metric.buckets) == (metric.kind == "histogram")
    assert list(metric.buckets) == sorted(set(metric.buckets))
