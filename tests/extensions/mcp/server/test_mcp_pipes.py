"""`copilot-runtime develop mcp`, as a desktop program starts it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from mcp import StdioServerParameters

from tests.extensions.mcp.server.clients import over_pipes, text_of
from tests.processes import finished, running

ROOT = Path(__file__).parents[4]
COMMAND = [sys.executable, "-m", "copilot_runtime", "develop", "mcp"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
MODULE = """
from tests.transports.served import Slow, runtime_of

print("I am loaded")
runtime = runtime_of()
app = runtime.app()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "main.py").write_text(MODULE)
    return tmp_path


def program(folder: Path) -> StdioServerParameters:
    arguments = [*COMMAND[1:], "main:runtime"]
    environment = {**ENVIRONMENT, "COPILOT_THREADS": "sqlite:threads.db"}
    return StdioServerParameters(
        command=COMMAND[0], args=arguments, env=environment, cwd=str(folder)
    )


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {"__pycache__"}


@pytest.mark.anyio
async def test_a_program_that_starts_it_may_use_actions_and_agents(folder: Path) -> None:
    async with over_pipes(program(folder)) as session:
        tools = (await session.list_tools()).tools
        added = text_of(await session.call_tool("add", {"a": 2}))
        said = text_of(await session.call_tool("ask_echo", {"message": "Hi"}))
    assert (len(tools), added, said) == (9, "3", "You said Hi")


@pytest.mark.anyio
async def test_nothing_is_stored_on_disk(folder: Path) -> None:
    async with over_pipes(program(folder)) as session:
        await session.call_tool("ask_echo", {"message": "Hi"})
    assert files(folder) == {"main.py"}


def test_it_ends_with_the_other_side(folder: Path) -> None:
    done = finished([*COMMAND, "main:runtime"], cwd=folder, env=ENVIRONMENT, given="no protocol\n")
    assert done.returncode == 0
    assert "I am loaded" not in done.stdout


def test_ctrl_c_ends_it_at_once(folder: Path) -> None:
    command = [*COMMAND, "main:runtime"]
    with running(command, cwd=folder, env=ENVIRONMENT, stdin=subprocess.PIPE) as program:
        program.write(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
        program.until("\n")  # now it serves
        program.process.send_signal(signal.SIGINT)
        assert program.wait() == -signal.SIGINT


def test_an_application_cannot_be_served_this_way(folder: Path) -> None:
    done = finished([*COMMAND, "main:app"], cwd=folder, env=ENVIRONMENT)
    assert done.returncode == 1
    assert "Name the CopilotRuntime that it is made of." in done.stderr
