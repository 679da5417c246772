"""Whose file is read next, when many wait: at the route, and by the order in which they end."""

import threading
from collections.abc import Iterator

import pytest

from copilot_runtime.extensions.knowledge.ingestion.documents import Document, read_document
from tests.extensions.knowledge.uploads.chat import CSV, ask, attach, question
from tests.extensions.knowledge.uploads.test_chat_files import Chat
from tests.extensions.knowledge.uploads.test_route import send
from tests.in_one_test import in_one_test

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
        "copilot_runtime.extensions.knowledge.uploads.extraction.read_document", made.read
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
