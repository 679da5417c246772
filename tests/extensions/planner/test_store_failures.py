"""A store that cannot be used delays plans: none is lost, and readiness says so."""

import asyncio
import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from copilot_runtime import CopilotRuntime, Settings
from copilot_runtime.base.errors import CopilotError, StoreFailed
from copilot_runtime.extensions.planner.agent import PlannerAgent
from copilot_runtime.extensions.planner.engine import PlanEngine
from copilot_runtime.extensions.planner.events import (
    ROOT,
    CallFinished,
    PlanEntry,
    TaskReopened,
    TaskStarted,
)
from copilot_runtime.extensions.planner.log import Lease, LeaseLost, MemoryPlanLog, PlanSummary
from copilot_runtime.extensions.planner.plan import TaskState
from copilot_runtime.extensions.planner.roles import TaskContext, Verdict
from copilot_runtime.extensions.planner.settings import PlannerSettings
from copilot_runtime.extensions.planner.sqlite import SqlitePlanLog
from copilot_runtime.testing import ScriptedAdapter
from tests.extensions.planner.conftest import MakeLog
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


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_POLL", "_RECOVERY", "_RESTART"):
        monkeypatch.setattr(f"copilot_runtime.extensions.planner.engine.{name}", 0.01)


async def set_pragma(log: SqlitePlanLog, pragma: str) -> None:
    """Have the file fail as a disk would, or be well again."""
    writer: Any = log._writer  # pyright: ignore[reportPrivateUsage]  # nothing public fails so

    def execute(db: sqlite3.Connection) -> None:
        db.execute(f"PRAGMA {pragma}")

    await writer.do(execute, is_one_statement=True)


async def see(engine: PlanEngine, plan_id: str, part: str) -> None:
    """Wait until a plan cannot go on, for a reason."""
    await wait_until(lambda: part in getattr(engine.failures.get(plan_id), "message", ""))


@in_one_test(
    ("failing", "well", "part"),
    [
        ("max_page_count = 1", "max_page_count = 1000000", "the disk is full"),
        ("query_only = 1", "query_only = 0", "they are read-only"),
    ],
)
async def test_a_plan_waits_for_a_disk_that_is_full_or_read_only(
    tmp_path: Path, failing: str, well: str, part: str
) -> None:
    log = SqlitePlanLog(tmp_path / "plans.db")
    effects: list[str] = []

    async def call(state: TaskState, context: TaskContext) -> str:
        async def run() -> str:
            effects.append("sent")
            return "x" * 5000

        result = await context.call_tool("c", "send", "{}", run, is_idempotent=False)
        return result[:1]

    async def break_disk(state: TaskState, context: TaskContext) -> str:
        await set_pragma(log, failing)
        return "y" * 5000

    engine = build_engine(Crew({"a": break_disk, "b": call}), log)
    await engine.open()
    plan_id = await engine.submit(build_plan("a", {"name": "b", "depends_on": ["a"]}))
    await see(engine, plan_id, part)
    assert effects == []  # what cannot be stored is not done
    await set_pragma(log, well)
    engine.worker = Crew({"b": call})
    async for _ in engine.follow(plan_id):
        pass
    assert set(describe(await engine.get(plan_id)).values()) == {"finished"}
    assert (effects, engine.failures) == (["sent"], {})
    await engine.aclose()


async def test_a_server_that_starts_on_a_full_disk_looks_for_plans_once_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Path) -> sqlite3.Connection:
        raise sqlite3.OperationalError("database or disk is full")

    engine = build_engine(Crew(), SqlitePlanLog(tmp_path / "plans.db"))
    with monkeypatch.context() as patch:
        patch.setattr("copilot_runtime.extensions.planner.sqlite.open_plan_file", fail)
        await engine.open()
        with pytest.raises(StoreFailed, match="the disk is full"):
            await engine.submit(build_plan("a"))
    await wait_until(lambda: not engine.failures)
    assert (await finish(engine, build_plan("a"))).status == "finished"
    await engine.aclose()


async def test_a_plan_whose_file_was_deleted_goes_on_once_it_is_back(tmp_path: Path) -> None:
    path = tmp_path / "plans.db"

    async def move(state: TaskState, context: TaskContext) -> str:
        path.rename(tmp_path / "elsewhere")
        return "ok"

    engine = build_engine(Crew({"a": move}), SqlitePlanLog(path))
    await engine.open()
    plan_id = await engine.submit(build_plan("a"))
    await see(engine, plan_id, "the file was deleted, or replaced")
    engine.worker = Crew()
    (tmp_path / "elsewhere").rename(path)
    async for _ in engine.follow(plan_id):
        pass
    assert (await engine.get(plan_id)).status == "finished"
    await engine.aclose()


async def test_a_plan_that_another_server_took_meanwhile_is_given_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "plans.db"
    started = asyncio.Event()

    async def hang(state: TaskState, context: TaskContext) -> str:
        started.set()
        await asyncio.Event().wait()
        return ""

    engine = build_engine(Crew({"a": hang}), SqlitePlanLog(path))
    await engine.open()
    plan_id = await engine.submit(build_plan("a"))
    await started.wait()
    await set_pragma(engine.log, "query_only = 1")  # pyright: ignore[reportArgumentType]
    with pytest.raises(StoreFailed):
        await engine.stop(plan_id)
    await see(engine, plan_id, "read-only")
    other = SqlitePlanLog(path)
    await other.open()
    names = os.listdir(tmp_path)  # noqa: PTH208  # a test may wait for its folder
    locks = {name.rpartition("-")[2] for name in names if "-server-" in name}
    with sqlite3.connect(path, isolation_level=None) as db:
        locks -= {server for (server,) in db.execute("SELECT server FROM plans")}
        db.execute("UPDATE plans SET server = ?", [*locks])
    db.close()
    await set_pragma(engine.log, "query_only = 0")  # pyright: ignore[reportArgumentType]
    await wait_until(lambda: not engine.failures)
    assert "does not go on here: Another server carries out the plan" in caplog.text
    await engine.aclose()
    await other.aclose()


async def test_a_plan_that_cannot_be_done_again_stays_over(tmp_path: Path) -> None:
    log = SqlitePlanLog(tmp_path / "plans.db")
    crew = Crew(verdicts={"plan": [Verdict(False, "No."), Verdict(True)]})
    engine = build_engine(crew, log)
    await engine.open()
    plan = await finish(engine, build_plan("a", evaluation="Good."))
    await set_pragma(log, "query_only = 1")
    with pytest.raises(StoreFailed, match="read-only"):
        await engine.retry(plan.id)
    await set_pragma(log, "query_only = 0")
    assert (await log.find(plan.id)).status == "failed"
    await engine.retry(plan.id)
    async for _ in engine.follow(plan.id, plan.number):
        pass
    assert (await log.find(plan.id)).status == "finished"
    await engine.aclose()


async def test_a_plan_that_cannot_be_read_after_a_take_over_goes_on_later(
    make_log: MakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = asyncio.Event()

    async def hang(state: TaskState, context: TaskContext) -> str:
        started.set()
        await asyncio.Event().wait()
        return ""

    one, other = build_engine(Crew({"a": hang}), make_log()), build_engine(Crew(), make_log())
    await one.open()
    plan_id = await one.submit(build_plan("a"))
    await started.wait()
    await other.log.open()
    read, failures = other.log.read, [StoreFailed("It hiccups."), StoreFailed("It hiccups.")]

    async def hiccup(*arguments: Any) -> Any:
        if failures:
            raise failures.pop()
        return await read(*arguments)

    monkeypatch.setattr(other.log, "read", hiccup)
    await one.aclose()
    while not await other.recover():
        pass
    await wait_until(lambda: plan_id not in other.failures)
    async for _ in other.follow(plan_id):
        pass
    assert (await other.get(plan_id)).status == "finished"
    await other.aclose()


async def test_a_lease_is_of_one_run_alone(make_log: MakeLog) -> None:
    one, other = make_log(), make_log()
    await one.open()
    await other.open()
    engine = build_engine(Crew(), one)
    plan = await finish(engine, build_plan("a"))
    number = plan.number + 1
    lease, entries = await other.claim_plan(plan.id, number, [TaskReopened(task_id=ROOT)])
    assert [entry.number for entry in entries] == [number]
    renewed = await other.renew(lease)
    assert renewed == Lease(plan.id, lease.epoch + 1)
    with pytest.raises(LeaseLost):
        await other.append(lease, number + 1, [TaskStarted(task_id="1")])
    with pytest.raises(LeaseLost):
        await one.renew(lease)
    with pytest.raises(StoreFailed, match="An earlier event"):
        await other.append(renewed, number + 2, [TaskStarted(task_id="1")])
    await other.append(renewed, number + 1, [TaskStarted(task_id="1")])
    await one.aclose()
    await other.aclose()
    with pytest.raises(StoreFailed, match="The plans are closed"):
        await other.append(renewed, number + 2, [])


async def test_readiness_names_plans_that_wait_for_their_store(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'plans.db'}"
    settings = Settings(threads="memory", planner=PlannerSettings(name="planner", store=store))
    runtime = CopilotRuntime(ScriptedAdapter(), settings=settings)
    client = TestClient(runtime.app())
    assert "failing" not in client.get("/health/ready").json()
    planner = runtime.agents["planner"]  # pyright: ignore[reportIndexIssue]
    assert isinstance(planner, PlannerAgent)
    await planner.open()
    (tmp_path / "plans.db").unlink()
    await wait_until(lambda: bool(planner.engine.failures))
    ready = client.get("/health/ready")
    assert (ready.status_code, ready.json()["failing"]) == (200, ["plans"])
    await planner.aclose()


class FaultyLog(MemoryPlanLog):
    """Fails as nobody expects: when it is asked for plans of others, or for one of them."""

    def __init__(self, *claimed: str) -> None:
        super().__init__()
        self.claimed = [*claimed]
        self.claims = 0

    async def claim(self) -> Sequence[Lease]:
        self.claims += 1
        if self.claims == 2:
            raise RuntimeError("a bug")
        claimed, self.claimed = self.claimed, []
        return [Lease(plan_id, 1) for plan_id in claimed]

    async def read(self, plan_id: str, after: int = 0) -> Sequence[PlanEntry]:
        if plan_id == "broken":
            raise RuntimeError("a bug")
        return await super().read(plan_id, after)


async def test_a_server_looks_for_plans_again_after_an_unexpected_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = FaultyLog()
    engine = build_engine(Crew(), log)
    await engine.open()
    await wait_until(lambda: log.claims > 3)
    assert "Plans of other servers cannot be looked for." in caplog.text
    await engine.aclose()


async def test_a_plan_that_cannot_be_read_holds_up_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = FaultyLog("broken", "good")
    summary = PlanSummary(
        id="good", user=None, thread_id="", created_at=0, updated_at=0, status="running", title=""
    )
    await log.create(summary, [build_plan("a")])
    engine = build_engine(Crew(), log)
    await engine.open()
    async for _ in engine.follow("good"):
        pass
    assert (await engine.get("good")).status == "finished"
    assert "The plan broken cannot go on." in caplog.text
    await engine.aclose()


async def test_a_plan_with_an_event_that_fits_nowhere_says_which() -> None:
    log = MemoryPlanLog()
    summary = PlanSummary(
        id="p", user=None, thread_id="", created_at=0, updated_at=0, status="running", title=""
    )
    lease, _ = await log.create(summary, [build_plan("a")])
    await log.append(lease, 2, [CallFinished(task_id="1", call_id="never made", result="")])
    with pytest.raises(CopilotError, match="The plan p cannot be read at its event 2"):
        await build_engine(Crew(), log).get("p")


async def test_a_plan_that_was_lost_ends_after_its_tasks_have_cleaned_up() -> None:
    class LostLog(MemoryPlanLog):
        looks = 0

        async def find_stale(self, leases: Sequence[Lease]) -> Sequence[Lease]:
            self.looks += 1
            return leases

    log, steps = LostLog(), list[str]()

    def note_end(plan_id: str) -> None:
        steps.append("ended")

    async def hang(state: TaskState, context: TaskContext) -> str:
        try:
            await asyncio.Event().wait()
        finally:
            looks = log.looks
            await wait_until(lambda: log.looks > looks + 2)  # each tells the run again
            steps.append("cleaned up")
        return ""

    engine = build_engine(Crew({"a": hang}), log, on_end=note_end)
    await engine.open()
    await engine.submit(build_plan("a"))
    await wait_until(lambda: "ended" in steps)
    await engine.aclose()
    assert steps == ["cleaned up", "ended"]
