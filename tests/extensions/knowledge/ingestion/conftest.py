"""A folder of files, and the knowledge that they are taken into."""

import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from copilot_runtime.extensions.knowledge.ingestion import Ingestion, IngestReport
from copilot_runtime.extensions.knowledge.resources import PREFIX, Resource, ResourceIndex
from copilot_runtime.storage import MemoryStorage

ARTICLE = """<html lang="en"><body><article itemscope itemtype="https://schema.org/Article"
    itemid="https://e/{name}"><h1 itemprop="headline">{title}</h1>
    <div itemprop="about" itemscope itemtype="https://schema.org/Drug" itemid="https://e/drug">
    <i itemprop="name">Drugex</i></div></article></body></html>"""
DRUG = """<div itemscope itemtype="https://schema.org/Drug" itemid="https://e/drug">
    <i itemprop="name" lang="en">Drugex</i> <i itemprop="description">All of it</i></div>"""


@dataclass
class Shelf:
    """Files in the working directory, and a storage."""

    storage: MemoryStorage = field(default_factory=MemoryStorage)

    def write(self, name: str, content: str | bytes) -> None:
        """Write a file."""
        path = Path("docs", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())

    def link(self, name: str, target: str) -> None:
        """Make a symbolic link."""
        Path("docs", name).symlink_to(target)

    def make_pipe(self, name: str) -> None:
        """Make a pipe that nobody writes to."""
        os.mkfifo(Path("docs", name))

    def remove(self, name: str) -> None:
        """Delete a file."""
        Path("docs", name).unlink()

    def remove_folder(self, name: str) -> None:
        """Delete an empty folder."""
        Path("docs", name).rmdir()

    @property
    def resources(self) -> ResourceIndex:
        """Return what any other process sees."""
        return ResourceIndex(self.storage)

    async def ingest(self, *paths: str, wait: bool = False, dry_run: bool = False) -> IngestReport:
        """Take in the folder, or what is named."""
        return await Ingestion(self.resources).run(paths or ["docs"], wait=wait, dry_run=dry_run)

    async def stored(self) -> dict[str, Resource]:
        """Return all resources by what they are about."""
        found = await self.resources.get(await self.resources.find_all())
        return {" ".join(one.id.subjects): one for one in found}

    async def statuses(self, ingestion: Ingestion) -> dict[str, tuple[str, str]]:
        """Return what an ingestion says of each file."""
        return {it.name: (it.state, it.message) for it in await ingestion.list_sources()}

    async def snapshot(self) -> dict[str, bytes]:
        """Return every byte of the storage."""
        return await self.storage.get_many(await self.storage.list())

    async def resource_files(self) -> dict[str, bytes]:
        """Return every byte of the resources."""
        return await self.storage.get_many(sorted(await self.storage.find_by_prefix(PREFIX)))


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shelf:
    """Return an empty folder that is the working directory."""
    monkeypatch.chdir(tmp_path)
    Path("docs").mkdir()
    return Shelf()


def article(name: str, title: str) -> str:
    """Return a page about an article that mentions a drug."""
    return ARTICLE.format(name=name, title=title)
