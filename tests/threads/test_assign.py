"""Threads that get another owner, in every store and by the command."""

import asyncio
import shlex
from contextlib import aclosing as closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from copilot_runtime.base.errors import ThreadBusy
from copilot_runtime.base.jsontext import loads
from copilot_runtime.cli.main import cli
from copilot_runtime.threads.sqlite import SqliteThreads
from copilot_runtime.threads.store import ThreadKey, ThreadQuery, ThreadStore
from tests.in_one_test import in_one_test
from tests.threads.recorded import KEY, listed, run_of, threads, told

pytestmark = pytest.mark.anyio

NOBODYS = ThreadQuery(owner="")


async def test_a_thread_is_its_new_owners_alone(store: ThreadStore) -> None:
    [nobodys] = threads("t", owner="")
    await told(store, run_of(nobodys))
    before = await store.runs(nobodys)

    assert await store.assign([nobodys, ThreadKey("", "missing")], "ann") == [nobodys]
    assert await store.runs(KEY) == before
    assert (await listed(store), await listed(store, NOBODYS)) == (["t"], [])
    assert await store.get(nobodys) is None
    assert await store.begin(run_of(KEY, run_id="next")) == []  # it knows the message


async def test_none_is_given_while_one_is_being_answered(store: ThreadStore) -> None:
    first, second = threads("a", "b", owner="")
    await told(store, run_of(first))
    await store.begin(run_of(second, run_id="now"))

    with pytest.raises(ThreadBusy, match="'b' is still being answered"):
        await store.assign([first, second], "ann")
    assert await listed(store) == []


async def test_a_thread_stays_whose_id_the_new_owner_has(store: ThreadStore) -> None:
    nobodys = ThreadKey("", "t")
    for key in (nobodys, KEY):
        await told(store, run_of(key, run_id=f"of-{key.owner}"))

    assert await store.assign([nobodys], "ann") == []
    assert [run.run_id for run in await store.runs(KEY)] == ["of-ann"]
    assert [run.run_id for run in await store.runs(nobodys)] == ["of-"]


@pytest.fixture
async def folder(anyio_backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with three threads of nobody, and one of Ann with an id of these."""
    async with closing(SqliteThreads(tmp_path / "threads.db")) as store:
        for key in [*threads("a", "b", "c", owner=""), ThreadKey("tenant:acme/ann", "c")]:
            await told(store, run_of(key))
        await store.update(ThreadKey("", "a"), archived=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def assign(line: str) -> tuple[int, str, str]:
    words = ["operate", "threads", "assign", *shlex.split(line), "--store", "sqlite:threads.db"]
    done = CliRunner().invoke(cli, words)
    error = "" if isinstance(done.exception, SystemExit | None) else str(done.exception)
    return done.exit_code, done.stdout, done.stderr + error


@pytest.mark.usefixtures("folder")
@in_one_test("option", ["", "--dry-run"])
def test_an_owner_without_threads_is_an_error(option: str) -> None:
    code, _, said = assign(f"--from anne --to ann {option}")

    assert code == 1
    assert "'anne' has no threads." in said


@pytest.mark.usefixtures("folder")
def test_an_operator_hands_over_what_was_nobodys() -> None:
    _, dry, said = assign("--to ann --tenant acme --dry-run")
    done = assign("--to ann --tenant acme")
    again = assign("--to ann --tenant acme --dry-run")

    assert (len(dry.splitlines()), said) == (3, "Would give 3 threads to 'tenant:acme/ann'.\n")
    assert done == (
        0,
        "",
        "Left 'c': 'tenant:acme/ann' has a thread with this id.\n"
        "Gave 2 threads to 'tenant:acme/ann'.\n",
    )
    assert again[2] == "Would give 1 thread to 'tenant:acme/ann'.\n"


@pytest.mark.usefixtures("folder")
def test_an_operator_hands_over_threads_by_their_ids() -> None:
    assert assign("--to bob --thread a --thread b --thread a")[2] == "Gave 2 threads to 'bob'.\n"
    assert assign("--from bob --to eve --thread a")[2] == "Gave 1 thread to 'eve'.\n"


@pytest.mark.usefixtures("folder")
@in_one_test(
    ("line", "why"),
    [
        ("--to ann --thread a --thread x", "There is no thread 'x' without an owner."),
        ("--to ''", "'' cannot be a user."),
        ("--to tenant:acme/ann", "'tenant:acme/ann' cannot be a user."),
        ("--to ann --tenant a/b", "'a/b' cannot be a tenant."),
        ("--from ann --to ann", "'ann' has these threads already."),
        (f"--to {'x' * 501}", "longer than 500 characters"),
    ],
)
def test_a_handover_that_cannot_be_changes_nothing(line: str, why: str) -> None:
    status, _, said = assign(line)

    assert (status, why in said) == (1, True), said
    assert assign("--to ann --dry-run")[2] == "Would give 3 threads to 'ann'.\n"


async def test_nothing_is_handed_over_while_a_server_answers_there(folder: Path) -> None:
    async with closing(SqliteThreads(folder / "threads.db")) as server:
        await server.begin(run_of(ThreadKey("", "b"), run_id="now"))
        status, _, said = await asyncio.to_thread(assign, "--to ann")
        kept = await listed(server, ThreadQuery(owner="", archived=True))

    assert (status, "'b' is still being answered" in said) == (1, True)
    assert sorted(kept) == ["a", "b", "c"]


@pytest.mark.usefixtures("folder")
def test_commands_that_reach_everybodys_threads_are_in_the_audit_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COPILOT_AUDIT_FILE", "audit.jsonl")
    for line in (
        "export all.jsonl --store sqlite:threads.db",
        "export --store sqlite:threads.db",
        "import all.jsonl --store sqlite:other.db",
        "assign --to bob --thread a --store sqlite:threads.db",
        "expire --days 0 --dry-run --store sqlite:threads.db",
        "expire --days 0 --store sqlite:threads.db",
    ):
        done = CliRunner().invoke(cli, ["operate", "threads", *shlex.split(line)])
        assert done.exit_code == 0, done.output

    lines = [loads(line) for line in Path("audit.jsonl").read_bytes().splitlines()]
    assert {(line["method"], line["outcome"]) for line in lines} == {("command", "allowed")}
    assert [(line["action"], line["reason"]) for line in lines] == [
        ("threads.export", "4 to 'all.jsonl'"),
        ("threads.export", "4 to a pipe"),
        ("threads.import", "4 with 4 new runs from 'all.jsonl'"),
        ("threads.assign", "1 of '' to 'bob'"),
        ("threads.expire", "4 unused for 0 days"),
    ]


@pytest.mark.usefixtures("folder")
@in_one_test("line", ["list", "assign --to ann --dry-run", "expire --days 0 --dry-run"])
def test_a_list_of_threads_has_a_head_in_a_terminal_alone(
    monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    words = ["operate", "threads", *shlex.split(line), "--store", "sqlite:threads.db"]
    piped = CliRunner().invoke(cli, words).stdout
    monkeypatch.setattr("copilot_runtime.cli.threads._is_terminal", lambda: True)
    shown = CliRunner().invoke(cli, words).stdout

    assert shown.split()[:5] == ["USED", "OWNER", "ID", "AGENT", "NAME"]
    assert len(shown.splitlines()) == len(piped.splitlines()) + 1
    assert "USED" not in piped
