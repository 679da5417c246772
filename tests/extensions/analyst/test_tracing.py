"""Spans of a question: one tree, without what people wrote, and memory beside it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from copilot_runtime.adapters.scripted import call, say
from copilot_runtime.telemetry import LocalTelemetry, Span, semconv
from tests.extensions.analyst.analysts import ask, build_analyst, run_agent
from tests.extensions.analyst.http.server import LOCAL, build_runtime
from tests.telemetry.recorded import Spans

pytestmark = pytest.mark.anyio

WRONG = call("run_sql", {"sql": "SELECT avg(amuont) FROM orders WHERE city = 'Oslo'"})


def draw_tree(spans: Sequence[Span], parent: str) -> list[Any]:
    """Return the names of spans below a parent, in the order in which they began."""
    children = sorted(
        (one for one in spans if one.parent_id == parent), key=lambda one: one.start_time
    )
    return [
        {one.name: below} if (below := draw_tree(spans, one.span_id)) else one.name
        for one in children
    ]


async def test_a_question_of_the_routes_is_one_tree(tmp_path: Path) -> None:
    kept = Spans()
    runtime = build_runtime(tmp_path, WRONG, say("15"), telemetry=LocalTelemetry(kept))
    with TestClient(runtime.app(), LOCAL, headers={"x-user": "ann"}) as client:
        client.post("/copilot/stream", json={"message": "Average in Oslo?"})

    root = kept.named("copilot.request")
    loop = ["chat", {"execute_tool run_sql": ["SELECT orders", "SELECT orders"]}, "chat"]
    below = draw_tree([one for one in kept.spans if "hook" not in one.name], root.span_id)
    assert below == [{"invoke_agent analyst": loop}, "prepare_request", "sanitize_output"]
    assert kept.named("upsert_memory").links[0].context.trace_id == root.trace_id


async def test_an_attempt_that_failed_has_a_span_of_its_own(tmp_path: Path) -> None:
    kept = Spans()
    telemetry = LocalTelemetry(kept)
    analyst = build_analyst(tmp_path, telemetry=telemetry, memory_enabled=True)
    await run_agent(analyst, ask("Average in Oslo?"), WRONG, say("15"), telemetry=telemetry)
    await analyst.aclose()

    (root,) = [one for one in kept.spans if one.name == "invoke_agent analyst"]
    assert draw_tree(kept.spans, root.span_id) == [
        "prepare_request",
        "chat",
        {"execute_tool run_sql": ["SELECT orders", "SELECT orders"]},
        "chat",
        "sanitize_output",
    ]
    first, second = [one for one in kept.spans if one.name == "SELECT orders"]
    assert (first.status, second.status) == ("error", "unset")
    assert first.attributes[semconv.ERROR_TYPE] == "column_not_found"
    assert [one.attributes[semconv.SQL_ATTEMPT] for one in (first, second)] == [1, 2]
    memory = kept.named("upsert_memory")
    assert memory.trace_id != root.trace_id
    assert [link.context.trace_id for link in memory.links] == [root.trace_id]


async def test_no_attribute_has_what_people_wrote(tmp_path: Path) -> None:
    kept = Spans()
    telemetry = LocalTelemetry(kept)
    analyst = build_analyst(tmp_path, telemetry=telemetry)
    await run_agent(analyst, ask("Average in Oslo?"), WRONG, say("15"), telemetry=telemetry)

    written = repr([(one.name, one.attributes, one.content, one.events) for one in kept.spans])
    assert "Oslo" not in written
    assert "city = ?" in written
