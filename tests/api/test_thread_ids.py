"""The ids of threads in agents elsewhere: a person's is one that nobody else can name."""

import sqlite3
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4, uuid5

import pytest
from starlette.requests import HTTPConnection
from starlette.testclient import TestClient

from copilot_runtime import CopilotRuntime, Settings
from copilot_runtime.api import Caller, RunInput
from copilot_runtime.api.events import Event
from copilot_runtime.api.hooks import Hooks
from copilot_runtime.api.run_input import ThreadIds
from copilot_runtime.base.errors import ConfigurationFailed, StoreFailed
from copilot_runtime.extensions.settings import load_settings
from copilot_runtime.threads.memory import MemoryThreads
from copilot_runtime.threads.sqlite import SqliteThreads
from tests.in_one_test import in_one_test
from tests.threads.recorded import run_of, told

pytestmark = pytest.mark.anyio

PUBLIC = UUID("5d0f3b0e-3c53-4b1c-9a3e-7f2f0f1d6a10")
ASK = '{ loadAgentState(data: {threadId: "%s", agentName: "far"}) { threadExists } }'


def computed(user: str, thread: str) -> str:
    """Return what anybody can compute who knows a user and a thread."""
    return str(uuid5(PUBLIC, f"{user}\0{thread}"))


class Far:
    """An agent that notes under which ids it would know threads."""

    def __init__(self) -> None:
        self.ids: list[str] = []

    async def run(self, run: RunInput) -> AsyncGenerator[Event, None]:
        self.ids.append(run.private_thread_id)
        return
        yield

    async def load_state(self, thread_id: str, caller: Caller) -> None:
        del caller
        self.ids.append(thread_id)


def user_of(connection: HTTPConnection) -> str | None:
    return connection.headers.get("x-user")


Ask = Callable[..., str]


def server(
    threads: str, hook: Callable[[HTTPConnection], str | None] | None = user_of, **settings: Any
) -> Ask:
    """Return a function that sends a question and returns the id that an agent got."""
    far = Far()
    runtime = CopilotRuntime(
        agents={"far": far},
        authenticate=hook,
        settings=Settings(threads=threads, **settings),
    )

    def ask(thread: str, user: str | None = None, *, path: str = "run") -> str:
        headers = {"accept": "text/event-stream", **({"x-user": user} if user else {})}
        ids = {"threadId": thread, "runId": str(uuid4())}
        body = {**ids, "messages": [], "tools": [], "context": []}
        with TestClient(runtime.app(), headers=headers) as client:
            if path == "run":
                client.post("/graphql/agent/far/run", json={**body, "state": {}})
            else:
                client.post("/graphql", json={"query": ASK % thread})
        return far.ids.pop()

    return ask


@in_one_test("path", ["run", "state"])
@in_one_test("kept", ["memory", "sqlite"])
@in_one_test("spelling", [str, str.upper, "{{{}}}".format, "urn:uuid:{}".format])
def test_nobody_can_name_the_thread_of_a_user_at_an_agent(
    tmp_path: Path, kept: str, path: str, spelling: Callable[[str], str]
) -> None:
    ask = server("memory" if kept == "memory" else f"sqlite:{tmp_path / 'threads.db'}")
    of_ann = ask("t", "ann", path=path)

    for known in (of_ann, computed("ann", "t")):
        named = ask(spelling(known), path=path)
        assert not named.startswith(("{", "urn:"))
        assert UUID(named) not in (UUID(of_ann), UUID(known))


@in_one_test("path", ["run", "state"])
@in_one_test("kept", ["memory", "sqlite"])
def test_who_knows_a_user_and_a_thread_cannot_compute_its_id(
    tmp_path: Path, kept: str, path: str
) -> None:
    ask = server("memory" if kept == "memory" else f"sqlite:{tmp_path / 'threads.db'}")

    assert ask("t", "ann", path=path) != computed("ann", "t")
    assert ask("t", "ann") == ask("t", "ann", path=path) != ask("t", "bob") != ask("t") != "t"


def test_an_id_is_the_same_after_a_restart_and_on_other_servers(tmp_path: Path) -> None:
    file = f"sqlite:{tmp_path / 'threads.db'}"
    first = server(file)

    assert first("t", "ann") == server(file)("t", "ann") == first("t", "ann")
    assert first("t", "ann") != server(f"sqlite:{tmp_path / 'other.db'}")("t", "ann")


def test_the_setting_secret_counts_in_every_store(tmp_path: Path) -> None:
    secret = "a key of many letters"
    ids = {
        server(threads, secret=secret)("t", "ann")
        for threads in ("memory", f"sqlite:{tmp_path / 'threads.db'}")
    }

    assert len(ids) == 1
    assert ids != {computed("ann", "t")}
    assert server("memory", secret="a key of other letters")("t", "ann") not in ids


async def test_threads_that_agents_know_already_are_called_as_before(tmp_path: Path) -> None:
    path = tmp_path / "threads.db"
    store = SqliteThreads(path)
    await told(store, run_of())
    await store.aclose()
    with sqlite3.connect(path) as old:  # as the version before wrote it
        old.execute("DROP TABLE secret")
        old.execute("DROP TABLE checkpoints")
        old.execute("DROP TABLE deleted_runs")
        old.execute("DROP TABLE outbox")
        old.execute("PRAGMA user_version = 1")
    ask = server(f"sqlite:{path}")

    assert ask("t", "ann") == computed("ann", "t")
    assert ask("t") == "t"
    assert ask(computed("ann", "t")) not in ("t", computed("ann", "t"))


@in_one_test("secret", ["", "a key of many letters"])
def test_where_nobody_signs_in_a_thread_keeps_its_id(secret: str) -> None:
    assert server("memory", None, secret=secret)("t") == "t"
    assert server("memory", None, secret=secret)(computed("ann", "t")) == computed("ann", "t")


def test_a_secret_is_shown_nowhere() -> None:
    settings = Settings(threads="memory", secret="a key of many letters")
    with pytest.raises(ConfigurationFailed) as refused:
        load_settings(environ={"COPILOT_SECRET": "too-short"})

    assert "a key of" not in repr(settings)
    assert "COPILOT_SECRET" in str(refused.value)
    assert "too-short" not in str(refused.value)


def test_a_run_that_is_printed_shows_no_secret() -> None:
    run = RunInput(thread_id="t", run_id="r", messages=(), thread_ids=ThreadIds(True, b"very"))

    assert "very" not in repr(run)


def test_a_store_that_does_not_give_its_secret_is_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(MemoryThreads):
        async def secret(self) -> str:
            raise StoreFailed("The disk of /srv is gone.", public="The threads cannot be used.")

    errors: list[BaseException] = []
    runtime = CopilotRuntime(
        agents={"far": Far()},
        authenticate=user_of,
        threads=Broken(),
        hooks=Hooks(error=lambda error, context: errors.append(error)),
    )
    body = {"threadId": "t", "runId": str(uuid4()), "messages": [], "tools": [], "context": []}
    with TestClient(runtime.app()) as client:
        answer = client.post("/graphql/agent/far/run", json=body)

    assert "The threads cannot be used." in answer.text
    assert "/srv" not in answer.text
    assert [str(error) for error in errors] == ["The disk of /srv is gone."]
    assert "/srv" in caplog.text
