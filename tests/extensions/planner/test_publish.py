"""What happens to plans is told as events of the resources that their tasks are."""

import json
from typing import Any

import pytest
from starlette.testclient import TestClient

from copilot_runtime import CopilotRuntime, ScriptedAdapter, Settings
from copilot_runtime.extensions.events.publisher import EventPublisher
from copilot_runtime.extensions.knowledge.events import (
    MemoryEventLog,
    ResourceEvent,
    ResourceEvents,
)
from copilot_runtime.extensions.planner.agent import PlannerAgent
from copilot_runtime.extensions.planner.events import PlanEntry, QuestionAnswered, UsageAdded
from copilot_runtime.extensions.planner.publish import (
    PlanEventPublisher,
    build_plan_event,
    identify_task,
)
from copilot_runtime.extensions.planner.worker import PlanRequests
from copilot_runtime.testing import call, say
from tests.extensions.events.http.test_rest import RUN
from tests.extensions.planner.crew import Crew, build_engine, build_plan, finish
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

ANN: dict[str, Any] = {"user": "ann", "thread_id": "t1", "run_id": "r1"}


async def carry_out(**fields: Any) -> tuple[Any, list[ResourceEvent]]:
    events = ResourceEvents(MemoryEventLog())
    publisher = EventPublisher(events)
    engine = build_engine(Crew())
    engine.listen(PlanEventPublisher(publisher).on_entry)
    plan = await finish(engine, build_plan("a", {"name": "b", "subtasks": []}, **fields))
    await publisher.aclose()
    return plan, [*(await events.read()).events]


async def test_each_entry_of_a_plan_is_an_event_of_its_task() -> None:
    plan, events = await carry_out(**ANN)

    assert [(it.detail_type, it.detail["task_id"]) for it in events][:2] == [
        ("PLAN_CREATED", "0"),
        ("TASK_STARTED", "0"),
    ]
    of_a = [it for it in events if it.detail["task_id"] == "1"]
    assert [it.detail_type for it in of_a] == [
        "TASK_ASSIGNED",
        "TASK_STARTED",
        "TASK_OUTPUT",
        "TASK_ENDED",
    ]
    assert {it.resources for it in of_a} == {(identify_task(plan, "1"),)}
    assert {it.source for it in events} == {"plans"}
    assert of_a[0].detail == {
        "plan_id": plan.id,
        "number": of_a[0].detail["number"],
        "task_id": "1",
        "name": "a",
        "status": "pending",
        "assistant": "writer",
        "score": 0.9,
    }
    assert of_a[-1].detail["outcome"] == "finished"
    assert "<a>" not in str(events)


async def test_a_plan_in_no_conversation_is_told_to_nobody() -> None:
    _, events = await carry_out()
    assert events == []


async def test_the_same_entry_is_the_same_event() -> None:
    plan, _ = await carry_out(**ANN)
    entry = PlanEntry(7, 1_800_000_000.0, QuestionAnswered(question_id="q", answer="approve"))

    first, second = build_plan_event(plan, entry), build_plan_event(plan, entry)

    assert first == second
    assert first.time == "2027-01-15T08:00:00+00:00"
    assert first.resources == (identify_task(plan, "0"),)


async def test_what_is_used_of_models_is_no_event() -> None:
    plan, _ = await carry_out(**ANN)
    events = ResourceEvents(MemoryEventLog())
    publisher = EventPublisher(events)
    PlanEventPublisher(publisher).on_entry(
        plan, PlanEntry(9, 0.0, UsageAdded(task_id="1", tokens=5))
    )
    await publisher.aclose()
    assert (await events.read()).events == []


PLAN = {"tasks": [{"name": "poem", "purpose": "Write a poem."}]}
SCRIPT = (call("create_plan", PLAN), say("Waves."), say("Waves."))


@in_one_test("is_of_program", [False, True])
def test_a_server_tells_the_plans_of_its_planners(is_of_program: bool) -> None:
    adapter = ScriptedAdapter(*SCRIPT)
    given = {"planner": PlannerAgent(adapter, build_engine(Crew()), PlanRequests(None))}  # type: ignore[arg-type]
    runtime = CopilotRuntime(
        adapter,
        agents=given if is_of_program else None,
        settings=Settings(
            threads="memory",
            planner={} if is_of_program else {"name": "planner", "store": "memory"},  # type: ignore[arg-type]
        ),
    )
    with TestClient(runtime.app()) as client:
        client.post("/graphql/agent/planner/run", json=RUN)
        query = "prefix=common.Conversation.t1/common.Message.r1&type=TASK_ENDED"
        page = client.get(f"/graphql/events?{query}").json()
    assert [(it["detail"]["task_id"], it["detail"]["outcome"]) for it in page["events"]] == [
        ("1", "finished"),
        ("0", "finished"),
    ], json.dumps(page)
