"""Threads in a file: what lasts, what is shared, and what is said when the file cannot be used."""

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import aclosing as closing
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from copilot_runtime.adapters.scripted import say
from copilot_runtime.api.events import (
    AgentState,
    Event,
    RunFailed,
    RunFinished,
    RunStarted,
    TextMessageContent,
    TextMessageStart,
)
from copilot_runtime.base.errors import ConfigurationFailed, StoreFailed, StoreReadOnly, ThreadBusy
from copilot_runtime.database import server_locks as servers
from copilot_runtime.threads.compact import INTERRUPTED, compact
from copilot_runtime.threads.sqlite import SqliteThreads
from copilot_runtime.threads.sqlite import store as sqlite_store
from copilot_runtime.threads.store import Segment, ThreadKey
from tests.in_one_test import in_one_test
from tests.processes import Program, running
from tests.threads.recorded import KEY, log_of, run_of, told, user

pytestmark = pytest.mark.anyio

# another server: it begins a run, writes a part of it, says so, and waits for its end
OTHER = """
import asyncio, sys
from copilot_runtime.threads.sqlite import SqliteThreads
from copilot_runtime.threads.store import Segment, ThreadKey
from tests.threads.recorded import log_of, run_of

async def main():
    store = SqliteThreads(sys.argv[1])
    run = run_of()
    log = log_of(run, new=await store.begin(run))
    await store.write([Segment(log_id="r", events=log[:3])])
    print("written", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await store.write([Segment(log_id="r", events=log[3:], whole=log)])
    await store.aclose()

asyncio.run(main())
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "threads.db"


@pytest.fixture
async def store(anyio_backend: str, path: Path) -> AsyncGenerator[SqliteThreads, None]:
    async with closing(SqliteThreads(path)) as store:
        yield store


@contextmanager
def other_server(path: Path) -> Generator[Program]:
    """Run another server in the middle of its answer."""
    command = [sys.executable, "-c", OTHER, path]
    with running(command, stdin=subprocess.PIPE) as program:
        program.until("^written\n")
        yield program


def rows_of_journal(path: Path) -> int:
    connection = sqlite3.connect(path)
    (count,) = connection.execute("SELECT count(*) FROM journal").fetchone()
    connection.close()
    return count


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def change(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.commit()
    connection.close()


async def test_nothing_is_made_before_it_is_needed(tmp_path: Path) -> None:
    store = SqliteThreads(tmp_path / "new" / "threads.db")
    assert names_in(tmp_path) == []
    await store.open()
    await store.aclose()

    assert names_in(tmp_path / "new") == ["threads.db", "threads.db-reserve"]


async def test_nobody_else_may_read_the_file(store: SqliteThreads, path: Path) -> None:
    await store.begin(run_of())

    assert {file.name: file.stat().st_mode & 0o777 for file in path.parent.glob("*")} == {
        path.name: 0o600,
        f"{path.name}-wal": 0o600,
        f"{path.name}-shm": 0o600,
        f"{path.name}-reserve": 0o600,
        next(path.parent.glob("*-server-*")).name: 0o600,
    }


async def test_a_new_server_finds_what_the_old_one_kept(store: SqliteThreads, path: Path) -> None:
    await told(store, run_of())
    kept = await store.runs(KEY)
    await store.aclose()

    async with closing(SqliteThreads(path, durability="FULL")) as new:
        assert await new.runs(KEY) == kept
        assert await new.begin(run_of(run_id="r2", messages=[user(), user("u2")])) == [user("u2")]


async def test_the_runs_of_a_server_that_died_are_ended(path: Path) -> None:
    with other_server(path) as other:
        other.kill()
    async with closing(SqliteThreads(path)) as store:
        await store.open()
        [run] = await store.runs(KEY)

    written = log_of(run_of(), new=[user()])[:3]
    assert run.ended
    assert run.events == compact(written, ending=INTERRUPTED)
    assert isinstance(run.events[0], RunStarted) and isinstance(run.events[-1], RunFailed)
    assert not [*path.parent.glob("*-server-*")]


async def test_the_run_of_a_server_that_lives_goes_on(store: SqliteThreads, path: Path) -> None:
    with other_server(path) as other:
        await store.open()
        [run] = await store.runs(KEY)
        assert (run.ended, len(run.events)) == (False, 3)
        with pytest.raises(ThreadBusy):
            await store.begin(run_of(run_id="r2"))
        other.write(b"\n")
        other.wait()

    [run] = await store.runs(KEY)
    assert run.ended and run.events[-1] == RunFinished()
    assert await store.begin(run_of(run_id="r2", messages=[user("u2")])) == [user("u2")]


async def test_a_thread_is_free_as_soon_as_its_server_has_died(
    store: SqliteThreads, path: Path
) -> None:
    await store.open()
    with other_server(path) as other:
        other.kill()

        assert await store.begin(run_of(run_id="r2", messages=[user(), user("u2")])) == [user("u2")]
    first, second = await store.runs(KEY)
    assert (first.events[-1], second.ended) == (INTERRUPTED, False)


async def test_a_server_deletes_a_thread_that_another_answers_in(
    store: SqliteThreads, path: Path
) -> None:
    with other_server(path) as other:
        assert await store.delete(KEY)
        other.write(b"\n")
        assert other.wait() == 0

    assert await store.get(KEY) is None
    assert rows_of_journal(path) == 0


async def test_what_a_deleted_run_left_is_cleared_away(store: SqliteThreads, path: Path) -> None:
    await store.begin(run_of())
    change(path, "INSERT INTO journal VALUES (9, 'gone', '[]')")
    await store.aclose()
    await store.open()

    assert rows_of_journal(path) == 0


async def test_the_journal_is_empty_when_all_has_ended(store: SqliteThreads, path: Path) -> None:
    await told(store, run_of())
    assert rows_of_journal(path) == 1
    await store.aclose()

    assert rows_of_journal(path) == 0


async def test_what_was_said_in_a_deleted_thread_is_nowhere(
    store: SqliteThreads, path: Path
) -> None:
    run = run_of()
    await store.begin(run)
    await store.write([Segment(log_id="r", events=log_of(run)[:-1])])
    await store.delete(KEY)

    assert rows_of_journal(path) == 0


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tidy the journal at each write, and call every run a long one."""
    monkeypatch.setattr("copilot_runtime.threads.sqlite.store._WRITES_PER_TRIM", 1)
    monkeypatch.setattr("copilot_runtime.threads.sqlite.store._LONG", 0)


WORDS: Sequence[Event] = [
    TextMessageStart(message_id="m"),
    *[TextMessageContent(message_id="m", content=f"{word} ") for word in range(50)],
]


async def test_runs_that_go_on_are_told_apart(store: SqliteThreads) -> None:
    first, second = run_of(), run_of(KEY._replace(id="t2"), run_id="r2")
    for run in (first, second):
        await store.begin(run)
    for event in WORDS:
        await store.write([Segment(log_id=run.log_id, events=[event]) for run in (first, second)])
    await store.write([Segment(log_id="r2", events=[RunFinished()], whole=log_of(second, *WORDS))])

    [kept] = await store.runs(KEY)
    assert (kept.ended, kept.events[1:]) == (False, WORDS)


@pytest.mark.usefixtures("quick")
async def test_a_run_that_goes_on_for_long_leaves_the_journal(
    store: SqliteThreads, path: Path
) -> None:
    run = run_of()
    new = await store.begin(run)
    for event in WORDS:
        await store.write([Segment(log_id="r", events=[event])])
    whole: list[Event] = [RunStarted(run_id="r", thread_id="t", messages=new), *WORDS]

    assert rows_of_journal(path) <= 2
    assert [kept.events for kept in await store.runs(KEY)] == [whole]

    whole.append(RunFinished())
    await store.write([Segment(log_id="r", events=whole[-1:], whole=whole)])
    assert [kept.events for kept in await store.runs(KEY)] == [compact(whole)]


@pytest.mark.usefixtures("quick")
async def test_a_long_run_of_a_server_that_died_is_whole(
    store: SqliteThreads, path: Path, tmp_path: Path
) -> None:
    run = run_of()
    new = await store.begin(run)
    for event in WORDS:
        await store.write([Segment(log_id="r", events=[event])])
    await store.aclose()  # a run that goes on stays as it is
    async with closing(SqliteThreads(path)) as later:
        [kept] = await later.runs(KEY)

    whole = [RunStarted(run_id="r", thread_id="t", messages=new), *WORDS]
    assert kept.events == compact(whole, ending=INTERRUPTED)
    assert rows_of_journal(path) == 0


async def test_the_journal_holds_no_more_than_what_goes_on(
    store: SqliteThreads, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("copilot_runtime.threads.sqlite.store._WRITES_PER_TRIM", 1)
    for number in range(20):
        await told(store, run_of(run_id=f"r{number}", messages=[user(f"u{number}")]))

    assert rows_of_journal(path) <= 1


async def test_a_clock_that_was_put_back_changes_no_order(store: SqliteThreads, path: Path) -> None:
    await store.open()
    change(path, f"INSERT INTO journal VALUES ({10**17}, 'tomorrow', '[]')")
    await store.begin(run_of())
    for event in WORDS:
        await store.write([Segment(log_id="r", events=[event])])

    [kept] = await store.runs(KEY)
    assert list(kept.events[1:]) == WORDS


async def test_a_file_that_cannot_be_opened_to_the_end_leaves_no_lock(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(database: Path) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(sqlite_store, "remove_stale_locks", fail)
    with pytest.raises(StoreFailed, match="no space left"):
        await SqliteThreads(path).open()

    assert servers.list_other_locks(path, "") == []


async def test_servers_that_begin_at_once_share_a_new_file(path: Path) -> None:
    stores = [SqliteThreads(path) for _ in range(8)]
    await asyncio.gather(*(store.open() for store in stores))
    runs = [run_of(run_id=f"r{number}") for number in range(8)]
    begins = (store.begin(run) for store, run in zip(stores, runs, strict=True))
    outcomes = await asyncio.gather(*begins, return_exceptions=True)

    assert sum(isinstance(outcome, ThreadBusy) for outcome in outcomes) == 7
    await asyncio.gather(*(store.aclose() for store in stores))


async def test_a_server_without_locks_sees_who_has_left(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "fcntl", None)
    server = servers.Server(path)
    server.leave()

    assert not servers.is_alive(path, server.id)


@pytest.mark.parametrize(
    ("column", "table", "value"),
    [
        ("log", "runs", "x'00ff'"),
        ("log", "runs", '\'[1,{"type":"no such"},{}]\''),
        ("log", "runs", "5"),
        ("log", "runs", "'{}'"),
        ("data", "journal", "replace(data, '\"m\"', '5')"),
        ("data", "journal", "substr(data, 1, 40)"),
    ],
)
async def test_what_was_damaged_is_left_out_and_named_once(
    store: SqliteThreads,
    path: Path,
    caplog: pytest.LogCaptureFixture,
    column: str,
    table: str,
    value: str,
) -> None:
    await told(store, run_of(run_id="whole"))
    await store.begin(run_of(run_id="r2", messages=[user("u2")]))
    await store.write([Segment(log_id="r2", events=[TextMessageStart(message_id="m")])])
    await store.write([Segment(log_id="r2", events=[TextMessageStart(message_id="n")])])
    where = "ended IS NOT NULL" if table == "runs" else "instr(data, '\"m\"')"
    change(path, f"UPDATE {table} SET {column} = {value} WHERE {where}")
    first, second = await store.runs(KEY)

    damaged = {"runs": first, "journal": second}[table]
    assert {"runs": 0, "journal": 2}[table] == len(damaged.events)
    assert len(caplog.records) == 1
    assert f" in table {table!r}, " in caplog.text


async def test_events_of_a_later_version_are_read_as_far_as_they_are_known(
    store: SqliteThreads, path: Path
) -> None:
    await told(store, run_of())
    text = '[{"type":"run_finished","result":1,"mood":"good"},{"type":"later"}]'
    change(path, f"UPDATE runs SET log = '{text}'")
    [run] = await store.runs(KEY)

    assert run.events == [RunFinished(result=1)]


async def test_a_state_that_json_cannot_hold_does_not_take_the_answer_with_it(
    store: SqliteThreads, caplog: pytest.LogCaptureFixture
) -> None:
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    odd = {1: {2.5, float("nan")}, "x": KEY, "y": object}
    await told(store, run_of(), AgentState(agent="a", state=deep), AgentState(agent="b", state=odd))
    [run] = await store.runs(KEY)

    [state] = [event for event in run.events if isinstance(event, AgentState)]
    assert (state.agent, state.state["x"]) == ("b", ["ann", "t"])
    assert "An event of type 'agent_state' was not stored" in caplog.text


@in_one_test(
    "content", [b"This is a text, and no database at all.\n" * 40, b"PK\3\4" + bytes(4000)]
)
def test_a_file_that_is_no_database_is_left_alone(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(ConfigurationFailed, match=r"threads\.db' is not a database") as caught:
        asyncio.run(SqliteThreads(path).open())

    assert caught.value.hint
    assert path.read_bytes() == content


def test_a_database_of_another_program_is_left_alone(path: Path) -> None:
    change(path, "CREATE TABLE customers (id)")
    before = path.read_bytes()
    with pytest.raises(ConfigurationFailed, match="of another program"):
        asyncio.run(SqliteThreads(path).open())

    assert path.read_bytes() == before


async def test_a_file_of_a_later_version_is_refused(store: SqliteThreads, path: Path) -> None:
    await told(store, run_of())
    await store.aclose()
    change(path, "PRAGMA user_version = 99")

    with pytest.raises(ConfigurationFailed, match="later version"):
        await store.open()


async def test_a_folder_in_place_of_the_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(StoreFailed, match="that is a folder") as caught:
        await SqliteThreads(tmp_path).open()

    assert caught.value.hint == "Name a file in it."


def test_a_folder_that_may_not_be_written_is_said(tmp_path: Path) -> None:
    code = (
        "import asyncio, os, sys; from copilot_runtime.threads.sqlite.store import SqliteThreads;"
        "store = SqliteThreads(sys.argv[1]); os.geteuid() or os.setuid(65534);"
        "asyncio.run(store.open())"
    )
    tmp_path.chmod(0o555)
    command = [sys.executable, "-c", code, str(tmp_path / "threads.db")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert "StoreFailed" in done.stderr
    assert "permission was denied" in done.stderr


async def test_a_file_that_another_program_holds_is_said(
    store: SqliteThreads, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("copilot_runtime.database.sqlite.file._PATIENCE", 0.01)
    await store.open()
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreFailed, match="another program holds the file"):
        await store.begin(run_of())
    assert await store.get(KEY) is None  # reading goes on
    holder.execute("ROLLBACK")
    holder.close()

    assert await store.begin(run_of()) == [user()]


async def test_a_file_without_room_beside_it_is_read_until_there_is_some(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> sqlite3.Connection:
        raise sqlite3.OperationalError("disk I/O error")  # no room for `-shm`

    async with closing(SqliteThreads(path)) as store:
        run = run_of()
        log = log_of(run, new=await store.begin(run))
        await store.write([Segment(log_id="r", events=log, whole=log)])
        stored = await store.runs(KEY)
    monkeypatch.setattr(sqlite_store, "_RETRY_SECONDS", 0)
    with monkeypatch.context() as patch:
        patch.setattr(sqlite_store, "open_database", fail)
        store = SqliteThreads(path)
        await store.open()
        assert await store.runs(KEY) == stored
        with pytest.raises(StoreReadOnly, match="the disk is full"):
            await store.check()
        with pytest.raises(StoreFailed, match="the disk is full"):
            await store.begin(run_of(run_id="r2"))
    await store.begin(run_of(run_id="r2"))
    await store.check()
    assert len(await store.runs(KEY)) == 2
    await store.aclose()


async def test_a_full_disk_is_said_and_loses_nothing_that_was_kept(
    store: SqliteThreads, path: Path
) -> None:
    await told(store, run_of())
    file: Any = store._database  # pyright: ignore[reportPrivateUsage]  # to make its disk small
    assert file
    await file.writer.do(small)
    run = run_of(run_id="big", messages=[user("u2")])
    await store.begin(run)
    big: list[Event] = [TextMessageContent(message_id="m", content="x" * 200_000)]
    with pytest.raises(StoreFailed, match="the disk is full"):
        await store.write([Segment(log_id="big", events=big)])

    first, second = await store.runs(KEY)
    assert (first.ended, [event.type for event in second.events]) == (True, ["run_started"])


@pytest.fixture
def disk(tmp_path: Path) -> Generator[Path, None, None]:
    """Return a folder on a disk of its own, of 8 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "none", str(place)]
    if subprocess.run(mount, stderr=subprocess.DEVNULL, check=False).returncode:
        pytest.skip("needs the right to mount")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


async def test_a_thread_is_deleted_from_a_full_disk_so_that_another_is_stored(disk: Path) -> None:
    async with closing(SqliteThreads(disk / "threads.db")) as store:
        keys = (ThreadKey("ann", f"t{at}") for at in count())
        with pytest.raises(StoreFailed, match="the disk is full"):
            for key in keys:
                await told(store, run_of(key, key.id), *say(["x" * 100_000], id="m"))
        assert await store.delete(ThreadKey("ann", "t0"))
        await told(store, run_of(KEY))

        stored = [await store.get(ThreadKey("ann", id)) for id in ("t0", "t1", "t")]
        assert [thread is not None for thread in stored] == [False, True, True]


def small(db: sqlite3.Connection) -> None:
    db.execute("PRAGMA max_page_count = 20").fetchall()


async def test_threads_are_listed_by_their_index(store: SqliteThreads, path: Path) -> None:
    await told(store, run_of())
    connection = sqlite3.connect(path)
    plan = connection.execute(
        "EXPLAIN QUERY PLAN SELECT * FROM threads WHERE owner = '' AND archived = 0"
        " AND (updated, id) < (5, 5) ORDER BY updated DESC, id DESC LIMIT 5"
    ).fetchall()
    connection.close()

    assert [row[3] for row in plan] == [
        "SEARCH threads USING INDEX threads_latest (owner=? AND updated<?)"
    ]
