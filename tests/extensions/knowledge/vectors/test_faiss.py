"""The engine for millions: faster, and nearly the same results."""

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from copilot_runtime.base.errors import ConfigurationFailed, MissingPackage
from copilot_runtime.extensions.knowledge.access import Access
from copilot_runtime.extensions.knowledge.index import Filter
from copilot_runtime.extensions.knowledge.resources import ResourceIndex
from copilot_runtime.extensions.knowledge.vectors import VectorIndex, VectorItem
from copilot_runtime.extensions.knowledge.vectors import faiss as clusters
from copilot_runtime.storage import MemoryStorage, Storage
from copilot_runtime.storage.local import LocalStorage
from tests.extensions.knowledge.vectors.words import LetterEmbedder, message

pytestmark = pytest.mark.anyio

pytest.importorskip("faiss")

ROWS, SIZE = 20_000, 40


def make_rows(seed: int = 0, rows: int = ROWS) -> NDArray[np.float32]:
    """Return rows in a hundred heaps, as texts about a hundred things are."""
    random = np.random.default_rng(seed)
    heaps = np.random.default_rng(99).standard_normal((100, SIZE))
    rows_in_heaps = heaps[random.integers(0, 100, rows)] + 0.4 * random.standard_normal(
        (rows, SIZE)
    )
    return rows_in_heaps.astype(np.float32)


def make_items(rows: NDArray[np.float32], first: int = 0) -> list[VectorItem]:
    return [VectorItem(message(f"n{first + row}", 1), one) for row, one in enumerate(rows)]


async def fill(storage: Storage) -> tuple[VectorIndex, VectorIndex]:
    """Return an index with clusters, and one without, of the same storage."""
    quick = VectorIndex(storage, LetterEmbedder(), engine="faiss")
    await quick.add(*make_items(make_rows()))
    await quick.update(ResourceIndex(MemoryStorage()))
    return quick, VectorIndex(storage, LetterEmbedder())


async def names(index: VectorIndex, query: NDArray[np.float32], **fields: Any) -> list[str]:
    fields.setdefault("limit", 10)
    found = await index.query([query], Filter(**fields))
    return [one.name for one in found]


class Odd(Access):
    @property
    def key(self) -> Hashable:
        return "odd"

    def allows(self, uri: str) -> bool:
        return int(uri.rpartition("n")[2]) % 2 == 1


async def test_nearly_all_of_the_best_are_found():
    quick, exact = await fill(MemoryStorage())
    found = 0
    for query in make_rows(1, 50):
        results, expected = await names(quick, query), await names(exact, query)
        found += len({*results} & {*expected})
    assert found >= 0.95 * 500


async def test_a_filter_counts_within_the_search():
    quick, exact = await fill(MemoryStorage())
    found = 0
    for query in make_rows(2, 20):
        results = await names(quick, query, access=Odd())
        assert len(results) == 10
        assert all(int(name[1:]) % 2 for name in results)
        found += len({*results} & {*await names(exact, query, access=Odd())})
    assert found >= 0.95 * 200


async def test_what_is_little_or_everything_is_compared_in_full():
    quick, exact = await fill(MemoryStorage())
    query = make_rows(3, 1)[0]
    for fields in (
        {"limit": 0},
        {"limit": 5000},
        {"prefix": "common.Message.n77", "threshold": -1},
    ):
        assert await names(quick, query, **fields) == await names(exact, query, **fields)
    assert await quick.query([query], Filter(limit=10), diversity=0.5)


async def test_rows_that_came_later_or_are_gone_are_seen():
    storage = MemoryStorage()
    quick, _ = await fill(storage)
    query = make_rows(4, 1)[0]
    await quick.add(*make_items(query[None], ROWS))
    best, second = (await names(quick, query))[:2]
    assert best == f"n{ROWS}"
    await quick.remove([f"common.Message.{second}", f"common.Message.{best}"])
    assert not {best, second} & {*await names(quick, query)}


async def test_clusters_are_made_once_and_found_by_the_next_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    storage = LocalStorage(tmp_path)
    quick, _ = await fill(storage)
    before = await storage.get_many(await storage.list())
    monkeypatch.setattr(clusters, "_build", None)
    await quick.update(ResourceIndex(MemoryStorage()))
    other = VectorIndex(storage, LetterEmbedder(), engine="faiss")
    await other.update(ResourceIndex(MemoryStorage()))
    assert await storage.get_many(await storage.list()) == before
    query = make_rows(5, 1)[0]
    assert await names(other, query) == await names(quick, query)


async def test_clusters_of_a_block_that_was_replaced_are_deleted():
    storage = MemoryStorage()
    quick, _ = await fill(storage)
    (old,) = await storage.find_by_extension(".faiss")
    await quick.add(*make_items(make_rows(6, 15_000)))
    await quick.remove([f"common.Message.n{row}" for row in range(12_000)])
    await quick.add(*make_items(make_rows(7, 12_000)))
    await quick.update(ResourceIndex(MemoryStorage()))
    assert old not in await storage.list()
    assert await quick.count() == ROWS


async def test_without_faiss_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(clusters, "find_spec", lambda name: None)  # pyright: ignore
    with pytest.raises(MissingPackage, match=r"copilot-runtime\[faiss\]"):
        VectorIndex(MemoryStorage(), LetterEmbedder(), engine="faiss")


async def test_another_engine_is_refused():
    engine: Any = "annoy"
    with pytest.raises(ConfigurationFailed, match="'annoy'"):
        VectorIndex(MemoryStorage(), LetterEmbedder(), engine=engine)
