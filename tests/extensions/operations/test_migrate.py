"""Tables of earlier versions are read by this one, and those of no later one.

The folder `dumps` has what servers of earlier versions left behind when they were killed: they
answered "Say hello", and were in the middle of a story. Its files are called by store and version.
"""

import asyncio
import json
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, closing
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from copilot_runtime.base.errors import ConfigurationFailed, StoreFailed
from copilot_runtime.cli.main import cli
from copilot_runtime.database.sqlite import file as thread_file
from copilot_runtime.database.sqlite.file import SCHEMA_VERSION, open_database
from copilot_runtime.extensions.access.api_keys.sqlite import open_key_file
from copilot_runtime.extensions.knowledge.events.sqlite import SqliteEventLog
from copilot_runtime.extensions.operations.schemas import SchemaStatus, list_schemas
from copilot_runtime.extensions.planner.build import build_log
from copilot_runtime.extensions.planner.log import PlanQuery
from copilot_runtime.extensions.settings import Settings
from copilot_runtime.extensions.tracing.store.sqlite import SqliteTraceStore
from copilot_runtime.threads.export import export_threads
from copilot_runtime.threads.url import build_store
from tests.extensions.operations.stores import build_settings, fill
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

DUMPS = Path(__file__).parent / "dumps"


def load(dump: str, path: Path) -> Path:
    """Make the file of SQLite that a dump is of."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript((DUMPS / f"{dump}.sql").read_text())
    return path


async def load_postgres(dump: str, url: str) -> None:
    connection: Any = await import_module("asyncpg").connect(url)
    await connection.execute((DUMPS / f"{dump}.sql").read_text())
    await connection.close()


async def read_threads(address: str) -> list[dict[str, Any]]:
    """Return the lines of all threads in a store, which ends runs of servers that died."""
    async with aclosing(build_store(address)) as threads:
        await threads.open()
        return [json.loads(line) async for line in export_threads(threads)]


def check_threads(lines: list[dict[str, Any]]) -> None:
    """Check that what the servers were told and said is there, and that all runs have ended."""
    runs = [line for line in lines if line["type"] == "run"]
    assert [run["events"][0]["messages"][0]["content"] for run in runs] == [
        "Say hello",
        "Tell me a long story",
    ]
    assert "You asked for something long" in "".join(
        event["content"] for event in runs[1]["events"] if event["type"].endswith("content")
    )
    assert all(run["ended"] for run in runs)
    assert [run["events"][-1]["type"] for run in runs] == ["run_finished", "run_failed"]


@in_one_test("dump", ["threads-1", "threads-2"])
async def test_threads_of_each_version_are_read(dump: str, tmp_path: Path) -> None:
    path = load(dump, tmp_path / "threads.db")
    check_threads(await read_threads(f"sqlite:{path}"))


@pytest.mark.parametrize(
    "dump", ["postgres-threads-1", "postgres-threads-2", "postgres-threads-2-plans-1"]
)
async def test_threads_and_plans_of_each_version_in_postgresql_are_read(
    dump: str, database: str
) -> None:
    await load_postgres(dump, database)
    check_threads(await read_threads(database))
    if dump.endswith("plans-1"):
        await check_plans(database)


async def check_plans(address: str) -> None:
    async with aclosing(build_log(address)) as plans:
        await plans.open()
        found = await plans.list_plans(PlanQuery(all_users=True))
        assert [(plan.id, plan.title) for plan in found] == [
            ("on", "Plan on"),
            ("over", "Plan over"),
        ]
        if address.startswith("sqlite:"):  # in PostgreSQL, its server has the rest of a lease
            assert [lease.plan_id for lease in await plans.claim()] == ["on"]
        assert [entry.number for entry in await plans.read("over")][:1] == [1]


def run(settings: Settings, folder: Path, *options: str) -> tuple[int, dict[str, SchemaStatus]]:
    """Run the command; return its exit status, and what it says of each store."""
    (folder / "copilot.yml").write_text(
        f"threads: '{settings.threads}'\nplanner: {{store: '{settings.planner.store}'}}\n"
        f"api_keys: {{store: '{settings.api_keys.store}'}}\n"
        f"events: {{store: '{settings.events.store}'}}\n"
        f"telemetry: {{store: '{settings.telemetry.store}'}}\n"
    )
    environ = {"COPILOT_THREADS": settings.threads}
    words = ["operate", "migrate", "--json", "--config", str(folder / "copilot.yml"), *options]
    done = CliRunner().invoke(cli, words, env=environ)
    rows = json.loads(done.stdout)
    return done.exit_code, {row["name"]: SchemaStatus(**row) for row in rows}


def test_the_command_shows_versions_and_migrates(tmp_path: Path) -> None:
    settings = build_settings(tmp_path)
    load("threads-1", tmp_path / "threads.db")
    open_key_file(tmp_path / "access.db").close()

    for _ in range(2):
        code, found = run(settings, tmp_path, "--dry-run")
        assert code == 0
        assert (found["threads"].version, found["threads"].state) == (1, "old")
        assert found["keys"].state == "current"
        assert found["plans"].state == "new"
    code, found = run(settings, tmp_path)
    assert (found["threads"].version, found["threads"].state) == (SCHEMA_VERSION, "current")
    assert not (tmp_path / "plans.db").exists()
    check_threads(asyncio.run(read_threads(settings.threads)))


@pytest.fixture(params=["sqlite", "postgres"])
def kind(request: pytest.FixtureRequest) -> str:
    """Return the URL of an empty database, or nothing for a file."""
    return request.getfixturevalue("database") if request.param == "postgres" else ""


def test_tables_of_a_later_version_are_refused_and_left_alone(kind: str, tmp_path: Path) -> None:
    settings = build_settings(tmp_path, database=kind)
    asyncio.run(fill(settings))
    asyncio.run(_make_later(settings, kind))

    code, found = run(settings, tmp_path)
    assert code == 1
    assert {status.state for status in found.values()} == {"later"}
    assert all(status.version == 99 for status in found.values())
    for read in (
        lambda: read_threads(settings.threads),
        lambda: build_log(settings.planner.store).open(),
        lambda: SqliteEventLog(tmp_path / "events.db").read(),
        lambda: SqliteTraceStore(tmp_path / "traces.db").list_traces(),
    ):
        with pytest.raises(ConfigurationFailed, match=r"a (later|newer) version"):
            asyncio.run(read())


async def _make_later(settings: Settings, url: str) -> None:
    for schema in list_schemas(settings):
        if schema.place.path is not None:
            with closing(sqlite3.connect(schema.place.path, isolation_level=None)) as connection:
                connection.execute("PRAGMA user_version = 99")
                if schema.place.content == "traces":
                    connection.execute("UPDATE schema_version SET version = 99")
    if url:
        connection: Any = await import_module("asyncpg").connect(url)
        for table in ("copilot_schema", "copilot_plan_schema", "copilot_api_key_schema"):
            await connection.execute(f"INSERT INTO {table} VALUES (99)")  # ours
        await connection.close()


def test_tables_that_are_not_migrated_are_named_before_somebody_tries(tmp_path: Path) -> None:
    settings = build_settings(tmp_path)
    asyncio.run(fill(settings))
    with closing(sqlite3.connect(tmp_path / "plans.db", isolation_level=None)) as connection:
        connection.execute("PRAGMA user_version = 1")
    with closing(sqlite3.connect(tmp_path / "traces.db", isolation_level=None)) as connection:
        connection.execute("UPDATE schema_version SET version = 1")

    for options in (["--dry-run"], []):
        code, found = run(settings, tmp_path, *options)
        assert code == 1
        assert found["threads"].state == "current"
        for name in ("plans", "traces"):
            assert (found[name].version, found[name].state) == (1, "unusable")
            assert "earlier version" in found[name].problem


def test_a_file_of_another_program_and_a_folder_are_named(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "threads.db")) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    (tmp_path / "events.db").write_bytes(b"hello" * 1000)
    (tmp_path / "plans.db").mkdir()
    code, found = run(build_settings(tmp_path), tmp_path)
    assert code == 1
    assert "another program" in found["threads"].problem
    assert "not a database" in found["events"].problem
    assert found["plans"].problem.endswith("cannot be used: that is a folder.")


@in_one_test(
    "words", ["operate backup b", "operate keys create ci", "operate keys list", "operate migrate"]
)
def test_keys_are_not_kept_in_a_file_of_another_store(words: str, tmp_path: Path) -> None:
    path = tmp_path / "traces.db"
    if not path.exists():
        asyncio.run(fill(build_settings(tmp_path)))
    tables = list_tables(path)
    settings = {"api_keys": {"store": f"sqlite:{path}"}, "threads": f"sqlite:{tmp_path}/threads.db"}
    (tmp_path / "copilot.yml").write_text(json.dumps(settings))

    done = CliRunner().invoke(cli, [*words.split(), "--config", str(tmp_path / "copilot.yml")])

    said = f"{done.output} {done.exception} {getattr(done.exception, 'hint', '')}"
    assert f"'{path}' is a database of another program." in said
    assert (done.exit_code, list_tables(path)) == (1, tables)


def list_tables(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return [name for (name,) in connection.execute("SELECT name FROM sqlite_master")]


def test_processes_that_migrate_at_once_do_it_once(tmp_path: Path) -> None:
    path = load("threads-1", tmp_path / "threads.db")
    with ThreadPoolExecutor(8) as pool:
        for connection in pool.map(partial(_open, path), range(8)):
            connection.close()
    check_threads(asyncio.run(read_threads(f"sqlite:{path}")))


def _open(path: Path, _: int) -> sqlite3.Connection:
    return open_database(path, "NORMAL")


async def test_servers_that_migrate_postgresql_at_once_do_it_once(
    database: str, tmp_path: Path
) -> None:
    await load_postgres("postgres-threads-1", database)
    schema, *_ = list_schemas(build_settings(tmp_path, database=database))
    found = await asyncio.gather(*(schema.bring_up_to_date() for _ in range(8)))
    assert {status.state for status in found} == {"current"}
    check_threads(await read_threads(database))


def test_a_migration_that_is_interrupted_half_way_has_done_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = load("threads-2", tmp_path / "threads.db")
    broken = "CREATE TABLE half (x); CREATE TABLE half (x)"
    with monkeypatch.context() as patch:
        patch.setattr(thread_file, "SCHEMA_VERSION", SCHEMA_VERSION + 1)
        patch.setattr(thread_file, "_MIGRATIONS", (*thread_file._MIGRATIONS, broken))  # pyright: ignore[reportPrivateUsage]
        with pytest.raises(sqlite3.OperationalError, match="half already exists"):
            open_database(path, "NORMAL")
        with pytest.raises(StoreFailed):
            asyncio.run(read_threads(f"sqlite:{path}"))
    with closing(sqlite3.connect(path)) as connection:
        assert not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'half'").fetchall()
    check_threads(asyncio.run(read_threads(f"sqlite:{path}")))
