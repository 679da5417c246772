"""The ingestion pipeline: files are read, and their statements and chunks merged into resources.

Reading comes first: what each new or changed file gives is written to the journal. Then every
resource to which that makes a difference is put together anew from all files that give something
to it, in the order of their names: so it is the same however and how often that happened. A
resource to which no file gives anything any more is removed.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from copilot_runtime.base.batches import split_batches
from copilot_runtime.base.concurrency import call
from copilot_runtime.base.errors import StoreFailed
from copilot_runtime.base.jsonvalue import JsonObject, JsonValue
from copilot_runtime.extensions.knowledge.identifiers import BASE, Identifier, check_base
from copilot_runtime.extensions.knowledge.ingestion.journal import (
    Contribution,
    IngestionJournal,
    IngestionLock,
    IngestProgress,
    IngestReport,
    ProgressHook,
    SourceStatus,
    load_journal,
    lock_ingestion,
)
from copilot_runtime.extensions.knowledge.ingestion.processor import (
    JSONLD_FORM,
    READ_BATCH,
    ItemForm,
    SourceReader,
    identify_item,
)
from copilot_runtime.extensions.knowledge.ingestion.sources import (
    Discovery,
    discover_sources,
)
from copilot_runtime.extensions.knowledge.ingestion.watcher import SourceWatcher
from copilot_runtime.extensions.knowledge.rdf.jsonld import write_jsonld
from copilot_runtime.extensions.knowledge.rdf.terms import (
    RDFS,
    SCHEMA,
    get_value,
    order_types_first,
    parse_triples,
    write_nquads,
    write_turtle,
)
from copilot_runtime.extensions.knowledge.resources import Resource, ResourceIndex
from copilot_runtime.extensions.knowledge.spans import start_ingest_step_span
from copilot_runtime.storage import Storage
from copilot_runtime.telemetry import Span, semconv, trace_block

logger = logging.getLogger(__name__)

T = TypeVar("T")
_Stage = Callable[[int, int], None]

_STORE_BATCH = 200

_TITLES = (f"{SCHEMA}name", f"{SCHEMA}headline", f"{SCHEMA}title", f"{RDFS}label")


@dataclass(frozen=True, slots=True)
class Provenance:
    """The contribution of one file to a resource."""

    source: str
    statements: Sequence[str]
    """In N-Triples, one each; a chunk of a text has none."""


class Ingestion:
    """Ingests files as resources.

    `base` is put before the path of a page for its IRI, which references on it are relative to.
    Its journal is in the storage of the resources, below `ingestion/`, unless another storage is
    given.
    """

    def __init__(
        self,
        resources: ResourceIndex,
        storage: Storage | None = None,
        *,
        base: str = BASE,
        form: ItemForm = JSONLD_FORM,
    ) -> None:
        self._resources = resources
        self._storage = storage or resources.storage
        self._base = base if check_base(base).endswith("/") else f"{base}/"
        self._form = form
        self._journal = IngestionJournal(self._storage)
        """The journal for queries; a run of the ingestion uses its own."""
        self._reading = asyncio.Lock()

    async def run(
        self,
        sources: Iterable[str | Path],
        progress: ProgressHook | None = None,
        *,
        only: Collection[str] | None = None,
        wait: bool = False,
        dry_run: bool = False,
    ) -> IngestReport:
        """Ingest files, folders and patterns, and remove the contributions of deleted files.

        Of all files that are found, or missing, it may be about `only` some, by their names.
        Unreadable files and folders are in the report; their earlier contributions are kept.
        Raises `IngestionBusy` if another ingestion of this storage runs, unless `wait` is set;
        `NotFound` for a path that is not there. `dry_run` only says what would be done to files.
        """
        began = time.monotonic()
        sources = [*sources]
        if dry_run:
            report = await self._run(sources, progress, only, None)
        else:
            async with lock_ingestion(self._storage, wait=wait) as lock:
                report = await self._run(sources, progress, only, lock)
        report.seconds = time.monotonic() - began
        return report

    async def provenance(self, uri: str) -> list[Provenance]:
        """Return the contributions of files to a resource, sorted by file name."""
        async with self._read_journal() as journal:
            contributions = await journal.read_records(journal.find_sources(uri))
        return [
            Provenance(name, self._statements(name, contribution).get(uri, []))
            for name, contribution in contributions.items()
        ]

    async def list_parts(self, uri: str) -> list[str]:
        """Return the URIs of all that the files of a resource contribute, in their order."""
        async with self._read_journal() as journal:
            names = journal.find_sources(uri)
            return [part for name in names for part in journal.sources[name].parts]

    async def sources(self) -> list[str]:
        """Return the names of all ingested files."""
        async with self._read_journal() as journal:
            return sorted(journal.sources)

    async def list_sources(self) -> list[SourceStatus]:
        """Return the status of each file at its last attempt, ingested or failed."""
        async with self._read_journal() as journal:
            return journal.list_sources()

    @asynccontextmanager
    async def _read_journal(self) -> AsyncGenerator[IngestionJournal]:
        """Yield the current journal for reading. Only new lines are parsed."""
        async with self._reading:
            await self._journal.refresh()
            yield self._journal

    async def _run(
        self,
        paths: list[str | Path],
        progress: ProgressHook | None,
        only: Collection[str] | None,
        lock: IngestionLock | None,
    ) -> IngestReport:
        """Read and merge while holding the lock; without a lock, only report."""
        journal = await load_journal(self._storage)
        report = IngestReport()
        with trace_block(start_ingest_step_span("read")) as span:
            stage = _stage("read", progress)
            discovery = await self._read(paths, journal, report, stage, only, lock)
            _describe_reading(span, report)
        if lock:
            with trace_block(start_ingest_step_span("store")) as span:
                await journal.write((), report.removed)
                tried = journal.failures.keys() | journal.skipped.keys()
                if only is not None:
                    tried &= {*only, *discovery.folders}
                attempts: list[str] = await call(discovery.list_attempts, [*tried])
                cleared = dict.fromkeys(attempts, "")
                skipped = {name: _explain_skip(why) for name, why in report.skipped.items()}
                await journal.write_failures(cleared | report.failed, cleared | skipped)
                # restore resources that others have removed, as the files still contain them
                journal.stale |= journal.uris - (await self._resources.versions()).keys()
                await self._merge(journal, report, _stage("store", progress), lock)
                span.set_attributes({semconv.INGEST_CHANGES: report.resources + report.deleted})
        return report

    async def _read(
        self,
        paths: list[str | Path],
        journal: IngestionJournal,
        report: IngestReport,
        progress: _Stage,
        only: Collection[str] | None,
        lock: IngestionLock | None,
    ) -> Discovery:
        """Discover the files, read the new and changed ones, and report on all."""
        before = journal.sources
        discovery = await call(
            discover_sources,
            paths,
            {name: entry.address for name, entry in before.items()},
            self._folder(),
        )
        report.skipped.update(sorted(discovery.skipped.items()))
        report.failed.update(discovery.unreadable)
        for name, reason in report.failed.items():
            logger.warning("%s: %s", name, reason)
        report.unmatched += discovery.unmatched
        names = {*before, *discovery.sources} if only is None else only
        found = [it for it in discovery.sources.values() if it.name in names]
        reader = SourceReader(journal, report, self._base, self._form, discovery.files)
        reader.lock = lock
        await reader.process(found, progress)
        report.new.sort()
        report.changed.sort()
        report.empty.sort()
        gone = [name for name in before if name in names and name not in discovery.sources]
        report.removed += sorted(filter(discovery.covers, gone))
        return discovery

    async def _merge(
        self, journal: IngestionJournal, report: IngestReport, progress: _Stage, lock: IngestionLock
    ) -> None:
        """Rebuild every resource whose contributions have changed."""
        if not journal.stale:
            return
        gone = sorted(uri for uri in journal.stale if not journal.find_sources(uri))
        for batch in split_batches(gone, _STORE_BATCH):
            report.deleted += len(await self._resources.delete_many(batch))
        stale = journal.stale.difference(gone)
        waiting = {uri: len(journal.find_sources(uri)) for uri in stale}
        drafts: dict[str, _Draft] = {}
        ready: list[_Draft] = []
        done = 0
        files = sorted({name for uri in stale for name in journal.find_sources(uri)})
        for batch in split_batches(files, READ_BATCH):
            lock.check()
            records = await journal.read_records(batch)
            if missing := [name for name in batch if name not in records]:
                await journal.write((), missing)
                raise StoreFailed(
                    f"What was taken in of {missing[0]!r} is no longer in the storage.",
                    hint="It was deleted there. Ingest again: the file will be read anew.",
                )
            for name, contribution in records.items():
                statements = self._statements(name, contribution)
                for uri in journal.sources[name].parts:
                    if uri not in waiting:
                        continue
                    draft = drafts.setdefault(uri, _Draft(uri))
                    draft.add(name, contribution, statements.get(uri, []))
                    waiting[uri] -= 1
                    if not waiting[uri]:
                        ready.append(drafts.pop(uri))
            for drafted in split_batches(ready, _STORE_BATCH):
                await self._store(drafted, report)
                done += len(drafted)
                progress(done, len(waiting))
            ready.clear()
        await journal.finish()
        await journal.discard_orphans()

    async def _store(self, drafts: Sequence["_Draft"], report: IngestReport) -> None:
        resources: list[Resource] = await call(lambda: [it.build(self._form) for it in drafts])
        versions = await self._resources.versions()
        changed = [
            resource
            for resource in resources
            if (entry := versions.get(resource.uri)) is None or entry.version != resource.version
        ]
        report.resources += await self._resources.put_many(changed)
        uris = {resource.uri for resource in changed}
        report.triples += sum(len(draft.lines) for draft in drafts if draft.uri in uris)

    def _statements(self, name: str, contribution: Contribution) -> dict[str, list[str]]:
        """Return the lines of N-Triples of each resource of a file, by URI."""
        statements: dict[str, list[str]] = {}
        for iri, lines in contribution.items.items():
            uri = identify_item(iri, self._form, name)
            statements.setdefault(uri, []).extend(lines.split("\n"))
        return statements

    def watch(self, paths: Sequence[str | Path]) -> SourceWatcher:
        """Return a watcher of files, folders and patterns."""
        return SourceWatcher(paths, self._folder())

    def _folder(self) -> Path | None:
        """Return the folder of a local storage, which is excluded from sources, or `None`."""
        path = self._storage.path("folder")
        return path.parent.resolve() if path else None


class _Draft:
    """A resource that is being merged from contributions."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.lines: dict[str, None] = {}
        self._chunk: JsonObject = {}
        self._fields: dict[str, JsonValue] = {}
        self._page_title = ""
        self._most = -1

    def add(self, name: str, contribution: Contribution, lines: list[str]) -> None:
        """Add the contribution of a file."""
        for line in lines:
            self.lines[line] = None
        if self.uri in contribution.chunks:
            self._chunk = contribution.chunks[self.uri]
            self._fields["title"] = contribution.title
            self._fields["media_type"] = contribution.media_type
        if len(lines) > self._most:
            self._most = len(lines)
            self._fields["source"] = name
            self._page_title = contribution.title

    def build(self, form: ItemForm) -> Resource:
        """Return the resource merged from all contributions."""
        parent, _, last = self.uri.rpartition("/")
        type, _, name = last.rpartition(".")
        if self._chunk:
            id = Identifier(type, name, parent, subjects=(str(self._chunk["iri"]),))
            fields = {**self._fields, "place": self._chunk["place"]}
            return Resource(id, str(self._chunk["text"]), "text", "system", fields)
        triples = order_types_first(parse_triples(self.lines))
        subject = get_value(triples[0].subject)
        id = Identifier(type, name, parent, subjects=(subject,))
        match form.format:
            case "jsonld":
                content = write_jsonld(triples, subject)
            case "nquads":
                content = write_nquads(triples)
            case "turtle" | "text":
                content = write_turtle(triples)
        if not form.described:  # Copilot-LD does not say the format either
            return Resource(id, content, "text", "system")
        titles = {triple.predicate.value: get_value(triple.object) for triple in reversed(triples)}
        title = next((titles[name] for name in _TITLES if name in titles), "")
        fields = {"title": title} if title else {"page_title": self._page_title}
        return Resource(id, content, form.format, "system", {**fields, **self._fields})


def _explain_skip(reason: str) -> str:
    is_type = " " not in reason
    return f"Files of the type {reason} are not read." if is_type else f"The link {reason}."


def _describe_reading(span: Span, report: IngestReport) -> None:
    read = len(report.new) + len(report.changed)
    span.set_attributes(
        {
            semconv.INGEST_SOURCES: read + report.unchanged + len(report.failed),
            semconv.INGEST_CHANGES: read + len(report.removed),
            semconv.INGEST_FAILURES: len(report.failed),
        }
    )


def _stage(stage: Literal["read", "store"], progress: ProgressHook | None) -> _Stage:
    """Return a hook for one of the two stages."""

    def report(done: int, total: int) -> None:
        if progress:
            progress(IngestProgress(stage, done, total))

    return report
