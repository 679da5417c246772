"""`copilot-runtime operate events`."""

import asyncio
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from copilot_runtime.base.errors import ConfigurationFailed, CopilotError, Misuse
from copilot_runtime.cli.main import cli
from copilot_runtime.extensions.knowledge.events import CursorGone, ResourceEvent
from copilot_runtime.extensions.knowledge.events.sqlite import SqliteEventLog
from copilot_runtime.extensions.knowledge.identifiers import Identifier
from tests.processes import running

Run = Callable[..., Result]
PUBLIC = Identifier("common.Note", "n1")
OF_ANN = Identifier("common.Note", "n2", "common.User.ann")


def publish(path: Path, *events: ResourceEvent) -> None:
    async def append() -> None:
        log = SqliteEventLog(path)
        await log.append(*events)
        await log.aclose()

    asyncio.run(append())


def put(resource: Identifier, source: str = "resources", **detail: object) -> ResourceEvent:
    return ResourceEvent(
        detail_type="RESOURCE_PUT", resources=(resource,), source=source, detail=detail
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "events.db"
    publish(path, put(PUBLIC), put(OF_ANN, "shop", note="two\nlines"), put(PUBLIC, number=3))
    return path


@pytest.fixture
def run(file: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(file.parent)
    monkeypatch.setenv("COPILOT_EVENTS_STORE", f"sqlite:{file}")
    return lambda *arguments: CliRunner().invoke(cli, ["operate", "events", *arguments])


def read_json(result: Result) -> list[dict[str, object]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_each_event_is_a_line_that_ends_with_its_cursor(run: Run) -> None:
    lines = [line.split("\t") for line in run().stdout.splitlines()]

    assert [line[1:5] for line in lines] == [
        ["resources", "RESOURCE_PUT", "common.Note.n1", ""],
        ["shop", "RESOURCE_PUT", "common.User.ann/common.Note.n2", '{"note": "two\\nlines"}'],
        ["resources", "RESOURCE_PUT", "common.Note.n1", '{"number": 3}'],
    ]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", line[0]) for line in lines)
    assert run("--after", lines[0][5]).stdout.count("\n") == 2


@pytest.mark.parametrize(
    ("arguments", "numbers"),
    [
        (["--limit", "1"], [2]),
        (["--after", "0", "--limit", "1"], [0]),
        (["--after", "0"], [0, 1, 2]),
        (["--source", "shop"], [1]),
        (["--source", "shop", "--source", "resources"], [0, 1, 2]),
        (["--type", "RUN_STARTED"], []),
        (["--prefix", "common.Note.n1"], [0, 2]),
        (["--prefix", "cld:common.User.ann"], [1]),
        (["--as", "bob"], [0, 2]),
        (["--as", "ann"], [0, 1, 2]),
    ],
)
def test_events_are_chosen(run: Run, arguments: list[str], numbers: list[int]) -> None:
    every = read_json(run("--json"))
    assert read_json(run("--json", *arguments)) == [every[number] for number in numbers]


def test_a_policy_of_the_settings_decides_what_a_user_sees(run: Run, file: Path) -> None:
    (file.parent / "copilot.yml").write_text("knowledge: {policy: rules.yml}\n")
    (file.parent / "rules.yml").write_text("default: deny\n")
    assert run("--as", "bob").stdout == ""
    assert run().stdout.count("\n") == 3


def test_what_cannot_be_read_is_an_error_with_a_way_out(
    run: Run, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[tuple[list[str], type[CopilotError], str]] = [
        (["--after", "x"], Misuse, "no cursor"),
        (["--after", "00000000-1"], CursorGone, "not of this log"),
        (["--prefix", "common"], Misuse, "names no resource"),
        (["--store", "memory"], ConfigurationFailed, "in the memory of a server"),
        (["--store", "none"], ConfigurationFailed, "not kept"),
        (["--store", "redis://x"], ConfigurationFailed, "is not an event store"),
        (["--store", f"sqlite:{file}2"], ConfigurationFailed, "There is no file"),
    ]
    for arguments, kind, part in failures:
        error = run(*arguments).exception
        assert isinstance(error, kind)
        assert part in error.message
    monkeypatch.delenv("COPILOT_EVENTS_STORE")
    assert isinstance(run().exception, ConfigurationFailed)
    assert not Path(f"{file}2").exists()


def test_who_follows_sees_what_other_processes_publish(run: Run, file: Path) -> None:
    assert run().exit_code == 0
    command = [
        sys.executable,
        "-m",
        "copilot_runtime",
        "operate",
        "events",
        "--follow",
        "--limit",
        "1",
    ]
    with running([*command, "--store", f"sqlite:{file}"]) as program:
        program.until(r'"number": 3')
        publish(file, put(OF_ANN, "later"))
        program.until(r"later\tRESOURCE_PUT\tcommon.User.ann/common.Note.n2")


def test_who_follows_from_a_cursor_misses_nothing(run: Run, file: Path) -> None:
    cursor = read_json(run("--json"))[0]["cursor"]
    command = [
        sys.executable,
        "-m",
        "copilot_runtime",
        "operate",
        "events",
        "-f",
        "--after",
        str(cursor),
    ]
    with running([*command, "--store", f"sqlite:{file}"]) as program:
        program.until("shop")
        program.until(r'"number": 3')
        publish(file, put(PUBLIC, "later"))
        program.until("later")


def test_commands_that_change_knowledge_tell_it(
    run: Run, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COPILOT_KNOWLEDGE_STORAGE", f"local:{file.parent}/store")
    page = file.parent / "page.html"
    page.write_text("<html><title>Hours</title><p>The library opens at nine.</p></html>")

    assert CliRunner().invoke(cli, ["knowledge", "ingest", str(page)]).exit_code == 0

    assert "RESOURCE_PUT" in run("--source", "resources", "--limit", "1").stdout
    assert len(read_json(run("--json"))) > 3
