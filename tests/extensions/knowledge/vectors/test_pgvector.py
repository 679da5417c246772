"""Vectors in PostgreSQL: the answers are those of the index in memory, at every server."""

import asyncio
from collections.abc import AsyncGenerator, Hashable, Iterator
from contextlib import aclosing, asynccontextmanager
from itertools import count

import pytest

from copilot_runtime.base.errors import ConfigurationFailed, Misuse
from copilot_runtime.extensions.knowledge import Knowledge
from copilot_runtime.extensions.knowledge.access import Access
from copilot_runtime.extensions.knowledge.identifiers import Identifier
from copilot_runtime.extensions.knowledge.index import Filter
from copilot_runtime.extensions.knowledge.policies import build_actor
from copilot_runtime.extensions.knowledge.resources import Resource
from copilot_runtime.extensions.knowledge.settings import KnowledgeSettings
from copilot_runtime.extensions.knowledge.vectors import VectorIndex, VectorItem, pgvector
from copilot_runtime.extensions.knowledge.vectors.pgvector import PgVectorIndex
from copilot_runtime.storage import MemoryStorage
from tests.extensions.knowledge.vectors.test_query import FOUR, make_items, make_matrix
from tests.extensions.knowledge.vectors.words import LetterEmbedder, message
from tests.in_one_test import in_one_test
from tests.threads.cluster import running_cluster

pytestmark = pytest.mark.anyio

_models = count()


class Odd(Access):
    """May read what ends with an odd digit."""

    @property
    def key(self) -> Hashable:
        return "odd"

    def allows(self, uri: str) -> bool:
        return uri[-1] in "13579"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running_cluster(with_vectors=True) as cluster:
        yield cluster.url


@asynccontextmanager
async def opened(url: str, *items: VectorItem, model: str = "") -> AsyncGenerator[PgVectorIndex]:
    """Yield an index of a new model with some vectors."""
    async with aclosing(PgVectorIndex(url, LetterEmbedder(model or f"m{next(_models)}"))) as index:
        await index.add(*items)
        yield index


@in_one_test(
    "filter",
    [
        Filter(),
        Filter(limit=3),
        Filter(limit=40, access=Odd()),
        Filter(access=Odd(), threshold=0.2),
        Filter(type="common.Doc", limit=5),
        Filter(max_tokens=7),
        Filter(threshold=-1),
        Filter(distinct=True, limit=8),
    ],
    ids=["all", "limit", "access", "threshold", "type", "tokens", "negative", "distinct"],
)
async def test_the_database_answers_as_the_index_in_memory_does(url: str, filter: Filter):
    items = [*make_items(make_matrix(300, 8)), *make_items(make_matrix(90, 8, 1), "common.Doc")]
    copies = [
        Identifier("common.Message", f"n{it % 9}", f"common.Folder.f{it}", tokens=1)
        for it in range(200)
    ]
    items += map(VectorItem, copies, make_matrix(200, 8, 3))
    queries = [*make_matrix(2, 8, 2)]
    memory = VectorIndex(MemoryStorage(), LetterEmbedder())
    await memory.add(*items)
    async with opened(url, *items) as index:
        found, expected = await index.query(queries, filter), await memory.query(queries, filter)

    assert found == expected
    assert [it.tokens for it in found] == [it.tokens for it in expected]
    assert [it.score for it in found] == pytest.approx([it.score for it in expected], abs=2e-6)


async def test_results_that_are_to_be_unlike_each_other_are(url: str):
    twins = [VectorItem(message(name, 1), [1, 0, 0]) for name in ("x", "y")]
    async with opened(url, *twins, *FOUR) as index:
        found = await index.query([[1, 0, 0]], Filter(limit=2), diversity=0.9)

    assert [it.name for it in found] == ["x", "c"]


async def test_what_another_process_writes_and_removes_is_seen_at_once(url: str):
    async with opened(url, *FOUR) as index, opened(url, model=index.embedder.model) as other:
        assert await other.count() == 4
        await index.remove([FOUR[0].identifier])
        assert await other.has(FOUR[0].identifier) is False
        await other.add(VectorItem(message("e", 1), [1, 0, 0]))
        found = await index.query([[1, 0, 0]], Filter(limit=1))

        assert [it.name for it in found] == ["e"]
        assert await index.get(["common.Message.e", "common.Message.a"]) == found


async def test_ten_writers_lose_nothing_of_each_other(url: str):
    items = make_items(make_matrix(100, 4))
    async with opened(url) as index:
        others = [PgVectorIndex(url, LetterEmbedder(index.embedder.model)) for _ in range(10)]
        writes = [one.add(item) for at, item in enumerate(items) for one in [others[at % 10]]]
        await asyncio.gather(*writes)
        for one in others:
            await one.aclose()

        assert await index.count() == 100


async def test_a_vector_of_another_length_is_refused(url: str):
    async with opened(url, *FOUR) as index:
        with pytest.raises(Misuse, match="2 dimensions"):
            await index.add(VectorItem(message("x", 1), [1, 0]))
        with pytest.raises(Misuse, match="2 dimensions"):
            await index.query([[1, 0]])


async def test_the_vectors_of_a_model_that_nobody_uses_go(
    url: str, monkeypatch: pytest.MonkeyPatch
):
    async with opened(url, *FOUR) as old, opened(url, *FOUR) as new:
        monkeypatch.setattr(pgvector, "_DAY", -1.0)
        await new.table.clear_others()
        monkeypatch.undo()

        assert await new.count() == 4
        assert await old.query([[1, 0, 0]]) == []
        assert await old.count() == 0


async def test_knowledge_of_two_servers_is_searched_in_one_database(url: str):
    settings = KnowledgeSettings(vector_database=url)
    storage, embedder = MemoryStorage(), LetterEmbedder(f"m{next(_models)}")
    first = Knowledge(storage, embedder=embedder, settings=settings)
    second = Knowledge(storage, embedder=embedder, settings=settings)
    async with aclosing(first), aclosing(second):
        for parent in ("", "common.User.ann"):
            note = Identifier("common.Document", "bees", parent)
            await first.resources.put(Resource(note, "Bees like the garden."))
        report = (await first.update()).vectors
        again = (await second.update()).vectors
        found = [await second.search("bees", actor=build_actor(user)) for user in ("ann", "eve")]

    assert (report.added, again.added) == (2, 0)
    assert [len(one) for one in found] == [2, 1]


def test_an_address_of_something_else_is_refused():
    with pytest.raises(ConfigurationFailed, match="vector_database"):
        Knowledge("memory", settings=KnowledgeSettings(vector_database="redis://x"))
