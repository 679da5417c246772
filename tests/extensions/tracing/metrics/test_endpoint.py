"""`/metrics`: where it is, and who may read it."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import Any

import pytest
from fastapi import FastAPI
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.view import ExplicitBucketHistogramAggregation, View
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient
from starlette.types import ASGIApp

from copilot_runtime import CopilotRuntime, ScriptedAdapter, Settings
from copilot_runtime.adapters.scripted import Gate
from copilot_runtime.extensions.tracing.http.metrics import merge_pages, name_metric, render_metrics
from copilot_runtime.extensions.tracing.settings import TelemetrySettings
from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.metrics import Metrics
from copilot_runtime.telemetry.semconv import METRICS, Metric
from copilot_runtime.testing import Client, say
from tests.in_one_test import in_one_test
from tests.runs import Says, run_input

pytestmark = pytest.mark.anyio


HERE = ("127.0.0.1", 50000)
ELSEWHERE = ("192.0.2.7", 50000)


def runtime_with(
    telemetry: TelemetrySettings | None = None, gate: Gate | None = None, **more: Any
) -> CopilotRuntime:
    settings = Settings(
        threads="memory", telemetry=telemetry or TelemetrySettings(), deployment="test"
    )
    return CopilotRuntime(ScriptedAdapter(say("Hi"), gate=gate), settings=settings, **more)


def get(app: ASGIApp, path: str = "/metrics", *, client: Any = HERE, **headers: Any) -> Any:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return TestClient(app, base_url="http://localhost", client=client).get(path, headers=names)


def read_page(runtime: CopilotRuntime) -> str:
    """Return the page as it is now, without a request."""
    metrics = runtime.telemetry.metrics
    assert metrics is not None
    return render_metrics(metrics.collect(), {})


def values_of(text: str) -> Mapping[str, float]:
    """Return what the samples without a bucket came to, by their names."""
    sums = defaultdict[str, float](float)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if "le" not in sample.labels:
                sums[sample.name] += sample.value
    return sums


def test_what_may_fail_is_counted_from_zero_so_that_its_first_time_is_a_rise() -> None:
    runtime = runtime_with(agents={"shop": Says()})
    with TestClient(runtime.app(), base_url="http://localhost", client=HERE) as client:
        text = client.get("/metrics").text
    zeros = [
        (sample.labels["gen_ai_agent_name"], sample.labels["copilot_run_outcome"], sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "copilot_run_count_total"
    ]
    outcomes = ("finished", "failed", "stopped", "refused", "interrupted")
    assert zeros == [(agent, it, 0.0) for agent in ("default", "shop") for it in outcomes]
    assert 'copilot_feedback_rating="down"' in text


@in_one_test("form", ["app", "lazy_app", "app at the root"])
async def test_a_chat_is_counted_where_prometheus_looks(form: str) -> None:
    runtime = runtime_with()
    app = runtime.lazy_app() if form == "lazy_app" else runtime.app("/" if "root" in form else None)
    async with Client(app, path="/" if "root" in form else "/graphql") as client:
        await client.say("Hello")
        answer = await client.request("GET", "/metrics")
    text = answer.body.decode()
    values = values_of(text)
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert values["gen_ai_client_operation_duration_seconds_count"] == 1
    assert values["copilot_run_count_total"] == 1
    assert values["copilot_store_duration_seconds_count"] >= 1
    assert values["copilot_bus_delay_seconds_count"] >= 1
    assert values["copilot_runs_open"] == values["copilot_readers_open"] == 0
    assert values["copilot_telemetry_dropped_total"] == 0
    assert 'target_info{deployment_environment_name="test",service_name="copilot-run' in text
    assert "worker" not in text
    assert "Hello" not in text


@in_one_test("identity", [False, True])
def test_whose_machine_it_is_stands_there_with_the_setting_alone(identity: bool) -> None:
    machine = {"host.name": "anns-laptop"}
    runtime = runtime_with(TelemetrySettings(identity=identity, resource_attributes=machine))
    assert ("anns-laptop" in get(runtime.app(), "/metrics").text) is identity


def test_beside_routes_of_a_host_it_is_below_the_url_of_the_runtime() -> None:
    app = FastAPI()
    runtime_with().mount(app, "/ai")
    assert get(app, "/ai/metrics").status_code == 200
    assert get(app, "/metrics").status_code == 404


def test_a_mounted_application_has_it_below_its_path() -> None:
    app = Starlette(routes=[Mount("/ai", runtime_with().app())])
    assert get(app, "/ai/metrics").status_code == 200


def test_a_head_has_no_body_and_nothing_can_be_posted() -> None:
    client = TestClient(runtime_with().app(), base_url="http://localhost", client=HERE)
    assert client.head("/metrics").content == b""
    assert client.post("/metrics").status_code in (404, 405)


@in_one_test(
    "asks",
    [
        {"client": ELSEWHERE},
        {"client": None},
        {"host": "evil.example"},
        {"x_forwarded_for": "192.0.2.7"},
        {"forwarded": "for=192.0.2.7"},
        {"sec_fetch_site": "cross-site"},
        {"via": "1.1 proxy"},
    ],
    ids=[
        "another machine",
        "a socket",
        "a rebound name",
        "a proxy",
        "a proxy of today",
        "another page",
        "a cache",
    ],
)
def test_other_machines_get_nothing_and_learn_how_it_could_be(asks: dict[str, Any]) -> None:
    app = FastAPI()
    runtime_with().mount(app, "/ai")  # no guard is around it there
    answer = get(app, "/ai/metrics", **asks)
    assert answer.status_code == 403
    assert "telemetry.metrics_token" in answer.json()["error"]


@in_one_test("client", [HERE, ELSEWHERE])
def test_with_a_token_whoever_has_it_may_read_and_nobody_else(client: Any) -> None:
    app = runtime_with(TelemetrySettings(metrics_token="söcret")).app()
    right = "Bearer söcret".encode()
    assert get(app, client=client, authorization=right).status_code == 200
    for wrong in ("", "Bearer", "Bearer other", "Basic söcret".encode()):
        answer = get(app, client=client, authorization=wrong)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")


@in_one_test(
    "telemetry", [TelemetrySettings(metrics_endpoint=False), TelemetrySettings(enabled=False)]
)
def test_it_can_be_off(telemetry: TelemetrySettings) -> None:
    app = FastAPI()
    runtime = runtime_with(telemetry)
    runtime.mount(app, "/ai")
    assert get(app, "/ai/metrics").status_code == 404
    assert get(runtime.app(console=False)).status_code == 404


async def test_runs_and_readers_are_counted_while_they_go_on() -> None:
    gate = Gate()
    runtime = runtime_with(gate=gate)
    run = await runtime.runtime.start(run_input(detached=True))
    async with aclosing(run.follow()) as batches:
        await anext(batches)
        values = values_of(read_page(runtime))
        gate.release(100)
        await run.ended
    assert values["copilot_runs_open"] == values["copilot_readers_open"] == 1
    values = values_of(read_page(runtime))
    assert values["copilot_runs_open"] == values["copilot_readers_open"] == 0
    await runtime.aclose()


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
