"""Who watches a server: whether its process goes on, and whether it should get requests."""

import asyncio
import json
import logging
import os
import resource
import signal
import sqlite3
import sys
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.request import urlopen
from uuid import uuid4

import pytest
from httpx import ASGITransport, AsyncClient
from starlette.testclient import TestClient

from copilot_runtime import CopilotRuntime, Settings
from copilot_runtime.adapters.errors import ProviderHealth
from copilot_runtime.adapters.openai import OpenAIAdapter
from copilot_runtime.adapters.scripted import say
from copilot_runtime.api import RunInput
from copilot_runtime.base.errors import AuthenticationFailed, Misuse, NetworkError, RateLimited
from copilot_runtime.database.sqlite.workers import Writer
from copilot_runtime.testing import Gate, ScriptedAdapter
from copilot_runtime.threads.memory import MemoryThreads
from copilot_runtime.threads.sqlite import SqliteThreads
from copilot_runtime.threads.store import Thread, ThreadKey
from tests.extensions.cluster.kills.proxy import Proxy
from tests.extensions.cluster.redis_server import redis_server
from tests.extensions.planner.crew import wait_until
from tests.in_one_test import in_one_test
from tests.processes import running
from tests.threads.cluster import Cluster


class CountingThreads(MemoryThreads):
    """Threads that count how often somebody looks."""

    looks = 0

    async def get(self, key: ThreadKey) -> Thread | None:
        self.looks += 1
        return await super().get(key)


def test_the_store_is_asked_once_a_second_whoever_asks() -> None:
    threads = CountingThreads()
    with TestClient(CopilotRuntime(ScriptedAdapter(), threads=threads).app()) as client:
        answers = [client.get("/health/ready").status_code for _ in range(50)]
    assert set(answers) == {200}
    assert threads.looks <= 2


class StuckThreads(MemoryThreads):
    """Threads of a store that cannot even be given up before it goes on."""

    looks = 0

    def __init__(self) -> None:
        super().__init__()
        self.goes_on = asyncio.Event()

    async def get(self, key: ThreadKey) -> Thread | None:
        self.looks += 1
        while not self.goes_on.is_set():
            with suppress(asyncio.CancelledError):
                await self.goes_on.wait()
        return await super().get(key)


async def probe(app: Any, count: int = 1) -> list[tuple[int, str]]:
    """Return what some that ask at the same time are told about the threads."""
    async with AsyncClient(transport=ASGITransport(app), base_url="http://test") as client:
        answers = await asyncio.gather(*(client.get("/health/ready") for _ in range(count)))
    return [(answer.status_code, answer.json()["threads"]) for answer in answers]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for shorter times than servers do."""
    monkeypatch.setattr("copilot_runtime.app.maintenance._HEALTH_TIMEOUT", 0.2)
    monkeypatch.setattr("copilot_runtime.app.asgi._PATIENCE", 0.3)
    monkeypatch.setattr("copilot_runtime.app.asgi._FRESH", 0.0)


@pytest.mark.anyio
@pytest.mark.usefixtures("impatient")
async def test_probes_share_one_look_and_none_waits_for_one_that_does_not_end() -> None:
    threads = StuckThreads()
    app = CopilotRuntime(ScriptedAdapter(), threads=threads).app()
    async with asyncio.timeout(10):
        found = [*await probe(app, 5), *await probe(app, 5)]
        assert (set(found), threads.looks) == ({(503, "unreachable")}, 1)
        threads.goes_on.set()
        while await probe(app) != [(200, "reachable")]:
            pass


@pytest.mark.anyio
@pytest.mark.usefixtures("impatient")
async def test_a_server_whose_database_hangs_says_soon_that_it_is_not_ready(
    database: str, cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = str(cluster.data.parent)
    way = Proxy(Path(folder, ".s.PGSQL.5432"))
    async with way.listening(tmp_path / ".s.PGSQL.5432"):
        settings = Settings(threads=database.replace(folder, str(tmp_path)))
        runtime = CopilotRuntime(ScriptedAdapter(), settings=settings)
        async with runtime.running():
            app = runtime.app()
            assert await probe(app) == [(200, "reachable")]
            way.state = "stalled"
            async with asyncio.timeout(10):
                for _ in range(5):
                    assert await probe(app, 3) == [(503, "unreachable")] * 3
                way.state = "open"
                while await probe(app) != [(200, "reachable")]:
                    pass
    assert caplog.text.count("The threads cannot be reached: TimeoutError") == 1
    assert "The threads can be reached again" in caplog.text


@pytest.mark.anyio
@pytest.mark.usefixtures("impatient")
async def test_a_server_whose_database_is_read_only_is_not_ready_and_its_log_says_so_once(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("copilot_runtime.threads.postgres.store._BEAT", 0.01)
    name = f"test_{uuid4().hex}"
    await cluster.execute(f"CREATE DATABASE {name}")
    settings = Settings(threads=cluster.url.replace("/postgres?", f"/{name}?"))
    runtime = CopilotRuntime(ScriptedAdapter(), settings=settings)
    app = runtime.app()
    states: list[str] = []
    async with runtime.running(), asyncio.timeout(20):
        await cluster.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        await cluster.execute(
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
        )
        while await probe(app) != [(503, "read-only")]:
            pass
        for _ in range(5):  # the signs of life fail meanwhile, and what reads does not
            states += [state for _, state in await probe(app, 3)]
            await asyncio.sleep(0.02)
        await cluster.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = off")
        while await probe(app) != [(200, "reachable")]:
            pass
        await wait_until(lambda: "can be written again" in caplog.text)

    assert set(states) == {"read-only"}
    hint = "is read-only: nothing can be stored. Name the primary"
    assert caplog.text.count(f"PostgreSQL (this machine/{name}) {hint}") == 1
    assert (
        caplog.text.count(" cannot be reached") == caplog.text.count(" can be reached again") <= 2
    )


@contextmanager
def few_pages(connection: sqlite3.Connection) -> Generator[None]:
    connection.execute("PRAGMA max_page_count = 1").fetchall()
    yield
    connection.execute("PRAGMA max_page_count = 1000000").fetchall()


@contextmanager
def short_files(connection: sqlite3.Connection) -> Generator[None]:
    """Let no file of this process grow."""
    del connection
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@contextmanager
def only_queries(connection: sqlite3.Connection) -> Generator[None]:
    connection.execute("PRAGMA query_only = 1")
    yield
    connection.execute("PRAGMA query_only = 0")


@pytest.mark.anyio
@pytest.mark.usefixtures("impatient")
@in_one_test(
    ("limit", "cause"),
    [
        (few_pages, "the disk is full. Make room"),
        (short_files, "the disk is full, or fails. Make room"),
        (only_queries, "they are read-only. Let the server's user write"),
    ],
)
async def test_a_server_whose_file_takes_no_question_is_not_ready_until_it_does(
    limit: Callable[[sqlite3.Connection], AbstractContextManager[None]],
    cause: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    threads = SqliteThreads(tmp_path / "threads.db")
    app = CopilotRuntime(ScriptedAdapter(*[say("Hi")] * 3), threads=threads).app()
    async with (
        app.router.lifespan_context(app),
        AsyncClient(transport=ASGITransport(app), base_url="http://test") as client,
    ):

        async def ask(number: int) -> str:
            messages = [{"id": f"u{number}", "role": "user", "content": "Hi " * 20_000}]
            run = {"threadId": "t", "runId": f"r{number}", "messages": messages}
            more = {"tools": [], "context": [], "state": {}}
            answer = await client.post("/graphql/agent/default/run", json={**run, **more})
            return answer.text

        await ask(1)
        file: Any = threads._database  # pyright: ignore[reportPrivateUsage]  # to limit its room
        writer: Writer = file.writer
        connection = await writer.do(lambda connection: connection)
        with limit(connection):
            assert await probe(app) == [(200, "reachable")]
            assert "STORE_FAILED" in await ask(2)
            states = [await probe(app) for _ in range(3)]
        ready = await probe(app)
        assert "RUN_FINISHED" in await ask(3)

    assert states == [[(503, "read-only")]] * 3
    assert ready == [(200, "reachable")]
    lines = [line for line in caplog.messages if line.startswith("SQLite (")]
    assert [cause in lines[0], lines[1:]] == [
        True,
        [f"SQLite ({threads.path}) can be written again"],
    ]


def test_a_process_lives_while_it_drains_and_while_it_closes() -> None:
    runtime = CopilotRuntime(ScriptedAdapter(), settings=Settings(threads="memory"))
    with TestClient(runtime.app()) as client:

        def ask() -> list[int]:
            paths = ("/health/live", "/health", "/health/ready", "/graphql/health/live")
            return [client.get(path).status_code for path in paths]

        assert ask() == [200, 200, 200, 200]
        runtime.runtime.is_draining = True
        assert ask() == [200, 200, 503, 200]
        runtime.runtime.is_closing = True
        assert ask() == [200, 503, 503, 200]
        assert client.head("/health/live").status_code == 200
        assert client.get("/health/live").content == b""


def get_ready(port: int) -> tuple[int, Any]:
    with closing(HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request("GET", "/health/ready")
        response = connection.getresponse()
        return response.status, json.loads(response.read())


def test_a_server_that_is_to_stop_says_so_before_it_takes_no_more(tmp_path: Path) -> None:
    environ = {**os.environ, "COPILOT_DRAIN_TIMEOUT": "600", "COPILOT_ADAPTER_NAME": "demo"}
    command = [sys.executable, "-m", "copilot_runtime", "serve", "--port", "0"]
    with running(command, env=environ, cwd=tmp_path) as server:
        port = int(server.until(r"runtimeUrl  http://127\.0\.0\.1:(\d+)")[1])
        assert get_ready(port)[0] == 200
        server.process.send_signal(signal.SIGTERM)
        server.errors.until("Draining for 600 seconds")
        assert get_ready(port)[0] == 503
        body = json.dumps({"method": "info"}).encode()
        with urlopen(f"http://127.0.0.1:{port}/graphql", data=body) as answer:
            assert answer.status == 200
        with urlopen(f"http://127.0.0.1:{port}/health/live") as answer:
            assert answer.status == 200
        server.process.send_signal(signal.SIGTERM)  # somebody is in a hurry
        assert server.process.wait(60) in (0, -signal.SIGTERM)


@pytest.mark.anyio
async def test_a_server_that_stops_says_how_many_answers_it_cuts_off(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gate = Gate()
    runtime = CopilotRuntime(ScriptedAdapter(say("Hello"), gate=gate))
    caplog.set_level(logging.DEBUG, "copilot_runtime")
    run = RunInput(thread_id="mine", run_id="r1", log_id="r1", messages=())
    await runtime.conversations.start_once(run)
    await gate.wait_for_event()
    await runtime.aclose()

    assert "Cut off 1 answer as RUN_INTERRUPTED" in caplog.messages
    assert "Cut off in thread mine: run r1" in caplog.messages


def test_a_provider_that_fails_again_and_again_is_named_and_the_server_stays_ready() -> None:
    nobody = "http://127.0.0.1:1/v1"
    adapter = OpenAIAdapter("m", base_url=nobody, api_key="k", max_retries=0)
    runtime = CopilotRuntime(adapter, settings=Settings(threads="memory"))
    with TestClient(runtime.app()) as client:
        for number in range(3):
            assert "failing" not in client.get("/health/ready").json()
            client.post("/graphql", json=build_run(f"r{number}"))
        answer = client.get("/health/ready")
    assert (answer.status_code, answer.json()["failing"]) == (200, ["provider"])


def build_run(id: str) -> Any:
    """Return a request of AG-UI."""
    message = {"id": f"u-{id}", "role": "user", "content": "Hi"}
    run = {"threadId": "t", "runId": id, "messages": [message], "tools": [], "context": []}
    more = {"state": {}, "forwardedProps": {}}
    return {"method": "agent/run", "params": {"agentId": "default"}, "body": run | more}


def test_only_what_is_the_providers_fault_counts_and_not_for_ever() -> None:
    now = 0.0
    health = ProviderHealth(lambda: now)
    for error in (Misuse("wrong"), RateLimited("slow down"), NetworkError("down")) * 2:
        health.record_failure(error)
    assert not health.is_failing
    health.record_failure(AuthenticationFailed("wrong key"))
    assert health.is_failing
    now = 61.0
    assert not health.is_failing
    now = 1.0
    health.record_success()
    assert not health.is_failing


def test_a_store_of_limits_that_is_away_at_the_start_is_named_before_anybody_asks(
    caplog: pytest.LogCaptureFixture,
) -> None:
    limits = {"store": "redis://127.0.0.1:1/0", "requests_per_user": "5/minute"}
    settings = Settings.model_validate({"threads": "memory", "limits": limits})
    app = CopilotRuntime(ScriptedAdapter(), settings=settings).app()
    with TestClient(app, base_url="http://127.0.0.1:8000") as client:
        ready = client.get("/health/ready").json()

    assert ready == {"status": "ready", "threads": "reachable", "failing": ["limits"]}
    [line] = [record.getMessage() for record in caplog.records]
    assert line.startswith("Limits cannot be counted and are not enforced: ")


@pytest.mark.anyio
async def test_a_store_of_limits_that_is_gone_is_named_until_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("copilot_runtime.extensions.access.limits.redis._PAUSE", 0.0)
    with redis_server() as redis:
        limits = {"store": redis.url, "requests_per_user": "5/minute"}
        settings = Settings.model_validate({"threads": "memory", "limits": limits})
        runtime = CopilotRuntime(ScriptedAdapter(), settings=settings)
        find = runtime.find_failing_checks
        async with runtime.running():
            find()
            await wait_until(lambda: "limits" in find())
            with redis.running():
                await wait_until(lambda: "limits" not in find())
            await wait_until(lambda: "limits" in find())


@pytest.mark.anyio
async def test_a_carrier_that_is_gone_is_named_and_the_server_stays_ready(database: str) -> None:
    with redis_server() as redis:
        settings = Settings(threads=database, carrier=redis.url)
        runtime = CopilotRuntime(ScriptedAdapter(), settings=settings)
        peers = runtime.conversations.peers
        assert peers is not None
        with redis.running() as program:
            async with runtime.running():
                assert peers.is_reachable
                program.process.kill()
                program.process.wait()
                await wait_until(lambda: not peers.is_reachable)
                assert "carrier" in runtime.find_failing_checks()


def test_a_carrier_that_was_not_there_at_the_start_is_named(tmp_path: Path) -> None:
    carrier = f"unix://{tmp_path / 'redis.sock'}"
    settings = Settings(threads=f"sqlite:{tmp_path / 'threads.db'}", carrier=carrier)
    runtime = CopilotRuntime(ScriptedAdapter(), settings=settings)
    with TestClient(runtime.app()) as client:
        answer = client.get("/health/ready")

    assert (answer.status_code, answer.json()["failing"]) == (200, ["carrier"])
