"""Plans that are over are deleted: after a time, with their threads, and in memory by number."""

import asyncio
from collections.abc import Sequence

import pytest

from copilot_runtime import CopilotRuntime, Settings
from copilot_runtime.extensions.planner.engine import PlanEngine
from copilot_runtime.extensions.planner.log import MemoryPlanLog, PlanLog, PlanQuery
from copilot_runtime.extensions.planner.plan import TaskState
from copilot_runtime.extensions.planner.roles import TaskContext
from copilot_runtime.extensions.planner.settings import PlannerSettings
from copilot_runtime.testing import Client, ScriptedAdapter, call, say
from copilot_runtime.threads.store import ThreadKey
from tests.extensions.planner.crew import Crew, build_engine, build_plan, finish

pytestmark = pytest.mark.anyio

DAY = 86_400.0
TIME = [0.0]


def clock() -> float:
    return TIME[0]


@pytest.fixture(autouse=True)
def begin() -> None:
    TIME[0] = 0.0


async def list_ids(log: PlanLog) -> Sequence[str]:
    found = await log.list_plans(PlanQuery(all_users=True))
    return sorted(summary.id for summary in found)


def hang_at(name: str) -> Crew:
    async def hang(state: TaskState, context: TaskContext) -> str:
        await asyncio.Event().wait()
        return ""

    return Crew({name: hang})


async def wait_for_deletion(engine: PlanEngine, plan_id: str) -> None:
    while plan_id in await list_ids(engine.log):  # noqa: ASYNC110  # the background has no event
        await asyncio.sleep(0)


async def test_a_server_deletes_what_is_over_for_longer_than_plans_are_kept(log: PlanLog) -> None:
    engine = build_engine(hang_at("slow"), log, clock=clock)
    await log.open()
    old = (await finish(engine, build_plan("a"))).id
    going_on = await engine.submit(build_plan("slow"))
    TIME[0] = 20 * DAY
    young = (await finish(engine, build_plan("a"))).id
    TIME[0] = 31 * DAY
    other = build_engine(Crew(), log, clock=clock, retention=30 * DAY)
    await other.open()
    await wait_for_deletion(other, old)
    assert await list_ids(log) == sorted([going_on, young])
    assert await log.read(young)
    await engine.aclose()
    await other.aclose()


async def test_a_thread_is_deleted_with_its_plans_and_those_that_go_on_are_stopped(
    log: PlanLog,
) -> None:
    engine = build_engine(hang_at("slow"), log)
    await log.open()
    await finish(engine, build_plan("a", thread_id="t", user="ann"))
    await engine.submit(build_plan("slow", thread_id="t", user="ann"))
    kept = [
        (await finish(engine, build_plan("a", thread_id="t", user="bob"))).id,
        (await finish(engine, build_plan("a", thread_id="t"))).id,
        (await finish(engine, build_plan("a", thread_id="u", user="ann"))).id,
    ]
    await engine.forget_thread(ThreadKey("ann", "t"))
    assert await list_ids(log) == sorted(kept)
    await engine.aclose()


async def test_more_plans_than_are_deleted_at_once_are_stopped_and_deleted(log: PlanLog) -> None:
    engine = build_engine(hang_at("slow"), log)
    await log.open()
    await engine.submit(build_plan("slow", thread_id="t"))
    for _ in range(101):
        await finish(engine, build_plan("a", thread_id="t"))
    await engine.forget_thread(ThreadKey("", "t"))
    assert await list_ids(log) == []
    await engine.aclose()


async def test_memory_has_so_many_plans_and_those_that_go_on() -> None:
    engine = build_engine(hang_at("slow"), MemoryPlanLog(max_plans=2))
    going_on = await engine.submit(build_plan("slow"))
    ids = [(await finish(engine, build_plan("a"))).id for _ in range(3)]
    assert await list_ids(engine.log) == sorted([going_on, ids[-1]])
    await engine.aclose()


async def test_who_deletes_a_conversation_deletes_its_plans() -> None:
    tasks = [{"name": "a", "purpose": "Do it."}]
    settings = Settings(threads="memory", planner=PlannerSettings(name="planner", store="memory"))
    model = ScriptedAdapter(call("create_plan", {"tasks": tasks}), say("Done."))
    runtime = CopilotRuntime(model, settings=settings)
    async with Client(runtime, agent="planner") as client:
        assert (await client.say("Do it.")).text == "Done."
        plan_id = client.state["plan"]["id"]
        await runtime.conversations.delete(ThreadKey("", client.thread_id))
        (engine,) = [agent.engine for agent in runtime.agents.values() if agent.has_plans]  # type: ignore[union-attr]
        assert plan_id not in await list_ids(engine.log)
