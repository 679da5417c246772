"""Files without a chat: what is stored when something goes wrong half-way."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from time import monotonic, sleep

import pytest

from copilot_runtime.base.errors import LimitExceeded
from copilot_runtime.extensions.knowledge import Knowledge
from copilot_runtime.extensions.knowledge.access import AccessAction, Actor
from copilot_runtime.extensions.knowledge.identifiers import Identifier
from copilot_runtime.extensions.knowledge.ingestion.documents import Document, read_document
from copilot_runtime.extensions.knowledge.policies import (
    Decision,
    Policy,
    build_actor,
    conversation_identifier,
)
from copilot_runtime.extensions.knowledge.resources import Resource
from copilot_runtime.extensions.knowledge.settings import KnowledgeSettings
from copilot_runtime.extensions.knowledge.uploads import uploads
from copilot_runtime.extensions.knowledge.uploads.queue import TooManyFiles
from copilot_runtime.extensions.knowledge.uploads.uploads import Upload
from copilot_runtime.storage import LocalStorage, MemoryStorage, Storage
from tests.extensions.knowledge.ingestion.office import make_xlsx
from tests.extensions.knowledge.ingestion.pdf import make_pdf
from tests.extensions.knowledge.library import WordCounter
from tests.extensions.knowledge.uploads.chat import CSV, PNG
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

ANN = build_actor("ann", "t1")
THREAD = conversation_identifier("ann", "t1")
TEXT = b"\n\n".join(b"Number %d of the long list is a quince." % n for n in range(2000))


def knowledge_in(storage: Storage, **more: object) -> Knowledge:
    settings = KnowledgeSettings.model_validate(more)
    return Knowledge(storage, embedder=WordCounter(), settings=settings)


async def add(knowledge: Knowledge, data: bytes = CSV, name: str = "a.csv") -> Upload:
    return await knowledge.uploads.add(data, name, THREAD, actor=ANN).task


async def list_stored(storage: Storage) -> list[str]:
    return [key for key in await storage.list() if "file.Upload" in key]


async def wait_for(knowledge: Knowledge) -> list[Upload]:
    """Wait until the server has started and reads no file."""
    began = monotonic()
    while monotonic() - began < 30:
        uploads = [*await knowledge.uploads.list(THREAD)]
        is_updating = knowledge.status().state == "updating"
        if not is_updating and all(it.state != "reading" for it in uploads):
            return uploads
        await asyncio.sleep(0.05)
    raise TimeoutError


async def test_a_file_is_found_by_its_owner_once_the_job_has_ended() -> None:
    knowledge = knowledge_in(MemoryStorage())
    upload = await add(knowledge)

    assert (upload.state, upload.chunks, upload.is_short) == ("searchable", 1, True)
    found = await knowledge.search("price quince", actor=ANN)
    assert [it.title for it in found] == ["a.csv"]
    assert await knowledge.search("price quince", actor=build_actor("eve")) == []
    assert await knowledge.uploads.forget(THREAD) == 1
    assert await knowledge.uploads.forget(THREAD) == 0
    assert await knowledge.search("price quince", actor=ANN) == []
    await knowledge.aclose()


async def test_of_a_long_file_a_model_reads_the_beginning_without_a_search() -> None:
    knowledge = knowledge_in(MemoryStorage())
    upload = await add(knowledge, TEXT, "list.txt")

    assert not upload.is_short
    assert 1 <= upload.first < upload.chunks
    assert len(upload.list_chunks()) == upload.first
    await knowledge.aclose()


async def test_a_file_of_an_office_program_is_searchable_and_says_what_is_not_read() -> None:
    knowledge = knowledge_in(MemoryStorage())
    rows = '<sheetData><row><c t="inlineStr"><is><t>quince</t></is></c></row></sheetData>'
    upload = await add(knowledge, make_xlsx({"Prices": rows, "-Notes": rows}), "prices.xlsx")

    assert (upload.state, upload.message) == (
        "searchable",
        "The hidden sheet '-Notes' is not read.",
    )
    await knowledge.aclose()


async def test_of_what_is_too_long_the_beginning_is_taken_in() -> None:
    knowledge = knowledge_in(MemoryStorage())
    long = b"\n\n".join(b"Chapter %d: " % n + b"word " * 350 for n in range(2100))
    upload = await add(knowledge, long, "book.txt")

    assert upload.chunks == 2000
    assert "Only its beginning" in upload.message
    await knowledge.aclose()


class Watched(MemoryStorage):
    """A storage that counts what is looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = 0

    async def find_by_prefix(self, prefix: str = "", delimiter: str = "") -> list[str]:
        found = await super().find_by_prefix(prefix, delimiter)
        self.seen += len(found)
        return found

    async def read_many(self, keys: Iterable[str]) -> dict[str, tuple[bytes, str]]:
        found = await super().read_many(keys)
        self.seen += len(found)
        return found


async def test_a_file_costs_the_same_in_a_large_knowledge_base() -> None:
    costs: list[tuple[int, int]] = []
    for size in (10, 1000):
        embedder = WordCounter()
        storage = Watched()
        knowledge = Knowledge(storage, embedder=embedder)
        await knowledge.resources.put_many(
            Resource(Identifier("common.Document", f"d{n}"), f"Page {n}") for n in range(size)
        )
        await knowledge.update([])
        storage.seen, before = 0, len(embedder.texts)
        assert (await add(knowledge)).state == "searchable"
        assert await knowledge.search("price quince", actor=ANN, limit=1)
        costs.append((storage.seen, len(embedder.texts) - before))
        await knowledge.aclose()

    assert costs[0] == costs[1]


async def test_what_is_added_meanwhile_is_not_taken_for_gone() -> None:
    knowledge = knowledge_in(MemoryStorage())
    updates = [asyncio.create_task(knowledge.update([])) for _ in range(3)]
    files = [CSV + b"x,%d\n" % n for n in range(5)]
    await asyncio.gather(*(add(knowledge, data) for data in files))
    await asyncio.gather(*updates)

    found = await knowledge.search("price quince", actor=ANN, limit=100, type="common.Chunk")
    assert len(found) == len(files)
    await knowledge.aclose()


async def test_files_that_wait_are_not_in_memory_and_too_many_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    released = threading.Event()

    def wait(data: bytes, name: str, *, sandboxed: bool) -> Document:
        released.wait(20)
        return read_document(data, name, sandboxed=sandboxed)

    monkeypatch.setattr("copilot_runtime.extensions.knowledge.uploads.uploads.read_document", wait)
    monkeypatch.setattr("copilot_runtime.extensions.knowledge.uploads.uploads._MOST_JOBS", 5)
    knowledge = knowledge_in(MemoryStorage(), upload_files=5)
    files = [CSV + b"x,%d\n" % n for n in range(6)]
    jobs = [knowledge.uploads.add(data, "a.csv", THREAD, actor=ANN) for data in files[:5]]
    while any(job.data for job in jobs):  # noqa: ASYNC110  # nothing tells when
        await asyncio.sleep(0)
    with pytest.raises(TooManyFiles):
        await add(knowledge, files[5])
    released.set()
    uploads = [await job.task for job in jobs]

    assert {it.state for it in uploads} == {"searchable"}
    await knowledge.uploads.forget(THREAD)
    assert (await add(knowledge, files[5])).state == "searchable"
    await knowledge.aclose()


async def test_a_scanner_looks_once_at_what_it_has_refused() -> None:
    seen: list[str] = []

    def refuse(data: bytes, name: str) -> str:
        seen.append(name)
        return "It has a virus."

    knowledge = Knowledge("memory", embedder=WordCounter(), scan=refuse)
    first, second = await add(knowledge), await add(knowledge)

    assert first == second
    assert seen == ["a.csv"]
    await knowledge.uploads.forget(THREAD)
    await add(knowledge)
    assert len(seen) == 2
    await knowledge.aclose()


async def test_of_refused_files_only_the_latest_are_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("copilot_runtime.extensions.knowledge.uploads.uploads._MOST_REFUSALS", 1)
    seen: list[str] = []
    knowledge = Knowledge(
        "memory", embedder=WordCounter(), scan=lambda data, name: seen.append(name) or "No."
    )
    for name in ("a.csv", "b.csv", "a.csv"):
        await add(knowledge, name=name)

    assert seen == ["a.csv", "b.csv", "a.csv"]
    await knowledge.aclose()


class Stuck(MemoryStorage):
    """A storage that stops before a write whose key has a word in it, as a killed server does."""

    def __init__(self, word: str) -> None:
        super().__init__()
        self.word = word
        self.reached = asyncio.Event()
        self.killed = asyncio.Event()

    async def put(self, key: str, data: bytes, *, expected: str | None = None) -> str:
        await self._stop(key)
        return await super().put(key, data, expected=expected)

    async def _stop(self, key: str) -> None:
        if self.word and self.word in key:
            self.reached.set()
            await self.killed.wait()
            raise OSError("killed")


async def test_a_file_whose_bytes_did_not_arrive_is_forgotten_by_the_next_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(uploads, "_ARRIVAL", -1)  # long ago
    storage = Stuck("uploads/")
    storage.killed.set()
    knowledge = knowledge_in(storage)
    with pytest.raises(OSError, match="killed"):
        await add(knowledge)
    assert len(await list_stored(storage)) == 1

    storage.word = ""
    await knowledge.uploads.resume()

    assert await list_stored(storage) == []
    assert (await add(knowledge)).state == "searchable"
    await knowledge.aclose()


class Torn(MemoryStorage):
    """A storage whose server is killed when it has written a resource, and no catalog of it."""

    is_torn = False

    async def append(self, key: str, data: bytes) -> None:
        if self.is_torn:
            raise OSError("killed")
        await super().append(key, data)


async def test_a_file_that_only_its_own_record_tells_of_is_forgotten_by_the_next_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(uploads, "_ARRIVAL", -1)  # long ago
    storage = Torn()
    assert (await add(knowledge_in(storage), PNG, "a.png")).state == "stored"
    storage.is_torn = True
    with pytest.raises(OSError, match="killed"):
        await add(knowledge_in(storage))
    assert len(await list_stored(storage)) == 3
    storage.is_torn = False
    knowledge = knowledge_in(storage)
    await knowledge.uploads.resume()

    assert [it.name for it in await knowledge.uploads.list(THREAD)] == ["a.png"]
    await knowledge.aclose()


async def test_a_file_that_another_server_is_storing_stays_when_one_starts() -> None:
    storage = Stuck("uploads/")
    storage.killed.set()
    knowledge = knowledge_in(storage)
    with pytest.raises(OSError, match="killed"):
        await add(knowledge)
    await knowledge.uploads.resume()

    assert len(await list_stored(storage)) == 1
    await knowledge.aclose()


async def test_a_file_that_no_server_stores_any_more_is_forgotten_without_another_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(uploads, "_ARRIVAL", 1)
    storage = Stuck("uploads/")
    storage.killed.set()
    knowledge = knowledge_in(storage)
    with pytest.raises(OSError, match="killed"):
        await add(knowledge)
    await knowledge.uploads.resume()
    await wait_for(knowledge)

    assert await list_stored(storage) == []
    await knowledge.aclose()


async def test_a_thread_that_is_deleted_while_its_file_is_stored_has_nothing_left() -> None:
    storage = Stuck("uploads/")
    knowledge = knowledge_in(storage)
    job = knowledge.uploads.add(CSV, "a.csv", THREAD, actor=ANN)
    await storage.reached.wait()
    forgotten = asyncio.create_task(knowledge.uploads.forget(THREAD))
    while not job.task.cancelling():  # noqa: ASYNC110  # nothing tells when
        await asyncio.sleep(0)
    storage.killed.set()
    await forgotten

    assert job.task.cancelled()
    assert await list_stored(storage) == []
    await knowledge.aclose()


class Interrupted(MemoryStorage):
    """A storage where something else happens behind the first write of a key with a word in it."""

    def __init__(self, word: str) -> None:
        super().__init__()
        self.word = word
        self.happens: Callable[[], Awaitable[object]]

    async def put(self, key: str, data: bytes, *, expected: str | None = None) -> str:
        etag = await super().put(key, data, expected=expected)
        if self.word and self.word in key:
            self.word = ""
            await self.happens()
        return etag


@in_one_test(
    ("name", "data", "written"),
    [("a.csv", CSV, "uploads/"), ("a.csv", CSV, "Chunk"), ("a.png", PNG, "uploads/")],
)
async def test_a_thread_that_another_process_deletes_while_its_file_is_read_stays_deleted(
    name: str, data: bytes, written: str
) -> None:
    storage = Interrupted(written)
    knowledge, other = knowledge_in(storage), knowledge_in(storage)
    storage.happens = lambda: other.uploads.forget(THREAD)
    upload = await add(knowledge, data, name)

    assert storage.word == ""
    assert (upload.state, upload.message) == ("refused", "It was deleted while it was read.")
    assert await list_stored(storage) == []
    assert await knowledge.search("price quince", actor=ANN) == []
    await knowledge.aclose()
    await other.aclose()


async def test_a_file_that_two_processes_read_is_one() -> None:
    storage = Interrupted("Chunk")
    knowledge, other = knowledge_in(storage), knowledge_in(storage)

    async def read_too() -> None:
        await other.uploads.resume()
        await wait_for(other)

    storage.happens = read_too
    upload = await add(knowledge)

    assert storage.word == ""
    assert [upload] == [*await knowledge.uploads.list(THREAD)]
    assert upload.state == "searchable"
    assert [it.title for it in await knowledge.search("price quince", actor=ANN)] == ["a.csv"]
    await knowledge.aclose()
    await other.aclose()


async def test_a_reader_that_is_too_slow_leaves_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: object, **options: object) -> None:
        raise LimitExceeded("Reading the PDF takes more than 120 seconds.")

    monkeypatch.setattr("copilot_runtime.extensions.knowledge.uploads.uploads.read_document", read)
    storage = MemoryStorage()
    knowledge = knowledge_in(storage)
    upload = await add(knowledge, make_pdf("Loop"), "loop.pdf")

    assert upload.state == "refused"
    assert "120 seconds" in upload.message
    assert (await add(knowledge, make_pdf("Loop"), "loop.pdf")) == upload  # not tried again
    await knowledge.aclose()


class ReadOnly(Policy):
    """Everybody may read, and nobody else may do anything."""

    def decide(self, actor: Actor, action: AccessAction, uri: str) -> Decision:
        return Decision(action == "read", "It is read only.")


async def test_who_may_not_write_adds_no_files() -> None:
    storage = MemoryStorage()
    knowledge = Knowledge(storage, embedder=WordCounter(), policy=ReadOnly())
    upload = await add(knowledge)

    assert upload.message == "You may not add files to this conversation."
    assert await list_stored(storage) == []
    await knowledge.aclose()


async def test_limits_of_an_owner_hold_for_files_that_come_at_once() -> None:
    knowledge = knowledge_in(MemoryStorage(), upload_files=2)
    files = [CSV + b"x,%d\n" % n for n in range(5)]
    uploads = await asyncio.gather(*(add(knowledge, data) for data in files))

    assert sorted(it.state for it in uploads) == ["refused"] * 3 + ["searchable"] * 2
    await knowledge.aclose()


SERVER = """
import asyncio, sys
from copilot_runtime.extensions.knowledge import Knowledge
from tests.extensions.knowledge.uploads.test_uploads import *

async def main():
    knowledge = knowledge_in(LocalStorage(sys.argv[1]))
    job = knowledge.uploads.add(TEXT, "list.txt", THREAD, actor=ANN)
    print("begin", flush=True)
    await job.task
    print("end", flush=True)

asyncio.run(main())
"""


def run_and_kill(folder: Path, delay: float) -> None:
    command = [sys.executable, "-c", SERVER, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "begin\n"
        sleep(delay)
        process.kill()


@in_one_test("delay", [0.0, 0.01, 0.03, 0.1, 0.3])
async def test_a_killed_server_completes_or_forgets_with_its_next_start(
    tmp_path: Path, delay: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "_ARRIVAL", -1)  # nobody stores it any more
    await asyncio.to_thread(run_and_kill, tmp_path, delay)
    knowledge = knowledge_in(LocalStorage(tmp_path))
    knowledge.start()
    files = await wait_for(knowledge)
    stored = await list_stored(knowledge.storage)
    await knowledge.update([])
    found = await knowledge.search("number 1999 of the long list", actor=ANN)
    await knowledge.aclose()

    if files:
        assert [it.state for it in files] == ["searchable"]
        assert len(stored) == files[0].chunks + 2
        assert found
    else:
        assert stored == []
