"""`/metrics`: where it is, and who may read it."""

from collections import defaultdict
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any

import pytest
from fastapi import FastAPI
from prometheus_client.parser import text_string_to_metric_families
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient
from starlette.types import ASGIApp

from copilot_runtime import CopilotRuntime, ScriptedAdapter, Settings
from copilot_runtime.adapters.scripted import Gate
from copilot_runtime.extensions.tracing.http.metrics import render_metrics
from copilot_runtime.extensions.tracing.settings import TelemetrySettings
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
