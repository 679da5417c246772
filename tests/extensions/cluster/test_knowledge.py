"""Knowledge that servers share: what one of them takes in or deletes, the others know at once."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from math import inf
from pathlib import Path
from typing import Any

import pytest

from copilot_runtime import Settings
from copilot_runtime.extensions.knowledge import Knowledge
from copilot_runtime.extensions.knowledge.graph import index as graph_index
from copilot_runtime.extensions.knowledge.identifiers import Identifier
from copilot_runtime.extensions.knowledge.policies import build_actor
from copilot_runtime.extensions.knowledge.resources import Resource
from copilot_runtime.extensions.knowledge.vectors import index as vector_index
from copilot_runtime.storage import LocalStorage
from tests.wire_agui.server import browsing

pytestmark = pytest.mark.anyio

PAGE = """<article itemscope itemtype="https://schema.org/Recipe" itemid="https://x.example/pie">
<h1 itemprop="name">Quince pie</h1><p itemprop="description">{}</p></article>"""


@pytest.fixture(autouse=True)
def no_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a server that has searched look at what is stored only if it is told to."""
    monkeypatch.setattr(vector_index, "_MAX_AGE", inf)
    monkeypatch.setattr(graph_index, "_REFRESH_SECONDS", inf)


@asynccontextmanager
async def serving_knowledge(
    shared: Mapping[str, Any], folder: Path
) -> AsyncGenerator[Sequence[Knowledge], None]:
    """Serve the same knowledge by two servers, each of which has searched it already."""
    async with AsyncExitStack() as stack:
        both = [Knowledge(LocalStorage(folder / "stored")) for _ in range(2)]
        for knowledge in both:
            settings = Settings(**shared)
            await stack.enter_async_context(browsing(settings=settings, knowledge=knowledge))
        await both[0].update()
        for knowledge in both:
            await knowledge.search("a pie")
            await knowledge.triples("? ? ?")
        yield both


async def find(knowledge: Knowledge, user: str = "ann") -> tuple[list[str], list[str]]:
    """Return what a person finds by meaning, and by a pattern of the graph."""
    actor = build_actor(user)
    by_meaning = await knowledge.search("a quince pie", actor=actor)
    by_pattern = await knowledge.find("? schema:name ?", actor=actor)
    return [it.text for it in by_meaning], [it.text for it in by_pattern]


async def wait_until_found(knowledge: Knowledge, words: str) -> None:
    """Search until both indexes have these words, or nothing for none."""
    while True:
        found = await find(knowledge)
        if all(words in "".join(texts) and bool(texts) == bool(words) for texts in found):
            return
        await asyncio.sleep(0)


async def test_what_one_server_takes_in_changes_and_removes_is_found_at_another(
    shared: Mapping[str, Any], tmp_path: Path
) -> None:
    page = tmp_path / "pages" / "pie.html"
    page.parent.mkdir()
    async with serving_knowledge(shared, tmp_path) as (first, second):
        for words in ("It is baked slowly.", "It is baked at night."):
            page.write_text(PAGE.format(words))
            await first.ingest(page.parent)
            await wait_until_found(second, words)
        page.unlink()
        await first.ingest(page.parent)
        await wait_until_found(second, "")


async def test_data_of_one_user_is_invisible_to_others_at_another_server(
    shared: Mapping[str, Any], tmp_path: Path
) -> None:
    note = Identifier("common.Document", "note", "common.User.ann")
    text = '<https://x.example/pie> <https://schema.org/name> "Quince pie of Ann" .'
    async with serving_knowledge(shared, tmp_path) as (first, second):
        await first.resources.put(Resource(note, text, format="turtle"))
        await first.update()
        await wait_until_found(second, "Quince pie of Ann")

        assert await find(second, "eve") == ([], [])
