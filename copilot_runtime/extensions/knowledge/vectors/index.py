"""The vector index: search by similarity of meaning."""

import asyncio
import logging
import time
from abc import abstractmethod
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar, get_args

from copilot_runtime.api.adapter import Embedder
from copilot_runtime.base.errors import ConfigurationFailed, CopilotError
from copilot_runtime.base.jsontext import dumps, loads
from copilot_runtime.extensions.knowledge.access import run_with_access
from copilot_runtime.extensions.knowledge.identifiers import Identifier, hash_values
from copilot_runtime.extensions.knowledge.index import (
    EVERYTHING,
    Filter,
    Index,
    Progress,
    check_ids,
)
from copilot_runtime.extensions.knowledge.resources import ResourceIndex
from copilot_runtime.extensions.knowledge.vectors.faiss import FaissClusters
from copilot_runtime.extensions.knowledge.vectors.quantized import Floats, Vector, normalize
from copilot_runtime.extensions.knowledge.vectors.ranking import (
    Hit,
    check_diversity,
    diversify,
    rank,
)
from copilot_runtime.extensions.knowledge.vectors.segment import Row
from copilot_runtime.extensions.knowledge.vectors.state import TableState
from copilot_runtime.extensions.knowledge.vectors.table import VectorTable, check_dimensions
from copilot_runtime.extensions.knowledge.vectors.update import EmbeddingReport, RowTable, Updater
from copilot_runtime.storage import ObjectNotFound, Storage

Engine = Literal["exact", "faiss"]
"""The search method: all rows, or only the nearest clusters."""

_MAX_AGE = 5.0
"""Seconds after which a search checks for writes of other processes."""
_TEXTS = "3"
"""Version of the embedded texts; a new one makes all resources be embedded again."""
_POOL = 4
"""Number of candidates for each result of a diversified search."""
_SMALLEST_POOL = 50
_LARGEST_POOL = 1000
_FIRST_GUESSES = (256, 4096)
"""Numbers of results computed first if only their tokens are limited."""


@dataclass(frozen=True, slots=True)
class VectorItem:
    """A vector and the resource that it belongs to."""

    identifier: Identifier
    vector: Vector


TableT = TypeVar("TableT", bound=RowTable)


class EmbeddingIndex(Index[VectorItem, Sequence[Vector]], Generic[TableT]):
    """An index of the vectors of an embedder, which are in a table."""

    def __init__(self, embedder: Embedder, table: TableT) -> None:
        self.embedder = embedder
        self.table = table

    async def add(self, *items: VectorItem) -> None:
        """Store vectors durably. Raises `Misuse` for vectors of a different length."""
        vectors = await asyncio.to_thread(normalize, [item.vector for item in items])
        rows = zip((item.identifier for item in items), vectors, strict=True)
        await self.table.write([Row(identifier, vector) for identifier, vector in rows])

    async def remove(self, ids: Iterable[Identifier | str]) -> None:
        """Remove the vectors of resources."""
        await self.table.write([], check_ids(ids))

    @abstractmethod
    async def query(
        self,
        query: Sequence[Vector],
        filter: Filter = EVERYTHING,
        *,
        diversity: float | None = None,
    ) -> list[Identifier]:
        """Return the resources most similar to any of the vectors, each with its best score.

        With a `diversity` above 0 and up to 1, results are chosen one after the other, each for its
        score and for being unlike those before it, from the best fifty or more.
        """

    async def search(
        self,
        texts: Sequence[str],
        filter: Filter = EVERYTHING,
        *,
        diversity: float | None = None,
    ) -> list[Identifier]:
        """Return the resources most similar to any of the texts, each with its best score.

        Raises `CopilotError` if they cannot be embedded.
        """
        texts = select_texts(texts)
        if not texts or not await self.has_rows():
            return []
        vectors = await self.embedder.embed_queries(texts)
        return await self.query([*vectors], filter, diversity=diversity)

    @abstractmethod
    async def has_rows(self) -> bool:
        """Return whether there is any vector, as of a few seconds ago."""

    async def aclose(self) -> None:
        """Close the embedder. All vectors are already written."""
        await self.embedder.aclose()


def name_vectors(embedder: Embedder) -> str:
    """Return a digest of what determines the vectors of resources."""
    return hash_values(embedder.model, embedder.version, _TEXTS)


class VectorIndex(EmbeddingIndex[VectorTable]):
    """Finds resources by the cosine similarity of vectors, from -1 to 1.

    Results are exact; the engine `faiss` is faster for millions of vectors, and finds nearly all of
    the best. All vectors are normalised; a zero vector matches nothing, as an item or as a query.
    Without a threshold, results have a score of at least 0.

    Each model's vectors are stored below their own prefix. An index searches only the vectors of
    its embedder's model, because only vectors of one model are comparable. After a change of the
    model, servers that still use the old one find all resources, and those with the new one only
    the resources embedded so far. A complete update deletes old vectors that were unused for a day.
    """

    def __init__(
        self,
        storage: Storage,
        embedder: Embedder,
        prefix: str = "vectors",
        *,
        engine: Engine = "exact",
    ) -> None:
        place = f"{prefix}/{name_vectors(embedder)}"
        super().__init__(embedder, VectorTable(storage, place))
        self._usage = ModelUsage(storage, prefix, place, embedder.model)
        if engine not in get_args(Engine):
            raise ConfigurationFailed(f"There is no vector engine {engine!r}: 'exact' or 'faiss'.")
        self._clusters = FaissClusters(storage, place) if engine == "faiss" else None

    async def get(self, ids: Iterable[Identifier | str] | None) -> list[Identifier]:
        await self.table.load()
        found = (self.table.state.find(uri) for uri in check_ids(ids))
        return [identifier for identifier in found if identifier is not None]

    async def has(self, id: Identifier | str) -> bool:
        await self.table.load()
        return str(id) in self.table.state

    async def has_rows(self) -> bool:
        await self.table.refresh(_MAX_AGE)
        return bool(len(self.table.state))

    async def count(self) -> int:
        """Return the number of vectors."""
        await self.table.load()
        return len(self.table.state)

    async def query(
        self,
        query: Sequence[Vector],
        filter: Filter = EVERYTHING,
        *,
        diversity: float | None = None,
    ) -> list[Identifier]:
        check_diversity(diversity)
        await self.table.refresh(_MAX_AGE)
        queries = normalize(query)
        queries = queries[queries.any(axis=1)]
        state = self.table.state
        if not len(queries) or state.dimensions is None:
            return []
        check_dimensions(queries.shape[1], state.dimensions)
        await self._usage.touch()
        if self._clusters:
            await self._clusters.load(state.blocks)
        return await run_with_access(
            filter.access, lambda: self._answer(state, queries, filter, diversity)
        )

    async def update(
        self,
        resources: ResourceIndex,
        progress: Progress | None = None,
        *,
        only: Collection[str] | None = None,
    ) -> EmbeddingReport:
        """Embed new and changed resources, and remove deleted ones.

        What could not be embedded is in the report, and is tried again by the next update. With
        `only`, this is about the resources of these URIs, and costs nothing for all others.
        """
        report = await Updater(self.table, self.embedder, resources, progress, only).run()
        if only is not None:
            return report
        if self._clusters:
            await self._clusters.update(self.table.state.blocks)
        if len(self.table.state):
            await self._usage.touch()
        if not report.failed:
            await self._usage.clear_others()
        return report

    def invalidate_cache(self) -> None:
        """Reload the stored vectors before the next search, since another process has written."""
        self.table.invalidate_cache()

    def _answer(
        self, state: TableState, queries: Floats, filter: Filter, diversity: float | None
    ) -> list[Identifier]:
        blocks = state.search_blocks
        narrow = self._clusters.narrow if self._clusters else None
        if diversity:
            pool = max(filter.limit * _POOL, _SMALLEST_POOL) if filter.limit > 0 else _LARGEST_POOL
            hits = rank(blocks, queries, filter, pool, narrow)
            return _cut(diversify(hits, diversity, filter.limit), filter)
        if filter.limit > 0 or filter.max_tokens <= 0:
            return _cut(rank(blocks, queries, filter, filter.limit, narrow), filter)
        for limit in _FIRST_GUESSES:
            hits = rank(blocks, queries, filter, limit, narrow)
            results = _cut(hits, filter)
            if len(results) < len(hits) or len(hits) < limit:
                return results
        return _cut(rank(blocks, queries, filter, 0), filter)


def select_texts(texts: str | Sequence[str]) -> list[str]:
    """Return the non-blank texts of a string or a list of strings."""
    return [text for text in ([texts] if isinstance(texts, str) else texts) if text.strip()]


def _cut(hits: Sequence[Hit], filter: Filter) -> list[Identifier]:
    return filter.cut(hit.identify() for hit in hits)


logger = logging.getLogger(__name__)

_NAME = "used.json"
_HOUR = 3600.0
_LONGEST_PAUSE = 24 * _HOUR


class ModelUsage:
    """The time of last use of the vectors in each folder of a prefix; `folder` is our own.

    Servers with an old and a new model may run side by side during an upgrade. Each writes the time
    into an object beside its vectors at most once an hour; vectors unused for a day are deleted.
    """

    def __init__(self, storage: Storage, prefix: str, folder: str, model: str) -> None:
        self._storage = storage
        self._prefix = prefix
        self._folder = folder
        self._model = model
        self._next_note = 0.0

    async def touch(self) -> None:
        """Record the use of our vectors, at most once an hour."""
        if time.time() < self._next_note:
            return
        self._next_note = time.time() + _HOUR
        try:
            if time.time() - await self._read_time(self._folder) >= _HOUR:
                await self._write_time(self._folder, self._model)
        except CopilotError as error:  # read-only access suffices for a search
            logger.info("That the vectors of %s are used is not noted: %s", self._model, error)

    async def clear_others(self) -> None:
        """Delete the vectors of other models that were not used for a day."""
        keys = await self._storage.find_by_prefix(f"{self._prefix}/")
        folders = {key.rpartition("/")[0] for key in keys} - {self._folder}
        for folder in sorted(folders):
            used_at = await self._read_time(folder)
            if not used_at:  # an earlier release, which may still be running, does not note it
                await self._write_time(folder, "")
            elif time.time() - used_at > _LONGEST_PAUSE:
                own = [key for key in keys if key.rpartition("/")[0] == folder]
                await self._storage.delete_many(sorted(own, key=_is_note))

    async def _read_time(self, folder: str) -> float:
        """Return the time of last use of a folder, in seconds since 1970; 0 if unknown."""
        try:
            return float(loads(await self._storage.get(f"{folder}/{_NAME}"))["time"])
        except (ObjectNotFound, ValueError, KeyError, TypeError):
            return 0.0

    async def _write_time(self, folder: str, model: str) -> None:
        note = {"model": model, "time": time.time()}
        await self._storage.put(f"{folder}/{_NAME}", dumps(note))


def _is_note(key: str) -> bool:
    """Return whether a key is deleted last, so that an interrupted deletion is resumed."""
    return key.endswith(f"/{_NAME}")
