"""A store in a file and one in memory never differ, whatever is done to them."""

import asyncio
import tempfile
from collections.abc import Callable
from contextlib import aclosing as closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from copilot_runtime import CopilotRuntime, ScriptedAdapter, Settings
from copilot_runtime.adapters.scripted import Gate, say
from copilot_runtime.api.events import TextMessageStart
from copilot_runtime.base.errors import Misuse, StoreFailed, ThreadBusy
from copilot_runtime.threads.memory import MemoryThreads
from copilot_runtime.threads.sqlite import SqliteThreads
from copilot_runtime.threads.store import Segment, ThreadKey, ThreadQuery, ThreadStore
from tests.in_one_test import in_one_test
from tests.threads.recorded import log_of, run_of, user
from tests.wire.client import chat
from tests.wire_agui.http import Browser, text_of
from tests.wire_agui.server import PATH, Parrot, serving

pytestmark = pytest.mark.anyio

_ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["begin", "piece", "end", "rename", "archive", "delete", "list"]),
        st.sampled_from(["a", "b"]),
        st.sampled_from(["", "x"]),
        st.integers(0, 3),
    ),
    max_size=40,
)


@given(_ACTIONS)
def test_a_file_and_a_memory_never_differ(actions: list[tuple[str, str, str, int]]) -> None:
    async def both() -> None:
        with tempfile.TemporaryDirectory() as folder:
            async with (
                closing(SqliteThreads(Path(folder) / "threads.db")) as file,
                closing(MemoryThreads()) as memory,
            ):
                seen = [await played(store, actions) for store in (file, memory)]
        assert seen[0] == seen[1]

    asyncio.run(both())


async def played(store: ThreadStore, actions: list[tuple[str, str, str, int]]) -> list[object]:
    """Do all this, and return what was seen: all but the times."""
    seen: list[object] = []
    for step, (action, id, owner, number) in enumerate(actions):
        key = ThreadKey(owner, id)
        name = f"{owner}-{id}"
        try:
            seen.append(await _one(store, action, key, name, number, step))
        except (ThreadBusy, Misuse) as error:
            seen.append(type(error))
        seen.append(
            [(run.log_id, run.run_id, run.ended, run.events) for run in await store.runs(key)]
        )
    return seen


async def _one(
    store: ThreadStore, action: str, key: ThreadKey, name: str, number: int, step: int
) -> object:
    match action:
        case "begin":
            messages = [user(f"u{place}") for place in range(number + 1)]
            return await store.begin(run_of(key, run_id=f"{step}", log_id=name, messages=messages))
        case "piece":
            return await store.write(
                [Segment(log_id=name, events=[TextMessageStart(message_id="m")])]
            )
        case "end":
            whole = log_of(run_of(key, run_id=f"u{number}"))
            return await store.write([Segment(log_id=name, events=whole[-1:], whole=whole)])
        case "rename":
            thread = await store.update(key, name=str(number or ""))
            return thread and (thread.name, thread.archived, thread.agent)
        case "archive":
            thread = await store.update(key, archived=number > 1)
            return thread and (thread.name, thread.archived, thread.agent)
        case "delete":
            return await store.delete(key)
        case _:
            query = ThreadQuery(owner=key.owner, archived=number > 1, limit=1)
            return [thread.key for thread in (await store.list(query)).threads]


async def test_a_thread_that_another_server_deletes_stays_deleted_when_its_answer_ends(
    tmp_path: Path,
) -> None:
    # servers that cannot reach each other: else the answer would end
    settings = Settings(threads=f"sqlite:{tmp_path / 'threads.db'}", carrier="none")
    gate = Gate()
    answering = CopilotRuntime(Parrot("one", " two", gate=gate), settings=settings)
    deleting = CopilotRuntime(Parrot("new"), settings=settings)
    async with (
        serving(answering.app(path=PATH)) as here,
        serving(deleting.app(path=PATH)) as there,
        Browser(here).running() as exchange,
    ):
        gate.release(2)
        await exchange.until("TEXT_MESSAGE_CONTENT")
        await Browser(there).ask("DELETE", "/threads/t", {"agentId": "default"})
        gate.release(10)
        events = await exchange.rest()
        listed = [
            await Browser(port).ask("GET", "/threads?agentId=default") for port in (here, there)
        ]
        replayed = [(await Browser(port).connect()).events() for port in (here, there)]
        await Browser(there).run(run="r2")
        anew = await Browser(here).connect()

    assert text_of(events) == "one two"  # who asked gets the answer
    assert [answer.json()["threads"] for answer in listed] == [[], []]
    assert replayed == [[], []]
    assert text_of(anew.events()) == "new"


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
