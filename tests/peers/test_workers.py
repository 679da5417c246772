"""`copilot-runtime serve --workers`: several processes at one port, any of which does anything."""

import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes import Program, running
from tests.wire_agui.http import Browser, text_of

pytestmark = [pytest.mark.anyio, pytest.mark.whole]

ROOT = Path(__file__).parents[2]
CONNECTIONS = 6
"""Requests on connections of their own: the system spreads them over the workers."""


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    target = f"{ROOT}/tests/peers/clock.py:runtime"
    words = [sys.executable, "-m", "copilot_runtime", "serve", target, "--workers", "2"]
    words += ["--port", "0", "--path", "/copilotkit"]
    environ = {**os.environ, "COPILOT_THREADS": "sqlite:threads.db"}
    with running(words, cwd=tmp_path, env=environ) as program:
        yield program


@pytest.fixture
def browser(program: Program) -> Browser:
    return Browser(int(program.until(r"runtimeUrl  http://127.0.0.1:(\d+)/copilotkit")[1]))


async def test_any_worker_shows_and_stops_any_run(browser: Browser) -> None:
    async with browser.running(thread="t") as asked:
        await asked.until("TEXT_MESSAGE_CONTENT")
        for _ in range(CONNECTIONS):
            async with browser.connecting("t") as reader:
                await reader.until("TEXT_MESSAGE_CONTENT")
                await reader.until("TEXT_MESSAGE_CONTENT")
        stopped = await browser.stop("t")
        own = await asked.rest()
        replays = [(await browser.connect("t")).events() for _ in range(CONNECTIONS)]

    assert stopped["stopped"] is True
    assert own[-1]["type"] == "RUN_ERROR"
    assert {text_of(replay) for replay in replays} == {text_of(own)}


async def test_a_worker_that_dies_is_started_again(program: Program, browser: Browser) -> None:
    async with browser.running(thread="t") as asked:
        await asked.until("TEXT_MESSAGE_CONTENT")
        kill_all_workers(program)
        for _ in range(2):
            program.errors.until(r"Worker \d is process \d+ now")
        replay = (await browser.connect("t")).events()

    assert replay[-1]["code"] == "RUN_INTERRUPTED"


def kill_all_workers(program: Program) -> None:
    parent = program.process.pid
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    for child in children:
        os.kill(int(child), signal.SIGKILL)


async def test_workers_are_replaced_one_after_the_other(program: Program, browser: Browser) -> None:
    program.process.send_signal(signal.SIGHUP)
    numbers = {program.errors.until(r"Worker (\d) is process \d+ now")[1] for _ in range(2)}
    health = await browser.ask("GET", "/info")

    assert (numbers, health.status) == ({"1", "2"}, 200)


def test_a_program_that_does_not_start_ends_all_workers(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "copilot_runtime", "serve", "nothing.py:app", "--workers", "2"]
    environ = {**os.environ, "COPILOT_THREADS": "sqlite:threads.db"}
    with running([*words, "--port", "0"], cwd=tmp_path, env=environ) as program:
        code = program.wait()

    assert code == 1
    assert re.search("nothing.py", program.errors.text())
