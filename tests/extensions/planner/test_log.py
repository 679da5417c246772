"""Plans are listed, and commands for them reach the server that carries them out."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import count

import pytest

from copilot_runtime.base.errors import Misuse, NotFound
from copilot_runtime.extensions.planner.engine import PlanEngine
from copilot_runtime.extensions.planner.events import QuestionAnswered, QuestionAsked, StopRequested
from copilot_runtime.extensions.planner.log import PlanLog, PlanQuery
from copilot_runtime.extensions.planner.plan import TaskState
from copilot_runtime.extensions.planner.roles import TaskContext, Verdict
from copilot_runtime.extensions.planner.tasks import PlanLimits
from tests.extensions.planner.conftest import MakeLog
from tests.extensions.planner.crew import Crew, build_engine, build_plan, describe, finish

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("copilot_runtime.extensions.planner.engine._POLL", 0.01)


clock = count(1_000).__next__


@asynccontextmanager
async def servers(*engines: PlanEngine) -> AsyncGenerator[None, None]:
    for engine in engines:
        await engine.open()
    try:
        yield
    finally:
        for engine in engines:
            await engine.aclose()


async def ask_of(engine: PlanEngine, plan_id: str) -> str:
    """Return the id of the next question of a plan, once it waits."""
    async for entry in engine.follow(plan_id):
        if isinstance(event := getattr(entry, "event", None), QuestionAsked):
            return event.question_id
    raise AssertionError("The plan asked nothing.")


APPROVAL = {"name": "a", "needs_approval": True}


async def test_plans_are_listed_by_user_thread_and_status_the_newest_first(log: PlanLog) -> None:
    crew = Crew(verdicts={"plan": [Verdict(False, "Not good.")]})
    engine = build_engine(crew, log, clock=lambda: 1_000)
    async with servers(engine):
        for number, user in enumerate(["ann", None, "ann", "bob"]):
            plan_id = await engine.submit(
                build_plan("a", thread_id=f"t{number % 2}", user=user, evaluation="Good."),
                plan_id=f"p{number}",
            )
            async for _ in engine.follow(plan_id):
                pass
        waiting = await engine.submit(build_plan(APPROVAL, user="ann"), plan_id="p4")
        await ask_of(engine, waiting)

        async def ids(**query: object) -> list[str]:
            found = await log.list_plans(PlanQuery(**query))  # type: ignore[arg-type]
            return [summary.id for summary in found]

        assert await ids() == ["p1"]
        assert await ids(user="ann") == ["p4", "p2", "p0"]
        assert await ids(all_users=True, limit=3) == ["p4", "p3", "p2"]
        assert await ids(all_users=True, thread_id="t1") == ["p3", "p1"]
        assert await ids(all_users=True, status="waiting") == ["p4"]
        assert await ids(all_users=True, status="failed") == ["p0"]
        assert await ids(user="ann", thread_id="t0", status="finished") == ["p2"]
        page = await log.list_plans(PlanQuery(all_users=True, limit=2))
        assert await ids(all_users=True, before=page[-1].sort_key) == ["p2", "p1", "p0"]


async def test_a_list_says_that_a_plan_runs_again_after_an_answer_and_after_a_retry(
    log: PlanLog,
) -> None:
    hung, go = asyncio.Event(), asyncio.Event()

    async def hang(state: TaskState, context: TaskContext) -> str:
        hung.set()
        await go.wait()
        return "done"

    engine = build_engine(Crew({"a": hang}), log, clock=lambda: 1_000)
    async with servers(engine):
        plan_id = await engine.submit(build_plan(APPROVAL))
        question_id = await ask_of(engine, plan_id)
        assert (await log.find(plan_id)).status == "waiting"
        await engine.answer(plan_id, question_id, "approve")
        await hung.wait()
        assert (await log.find(plan_id)).status == "running"
        await engine.stop(plan_id)
        async for _ in engine.follow(plan_id):
            pass
        assert (await log.find(plan_id)).is_over
        hung.clear()
        await engine.retry(plan_id)
        await hung.wait()
        assert (await log.find(plan_id)).status == "running"
        go.set()
        async for _ in engine.follow(plan_id, (await engine.get(plan_id)).number):
            pass
        assert (await log.find(plan_id)).status == "finished"


async def test_a_plan_that_is_taken_over_is_listed_as_it_is(make_log: MakeLog) -> None:
    one, other = (build_engine(Crew(), make_log()) for _ in range(2))
    async with servers(one):
        plan_id = await one.submit(build_plan(APPROVAL))
        question_id = await ask_of(one, plan_id)
    async with servers(other):
        assert (await other.log.find(plan_id)).status == "waiting"
        await other.answer(plan_id, question_id, "approve")
        async for _ in other.follow(plan_id):
            pass
        assert (await other.log.find(plan_id)).status == "finished"


async def test_tokens_that_a_dead_server_used_count_for_the_one_that_takes_over(
    make_log: MakeLog,
) -> None:
    async def spend(state: TaskState, context: TaskContext) -> str:
        await context.add_usage(60)
        return "done"

    crew = dict.fromkeys("abc", spend)
    asking = {"name": "b", "needs_approval": True, "depends_on": ["a"]}
    plan = build_plan(
        "a", asking, {"name": "c", "depends_on": ["b"]}, limits=PlanLimits(tokens=100)
    )
    one, other = (build_engine(Crew(crew), make_log()) for _ in range(2))
    async with servers(one):
        plan_id = await one.submit(plan)
        question_id = await ask_of(one, plan_id)
    async with servers(other):
        await other.answer(plan_id, question_id, "approve")
        async for _ in other.follow(plan_id):
            pass
        root = (await other.get(plan_id)).root

    assert (root.tokens, root.reason) == (
        120,
        "The plan has used 120 tokens; at most 100 are allowed, by its `planner.tokens`.",
    )


async def test_an_answer_reaches_the_server_that_carries_the_plan_out(make_log: MakeLog) -> None:
    one, other = (build_engine(Crew(), make_log()) for _ in range(2))
    async with servers(one, other):
        plan_id = await one.submit(build_plan(APPROVAL))
        question_id = await ask_of(one, plan_id)
        with pytest.raises(Misuse, match="Answer with one of: approve, reject"):
            await other.answer(plan_id, question_id, "retry")
        with pytest.raises(NotFound, match="'none' is not open"):
            await other.answer(plan_id, "none", "approve")
        await other.answer(plan_id, question_id, "approve", note="Go.", user="ann")
        async for _ in other.follow(plan_id):
            pass
        assert describe(await other.get(plan_id)) == {"plan": "finished", "a": "finished"}
        answers = [
            entry.event
            for entry in await one.log.read(plan_id)
            if isinstance(entry.event, QuestionAnswered)
        ]
        assert [(answer.note, answer.user) for answer in answers] == [("Go.", "ann")]
        with pytest.raises(NotFound, match="is not open"):
            await other.answer(plan_id, question_id, "approve")


async def test_of_two_who_answer_at_once_the_second_learns_it(make_log: MakeLog) -> None:
    engines = [build_engine(Crew(), make_log()) for _ in range(3)]
    one, *others = engines
    async with servers(*engines):
        plan_id = await one.submit(build_plan(APPROVAL))
        question_id = await ask_of(one, plan_id)
        done = await asyncio.gather(
            others[0].answer(plan_id, question_id, "approve", user="ann"),
            others[1].answer(plan_id, question_id, "reject", user="bob"),
            return_exceptions=True,
        )
        assert [type(it) for it in done if it is not None] == [NotFound]


async def test_a_stop_reaches_the_server_that_carries_the_plan_out(make_log: MakeLog) -> None:
    started = asyncio.Event()

    async def hang(state: TaskState, context: TaskContext) -> str:
        started.set()
        await asyncio.Event().wait()
        return ""

    crew = Crew({"a": hang}, {"plan": [Verdict(False, "a was stopped.")]})
    one, other = (build_engine(of, make_log()) for of in (crew, Crew()))
    async with servers(one, other):
        plan_id = await one.submit(build_plan("a", "b"))
        await started.wait()
        with pytest.raises(NotFound, match="no task '7'"):
            await other.stop(plan_id, "7")
        await other.stop(plan_id, "1")
        async for _ in other.follow(plan_id):
            pass
        assert describe(await other.get(plan_id)) == {
            "plan": "failed",
            "a": "stopped",
            "b": "finished",
        }
        before = await other.log.read(plan_id)
        await other.stop(plan_id)  # it is over: nothing is left to stop
        assert await other.log.read(plan_id) == before
        await other.retry(plan_id, "1")  # it goes on where it was asked for
        async for _ in other.follow(plan_id, len(before)):
            pass
        assert (await one.get(plan_id)).status == "finished"


async def test_a_command_that_nobody_takes_is_kept_until_somebody_does(
    make_log: MakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("copilot_runtime.extensions.planner.engine._COMMAND_POLLS", 1)
    one, other, third = (build_engine(Crew(), make_log()) for _ in range(3))
    await one.open()
    plan_id = await one.submit(build_plan(APPROVAL))
    question_id = await ask_of(one, plan_id)
    await one.aclose()
    await other.answer(plan_id, question_id, "approve")  # before anybody has taken it over
    assert (await other.get(plan_id)).status == "waiting"
    async with servers(third):
        async for _ in third.follow(plan_id):
            pass
        assert (await third.get(plan_id)).status == "finished"
    await other.aclose()


async def test_who_takes_up_a_plan_again_drops_old_commands_for_it(log: PlanLog) -> None:
    crew = Crew(verdicts={"plan": [Verdict(False, "No."), Verdict(True)]})
    engine = build_engine(crew, log, clock=lambda: 1_000)
    async with servers(engine):
        plan = await finish(engine, build_plan("a", evaluation="Good."))
        await log.add_command(plan.id, StopRequested(task_id="0"))
        (command,) = await log.read_commands()
        assert (command.plan_id, command.event) == (plan.id, StopRequested(task_id="0"))
        await log.remove_command(command.id)
        assert await log.read_commands() == []
        await log.add_command(plan.id, StopRequested(task_id="0"))
        await engine.retry(plan.id)
        async for _ in engine.follow(plan.id, plan.number):
            pass
        assert (await engine.get(plan.id)).status == "finished"
