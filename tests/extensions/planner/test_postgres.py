"""Plans in PostgreSQL: servers that die, hang or are cut off, and a database that goes away."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from time import monotonic
from typing import Any

import pytest

from copilot_runtime.base.errors import (
    ConfigurationFailed,
    MissingPackage,
    Misuse,
    NotFound,
    StoreFailed,
)
from copilot_runtime.database.postgres import pool
from copilot_runtime.extensions.planner.engine import PlanEngine
from copilot_runtime.extensions.planner.events import TaskReopened, TaskStarted
from copilot_runtime.extensions.planner.log import Lease, LeaseLost, PlanQuery, PlanSummary
from copilot_runtime.extensions.planner.plan import TaskState
from copilot_runtime.extensions.planner.postgres import PostgresPlanLog, schema
from copilot_runtime.extensions.planner.roles import TaskContext
from tests.extensions.planner.crew import (
    Crew,
    build_engine,
    build_plan,
    describe,
    finish,
    wait_until,
)
from tests.extensions.planner.kills import join_wire
from tests.threads.cluster import Cluster

pytestmark = pytest.mark.anyio

STARTED = TaskStarted(task_id="1")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_POLL", "_RECOVERY", "_RESTART"):
        monkeypatch.setattr(f"copilot_runtime.extensions.planner.engine.{name}", 0.02)


@asynccontextmanager
async def logs(*urls: str, lease: float = 5.0) -> AsyncGenerator[Sequence[PostgresPlanLog], None]:
    """Return an open log for each URL: servers of their own."""
    opened = [PostgresPlanLog(url, lease=lease) for url in urls]
    for log in opened:
        await log.open()
    try:
        yield opened
    finally:
        for log in opened:
            await log.aclose()


async def create(log: PostgresPlanLog, plan_id: str = "p", **fields: Any) -> Lease:
    summary = PlanSummary(
        id=plan_id,
        user=fields.pop("user", None),
        thread_id=fields.pop("thread_id", "t"),
        created_at=0.0,
        updated_at=0.0,
        status="running",
        title="Do it.",
    )
    lease, _ = await log.create(summary, [build_plan("a")])
    return lease


async def claim(log: PostgresPlanLog) -> Sequence[Lease]:
    """Claim until there is something: a database takes a moment to notice a death."""
    while not (leases := await log.claim()):
        pass
    return leases


async def query(database: str, statement: str) -> Any:
    connection: Any = await import_module("asyncpg").connect(database)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


async def test_a_server_that_was_cut_off_stores_nothing_more(database: str) -> None:
    async with join_wire(database) as wire, logs(wire.url, database) as (one, other):
        lease = await create(one)
        await one.append(lease, 2, [STARTED])
        assert await other.claim() == []
        wire.cut()
        (taken,) = await claim(other)
        assert taken == Lease("p", 2)
        await wire.join()
        with pytest.raises(LeaseLost, match="Another server carries out the plan 'p'"):
            await one.append(lease, 3, [STARTED])
        assert await one.find_stale([lease, taken]) == [lease]
        with pytest.raises(LeaseLost):
            await one.renew(lease)
        await other.append(taken, 3, [STARTED])
        assert [entry.number for entry in await one.read("p")] == [1, 2, 3]


async def test_a_database_whose_clock_is_set_declares_no_server_dead(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with logs(database, database, lease=60) as (one, other):
        await create(one)
        monkeypatch.setattr(schema, "monotonic", lambda: monotonic() + 100)
        connection: Any = await import_module("asyncpg").connect(database)
        await connection.execute("UPDATE copilot_plan_servers SET until = until - interval '1 day'")
        await connection.close()
        assert await other.claim() == []


async def test_a_server_that_hangs_loses_its_plans_after_its_lease(database: str) -> None:
    async with join_wire(database) as wire, logs(wire.url, database, lease=0.4) as (one, other):
        lease = await create(one)
        wire.hold()
        (taken,) = await claim(other)
        write = one.append(lease, 2, [STARTED])
        wire.release()
        with pytest.raises(LeaseLost):
            await write
        await other.append(taken, 2, [STARTED])
        again = await create(one, "q")  # it is a server as any other once it answers again
        assert await one.append(again, 2, [STARTED])


async def test_an_answer_that_comes_too_late_does_not_count(database: str) -> None:
    async with join_wire(database) as wire, logs(wire.url, database, lease=0.4) as (one, other):
        lease = await create(one)
        connection: Any = await import_module("asyncpg").connect(database)
        async with connection.transaction():
            await connection.execute("SELECT FROM copilot_plans FOR UPDATE")
            write = one.append(lease, 2, [STARTED])
            while not await query(database, "SELECT count(*) FROM pg_locks WHERE NOT granted"):
                pass
            wire.hold("answers")
        await connection.close()
        while len(await other.read("p")) < 2:
            pass
        await claim(other)
        wire.release()
        with pytest.raises(LeaseLost):
            await write


async def test_a_lease_that_is_found_too_late_is_looked_for_again(database: str) -> None:
    async with join_wire(database) as wire, logs(wire.url, database, lease=0.4) as (one, other):
        lease = await create(one)
        await one.check_lease(lease)
        wire.hold("answers")
        check = asyncio.create_task(one.check_lease(lease))
        await claim(other)
        wire.release()
        with pytest.raises(LeaseLost):
            await check


async def test_a_plan_goes_on_elsewhere_and_ends_here(database: str) -> None:
    started, ended = asyncio.Event(), asyncio.Event()

    async def hang(state: TaskState, context: TaskContext) -> str:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return ""

    async with join_wire(database) as wire:
        one = build_engine(Crew({"a": hang}), PostgresPlanLog(wire.url))
        other = build_engine(Crew(), PostgresPlanLog(database))
        await one.open()
        await other.open()
        plan_id = await one.submit(build_plan("a"))
        await started.wait()
        wire.cut()
        async for _ in other.follow(plan_id):
            pass
        assert describe(await other.get(plan_id)) == {"plan": "finished", "a": "finished"}
        await wire.join()
        await ended.wait()  # it found out, though its task had nothing to store
        async for _ in one.follow(plan_id):
            pass
        await one.aclose()
        await other.aclose()


async def test_a_plan_comes_back_to_a_server_whose_run_of_it_has_not_ended(database: str) -> None:
    started, stubborn = asyncio.Event(), asyncio.Event()

    async def hang(state: TaskState, context: TaskContext) -> str:
        if started.is_set():
            return "<a>"
        started.set()
        try:
            await stubborn.wait()
        except asyncio.CancelledError:
            await stubborn.wait()
        return "<late>"

    async with join_wire(database) as wire, logs(database) as (other,):
        engine = build_engine(Crew({"a": hang}), PostgresPlanLog(wire.url))
        await engine.log.open()
        plan_id = await engine.submit(build_plan("a"))
        await started.wait()
        wire.cut()
        await claim(other)
        await wire.join()
        await other.aclose()
        while not await engine.recover():
            pass
        async for _ in engine.follow(plan_id):
            pass
        stubborn.set()
        assert (await engine.get(plan_id)).root.output == "<a>"
        await engine.aclose()


async def test_nobody_is_taken_for_dead_because_the_database_restarts(
    database: str, cluster: Cluster
) -> None:
    async with logs(database, database) as (one, other):
        lease = await create(one)
        restart = asyncio.create_task(asyncio.to_thread(cluster.restart))
        entries = one.append(lease, 2, [STARTED])
        while not restart.done():
            assert await other.claim() == []
        await entries
        assert await other.claim() == []
        await one.append(lease, 3, [STARTED])
        # until the first one is known to be alive again, and lost if it dies
        while (
            await query(database, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") < 2
        ):
            assert await other.claim() == []
        await one.aclose()
        assert await claim(other) == [Lease("p", 2)]


async def test_a_plan_outlives_connections_that_the_operator_ends(database: str) -> None:
    async def work(state: TaskState, context: TaskContext) -> str:
        await query(
            database,
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'",
        )
        return "ok"

    engine = build_engine(Crew({"a": work, "b": work}), PostgresPlanLog(database))
    await engine.open()
    plan = await finish(engine, build_plan("a", {"name": "b", "depends_on": ["a"]}))
    assert describe(plan) == {"plan": "finished", "a": "finished", "b": "finished"}
    await engine.aclose()


async def test_what_was_done_though_its_answer_was_lost_is_not_done_twice(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncpg = import_module("asyncpg")
    insist = pool.Pool.retry  # where a connection would break
    attempts = 0

    async def breaking(self: pool.Pool, attempt: Any) -> Any:
        async def lose() -> Any:
            nonlocal attempts
            result = await attempt()
            attempts += 1
            if attempts % 2:
                raise asyncpg.ConnectionDoesNotExistError("the answer was lost")
            return result

        return await insist(self, lose)

    async with logs(database, database) as (one, other):
        monkeypatch.setattr(pool.Pool, "retry", breaking)
        lease = await create(one)
        await asyncio.gather(*(one.append(lease, number, [STARTED]) for number in range(2, 7)))
        await one.append(lease, 7, (), status="finished")
        lease, _ = await one.claim_plan("p", 7, [TaskReopened(task_id="1")])
        assert lease.epoch == 2
        lease = await one.renew(lease)
        await one.append(lease, 8, [STARTED])
        assert [entry.number for entry in await one.read("p")] == [*range(1, 9)]
        await one.aclose()
        (taken,) = await claim(other)
        await other.append(taken, 9, [STARTED])
        assert await other.claim() == []


async def test_a_plan_whose_claim_nobody_heard_of_is_claimed_again(database: str) -> None:
    async with logs(database) as (log,):
        await create(log)
        server = await query(database, "SELECT server FROM copilot_plans")
        await query(
            database,
            "INSERT INTO copilot_plans SELECT 'q', owner, thread, title, created, updated, status,"
            f" is_over, number, {server}, epoch FROM copilot_plans RETURNING 1",
        )
        assert await log.claim() == [Lease("q", 2)]
        assert await log.claim() == []


async def test_an_event_whose_predecessor_is_not_stored_is_refused(database: str) -> None:
    async with logs(database) as (log,):
        lease = await create(log)
        with pytest.raises(StoreFailed, match="An earlier event of the plan 'p'"):
            await log.append(lease, 3, [STARTED])
        assert await log.append(lease, 2, [STARTED])


async def test_an_error_that_nobody_expects_delays_a_plan_and_is_logged(
    database: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    execute, errors = pool.Pool.execute, [ValueError("a bug")]

    async def fail_once(self: pool.Pool, work: Any) -> Any:
        if errors:
            raise errors.pop()
        return await execute(self, work)

    monkeypatch.setattr(pool.Pool, "execute", fail_once)
    engine = build_engine(Crew(), PostgresPlanLog(database))
    await engine.open()
    plan = await finish(engine, build_plan("a"))
    assert describe(plan) == {"plan": "finished", "a": "finished"}
    assert "a bug" in caplog.text
    await engine.aclose()


async def test_a_plan_that_was_deleted_ends(database: str) -> None:
    async with logs(database) as (log,):
        lease = await create(log)
        await query(database, "DELETE FROM copilot_plans RETURNING id")
        with pytest.raises(LeaseLost):
            await log.append(lease, 2, [STARTED])
        assert await log.find_stale([lease]) == [lease]
        for attempt in (log.read("p"), log.find("p"), log.claim_plan("p", 2, [])):
            with pytest.raises(NotFound, match="There is no plan 'p'"):
                await attempt


async def test_of_two_who_take_up_a_plan_again_one_is_refused(database: str) -> None:
    async with logs(database, database) as (one, other):
        await one.append(await create(one), 2, (), status="failed")
        reopened = [TaskReopened(task_id="1")]
        claims = [log.claim_plan("p", 2, reopened) for log in (one, other, one)]
        done = await asyncio.gather(*claims, return_exceptions=True)
        assert sorted(type(it).__name__ for it in done) == ["LeaseLost", "LeaseLost", "tuple"]


async def test_texts_that_postgresql_cannot_keep_are_no_reason_to_fail(database: str) -> None:
    async with logs(database) as (log,):
        await create(log, user="a\0nn", thread_id="\ud83d")
        (summary,) = await log.list_plans(PlanQuery(user="a\0nn", thread_id="\ud83d"))
        assert (summary.user, summary.thread_id) == ("a\ufffdnn", "?")
        for plan_id in ("p\0", "\ud83d"):
            with pytest.raises(NotFound):
                await log.read(plan_id)


async def test_an_id_is_given_once(database: str) -> None:
    async with logs(database, database) as (one, other):
        await create(one)
        with pytest.raises(Misuse, match="There is a plan 'p' already"):
            await create(other)


async def test_what_comes_after_the_end_is_refused(database: str) -> None:
    async with logs(database) as (log,):
        lease = await create(log)
        await log.aclose()
        with pytest.raises(StoreFailed, match="The plans are closed"):
            await log.append(lease, 2, [STARTED])
        assert (await log.find("p")).status == "running"  # whoever reads opens it again


async def test_a_database_that_is_not_there_is_named_without_its_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool, "_PATIENCE", 0.0)
    with pytest.raises(StoreFailed, match=r"PostgreSQL \(127\.0\.0\.1:1/db\) cannot be") as caught:
        await PostgresPlanLog("postgresql://me:secret@127.0.0.1:1/db").open()
    assert "secret" not in caught.value.message
    assert caught.value.public.startswith("The plans cannot be used")


async def test_the_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "asyncpg", None)
    with pytest.raises(MissingPackage, match=r"copilot-runtime\[postgres\]"):
        await PostgresPlanLog("postgresql://127.0.0.1/db").open()


async def test_plans_of_a_later_version_are_left_alone(database: str) -> None:
    async with logs(database):
        await query(database, "INSERT INTO copilot_plan_schema VALUES (99) RETURNING 1")
    with pytest.raises(ConfigurationFailed, match="later version"):
        await PostgresPlanLog(database).open()


async def test_plans_go_on_when_a_database_that_was_away_for_long_comes_back(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "_PATIENCE", 0.0)
    async with join_wire(database) as wire:
        cut = asyncio.Event()

        async def work(state: TaskState, context: TaskContext) -> str:
            if not cut.is_set():
                wire.cut()
                cut.set()
            return "ok"

        engine: PlanEngine = build_engine(Crew({"a": work}), PostgresPlanLog(wire.url))
        await engine.open()
        plan_id = await engine.submit(build_plan("a"))
        await cut.wait()
        await wait_until(lambda: plan_id in engine.failures)
        await wire.join()
        async for _ in engine.follow(plan_id):
            pass
        assert describe(await engine.get(plan_id)) == {"plan": "finished", "a": "finished"}
        await wait_until(lambda: not engine.failures)
        await engine.aclose()
