"""Commands have the settings that a program writes, if they are told the program."""

import json
import sys
from pathlib import Path

import pytest
from anyio import run
from typer.testing import CliRunner, Result

from copilot_runtime.cli.main import cli
from copilot_runtime.extensions.knowledge import Knowledge
from copilot_runtime.extensions.knowledge.events import ResourceEvent
from copilot_runtime.extensions.knowledge.events.sqlite import SqliteEventLog
from copilot_runtime.extensions.knowledge.identifiers import Identifier
from tests.extensions.knowledge.library import write_pages
from tests.extensions.operations.stores import build_settings, fill
from tests.in_one_test import in_one_test

_PROGRAM = """
from copilot_runtime import CopilotRuntime, DemoAdapter, Settings

runtime = CopilotRuntime(adapter=DemoAdapter(), settings=Settings.model_validate({values!r}))
"""
_OF_THREADS = """
from copilot_runtime import CopilotRuntime, DemoAdapter
from copilot_runtime.threads.sqlite import SqliteThreads

app = CopilotRuntime(adapter=DemoAdapter(), threads=SqliteThreads("chats/threads.db")).app()
"""
_OF_THE_FILE = """
from copilot_runtime import CopilotRuntime, DemoAdapter

runtime = CopilotRuntime(adapter=DemoAdapter())
"""
_OF_KNOWLEDGE = """
from copilot_runtime import CopilotRuntime, DemoAdapter, Settings
from copilot_runtime.extensions.knowledge import Knowledge

runtime = CopilotRuntime(
    adapter=DemoAdapter(),
    knowledge=Knowledge("local:learned", sources=["pages"], policy="own.yml"),
    settings=Settings(tools="own-tools.yml"),
)
"""
_CHAT = "common.User.ann/common.Conversation.t1"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with `chats.py`, whose stores are full, and a settings file of others."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("COPILOT_THREADS", "COPILOT_CONFIG"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    settings = build_settings(tmp_path / "own")
    run(fill, settings)
    write_program("chats.py", _PROGRAM.format(values=settings.model_dump(exclude_defaults=True)))
    Path("copilot.yml").write_text("threads: sqlite:other/threads.db\n")
    return tmp_path


def write_program(name: str, text: str) -> None:
    sys.modules.pop(name.removesuffix(".py"), None)
    Path(name).write_text(text)


def command(*words: str) -> Result:
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0, done.output
    return done


def test_a_backup_has_the_stores_of_the_program() -> None:
    done = command("operate", "backup", "b.tar.gz", "--program", "chats:runtime")

    assert done.stderr.startswith("Backed up threads (")


def test_only_a_command_without_a_settings_file_says_whose_settings_it_has() -> None:
    assert "copilot.yml" not in command("operate", "keys", "list").stderr
    Path("copilot.yml").unlink()
    assert "There is no copilot.yml here" in command("operate", "migrate").stderr
    named = command("operate", "keys", "list", "--store", "sqlite:a.db").stderr
    assert "copilot.yml" not in named


def test_a_key_is_made_where_the_server_of_the_program_looks(folder: Path) -> None:
    place = folder / "own" / "access.db"
    assert (
        f"find it in {place}."
        in command("operate", "keys", "create", "x", "--program", "chats").stderr
    )
    listed = command("operate", "keys", "list", "--json", "--store", f"sqlite:{place}").stdout
    assert "x" in [key["name"] for key in json.loads(listed)]


def test_threads_the_audit_log_and_tables_are_those_of_the_program(folder: Path) -> None:
    program = ("--program", "chats:runtime")
    assert "\tMountains" in command("operate", "threads", "list", "--archived", *program).stdout
    assert json.loads(command("operate", "audit", "list", "--json", *program).stdout)
    [threads, *_] = json.loads(command("operate", "migrate", "--json", *program).stdout)
    assert threads["address"] == f"sqlite:{folder}/own/threads.db"


@in_one_test(
    ("words", "shown"),
    [
        ("operate events --json", "T2"),
        ("traces list --json", "a" * 32),
        ("traces show bbbb --json", "b" * 32),
    ],
)
def test_events_and_traces_are_those_of_the_program(words: str, shown: str) -> None:
    done = command(*words.split(), "--program", "chats:runtime")

    assert shown in done.stdout
    assert done.stderr == ""


def test_traces_are_imported_where_the_program_keeps_them() -> None:
    program = ("--program", "chats:runtime")
    command("traces", "export", "t.jsonl", *program)
    command("traces", "delete", "a" * 32, *program)
    assert "Read 2 spans of 2 traces." in command("traces", "import", "t.jsonl", *program).stderr
    assert len(json.loads(command("traces", "list", "--json", *program).stdout)["traces"]) == 2


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with knowledge of a program: pages, and a memory."""
    folder = tmp_path_factory.mktemp("learned")
    write_pages(folder)

    async def remember() -> None:
        knowledge = Knowledge(f"local:{folder / 'learned'}")
        await knowledge.memory.append(_CHAT, Identifier("common.Message", "m1", _CHAT, tokens=12))
        await knowledge.aclose()

    run(remember)
    (folder / "copilot.yml").write_text("knowledge: {storage: 'local:other'}\n")
    (folder / "own.yml").write_text(
        "rules: [{name: mine, allow: read, resources: common.Note.*}]\n"
    )
    (folder / "own-tools.yml").write_text(
        "greet: {purpose: Greet., "
        "endpoint: {function: 'tests.extensions.tools.catalog.functions:greet'}}\n"
    )
    return folder


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("knowledge search books", "House rules"),
        ("knowledge graph ? schema:name ?", "Ada Byron"),
        ("knowledge ontology", "Person"),
        ("knowledge memory", _CHAT),
        ("knowledge memory " + _CHAT, "m1"),
        ("develop tools list", "greet"),
        ("knowledge policy explain ann read common.Note.n", "The rule 'mine'"),
    ],
)
def test_knowledge_tools_and_the_policy_are_those_of_the_program(
    learned: Path, monkeypatch: pytest.MonkeyPatch, words: str, shown: str
) -> None:
    monkeypatch.chdir(learned)
    write_program("learns.py", _OF_KNOWLEDGE)
    program = ("--program", "learns:runtime")
    command("knowledge", "ingest", *program)
    done = command(*words.split(), *program)

    assert shown in done.stdout


def test_the_policy_of_a_program_says_which_events_a_user_reads(
    learned: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(learned)
    write_program("learns.py", _OF_KNOWLEDGE)
    store = f"sqlite:{learned / 'events.db'}"
    run(publish, learned / "events.db")
    events = ("operate", "events", "--json", "--as", "eve", "--store", store)

    assert "common.Note.n" in command(*events, "--program", "learns:runtime").stdout
    assert "common.Task.t" not in command(*events, "--program", "learns:runtime").stdout
    assert "common.Task.t" in command(*events).stdout


async def publish(path: Path) -> None:
    log = SqliteEventLog(path)
    for identifier in (Identifier("common.Note", "n"), Identifier("common.Task", "t")):
        await log.append(ResourceEvent(detail_type="RESOURCE_PUT", resources=(identifier,)))
    await log.aclose()


def test_settings_show_which_ones_the_program_writes() -> None:
    lines = command("settings", "--program", "chats:runtime").stdout.splitlines()
    [threads] = [line for line in lines if line.split()[:1] == ["threads"]]
    assert "own/threads.db" in threads
    assert threads.endswith("[chats:runtime]")


def test_settings_that_a_program_reads_are_those_of_the_file() -> None:
    write_program("reads.py", _OF_THE_FILE)
    lines = command("settings", "--program", "reads:runtime").stdout.splitlines()
    [threads] = [line for line in lines if line.split()[:1] == ["threads"]]
    assert threads.endswith("[copilot.yml:1]")


def test_a_store_that_a_program_makes_is_found_and_its_keys_stay_where_they_are() -> None:
    write_program("stores.py", _OF_THREADS)
    found = json.loads(command("operate", "migrate", "--json", "--program", "stores:app").stdout)
    addresses = {row["name"]: row["address"] for row in found}
    assert addresses["threads"] == "sqlite:chats/threads.db"
    assert addresses["keys"] == "sqlite:other/access.db"


def test_doctor_says_that_the_program_ignores_the_file() -> None:
    done = CliRunner().invoke(cli, ["doctor", "chats:runtime"])
    assert "written in the program, which ignores 'copilot.yml'" in done.stdout
