"""Files go with their thread, in whichever way it goes."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

from copilot_runtime import CopilotRuntime, ScriptedAdapter, Settings
from copilot_runtime.adapters.scripted import say
from copilot_runtime.cli.threads import threads
from copilot_runtime.extensions.knowledge import Knowledge
from copilot_runtime.extensions.knowledge.ingestion.documents import Document, read_document
from copilot_runtime.extensions.knowledge.settings import KnowledgeSettings
from copilot_runtime.storage import LocalStorage
from tests.extensions.knowledge.test_served import sign_in, wait_until_ready
from tests.extensions.knowledge.uploads.chat import CSV, ask, attach, find_files, question
from tests.extensions.knowledge.uploads.test_chat_files import Chat
from tests.extensions.knowledge.uploads.test_route import send
from tests.in_one_test import in_one_test

LONG = "t" * 200


class Place:
    """A folder with threads and knowledge, and servers of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.threads = f"sqlite:{folder}/threads.db"
        self.config = folder / "copilot.yml"
        self.config.write_text(
            f"knowledge:\n  storage: local:{folder}/knowledge\n  embedder: hashing\n"
        )

    def serve(self, retention: float = 0) -> TestClient:
        storage = LocalStorage(self.folder / "knowledge")
        knowledge = Knowledge(storage, embedder="hashing", settings=KnowledgeSettings())
        runtime = CopilotRuntime(
            ScriptedAdapter(*[say("Well.") for _ in range(9)]),
            knowledge=knowledge,
            authenticate=sign_in,
            settings=Settings(threads=self.threads, thread_retention=retention),
        )
        return TestClient(runtime.app())

    def expire(self, days: int, *more: str) -> str:
        """Run the command, and return what it prints."""
        arguments = ["expire", "--days", str(days), "--config", str(self.config), *more]
        result = CliRunner().invoke(threads, arguments, env={"COPILOT_THREADS": self.threads})
        assert result.exit_code == 0, result.output
        return result.output

    def stored(self) -> list[str]:
        """Return the names of files that say anything of an upload."""
        return find_files(self.folder / "knowledge", b"41 crowns")

    def fill(self, *names: str) -> None:
        with self.serve() as client:
            wait_until_ready(client)
            for name in names:
                ask(client, question("quince?", attach(CSV, "a.csv")), thread=name, run=f"r{name}")
        assert self.stored() != []


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_the_command_that_expires_threads_deletes_their_files(place: Place) -> None:
    place.fill("t1", LONG)
    place.expire(0, "--dry-run")
    assert place.stored() != []
    printed = place.expire(0)

    assert "Deleted 2 threads." in printed
    assert "Deleted 2 files of deleted threads." in printed
    assert place.stored() == []


def test_files_of_living_threads_stay(place: Place) -> None:
    place.fill("t1", LONG)
    before = place.stored()

    assert "Deleted 0 threads." in place.expire(1)
    assert place.stored() == before


def test_another_store_does_not_judge_files(place: Place) -> None:
    place.fill("t1")
    before = place.stored()
    other = f"sqlite:{place.folder}/other.db"
    with TestClient(
        CopilotRuntime(ScriptedAdapter(say("x")), settings=Settings(threads=other)).app()
    ):
        pass
    place.expire(0, "--store", other)

    assert place.stored() == before


def test_a_server_with_a_retention_deletes_them_when_it_starts(place: Place) -> None:
    place.fill("t1", LONG)
    with place.serve(retention=0.001) as client:
        wait_until_ready(client)
        began = time.monotonic()
        while place.stored() and time.monotonic() - began < 20:
            time.sleep(0.02)

    assert place.stored() == []


def test_deleted_over_one_server_they_are_gone_for_the_other(place: Place) -> None:
    with place.serve() as one, place.serve() as other:
        wait_until_ready(one)
        wait_until_ready(other)
        ask(one, question("quince?", attach(CSV, "a.csv")), thread="t1")
        answer = other.delete("/graphql/threads/t1", headers={"x-user": "ann"})
        search = "/graphql/knowledge/search?q=quince"
        left = [it.get(search, headers={"x-user": "ann"}).json() for it in (one, other)]

    assert answer.is_success
    assert place.stored() == []
    assert left == [{"results": []}] * 2


LARGE = CSV * 5000
"""More than the slot for small files takes."""


class Readers:
    """Readers of files that wait for a word, and note which file they begin."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self._turns = threading.Semaphore(0)
        self._change = threading.Condition()

    def read(self, data: bytes, name: str, *, sandboxed: bool) -> Document:
        with self._change:
            self.begun.append(name)
            self._change.notify_all()
        self._turns.acquire(timeout=30)
        return read_document(data, name, sandboxed=sandboxed)

    def end(self, count: int) -> None:
        """Let so many files be read to their end."""
        self._turns.release(count)

    def wait_for(self, count: int) -> list[str]:
        """Return what was begun, in its order, once that are so many."""
        with self._change:
            assert self._change.wait_for(lambda: len(self.begun) >= count, 30)
            return [*self.begun]


@pytest.fixture
def readers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Readers]:
    made = Readers()
    monkeypatch.setattr(
        "copilot_runtime.extensions.knowledge.uploads.uploads.read_document", made.read
    )
    yield made
    made.end(1000)


def test_the_next_file_is_that_of_another_and_of_ones_own_the_smallest(readers: Readers) -> None:
    with Chat().serve() as client:
        for number, name in enumerate(("a1.csv", "a2.csv", "a3.csv", "a4.csv")):
            assert send(client, LARGE + CSV * (4 - number), name).status_code == 201
        readers.wait_for(2)
        assert send(client, LARGE, "b1.csv", user="bob").status_code == 201
        readers.end(1)
        readers.wait_for(3)
        readers.end(2)
        begun = readers.wait_for(5)
        readers.end(2)

    assert {*begun[:2]} == {"a1.csv", "a2.csv"}
    assert begun[2:] == ["b1.csv", "a4.csv", "a3.csv"]


@in_one_test("data", [CSV, LARGE])
def test_a_small_file_waits_for_no_files_of_another(readers: Readers, data: bytes) -> None:
    with Chat().serve() as client:
        for number in range(4):
            send(client, data + b"x,%d\n" % number, f"a{number}.csv")
        readers.wait_for(2)
        send(client, CSV, "b.csv", user="bob")
        begun = readers.wait_for(3)
        readers.end(5)

    assert begun[2] == "b.csv"


def test_a_file_that_is_deleted_while_it_waits_leaves_the_queue(readers: Readers) -> None:
    with Chat().serve() as client:
        for number in range(5):
            send(client, CSV + b"x,%d\n" % number, f"{number}.csv", thread=f"t{number}")
        readers.wait_for(2)
        for thread in ("t3", "t2"):
            client.delete(f"/graphql/threads/{thread}", headers={"x-user": "ann"})
        readers.end(1)
        begun = readers.wait_for(3)
        client.delete("/graphql/threads/t4", headers={"x-user": "ann"})
        readers.end(2)
        send(client, CSV, "last.csv")
        assert readers.wait_for(4)[3] == "last.csv"
        readers.end(1)

    assert begun[2] == "4.csv"


def test_too_many_files_of_one_user_are_to_come_later_and_those_of_others_come_now(
    readers: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("copilot_runtime.extensions.knowledge.uploads.uploads._MOST_JOBS", 2)
    with Chat(upload_files=2).serve() as client:
        for user in ("ann", ""):
            for thread in ("t1", "t2"):
                assert send(client, user=user, thread=thread).status_code == 201
        refused = [send(client, user=user, thread="t3") for user in ("ann", "")]
        bobs = send(client, user="bob", thread="t3")
        readers.end(5)

    assert [it.status_code for it in refused] == [429, 429]
    assert [it.headers["retry-after"] for it in refused] == ["10", "10"]
    answer = refused[0].json()
    assert (answer["error"], answer["message"]) == (
        "rate_limited",
        "Too many files of yours are read now: send it again later.",
    )
    assert bobs.status_code == 201


def test_a_question_with_too_many_files_says_so_to_the_model(
    readers: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("copilot_runtime.extensions.knowledge.uploads.uploads._MOST_JOBS", 1)
    chat = Chat(upload_files=1)
    with chat.serve() as client:
        send(client, CSV + b"x,1\n", thread="t2")
        readers.wait_for(1)
        ask(client, question("What does a quince cost?", attach(CSV)))
        readers.end(1)

    assert "it was not taken in. Too many files of yours are read now" in chat.prompt
