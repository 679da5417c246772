"""Write copies of the sources into the folder."""

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import duckdb

from copilot_runtime.base.errors import CopilotError
from copilot_runtime.extensions.analyst.engine import postgres
from copilot_runtime.extensions.analyst.engine.copier import Copier
from copilot_runtime.extensions.analyst.engine.copies import Copy, refuse_copy
from copilot_runtime.extensions.analyst.engine.datasets import choose_name, quote_text
from copilot_runtime.extensions.analyst.engine.executor import REPEAT, Executor
from copilot_runtime.extensions.analyst.engine.sandbox import EngineOptions
from copilot_runtime.extensions.analyst.engine.sources import (
    DataSource,
    OnProgress,
    Progress,
    expand_sources,
    fingerprint_files,
    list_files,
)
from copilot_runtime.extensions.analyst.engine.store import (
    Manifest,
    ManifestEntry,
    Store,
    StoredTable,
)
from copilot_runtime.extensions.analyst.sql.syntax_tree import list_keywords

logger = logging.getLogger(__name__)

INTERVAL = 0.25
"""Seconds between two reports of progress."""


class Loader:
    """Copies changed sources. Old copies stay on disk until no query reads them."""

    def __init__(
        self,
        store: Store,
        options: EngineOptions,
        executor: Executor,
        copier: Copier,
        on_progress: OnProgress | None,
        problems: dict[str, CopilotError],
    ) -> None:
        self._store = store
        self._options = options
        self._start = executor.start
        self._on_progress = on_progress
        self._problems = problems
        self._copier = copier

    async def load(
        self, sources: Sequence[DataSource], manifest: Manifest, only: Collection[str] | None = None
    ) -> tuple[Manifest, Sequence[str]]:
        """Return the current manifest, and the names of the copied sources.

        A source that cannot be read keeps its old copy, if there is one, and is added to the
        problems.
        """
        try:
            return await self._load(sources, manifest, only)
        finally:
            await self._start(self._copier.close)

    async def _load(
        self, sources: Sequence[DataSource], manifest: Manifest, only: Collection[str] | None
    ) -> tuple[Manifest, Sequence[str]]:
        current = await self._start(expand_sources, sources)
        changed: list[str] = []
        for name in {*self._problems} - {source.name for source in current}:
            del self._problems[name]
        if only is None:
            names = {source.name for source in current}
            entries = [one for one in manifest.entries if one.is_saved or one.source in names]
            manifest = replace(manifest, entries=entries)
        for source in current:
            if only is not None and source.name not in only:
                continue
            old = manifest.find(source.name)
            entry = await self._load_source(source, old, manifest)
            if entry is None:
                if old is not None and not self._store.locate(old).exists():
                    manifest = manifest.remove(old)
            elif entry != old:
                manifest = manifest.add(entry)
                await self._start(self._store.write, manifest)
                changed.append(source.name)
        return manifest, changed

    async def _load_source(
        self, source: DataSource, old: ManifestEntry | None, manifest: Manifest
    ) -> ManifestEntry | None:
        try:
            fingerprint = await self._fingerprint(source)
            if old and old.fingerprint == fingerprint and self._store.locate(old).exists():
                self._problems.pop(source.name, None)
                return replace(
                    old, description=source.description, for_operators=source.for_operators
                )
            entry = await self._copy(source, old, manifest, fingerprint)
        except (CopilotError, OSError, ValueError, duckdb.Error) as error:
            failure = error if isinstance(error, CopilotError) else refuse_copy(source, error)
            has_copy = old is not None and self._store.locate(old).exists()
            outcome = "Its old copy is used." if has_copy else "It is left out."
            place = source.label if source.kind == "postgres" else source.location
            logger.error("Data from %r cannot be loaded: %s %s", place, failure, outcome)
            self._problems[source.name] = failure
            self._report(Progress(source=source.name, is_done=True))
            return None
        self._problems.pop(source.name, None)
        return entry

    async def _fingerprint(self, source: DataSource) -> str:
        if source.kind == "postgres":
            return await postgres.fingerprint_database(source)
        return f"{source.mode}:{await self._start(fingerprint_files, source)}"

    async def _copy(
        self, source: DataSource, old: ManifestEntry | None, manifest: Manifest, fingerprint: str
    ) -> ManifestEntry:
        others = [one for one in manifest.entries if one != old]
        names = {table.name for entry in others for table in entry.tables}
        part = self._store.new_file(source.name)
        if source.kind == "postgres":
            tables = await self._copy_exports(source, part, names)
        else:
            work = self._start(self._copier.copy, source, part, names, list_keywords())
            try:
                tables = await self._watch(source, work)
            except BaseException:
                while not work.done():
                    self._copier.kill()
                    await asyncio.wait({work}, timeout=REPEAT)
                self._store.discard(part)
                raise
        is_foreign = source.mode == "attach"
        if is_foreign:
            file = str((await self._start(list_files, source))[0].resolve())
        else:
            file = self._store.finish(part).name
        before = {table.table: table for table in old.tables} if old else {}
        tables = [table.follow(before.get(table.table)) for table in tables]
        return ManifestEntry(
            alias=old.alias if old else f"d{manifest.next_alias}",
            source=source.name,
            file=file,
            fingerprint=fingerprint,
            tables=tables,
            is_foreign=is_foreign,
            description=source.description,
            for_operators=source.for_operators,
            created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        )

    async def _copy_exports(
        self, source: DataSource, part: Path, names: set[str]
    ) -> Sequence[StoredTable]:
        def choose(table: str) -> str:
            name = choose_name(table, source.name, names, list_keywords())
            names.add(name)
            return name

        copy = await self._start(Copy, part, self._options)
        work: asyncio.Task[Sequence[StoredTable]] | None = None
        try:
            exports = await postgres.export_database(source, part, self._report)
            work = self._start(copy.copy_exports, exports, choose)
            tables = await asyncio.shield(work)
            await self._start(copy.finish)
        except BaseException:
            copy.interrupt()
            if work is not None and not work.done():
                work.add_done_callback(lambda _: copy.discard())
            else:
                copy.discard()
            raise
        self._report(Progress(source=source.name, rows=_count_rows(tables), is_done=True))
        return tables

    async def _watch(
        self, source: DataSource, work: "asyncio.Task[Sequence[StoredTable]]"
    ) -> Sequence[StoredTable]:
        while not (await asyncio.wait({work}, timeout=INTERVAL))[0]:
            self._report(Progress(source=source.name, rows=self._copier.rows or None))
        tables = work.result()
        self._report(Progress(source=source.name, rows=_count_rows(tables), is_done=True))
        return tables

    def _report(self, progress: Progress) -> None:
        if self._on_progress is not None:
            self._on_progress(progress)


def _count_rows(tables: Sequence[StoredTable]) -> int:
    return sum(table.row_count for table in tables)


def locate_files(store: Store, manifest: Manifest) -> Mapping[str, Path]:
    """Return the files of a manifest by their names in the sandbox."""
    return {entry.alias: store.locate(entry) for entry in manifest.entries}


def drop_broken_copies(store: Store, manifest: Manifest) -> Manifest:
    """Return a manifest without entries whose file cannot be opened."""
    whole = manifest
    for entry in manifest.entries:
        try:
            with duckdb.connect() as connection:
                path = quote_text(str(store.locate(entry)))
                connection.execute(f"ATTACH {path} AS source (READ_ONLY)")
        except duckdb.Error as error:
            logger.warning("The copy of %r is unreadable: %s", entry.source, error)
            whole = whole.remove(entry)
    return whole
