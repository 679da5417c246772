"""Plans are stopped, answered and done again at the worst moments."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from copilot_runtime.base.errors import Misuse, NotFound
from copilot_runtime.extensions.planner.engine import PlanEngine
from copilot_runtime.extensions.planner.events import PlanEntry, PlanEvent, QuestionAsked, TaskEnded
from copilot_runtime.extensions.planner.log import Lease, LeaseLost, MemoryPlanLog, PlanLog
from copilot_runtime.extensions.planner.plan import Plan, Status, TaskState
from copilot_runtime.extensions.planner.roles import TaskContext, Verdict
from copilot_runtime.extensions.planner.sqlite import SqlitePlanLog
from copilot_runtime.extensions.planner.tasks import PlanLimits
from tests.extensions.planner.crew import (
    Crew,
    build_engine,
    build_plan,
    describe,
    finish,
    wait_until,
)
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

Stored = asyncio.Future[Sequence[PlanEntry]]
Hang = Callable[[TaskState, TaskContext], Awaitable[str]]


def build_hang() -> tuple[Hang, asyncio.Event]:
    """Return work that never ends, and what says that it has begun."""
    began = asyncio.Event()

    async def hang(state: TaskState, context: TaskContext) -> str:
        began.set()
        await asyncio.Event().wait()
        return ""

    return hang, began


async def wait_for_end(engine: PlanEngine, plan_id: str) -> Plan:
    async for _ in engine.follow(plan_id):
        pass
    return await engine.get(plan_id)


async def test_who_stops_a_task_twice_stops_it_once(log: PlanLog) -> None:
    hang, began = build_hang()
    engine = build_engine(Crew({"a": hang}), log)
    await log.open()
    plan_id = await engine.submit(build_plan("a", "b", evaluation="Good."))
    await began.wait()
    await engine.stop(plan_id, "1")
    await engine.stop(plan_id, "1")
    plan = await wait_for_end(engine, plan_id)
    assert describe(plan) == {"plan": "finished", "a": "stopped", "b": "finished"}
    await engine.aclose()


async def test_a_task_and_its_plan_are_stopped_at_once(log: PlanLog) -> None:
    hang, began = build_hang()
    engine = build_engine(Crew({"x": hang}), log)
    await log.open()
    nested = {"name": "a", "subtasks": [{"name": "x", "purpose": "X"}]}
    plan_id = await engine.submit(build_plan(nested))
    await began.wait()
    await asyncio.gather(
        engine.stop(plan_id, "1.1"), engine.stop(plan_id, "1"), engine.stop(plan_id)
    )
    plan = await wait_for_end(engine, plan_id)
    assert set(describe(plan).values()) == {"stopped"}
    await engine.aclose()


async def test_a_plan_is_stopped_while_its_outcome_is_judged(log: PlanLog) -> None:
    began = asyncio.Event()

    class Slow(Crew):
        async def evaluate(self, state: TaskState, context: TaskContext) -> Verdict:
            began.set()
            await asyncio.Event().wait()
            return Verdict(True)

    engine = build_engine(Slow(), log)
    await log.open()
    plan_id = await engine.submit(build_plan({"name": "a", "evaluation": "Good."}))
    await began.wait()
    await engine.stop(plan_id)
    plan = await wait_for_end(engine, plan_id)
    assert describe(plan) == {"plan": "stopped", "a": "stopped"}
    assert plan.tasks["1"].output == "<a>"
    await engine.aclose()


class LateLog(MemoryPlanLog):
    """Says that the end of the first task is stored when what comes behind it is."""

    def __init__(self) -> None:
        super().__init__()
        self.late: list[tuple[Stored, Stored]] = []

    def append(
        self,
        lease: Lease,
        number: int,
        events: Sequence[PlanEvent],
        *,
        status: Status | None = None,
    ) -> Stored:
        stored = super().append(lease, number, events, status=status)
        loop = asyncio.get_running_loop()
        future: Stored = loop.create_future()
        self.late.append((future, stored))
        if not any(isinstance(one, TaskEnded) and one.task_id == "1" for one in events):
            for late, entries in self.late:
                loop.call_soon(late.set_result, entries.result())
            self.late.clear()
        return future


async def test_an_answer_that_comes_behind_the_end_of_its_task_harms_no_plan() -> None:
    log = LateLog()
    engine = build_engine(Crew(), log)
    plan_id = await engine.submit(build_plan({"name": "a", "needs_approval": True}))
    async for entry in engine.follow(plan_id):
        if isinstance(entry, PlanEntry) and isinstance(asked := entry.event, QuestionAsked):
            await engine.stop(plan_id, "1")
            await wait_until(lambda: bool(log.late))
            await engine.answer(plan_id, asked.question_id, "approve")
    restarted = build_engine(Crew(), log)
    for plan in (await engine.get(plan_id), await restarted.get(plan_id)):
        assert describe(plan)["a"] == "stopped"
        assert plan.is_over
    await engine.aclose()


async def test_a_task_that_waits_for_another_is_stopped(log: PlanLog) -> None:
    hang, began = build_hang()
    engine = build_engine(Crew({"a": hang}), log)
    await log.open()
    plan_id = await engine.submit(
        build_plan("a", {"name": "b", "depends_on": ["a"]}, evaluation="Good.")
    )
    await began.wait()
    await engine.stop(plan_id, "2")
    await engine.stop(plan_id, "1")
    plan = await wait_for_end(engine, plan_id)
    assert describe(plan) == {"plan": "finished", "a": "stopped", "b": "skipped"}
    await engine.aclose()


async def test_tasks_that_never_began_end_with_their_plan_and_are_done_when_it_is_tried_again(
    log: PlanLog,
) -> None:
    hang, began = build_hang()
    crew = Crew({"a": hang})
    engine = build_engine(crew, log)
    await log.open()
    group = {"name": "b", "depends_on": ["a"], "subtasks": [{"name": "c", "purpose": "C"}]}
    plan_id = await engine.submit(build_plan("a", group))
    await began.wait()
    await engine.stop(plan_id)
    plan = await wait_for_end(engine, plan_id)
    assert describe(plan) == {"plan": "stopped", "a": "stopped", "b": "skipped", "c": "skipped"}

    crew.works = {}
    await engine.retry(plan_id)
    plan = await wait_for_end(engine, plan_id)
    assert {*describe(plan).values()} == {"finished"}
    await engine.aclose()


async def test_what_is_over_is_not_stopped_and_nothing_else_is_known(log: PlanLog) -> None:
    engine = build_engine(Crew(), log)
    await log.open()
    plan = await finish(engine, build_plan("a"))
    await engine.stop(plan.id)
    assert (await engine.get(plan.id)).root.status == "finished"
    with pytest.raises(NotFound, match="The plan has no task '9'"):
        await engine.stop(plan.id, "9")
    with pytest.raises(NotFound, match="There is no plan 'x'"):
        await engine.stop("x")
    await engine.aclose()


async def test_an_agent_that_cancels_itself_fails_its_task_and_not_the_plan(log: PlanLog) -> None:
    async def cancel(state: TaskState, context: TaskContext) -> str:
        raise asyncio.CancelledError

    engine = build_engine(Crew({"a": cancel}), log)
    await log.open()
    plan = await finish(engine, build_plan("a", "b", evaluation="Good."))
    assert describe(plan) == {"plan": "finished", "a": "failed", "b": "finished"}
    assert plan.tasks["1"].reason == "Something that it called was cancelled."
    await engine.aclose()


async def test_of_two_answers_at_once_one_counts_and_the_other_is_refused(log: PlanLog) -> None:
    engine = build_engine(Crew(), log)
    await log.open()
    plan_id = await engine.submit(build_plan({"name": "a", "needs_approval": True}))
    async for entry in engine.follow(plan_id):
        if isinstance(entry, PlanEntry) and isinstance(entry.event, QuestionAsked):
            question_id = entry.event.question_id
            results = await asyncio.gather(
                engine.answer(plan_id, question_id, "approve", user="ann"),
                engine.answer(plan_id, question_id, "reject", user="bob"),
                return_exceptions=True,
            )
            assert [str(one) for one in results if one is not None] == [
                f"The question {question_id!r} is not open."
            ]
    assert describe(await engine.get(plan_id)) == {"plan": "finished", "a": "finished"}
    await engine.aclose()


async def test_a_plan_is_done_again_by_one_server_only(tmp_path: Path) -> None:
    hang, began = build_hang()
    crew = Crew({"a": hang}, {"plan": [Verdict(False, "No.")]})
    one = build_engine(crew, SqlitePlanLog(tmp_path / "plans.db"))
    other = build_engine(Crew(), SqlitePlanLog(tmp_path / "plans.db"))
    await one.open()
    await other.open()
    plan_id = await one.submit(build_plan("a"))
    await began.wait()
    with pytest.raises(Misuse, match="The plan is not over yet"):
        await other.retry(plan_id)
    await one.stop(plan_id)
    await wait_for_end(one, plan_id)
    began.clear()
    results = await asyncio.gather(
        one.retry(plan_id, "1"), other.retry(plan_id, "1"), return_exceptions=True
    )
    assert [type(error) for error in results if error is not None] in ([LeaseLost], [Misuse])
    await one.stop(plan_id)
    plan = await wait_for_end(other, plan_id)
    assert plan.is_over
    await one.aclose()
    await other.aclose()


async def test_a_finished_task_is_not_done_again(log: PlanLog) -> None:
    engine = build_engine(Crew(), log)
    await log.open()
    plan = await finish(engine, build_plan("a"))
    with pytest.raises(Misuse, match="The task 'a' has finished"):
        await engine.retry(plan.id, "1")
    await engine.aclose()


@in_one_test("jump", [-86_400.0, 86_400.0])
async def test_a_clock_that_is_set_ends_no_plan_and_adds_no_time(
    tmp_path: Path, jump: float
) -> None:
    time = [1_000_000.0]
    hang, began = build_hang()

    def build(crew: Crew) -> PlanEngine:
        return build_engine(crew, SqlitePlanLog(tmp_path / f"{jump}.db", clock=lambda: time[0]))

    async def set_clock(state: TaskState, context: TaskContext) -> str:
        time[0] += jump
        return "ok"

    one, other = build(Crew({"a": set_clock, "b": hang})), build(Crew())
    await one.open()
    tasks = ("a", {"name": "b", "depends_on": ["a"]}, {"name": "c", "depends_on": ["b"]})
    plan_id = await one.submit(build_plan(*tasks, limits=PlanLimits(seconds=60)))
    await began.wait()
    await one.aclose()
    time[0] += jump  # and the clock of the server that takes over is another one
    await other.open()
    async for _ in other.follow(plan_id):
        pass
    plan = await other.get(plan_id)
    assert describe(plan) == {"plan": "finished", "a": "finished", "b": "finished", "c": "finished"}
    assert plan.worked_seconds == 0
    await other.aclose()
