"""`copilot-runtime serve --workers`: several processes at one port, any of which does anything."""

import asyncio
import logging
import os
import re
import signal
import socket
import sys
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from select import select
from tempfile import TemporaryDirectory

import pytest
from prometheus_client.parser import text_string_to_metric_families

from copilot_runtime.cli import workers
from copilot_runtime.cli.workers import set_port
from tests.processes import Output, Program, finished, running
from tests.wire_agui.http import Browser, text_of, user

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[3]
CONNECTIONS = 6
"""Requests on connections of their own: the system spreads them over the workers."""


@pytest.fixture
def short_path() -> Iterator[Path]:
    """Return a folder whose path is short enough for sockets."""
    with TemporaryDirectory() as name:
        yield Path(name)


@pytest.fixture
def environ(request: pytest.FixtureRequest, short_path: Path) -> Mapping[str, str]:
    """Return variables of a server; a test may add some as a parameter."""
    more: Mapping[str, str] = getattr(request, "param", {})
    threads = {"COPILOT_THREADS": "sqlite:threads.db", "TMPDIR": str(short_path)}
    return {**os.environ, **threads, **more}


@pytest.fixture
def program(tmp_path: Path, environ: Mapping[str, str]) -> Iterator[Program]:
    target = f"{ROOT}/tests/extensions/cluster/clock.py:runtime"
    words = [sys.executable, "-m", "copilot_runtime", "serve", target, "--workers", "2"]
    words += ["--port", "0", "--path", "/copilotkit"]
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
    for child in list_workers(program):
        os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("environ", [{"COPILOT_WORKER_TIMEOUT": "3"}], indirect=True)
async def test_a_worker_that_hangs_is_replaced_and_the_stream_of_the_other_goes_on(
    program: Program, browser: Browser
) -> None:
    async with browser.running(thread="t") as asked:
        own = int((await asked.until("TEXT_MESSAGE_CONTENT"))["delta"].removesuffix(": "))
        (other,) = {*list_workers(program)} - {own}
        os.kill(other, signal.SIGSTOP)
        found = program.errors.until(
            rf"Worker (\d) \(process {other}\) has not answered for 3 seconds: it is killed, .*\n"
            r"(?:.*\n)*?.*Worker \1 \(process \d+\) ended with SIGKILL; another is started.*\n"
            r"(?:.*\n)*?.*Worker \1 is process (\d+) now"
        )
        answers = [await browser.ask("GET", "/info") for _ in range(CONNECTIONS)]
        after = list_workers(program)
        await asked.until("TEXT_MESSAGE_CONTENT")
        await browser.stop("t")
        end = (await asked.rest())[-1]

    assert {answer.status for answer in answers} == {200}
    assert {*after} == {own, int(found[2])}
    assert end["type"] == "RUN_ERROR"


_HANGS = """
import os, signal, time

from starlette.applications import Starlette
from starlette.routing import Route

{more}

def wait_for_the_database():
    print("hangs", os.getpid(), flush=True)
    time.sleep(100)

async def hang(request):
    wait_for_the_database()

app = Starlette(routes=[Route("/hang", hang)])
"""
"""A program with a function that waits without `await`."""


@contextmanager
def serve_by_workers(
    folder: Path, *, more: str = "", log: str = "&2", **environ: str
) -> Generator[tuple[Program, int]]:
    """Serve a program that hangs when it is told, and return it with its port."""
    (folder / "hangs.py").write_text(_HANGS.format(more=more))
    serve = [sys.executable, "-m", "copilot_runtime", "serve", "hangs.py:app", "--workers", "2"]
    words = ["sh", "-c", f'exec "$@" 2>{log}', "sh", *serve, "--port", "0"]
    all_environ = {**os.environ, "COPILOT_THREADS": "sqlite:threads.db", **environ}
    with running(words, cwd=folder, env=all_environ) as program:
        yield program, int(program.until(r"http://127.0.0.1:(\d+)")[1])


def ask(port: int, path: str) -> socket.socket:
    """Send a request, over a connection of its own, that is not answered yet."""
    client = socket.create_connection(("127.0.0.1", port))
    client.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    return client


def test_the_log_says_where_a_worker_hung(tmp_path: Path) -> None:
    with (
        serve_by_workers(tmp_path, COPILOT_WORKER_TIMEOUT="4") as (program, port),
        ask(port, "/hang"),
    ):
        hung = program.until(r"hangs (\d+)")[1]
        program.errors.until(
            r'File ".*/hangs.py", line \d+ in wait_for_the_database\n'
            r'  File ".*/hangs.py", line \d+ in hang\n(?:.*\n)*'
            rf".*Worker \d \(process {hung}\) has not answered for 4 seconds: it is killed, and "
            r"the stacks above show where it hung, unless it was stopped\n(?:.*\n)*"
            rf".*\(process {hung}\) ended with SIGKILL; another is started"
        )
        program.errors.until(r"Worker \d is process \d+ now")


def test_a_worker_that_hangs_is_killed_even_if_its_stacks_are_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log")
    reader = os.open(tmp_path / "log", os.O_RDONLY | os.O_NONBLOCK)
    with (
        serve_by_workers(tmp_path, log="log", COPILOT_WORKER_TIMEOUT="4") as (program, port),
        ask(port, "/hang"),
    ):
        hung = os.pidfd_open(int(program.until(r"hangs (\d+)")[1]))
        fill_pipe(tmp_path / "log")
        dead, *_ = select([hung], [], [], 60)
        os.close(hung)
        os.set_blocking(reader, True)
        log = Output(reader)
        log.until("ended with SIGKILL; another is started")

    log.drain()
    os.close(reader)
    assert dead


def fill_pipe(path: Path) -> None:
    """Write into a pipe until no byte more has room."""
    writer = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    for size in (4096, 1):
        with suppress(BlockingIOError):
            while True:
                os.write(writer, b"\n" * size)
    os.close(writer)


def test_sigusr1_prints_the_stacks_of_a_worker_which_goes_on(tmp_path: Path) -> None:
    with serve_by_workers(tmp_path) as (program, _):
        before = list_workers(program)
        for worker in [*before, *before]:
            os.kill(worker, signal.SIGUSR1)
            program.errors.until(r"thread 0x.*(?:\n.*)* in _run_module_as_main\n")
        after = list_workers(program)

    assert before == after


def test_sigusr1_of_a_worker_still_calls_the_handler_of_the_application(tmp_path: Path) -> None:
    handler = "signal.signal(signal.SIGUSR1, lambda *_: print('handled', flush=True))"
    with serve_by_workers(tmp_path, more=handler) as (program, _):
        (worker, _) = list_workers(program)
        for _ in range(2):
            os.kill(worker, signal.SIGUSR1)
            program.until("handled")
            program.errors.until(" in _run_module_as_main\n")


async def test_workers_are_replaced_one_after_the_other(program: Program, browser: Browser) -> None:
    os.kill(int(program.until(r"kill -HUP (\d+) replaces")[1]), signal.SIGHUP)
    numbers = {program.errors.until(r"Worker (\d) is process \d+ now")[1] for _ in range(2)}
    health = await browser.ask("GET", "/info")
    metrics = await scrape(browser)

    assert (numbers, health.status) == ({"1", "2"}, 200)
    assert metrics.up == {"1": 1, "2": 1}


def test_the_port_of_workers_is_named_once() -> None:
    words = ["serve", "--port", "0", "main:runtime", "--port=80", "--workers", "2"]
    assert set_port(words, 8000) == ["serve", "main:runtime", "--workers", "2", "--port", "8000"]


def test_a_program_that_does_not_start_ends_all_workers(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "copilot_runtime", "serve", "nothing.py:app", "--workers", "2"]
    environ = {**os.environ, "COPILOT_THREADS": "sqlite:threads.db"}
    with running([*words, "--port", "0"], cwd=tmp_path, env=environ) as program:
        code = program.wait()

    assert code == 1
    assert re.search("nothing.py", program.errors.text())


def test_workers_that_take_long_to_start_end_with_their_parent(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("import time\nprint('loads', flush=True)\ntime.sleep(1e6)\n")
    words = [sys.executable, "-m", "copilot_runtime", "serve", "slow.py:app", "--workers", "2"]
    environ = {**os.environ, "COPILOT_THREADS": "sqlite:threads.db"}
    with running([*words, "--port", "0"], cwd=tmp_path, env=environ) as program:
        program.until("loads")
        program.process.terminate()

        assert program.wait() == 0


_WORKER = """#!{python} -S
import os, sys
ready = int(os.environ["{variable}"].partition(":")[2])
if first := not os.path.exists("{folder}/gone"):
    os.rename(__file__, "{folder}/gone")
os.write(ready, b"ready")
os.close(ready)
sys.exit(first or sys.stdin.read())
"""
"""A worker whose program is gone after its first start."""


async def test_a_worker_that_cannot_be_started_is_started_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(workers, "_PAUSES", (0, 0))
    program = tmp_path / "worker"
    program.write_text(
        _WORKER.format(python=sys.executable, variable=workers.WORKER, folder=tmp_path)
    )
    program.chmod(0o700)

    class Administrator(logging.Handler):
        """Brings the program back, and ends all once it runs."""

        def emit(self, record: logging.LogRecord) -> None:
            if "cannot be started" in record.msg and not program.exists():
                program.write_text((tmp_path / "gone").read_text())
                program.chmod(0o700)
            elif "is process" in record.msg:
                os.kill(os.getpid(), signal.SIGTERM)

    caplog.set_level("INFO", workers.__name__)
    monkeypatch.setattr(workers.logger, "handlers", [Administrator()])
    parent = workers.Workers([str(program)], 1, environ={}, grace=5, timeout=60)
    async with asyncio.timeout(30):
        assert await parent.run() == 0


def test_a_second_server_is_refused_though_no_worker_of_the_first_listens_yet(
    tmp_path: Path,
) -> None:
    os.mkfifo(tmp_path / "gate")
    (tmp_path / "slow.py").write_text("print('importing', flush=True)\nopen('gate').read()\n")
    (tmp_path / "quick.py").write_text("app = None\n")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environ = {**os.environ, "COPILOT_THREADS": "sqlite:threads.db"}
    words = [
        sys.executable,
        "-m",
        "copilot_runtime",
        "serve",
        "--workers",
        "2",
        "--port",
        str(port),
    ]
    with running([*words, "slow.py:app"], cwd=tmp_path, env=environ) as first:
        first.until("importing")
        second = finished([*words, "quick.py:app"], cwd=tmp_path, env=environ)
        first.process.terminate()  # which ends its workers, too
        first.wait()

    assert second.returncode == 1
    assert f"Port {port} on 127.0.0.1 is in use." in second.stderr


async def test_any_worker_has_the_chart_of_another(
    tmp_path: Path, environ: Mapping[str, str]
) -> None:
    (tmp_path / "sales.csv").write_text("region,amount\nnorth,10\nsouth,20\n")
    (tmp_path / "copilot.yml").write_text("analyst: {name: analyst, data: [sales.csv]}\n")
    words = [sys.executable, "-m", "copilot_runtime", "serve", "--workers", "2", "--port", "0"]
    with running(words, cwd=tmp_path, env={**environ, "OPENAI_API_KEY": ""}) as program:
        port = int(program.until(r"runtimeUrl  http://127.0.0.1:(\d+)/")[1])
        browser = Browser(port, "/graphql")
        answer = await browser.run(agent="analyst", messages=[user("Chart of amount by region")])
        [chart] = {
            event["content"]["id"]
            for event in answer.events()
            if event.get("activityType") == "analyst-chart"
        }
        path = f"/analyst/charts/{chart}.json"
        found = [(await browser.ask("GET", path)).status for _ in range(CONNECTIONS)]

    assert found == [200] * CONNECTIONS


def test_workers_start_at_the_port_of_a_server_that_has_just_ended(tmp_path: Path) -> None:
    port = end_connection()
    words = [sys.executable, "-m", "copilot_runtime", "serve", "--workers", "2"]
    environ = {**os.environ, "COPILOT_THREADS": "sqlite:threads.db", "OPENAI_API_KEY": ""}
    with running([*words, "--port", str(port)], cwd=tmp_path, env=environ) as program:
        found = program.until(r"runtimeUrl  http://127.0.0.1:(\d+)/")

    assert int(found[1]) == port


def end_connection() -> int:
    """Return the port of a server without workers that ended its connection, and then itself."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            accepted, _ = server.accept()
            accepted.close()
            client.recv(1)
    return port


def kill_at_once(process: int) -> None:
    """Kill a process, and wait until the system has closed its sockets."""
    descriptor = os.pidfd_open(process)
    os.kill(process, signal.SIGKILL)
    select([descriptor], [], [])
    os.close(descriptor)


def list_workers(program: Program) -> Sequence[int]:
    """Return the ids of the processes."""
    parent = program.process.pid
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [*map(int, children)]


async def test_metrics_are_those_of_all_workers_whichever_of_them_answers(browser: Browser) -> None:
    for number in range(CONNECTIONS):
        await stop_a_run(browser, f"t-{number}")
    while sum((await scrape(browser)).runs.values()) < CONNECTIONS:
        pass  # a run is counted just after its last event
    pages = [await scrape(browser) for _ in range(CONNECTIONS)]

    assert [page.up for page in pages] == [{"1": 1, "2": 1}] * CONNECTIONS
    assert [page.runs for page in pages] == [pages[0].runs] * CONNECTIONS
    assert pages[0].runs.keys() == {"1", "2"}
    assert sum(pages[0].runs.values()) == CONNECTIONS


async def test_the_metrics_of_a_worker_that_died_begin_anew_and_those_of_the_others_go_on(
    program: Program, browser: Browser
) -> None:
    for number in range(CONNECTIONS):
        await stop_a_run(browser, f"t-{number}")
    while sum((before := await scrape(browser)).runs.values()) < CONNECTIONS:
        pass
    program.process.send_signal(signal.SIGSTOP)  # so that nobody starts another one yet
    kill_at_once(list_workers(program)[0])
    without = await scrape(browser)
    program.process.send_signal(signal.SIGCONT)
    dead = program.errors.until(r"Worker (\d) is process \d+ now")[1]
    after = await scrape(browser)

    (other,) = {"1", "2"} - {dead}
    assert without == Metrics({dead: 0, other: 1}, {other: before.runs[other]})
    assert after == Metrics({"1": 1, "2": 1}, {dead: 0, other: before.runs[other]})


async def test_a_worker_that_hangs_is_left_out_of_the_metrics(
    browser: Browser, short_path: Path
) -> None:
    with silence(short_path, worker=2):
        while all((page := await scrape(browser)).up.values()):
            pass  # worker 2 has its own metrics

    assert (page.up, page.runs.keys()) == ({"1": 1, "2": 0}, {"1"})


@contextmanager
def silence(folder: Path, worker: int) -> Generator[None]:
    """Let a socket that never answers be where the metrics of a worker are."""
    (place,) = folder.glob(f"copilot-workers-*/{worker}")
    place.unlink()
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(place))
        silent.listen()
        yield


@dataclass(frozen=True, slots=True)
class Metrics:
    """Which workers answered, and how many runs were stopped at each."""

    up: Mapping[str, float]
    runs: Mapping[str, float]


async def scrape(browser: Browser) -> Metrics:
    """Return what Prometheus reads over a connection of its own."""
    page = await Browser(browser.where, base="").ask("GET", "/metrics")
    assert page.status == 200
    families = [*text_string_to_metric_families(page.body.decode())]
    names = [family.name for family in families]
    assert len(set(names)) == len(names)
    samples = [sample for family in families for sample in family.samples]
    assert [sample.labels.get("worker") for sample in samples].count(None) == 1  # target_info
    return Metrics(
        {it.labels["worker"]: it.value for it in samples if it.name == "copilot_worker_up"},
        {
            it.labels["worker"]: it.value
            for it in samples
            if it.labels.get("copilot_run_outcome") == "stopped"
        },
    )


async def stop_a_run(browser: Browser, thread: str) -> None:
    async with browser.running(thread=thread) as asked:
        await asked.until("TEXT_MESSAGE_CONTENT")
        await browser.stop(thread)
        await asked.rest()
