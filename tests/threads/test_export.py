"""Threads as JSON Lines: out of any store, into any other."""

import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing as closing
from datetime import UTC, datetime
from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner

from copilot_runtime.adapters.scripted import call
from copilot_runtime.api.events import AgentState, RunFailed
from copilot_runtime.base.errors import Misuse
from copilot_runtime.cli.main import cli
from copilot_runtime.threads.compact import INTERRUPTED
from copilot_runtime.threads.export import ImportProgress, export_threads, import_threads
from copilot_runtime.threads.memory import MemoryThreads
from copilot_runtime.threads.sqlite import SqliteThreads
from copilot_runtime.threads.store import Segment, ThreadKey, ThreadStore
from tests.in_one_test import in_one_test
from tests.threads.recorded import KEY, log_of, run_of, told, user

pytestmark = pytest.mark.anyio


@pytest.fixture
async def source(anyio_backend: str) -> AsyncGenerator[ThreadStore, None]:
    """Return a store with threads of two owners, one archived, one with a name."""
    async with closing(MemoryThreads()) as source:
        state = AgentState(agent="poet", state={"mood": "🙂", "deep": [1, None]})
        await told(source, run_of(agent="poet", log_id="one"), state)
        second = run_of(log_id="two", messages=[user(), user("u2")])
        await told(source, second, *call("find", {"q": "x"}))
        await told(source, run_of(ThreadKey("bob", "t"), run_id="bobs"))
        await source.update(KEY, name="Trip \n 🏔")
        await source.update(ThreadKey("bob", "t"), archived=True)
        yield source


async def lines_of(store: ThreadStore) -> list[bytes]:
    return [line async for line in export_threads(store)]


async def taken(store: ThreadStore, lines: Sequence[bytes]) -> list[ImportProgress]:
    return [step async for step in import_threads(store, lines)]


async def test_what_comes_in_is_what_went_out(source: ThreadStore, store: ThreadStore) -> None:
    lines = await lines_of(source)
    steps = await taken(store, lines)

    assert steps == [ImportProgress(1, 2), ImportProgress(2, 3)]
    assert await lines_of(store) == lines
    assert await store.runs(KEY) == await source.runs(KEY)
    assert await store.get(KEY) == await source.get(KEY)


async def test_a_second_import_changes_nothing(source: ThreadStore, store: ThreadStore) -> None:
    lines = await lines_of(source)
    await taken(store, lines)

    assert (await taken(store, lines))[-1] == ImportProgress(2, 0)
    assert await lines_of(store) == lines


async def test_the_messages_of_an_imported_thread_are_known(
    source: ThreadStore, store: ThreadStore
) -> None:
    await taken(store, await lines_of(source))

    again = [user(), user("u2"), user("u3")]
    assert await store.begin(run_of(run_id="r3", messages=again)) == [user("u3")]


async def test_the_later_head_counts_and_no_run_is_lost(
    source: ThreadStore, store: ThreadStore
) -> None:
    lines = await lines_of(source)
    await taken(store, lines)
    await told(store, run_of(run_id="later", messages=[user("u3")]))
    renamed = await store.update(KEY, name="Mine")
    await taken(store, lines)

    assert await store.get(KEY) == renamed
    assert [run.run_id for run in await store.runs(KEY)] == ["r", "r", "later"]
    newer = [lines[0].replace(b"Trip", b"Tour").replace(b'updated_at":"20', b'updated_at":"30')]
    await taken(store, newer)
    thread = await store.get(KEY)
    assert thread and thread.name == "Tour \n 🏔"


async def test_a_run_that_went_on_when_it_was_exported_is_ended(store: ThreadStore) -> None:
    async with closing(MemoryThreads()) as source:
        run = run_of()
        log = log_of(run, new=await source.begin(run))
        await source.write([Segment(log_id="r", events=log[:3])])
        await taken(store, await lines_of(source))
    [kept] = await store.runs(KEY)

    assert kept.ended
    assert kept.events[-1] == INTERRUPTED
    assert isinstance(kept.events[-1], RunFailed)
    assert await store.begin(run_of(run_id="r2", messages=[user("u2")])) == [user("u2")]


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (b"{", "unexpected end"),
        (b"[]", "it is not an object"),
        (b'{"type":"them"}', "'them' is neither a thread nor a run"),
        (b'{"type":"thread","owner":"ann"}', "'id' is missing"),
        (b'{"type":"run","owner":"ann","thread":"other"}', "its thread is not above it"),
        (b'{"type":"run","owner":"ann","thread":"t","key":"k"}', "'run_id' is missing"),
        (b'{"type":"thread","owner":"ann","id":""}', "a thread needs an id"),
        (b'{"type":"thread","owner":"ann","id":"' + b"x" * 501 + b'"}', "longer than 500"),
    ],
)
async def test_a_wrong_line_is_named_and_what_came_before_is_kept(
    source: ThreadStore, store: ThreadStore, wrong: bytes, why: str
) -> None:
    lines = await lines_of(source)
    bobs = next(place for place, line in enumerate(lines) if place and b'"thread",' in line)
    with pytest.raises(Misuse, match="Line 5 cannot be read") as caught:
        await taken(store, [*lines[bobs:], *lines[:2], wrong, *lines[2:]])

    assert why in caught.value.message
    assert await store.runs(ThreadKey("bob", "t")) == await source.runs(ThreadKey("bob", "t"))
    assert await taken(store, lines) == [ImportProgress(1, 2), ImportProgress(2, 2)]
    assert await store.runs(KEY) == await source.runs(KEY)


@in_one_test(
    ("field", "value", "why"),
    [
        ("events", [{"type": "no such"}], "event 1 is invalid"),
        ("events", [{"type": "run_finished"}, {"type": "usage"}], "event 2 is invalid"),
        (
            "events",
            [{"type": "run_started", "run_id": "r", "thread_id": "t", "server_actions": [1]}],
            "event 1 is invalid (ValueError: expected a list of strings)",
        ),
        ("events", None, "not a list"),
        ("began_at", "yesterday", "Invalid isoformat"),
        ("began_at", "2026-01-01T00:00:00", "no time zone"),
        ("ended", 1, "'ended' is missing or of the wrong kind"),
        ("key", "a\0b", "no text"),
    ],
)
async def test_a_run_with_a_wrong_field_is_refused(
    source: ThreadStore, field: str, value: object, why: str
) -> None:
    lines = await lines_of(source)
    wrong = orjson.dumps(orjson.loads(lines[1]) | {field: value})
    async with closing(MemoryThreads()) as store:
        with pytest.raises(Misuse, match="Line 2 cannot be read") as caught:
            await taken(store, [lines[0], wrong])

        assert why in caught.value.message
        assert await lines_of(store) == []


class Command:
    """`copilot-runtime operate threads` in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(
        self, *arguments: str, given: bytes = b"", out: int = subprocess.PIPE
    ) -> "subprocess.CompletedProcess[bytes]":
        environ = {name: value for name, value in os.environ.items() if "COPILOT" not in name}
        return subprocess.run(
            [sys.executable, "-m", "copilot_runtime", "operate", "threads", *arguments],
            cwd=self._folder,
            env=environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
            input=given,
            stdout=out,
            stderr=subprocess.PIPE,
            check=False,
        )


@pytest.fixture
async def command(anyio_backend: str, tmp_path: Path, source: ThreadStore) -> Command:
    """Return the command, in a folder with a file of threads."""
    async with closing(SqliteThreads(tmp_path / "threads.db")) as store:
        await taken(store, await lines_of(source))
    return Command(tmp_path)


def test_an_export_by_command_is_imported_by_command(command: Command) -> None:
    out = command("export", "--store", "sqlite:threads.db")
    into = command("import", "--store", "sqlite:other.db", given=out.stdout)
    file = command("export", "copy.jsonl", "--store", "sqlite:other.db")
    again = command("import", "copy.jsonl", "--store", "sqlite:other.db")

    assert (out.stderr, file.stderr) == (b"Exported 2 threads.\n", b"Exported 2 threads.\n")
    assert into.stderr == b"Read 2 threads with 3 new runs.\n"
    assert again.stderr == b"Read 2 threads with 0 new runs.\n"
    assert out.stdout == command("export", "--store", "sqlite:other.db").stdout


def test_a_file_with_a_wrong_line_changes_nothing(command: Command, tmp_path: Path) -> None:
    lines = command("export", "--store", "sqlite:threads.db").stdout
    (tmp_path / "wrong.jsonl").write_bytes(lines + b"oh\n")
    done = command("import", "wrong.jsonl", "--store", "sqlite:other.db")

    assert done.returncode == 1
    assert done.stderr.startswith(b"Line 6 cannot be read: ")
    assert not (tmp_path / "other.db").exists()


def test_a_dash_is_the_standard_output_and_input(command: Command, tmp_path: Path) -> None:
    out = command("export", "-", "--store", "sqlite:threads.db")
    into = command("import", "-", "--store", "sqlite:other.db", given=out.stdout)

    assert out.stdout == command("export", "--store", "sqlite:threads.db").stdout
    assert into.stderr == b"Read 2 threads with 3 new runs.\n"
    assert not (tmp_path / "-").exists()


@in_one_test("what", ["import", "export"])
def test_a_file_that_cannot_be_opened_is_said(command: Command, what: str) -> None:
    done = command(what, "missing/threads.jsonl", "--store", "sqlite:threads.db")

    assert done.returncode == 1
    assert done.stderr.startswith(
        b"The file 'missing/threads.jsonl' cannot be opened: No such file or directory.\n"
    )


def test_an_import_that_breaks_off_says_how_far_it_came(command: Command) -> None:
    lines = command("export", "--store", "sqlite:threads.db").stdout
    done = command("import", "--store", "sqlite:other.db", given=lines + b"oh\n")

    assert done.returncode == 1
    assert done.stderr.startswith(b"Read 1 thread with 2 new runs before an error.\nLine 6 ")


@in_one_test("days", ["1e300", "inf", "nan", "-1"])
def test_days_without_a_date_are_refused(command: Command, days: str) -> None:
    done = command("expire", f"--days={days}", "--store", "sqlite:threads.db")

    assert done.returncode == 2
    assert b"Traceback" not in done.stderr
    assert b"--days" in done.stderr


def test_threads_are_listed_with_nothing_a_terminal_would_obey(command: Command) -> None:
    everyones = command("list", "--archived", "--store", "sqlite:threads.db").stdout.decode()
    anns = command("list", "--owner", "ann", "--store", "sqlite:threads.db").stdout.decode()
    poets = command("list", "--agent", "poet", "--limit", "1", "--store", "sqlite:threads.db")

    assert [line.split("\t")[1:] for line in everyones.splitlines()] == [
        ["bob", "t", "default", ""],
        ["ann", "t", "poet", "Trip   🏔"],
    ]
    assert anns == poets.stdout.decode() == everyones.splitlines(keepends=True)[1]
    assert datetime.fromisoformat(anns.split("\t")[0]).tzinfo == UTC


def test_a_terminal_gets_a_table_of_threads(command: Command) -> None:
    reader, terminal = os.openpty()
    with os.fdopen(reader, "rb", buffering=0) as shown:
        command("list", "--archived", "--store", "sqlite:threads.db", out=terminal)
        os.close(terminal)
        lines = shown.read(10_000).decode().splitlines()

    assert [line.split()[1:] for line in lines] == [
        ["OWNER", "ID", "AGENT", "NAME"],
        ["bob", "t", "default"],
        ["ann", "t", "poet", "Trip", "🏔"],
    ]


def test_the_latest_threads_are_listed_and_that_there_are_older_ones(command: Command) -> None:
    done = command("list", "--archived", "--limit", "1", "--store", "sqlite:threads.db")
    whole = command("list", "--archived", "--limit", "2", "--store", "sqlite:threads.db")

    assert done.stdout == whole.stdout.splitlines(keepends=True)[0]
    assert done.stdout.split(b"\t")[1] == b"bob"
    assert done.stderr == b"There are older threads than these: --limit lists more.\n"
    assert whole.stderr == b""


def test_a_list_of_the_latest_threads_does_not_read_all_of_them(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = command("list", "--archived", "--store", "sqlite:threads.db").stdout.decode()

    def refuse(*_: object) -> None:
        pytest.fail("The threads of everybody are read, page by page.")

    monkeypatch.setattr(SqliteThreads, "everyones", refuse)
    place = f"sqlite:{tmp_path / 'threads.db'}"
    done = CliRunner().invoke(cli, ["operate", "threads", "list", "--archived", "--store", place])

    assert done.stdout == listed


def test_old_threads_expire_by_command(command: Command) -> None:
    kept = command("expire", "--days", "1", "--store", "sqlite:threads.db")
    gone = command("expire", "--days", "0", "--store", "sqlite:threads.db")

    assert (kept.stderr, gone.stderr) == (b"Deleted 0 threads.\n", b"Deleted 2 threads.\n")


def test_a_dry_run_names_what_would_expire_and_deletes_nothing(command: Command) -> None:
    dry = command("expire", "--days", "0", "--dry-run", "--store", "sqlite:threads.db")
    late = command("expire", "--days", "1", "--dry-run", "--store", "sqlite:threads.db")
    gone = command("expire", "--days", "0", "--store", "sqlite:threads.db")

    assert [line.split(b"\t")[2] for line in dry.stdout.splitlines()] == [b"t", b"t"]
    assert dry.stderr == b"Would delete 2 threads.\n"
    assert (late.stdout, late.stderr) == (b"", b"Would delete 0 threads.\n")
    assert gone.stderr == b"Deleted 2 threads.\n"


@in_one_test(
    ("store", "why"),
    [
        ("memory", b"in the memory of a server"),
        ("sqlite:misspelt.db", b"There is no file 'misspelt.db'"),
    ],
)
def test_a_place_without_threads_is_said(command: Command, store: str, why: bytes) -> None:
    done = command("list", "--store", store)

    assert done.returncode == 1
    assert why in done.stderr
