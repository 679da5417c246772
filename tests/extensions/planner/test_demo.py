"""Plans of the demo model beside an analyst and documents."""

import os
from pathlib import Path

import pytest

from copilot_runtime import CopilotRuntime, DemoAdapter
from copilot_runtime.extensions.knowledge import Knowledge
from copilot_runtime.extensions.settings import load_settings
from copilot_runtime.extensions.tracing.store import MemoryTraceStore
from copilot_runtime.testing import Client
from tests.extensions.tracing.http.spans import serve
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

OVEN = "How often is the oven cleaned?"


async def execute(folder: Path, question: str, **planner: str) -> str:
    """Return the answer of a planner whose only agent is an analyst."""
    (folder / "pages").mkdir()
    (folder / "pages" / "oven.md").write_text("# The oven\n\nThe oven is cleaned on Friday.\n")
    (folder / "orders.csv").write_text("product,quantity\nTart,0.1\nTart,0.2\nBun,3\n")
    settings = load_settings(
        os.devnull,
        {
            "COPILOT_THREADS": "memory",
            "COPILOT_KNOWLEDGE_STORAGE": "memory",
            "COPILOT_KNOWLEDGE_SOURCES": str(folder / "pages"),
            "COPILOT_ANALYST_NAME": "analyst",
            "COPILOT_ANALYST_DATA": str(folder / "orders.csv"),
            "COPILOT_ANALYST_STORE": str(folder / "analyst"),
            "COPILOT_PLANNER_NAME": "planner",
            "COPILOT_PLANNER_STORE": "memory",
            **{f"COPILOT_PLANNER_{name.upper()}": value for name, value in planner.items()},
        },
    )
    runtime = CopilotRuntime(DemoAdapter(pace=0), settings=settings)
    async with Client(runtime, agent="planner") as client:
        knowledge = runtime.find(Knowledge)
        assert knowledge
        await knowledge.ingest()
        return (await client.say(question)).text


async def test_a_task_is_answered_by_the_passage_that_answers_its_question(tmp_path: Path) -> None:
    answer = await execute(tmp_path, OVEN)

    assert answer.startswith("The oven is cleaned on Friday. ([The oven]")


async def test_the_outcome_of_a_task_has_the_rows_that_the_analyst_has_shown(
    tmp_path: Path,
) -> None:
    answer = await execute(tmp_path, "Sum the quantity of orders by product")

    assert "| Bun | 3.0 |\n| Tart | 0.3 |" in answer


@in_one_test(
    "question",
    ["Write a poem, then write a summary", "Find out what error F28 means, then write a summary"],
    ids=["finished", "failed"],
)
def test_a_plan_costs_what_its_trace_shows_planning_included(question: str) -> None:
    planner = {"name": "planner", "store": "memory", "fallback": "assistant"}
    message = {"id": "m", "role": "user", "content": question}
    body = {"threadId": "t", "runId": "r", "messages": [message], "tools": [], "context": []}

    with serve(MemoryTraceStore(), settings={"planner": planner}) as client:
        client.post("/graphql/agent/planner/run", json=body)
        (found,) = client.get("/graphql/plans").json()["plans"]
        plan = client.get(f"/graphql/plans/{found['id']}").json()
        trace = client.get(f"/graphql/traces/{plan['trace_id']}").json()["trace"]

    assert plan["dollars"] == round(trace["dollars"], 6) > 0
    assert plan["tokens"] == trace["input_tokens"] + trace["output_tokens"]
    assert trace["unpriced"] == 0
