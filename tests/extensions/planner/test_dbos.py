"""Plans are workflows of DBOS: it shows them, stops them, and its workflows follow a take-over."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from copilot_runtime.base.errors import ConfigurationFailed, MissingPackage, StoreFailed
from copilot_runtime.extensions.planner.build import build_log
from copilot_runtime.extensions.planner.engine import PlanEngine
from copilot_runtime.extensions.planner.events import QuestionAsked
from copilot_runtime.extensions.planner.plan import TaskState
from copilot_runtime.extensions.planner.postgres import DbosPlanLog
from copilot_runtime.extensions.planner.postgres import dbos as module
from copilot_runtime.extensions.planner.roles import TaskContext, Verdict
from tests.extensions.planner.crew import Crew, build_engine, build_plan, describe, finish
from tests.threads.cluster import Cluster

pytestmark = pytest.mark.anyio

DBOS: Any = import_module("dbos").DBOS


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_POLL", 0.02)
    for name in ("_POLL", "_RECOVERY"):
        monkeypatch.setattr(f"copilot_runtime.extensions.planner.engine.{name}", 0.02)


@pytest.fixture
async def database(anyio_backend: str, cluster: Cluster) -> str:
    """Return the URL of a new database: DBOS has a schema of its own there."""
    name = f"dbos_{uuid4().hex}"
    connection: Any = await import_module("asyncpg").connect(cluster.url)
    await connection.execute(f"CREATE DATABASE {name}")
    await connection.close()
    return cluster.url.replace("/postgres?", f"/{name}?")


@asynccontextmanager
async def serve(database: str, crew: Crew | None = None) -> AsyncGenerator[PlanEngine, None]:
    engine = build_engine(crew or Crew(), build_log(f"dbos:{database}"))
    await engine.open()
    try:
        yield engine
    finally:
        await engine.aclose()


async def find_workflow(workflow_id: str, status: str) -> Any:
    """Return a workflow once it has a status."""
    while True:
        (found,) = await asyncio.to_thread(DBOS.list_workflows, workflow_ids=[workflow_id])
        if found.status == status:
            return found


async def list_steps(workflow_id: str) -> Sequence[Any]:
    steps = await asyncio.to_thread(DBOS.list_workflow_steps, workflow_id)
    return [step["output"] for step in steps]


async def hang(state: TaskState, context: TaskContext) -> str:
    await asyncio.Event().wait()
    return ""


def fail(*arguments: Any) -> None:
    raise RuntimeError("DBOS is ill.")


async def test_a_plan_is_a_workflow_with_a_step_for_each_task(database: str) -> None:
    async with serve(database) as engine:
        plan = await finish(engine, build_plan("a", {"name": "b", "depends_on": ["a"]}))
        workflow = await find_workflow(plan.id, "SUCCESS")
        assert (workflow.name, workflow.output) == ("copilot_plan", "finished")
        steps = await list_steps(plan.id)
        assert [(step["task"], step["outcome"]) for step in steps] == [
            ("1", "finished"),
            ("2", "finished"),
            ("0", "finished"),
        ]


async def test_who_cancels_the_workflow_stops_the_plan(database: str) -> None:
    async with serve(database, Crew({"a": hang})) as engine:
        plan_id = await engine.submit(build_plan("a"))
        await find_workflow(plan_id, "PENDING")
        await asyncio.to_thread(DBOS.cancel_workflow, plan_id)
        async for _ in engine.follow(plan_id):
            pass
        assert describe(await engine.get(plan_id)) == {"plan": "stopped", "a": "stopped"}


async def test_a_plan_that_is_done_again_has_a_workflow_for_it(database: str) -> None:
    crew = Crew(verdicts={"plan": [Verdict(False, "No."), Verdict(True)]})
    async with serve(database, crew) as engine:
        plan = await finish(engine, build_plan("a", evaluation="Good."))
        assert (await find_workflow(plan.id, "SUCCESS")).output == "failed"
        await engine.retry(plan.id)
        async for _ in engine.follow(plan.id, plan.number):
            pass
        assert (await find_workflow(f"{plan.id}:2", "SUCCESS")).output == "finished"


async def test_a_plan_of_a_killed_server_goes_on_and_its_workflow_with_it(
    database: str, tmp_path: Path
) -> None:
    effects = tmp_path / "effects"
    arguments = ("-m", "tests.extensions.planner.dbos_server", database, str(effects))
    server = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdout=asyncio.subprocess.PIPE
    )
    assert server.stdout is not None
    plan_id = (await server.stdout.readline()).decode().strip()
    server.kill()
    await server.communicate()
    crew = Crew()
    async with serve(database, crew) as engine:
        async for entry in engine.follow(plan_id):
            if isinstance(event := getattr(entry, "event", None), QuestionAsked):
                while event.question_id not in (await engine.get(plan_id)).questions:
                    pass
                await engine.answer(plan_id, event.question_id, "done", note="paid")
        assert (await find_workflow(plan_id, "SUCCESS")).output == "finished"
        steps = await list_steps(plan_id)
        assert [step["task"] for step in steps] == ["1", "2", "2", "0"]
        assert "it is unknown whether it was done" in steps[1]["question"]
    assert (crew.worked, effects.read_text()) == (["b"], "paid\n")


async def test_a_plan_goes_on_while_dbos_fails(
    database: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve(database) as engine:
        monkeypatch.setattr(DBOS, "start_workflow", fail)
        plan = await finish(engine, build_plan("a"))
        assert plan.status == "finished"
    assert "DBOS does not know what becomes of a plan: DBOS is ill." in caplog.text


async def test_a_plan_whose_workflow_did_not_begin_gets_it_with_the_next_server(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve(database, Crew({"a": hang})) as engine:
        with monkeypatch.context() as patch:
            patch.setattr(DBOS, "start_workflow", fail)
            plan_id = await engine.submit(build_plan("a"))
    async with serve(database):
        while not await asyncio.to_thread(DBOS.list_workflows, workflow_ids=[plan_id]):
            pass
        assert (await find_workflow(plan_id, "SUCCESS")).output == "finished"


async def test_a_process_has_one_dbos(database: str) -> None:
    async with serve(database):
        with pytest.raises(ConfigurationFailed, match="DBOS is one for a process"):
            await DbosPlanLog(database).open()


async def test_what_keeps_dbos_from_starting_is_said(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DBOS, "launch", lambda: 1 / 0)
    with pytest.raises(StoreFailed, match="DBOS cannot be started: division by zero"):
        await DbosPlanLog(database).open()


async def test_the_dbos_of_a_program_is_left_alone(database: str) -> None:
    DBOS(config={"name": "theirs", "system_database_url": database})
    await asyncio.to_thread(DBOS.launch)
    with pytest.raises(ConfigurationFailed, match="The program uses DBOS itself"):
        await DbosPlanLog(database).open()
    assert await asyncio.to_thread(DBOS.list_workflows) == []
    await asyncio.to_thread(DBOS.destroy)


async def test_the_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dbos", None)
    with pytest.raises(MissingPackage, match=r"copilot-runtime\[dbos\]"):
        build_log("dbos:postgresql://127.0.0.1/db")
