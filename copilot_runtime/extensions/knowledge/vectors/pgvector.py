"""Vectors in PostgreSQL with the extension pgvector: the database searches, for all servers.

The vectors of each model are in a table of their own, `copilot_vectors_<digest of the model>`, and
`copilot_vector_models` has a line for each:

| column | what it is |
|---|---|
| `name` | the end of the name of its table |
| `model` | the model, for people |
| `dimensions` | of its vectors |
| `changes` | how often it was written; each row has the number of its last change |
| `used_at` | when it was last written or searched, in seconds since 1970 |

A writer locks the row of the model until the end of the transaction. So changes become visible in
the order of their numbers, and a reader fetches only changes after the last number it knows. A
removed row stays for a day without a vector, so that all readers notice the removal.
"""

import asyncio
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import Any

import numpy as np

from copilot_runtime.api.adapter import Embedder
from copilot_runtime.base.errors import ConfigurationFailed, StoreFailed
from copilot_runtime.database.postgres.pool import Pool
from copilot_runtime.extensions.knowledge.access import judge
from copilot_runtime.extensions.knowledge.identifiers import (
    Identifier,
    parse_identifier,
)
from copilot_runtime.extensions.knowledge.index import EVERYTHING, Filter, Progress, check_ids
from copilot_runtime.extensions.knowledge.resources import ResourceIndex
from copilot_runtime.extensions.knowledge.vectors.index import EmbeddingIndex, name_vectors
from copilot_runtime.extensions.knowledge.vectors.quantized import Floats, Vector, normalize
from copilot_runtime.extensions.knowledge.vectors.ranking import (
    DIGITS,
    TOLERANCE,
    check_diversity,
    diversify,
)
from copilot_runtime.extensions.knowledge.vectors.segment import Row
from copilot_runtime.extensions.knowledge.vectors.table import check_dimensions
from copilot_runtime.extensions.knowledge.vectors.update import EmbeddingReport, Updater

_CONNECTIONS = 8
_OLDEST_VERSION = (0, 8)
"""Minimum version of pgvector, the first with iterative index scans."""
_FIRST_PAGE = 64
_GROWTH = 8
"""Factor by which the limit grows if access leaves too few rows."""
_POOL = 200
"""Number of candidates of a diversified search."""
_HOUR = 3600.0
_DAY = 24 * _HOUR

_LOCK = 0x436F7056
"""Key of the advisory lock that serialises the creation of tables."""

_MODELS = """
CREATE TABLE IF NOT EXISTS copilot_vector_models (
    name TEXT PRIMARY KEY,
    model TEXT NOT NULL,
    dimensions INT,
    changes BIGINT NOT NULL,
    used_at DOUBLE PRECISION NOT NULL
)
"""
_ROWS = """
CREATE TABLE IF NOT EXISTS {table} (
    uri TEXT PRIMARY KEY,
    version TEXT NOT NULL,
    type TEXT NOT NULL,
    tokens INT,
    subjects TEXT[] NOT NULL,
    position BIGINT GENERATED ALWAYS AS IDENTITY,
    change BIGINT NOT NULL,
    removed_at DOUBLE PRECISION,
    embedding vector({dimensions})
)
"""
_PUT = """
INSERT INTO {table} AS old (uri, version, type, tokens, subjects, change, embedding)
VALUES ($1, $2, $3, $4, $5, $6, $7::real[]::vector)
ON CONFLICT (uri) DO UPDATE SET version = excluded.version, tokens = excluded.tokens,
    subjects = excluded.subjects, change = excluded.change, removed_at = NULL,
    embedding = excluded.embedding
"""
_REMOVE = """
UPDATE {table} SET change = $1, removed_at = $2, embedding = NULL
WHERE uri = ANY($3) AND removed_at IS NULL
"""
_SEARCH = """
SELECT uri, tokens, subjects, position, -(embedding <#> $1::real[]::vector) AS score,
    CASE WHEN $5 THEN embedding::real[] END AS embedding
FROM {table}
WHERE embedding IS NOT NULL AND ($2 = '' OR type = $2)
    AND ($3 = '' OR uri = $3 OR starts_with(uri, $3 || '/'))
ORDER BY embedding <#> $1::real[]::vector, position LIMIT $4
"""


@dataclass(frozen=True, slots=True)
class PgState:
    """The resources with vectors and their versions, as of a change number."""

    rows: Mapping[str, str] = field(default_factory=dict[str, str])
    dimensions: int | None = None
    changes: int = -1

    def __contains__(self, uri: str) -> bool:
        return uri in self.rows

    def find_version(self, uri: str) -> str:
        """Return the resource version of a vector; empty if there is none."""
        return self.rows.get(uri, "")

    def versions(self) -> Mapping[str, str]:
        """Return the resource version of each vector, by URI."""
        return self.rows


@dataclass(frozen=True, slots=True)
class _Hit:
    identifier: Identifier
    score: float
    position: int
    vector: Floats


class PgVectorTable:
    """The table of one model; `state` is the cached state of this process."""

    def __init__(self, url: str, embedder: Embedder) -> None:
        self.state = PgState()
        self._model = embedder.model
        self._name = name_vectors(embedder)[:16]
        self._pool = Pool(url, _CONNECTIONS, content="vectors")
        self._is_open = False
        self._read_at = 0.0
        self._touched_at = 0.0
        self._lock = asyncio.Lock()

    async def refresh(self) -> None:
        """Read the changes of all processes since the last refresh."""
        async with self._lock:
            await self._open()
            self.state = await self._pool.do(self._read, reading=True)
            self._read_at = time.time()

    async def write(self, rows: Sequence[Row], removed: Iterable[str] = ()) -> None:
        """Store rows and remove others durably. Raises `Misuse` for a wrong vector length."""
        removed = [*removed]
        if not rows and not removed:
            return
        await self.refresh()
        size = self.state.dimensions or (len(rows[0].vector) if rows else None)
        if size is None:
            return
        for row in rows:
            check_dimensions(len(row.vector), size)
        await self._pool.do(lambda db: self._write(db, rows, removed, size))
        await self.refresh()

    async def search(self, query: Floats, filter: Filter, limit: int, *, whole: bool) -> list[Any]:
        """Return the rows most similar to a vector, the best first; with vectors if `whole`."""
        if self.state.dimensions is None:
            await self.refresh()
        if self.state.dimensions is None:
            return []
        check_dimensions(len(query), self.state.dimensions)
        statement = _SEARCH.format(table=self._table)
        values = (query.tolist(), filter.type, filter.prefix, limit, whole)

        async def work(db: Any) -> list[Any]:
            await db.execute("SET LOCAL hnsw.iterative_scan = strict_order")
            return await db.fetch(statement, *values)

        try:
            return await self._pool.do(work)
        except StoreFailed as error:
            if type(error.__cause__).__name__ != "UndefinedTableError":
                raise
            self.state = PgState()  # deleted as unused for a day: the next update fills it again
            return []

    async def find(self, uris: Sequence[str]) -> dict[str, Identifier]:
        """Return the identifiers of the resources with a vector, by URI."""
        await self.refresh()
        if self.state.dimensions is None:
            return {}
        select = f"SELECT uri, tokens, subjects FROM {self._table} WHERE uri = ANY($1)"  # noqa: S608
        rows = await self._pool.do(lambda db: db.fetch(select, uris), reading=True)
        found = {row["uri"]: _read_identifier(row) for row in rows}
        return {uri: it for uri, it in found.items() if uri in self.state}

    async def touch(self) -> None:
        """Record the use of the vectors, at most once an hour."""
        if time.time() - self._touched_at < _HOUR:
            return
        self._touched_at = time.time()
        update = "UPDATE copilot_vector_models SET used_at = $1 WHERE name = $2"
        await self._pool.do(lambda db: db.execute(update, time.time(), self._name))

    async def clear_others(self) -> None:
        """Delete the tables of models unused for a day, and rows removed long ago."""
        await self._pool.do(self._clear_others)

    def close(self) -> None:
        """Close all connections. Later calls open new ones."""
        self._pool.close()
        self._is_open = False

    @property
    def _table(self) -> str:
        return f"copilot_vectors_{self._name}"

    async def _open(self) -> None:
        if not self._is_open:
            await self._pool.retry(lambda: self._pool.open(self._prepare))
            self._is_open = True

    async def _prepare(self, db: Any) -> None:
        async with db.transaction():
            await db.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
            await self._check_extension(db)
            await db.execute(_MODELS)
            await db.execute(
                "INSERT INTO copilot_vector_models VALUES ($1, $2, NULL, 0, $3)"
                " ON CONFLICT DO NOTHING",
                *(self._name, self._model, time.time()),
            )

    async def _check_extension(self, db: Any) -> None:
        """Create the extension if it is missing. Raises `ConfigurationFailed`."""
        find = "SELECT extversion FROM pg_extension WHERE extname = 'vector'"
        version = await db.fetchval(find)
        if version is None:
            try:
                async with db.transaction():
                    await db.execute("CREATE EXTENSION vector")
            except self._pool.errors as error:
                raise ConfigurationFailed(
                    f"{self._pool.address} has no extension for vectors: {error}",
                    hint="Install pgvector, and let an administrator run CREATE EXTENSION vector; "
                    "or empty the setting knowledge.vector_database.",
                ) from error
            version = await db.fetchval(find)
        if tuple(map(int, version.split(".")[:2])) < _OLDEST_VERSION:
            raise ConfigurationFailed(
                f"pgvector {version} in {self._pool.address} is too old: 0.8 is needed.",
                hint="Install a later one, and run ALTER EXTENSION vector UPDATE.",
            )

    async def _read(self, db: Any) -> PgState:
        before = self.state
        row = await db.fetchrow(
            "SELECT dimensions, changes FROM copilot_vector_models WHERE name = $1", self._name
        )
        if row is None:  # deleted as unused: the next write creates it again
            self._is_open = False
            return PgState()
        dimensions, changes = row
        if dimensions is None or (changes == before.changes and self._is_fresh):
            return PgState(before.rows, dimensions, changes)
        is_anew = changes < before.changes or not self._is_fresh
        rows = {} if is_anew else dict(before.rows)
        select = f"SELECT uri, version, removed_at FROM {self._table} WHERE change > $1"  # noqa: S608
        found = await db.fetch(select, -1 if is_anew else before.changes)
        for uri, version, removed_at in found:
            if removed_at is None:
                rows[uri] = version
            else:
                rows.pop(uri, None)
        return PgState(rows, dimensions, changes)

    @property
    def _is_fresh(self) -> bool:
        """Whether all removals since the last refresh are still recorded in the table."""
        return time.time() - self._read_at < _DAY / 2

    async def _write(self, db: Any, rows: Sequence[Row], removed: Sequence[str], size: int) -> None:
        change, dimensions = await db.fetchrow(
            "UPDATE copilot_vector_models SET changes = changes + 1, used_at = $2,"
            " dimensions = coalesce(dimensions, $3) WHERE name = $1 RETURNING changes, dimensions",
            *(self._name, time.time(), size),
        )
        check_dimensions(size, dimensions)
        await db.execute(_ROWS.format(table=self._table, dimensions=size))
        if removed:
            await db.execute(_REMOVE.format(table=self._table), change, time.time(), removed)
        await db.executemany(
            _PUT.format(table=self._table), [_encode_row(row, change) for row in rows]
        )

    async def _clear_others(self, db: Any) -> None:
        old = time.time() - _DAY
        if self.state.dimensions is not None:
            await db.execute(f"DELETE FROM {self._table} WHERE removed_at < $1", old)  # noqa: S608
        names = await db.fetch(
            "DELETE FROM copilot_vector_models WHERE used_at < $1 AND name <> $2 RETURNING name",
            *(old, self._name),
        )
        for (name,) in names:
            await db.execute(f"DROP TABLE IF EXISTS copilot_vectors_{name}")


class PgVectorIndex(EmbeddingIndex[PgVectorTable]):
    """The equivalent of `VectorIndex` in PostgreSQL.

    Without a database index, results are exact. Writes are visible to all processes immediately.
    Access is checked here, on the best rows first, until there are enough.
    """

    def __init__(self, url: str, embedder: Embedder) -> None:
        super().__init__(embedder, PgVectorTable(url, embedder))

    async def get(self, ids: Iterable[Identifier | str] | None) -> list[Identifier]:
        uris = check_ids(ids)
        found = await self.table.find(uris)
        return [found[uri] for uri in uris if uri in found]

    async def has(self, id: Identifier | str) -> bool:
        return bool(await self.table.find([str(id)]))

    async def has_rows(self) -> bool:
        if not self.table.state.rows:
            await self.table.refresh()
        return bool(self.table.state.rows)

    async def count(self) -> int:
        """Return the number of vectors."""
        await self.table.refresh()
        return len(self.table.state.rows)

    async def query(
        self,
        query: Sequence[Vector],
        filter: Filter = EVERYTHING,
        *,
        diversity: float | None = None,
    ) -> list[Identifier]:
        check_diversity(diversity)
        queries = normalize(query)
        best: dict[str, _Hit] = {}
        for vector in queries[queries.any(axis=1)] if queries.size else ():
            for hit in await self._find_best(vector, filter, whole=bool(diversity)):
                key = filter.get_key(str(hit.identifier))
                if key not in best or hit.score > best[key].score:
                    best[key] = hit
        await self.table.touch()
        hits = sorted(best.values(), key=lambda hit: (-hit.score, hit.position))
        if diversity:
            hits = diversify(hits, diversity, filter.limit)
        return filter.cut(hit.identifier.score_as(round(hit.score, DIGITS)) for hit in hits)

    async def update(
        self,
        resources: ResourceIndex,
        progress: Progress | None = None,
        *,
        only: Collection[str] | None = None,
    ) -> EmbeddingReport:
        """Embed new and changed resources, and remove deleted ones."""
        report = await Updater(self.table, self.embedder, resources, progress, only).run()
        if only is None and not report.failed:
            await self.table.clear_others()
        return report

    def invalidate_cache(self) -> None:
        """Do nothing: each search queries the database."""

    async def aclose(self) -> None:
        """Close the connections and the embedder."""
        self.table.close()
        await super().aclose()

    async def _find_best(self, query: Floats, filter: Filter, *, whole: bool) -> list[_Hit]:
        """Return the best rows that match a filter, enough for all results."""
        floor = (filter.threshold or 0.0) - TOLERANCE
        most = max(filter.limit, _POOL) if whole else filter.limit
        size, start, best = max(_FIRST_PAGE, 2 * most), 0, dict[str, _Hit]()
        while True:
            rows = await self.table.search(query, filter, size, whole=whole)
            new = [row for row in rows[start:] if row["score"] >= floor]
            judged = filter.choose_questions([row["uri"] for row in new])
            allowed = await judge(filter.access, judged)
            for row in compress(new, allowed):
                best.setdefault(filter.get_key(row["uri"]), _read_hit(row))
            hits = [*best.values()]
            is_last = len(rows) < size or len(new) < len(rows) - start
            used = sum(hit.identifier.tokens or 0 for hit in hits)
            if is_last or 0 < most <= len(hits) or 0 < filter.max_tokens < used:
                return hits[:most] if most > 0 else hits
            start, size = len(rows), size * _GROWTH


def _encode_row(row: Row, change: int) -> Sequence[Any]:
    it = row.identifier
    columns = (str(it), row.version, it.type, it.tokens, [*it.subjects], change)
    return (*columns, row.vector.tolist())


def _read_hit(row: Any) -> _Hit:
    vector = np.asarray(row["embedding"] or (), np.float32)
    return _Hit(_read_identifier(row), row["score"], row["position"], vector)


def _read_identifier(row: Any) -> Identifier:
    identifier = parse_identifier(row["uri"])
    return replace(identifier, tokens=row["tokens"], subjects=tuple(row["subjects"]))
