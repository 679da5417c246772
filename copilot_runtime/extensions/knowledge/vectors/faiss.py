"""Approximate search with faiss, for millions of rows.

The rows of each block are sorted into clusters (`IVF`) in eight bits (`SQ8`). From the clusters
that are nearest to a question, faiss returns more rows than are wanted, among those that a filter
selects and no others, and they are scored by their float32 numbers like all rows. A good answer in
a cluster farther away is missed. Small blocks, blocks of which a filter leaves little, and blocks
whose clusters are not made yet are compared in full.

The clusters of a block are an object beside it, made at the end of an update.
"""

import asyncio
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from copilot_runtime.base.errors import MissingPackage
from copilot_runtime.extensions.knowledge.vectors.quantized import Floats
from copilot_runtime.extensions.knowledge.vectors.state import Block
from copilot_runtime.storage import ObjectNotFound, Storage

_FEWEST_ROWS = 10_000
"""Minimum number of rows of a block with clusters; smaller blocks are compared in full."""
_ROWS_PER_CLUSTER = 100
_TRAINING_ROWS_PER_CLUSTER = 64
_LEAST_SHARE = 0.1
"""Minimum share of rows that match a filter; below it, a block is compared in full."""
_POOL = 8
"""Number of candidates scored in float32 for each requested row."""
_PROBES = 32
_SUFFIX = ".faiss"


class FaissClusters:
    """The clusters of the blocks of a table; each search probes a few clusters of a block."""

    def __init__(self, storage: Storage, prefix: str) -> None:
        if find_spec("faiss") is None:
            raise MissingPackage("The vector engine 'faiss'", "faiss-cpu", "faiss")
        self._storage = storage
        self._prefix = prefix
        self._indexes: dict[str, Any] = {}
        self._lock = asyncio.Lock()

    async def load(self, blocks: Sequence[Block]) -> None:
        """Load the clusters of blocks that are not in memory, and drop those of other blocks."""
        names = [block.name for block in blocks if block.name and len(block) >= _FEWEST_ROWS]
        if {*names} == self._indexes.keys():
            return
        async with self._lock:
            indexes: dict[str, Any] = {}
            for name in names:
                indexes[name] = self._indexes.get(name)
                if indexes[name] is None:
                    indexes[name] = await self._read(name)
            self._indexes = indexes

    async def update(self, blocks: Sequence[Block]) -> None:
        """Build missing clusters, and delete those of removed blocks."""
        await self.load(blocks)
        for block in blocks:
            if block.name in self._indexes and self._indexes[block.name] is None:
                index, data = await asyncio.to_thread(_build, block.segment.vectors)
                await self._storage.put(self._key(block.name), data)
                self._indexes[block.name] = index
        for key in await self._storage.find_by_prefix(f"{self._prefix}/"):
            if key.endswith(_SUFFIX) and key not in map(self._key, self._indexes):
                await self._storage.delete(key)

    def narrow(
        self, block: Block, mask: NDArray[np.bool_], queries: Floats, limit: int
    ) -> NDArray[np.intp] | None:
        """Return the candidate rows of a block; `None` for all rows of the mask."""
        index = self._indexes.get(block.name)
        pool = limit * _POOL
        share = np.count_nonzero(mask) / len(mask)
        if index is None or share < _LEAST_SHARE or pool > len(mask) * share / 2:
            return None
        faiss = _import()
        selector = faiss.IDSelectorBitmap(np.packbits(mask, bitorder="little"))
        options = faiss.SearchParametersIVF(sel=selector, nprobe=_PROBES)
        found: NDArray[np.int64] = index.search(queries, pool, params=options)[1]
        rows = np.unique(found[found >= 0]).astype(np.intp)
        return rows if len(rows) >= limit else None

    async def _read(self, name: str) -> Any:
        try:
            data = await self._storage.get(self._key(name))
        except ObjectNotFound:
            return None
        return await asyncio.to_thread(_decode, data)

    def _key(self, name: str) -> str:
        return f"{self._prefix}/{name}{_SUFFIX}"


def _build(vectors: Floats) -> tuple[Any, bytes]:
    """Return the clusters of some vectors, and their serialised bytes. Deterministic."""
    faiss = _import()
    clusters = max(1, len(vectors) // _ROWS_PER_CLUSTER)
    kind = f"IVF{clusters},SQ8"
    index = faiss.index_factory(vectors.shape[1], kind, faiss.METRIC_INNER_PRODUCT)
    step = max(1, len(vectors) // (clusters * _TRAINING_ROWS_PER_CLUSTER))
    index.train(np.ascontiguousarray(vectors[::step]))
    index.add(np.ascontiguousarray(vectors))
    return index, faiss.serialize_index(index).tobytes()


def _decode(data: bytes) -> Any:
    return _import().deserialize_index(np.frombuffer(data, np.uint8))


def _import() -> Any:
    faiss: Any = import_module("faiss")
    faiss.omp_set_num_threads(1)  # threads of its own would take the cores from all other answers
    return faiss
