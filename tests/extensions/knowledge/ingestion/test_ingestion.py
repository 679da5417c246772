"""Files become resources, and stay what the files say."""

import asyncio
import errno
import json
import os
import platform
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from copilot_runtime.base.errors import NotFound, StoreFailed
from copilot_runtime.base.jsonvalue import JsonObject
from copilot_runtime.extensions.knowledge.ingestion import (
    Ingestion,
    IngestionBusy,
    IngestProgress,
    ItemForm,
)
from copilot_runtime.extensions.knowledge.ingestion.journal import lock_ingestion
from copilot_runtime.extensions.knowledge.ingestion.sources import Source
from copilot_runtime.extensions.knowledge.rdf.terms import read_triples
from copilot_runtime.extensions.knowledge.resources import Resource, ResourceIndex
from copilot_runtime.storage import MemoryStorage, StorageFailed
from tests.extensions.knowledge.ingestion.conftest import DRUG, Shelf, article
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

DRUG_IRI = "https://e/drug"


def content(resource: Resource) -> JsonObject:
    return json.loads(resource.content)


async def test_things_of_pages_become_resources_with_title_and_source(shelf: Shelf) -> None:
    shelf.write("one.html", article("one", "First"))
    shelf.write("two.html", DRUG)

    report = await shelf.ingest()

    stored = await shelf.stored()
    assert report.encode() | {"seconds": 0} == {
        "new": ["docs/one.html", "docs/two.html"],
        "changed": [],
        "unchanged": 0,
        "removed": [],
        "failed": {},
        "skipped": {},
        "unmatched": [],
        "warnings": {},
        "empty": [],
        "resources": 2,
        "deleted": 0,
        "triples": 6,
        "seconds": 0,
    }
    assert content(stored[DRUG_IRI]) == {
        "@context": {
            "@vocab": "https://schema.org/",
            "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
            "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
        },
        "@id": DRUG_IRI,
        "@type": "Drug",
        "name": {"@language": "en", "@value": "Drugex"},
        "description": "All of it",
    }
    assert stored[DRUG_IRI].fields == {"title": "Drugex", "source": "docs/two.html"}
    assert stored["https://e/one"].fields == {"title": "First", "source": "docs/one.html"}
    assert (stored[DRUG_IRI].format, stored[DRUG_IRI].role) == ("jsonld", "system")


async def test_taking_in_the_same_files_again_changes_no_byte(shelf: Shelf) -> None:
    shelf.write("one.html", article("one", "First"))
    shelf.write("two.html", DRUG)
    shelf.write("three.md", "# Notes\n\nSome text.")
    await shelf.ingest()
    before = await shelf.snapshot()

    report = await shelf.ingest()

    assert (report.unchanged, report.resources, report.new) == (3, 0, [])
    assert await shelf.snapshot() == before


async def test_the_order_in_which_files_came_makes_no_difference(shelf: Shelf) -> None:
    for name in ("c", "a", "b"):
        shelf.write(f"{name}.html", article(name, name) + DRUG.replace("All", name))
        await shelf.ingest()
    one_by_one = await shelf.resource_files()

    other = Shelf(MemoryStorage())
    await other.ingest()

    assert await other.resource_files() == one_by_one


async def test_a_changed_file_changes_exactly_its_resources(shelf: Shelf) -> None:
    shelf.write("one.html", article("one", "First"))
    shelf.write("two.html", article("two", "Second"))
    shelf.write("three.html", DRUG)
    await shelf.ingest()
    before = await shelf.stored()

    shelf.write("one.html", article("one", "Better"))
    report = await shelf.ingest()

    after = await shelf.stored()
    assert (report.changed, report.resources, report.unchanged) == (["docs/one.html"], 1, 2)
    assert content(after["https://e/one"])["headline"] == {"@language": "en", "@value": "Better"}
    del before["https://e/one"], after["https://e/one"]
    assert after == before


async def test_what_a_file_no_longer_says_is_forgotten_unless_another_one_says_it(
    shelf: Shelf,
) -> None:
    shelf.write("one.html", article("one", "First"))
    shelf.write("two.html", DRUG)
    await shelf.ingest()

    shelf.write("two.html", DRUG.replace("All of it", "Other"))
    await shelf.ingest()
    assert content((await shelf.stored())[DRUG_IRI])["description"] == "Other"

    shelf.write("two.html", "<p>Nothing about drugs.</p>")
    await shelf.ingest()
    assert content((await shelf.stored())[DRUG_IRI]).keys() == {"@context", "@id", "@type", "name"}


async def test_a_deleted_file_takes_along_what_only_it_gave(shelf: Shelf) -> None:
    shelf.write("one.html", article("one", "First"))
    shelf.write("two.html", article("two", "Second"))
    await shelf.ingest()
    alone = Shelf(MemoryStorage())

    shelf.remove("one.html")
    report = await shelf.ingest()

    assert (report.removed, report.deleted) == (["docs/one.html"], 1)
    assert {*await shelf.stored()} == {"https://e/two", DRUG_IRI}
    await alone.ingest()
    assert await alone.resource_files() == await shelf.resource_files()
    shelf.remove("two.html")
    await shelf.ingest()
    assert await shelf.stored() == {}
    assert await shelf.storage.find_by_prefix("ingestion/records/") == []


async def test_only_files_that_would_have_been_discovered_count_as_deleted(shelf: Shelf) -> None:
    for name in ("a/one.html", "a/two.htm", "b/three.html"):
        shelf.write(name, DRUG.replace("drug", name))
    await shelf.ingest("docs/a/*.htm*", "docs/b", "docs/a/one.html")
    shelf.remove("a/one.html")
    shelf.remove("b/three.html")

    shelf.write("c/d/e/four.md", "Four")
    await shelf.ingest("docs/**/*.md")
    shelf.remove("c/d/e/four.md")

    assert (await shelf.ingest("docs/a/*.htm")).removed == []
    assert (await shelf.ingest("docs/*.md")).removed == []
    assert (await shelf.ingest("docs/**/*.md")).removed == ["docs/c/d/e/four.md"]
    assert (await shelf.ingest("docs/b")).removed == ["docs/b/three.html"]
    assert (await shelf.ingest("docs/a/one.html")).removed == ["docs/a/one.html"]
    shelf.remove("a/two.htm")
    assert (await shelf.ingest("docs/a/*.htm*")).removed == ["docs/a/two.htm"]
    assert (await shelf.ingest(".")).removed == []


async def test_a_path_that_is_not_there_is_an_error(shelf: Shelf) -> None:
    with pytest.raises(NotFound, match="There is no file or folder 'nowhere'"):
        await shelf.ingest("nowhere")


async def test_a_file_that_fails_costs_no_other_one_anything(shelf: Shelf) -> None:
    shelf.write("bad.html", "<div>" * 5000)
    shelf.write("good.html", DRUG)
    shelf.write("picture.html", b"\x89PNG\r\n\x1a\n")
    shelf.write("tool.bin", b"\x00\x01\x02")
    shelf.write("script.html", '<script type="application/ld+json">{</script>' + DRUG)

    report = await shelf.ingest()

    assert report.new == ["docs/good.html", "docs/script.html"]
    assert report.failed.pop("docs/picture.html").startswith("The file is of the type image/png.")
    assert report.failed == {"docs/bad.html": "The elements of the page are nested too deeply."}
    assert report.skipped == {"docs/tool.bin": "application/octet-stream"}
    assert [*report.warnings] == ["docs/script.html"]
    named = await shelf.ingest("docs/picture.html")
    assert "The file is of the type image/png." in named.failed["docs/picture.html"]


async def test_a_document_that_cannot_be_read_has_failed_and_other_files_are_skipped(
    shelf: Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    shelf.write("old.doc", b"\xd0\xcf\x11\xe0" + bytes(600))
    shelf.write("cut.docx", b"PK\x03\x04" + bytes(60))
    shelf.write("notes.rtf", r"{\rtf1 Text}")
    shelf.write("mail.eml", "Subject: x\nContent-Transfer-Encoding: base64\n\nSGVsbG8=\n")
    shelf.write("data.zip", b"PK\x03\x04" + bytes(60))
    shelf.write("open.csv", 'name;wage\nAnn;100\nBob;"200\nCarl;300\n')

    report = await shelf.ingest()

    assert [*report.failed] == [
        f"docs/{it}" for it in ("cut.docx", "mail.eml", "notes.rtf", "old.doc")
    ]
    assert [*report.skipped] == ["docs/data.zip"]
    assert "quotation mark is not closed" in report.warnings["docs/open.csv"][0]
    assert "docs/notes.rtf: The file is a document in Rich Text Format: save it as" in caplog.text


TOO_DEEP = "The elements of the page are nested too deeply."


async def test_a_file_that_fails_keeps_what_it_gave_before(shelf: Shelf) -> None:
    shelf.write("one.html", DRUG)
    await shelf.ingest()
    before = await shelf.resource_files()

    shelf.write("one.html", "<div>" * 5000)
    assert [*(await shelf.ingest()).failed] == ["docs/one.html"]
    assert await shelf.resource_files() == before


async def test_what_failed_is_said_until_it_works_or_is_gone(shelf: Shelf) -> None:
    ingestion = Ingestion(shelf.resources)  # of a server, which sees what commands do
    shelf.write("one.html", DRUG)
    shelf.write("two.html", DRUG)
    await shelf.ingest()
    shelf.write("one.html", "<div>" * 5000)
    shelf.write("new.html", "<div>" * 5000)
    await shelf.ingest()
    again = await shelf.snapshot()
    await shelf.ingest()
    assert await shelf.snapshot() == again

    assert await shelf.statuses(ingestion) == {
        "docs/new.html": ("failed", TOO_DEEP),
        "docs/one.html": ("failed", TOO_DEEP),
        "docs/two.html": ("taken in", ""),
    }
    await shelf.ingest("docs/two.html")  # which says nothing of the others
    shelf.write("one.html", DRUG)
    assert (await shelf.statuses(ingestion))["docs/new.html"] == ("failed", TOO_DEEP)
    shelf.remove("new.html")
    await shelf.ingest()
    assert await shelf.statuses(ingestion) == {
        "docs/one.html": ("taken in", ""),
        "docs/two.html": ("taken in", ""),
    }


async def test_a_skipped_file_is_listed_with_the_reason_until_it_is_read_or_gone(
    shelf: Shelf,
) -> None:
    picture = b"\x89PNG\r\n\x1a\n"
    for name in ("a.png", "b.png", "c.png"):
        shelf.write(name, picture)
    shelf.link("link.txt", __file__)
    await shelf.ingest()
    why = "Files of the type image/png are not read."
    assert await shelf.statuses(Ingestion(shelf.resources)) == {
        "docs/a.png": ("skipped", why),
        "docs/b.png": ("skipped", why),
        "docs/c.png": ("skipped", why),
        "docs/link.txt": ("skipped", "The link leads out of the folder."),
    }
    shelf.write("a.png", DRUG)
    shelf.remove("b.png")
    shelf.remove("link.txt")
    await shelf.ingest()
    assert await shelf.statuses(Ingestion(shelf.resources)) == {
        "docs/a.png": ("taken in", ""),
        "docs/c.png": ("skipped", why),
    }


async def test_what_could_not_be_read_of_a_file_is_said_until_it_changes(shelf: Shelf) -> None:
    script = '<script type="application/ld+json">{</script>'
    shelf.write("one.html", f"{DRUG}{script}")
    shelf.write("two.html", DRUG)
    first = await shelf.ingest()
    await shelf.ingest()
    await shelf.ingest("docs/two.html")

    state, message = (await shelf.statuses(Ingestion(shelf.resources)))["docs/one.html"]
    assert state == "in part"
    assert [message] == first.warnings["docs/one.html"]
    shelf.write("one.html", DRUG)
    await shelf.ingest()
    assert (await shelf.statuses(Ingestion(shelf.resources)))["docs/one.html"] == ("taken in", "")


async def test_a_doubt_about_a_file_is_in_the_log_the_report_and_the_list_of_sources(
    shelf: Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    shelf.write("one.txt", "Caf\u00e9 au lait".encode("cp1252"))
    report = await shelf.ingest()

    doubt = "The encoding was guessed: cp1252. Save it as UTF-8 to be sure."
    assert report.warnings == {"docs/one.txt": [doubt]}
    assert await shelf.statuses(Ingestion(shelf.resources)) == {"docs/one.txt": ("in part", doubt)}
    assert caplog.messages == [f"docs/one.txt: {doubt}"]


async def test_a_journal_that_is_written_anew_says_the_same(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("copilot_runtime.storage.jsonlines._FEW_LINES", 0)
    ingestion = Ingestion(shelf.resources)
    shelf.write("bad.html", "<div>" * 5000)
    for number in range(6):
        shelf.write("one.html", article("one", f"Title {number}"))
        await shelf.ingest()
        assert await shelf.statuses(ingestion) == {
            "docs/bad.html": ("failed", TOO_DEEP),
            "docs/one.html": ("taken in", ""),
        }
    journal = await shelf.storage.get("ingestion/journal.jsonl")
    assert len(journal.splitlines()) < 6


async def test_who_asks_often_has_the_journal_parsed_once(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf.write("one.txt", "One.")
    await shelf.ingest()
    ingestion = Ingestion(shelf.resources)
    await ingestion.sources()

    def parse(data: bytes) -> list[JsonObject]:
        raise AssertionError(data)

    monkeypatch.setattr(
        "copilot_runtime.extensions.knowledge.ingestion.journal.salvage_lines", parse
    )
    assert await ingestion.sources() == ["docs/one.txt"]


async def test_few_files_are_read_at_the_same_time(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    def list_processors(_: int) -> range:
        return range(4)

    monkeypatch.setattr("os.sched_getaffinity", list_processors, raising=False)
    now = most = 0
    read = Source.read

    def count(source: Source) -> bytes:
        nonlocal now, most
        now += 1
        most = max(now, most)
        try:
            return read(source)
        finally:
            now -= 1

    monkeypatch.setattr(Source, "read", count)
    for number in range(40):
        shelf.write(f"{number}.txt", "Text.\n\n" * 50)
    assert len((await shelf.ingest()).new) == 40
    assert most <= 2


@in_one_test("named", ["docs", ".", "docs/**/*.txt", "docs/sub/*/b.txt"])
@in_one_test(
    "error", [OSError(errno.ESTALE, "Stale file handle"), PermissionError(errno.EACCES, "Denied")]
)
async def test_a_folder_that_cannot_be_read_is_not_taken_for_empty(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch, named: str, error: OSError
) -> None:
    shelf.write("a.txt", "Alpha.")
    shelf.write("sub/deep/b.txt", "Beta.")
    await shelf.ingest(named)
    scandir = os.scandir

    def fail(path: str) -> Iterator[os.DirEntry[str]]:
        if Path(path).name == "sub":
            raise type(error)(error.errno, error.strerror, path)
        return scandir(path)

    before = await shelf.stored()
    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", fail)
        report = await shelf.ingest(named)
    assert (report.removed, report.deleted, await shelf.stored()) == ([], 0, before)
    assert report.failed == {"docs/sub": f"The folder cannot be read: {error.strerror}."}
    statuses = await shelf.statuses(Ingestion(shelf.resources))
    assert statuses["docs/sub"] == ("failed", report.failed["docs/sub"])

    shelf.remove("sub/deep/b.txt")
    report = await shelf.ingest(named)
    assert (report.removed, report.failed) == (["docs/sub/deep/b.txt"], {})
    assert "docs/sub" not in await shelf.statuses(Ingestion(shelf.resources))


async def test_a_folder_that_vanished_takes_along_what_its_files_gave(shelf: Shelf) -> None:
    shelf.write("a.txt", "Alpha.")
    shelf.write("sub/b.txt", "Beta.")
    await shelf.ingest()
    shelf.remove("sub/b.txt")
    shelf.remove_folder("sub")
    report = await shelf.ingest()
    assert (report.removed, report.failed) == (["docs/sub/b.txt"], {})


async def test_hidden_files_and_unreadable_ones(shelf: Shelf) -> None:
    shelf.write(".git/config", "x")
    shelf.write(".hidden", "x")
    shelf.link("loop", "loop")
    report = await shelf.ingest()
    assert report.new == []
    assert report.failed["docs/loop"].startswith("The file cannot be read: ")


@pytest.mark.parametrize("named", ["docs", "docs/**/*", "docs/*", "shelf"])
async def test_a_link_that_leads_out_of_the_folder_is_skipped(shelf: Shelf, named: str) -> None:
    shelf.write("../secret/key.txt", "The key is under the mat.")
    shelf.link("../shelf", "docs")
    shelf.write("page.md", "A page.")
    shelf.link("again.md", "page.md")
    shelf.link("link.txt", "../secret/key.txt")
    shelf.link("folder", "../secret")
    folder = named.partition("/")[0]

    report = await shelf.ingest(named)

    assert report.new == [f"{folder}/page.md"]
    assert {name for name, why in report.skipped.items() if why == "leads out of the folder"} >= {
        f"{folder}/link.txt"
    }
    assert b"under the mat" not in b"".join((await shelf.snapshot()).values())


async def test_a_folder_elsewhere_is_skipped_as_the_link_that_leads_to_it(shelf: Shelf) -> None:
    shelf.write("../secret/deep/key.txt", "The key is under the mat.")
    shelf.link("folder", "../secret")
    shelf.write("a/page.md", "A page.")
    for named in ("docs", "docs/**/*.txt", "docs/*/deep/*.txt"):
        report = await shelf.ingest(named)
        assert report.skipped == {"docs/folder": "leads out of the folder"}
        assert "docs/folder/deep/key.txt" not in report.new


async def test_a_link_that_is_named_is_followed_until_only_its_folder_is(shelf: Shelf) -> None:
    shelf.write("../other.txt", "Somewhere else.")
    shelf.link("link.txt", "../other.txt")
    shelf.link("gone.txt", "../nothing.txt")
    shelf.link("lost.txt", "nothing.txt")

    report = await shelf.ingest("docs/link.txt", "docs")
    assert report.new == ["docs/link.txt"]
    assert report.skipped == {
        "docs/gone.txt": "leads out of the folder",
        "docs/lost.txt": "leads nowhere",
    }
    report = await shelf.ingest("docs")
    assert (report.removed, report.deleted) == (["docs/link.txt"], 1)
    assert report.skipped["docs/link.txt"] == "leads out of the folder"


async def test_a_pipe_and_a_name_that_is_no_text(shelf: Shelf) -> None:
    shelf.make_pipe("pipe")
    shelf.write(os.fsdecode(b"caf\xe9.html"), DRUG)
    report = await shelf.ingest()
    assert report.new == ["docs/caf\\xe9.html"]
    assert report.failed == {"docs/pipe": "It is no file, but a pipe, a socket or a device."}
    assert (await shelf.ingest()).unchanged == 1


async def test_who_loses_the_lock_writes_no_more(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("copilot_runtime.storage.lock._RENEWAL", 0.0)
    for number in range(20):
        shelf.write(f"{number}.html", article(f"{number}", "x"))

    class SleepyStorage(MemoryStorage):
        async def put_many(self, objects: Mapping[str, bytes]) -> dict[str, str]:
            await self.put("ingestion/lock.json", b"of another one")
            await asyncio.sleep(0.01)
            return await super().put_many(objects)

    sleepy = Shelf(SleepyStorage())
    with pytest.raises(IngestionBusy, match="another one may have taken over"):
        await sleepy.ingest()
    assert await sleepy.storage.get("ingestion/lock.json") == b"of another one"
    assert await sleepy.resource_files() == {}


LOCK = "ingestion/lock.json"


async def test_the_lock_is_renewed_while_it_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("copilot_runtime.storage.lock._RENEWAL", 0.001)
    twice = asyncio.Event()

    class CountingStorage(MemoryStorage):
        writes = 0

        async def put(self, key: str, data: bytes, *, expected: str | None = None) -> str:
            etag = await super().put(key, data, expected=expected)
            self.writes += 1
            if self.writes > 1:
                twice.set()
            return etag

    storage = CountingStorage()
    async with lock_ingestion(storage) as lock:
        await twice.wait()
        lock.check()
    assert not await storage.exists(LOCK)


class FailingStorage(MemoryStorage):
    """Fails for a while when the lock is written or deleted; what is written may arrive."""

    failures = 0
    arrives = False

    def __init__(self) -> None:
        super().__init__()
        self.renewed = asyncio.Event()

    async def put(self, key: str, data: bytes, *, expected: str | None = None) -> str:
        if self._fails(key):
            if self.arrives:
                await super().put(key, data, expected=expected)
            raise StorageFailed("503 Slow Down")
        etag = await super().put(key, data, expected=expected)
        self.renewed.set()
        return etag

    async def delete(self, key: str) -> bool:
        if self._fails(key):
            raise StorageFailed("503 Slow Down")
        return await super().delete(key)

    def _fails(self, key: str) -> bool:
        self.failures -= key == LOCK and self.failures > 0
        return key == LOCK and self.failures > 0


@in_one_test("arrives", [False, True])
async def test_a_renewal_that_fails_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, arrives: bool
) -> None:
    monkeypatch.setattr("copilot_runtime.storage.lock._RENEWAL", 0.001)
    storage = FailingStorage()
    storage.arrives = arrives
    async with lock_ingestion(storage) as lock:
        storage.failures = 5
        storage.renewed.clear()
        await storage.renewed.wait()
        assert storage.failures == 0
        lock.check()
    assert not await storage.exists(LOCK)


async def test_a_lock_that_cannot_be_renewed_for_long_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("copilot_runtime.storage.lock._RENEWAL", 0.001)
    monkeypatch.setattr("copilot_runtime.storage.lock._PATIENCE", 0.05)
    storage = FailingStorage()
    async with lock_ingestion(storage) as lock:
        storage.failures = 1_000_000
        lock.check()
        with pytest.raises(IngestionBusy, match="another one may have taken over"):
            while True:
                lock.check()
                await asyncio.sleep(0.001)


async def test_an_ingestion_that_worked_does_not_fail_with_its_lock(
    caplog: pytest.LogCaptureFixture,
) -> None:
    storage = FailingStorage()
    async with lock_ingestion(storage):
        storage.failures = 2
    assert "could not be released" in caplog.text
    async with lock_ingestion(storage):  # nobody holds it
        pass
    assert not await storage.exists(LOCK)


async def test_the_lock_of_a_process_that_runs_is_respected(shelf: Shelf) -> None:
    lock = {"id": "x", "pid": os.getppid(), "host": platform.node(), "time": time.time()}
    await shelf.storage.put("ingestion/lock.json", json.dumps(lock).encode())
    with pytest.raises(IngestionBusy):
        await shelf.ingest()
    lock["pid"] = 2**22 + 1  # more than there are
    await shelf.storage.put("ingestion/lock.json", json.dumps(lock).encode())
    await shelf.ingest()


async def test_another_container_of_the_same_name_is_respected_while_it_renews(
    shelf: Shelf,
) -> None:
    lock = {"id": "x", "pid": os.getpid(), "host": platform.node(), "time": time.time() - 5}
    await shelf.storage.put("ingestion/lock.json", json.dumps(lock).encode())
    with pytest.raises(IngestionBusy):
        await shelf.ingest()
    lock["time"] = time.time() - 31
    await shelf.storage.put("ingestion/lock.json", json.dumps(lock).encode())
    await shelf.ingest()


async def test_where_processes_cannot_be_asked_a_lock_holds_until_it_expires(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("copilot_runtime.storage.lock.sys.platform", "win32")
    monkeypatch.delattr(os, "kill")
    lock = {"id": "x", "pid": 2**22 + 1, "host": platform.node(), "time": time.time()}
    await shelf.storage.put("ingestion/lock.json", json.dumps(lock).encode())
    with pytest.raises(IngestionBusy):
        await shelf.ingest()
    lock["time"] = time.time() - 61
    await shelf.storage.put("ingestion/lock.json", json.dumps(lock).encode())
    await shelf.ingest()


async def test_a_dry_run_says_what_would_be_done_and_does_nothing(shelf: Shelf) -> None:
    shelf.write("one.html", DRUG)
    shelf.write("two.html", article("two", "Second"))
    await shelf.ingest()
    before = await shelf.snapshot()
    shelf.write("one.html", DRUG.replace("All", "None"))
    shelf.write("three.html", DRUG)
    shelf.remove("two.html")

    report = await shelf.ingest(dry_run=True)

    assert (report.new, report.changed, report.removed) == (
        ["docs/three.html"],
        ["docs/one.html"],
        ["docs/two.html"],
    )
    assert await shelf.snapshot() == before


async def test_two_ingestions_of_one_storage(shelf: Shelf) -> None:
    shelf.write("one.html", DRUG)
    one, two = Ingestion(shelf.resources), Ingestion(shelf.resources)
    results = await asyncio.gather(one.run(["docs"]), two.run(["docs"]), return_exceptions=True)
    assert [type(result) for result in results[1:]] == [IngestionBusy]

    shelf.write("one.html", DRUG.replace("All", "None"))
    reports = await asyncio.gather(
        one.run(["docs"], wait=True), two.run(["docs"], wait=True), shelf.ingest(wait=True)
    )
    assert sorted(len(report.changed) for report in reports) == [0, 0, 1]
    assert await shelf.storage.find_by_prefix("ingestion/lock") == []


@in_one_test(
    ("lock", "busy"),
    [
        (b'{"id": "x", "pid": 1, "host": "elsewhere", "time": 99999999999}', True),
        (b'{"id": "x", "pid": 1, "host": "elsewhere", "time": 1}', False),
        (b'{"id": "x", "pid": %d, "host": "%s", "time": 99999999999}', False),
        (b"torn", False),
    ],
)
async def test_the_lock_of_a_process_that_ended_is_taken_over(
    shelf: Shelf, lock: bytes, busy: bool
) -> None:
    if b"%d" in lock:
        lock = lock % (os.getpid(), platform.node().encode())  # what this process was before
    await shelf.storage.put("ingestion/lock.json", lock)
    if busy:
        with pytest.raises(IngestionBusy, match="process 1 on elsewhere"):
            await shelf.ingest()
    else:
        await shelf.ingest()


async def test_what_somebody_else_deleted_is_put_back(shelf: Shelf) -> None:
    shelf.write("one.html", article("one", "First"))
    shelf.write("two.html", DRUG)
    await shelf.ingest()
    before = await shelf.resource_files()
    await shelf.resources.delete((await shelf.stored())[DRUG_IRI].id)
    assert (await shelf.ingest()).resources == 1
    assert await shelf.resource_files() == before


async def test_a_record_that_somebody_deleted_is_made_anew(shelf: Shelf) -> None:
    shelf.write("one.html", article("one", "First"))
    shelf.write("two.html", DRUG)
    await shelf.ingest()
    before = await shelf.resource_files()
    await shelf.resources.delete((await shelf.stored())[DRUG_IRI].id)
    for key in await shelf.storage.find_by_prefix("ingestion/records/"):
        await shelf.storage.delete(key)
    with pytest.raises(StoreFailed, match="no longer in the storage"):
        await shelf.ingest()
    await shelf.ingest()
    assert await shelf.resource_files() == before


async def test_who_asks_for_sources_does_not_disturb_an_ingestion(shelf: Shelf) -> None:
    for number in range(40):
        shelf.write(f"{number}.html", article(f"{number}", "x"))
    ingestion = Ingestion(shelf.resources)
    await ingestion.run(["docs"])
    for number in range(40):
        shelf.write(f"{number}.html", article(f"{number}", "y"))

    async def ask() -> None:
        while True:
            assert len(await ingestion.sources()) == 40
            await asyncio.sleep(0)

    asking = asyncio.create_task(ask())
    report = await ingestion.run(["docs"])
    asking.cancel()
    assert (len(report.changed), len(report.new), report.resources) == (40, 0, 40)


async def test_each_resource_knows_which_file_gave_what(shelf: Shelf) -> None:
    shelf.write("one.html", article("one", "First"))
    shelf.write("two.html", DRUG)
    shelf.write("three.txt", "Plain text.")
    await shelf.ingest()
    ingestion = Ingestion(shelf.resources)
    found = await shelf.resources.find_by_type("common.Message")
    drugs = [it for it in await shelf.resources.get(found) if DRUG_IRI in it.id.subjects]

    provenance = [one for it in drugs for one in await ingestion.provenance(it.uri)]

    assert [(one.source, len(one.statements)) for one in provenance] == [
        ("docs/one.html", 2),
        ("docs/two.html", 3),
    ]
    assert '<https://e/drug> <https://schema.org/name> "Drugex"@en .' in provenance[0].statements
    [chunk] = await shelf.resources.find_by_type("common.Chunk")
    assert [(one.source, one.statements) for one in await ingestion.provenance(str(chunk))] == [
        ("docs/three.txt", [])
    ]
    assert await ingestion.provenance("common.Message.none") == []
    assert await ingestion.sources() == ["docs/one.html", "docs/three.txt", "docs/two.html"]


async def test_pages_have_addresses_below_the_base(shelf: Shelf) -> None:
    page = '<p itemscope itemtype="https://schema.org/Thing" itemid="#me"><a itemprop=p href=q></a>'
    shelf.write("a/one page.html", page)
    shelf.write("two.html", page)
    await Ingestion(shelf.resources, base="https://intranet.example/kb").run(["docs"])
    assert {*await shelf.stored()} == {
        "https://intranet.example/kb/a/one%20page.html#me",
        "https://intranet.example/kb/two.html#me",
    }


async def test_a_file_has_the_address_below_its_folder_however_it_is_named(shelf: Shelf) -> None:
    page = '<p itemscope itemtype="https://schema.org/Thing" itemid="#me">'
    shelf.write("a/one.html", page)
    await shelf.ingest("docs/a/one.html")
    assert [*await shelf.stored()] == ["https://example.invalid/one.html#me"]
    await shelf.ingest("docs")
    assert [*await shelf.stored()] == ["https://example.invalid/a/one.html#me"]
    for path in ("docs/a/one.html", "docs/a/*.html", "docs", "docs/**/*.html"):
        assert (await shelf.ingest(path)).unchanged == 1


@in_one_test("format", ["turtle", "nquads", "jsonld"])
async def test_resources_may_be_in_other_formats(shelf: Shelf, format: str) -> None:
    shelf.write("one.html", DRUG)
    await shelf.ingest()
    form = ItemForm(format)  # type: ignore[arg-type]
    report = await Ingestion(shelf.resources, form=form).run(["docs"])
    drug = (await shelf.stored())[DRUG_IRI]
    assert drug.format == format
    assert len(read_triples(drug.content, drug.format)) == 3
    assert report.resources == (format != "jsonld")


async def test_a_text_that_no_annotation_says_is_kept(shelf: Shelf) -> None:
    shelf.write("annotated.html", f"<p>Name:</p>{DRUG}")
    shelf.write(
        "marked.html",
        f"{DRUG}<h1>Contact</h1><p>Phone 555-1234</p><p>Fax 555-9999</p><p>Drugex: all of it</p>"
        "<h1>Prices</h1><table><tr><th>Who<th>Price<tr><td>Adults<td>12 euros</table>",
    )
    await shelf.ingest()
    chunks = await shelf.resources.get(await shelf.resources.find_by_type("common.Chunk"))
    assert [(chunk.fields["place"]["heading"], chunk.content) for chunk in chunks] == [
        ("Contact", "Phone 555-1234\nFax 555-9999"),
        ("Prices", "Who | Price\nAdults | 12 euros"),
    ]


async def test_a_text_beside_a_script_is_a_document(shelf: Shelf) -> None:
    shelf.write(
        "script.html",
        '<title>A page</title><script type="application/ld+json">{"@context":"https://schema.org",'
        '"@id":"https://e/x","@type":"Thing"}</script><h1>Head</h1><p>Text of it.</p>',
    )
    await shelf.ingest()
    [id] = await shelf.resources.find_by_type("common.Chunk")
    [chunk] = await shelf.resources.get([id])
    assert (chunk.content, chunk.format) == ("Text of it.", "text")
    assert chunk.fields == {
        "title": "A page",
        "media_type": "text/html",
        "source": "docs/script.html",
        "place": {"heading": "Head"},
    }
    assert chunk.id.subjects == ("https://example.invalid/script.html",)


async def test_a_paragraph_that_did_not_change_stays_the_same_resource(shelf: Shelf) -> None:
    paragraphs = [f"# Part {i}\n\nText of part {i}.\n" for i in range(5)]
    shelf.write("notes.md", "\n".join(paragraphs))
    await shelf.ingest()
    before = await shelf.resource_files()
    paragraphs[4] = "# Part 4\n\nOther text.\n"
    shelf.write("notes.md", "\n".join(paragraphs))
    report = await shelf.ingest()
    after = await shelf.resource_files()
    assert (report.resources, report.deleted) == (1, 1)
    assert len(before.items() & after.items()) == 4


async def test_progress_is_told_in_both_stages(shelf: Shelf) -> None:
    for i in range(20):
        shelf.write(f"{i}.html", article(str(i), str(i)))
    seen: list[IngestProgress] = []
    await Ingestion(shelf.resources).run(["docs"], seen.append)
    assert [(one.stage, one.done, one.total) for one in seen] == [
        ("read", 16, 20),
        ("read", 20, 20),
        ("store", 16, 21),
        ("store", 21, 21),
    ]


async def test_the_journal_is_written_anew_when_most_of_it_is_past(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("copilot_runtime.storage.jsonlines._FEW_LINES", 3)
    for i in range(9):
        shelf.write("one.html", article("one", str(i)))
        await shelf.ingest()
    lines = (await shelf.storage.get("ingestion/journal.jsonl")).splitlines()
    assert len(lines) < 7
    assert (await shelf.ingest()).unchanged == 1


class _Crash(Exception):
    pass


class _FragileStorage(MemoryStorage):
    """Fails at one of its writes, and works again after that."""

    left = -1

    def _count(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise _Crash

    async def put(self, key: str, data: bytes, *, expected: str | None = None) -> str:
        self._count()
        return await super().put(key, data, expected=expected)

    async def append(self, key: str, data: bytes) -> None:
        self._count()
        await super().append(key, data)

    async def delete(self, key: str) -> bool:
        self._count()
        return await super().delete(key)


async def test_a_crash_between_any_two_writes_loses_nothing(shelf: Shelf) -> None:
    def write_files(version: int) -> None:
        for i in range(3):
            shelf.write(f"{i}.html", article(str(i), f"{version}") + DRUG.replace("All", str(i)))
        shelf.write(f"only{version}.txt", f"Text {version}")

    write_files(1)
    expected: list[dict[str, bytes]] = []
    calm = Shelf(MemoryStorage())
    await calm.ingest()
    expected.append(await calm.resource_files())
    write_files(2)
    shelf.remove("only1.txt")
    await calm.ingest()
    expected.append(await calm.resource_files())

    crashes = 0
    for writes in range(1, 200):
        storage = _FragileStorage()
        fragile = Shelf(storage)
        write_files(1)
        shelf.remove("only2.txt")
        await fragile.ingest()
        write_files(2)
        shelf.remove("only1.txt")
        storage.left = writes
        try:
            await fragile.ingest()
        except _Crash:
            crashes += 1
        storage.left = -1
        await fragile.ingest()
        assert await fragile.resource_files() == expected[1]
        before = await fragile.snapshot()
        await fragile.ingest()
        assert await fragile.snapshot() == before
        if not crashes or crashes < writes:
            break
    assert crashes > 10


async def test_two_stores_of_the_same_files_are_the_same_bytes(shelf: Shelf) -> None:
    shelf.write("one.html", article("one", "First"))
    other = Shelf(MemoryStorage())
    await shelf.ingest()
    await other.ingest()
    assert await shelf.resource_files() == await other.resource_files()


async def test_the_storage_itself_is_no_source(shelf: Shelf) -> None:
    class HereStorage(MemoryStorage):
        def path(self, key: str) -> Path | None:
            return Path("docs/store").resolve() / key

    shelf.write("store/resources/x.json", "{}")
    shelf.write("one.html", DRUG)
    report = await Ingestion(ResourceIndex(HereStorage())).run(["docs"])
    assert report.new == ["docs/one.html"]
