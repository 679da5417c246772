"""The page of Prometheus: names by OpenTelemetry's rules, and a form that its parser takes."""

from collections.abc import Sequence
from typing import Any

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.view import ExplicitBucketHistogramAggregation, View
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from copilot_runtime.extensions.tracing.http.metrics import merge_pages, name_metric, render_metrics
from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.metrics import Metrics
from copilot_runtime.telemetry.semconv import METRICS, Metric
from tests.in_one_test import in_one_test

ODD = 'a "quoted" \\ path\nand a second line, \ud83c'


def families_of(metrics: Metrics, resource: dict[str, Any] | None = None) -> dict[str, Any]:
    text = render_metrics(metrics.collect(), resource or {}, version="1.0")
    return {family.name: family for family in text_string_to_metric_families(text)}


def samples_of(metrics: Metrics, name: str) -> list[tuple[str, dict[str, str], float]]:
    """Return the samples of a family, without the labels that all have."""
    return [
        (
            sample.name,
            {k: v for k, v in sample.labels.items() if "otel_scope" not in k},
            sample.value,
        )
        for sample in families_of(metrics)[name].samples
    ]


def test_a_histogram_has_buckets_that_add_up_a_sum_and_a_count() -> None:
    metrics = Metrics()
    for value in (1, 5, 100):
        metrics.record(semconv.INVOKE_AGENT_TOOL_CALLS, value, {semconv.AGENT_NAME: "a"})
    name, agent = "gen_ai_invoke_agent_tool_calls", {"gen_ai_agent_name": "a"}
    bounds = ["1.0", "2.0", "3.0", "5.0", "8.0", "13.0", "21.0", "34.0", "+Inf"]
    counts = [1, 1, 1, 2, 2, 2, 2, 2, 3]
    assert samples_of(metrics, name) == [
        *(
            (f"{name}_bucket", {**agent, "le": bound}, count)
            for bound, count in zip(bounds, counts, strict=True)
        ),
        (f"{name}_sum", agent, 106),
        (f"{name}_count", agent, 3),
    ]


def test_a_counter_ends_in_total_and_a_gauge_does_not() -> None:
    metrics = Metrics()
    metrics.record(semconv.RUN_COUNT, 1, {semconv.RUN_OUTCOME: "finished"})
    metrics.observe(semconv.RUNS_OPEN, lambda: 2)
    metrics.observe(semconv.TELEMETRY_DROPPED, lambda: 0)
    outcome = {"copilot_run_outcome": "finished"}
    assert samples_of(metrics, "copilot_run_count") == [("copilot_run_count_total", outcome, 1.0)]
    assert samples_of(metrics, "copilot_runs_open") == [("copilot_runs_open", {}, 2.0)]
    assert families_of(metrics)["copilot_telemetry_dropped"].type == "counter"


def test_a_value_may_be_any_text() -> None:
    metrics = Metrics()
    metrics.record(semconv.RUN_COUNT, 1, {semconv.AGENT_NAME: ODD})
    ((_, labels, _),) = samples_of(metrics, "copilot_run_count")
    assert labels == {"gen_ai_agent_name": ODD.replace("\ud83c", "?")}


def test_the_rest_is_one_set_that_says_so() -> None:
    metrics = Metrics(max_sets=1)
    metrics.record(semconv.RUN_COUNT, 1, {semconv.AGENT_NAME: "a"})
    assert samples_of(metrics, "copilot_run_count") == [
        ("copilot_run_count_total", {"otel_metric_overflow": "true"}, 1.0)
    ]


def test_the_resource_is_target_info_and_names_that_become_one_are_joined() -> None:
    resource = {"service.name": "shop", "team.id": "b", "team_id": "a", "1st": True}
    (sample,) = families_of(Metrics(), resource)["target_info"].samples
    assert sample.value == 1
    assert sample.labels == {"service_name": "shop", "team_id": "b;a", "_1st": "true"}
    assert render_metrics([], {}) == ""


def test_pages_of_several_workers_are_one_with_the_samples_of_a_family_together() -> None:
    odd = "a\u2028# HELP b \x85"
    pages = [page_of_worker(1, "a"), page_of_worker(2, odd), ""]
    (runs, cost) = text_string_to_metric_families(merge_pages(pages))
    assert [(it.labels["worker"], it.labels["gen_ai_agent_name"]) for it in runs.samples] == [
        ("1", "a"),
        ("2", odd),
    ]
    assert [(it.labels["worker"], it.value) for it in cost.samples] == [("1", 1.0), ("2", 2.0)]


def page_of_worker(number: int, agent: str) -> str:
    metrics = Metrics()
    metrics.record(semconv.RUN_COUNT, 1, {semconv.AGENT_NAME: agent})
    metrics.record(semconv.COST, number)
    return render_metrics(metrics.collect(), {}, labels={"worker": number})


def test_each_sample_says_who_measured_it() -> None:
    metrics = Metrics()
    metrics.record(semconv.COST, 1)
    (sample,) = families_of(metrics)["copilot_cost_USD"].samples
    assert sample.labels == {"otel_scope_name": "copilot_runtime", "otel_scope_version": "1.0"}


@in_one_test(
    ("name", "unit", "kind", "expected"),
    [
        ("a.duration", "s", "histogram", "a_duration_seconds"),
        ("a.duration.seconds", "s", "histogram", "a_duration_seconds"),
        ("a.size", "By", "gauge", "a_size_bytes"),
        ("a.share", "1", "gauge", "a_share_ratio"),
        ("a.usage", "{token}", "counter", "a_usage_total"),
        ("a--b", "", "gauge", "a_b"),
    ],
)
def test_names_have_underscores_and_units(name: str, unit: str, kind: Any, expected: str) -> None:
    assert name_metric(Metric(name, kind, unit, "", ())) == expected


def by_their_exporter(metric: Metric) -> Sequence[str]:
    """Return the names of samples that OpenTelemetry's own exporter has for a metric."""
    registry = CollectorRegistry()
    reader = PrometheusMetricReader(registry=registry)
    buckets = ExplicitBucketHistogramAggregation(boundaries=list(metric.buckets))
    views = [View(instrument_name=metric.name, aggregation=buckets)] if metric.buckets else []
    meter = MeterProvider([reader], views=views).get_meter(semconv.SCOPE)
    match metric.kind:
        case "histogram":
            meter.create_histogram(metric.name, metric.unit).record(1)
        case "counter":
            meter.create_counter(metric.name, metric.unit).add(1)
        case "gauge":
            meter.create_gauge(metric.name, metric.unit).set(1)
    families = text_string_to_metric_families(generate_latest(registry).decode())
    return [it.name for family in families for it in family.samples if it.name != "target_info"]


@in_one_test("metric", METRICS.values(), ids=METRICS)
def test_names_and_buckets_are_those_of_opentelemetrys_own_exporter(metric: Metric) -> None:
    metrics = Metrics()
    if metric.kind == "gauge":
        metrics.observe(metric.name, lambda: 1)
    else:
        metrics.record(metric.name, 1)
    ours = [sample.name for family in families_of(metrics).values() for sample in family.samples]
    assert sorted(ours) == sorted(by_their_exporter(metric))
