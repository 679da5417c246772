"""Plans are carried out: in order, side by side, checked, corrected, stopped and limited."""

import asyncio

import pytest

from copilot_runtime.extensions.planner.events import Answer, CallStarted, QuestionAsked
from copilot_runtime.extensions.planner.log import PlanLog
from copilot_runtime.extensions.planner.plan import Plan, TaskState
from copilot_runtime.extensions.planner.roles import TaskContext, Verdict
from copilot_runtime.extensions.planner.tasks import PlanLimits
from tests.extensions.planner.conftest import MakeLog
from tests.extensions.planner.crew import Crew, build_engine, build_plan, describe, finish

pytestmark = pytest.mark.anyio


async def test_tasks_beside_each_other_run_at_once_and_dependent_ones_after(log: PlanLog) -> None:
    barrier = asyncio.Barrier(2)

    async def wait_for_other(state: TaskState, context: TaskContext) -> str:
        async with asyncio.timeout(60):
            await barrier.wait()
        return f"<{state.task.name}>"

    crew = Crew({"a": wait_for_other, "b": wait_for_other})
    engine = build_engine(crew, log)
    await engine.open()
    plan = await finish(
        engine,
        build_plan({"name": "c", "depends_on": ["a", "b"]}, "a", "b"),
    )
    assert (crew.worked[-1], crew.most_at_once) == ("c", 2)
    assert plan.root.output == "<c> <a> <b>"
    assert set(describe(plan).values()) == {"finished"}
    await engine.aclose()


async def test_a_task_with_subtasks_has_their_outputs(log: PlanLog) -> None:
    engine = build_engine(Crew(), log)
    await engine.open()
    nested = {
        "name": "a",
        "subtasks": [{"name": "x", "purpose": "X"}, {"name": "y", "purpose": "Y"}],
    }
    plan = await finish(engine, build_plan(nested, "b"))
    assert plan.root.output == "<x> <y> <b>"
    await engine.aclose()


async def test_a_task_that_fails_its_evaluation_is_corrected() -> None:
    crew = Crew(
        verdicts={
            "a": [
                Verdict(False, "No figures.", [{"name": "figures", "purpose": "Add figures."}]),
                Verdict(True),
            ]
        }
    )
    engine = build_engine(crew)
    plan = await finish(engine, build_plan({"name": "a", "evaluation": "Has figures."}))
    assert crew.worked == ["a", "figures"]
    assert [one.passed for one in plan.tasks["1"].evaluations] == [False, True]
    assert plan.root.output == "<figures>"


async def test_corrections_end_after_so_many_rounds_with_what_is_missing() -> None:
    again = Verdict(False, "No figures.", [{"name": "more", "purpose": "Add."}])
    crew = Crew(verdicts={"a": [again] * 5, "plan": [Verdict(False, "It lacks figures.")]})
    engine = build_engine(crew)
    plan = await finish(engine, build_plan({"name": "a", "evaluation": "Has figures."}))
    assert crew.worked == ["a", "more", "more"]
    assert (
        plan.tasks["1"].reason
        == "No figures. It is so after 2 rounds of corrections, the most by `planner.rounds`."
    )
    assert (plan.root.status, plan.root.reason) == ("failed", "It lacks figures.")


async def test_what_needs_a_failed_task_is_skipped() -> None:
    async def fail(state: TaskState, context: TaskContext) -> str:
        raise RuntimeError("boom")

    engine = build_engine(Crew({"a": fail}, {"plan": [Verdict(False, "Nothing came of a.")]}))
    plan = await finish(engine, build_plan("a", {"name": "b", "depends_on": ["a"]}, "c"))
    assert describe(plan) == {"plan": "failed", "a": "failed", "b": "skipped", "c": "finished"}
    assert plan.tasks["2"].reason == "It needs 'a', which did not finish."


async def test_a_task_waits_for_its_approval() -> None:
    crew = Crew()
    engine = build_engine(crew)
    plan_id = await engine.submit(build_plan({"name": "a", "needs_approval": True}))
    async for entry in engine.follow(plan_id):
        if isinstance(event := getattr(entry, "event", None), QuestionAsked):
            assert (crew.worked, (await engine.get(plan_id)).status) == ([], "waiting")
            await engine.answer(plan_id, event.question_id, "approve", user="ann")
    assert describe(await engine.get(plan_id)) == {"plan": "finished", "a": "finished"}


async def test_a_refused_task_is_not_done() -> None:
    crew = Crew(verdicts={"plan": [Verdict(False, "Refused.")]})
    engine = build_engine(crew)
    plan_id = await engine.submit(build_plan({"name": "a", "needs_approval": True}))
    async for entry in engine.follow(plan_id):
        if isinstance(event := getattr(entry, "event", None), QuestionAsked):
            await engine.answer(plan_id, event.question_id, "reject", note="Too dear.")
    plan = await engine.get(plan_id)
    assert (crew.worked, plan.tasks["1"].reason) == ([], "A person refused it: Too dear.")


async def test_a_plan_of_which_a_person_refuses_a_part_does_all_else_and_does_not_finish() -> None:
    send = {"name": "send", "purpose": "Send it.", "needs_approval": True}
    stamp = {"name": "stamp", "purpose": "Stamp it."}
    tasks = ["write", {"name": "post", "subtasks": [stamp, send]}]
    crew = Crew()
    engine = build_engine(crew)
    plan_id = await engine.submit(build_plan(*tasks))
    answers: list[Answer] = ["reject", "approve"]

    async def go_on(after: int) -> Plan:
        async for entry in engine.follow(plan_id, after):
            if isinstance(event := getattr(entry, "event", None), QuestionAsked):
                await engine.answer(plan_id, event.question_id, answers.pop(0))
        return await engine.get(plan_id)

    plan = await go_on(0)
    assert describe(plan) == {
        "plan": "stopped",
        "write": "finished",
        "post": "stopped",
        "stamp": "finished",
        "send": "stopped",
    }
    assert plan.root.reason == "A person refused a part of it: 'post'."
    assert plan.root.output == "<write> <stamp> -"
    await engine.retry(plan_id)
    plan = await go_on(plan.number)
    assert (plan.status, plan.root.output) == ("finished", "<write> <stamp> <send>")
    assert crew.worked == ["write", "stamp", "send"]


async def test_a_stopped_plan_ends_with_all_its_tasks(log: PlanLog) -> None:
    started = asyncio.Event()

    async def hang(state: TaskState, context: TaskContext) -> str:
        started.set()
        await asyncio.Event().wait()
        return ""

    engine = build_engine(Crew({"a": hang}), log)
    await engine.open()
    plan_id = await engine.submit(build_plan("a", {"name": "b", "depends_on": ["a"]}))
    await started.wait()
    await engine.stop(plan_id)
    async for _ in engine.follow(plan_id):
        pass
    plan = await engine.get(plan_id)
    assert (plan.root.status, plan.tasks["1"].status) == ("stopped", "stopped")
    await engine.aclose()


async def test_one_task_can_be_stopped_and_done_again(log: PlanLog) -> None:
    started = asyncio.Event()

    async def hang(state: TaskState, context: TaskContext) -> str:
        if started.is_set():
            return "<a>"
        started.set()
        await asyncio.Event().wait()
        return ""

    crew = Crew({"a": hang}, {"plan": [Verdict(False, "a is missing.")]})
    engine = build_engine(crew, log)
    await engine.open()
    plan_id = await engine.submit(build_plan("a", "b", {"name": "c", "depends_on": ["a"]}))
    await started.wait()
    await engine.stop(plan_id, "1")
    async for _ in engine.follow(plan_id):
        pass
    assert describe(await engine.get(plan_id)) == {
        "plan": "failed",
        "a": "stopped",
        "b": "finished",
        "c": "skipped",
    }
    await engine.retry(plan_id, "1")
    number = (await engine.get(plan_id)).number
    async for _ in engine.follow(plan_id, number):
        pass
    plan = await engine.get(plan_id)
    assert (set(describe(plan).values()), plan.root.output) == ({"finished"}, "<a> <b> <c>")
    assert crew.worked == ["a", "b", "a", "c"]
    await engine.aclose()


async def test_a_plan_ends_when_its_tokens_are_used_up() -> None:
    async def spend(state: TaskState, context: TaskContext) -> str:
        await context.add_usage(60)
        return "ok"

    crew = Crew({"a": spend, "b": spend, "c": spend})
    engine = build_engine(crew)
    limits = PlanLimits(tokens=100, concurrency=1)
    plan = await finish(engine, build_plan("a", "b", "c", limits=limits))
    reason = "The plan has used 120 tokens; at most 100 are allowed, by its `planner.tokens`."
    assert (plan.tasks["3"].reason, plan.root.reason) == (reason, reason)


async def test_a_plan_ends_when_its_time_is_over() -> None:
    async def hang(state: TaskState, context: TaskContext) -> str:
        await asyncio.Event().wait()
        return ""

    engine = build_engine(Crew({"a": hang}))
    plan = await finish(engine, build_plan("a", limits=PlanLimits(seconds=0.05)))
    assert (
        plan.root.reason
        == "The plan has worked for 0.05 seconds; no more are allowed, by `planner.seconds`."
    )


async def test_a_call_is_stored_before_it_is_made(log: PlanLog) -> None:
    async def call(state: TaskState, context: TaskContext) -> str:
        async def run() -> str:
            entries = await engine.log.read(context.plan.id)
            assert isinstance(entries[-1].event, CallStarted)
            return "sent"

        return await context.call_tool("c1", "send", "{}", run, is_idempotent=False)

    engine = build_engine(Crew({"a": call}), log)
    await engine.open()
    plan = await finish(engine, build_plan("a"))
    assert plan.root.output == "sent"
    await engine.aclose()


async def test_a_server_that_runs_takes_over_what_another_leaves(
    make_log: MakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("copilot_runtime.extensions.planner.engine._RECOVERY", 0.01)
    started = asyncio.Event()

    async def hang(state: TaskState, context: TaskContext) -> str:
        started.set()
        await asyncio.Event().wait()
        return ""

    one = build_engine(Crew({"a": hang}), make_log())
    other = build_engine(Crew(), make_log())
    await one.open()
    await other.open()
    plan_id = await one.submit(build_plan("a"))
    await started.wait()
    await one.aclose()
    async for _ in other.follow(plan_id):
        pass
    assert describe(await other.get(plan_id)) == {"plan": "finished", "a": "finished"}
    await other.aclose()


async def test_an_agent_whose_calls_are_not_seen_is_done_again_only_if_a_person_says_so(
    make_log: MakeLog,
) -> None:
    crews = [Crew(opaque=frozenset({"a"})), Crew(opaque=frozenset({"a"}))]
    started = asyncio.Event()

    async def hang(state: TaskState, context: TaskContext) -> str:
        started.set()
        await asyncio.Event().wait()
        return ""

    crews[0].works = {"a": hang}
    one = build_engine(crews[0], make_log())
    await one.open()
    plan_id = await one.submit(build_plan("a"))
    await started.wait()
    await one.aclose()
    other = build_engine(crews[1], make_log())
    await other.open()
    async for entry in other.follow(plan_id):
        if isinstance(event := getattr(entry, "event", None), QuestionAsked):
            assert (event.kind, crews[1].worked) == ("interrupted_task", [])
            await other.answer(plan_id, event.question_id, "retry")
    assert crews[1].worked == ["a"]
    await other.aclose()
