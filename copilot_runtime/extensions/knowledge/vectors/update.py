"""Update a vector index from the resources: embed new and changed ones, remove deleted ones."""

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import inf
from time import monotonic
from typing import Protocol

import numpy as np

from copilot_runtime.api.adapter import Embedder
from copilot_runtime.api.run_input import check_budget, find_budget
from copilot_runtime.base.errors import (
    AuthenticationFailed,
    ConfigurationFailed,
    CopilotError,
    LimitExceeded,
    MissingPackage,
    Misuse,
    NetworkError,
)
from copilot_runtime.extensions.knowledge.catalog import CatalogEntry
from copilot_runtime.extensions.knowledge.index import Progress, UpdateReport, is_indexed
from copilot_runtime.extensions.knowledge.passages import render_resource
from copilot_runtime.extensions.knowledge.rdf.text import cut_to_tokens
from copilot_runtime.extensions.knowledge.resources import Resource, ResourceIndex
from copilot_runtime.extensions.knowledge.vectors.quantized import Floats, normalize
from copilot_runtime.extensions.knowledge.vectors.segment import Row

_SHORT = 500
"""Number of characters that every model accepts."""
_BATCH_RESOURCES = 256
_BATCH_TOKENS = 50_000
_BATCHES_AT_ONCE = 4
_NOT_FOUND = 404  # the model: no other text would change that


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingReport(UpdateReport):
    """The result of an update of a vector index, with its cost."""

    tokens: int = 0
    """Number of tokens counted by the provider."""
    dollars: Decimal | None = None
    """Their price in dollars; `None` if unknown."""


class RowState(Protocol):
    """A snapshot of the rows of a table."""

    @property
    def dimensions(self) -> int | None: ...

    def __contains__(self, uri: str) -> bool: ...

    def find_version(self, uri: str) -> str:
        """Return the resource version of a URI's vector; empty if there is none."""
        ...

    def versions(self) -> Mapping[str, str]:
        """Return the resource version of each vector, by URI."""
        ...


class RowTable(Protocol):
    """A table of vectors; `state` is the snapshot of the last read or write."""

    @property
    def state(self) -> RowState: ...

    async def refresh(self) -> None:
        """Read the writes of other processes."""
        ...

    async def write(self, rows: Sequence[Row], removed: Iterable[str] = ()) -> None:
        """Store rows and remove others durably."""
        ...


class Updater:
    """One update: batches of resources are read, embedded and written, four at a time.

    It is about all resources, or about `only` some, by their URIs.

    A batch is durable once it is written. What other processes have embedded meanwhile is left as
    it is: that is looked up before a batch is embedded, and before it is written. If the provider
    refuses a batch, it is halved until what it refuses is alone, and a text that is too long is
    halved until it is not. If the provider cannot be reached after all retries, the batch fails as
    a whole. A key or a model that is wrong ends the update.
    """

    def __init__(
        self,
        table: RowTable,
        embedder: Embedder,
        resources: ResourceIndex,
        progress: Progress | None = None,
        only: Collection[str] | None = None,
    ) -> None:
        self._table = table
        self._only = only
        self._embedder = embedder
        self._resources = resources
        self._progress = progress
        self._before = table.state
        self._failed: dict[str, str] = {}
        self._added = 0
        self._changed = 0
        self._done = 0
        self._total = 0

    async def run(self) -> EmbeddingReport:
        """Run the update. Raises `CopilotError` if nothing can be embedded at all."""
        began, tokens = monotonic(), self._count_tokens()
        await self._table.refresh()
        self._before = self._table.state  # older than the entries: what these lack is gone
        pending, removed = await self._compare(await self._resources.versions())
        await self._table.write([], removed)
        self._total = len(pending)
        await self._embed_all(pending)
        await self._table.refresh()
        tokens = self._count_tokens() - tokens
        return EmbeddingReport(
            added=self._added,
            changed=self._changed,
            removed=len(removed),
            failed=self._failed,
            seconds=monotonic() - began,
            tokens=tokens,
            dollars=await self._embedder.price(tokens) if tokens else None,
        )

    async def _embed_all(self, pending: Mapping[str, int]) -> None:
        # the batch that crosses a limit is no larger than what was left of it
        left = budget.get_rest("tokens") if (budget := find_budget()) else inf
        batches = make_batches(pending, min(_BATCH_TOKENS, left))

        async def work() -> None:
            for batch in batches:
                await self._embed_batch(batch)
                self._done += len(batch)
                if self._progress is not None:
                    self._progress(self._done, self._total)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(_BATCHES_AT_ONCE):
                    group.create_task(work())
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _compare(
        self, entries: Mapping[str, CatalogEntry]
    ) -> tuple[dict[str, int], list[str]]:
        """Return the tokens of new and changed resources by URI, and the deleted URIs."""
        state, only = self._before, self._only
        if only is None:
            copy = {**entries}  # the other one may change
            return await asyncio.to_thread(lambda: _compare(copy, state.versions()))
        some = {uri: entries[uri] for uri in only if uri in entries}
        return _compare(some, {uri: state.find_version(uri) for uri in only})

    def _count_tokens(self) -> int:
        """Return the number of embedded tokens so far, without those of searches."""
        return self._embedder.tokens - self._embedder.query_tokens

    async def _embed_batch(self, uris: Sequence[str]) -> None:
        await self._table.refresh()
        state = self._table.state
        resources = [
            resource
            for resource in await self._resources.get(uris)
            if state.find_version(resource.uri) != resource.version
        ]
        texts = await asyncio.to_thread(self._render, resources)
        rows = await self._embed(
            [(resource, text) for resource, text in zip(resources, texts, strict=True) if text]
        )
        size = self._table.state.dimensions or (len(rows[0].vector) if rows else 0)
        if size:  # resources without text get a zero vector, which marks them as processed
            blank = [one for one, text in zip(resources, texts, strict=True) if not text]
            zeros = np.zeros(size, np.float32)
            rows += [Row(one.id, zeros, one.version) for one in blank]
        rows = await self._drop_old(rows)
        await self._table.write(rows)
        for row in rows:
            if str(row.identifier) in self._before:
                self._changed += 1
            else:
                self._added += 1

    async def _drop_old(self, rows: Sequence[Row]) -> list[Row]:
        """Return the rows without those of which another process has embedded a later version."""
        await self._table.refresh()
        state, entries = self._table.state, await self._resources.versions()
        return [
            row
            for row in rows
            if not (entry := entries.get(str(row.identifier)))
            or entry.version == row.version
            or entry.version != state.find_version(str(row.identifier))
        ]

    def _render(self, resources: Sequence[Resource]) -> list[str]:
        texts = map(render_resource, resources)
        return [cut_to_tokens(text.strip(), self._embedder.max_tokens) for text in texts]

    async def _embed(self, pairs: Sequence[tuple[Resource, str]]) -> list[Row]:
        """Return the rows of the resources that the provider accepts."""
        if not pairs:
            return []
        try:
            vectors = await self._embedder.embed([text for _, text in pairs])
        except CopilotError as error:
            if _is_fatal(error):
                raise
            await check_budget()  # a limit that is reached refuses all other texts, too
            resource, text = pairs[0]
            if len(pairs) == 1 and isinstance(error, LimitExceeded) and len(text) > _SHORT:
                return await self._embed([(resource, text[: len(text) // 2])])
            if len(pairs) == 1 or isinstance(error, NetworkError):
                reason = describe_failure(error)
                self._failed.update((resource.uri, reason) for resource, _ in pairs)
                return []
            middle = len(pairs) // 2
            return await self._embed(pairs[:middle]) + await self._embed(pairs[middle:])
        check_vectors(vectors, len(pairs))
        found = zip(pairs, normalize([*vectors]), strict=True)
        return [Row(resource.id, vector, resource.version) for (resource, _), vector in found]


def _compare(
    entries: Mapping[str, CatalogEntry], versions: Mapping[str, str]
) -> tuple[dict[str, int], list[str]]:
    indexable = {uri: entry for uri, entry in entries.items() if is_indexed(uri)}
    pending = {
        uri: entry.tokens for uri, entry in indexable.items() if versions.get(uri) != entry.version
    }
    # vectors without version were added directly, not by an update
    return pending, [uri for uri, version in versions.items() if version and uri not in indexable]


def make_batches(tokens: Mapping[str, int], most: float = _BATCH_TOKENS) -> Iterator[list[str]]:
    """Yield the keys in batches of limited count and total tokens."""
    batch: list[str] = []
    size = 0
    for uri, count in tokens.items():
        if batch and (len(batch) >= _BATCH_RESOURCES or size + count > most):
            yield batch
            batch, size = [], 0
        batch.append(uri)
        size += count
    if batch:
        yield batch


def check_vectors(vectors: Floats, count: int) -> None:
    """Raise `Misuse` unless an embedder has returned a vector for each text."""
    if vectors.ndim != 2 or len(vectors) != count or not vectors.shape[1]:
        raise Misuse(
            f"The embedder returned vectors of the shape {vectors.shape} for {count} texts.",
            hint="An embedder returns a row for each text.",
        )


def describe_failure(error: CopilotError) -> str:
    """Return why an embedding failed; for configuration errors with the hint."""
    is_unset = isinstance(error, ConfigurationFailed) and error.hint
    return f"{error.message} {error.hint}" if is_unset else error.message


def _is_fatal(error: CopilotError) -> bool:
    kinds = (AuthenticationFailed, MissingPackage, Misuse)
    return isinstance(error, kinds) or error.status_code == _NOT_FOUND
