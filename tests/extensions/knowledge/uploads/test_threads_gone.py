"""Files go with their thread, in whichever way it goes."""

import time
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

from copilot_runtime import CopilotRuntime, ScriptedAdapter, Settings
from copilot_runtime.adapters.scripted import say
from copilot_runtime.cli.threads import threads
from copilot_runtime.extensions.knowledge import Knowledge
from copilot_runtime.extensions.knowledge.settings import KnowledgeSettings
from copilot_runtime.storage import LocalStorage
from tests.extensions.knowledge.test_served import sign_in, wait_until_ready
from tests.extensions.knowledge.uploads.chat import CSV, ask, attach, question
from tests.extensions.knowledge.uploads.stored_files import find_files

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
    assert "Deleted 2 files of threads that are no more." in printed
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
