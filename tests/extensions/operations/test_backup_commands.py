"""`copilot-runtime operate backup` and `restore` say what they leave out or did not check."""

import json
import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from anyio import run
from typer.testing import CliRunner, Result

from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.cli.main import cli
from copilot_runtime.extensions.events.settings import WORKERS_EVENTS
from copilot_runtime.extensions.tracing.settings import WORKERS_TRACES
from tests.extensions.operations.stores import build_settings, fill, make_settings
from tests.in_one_test import in_one_test
from tests.processes import running


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run commands in a folder of their own, and return it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COPILOT_THREADS", raising=False)
    return tmp_path


def command(*words: str, **environ: str) -> Result:
    done = CliRunner().invoke(cli, words, env=environ)
    assert done.exit_code == 0, done.output
    return done


def write_settings(name: str, values: Mapping[str, Any]) -> None:
    Path(name).write_text(json.dumps(values))


def test_keys_are_backed_up_before_servers_ask_for_them(database: str) -> None:
    write_settings("copilot.yml", {"threads": database})
    write_settings("new.yml", {"threads": "sqlite:new/threads.db"})
    command("operate", "keys", "create", "ci")
    assert "keys (1)" in command("operate", "backup", "b").stderr
    assert "keys (1)" in command("operate", "restore", "b", "--config", "new.yml").stderr
    [key] = json.loads(command("operate", "keys", "list", "--json", "--config", "new.yml").stdout)
    assert key["name"] == "ci"
    for words in (["operate", "migrate", "--dry-run"], ["doctor"]):
        assert "keys" in CliRunner().invoke(cli, words).output


@pytest.mark.parametrize(
    "words",
    [
        *(
            f"operate {one}"
            for one in ("keys list", "keys revoke ci", "threads list", "audit list")
        ),
        *("traces list", "operate events", "operate migrate --dry-run", "doctor", "settings"),
        *("knowledge search x", "knowledge memory common.Message.m1", "knowledge ontology"),
    ],
)
def test_a_command_that_reads_makes_no_file_and_a_backup_after_it_fails(
    words: str, folder: Path
) -> None:
    (folder / "empty").mkdir()
    settings = build_settings(folder / "empty").model_dump(mode="json", exclude_defaults=True)
    write_settings("copilot.yml", settings)
    CliRunner().invoke(cli, words.split())
    assert [*folder.joinpath("empty").iterdir()] == []
    done = CliRunner().invoke(cli, ["operate", "backup", "b"])
    assert done.exit_code == 1
    assert isinstance(done.exception, ConfigurationFailed)
    assert "There is nothing to back up" in done.exception.message
    assert sorted(path.name for path in folder.iterdir()) == ["copilot.yml", "empty"]


@in_one_test("words", ["operate backup b", "knowledge search x", "knowledge ingest", "doctor"])
def test_a_storage_of_knowledge_that_is_a_file_is_refused(words: str) -> None:
    write_settings("copilot.yml", {"knowledge": {"storage": "local:copilot.yml"}, "port": 0})
    command("operate", "keys", "create", "ci")  # something to back up
    done = CliRunner().invoke(cli, words.split())
    assert done.exit_code == 1
    assert "'copilot.yml' is a file, and not a folder." in f"{done.output} {done.exception}"


@in_one_test(
    "words",
    [
        "operate backup b",
        "operate threads list",
        "operate migrate --dry-run",
        "operate keys list",
        "doctor",
    ],
)
def test_a_database_that_says_nothing_is_named_soon(
    words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("copilot_runtime.database.postgres.pool._CONNECT_TIMEOUT", 0.1)
    monkeypatch.setattr("copilot_runtime.database.postgres.pool._PATIENCE", 0)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        place = f"127.0.0.1:{mute.getsockname()[1]}/app"
        url = f"postgresql://me:secret@{place}"
        write_settings("copilot.yml", {"threads": url, "api_keys": {"store": url}, "port": 0})
        done = CliRunner().invoke(cli, words.split())

    text = str(done.exception) + str(getattr(done.exception, "hint", "")) + done.output
    assert done.exit_code != 0
    assert f"PostgreSQL ({place}) cannot be used: it does not answer in time." in text


def test_a_backup_removes_what_a_killed_one_left_and_nothing_of_one_that_runs(
    folder: Path,
) -> None:
    write_settings(
        "copilot.yml", {"audit": {"file": "audit.jsonl"}, "telemetry": {"store": "jsonl:traces"}}
    )
    command("operate", "keys", "create", "ci")
    Path("traces").mkdir()
    pipe = Path("traces/2026-01-01.jsonl")
    os.mkfifo(pipe)
    others = [Path(".b.other"), Path(".b.other.12.part"), Path(".b.part")]
    for other in others:
        other.touch()
    environ = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
    slow = [sys.executable, "-m", "copilot_runtime", "operate", "backup", "b"]
    with running(slow, cwd=folder, env=environ) as program, pipe.open("wb"):  # it reads there now
        [part] = sorted({*folder.glob(".b.*.part")} - {folder / other for other in others})
        command("operate", "backup", "b", "--without", "traces")
        assert part.exists()
        program.kill()
        done = command("operate", "backup", "b", "--force", "--without", "traces")

    assert f"Removed '{part.name}', which a backup that was killed had left." in done.stderr
    assert sorted(folder.glob(".b.*")) == sorted(folder / other for other in others)


def test_a_signature_that_was_not_checked_is_said(folder: Path) -> None:
    settings = build_settings(folder / "old")
    run(fill, settings)
    write_settings("copilot.yml", settings.model_dump(mode="json", exclude_defaults=True))
    new = build_settings(folder / "new").model_dump(mode="json", exclude_defaults=True)
    write_settings("new.yml", new | {"audit": {}})
    Path("key").write_text("0123456789abcdef")
    command("operate", "backup", "b", "--key-file", "key", "--without", "audit")
    sentence = "The backup is signed, but its signature was not checked"
    restore = ("operate", "restore", "b", "--config", "new.yml")
    assert sentence in command(*restore).stderr
    assert sentence not in command(*restore, "--force", "--key-file", "key").stderr


def test_what_workers_share_is_found_without_their_number_in_the_settings(folder: Path) -> None:
    stores = make_settings(
        **build_settings(folder).model_dump(mode="json", exclude_defaults=True)
        | {
            "events": {"store": f"sqlite:{WORKERS_EVENTS}"},
            "telemetry": {"store": f"sqlite:{WORKERS_TRACES}"},
        }
    )
    run(fill, stores)
    settings = {"threads": stores.threads, "knowledge": {"storage": stores.knowledge.storage}}
    write_settings("copilot.yml", settings)
    listed = command("traces", "list", "--json")
    assert len(json.loads(listed.stdout)["traces"]) == 2
    assert f"These are the traces in sqlite:{WORKERS_TRACES}" in listed.stderr
    assert len(command("operate", "events").stdout.splitlines()) == 3
    done = command("operate", "backup", "b").stderr
    assert "events (3), traces (2)" in done
    assert "in memory" not in done
    assert "These are" not in command("traces", "list", COPILOT_WORKERS="2").stderr


def test_a_backup_says_what_is_only_in_memory(folder: Path) -> None:
    settings = build_settings(folder)
    run(fill, settings)
    values = {"threads": settings.threads, "knowledge": {"storage": "memory"}}
    write_settings("copilot.yml", values)
    sentence = "Not in it, as only servers have them in memory: {}."
    done = command("operate", "backup", "b")
    assert sentence.format("events, traces, knowledge") in done.stderr
    done = command("operate", "backup", "c", "--without", "traces", "--without", "events")
    assert sentence.format("knowledge") in done.stderr
