"""The audit log of runs whose server was killed: whoever ends them writes their end, once."""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from copilot_runtime import Settings
from copilot_runtime.cli.main import cli
from copilot_runtime.extensions.access.settings import AuditSettings
from tests.extensions.cluster.sharing import sharing
from tests.extensions.cluster.test_thread_changes import CHANGES
from tests.processes import Program, running
from tests.wire_agui.server import Parrot

pytestmark = pytest.mark.anyio

DEAD_RUN = {
    "action": "run.end",
    "outcome": "failed",
    "reason": "RUN_INTERRUPTED: The server stopped before the answer was complete. "
    "Its process died, and another one ended it.",
    "thread": "t",
    "run": "r1",
    "agent": "default",
}


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return what several servers share: their threads, and one audit log."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COPILOT_THREADS", raising=False)
    shared = {"threads": "sqlite:threads.db", "audit": AuditSettings(file="audit.jsonl")}
    Path("copilot.yml").write_text(Settings(**shared).model_dump_json(include={*shared}))  # pyright: ignore[reportArgumentType]
    return shared


def read_ends() -> list[dict[str, Any]]:
    """Return the lines of the audit log about the run that died."""
    lines = map(json.loads, Path("audit.jsonl").read_text().splitlines())
    chain = ("number", "time", "previous", "hash")
    return [
        {name: value for name, value in line.items() if name not in chain}
        for line in lines
        if line.get("run") == "r1"
    ]


@asynccontextmanager
async def other_server() -> AsyncGenerator[Program]:
    """Run a process that has begun a run."""
    with running(
        [sys.executable, "-m", "tests.extensions.cluster.silent_run", "threads.db"]
    ) as program:
        await asyncio.to_thread(program.until, "begun")
        yield program


async def test_servers_that_start_write_the_end_of_a_run_once(shared: dict[str, Any]) -> None:
    async with other_server() as other:
        other.kill()
    for _ in range(2):
        async with sharing(shared, Parrot(), Parrot()):
            pass

    assert read_ends() == [DEAD_RUN]


async def test_who_takes_the_next_question_writes_the_end_of_a_run_once(
    shared: dict[str, Any],
) -> None:
    async with sharing(shared, Parrot(), Parrot()) as servers, other_server() as other:
        other.kill()
        await asyncio.gather(*(server.run(run=f"n{n}") for n, server in enumerate(servers)))

    assert read_ends() == [DEAD_RUN]


async def test_who_has_a_reader_writes_the_end_of_a_run_once(shared: dict[str, Any]) -> None:
    async with (
        sharing(shared, Parrot(), Parrot()) as (one, two),
        one.open("GET", CHANGES) as reader,
        two.open("GET", CHANGES) as another,
    ):
        async with other_server() as other:
            for each in (reader, another):
                await each.until("run")
            other.kill()
        for each in (reader, another):
            await each.until("run")

    assert read_ends() == [DEAD_RUN]


async def test_a_command_that_opens_the_store_writes_the_end_of_a_run(
    shared: dict[str, Any],
) -> None:
    async with other_server() as other:
        other.kill()
    for _ in range(2):
        done = await asyncio.to_thread(CliRunner().invoke, cli, ["operate", "threads", "list"])
        assert done.exit_code == 0, done.output

    assert read_ends() == [DEAD_RUN]
