"""The engine: data sets, queries over them, and the only component that saves new ones."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import duckdb

from copilot_runtime.api.run_input import reserve_storage
from copilot_runtime.base.errors import CopilotError
from copilot_runtime.extensions.analyst.engine import loading
from copilot_runtime.extensions.analyst.engine.copier import Copier
from copilot_runtime.extensions.analyst.engine.datasets import (
    Dataset,
    choose_name,
    name_saved_table,
)
from copilot_runtime.extensions.analyst.engine.errors import DatasetRefused, QueryFailed
from copilot_runtime.extensions.analyst.engine.executor import Executor
from copilot_runtime.extensions.analyst.engine.metadata import (
    MetadataCache,
    Relate,
    TableMetadata,
    relate_all,
)
from copilot_runtime.extensions.analyst.engine.sandbox import EngineOptions
from copilot_runtime.extensions.analyst.engine.sources import DataSource, OnProgress, expand_sources
from copilot_runtime.extensions.analyst.engine.store import Manifest, ManifestEntry, Store
from copilot_runtime.extensions.analyst.engine.streams import StreamPlaces
from copilot_runtime.extensions.analyst.engine.workers import RemoteQuery, RemoteSaving, Workers
from copilot_runtime.extensions.analyst.results import Table
from copilot_runtime.extensions.analyst.sql.rules import Scope
from copilot_runtime.extensions.analyst.sql.syntax_tree import list_functions, list_keywords
from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.span import NO_SPAN, Span

if TYPE_CHECKING:
    from copilot_runtime.extensions.analyst.sql.guard import GuardedQuery

T = TypeVar("T")

WAIT = 0.1
"""Seconds between two looks for the list of data sets that another process writes."""


class Engine:
    """DuckDB over copies of the sources. Not thread-safe: use it in one event loop.

    Args:
        options: Limits, and the folder of the copies.
        sources: The data sources to copy.
        relate: Applies row filters to the statistics of `describe`.
        is_closed: Returns `True` if a data set is closed because its row filters are invalid.
    """

    def __init__(
        self,
        options: EngineOptions,
        sources: Sequence[DataSource] = (),
        *,
        relate: Relate = relate_all,
        is_closed: Callable[[Dataset], bool] = lambda _: False,
    ) -> None:
        self.options = options
        self.sources = tuple(sources)
        self.relate = relate
        self.is_closed = is_closed
        self.problems: dict[str, CopilotError] = {}
        """Unreadable sources by name, with the error for the log; `public` is for users. Their old
        copies stay in use, or they are omitted."""
        self._store = Store(options.folder)
        self._manifest = Manifest()
        self._stamp = 0
        self._datasets: dict[str, Dataset] = {}
        self.version = ""
        """Changes whenever rows of the operator's data sets may have changed."""
        self._workers: Workers | None = None
        self._next_workers: Workers | None = None
        self._copier = Copier(options)
        self._changes = asyncio.Lock()
        self._executor = Executor(options.most_workers)
        self._streams = StreamPlaces(options.most_workers)
        self._metadata = MetadataCache(self)

    @property
    def datasets(self) -> Mapping[str, Dataset]:
        """All data sets by name, including those that users have saved."""
        return self._datasets

    @property
    def is_lost(self) -> bool:
        """`True` if the folder was deleted: open data is still served, but nothing can be saved."""
        return self._store.is_lost

    def list_datasets(self, scope: Scope) -> Sequence[Dataset]:
        """Return the data sets that a scope may query: the operator's, and the user's own.

        Data sets saved without a user (owner "") belong to all anonymous users.
        """
        return [
            dataset
            for dataset in self._datasets.values()
            if dataset.owner in {None, scope.owner or ""}
            and (scope.is_operator or not dataset.for_operators)
            and not self.is_closed(dataset)
        ]

    async def open(self, on_progress: OnProgress | None = None) -> None:
        """Copy changed sources and open the sandbox.

        Unreadable sources are in `problems`. Raises the first source's error if there is no data at
        all.
        """
        if self._workers is not None:
            return
        async with self._changes:
            self._store.open()
            while not self._store.take_lock() and self._store.is_unfinished:  # noqa: ASYNC110
                await asyncio.sleep(WAIT)
            self._stamp, self._manifest = self._store.stamp(), self._store.read()
            self._store.clean(self._manifest.entries)
            try:
                await self._executor.start(self._start_processes)
                try:
                    await self._load(on_progress, is_first=True)
                except duckdb.Error:
                    self._manifest = await self._executor.start(
                        loading.drop_broken_copies, self._store, self._manifest
                    )
                    await self._load(on_progress, is_first=True)
                if self.problems and not self._datasets:
                    raise next(iter(self.problems.values()))
            except BaseException:
                self._copier.close()
                for workers in filter(None, (self._workers, self._next_workers)):
                    workers.close()
                self._workers = self._next_workers = None
                self._store.close()
                raise

    def _start_processes(self) -> None:
        """Start processes before they are needed, and read DuckDB's words while they import."""
        if self._store.is_writer and not self._manifest.entries:
            self._copier.start()
        self._next_workers = Workers(self.options)
        list_keywords()
        list_functions()

    async def aclose(self) -> None:
        """Stop all queries and close everything."""
        workers, self._workers = self._workers, None
        if workers is not None:
            await self._executor.start(workers.close)
        await self._executor.aclose()
        self._store.close()

    async def wait_idle(self) -> None:
        """Wait until no thread is working."""
        await self._executor.wait_idle()

    async def run(
        self,
        query: "GuardedQuery | str",
        *,
        limit: int,
        timeout: float | None = None,
        span: Span = NO_SPAN,
        on_start: Callable[[], None] | None = None,
    ) -> Table:
        """Return at most `limit` rows of a query; `is_truncated` is set if there are more.

        Raises `QueryFailed`, or `QueryTimedOut` after `timeout` seconds of work.
        Cancellation interrupts the query. `on_start` is called when a slot is free.
        """
        most = max(0, min(limit, self.options.max_rows))
        table = await self._execute(query, most, timeout, on_start, RemoteQuery.run)
        span.set_attributes({semconv.DB_RESPONSE_RETURNED_ROWS: len(table.rows)})
        return table

    async def stream(
        self,
        query: "GuardedQuery | str",
        *,
        limit: int | None = None,
        batch_rows: int = 5_000,
        timeout: float | None = None,
    ) -> AsyncGenerator[Sequence[Sequence[Any]]]:
        """Yield the rows of a query in batches, with backpressure from the reader.

        `timeout` applies to each batch. A slow reader occupies no slot of queries, but one of
        streams, which it loses if it stops reading and others wait. Always close the iterator.
        """
        await self.follow()
        left = self.options.max_rows if limit is None else limit
        seconds = timeout or self.options.query_timeout
        job = RemoteQuery(self._require_workers, _read_sql(query), left)
        async with self._streams.take(partial(self._executor.close_query, job), seconds) as place:
            await self._executor.run(job, RemoteQuery.begin, seconds)
            while left > 0:
                fetch = partial(RemoteQuery.fetch, count=min(batch_rows, left))
                rows = await self._executor.run(job, fetch, seconds)
                if not rows:
                    return
                left -= len(rows)
                with place.wait_for_reader():
                    yield rows

    async def explain(self, query: "GuardedQuery | str") -> None:
        """Raise `QueryFailed` if names or types of a query are wrong. The query does not run."""
        await self._execute(query, 0, None, None, RemoteQuery.explain)

    async def describe(self, name: str, scope: Scope) -> TableMetadata:
        """Return statistics of a data set, computed over the rows that a scope may read."""
        await self.follow()
        dataset = self._datasets.get(name)
        if dataset is None or dataset not in self.list_datasets(scope):
            raise QueryFailed(f"There is no data set {name!r}.", kind="table_not_found", name=name)
        return await self._metadata.describe(dataset, scope)

    async def save(
        self,
        name: str,
        query: "GuardedQuery | str",
        *,
        owner: str,
        description: str = "",
        tags: Sequence[str] = (),
    ) -> Dataset:
        """Save the rows of a query as a data set of its owner, replacing one with the same name.

        Raises `DatasetRefused` if this process may not write or there are too many data sets,
        `QueryFailed`, `QueryTimedOut` and `StorageFull`. Nothing changes in these cases.
        """
        # what the one before took has been counted: how much this one takes is not known
        async with self._changes, reserve_storage(0):
            self._store.require_lock()
            await self._reload()
            old = self._manifest.find(name, owner)
            if old is None:
                self._manifest.require_room(owner)
            alias = old.alias if old else f"d{self._manifest.next_alias}"
            wish, others = name_saved_table(name, owner), (self._datasets, list_keywords())
            table = old.tables[0].name if old else choose_name(wish, "ds", *others)
            part = self._store.new_file(table)
            saving = await self._executor.start(RemoteSaving, self._require_workers(), part)
            work = self._executor.start(saving.run, table, _read_sql(query))
            try:
                stored = await self._executor.attend(
                    work, saving.kill, saving.kill, self.options.query_timeout
                )
                entry = ManifestEntry(
                    alias=alias,
                    source=name,
                    file=self._store.finish(part).name,
                    fingerprint="",
                    tables=[stored],
                    description=description,
                    tags=tuple(tags),
                    owner=owner,
                    created_at=datetime.now(UTC).isoformat(timespec="seconds"),
                )
            except BaseException:
                if work.done():
                    saving.discard()
                else:
                    work.add_done_callback(lambda _: saving.discard())
                raise
            await self._swap(self._manifest.add(entry))
            return self._datasets[stored.name]

    async def refresh(
        self, name: str | None = None, on_progress: OnProgress | None = None
    ) -> Sequence[str]:
        """Copy one or all changed sources. Return the names of the copied sources.

        A process that is not the writer adopts the copies of the writer.
        """
        async with self._changes:
            self._store.require_folder()
            is_writer = self._store.take_lock()
            await self._reload()
            if not is_writer:
                return []
            only = None if name is None else {name}
            if only and only.isdisjoint(it.name for it in expand_sources(self.sources)):
                raise DatasetRefused(f"There is no data source {name!r}.")
            return await self._load(on_progress, only=only)

    async def retry(self, on_progress: OnProgress | None = None) -> Sequence[str]:
        """Retry sources that could not be read. Return the names of the copied sources."""
        async with self._changes:
            if not self.problems or not self._store.take_lock():
                return []
            await self._reload()
            return await self._load(on_progress, only={*self.problems})

    def count_bytes(self, owner: str, *, is_prefix: bool = False) -> int:
        """Return the size of the data sets that an owner saved, or all with a common prefix."""
        return self._store.count_bytes(self._manifest, owner, is_prefix=is_prefix)

    async def delete(self, name: str, owner: str) -> None:
        """Delete a data set that `owner` saved. Raises `DatasetRefused` if it does not exist."""
        async with self._changes:
            self._store.require_lock()
            await self._reload()
            for entry in self._manifest.entries:
                names = (entry.source, entry.tables[0].name)
                if entry.is_saved and entry.owner == owner and name in names:
                    await self._swap(self._manifest.remove(entry))
                    return
            raise DatasetRefused(f"You have saved no data set {name!r}.")

    def _require_workers(self) -> Workers:
        if self._workers is None:
            raise QueryFailed("The engine is not open.")
        return self._workers

    async def _execute(
        self,
        query: "GuardedQuery | str",
        limit: int,
        timeout: float | None,
        on_start: Callable[[], None] | None,
        work: Callable[[RemoteQuery], T],
    ) -> T:
        await self.follow()
        job = RemoteQuery(self._require_workers, _read_sql(query), limit)
        return await self._executor.run(job, work, timeout or self.options.query_timeout, on_start)

    async def follow(self) -> None:
        """Adopt the data sets written by another process."""
        is_reader = self._workers is not None and not self._store.is_writer
        if is_reader and self._store.stamp() != self._stamp:
            async with self._changes:
                await self._reload()

    async def _reload(self) -> None:
        stamp = self._store.stamp()
        if stamp not in {0, self._stamp}:  # neither unchanged nor deleted
            try:
                await self._start_workers(self._store.read())
            except duckdb.Error:  # the writer has replaced a file meanwhile
                stamp = self._store.stamp()
                await self._start_workers(self._store.read())
            self._stamp = stamp

    async def _load(
        self,
        on_progress: OnProgress | None,
        *,
        only: Collection[str] | None = None,
        is_first: bool = False,
    ) -> Sequence[str]:
        if not self._store.is_writer:
            await self._start_workers(self._manifest)
            return []
        parts = (self._store, self.options, self._executor, self._copier)
        loader = loading.Loader(*parts, on_progress, self.problems)
        manifest, changed = await loader.load(self.sources, self._manifest, only)
        if changed or is_first or manifest != self._manifest:
            await self._swap(replace(manifest, is_whole=True))
        return changed

    async def _swap(self, manifest: Manifest) -> None:
        """Use other data sets for all later queries. If that fails, nothing has changed."""
        await self._start_workers(manifest, write=True)
        self._store.clean(manifest.entries)

    async def _start_workers(self, manifest: Manifest, *, write: bool = False) -> None:
        files = loading.locate_files(self._store, manifest)
        workers = self._next_workers or await self._executor.start(Workers, self.options)
        self._next_workers = None
        await self._executor.start(workers.open, files)
        is_cancelled = False
        if write:
            try:
                is_cancelled = await self._executor.finish(self._store.write, manifest)
            except BaseException:
                workers.close()
                raise
            self._stamp = self._store.stamp()
        before, self._workers = self._workers, workers
        self._manifest = manifest
        self._datasets = {
            dataset.name: dataset
            for entry in sorted(manifest.entries, key=lambda entry: int(entry.alias[1:]))
            for dataset in entry.list_datasets()
        }
        self.version = " ".join(it.version for it in self._datasets.values() if not it.is_saved)
        if before is not None:
            self._executor.start(before.retire)
        if is_cancelled:
            raise asyncio.CancelledError


def _read_sql(query: "GuardedQuery | str") -> str:
    return query if isinstance(query, str) else query.sql
