"""A server takes in the files of its sources that change while it runs."""

import asyncio
import os
import shutil
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from copilot_runtime import CopilotRuntime, DemoAdapter, Settings
from copilot_runtime.base.jsontext import loads
from copilot_runtime.extensions.knowledge import Knowledge, updater
from copilot_runtime.extensions.knowledge.ingestion.watcher import SourceWatcher
from copilot_runtime.extensions.knowledge.settings import KnowledgeSettings
from copilot_runtime.storage import MemoryStorage
from copilot_runtime.testing import Client
from tests.extensions.knowledge.library import WordCounter

pytestmark = pytest.mark.anyio

LOCK = "ingestion/watch.json"
WATCH = KnowledgeSettings(watch=0.01)


@dataclass
class Server:
    """A server with knowledge, and the event that its indexes have changed."""

    client: Client
    knowledge: Knowledge
    changed: asyncio.Event

    async def read(self, path: str = "") -> Any:
        """Return what the server answers."""
        return (await self.client.request("GET", f"/graphql/knowledge{path}")).json()

    async def find(self, words: str) -> list[str]:
        """Return the texts that a search finds."""
        return [it["text"] for it in (await self.read(f"/search?q={words}"))["results"]]

    async def wait_until(self, words: str, is_right: Callable[[list[str]], bool]) -> None:
        """Wait until a search finds the right texts, looking after each change of the indexes."""
        while not is_right(await self.find(words)):
            await self.changed.wait()
            self.changed.clear()


@asynccontextmanager
async def serve(
    pages: Path,
    storage: MemoryStorage,
    settings: KnowledgeSettings = WATCH,
    policy: Path | None = None,
) -> AsyncGenerator[Server]:
    knowledge = Knowledge(
        storage, embedder=WordCounter(), sources=[pages], settings=settings, policy=policy
    )
    runtime = CopilotRuntime(
        DemoAdapter(pace=0), knowledge=knowledge, settings=Settings(threads="memory")
    )
    async with Client(runtime) as client:
        knowledge.on_change = (changed := asyncio.Event()).set
        server = Server(client, knowledge, changed)
        await server.find("dogs")  # waits for the first update
        yield server


async def test_a_file_that_is_added_changed_renamed_and_deleted_is_followed(pages: Path) -> None:
    async with serve(pages, MemoryStorage()) as server:
        (pages / "garden.md").write_text("# Garden\n\nApricots ripen in July.\n")
        await server.wait_until("apricots", lambda texts: "July" in str(texts))

        (pages / "garden.md").write_text("# Garden\n\nApricots ripen in August.\n")
        await server.wait_until("apricots", lambda texts: "August" in str(texts))

        (pages / "garden.md").rename(pages / "orchard.md")
        await server.wait_until("apricots", lambda texts: len(texts) == 1)
        while "orchard.md" not in str(sources := (await server.read())["sources"]):
            await server.changed.wait()
            server.changed.clear()
        assert "garden.md" not in str(sources)

        (pages / "orchard.md").unlink()
        await server.wait_until("apricots", lambda texts: not texts)


async def test_of_two_servers_of_one_storage_one_watches_and_the_other_takes_over(
    pages: Path,
) -> None:
    storage = MemoryStorage()

    async def find_watcher() -> str:
        held = await storage.read_many([LOCK])
        return loads(held[LOCK][0])["id"] if LOCK in held else ""

    async with AsyncExitStack() as servers, AsyncExitStack() as others:
        first = await others.enter_async_context(serve(pages, storage))
        (pages / "garden.md").write_text("# Garden\n\nApricots ripen in July.\n")
        await first.wait_until("apricots", lambda texts: "July" in str(texts))
        watcher = await find_watcher()
        second = await servers.enter_async_context(serve(pages, storage))
        assert await find_watcher() == watcher

        await others.aclose()
        (pages / "garden.md").write_text("# Garden\n\nApricots ripen in August.\n")
        await second.wait_until("apricots", lambda texts: "August" in str(texts))
        while await find_watcher() in ("", watcher):  # noqa: ASYNC110  # nothing tells of it
            await asyncio.sleep(0)


def test_a_file_counts_once_two_looks_have_found_the_same(pages: Path) -> None:
    watcher = SourceWatcher([pages], None)
    watcher.mark_all()
    with (pages / "half.md").open("w") as file:
        for _ in range(3):
            file.write("half a sentence ")
            file.flush()
            assert watcher.look() == set()

    assert watcher.look() == {str(pages / "half.md")}
    watcher.mark([str(pages / "half.md")])
    assert watcher.look() == set()


def test_a_file_that_is_saved_by_way_of_another_name_is_changed_and_not_deleted(
    pages: Path,
) -> None:
    watcher = SourceWatcher([pages], None)
    watcher.mark_all()
    (pages / "rules.md").rename(pages / "rules.md~")
    (pages / ".rules.md.swp").write_text("x")
    assert watcher.look() == set()
    (pages / "rules.md").write_text("New rules.")

    assert (watcher.look(), watcher.look()) == (set(), {str(pages / "rules.md")})


def test_a_link_that_is_deleted_after_its_target_is_a_change(pages: Path) -> None:
    (target := pages / ".rules.md").write_text("Hidden rules.")
    (link := pages / "link.md").symlink_to(target.name)
    watcher = SourceWatcher([pages], None)
    watcher.mark_all()
    for gone in (target, link):
        gone.unlink()
        assert (watcher.look(), watcher.look()) == (set(), {str(link)})
        watcher.mark([str(link)])


def test_permission_that_comes_later_and_a_time_that_is_kept_are_changes(pages: Path) -> None:
    watcher = SourceWatcher([pages], None)
    watcher.mark_all()
    stat = (pages / "rules.md").stat()
    (pages / "rules.md").write_text("x" * stat.st_size)
    os.utime(pages / "rules.md", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    (pages / "secret.md").chmod(0o400)
    watcher.look()

    assert watcher.look() == {str(pages / name) for name in ("rules.md", "secret.md")}


async def test_a_folder_that_vanishes_and_comes_back_loses_nothing(pages: Path) -> None:
    async with serve(pages, MemoryStorage()) as server:
        elsewhere = shutil.move(pages, pages.with_name("elsewhere"))
        await server.knowledge.update()
        sources = (await server.read())["sources"]
        assert {it["name"]: it["state"] for it in sources}[str(pages)] == "failed"
        assert await server.find("dogs")

        shutil.copytree(elsewhere, pages)
        (pages / "garden.md").write_text("# Garden\n\nApricots ripen in July.\n")
        await server.wait_until("apricots", lambda texts: "July" in str(texts))
        assert "missing" not in str((await server.read())["sources"])


async def test_a_policy_that_changes_is_compared_with_what_is_stored(
    pages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("copilot_runtime.extensions.knowledge.policies.file.LOOK_EVERY", 0)
    (policy := tmp_path / "policy.yml").write_text("default: allow")
    async with serve(pages, MemoryStorage(), policy=policy):
        warnings: asyncio.Queue[str] = asyncio.Queue()

        def note(_: str, text: str) -> None:
            warnings.put_nowait(text)

        monkeypatch.setattr(updater.logger, "warning", note)
        policy.write_text(f"default: allow\nrules: [{{deny: all, files: {tmp_path}/policy*}}]")

        assert "hides nothing" in await warnings.get()


async def test_without_the_setting_nothing_is_watched(pages: Path) -> None:
    storage = MemoryStorage()
    async with serve(pages, storage, KnowledgeSettings(watch=0)):
        assert not await storage.exists(LOCK)


async def test_the_page_says_when_each_file_was_read(pages: Path) -> None:
    async with serve(pages, MemoryStorage()) as server:
        body = {"query": "{ knowledgeSources { name state message readAt } }"}
        answer = await server.client.request("POST", "/graphql", json=body)
        sources = (await server.read())["sources"]

    found = answer.json()["data"]["knowledgeSources"]
    assert [it["readAt"] > 0 for it in found] == [True] * 3
    assert [it["read_at"] for it in sources] == [it["readAt"] for it in found]
