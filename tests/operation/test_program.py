"""Commands have the settings that a program writes, if they are told the program."""

import json
import sys
from pathlib import Path

import pytest
from anyio import run
from typer.testing import CliRunner, Result

from copilot_runtime.cli.main import cli
from tests.operation.stores import build_settings, fill

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
    done = command("backup", "b.tar.gz", "--program", "chats:runtime")

    assert done.stderr.startswith("Settings: those of chats:runtime.\nBacked up threads (")


def test_without_a_program_a_command_says_whose_settings_it_has() -> None:
    tail = " and the environment; what a program writes into Settings(...) is read with --program"
    assert f"Settings: 'copilot.yml'{tail}" in command("keys", "list").stderr
    Path("copilot.yml").unlink()
    assert f"Settings: the defaults{tail}" in command("migrate").stderr
    assert "Settings:" not in command("keys", "list", "--store", "sqlite:a.db").stderr


def test_a_key_is_made_where_the_server_of_the_program_looks(folder: Path) -> None:
    place = folder / "own" / "access.db"
    assert f"find it in {place}." in command("keys", "create", "x", "--program", "chats").stderr
    listed = command("keys", "list", "--json", "--store", f"sqlite:{place}").stdout
    assert "x" in [key["name"] for key in json.loads(listed)]


def test_threads_the_audit_log_and_tables_are_those_of_the_program(folder: Path) -> None:
    program = ("--program", "chats:runtime")
    assert "\tMountains" in command("threads", "list", "--archived", *program).stdout
    assert json.loads(command("audit", "list", "--json", *program).stdout)
    [threads, *_] = json.loads(command("migrate", "--json", *program).stdout)
    assert threads["address"] == f"sqlite:{folder}/own/threads.db"


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
    found = json.loads(command("migrate", "--json", "--program", "stores:app").stdout)
    addresses = {row["name"]: row["address"] for row in found}
    assert addresses["threads"] == "sqlite:chats/threads.db"
    assert addresses["keys"] == "sqlite:other/access.db"


def test_doctor_says_that_the_program_ignores_the_file() -> None:
    done = CliRunner().invoke(cli, ["doctor", "chats:runtime"])
    assert "written in the program, which ignores 'copilot.yml'" in done.stdout
