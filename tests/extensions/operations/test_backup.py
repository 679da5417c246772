"""All that a server keeps in one file: written while it runs, and put back elsewhere."""

import asyncio
import json
import sqlite3
import sys
from contextlib import aclosing, closing
from pathlib import Path
from typing import Any

import pytest
from anyio import run_process

from copilot_runtime.base.errors import ConfigurationFailed, CopilotError, StoreFailed
from copilot_runtime.extensions.access.api_keys.store import build_key_store
from copilot_runtime.extensions.access.audit.entry import AuditRecord
from copilot_runtime.extensions.access.audit.log import AuditLog, list_files
from copilot_runtime.extensions.operations.backup import backup
from copilot_runtime.extensions.operations.backup.backup import (
    BackupReport,
    restore_backup,
    write_backup,
)
from copilot_runtime.extensions.operations.backup.sources import select_sources
from copilot_runtime.extensions.operations.places import Place, open_snapshot
from copilot_runtime.extensions.settings import Settings
from copilot_runtime.threads.export import export_threads
from copilot_runtime.threads.store import ThreadKey, ThreadQuery
from copilot_runtime.threads.url import build_store
from tests.extensions.operations.stores import AFTER, build_settings, describe, fill, make_settings
from tests.in_one_test import in_one_test
from tests.threads.recorded import run_of, told

pytestmark = pytest.mark.anyio

Places = tuple[Settings, Settings]

MADE_FROM_IT = "the backup was made from it"


def ignore(progress: object) -> None:
    """Show no progress."""


async def back_up(settings: Settings, file: Path, *, force: bool = False) -> BackupReport:
    return await write_backup(select_sources(settings), file, ignore, force=force)


async def restore(settings: Settings, file: Path, *, force: bool = False) -> BackupReport:
    return await restore_backup(select_sources(settings), file, ignore, force=force)


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


@pytest.fixture(params=["sqlite to sqlite", "sqlite to postgres", "postgres to sqlite and s3"])
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Places:
    """Return settings of a server that keeps everything, and of one that will."""
    files = build_settings(tmp_path / "old"), build_settings(tmp_path / "new")
    match request.param:
        case "sqlite to sqlite":
            return files
        case "sqlite to postgres":
            database = request.getfixturevalue("database")
            return files[0], build_settings(tmp_path / "new", database=database)
        case _:
            database = request.getfixturevalue("database")
            server, bucket = map(request.getfixturevalue, ("s3_server", "s3_bucket"))
            storage = f"s3://{bucket}/some?endpoint={server}&region=us-east-1"
            old = build_settings(tmp_path / "old", database=database)
            return old, build_settings(tmp_path / "new", storage=storage)


async def test_everything_comes_back_as_it_was(places: Places, tmp_path: Path) -> None:
    old, new = places
    file = tmp_path / "b.tar.gz"
    await fill(old)
    report = await back_up(old, file)
    await restore(new, file)

    assert report.counts == {
        "threads": 2,
        "plans": 2,
        "keys": 1,
        "events": 3,
        "audit": 1,
        "traces": 2,
        "knowledge": 3,
    }
    before, after = await describe(old), await describe(new)
    assert after == before
    assert before["claimed"] == ["on"]
    assert (tmp_path / "b.tar.gz").stat().st_mode & 0o777 == 0o600


@pytest.fixture(params=["sqlite", "postgres"])
def kind(request: pytest.FixtureRequest) -> str:
    """Return the URL of an empty database, or nothing for a file."""
    return request.getfixturevalue("database") if request.param == "postgres" else ""


async def test_a_backup_is_of_one_moment_while_servers_write(kind: str, tmp_path: Path) -> None:
    old = build_settings(tmp_path, database=kind)
    async with aclosing(build_store(old.threads)) as threads:
        await told(threads, run_of(ThreadKey("", "first")))
        source, *_ = select_sources(old)
        async with source.snapshot() as snapshot:
            await told(threads, run_of(ThreadKey("", "second"), run_id="r2", log_id="r2"))
            found = [record async for record in snapshot.records]
    assert "first" in str(found)
    assert "second" not in str(found)


async def test_a_run_under_way_ends_as_interrupted_in_its_copy(tmp_path: Path) -> None:
    old, new = build_settings(tmp_path / "old"), build_settings(tmp_path / "new")
    await fill(old)
    await back_up(old, tmp_path / "b")
    await restore(new, tmp_path / "b")

    async with aclosing(build_store(new.threads)) as threads:
        [run] = await threads.runs(AFTER)
    assert run.ended
    assert [event.type for event in run.events][-1] == "run_failed"


async def test_stores_that_are_not_empty_are_replaced_by_force_alone(tmp_path: Path) -> None:
    old, new = build_settings(tmp_path / "old"), build_settings(tmp_path / "new")
    await fill(old)
    await back_up(old, tmp_path / "b")
    async with aclosing(build_store(new.threads)) as threads:
        await told(threads, run_of(ThreadKey("eve", "other")))

    with pytest.raises(ConfigurationFailed, match=r"There are threads in sqlite:.* already"):
        await restore(new, tmp_path / "b")
    async with aclosing(build_store(new.threads)) as threads:
        assert await threads.get(ThreadKey("eve", "other")) is not None
    await restore(new, tmp_path / "b", force=True)
    await restore(new, tmp_path / "b", force=True)
    assert await describe(new) == await describe(old)


async def test_nothing_is_put_back_under_a_running_server(kind: str, tmp_path: Path) -> None:
    old, new = build_settings(tmp_path / "old"), build_settings(tmp_path, database=kind)
    await fill(old)
    await back_up(old, tmp_path / "b")
    async with aclosing(build_store(new.threads)) as threads:
        await threads.open()
        with pytest.raises(ConfigurationFailed, match="Servers use"):
            await restore(new, tmp_path / "b", force=True)
    await restore(new, tmp_path / "b")


async def test_a_server_that_starts_waits_for_the_end_of_a_restore(
    database: str, tmp_path: Path
) -> None:
    settings = build_settings(tmp_path, database=database)
    [threads, plans, *_] = select_sources(settings)
    async with aclosing(build_store(settings.threads)) as store:
        async with threads.replace(), plans.replace():
            opening = asyncio.create_task(store.open())
            await wait_until_one_waits(database, opening)
            has_waited = not opening.done()
        await opening

    assert has_waited


async def wait_until_one_waits(database: str, opening: asyncio.Task[None]) -> None:
    """Return once a lock of the database is waited for, or nobody waited for one."""
    waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    async with open_snapshot(Place("threads", url=database)) as db:
        while not opening.done() and not (await db.fetch(waiting))[0][0]:
            pass


async def test_parts_without_a_place_are_refused_unless_they_are_left_out(tmp_path: Path) -> None:
    old = build_settings(tmp_path / "old")
    await fill(old)
    sources = select_sources(old, ["traces", "audit"])
    report = await write_backup(sources, tmp_path / "b", ignore)
    assert [*report.counts] == ["threads", "plans", "keys", "events", "knowledge"]

    new = make_settings(threads=f"sqlite:{tmp_path}/t.db", planner={"store": "memory"})
    with pytest.raises(ConfigurationFailed, match=r"has plans, events, knowledge, for") as caught:
        await restore(new, tmp_path / "b")
    assert "--without plans --without events --without knowledge" in str(caught.value.hint)
    assert not (tmp_path / "t.db").exists()
    without = ["plans", "events", "knowledge"]
    sources = select_sources(new, without)
    report = await restore_backup(sources, tmp_path / "b", ignore, without=without)
    assert [*report.counts] == ["threads", "keys"]
    with pytest.raises(ConfigurationFailed, match="no part 'chats'"):
        select_sources(old, ["chats"])


async def test_what_stays_where_it_was_is_left_as_it_is_when_threads_move(tmp_path: Path) -> None:
    old = build_settings(tmp_path)
    await fill(old)
    await back_up(old, tmp_path / "b")
    log = AuditLog(old.audit.file)
    log.write([AuditRecord(action="backup.create", outcome="allowed")])
    with pytest.raises(ConfigurationFailed, match=r"There are threads in .* already") as caught:
        await restore(old, tmp_path / "b")
    assert "--without threads" in str(caught.value.hint)

    new = old.model_copy(update={"threads": f"sqlite:{tmp_path}/moved.db"})
    before = log.path.read_bytes()
    report = await restore(new, tmp_path / "b")
    assert report.counts == {"threads": 2}
    assert report.reasons == {
        "audit": "it has all lines of the backup, and 1 more",
        **dict.fromkeys(("plans", "keys", "events", "traces", "knowledge"), MADE_FROM_IT),
    }
    assert log.path.read_bytes() == before
    async with aclosing(build_store(new.threads)) as threads:
        assert await threads.get(AFTER) is not None


async def test_an_audit_log_is_never_replaced_by_a_shorter_one(tmp_path: Path) -> None:
    old, new = build_settings(tmp_path / "old"), build_settings(tmp_path / "new")
    await fill(old)
    await back_up(old, tmp_path / "b")
    log, records = AuditLog(new.audit.file), [AuditRecord(action="sign_in", outcome="allowed")]
    log.write(records)
    with pytest.raises(ConfigurationFailed, match=r"There is an audit log in .* already"):
        await restore(new, tmp_path / "b")
    log.write(records)
    before = log.path.read_bytes()
    with pytest.raises(ConfigurationFailed, match="2 lines, not 1") as caught:
        await restore(new, tmp_path / "b", force=True)
    assert "--without audit" in str(caught.value.hint)
    assert log.path.read_bytes() == before

    log.path.unlink()
    await restore(new, tmp_path / "b")
    log.write(records)
    before = log.path.read_bytes()
    report = await restore(new, tmp_path / "b", force=True)
    assert report.reasons == {"audit": "it has all lines of the backup, and 1 more"}
    assert log.path.read_bytes() == before


async def test_an_audit_log_comes_back_under_the_name_that_it_has_here(tmp_path: Path) -> None:
    old = build_settings(tmp_path / "old")
    await fill(old)
    await back_up(old, tmp_path / "all")
    settings = build_settings(tmp_path / "new").model_dump(exclude_defaults=True)
    new = settings | {"audit": {"file": str(tmp_path / "new" / "who.log")}}
    await restore(Settings.model_validate(new), tmp_path / "all")

    before = [path.read_bytes() for path in list_files(Path(old.audit.file))]
    assert before
    assert [path.read_bytes() for path in list_files(tmp_path / "new" / "who.log")] == before


async def test_without_any_store_there_is_nothing_to_back_up(tmp_path: Path) -> None:
    settings = make_settings(threads=f"sqlite:{tmp_path}/none.db", planner={"store": "memory"})
    with pytest.raises(ConfigurationFailed, match="nothing to back up"):
        await back_up(settings, tmp_path / "b")
    assert names(tmp_path) == []


async def test_a_file_that_is_there_is_replaced_by_force_alone(tmp_path: Path) -> None:
    old, file = build_settings(tmp_path / "old"), tmp_path / "b"
    await fill(old)
    file.write_text("of yesterday")
    with pytest.raises(ConfigurationFailed, match=r"There is a file '.*/b' already") as caught:
        await back_up(old, file)
    assert "--force" in str(caught.value.hint)
    assert file.read_text() == "of yesterday"
    await back_up(old, file, force=True)
    assert file.read_bytes()[:2] == b"\x1f\x8b"
    assert sorted(names(tmp_path)) == ["b", "old"]


async def test_of_stores_with_nothing_in_them_there_is_no_backup(tmp_path: Path) -> None:
    settings = build_settings(tmp_path / "old")
    async with aclosing(build_store(settings.threads)) as threads:
        await threads.open()
    async with aclosing(build_key_store(settings.api_keys.store)) as keys:
        await keys.revoke("none", 1.0)
    assert {"threads.db", "access.db"} <= {*names(tmp_path / "old")}
    with pytest.raises(ConfigurationFailed, match="nothing to back up"):
        await back_up(settings, tmp_path / "b")
    assert names(tmp_path) == ["old"]


@in_one_test("name", ["threads", "plans", "access"])
async def test_a_file_that_cannot_be_opened_is_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = build_settings(tmp_path)
    await fill(old)
    connect = sqlite3.connect

    def open_none(path: Path, **options: Any) -> sqlite3.Connection:
        if Path(path).name == f"{name}.db":  # what SQLite says where it may make no file beside it
            raise sqlite3.OperationalError("unable to open database file")
        return connect(path, **options)

    monkeypatch.setattr(sqlite3, "connect", open_none)
    with pytest.raises(
        StoreFailed, match=rf"{name}\.db' cannot be used: the file cannot be opened"
    ):
        await back_up(old, tmp_path / "b")


async def test_a_backup_that_fails_leaves_no_file(tmp_path: Path) -> None:
    old = build_settings(tmp_path / "old")
    await fill(old)
    (tmp_path / "old/events.db").write_bytes(b"SQLite it is not" * 100)
    with pytest.raises(CopilotError):
        await back_up(old, tmp_path / "b")
    with pytest.raises(CopilotError, match="The file '/nowhere/b' cannot be used"):
        await back_up(build_settings(tmp_path / "old"), Path("/nowhere/b"))
    assert names(tmp_path) == ["old"]


async def test_a_restore_onto_a_full_disk_says_that_it_is_full(tmp_path: Path) -> None:
    old, new = build_settings(tmp_path / "old"), build_settings(tmp_path / "new")
    await fill(old)
    await back_up(old, tmp_path / "b")
    await restore(new, tmp_path / "b")
    with closing(sqlite3.connect(tmp_path / "new/threads.db")) as db:  # as SQLite does by itself
        db.execute(
            "CREATE TRIGGER full BEFORE INSERT ON runs"
            " BEGIN SELECT RAISE(ROLLBACK, 'database or disk is full'); END"
        )
    before = await describe_threads(new)
    with pytest.raises(CopilotError, match="the disk is full"):
        await restore(new, tmp_path / "b", force=True)
    assert await describe_threads(new) == before


async def describe_threads(settings: Settings) -> list[bytes]:
    async with aclosing(build_store(settings.threads)) as threads:
        return [line async for line in export_threads(threads)]


async def test_ctrl_c_ends_a_backup_and_a_restore_before_they_are_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = build_settings(tmp_path / "old"), build_settings(tmp_path / "new")
    await fill(old)
    await back_up(old, tmp_path / "good")
    monkeypatch.setattr(backup, "_SHOW_EVERY", 1)
    for work in (back_up(old, tmp_path / "b"), restore(new, tmp_path / "good")):
        task = asyncio.create_task(work)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert sorted(names(tmp_path)) == ["good", "old"]


_DIES = """
import os, sys
from copilot_runtime.cli.main import cli
from copilot_runtime.extensions.operations.backup import databases

databases._TableReplacement.add = lambda *_: os._exit(9)
cli(["operate", "restore", sys.argv[1]])
"""


async def test_a_restore_that_is_killed_half_way_has_changed_nothing(tmp_path: Path) -> None:
    old, new = build_settings(tmp_path / "old"), build_settings(tmp_path / "new")
    await fill(old)
    await back_up(old, tmp_path / "b")
    values = new.model_dump(mode="json", exclude_defaults=True)
    (tmp_path / "copilot.yml").write_text(json.dumps(values))
    done = await run_process(
        [sys.executable, "-c", _DIES, "b"],
        cwd=tmp_path,
        env={"PATH": "", "PYTHONPATH": ":".join(sys.path)},
        check=False,
    )
    assert done.returncode == 9
    async with aclosing(build_store(new.threads)) as threads:
        assert (await threads.list(ThreadQuery(owner="ann", archived=True))).threads == []
        assert [line async for line in export_threads(threads)] == []
    await restore(new, tmp_path / "b")
    assert await describe(new) == await describe(old)
