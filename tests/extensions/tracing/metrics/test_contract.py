"""Names, units, attributes and buckets are those of the semantic conventions for generative AI."""

from collections.abc import Sequence

import pytest

from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.semconv import METRICS
from tests.in_one_test import in_one_test

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
