"""A PostgreSQL that takes the login and then says nothing holds no command for long."""

import asyncio
import json
from collections.abc import AsyncGenerator
from importlib import import_module
from pathlib import Path
from threading import Semaphore
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from copilot_runtime.cli.main import cli
from copilot_runtime.database.postgres import pool
from copilot_runtime.extensions.operations import places
from copilot_runtime.threads.postgres.schema import LOCKS
from tests.extensions.cluster.kills.proxy import Proxy
from tests.extensions.operations.stores import build_settings, fill
from tests.threads.cluster import Cluster

pytestmark = pytest.mark.anyio


@pytest.fixture
async def way(
    database: str, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[Proxy]:
    """Yield the way to the database of the settings; `b` is a backup that it could take."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COPILOT_THREADS", raising=False)
    files = build_settings(tmp_path / "files")
    await fill(files)
    write_settings("files.yml", files.model_dump(mode="json", exclude_defaults=True))
    check(await invoke("operate", "backup", "b", "--config", "files.yml"))
    folder = str(cluster.data.parent)
    url = database.replace(folder, str(tmp_path))
    write_settings("copilot.yml", {"threads": url, "api_keys": {"store": url}, "port": 0})
    way = Proxy(Path(folder, ".s.PGSQL.5432"))
    async with way.listening(tmp_path / ".s.PGSQL.5432"):
        yield way


def write_settings(name: str, values: object) -> None:
    Path(name).write_text(json.dumps(values))


async def invoke(*words: str) -> Result:
    """Run a command beside the way to its database, which is in this thread."""
    return await asyncio.to_thread(CliRunner().invoke, cli, words)


def check(done: Result) -> None:
    assert done.exit_code == 0, done.output


def read_problem(done: Result) -> str:
    assert done.exit_code != 0
    return f"{done.exception} {getattr(done.exception, 'hint', '')} {done.output}"


RESTORE = "operate restore b --without plans --without events --without audit --without traces"


@pytest.mark.parametrize(
    "words",
    [f"operate {one}" for one in ("backup new", "migrate", "threads list", "keys list")],
)
async def test_a_database_that_hangs_after_the_login_is_named_soon(
    way: Proxy, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "_FIRST_ANSWER_TIMEOUT", 0.2)
    monkeypatch.setattr(pool, "_PATIENCE", 0)
    way.stall_at = b"SELECT 1"
    problem = read_problem(await invoke(*words.split()))

    assert "cannot be used: it accepted the login, but no query within 0.2 seconds." in problem
    assert "a pooler before it has no connection to spare" in problem


@pytest.mark.parametrize(
    ("words", "statement"),
    [
        ("operate backup new", b"SELECT value FROM copilot_secret"),
        (f"{RESTORE} --without knowledge", b"INSERT INTO copilot_runs"),
        ("operate migrate", b"to_regclass"),
    ],
)
async def test_a_database_that_hangs_in_the_middle_is_given_up(
    way: Proxy, words: str, statement: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "_INTERVAL", 0.05)
    monkeypatch.setattr(places, "_ANSWER_TIMEOUT", 0.2)
    way.stall_at = statement
    problem = read_problem(await invoke(*words.split()))

    assert "cannot be used: it went silent in the middle, and was given up." in problem


async def test_a_statement_that_takes_long_is_waited_for(
    way: Proxy, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(await invoke(*RESTORE.split(), "--without", "knowledge"))
    is_silent, looks = places._is_silent, Semaphore(0)  # pyright: ignore[reportPrivateUsage]

    def look(address: Any) -> bool:
        assert not is_silent(address)
        looks.release()
        return False

    monkeypatch.setattr(places, "_INTERVAL", 0.01)
    monkeypatch.setattr(places, "_is_silent", look)
    holder: Any = await import_module("asyncpg").connect(cluster.url)
    await holder.execute("SELECT pg_advisory_lock($1, 0)", LOCKS)
    command = asyncio.create_task(invoke("operate", "backup", "new", "--without", "keys"))
    for _ in range(5):
        await asyncio.to_thread(looks.acquire, timeout=20)
    assert not command.done()
    await holder.close()
    done = await command

    assert way.state == "open"
    check(done)
