"""Tasks are resources below the message that asked for them, and go with the conversation."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from time import sleep
from typing import Any

import pytest
from starlette.testclient import TestClient

from copilot_runtime import CopilotRuntime, ScriptedAdapter, Settings
from copilot_runtime.agents.direct import DirectAgent
from copilot_runtime.api import Passage, RunInput
from copilot_runtime.api.messages import TextMessage
from copilot_runtime.base.errors import StoreFailed
from copilot_runtime.extensions.knowledge import Knowledge
from copilot_runtime.extensions.knowledge.settings import KnowledgeSettings
from copilot_runtime.extensions.planner.engine import PlanEngine
from copilot_runtime.extensions.planner.events import ROOT
from copilot_runtime.extensions.planner.log import MemoryPlanLog, PlanLog
from copilot_runtime.extensions.planner.plan import Plan, TaskState
from copilot_runtime.extensions.planner.publish import identify_task
from copilot_runtime.extensions.planner.resources import TaskResources
from copilot_runtime.extensions.planner.roles import TaskContext, Verdict
from copilot_runtime.extensions.planner.settings import PlannerSettings
from copilot_runtime.extensions.planner.sqlite import SqlitePlanLog
from copilot_runtime.extensions.planner.worker import AgentWorker, build_prompt
from copilot_runtime.storage import MemoryStorage
from copilot_runtime.testing import call, say
from copilot_runtime.threads.memory import MemoryThreads
from copilot_runtime.threads.store import Thread, ThreadKey
from tests.extensions.knowledge.library import WordCounter
from tests.extensions.knowledge.test_served import sign_in, wait_until_ready
from tests.extensions.knowledge.uploads.chat import ask, question
from tests.extensions.planner.crew import Crew, always, build_engine, build_plan, finish
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

TREE = {"name": "a", "subtasks": [{"name": "x", "purpose": "Do x."}]}
CONVERSATION = "common.User.ann/common.Conversation.t1"
ANN: dict[str, Any] = {"user": "ann", "thread_id": "t1", "run_id": "r1"}


def build_knowledge() -> Knowledge:
    return Knowledge(MemoryStorage(), settings=KnowledgeSettings(), embedder=WordCounter())


async def carry_out(
    knowledge: Knowledge, crew: Crew, *tasks: Any, log: PlanLog | None = None, **fields: Any
) -> Plan:
    """Carry a plan out, with its tasks as resources."""
    log = log or MemoryPlanLog()
    resources = TaskResources(knowledge, log)
    engine = build_engine(crew, log)
    engine.listen(resources.on_entry)
    await engine.open()
    await resources.open()
    plan = await finish(engine, build_plan(*tasks, **{**ANN, **fields}))
    await resources.flush()
    await engine.aclose()
    await resources.aclose()
    return plan


async def read_tree(knowledge: Knowledge, prefix: str = CONVERSATION) -> dict[str, Any]:
    """Return the resources below a conversation by their names, with status or content."""
    found = await knowledge.resources.find_by_prefix(prefix)
    resources = await knowledge.resources.get(found)
    return {
        one.uri.removeprefix(f"{prefix}/"): one.fields.get("status") or one.content
        for one in resources
    }


async def test_tasks_are_nested_below_the_message_with_what_came_of_them() -> None:
    knowledge = build_knowledge()
    plan = await carry_out(knowledge, Crew(), TREE)
    top = f"common.Message.r1/plan.Task.{plan.id}"
    assert await read_tree(knowledge) == {
        "common.Message.r1": "Do it.",
        top: "finished",
        f"{top}/common.Message.output": "<x>",
        f"{top}/plan.Task.1": "finished",
        f"{top}/plan.Task.1/common.Message.output": "<x>",
        f"{top}/plan.Task.1/plan.Task.1": "finished",
        f"{top}/plan.Task.1/plan.Task.1/common.Message.output": "<x>",
    }


async def test_a_task_has_its_four_properties_its_assistant_and_its_end() -> None:
    knowledge = build_knowledge()
    properties = {
        "purpose": "Write.",
        "instructions": "Briefly.",
        "applicability": "For writers.",
        "evaluation": "It is signed.",
    }
    plan = await carry_out(knowledge, Crew(), {"name": "letter", **properties})
    (task,) = await knowledge.resources.get([identify_task(plan, "1")])
    assert task.content.startswith("**Purpose:** Write.\n\n**Instructions:** Briefly.")
    assert task.fields["completed_at"].startswith("20")
    assert {**task.fields, "completed_at": ""} == {
        "title": "letter",
        **properties,
        "assistant": "common.Assistant.writer",
        "status": "finished",
        "completed": True,
        "completed_at": "",
    }


async def test_corrections_and_failures_are_resources_as_well() -> None:
    knowledge = build_knowledge()
    again = Verdict(False, "No figures.", [{"name": "more", "purpose": "Add."}])
    crew = Crew(verdicts={"a": [again, Verdict(False, "Still none.")], "plan": [again] * 3})
    plan = await carry_out(knowledge, crew, {"name": "a", "evaluation": "Has figures."})
    (correction, task) = await knowledge.resources.get(
        [identify_task(plan, "1.1"), identify_task(plan, "1")]
    )
    assert correction.fields["title"] == "more"
    assert (task.fields["status"], task.fields["reason"]) == ("failed", "Still none.")


async def test_a_plan_outside_of_a_thread_has_no_resources() -> None:
    knowledge = build_knowledge()
    await carry_out(knowledge, Crew(), "a", thread_id="")
    assert await knowledge.resources.find_all() == []


async def test_storage_that_fails_harms_no_plan_and_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("copilot_runtime.extensions.planner.resources._RETRY", 0)
    knowledge = build_knowledge()
    put, failures = knowledge.resources.put_many, [StoreFailed("The disk is full.")] * 2

    async def fail_first(*args: Any, **more: Any) -> int:
        if failures:
            raise failures.pop()
        return await put(*args, **more)

    monkeypatch.setattr(knowledge.resources, "put_many", fail_first)
    plan = await carry_out(knowledge, Crew(), "a")
    tree = await read_tree(knowledge)
    assert tree[f"common.Message.r1/plan.Task.{plan.id}/plan.Task.1"] == "finished"
    assert caplog.text.count("not kept as resources for now: The disk is full.") == 1


async def test_an_unexpected_error_is_logged_and_later_tasks_are_written(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    knowledge = build_knowledge()
    put, failures = knowledge.resources.put_many, [RuntimeError("a bug")]

    async def fail_first(*args: Any, **more: Any) -> int:
        if failures:
            raise failures.pop()
        return await put(*args, **more)

    monkeypatch.setattr(knowledge.resources, "put_many", fail_first)
    plan = await carry_out(knowledge, Crew(), "a")
    assert f"The tasks of the plan {plan.id} are not kept as resources." in caplog.text
    tree = await read_tree(knowledge)
    assert tree[f"common.Message.r1/plan.Task.{plan.id}"] == "finished"


async def test_what_a_dead_server_had_not_written_is_written_at_the_next_start(
    tmp_path: Path,
) -> None:
    knowledge, path = build_knowledge(), tmp_path / "plans.db"
    engine = build_engine(Crew(), SqlitePlanLog(path))
    await engine.open()
    plan = await finish(engine, build_plan(TREE, **ANN))
    await engine.aclose()
    for _ in range(2):  # the second time, there is nothing to do
        log = SqlitePlanLog(path)
        await log.open()
        resources = TaskResources(knowledge, log)
        await resources.open()
        await resources.flush()
        await resources.flush()
        await resources.aclose()
        await log.aclose()
        tree = await read_tree(knowledge)
        assert tree[f"common.Message.r1/plan.Task.{plan.id}/plan.Task.1/plan.Task.1"] == "finished"


async def test_a_log_that_cannot_be_read_at_the_start_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class BrokenLog(MemoryPlanLog):
        async def list_plans(self, *args: Any, **more: Any) -> Any:
            raise StoreFailed("The file is locked.")

    resources = TaskResources(build_knowledge(), BrokenLog())
    await resources.open()
    await resources.flush()
    assert "Tasks of earlier plans are not kept as resources: The file is locked." in caplog.text


async def test_a_task_that_is_done_again_is_so_as_a_resource() -> None:
    knowledge, log = build_knowledge(), MemoryPlanLog()
    is_broken = True

    async def work(state: TaskState, context: TaskContext) -> str:
        if is_broken:
            raise ValueError("boom")
        return "done"

    resources = TaskResources(knowledge, log)
    engine = build_engine(Crew({"a": work}, {"plan": [Verdict(False, "Nothing.")]}), log)
    engine.listen(resources.on_entry)
    plan = await finish(engine, build_plan("a", **ANN))
    await resources.flush()
    is_broken = False
    await engine.retry(plan.id)
    async for _ in engine.follow(plan.id, plan.number):
        pass
    await resources.flush()
    (root, task) = await knowledge.resources.get(
        [identify_task(plan, ROOT), identify_task(plan, "1")]
    )
    assert (root.fields["status"], task.fields["status"]) == ("finished", "finished")
    assert "reason" not in root.fields


async def test_a_later_plan_of_the_conversation_recalls_what_fits_its_task() -> None:
    knowledge = build_knowledge()

    async def price(state: TaskState, context: TaskContext) -> str:
        return "The price of quinces is 41 crowns."

    crew = Crew({"prices": price})
    await carry_out(knowledge, crew, "prices")
    await carry_out(knowledge, crew, "prices", user="bob")
    resources = TaskResources(knowledge, MemoryPlanLog())
    recalls: list[Sequence[Passage]] = []

    async def recall(state: TaskState, context: TaskContext) -> str:
        recalls.append(await resources.recall(state, context.plan))
        return "ok"

    task = {"name": "buy", "purpose": "Compare the price of quinces and pears."}
    await carry_out(knowledge, Crew({"buy": recall}), task, run_id="r2")
    await carry_out(knowledge, Crew({"buy": recall}), task, run_id="r2", thread_id="t2")
    await carry_out(knowledge, Crew({"buy": recall}), task, run_id="r2", thread_id="")
    first, *others = recalls
    assert {one.text for one in first} == {"The price of quinces is 41 crowns."}
    assert all(one.id.startswith(f"{CONVERSATION}/") for one in first)
    assert [[*one] for one in others] == [[], []]


def build_runtime(tmp_path: Path, *turns: Any, agent: Any = None) -> CopilotRuntime:
    plan = call("create_plan", {"tasks": [{"name": "letter", "purpose": "Write a letter."}]})
    return CopilotRuntime(
        ScriptedAdapter(*[plan] * 3),
        agents={"writer": agent or DirectAgent(ScriptedAdapter(*turns))},
        knowledge=build_knowledge(),
        settings=Settings(
            threads="memory",
            planner=PlannerSettings(name="planner", store=f"sqlite:{tmp_path / 'plans.db'}"),
        ),
        authenticate=sign_in,
    )


def list_resources(client: TestClient, user: str) -> list[str]:
    """Return the tasks and messages that a user is shown, once they are written."""
    answer = client.get(
        "/graphql/knowledge/resources", params={"limit": 100}, headers={"x-user": user}
    )
    return [row["id"] for row in answer.json()["resources"]]


def wait_for(client: TestClient, user: str, count: int) -> None:
    """Return once a user has so many resources: they are written beside the plan."""
    while len(list_resources(client, user)) != count:
        sleep(0.01)


def test_tasks_belong_to_the_user_and_go_with_the_thread(tmp_path: Path) -> None:
    with TestClient(build_runtime(tmp_path, say("Dear Ann,")).app()) as client:
        wait_until_ready(client)
        ask(client, question("Write to Ann."), agent="planner")
        wait_for(client, "ann", 5)
        assert list_resources(client, "bob") == []
        client.delete("/graphql/threads/t1", headers={"x-user": "ann"})
        wait_for(client, "ann", 0)


@in_one_test("looks", [0, 1])
async def test_a_thread_that_is_deleted_meanwhile_gets_no_resources(looks: int) -> None:
    knowledge = build_knowledge()

    class Threads(MemoryThreads):
        """A thread that is deleted once it was looked for so often."""

        async def get(self, key: ThreadKey) -> Thread | None:
            nonlocal looks
            looks -= 1
            now = datetime.now(UTC)
            thread = Thread(
                key=key,
                agent="planner",
                name=None,
                archived=False,
                created_at=now,
                updated_at=now,
                last_run_at=now,
            )
            return thread if looks >= 0 else None

    knowledge.threads = Threads()
    await carry_out(knowledge, Crew(), "a")
    assert await knowledge.resources.find_all() == []


def test_the_model_is_told_what_earlier_plans_found(tmp_path: Path) -> None:
    adapter = ScriptedAdapter(say("The letter to Ann is long."), say("Dear Ann,"))
    agent = DirectAgent(adapter)
    with TestClient(build_runtime(tmp_path, agent=agent).app()) as client:
        wait_until_ready(client)
        ask(client, question("Write a letter to Ann."), agent="planner")
        wait_for(client, "ann", 5)
        ask(client, question("Write it again.", id="q2"), agent="planner", run="r2")
    prompt = adapter.requests[1].messages[-1]
    assert isinstance(prompt, TextMessage)
    assert "## letter\n\nThe letter to Ann is long." in prompt.content


async def test_a_task_does_without_earlier_plans_that_cannot_be_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail(state: TaskState, plan: Plan) -> Sequence[Passage]:
        raise StoreFailed("The disk is gone.")

    async def get_run(plan: Plan) -> RunInput:
        return RunInput(thread_id="t1", run_id="r1", messages=())

    writer = DirectAgent(ScriptedAdapter(say("Dear Ann,")))
    crew = Crew()
    worker = AgentWorker(always({"writer": writer}), get_run, recall=fail)
    engine = PlanEngine(MemoryPlanLog(), crew, worker, crew)
    plan = await finish(engine, build_plan("letter"))
    assert plan.root.output == "Dear Ann,"
    assert "does without what earlier plans found: The disk is gone." in caplog.text


async def test_a_nested_task_sees_what_the_task_above_it_depends_on() -> None:
    prompts: list[str] = []

    async def note(state: TaskState, context: TaskContext) -> str:
        prompts.append(build_prompt(state, context.plan))
        return "ok"

    nested = {"name": "b", "depends_on": ["a"], "subtasks": [{"name": "x", "purpose": "Do x."}]}
    await finish(build_engine(Crew({"x": note})), build_plan("a", nested))
    assert "# What came of the tasks before it\n\n## a\n\n<a>" in prompts[0]
