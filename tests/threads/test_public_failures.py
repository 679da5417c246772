"""What a browser learns of threads that cannot be used: no path, no address and no errno."""

from collections.abc import Callable
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from copilot_runtime import CopilotRuntime, ScriptedAdapter, Settings
from copilot_runtime.adapters.scripted import say
from copilot_runtime.base.errors import StoreFailed
from tests.in_one_test import in_one_test
from tests.wire.documents import chat

RUN = {"threadId": "t", "runId": "r", "messages": [], "tools": [], "context": [], "state": {}}


def no_database(folder: Path) -> str:
    (folder / "secret-place.db").write_text("no database at all, but long enough to be one" * 100)
    return f"sqlite:{folder / 'secret-place.db'}"


def a_folder(folder: Path) -> str:
    (folder / "secret-place.db").mkdir()
    return f"sqlite:{folder / 'secret-place.db'}"


def nothing_there(folder: Path) -> str:
    del folder
    return "postgresql://secret-user:secret-word@127.0.0.1:9/secret-place"


@in_one_test("place", [no_database, a_folder, nothing_there])
def test_a_browser_gets_no_path_no_address_and_no_errno(
    place: Callable[[Path], str],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("copilot_runtime.database.postgres.pool._PATIENCE", 0)

    def authenticate(_: object) -> str:
        raise StoreFailed("[Errno 111] 127.0.0.1 refused", public="Please come back later.")

    url = place(tmp_path)
    # not opened: a database goes away while a server runs
    client = TestClient(CopilotRuntime(ScriptedAdapter(say("Hi")), settings=settings(url)).app())
    answers = [
        client.post("/graphql/agent/default/run", json=RUN),
        client.post("/graphql/agent/default/connect", json=RUN),
        client.post("/graphql", json=chat()),
        *(client.get(f"/graphql/threads{path}") for path in ("", "/t/messages", "/t/events")),
        *(client.get(path) for path in ("/health", "/health/ready")),
    ]
    closed = CopilotRuntime(authenticate=authenticate, settings=settings("memory"))
    answers.append(TestClient(closed.app()).get("/graphql/threads"))
    texts = "".join(answer.text for answer in answers)

    assert "threads cannot be used" in texts
    assert "Please come back later." in texts
    for detail in ("secret", str(tmp_path), "127.0.0.1", "Errno", "errno"):
        assert detail not in texts
    assert "secret-place" in caplog.text
    assert "secret-word" not in caplog.text


def test_a_text_that_postgresql_does_not_take_is_wrong_and_no_failure_of_it(
    database: str, caplog: pytest.LogCaptureFixture
) -> None:
    runtime = CopilotRuntime(ScriptedAdapter(say("Hi")), settings=settings(database))
    with TestClient(runtime.app()) as client:
        client.post("/graphql/agent/default/run", json=RUN)
        caplog.clear()
        listed = client.get("/graphql/threads?agentId=%00")
        statuses = [
            client.post("/graphql/agent/default/stop/t", json={"runId": "\0"}).status_code,
            client.get("/graphql/threads?cursor=%00").status_code,
            client.patch("/graphql/threads/t", json={"name": "\0"}).status_code,
            client.get("/graphql/threads/%00/messages").status_code,
            client.post("/graphql/agent/default/run", json={**RUN, "threadId": "\0"}).status_code,
            client.post("/graphql/agent/default/run", json={**RUN, "runId": "\0"}).status_code,
        ]

    assert (listed.status_code, listed.json()["threads"]) == (200, [])
    assert statuses == [200, 400, 400, 200, 400, 400]
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def settings(threads: str) -> Settings:
    return Settings(threads=threads)
