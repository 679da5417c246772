"""Threads in PostgreSQL: several servers, a database that goes away, and what is said then."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing as closing
from functools import partial
from importlib import import_module
from pathlib import Path
from time import time_ns
from typing import Any

import pytest

from copilot_runtime.base.errors import Interrupted, MissingPackage, Misuse, StoreFailed, ThreadBusy
from copilot_runtime.database.postgres import pool
from copilot_runtime.threads.compact import INTERRUPTED, compact
from copilot_runtime.threads.postgres import PostgresThreads
from copilot_runtime.threads.postgres import store as postgres_store
from copilot_runtime.threads.store import Segment
from copilot_runtime.threads.transactions import ServerLost, Transaction
from tests.extensions.cluster.kills.proxy import Proxy
from tests.extensions.planner.crew import wait_until
from tests.in_one_test import in_one_test
from tests.threads.cluster import Cluster
from tests.threads.recorded import KEY, log_of, run_of, told, user

pytestmark = pytest.mark.anyio


@pytest.fixture
async def store(anyio_backend: str, database: str) -> AsyncGenerator[PostgresThreads, None]:
    async with closing(PostgresThreads(database)) as store:
        yield store


async def change(database: str, statement: str) -> None:
    opened: Any = await import_module("asyncpg").connect(database)
    await opened.execute(statement)
    await opened.close()


async def test_the_runs_of_a_server_that_died_are_ended(database: str) -> None:
    dead = PostgresThreads(database)
    log = log_of(run_of(), new=await dead.begin(run_of()))
    await dead.write([Segment(log_id="r", events=log[:3])])
    await dead.aclose()  # the database sees no more than that its connection ends

    async with closing(PostgresThreads(database)) as store:
        await store.open()
        [run] = await store.runs(KEY)

    assert run.events == compact(log[:3], ending=INTERRUPTED)


async def test_a_thread_is_free_as_soon_as_its_server_has_died(
    store: PostgresThreads, database: str
) -> None:
    other = PostgresThreads(database)
    await store.open()
    await other.begin(run_of())
    with pytest.raises(ThreadBusy):
        await store.begin(run_of(run_id="r2"))
    await other.aclose()

    # the database takes a moment to notice
    new = await begun(store)
    first, second = await store.runs(KEY)
    assert (new, first.events[-1], second.ended) == ([user("u2")], INTERRUPTED, False)


async def begun(store: PostgresThreads) -> object:
    try:
        return await store.begin(run_of(run_id="r2", messages=[user(), user("u2")]))
    except ThreadBusy:
        return await begun(store)


async def test_a_server_that_was_silent_for_too_long_writes_nothing_more(
    store: PostgresThreads, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_store, "_BEAT", 1_000_000)  # as if it hung
    log = log_of(run_of(), new=await store.begin(run_of()))
    await store.write([Segment(log_id="r", events=log[:3])])
    await change(database, f"UPDATE copilot_servers SET until = {time_ns() // 1000 - 1}")
    async with closing(PostgresThreads(database)) as other:
        await other.begin(run_of(run_id="r2", messages=[user(), user("u2")]))
        for late in (log[3:4], log):
            whole = log if late is log else None
            with pytest.raises(Interrupted, match="Another server has ended this answer"):
                await store.write([Segment(log_id="r", events=late, whole=whole)])
        first, second = await store.runs(KEY)

    assert first.events == compact(log[:3], ending=INTERRUPTED)
    assert not second.ended


async def test_a_server_that_was_taken_for_dead_is_dead_for_all_though_its_lock_is_held(
    store: PostgresThreads, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_store, "_BEAT", 1_000_000)  # as if it hung
    await store.begin(run_of())
    await change(database, f"UPDATE copilot_servers SET until = {time_ns() // 1000 - 1}")
    async with closing(PostgresThreads(database)) as other:
        await other.open()  # which ends its runs

        assert not await other.is_alive(await store.server())


async def test_a_server_that_hangs_in_a_transaction_holds_up_nobody_for_long(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_store, "_BEAT", 1_000_000)  # as if it hung
    monkeypatch.setattr(pool, "_IDLE", {"idle_in_transaction_session_timeout": "100"})
    link = postgres_store.Link(database, 1)
    await link.open()
    await change(database, f"UPDATE copilot_servers SET until = {time_ns() // 1000 - 1}")
    begins, goes_on = asyncio.Event(), asyncio.Event()

    async def hang(db: Transaction) -> None:
        await db.check_server()
        begins.set()
        await goes_on.wait()
        await db.check_server()

    hanging = asyncio.create_task(link.do(hang))
    await begins.wait()
    async with closing(PostgresThreads(database)) as other, asyncio.timeout(10):
        await other.open()
        assert not await other.is_alive(str(link.server))
        await bury(other, link.server)
        goes_on.set()
        with pytest.raises(ServerLost):  # it found out, and wrote nothing
            await hanging
    await link.close()


async def test_what_is_given_up_ends_soon_though_the_database_hangs(
    database: str, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "_FAREWELL", 0.2)
    folder = str(cluster.data.parent)
    way = Proxy(Path(folder, ".s.PGSQL.5432"))
    async with way.listening(tmp_path / ".s.PGSQL.5432"):
        connections = pool.Pool(database.replace(folder, str(tmp_path)), 1)
        await connections.open(do_nothing)

        async def ask(connection: Any, begins: asyncio.Event) -> int:
            way.state = "stalled"
            begins.set()
            return await connection.fetchval("SELECT 1")

        for do in (connections.execute, connections.do):
            begins = asyncio.Event()
            task = asyncio.create_task(do(partial(ask, begins=begins)))
            async with asyncio.timeout(5):
                await begins.wait()
                task.cancel()
                await asyncio.wait([task])
            assert task.cancelled()
            way.state = "open"
        connections.close()


async def do_nothing(connection: Any) -> None:
    del connection


@in_one_test("text", ["\0", "\ud800"])
async def test_a_value_that_is_no_text_for_postgresql_is_misuse(database: str, text: str) -> None:
    connections = pool.Pool(database, 1)
    await connections.open(do_nothing)

    with pytest.raises(Misuse, match="lone surrogate"):
        await connections.execute(lambda db: db.fetchval("SELECT $1::text", text))
    connections.close()


async def bury(store: PostgresThreads, server: int) -> None:
    """Take a server for dead, as whoever ends its runs does."""
    opened = await store._connect()  # pyright: ignore[reportPrivateUsage]
    await opened.do(lambda db: db.bury_server(server))


async def test_a_server_that_was_taken_for_dead_goes_on_as_another_one(
    store: PostgresThreads, database: str
) -> None:
    await store.begin(run_of())
    before = await store.server()
    await change(database, "DELETE FROM copilot_servers")
    await store.begin(run_of(KEY._replace(id="t2"), run_id="r2"))

    assert await store.server() != before


async def test_a_server_that_was_taken_for_dead_takes_no_run_for_stored(
    store: PostgresThreads, database: str
) -> None:
    runs = [run_of(KEY._replace(id=id), run_id=id) for id in ("t1", "t2")]
    logs = [log_of(run, new=await store.begin(run)) for run in runs]
    ends = [
        Segment(log_id=run.log_id, events=log[1:], whole=log)
        for run, log in zip(runs, logs, strict=True)
    ]
    await change(database, "DELETE FROM copilot_servers")

    for segments in (ends, ends[:1], ends[1:]):  # as they come again, one by one
        with pytest.raises(Interrupted, match="Another server has ended this answer"):
            await store.write(segments)


async def test_runs_that_begin_at_once_make_one_other_server(
    store: PostgresThreads, database: str
) -> None:
    await store.open()
    renewals: list[None] = []
    store.on_renewal = lambda: renewals.append(None)
    await change(database, "DELETE FROM copilot_servers")
    runs = [run_of(KEY._replace(id=f"t{number}"), run_id=f"r{number}") for number in range(6)]
    await asyncio.gather(*map(store.begin, runs))

    assert len(renewals) == 1


async def test_servers_that_begin_at_once_share_a_new_database(database: str) -> None:
    stores = [PostgresThreads(database, max_connections=2) for _ in range(6)]
    runs = [run_of(run_id=f"r{number}") for number in range(6)]
    begins = (store.begin(run) for store, run in zip(stores, runs, strict=True))
    outcomes = await asyncio.gather(*begins, return_exceptions=True)

    assert sum(isinstance(outcome, ThreadBusy) for outcome in outcomes) == 5
    await asyncio.gather(*(store.aclose() for store in stores))


async def test_an_answer_goes_on_when_the_database_was_restarted(
    store: PostgresThreads, database: str, cluster: Cluster
) -> None:
    run = run_of()
    log = log_of(run, new=await store.begin(run))
    await store.write([Segment(log_id="r", events=log[:2])])
    await asyncio.to_thread(cluster.restart)
    await store.write([Segment(log_id="r", events=log[2:3])])
    [going_on] = await store.runs(KEY)
    assert going_on.events == log[:3]

    async with closing(PostgresThreads(database)) as other:
        # until the first one is known to be alive again
        while not await is_busy(other):
            pass
    await store.write([Segment(log_id="r", events=log[3:], whole=log)])
    assert (await store.runs(KEY))[0].events == compact(log)


async def test_an_outage_is_in_the_log_once_and_so_is_its_end(
    store: PostgresThreads,
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(postgres_store, "_BEAT", 0.01)
    await store.open()
    await asyncio.to_thread(cluster.stop)
    await wait_until(lambda: len(caplog.messages) > 0)
    reading = asyncio.create_task(store.get(KEY))
    await asyncio.to_thread(cluster.start)
    await reading
    await wait_until(lambda: len(caplog.messages) > 1)

    assert [message.partition(":")[0] for message in caplog.messages] == [
        "PostgreSQL (this machine/postgres) cannot be reached",
        "PostgreSQL (this machine/postgres) can be reached again",
    ]


async def test_a_connection_that_the_database_ended_is_named_as_that_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    connections = pool.Pool("postgresql://app:secret@db.internal:5432/app", 1)
    error: Any = import_module("asyncpg").InternalClientError
    states = [error("cannot switch to state 15; another operation (2) is in progress")]

    async def attempt() -> int:
        if states:
            raise states.pop()
        return 1

    assert await connections.retry(attempt) == 1
    assert "PostgreSQL (db.internal/app) cannot be reached: it ended a connection." in caplog.text


async def test_a_server_shows_life_again_after_an_outage_longer_than_it_is_waited_for(
    store: PostgresThreads, database: str, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_store, "_BEAT", 0.01)
    monkeypatch.setattr(pool, "_PATIENCE", 0.01)
    await store.open()
    await asyncio.to_thread(cluster.stop)
    with pytest.raises(StoreFailed):
        await store.get(KEY)
    await asyncio.to_thread(cluster.start)

    async with closing(PostgresThreads(database)) as other:
        before = await find_life(other)
        while await find_life(other) <= before:
            pass


async def find_life(store: PostgresThreads) -> int:
    """Return until when the servers of a database are alive, all together."""
    own = await store._connect()  # pyright: ignore[reportPrivateUsage]  # nothing public tells it

    async def add_up(db: Any) -> int:
        [[total]] = await db.fetch(
            "SELECT sum(until)::bigint FROM copilot_servers WHERE id <> ?", own.server
        )
        return total

    return await own.do(add_up)


async def is_busy(store: PostgresThreads) -> bool:
    """Say whether a server holds its lock, without ending what it has begun."""
    own = await store._connect()  # pyright: ignore[reportPrivateUsage]  # nothing public looks without acting

    async def locked(db: Any) -> bool:
        [row] = await db.fetch(
            "SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND objid <> ?",
            own.server,
        )
        return row[0]

    return await own.do(locked)


async def test_a_commit_whose_answer_was_lost_is_not_done_twice(
    store: PostgresThreads, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.open()
    asyncpg = import_module("asyncpg")
    attempts: list[str] = []
    insist = pool.Pool.retry  # where a connection would break

    async def breaking(self: pool.Pool, attempt: Any) -> Any:
        async def lost() -> Any:
            result = await attempt()
            attempts.append("done")
            if len(attempts) % 2:
                raise asyncpg.ConnectionDoesNotExistError("the answer was lost")
            return result

        return await insist(self, lost)

    monkeypatch.setattr(pool.Pool, "retry", breaking)
    new = await told(store, run_of())
    [run] = await store.runs(KEY)

    assert (new, run.events) == ([user()], compact(log_of(run_of(), new=[user()])))
    assert len(attempts) == 8


async def test_a_database_that_is_not_there_is_said_without_its_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool, "_PATIENCE", 0.0)
    with pytest.raises(StoreFailed, match=r"PostgreSQL \(127\.0\.0\.1:1/db\) cannot be") as caught:
        await PostgresThreads("postgresql://me:secret@127.0.0.1:1/db").open()

    assert "secret" not in caught.value.message
    assert caught.value.hint


async def test_a_database_that_does_not_exist_is_said_at_once(cluster: Cluster) -> None:
    with pytest.raises(StoreFailed, match='"nowhere" does not exist'):
        await PostgresThreads(cluster.url.replace("/postgres?", "/nowhere?")).open()


async def test_the_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "asyncpg", None)

    with pytest.raises(MissingPackage, match=r"copilot-runtime\[postgres\]"):
        await PostgresThreads("postgresql://127.0.0.1/db").open()


async def test_what_was_damaged_is_left_out_and_named(
    store: PostgresThreads, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    await told(store, run_of())
    await change(database, "UPDATE copilot_runs SET log = substr(log, 1, 20)")
    [run] = await store.runs(KEY)

    assert run.events == []
    assert "table 'copilot_runs', thread 1" in caplog.text
