"""Who watches a server: whether its process goes on, and whether it should get requests."""

import json
import os
import signal
import sys
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from starlette.testclient import TestClient

from copilot_runtime import CopilotRuntime, Settings
from copilot_runtime.adapters.openai import OpenAIAdapter
from copilot_runtime.adapters.provider_health import ProviderHealth
from copilot_runtime.errors import AuthenticationFailed, Misuse, NetworkError, RateLimited
from copilot_runtime.testing import ScriptedAdapter
from copilot_runtime.threads.memory import MemoryThreads
from copilot_runtime.threads.store import Thread, ThreadKey
from tests.agents.planner.crew import wait_until
from tests.peers.redis_server import redis_server
from tests.processes import running
from tests.threads.conftest import cluster, database

__all__ = ["cluster", "database"]


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


@pytest.mark.anyio
async def test_a_store_of_limits_that_is_gone_is_named_until_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("copilot_runtime.security.limits.redis._PAUSE", 0.0)
    with redis_server() as redis:
        limits = {"store": redis.url, "requests_per_user": "5/minute"}
        settings = Settings.model_validate({"threads": "memory", "limits": limits})
        runtime = CopilotRuntime(ScriptedAdapter(), settings=settings)
        find = runtime._find_problems  # pyright: ignore[reportPrivateUsage]
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
                assert "carrier" in runtime._find_problems()  # pyright: ignore[reportPrivateUsage]
