"""The graph of all resources that have triples."""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TypeVar

import numpy as np
from pyoxigraph import RdfFormat, Triple, parse

from copilot_runtime.base import concurrency
from copilot_runtime.base.errors import ConfigurationFailed, Misuse
from copilot_runtime.base.jsontext import replace_surrogates
from copilot_runtime.base.jsonvalue import JsonObject
from copilot_runtime.extensions.knowledge.access import FULL_ACCESS, Access, run_with_access
from copilot_runtime.extensions.knowledge.catalog import CatalogEntry
from copilot_runtime.extensions.knowledge.graph.content import (
    GraphLog,
    delete_line,
    encode_line,
    encode_triples,
    read_content,
)
from copilot_runtime.extensions.knowledge.graph.derivation import derive_ontology
from copilot_runtime.extensions.knowledge.graph.evaluator import (
    Evaluation,
    SparqlEvaluator,
    ViewKey,
)
from copilot_runtime.extensions.knowledge.graph.ontology import GraphOptions, Ontology, write_shapes
from copilot_runtime.extensions.knowledge.graph.sparql import (
    Shares,
    SparqlLimits,
    SparqlResult,
    check_query,
)
from copilot_runtime.extensions.knowledge.graph.subjects import find_subjects
from copilot_runtime.extensions.knowledge.graph.table import (
    Holder,
    Numbers,
    Snapshot,
    TripleTable,
    Visibility,
    VisibilityCache,
)
from copilot_runtime.extensions.knowledge.graph.terms import (
    Pattern,
    PatternLike,
    Prefixes,
    read_pattern,
)
from copilot_runtime.extensions.knowledge.identifiers import Identifier
from copilot_runtime.extensions.knowledge.index import (
    EVERYTHING,
    Filter,
    Index,
    Progress,
    UpdateReport,
    check_ids,
    is_indexed,
)
from copilot_runtime.extensions.knowledge.rdf.terms import parse_triples
from copilot_runtime.extensions.knowledge.resources import Resource, ResourceIndex
from copilot_runtime.storage import ObjectNotFound, Storage

T = TypeVar("T")

ANYTHING = Pattern()

_BATCH = 500
"""Number of resources indexed and written in one batch."""
_MOST_BATCHES = 100
"""Maximum number of batches; appends to a bucket may rewrite the whole object."""
_REFRESH_SECONDS = 1.0
"""Minimum seconds between two checks for writes of other processes."""
_MOST_ROWS_ON_LOOP = 20_000
"""Maximum number of rows searched on the event loop."""
_MOST_ROWS_TO_JUDGE_ON_LOOP = 100
_LARGEST_PAGE = 100
_MOST_ONTOLOGIES = 8


@dataclass(frozen=True, slots=True)
class GraphItem:
    """A resource and its triples."""

    identifier: Identifier
    triples: Iterable[Triple] = field(default=())


class GraphIndex(Index[GraphItem, Pattern]):
    """Finds resources by their triples, and queries the triples of all resources.

    Results derive only from the triples of resources that the access allows, and from nothing
    else: neither counts nor joins nor the ontology reveal others. Resources keep the
    order in which they came. The graph is in one object of the storage; what other processes
    write to it is seen.
    """

    def __init__(
        self,
        storage: Storage,
        options: GraphOptions | None = None,
        *,
        prefix: str = "graphs",
    ) -> None:
        options = options or GraphOptions()
        self.prefixes = Prefixes(options.prefixes)
        self._table = TripleTable()
        self._log = GraphLog(storage, f"{prefix}/index.jsonl")
        self._storage = storage
        self._ontology_key = f"{prefix}/ontology.ttl"
        self._options = options
        triples = _read_vocabulary(options.vocabulary, self.prefixes)
        self._vocabulary = encode_triples(triples, "vocabulary")
        self._visibilities = VisibilityCache()
        self._shares = Shares()
        self._evaluator = SparqlEvaluator(on_disk=options.sparql_store == "disk")
        self._ontologies: dict[object, Ontology] = {}
        self._lock = asyncio.Lock()
        self._next_refresh = 0.0
        self._expiries = 0
        """Number of change notifications from other processes."""

    async def update(
        self, resources: ResourceIndex, progress: Progress | None = None
    ) -> UpdateReport:
        """Index new and changed resources, and remove deleted ones.

        Each batch is durable once written. The ontology is written anew if a triple is
        another one than before; resources without triples cost only themselves.
        """
        started = time.monotonic()
        await self._look()  # so that queries from now on do not wait for the following
        async with self._lock:
            await self._log.refresh(self._table)
            versions = {**await resources.versions()}
            new, changed, gone = await concurrency.call(self._compare, versions)
            stale = [*new, *changed]
            failed: dict[str, str] = {}
            size = max(_BATCH, len(stale) // _MOST_BATCHES)
            for start in range(0, len(stale), size):
                failed |= await self._take_in(await resources.get(stale[start : start + size]))
                if progress is not None:
                    progress(min(start + size, len(stale)), len(stale))
            await self._remove(gone)
            await self._log.refresh(self._table)
            await self._log.compact(self._table)
            if not await self._storage.exists(self._ontology_key):
                await self._store_ontology()
        return UpdateReport(
            added=len(new),
            changed=len(changed),
            removed=len(gone),
            failed=failed,
            seconds=time.monotonic() - started,
        )

    async def add(self, *items: GraphItem) -> None:
        async with self._lock:
            await self._log.refresh(self._table)
            await self._put(
                await concurrency.call(lambda: [self._read_item(item) for item in items])
            )

    async def remove(self, ids: Iterable[Identifier | str]) -> None:
        """Remove the triples of resources."""
        async with self._lock:
            await self._log.refresh(self._table)
            holders = self._table.holders
            gone = [holders[uri] for uri in map(str, check_ids(ids)) if uri in holders]
            await self._log.append(delete_line(str(it.identifier)) for it in gone)
            for holder in gone:
                self._table.remove(str(holder.identifier))
            if any(holder.count for holder in gone):
                await self._store_ontology()

    async def get(self, ids: Iterable[Identifier | str] | None) -> list[Identifier]:
        uris = check_ids(ids)
        await self._refresh()
        holders = map(self._table.get, uris)
        return [holder.identifier for holder in holders if holder is not None]

    async def has(self, id: Identifier | str) -> bool:
        await self._refresh()
        return self._table.get(str(id)) is not None

    async def query(self, query: Pattern, filter: Filter = EVERYTHING) -> list[Identifier]:
        return await self.find(query, filter)

    async def find(
        self,
        pattern: PatternLike = ANYTHING,
        filter: Filter = EVERYTHING,
        *,
        offset: int = 0,
        wide: bool = False,
    ) -> list[Identifier]:
        """Return the resources with a triple that matches a pattern, in index order.

        `offset` leaves out the first ones. With `wide` it returns all resources that say anything
        about a subject of such a triple, as Copilot-LD does. Raises `Misuse` for a pattern that
        means nothing.
        """
        queries = read_pattern(pattern).parse(self.prefixes)

        snapshot = await self._refresh()

        def search(access: Access) -> list[Identifier]:
            visibility = self._visibilities.get(snapshot, access)
            if queries == (None, None, None):
                pieces = _pieces(snapshot.holders_with_rows)
            elif wide:
                pieces = _pieces(_widen(snapshot, visibility, snapshot.match(queries)))
            else:
                pieces = (snapshot.holders[rows] for rows in snapshot.match(queries))
            identifiers = _let_through(_each_once(pieces), snapshot, visibility, filter)
            return filter.cut(islice(identifiers, max(0, offset), None))

        immediate = filter.access.immediate
        if immediate and not wide and self._is_small(snapshot.match(queries).most, filter):
            return search(immediate)
        return await run_with_access(filter.access, lambda: search(filter.access))

    async def triples(
        self,
        pattern: PatternLike = ANYTHING,
        access: Access = FULL_ACCESS,
        limit: int = 100,
        offset: int = 0,
    ) -> list[Triple]:
        """Return the distinct triples that match a pattern, in the order of their resources."""
        queries = read_pattern(pattern).parse(self.prefixes)

        def search(snapshot: Snapshot, visibility: Visibility) -> list[Triple]:
            stop = max(0, offset) + limit if limit > 0 else None
            lines: dict[str, None] = {}
            for rows in snapshot.match(queries):
                lines |= dict.fromkeys(snapshot.lines(visibility.rows(rows)))
                if stop is not None and len(lines) >= stop:
                    break
            return parse_triples(islice(lines, max(0, offset), stop))

        return await self._answer(access, search)

    async def sparql(
        self,
        query: str,
        access: Access = FULL_ACCESS,
        limits: SparqlLimits | None = None,
        *,
        asker: str | None = None,
    ) -> SparqlResult:
        """Run a SELECT, ASK, CONSTRUCT or DESCRIBE query.

        The number of concurrent queries of each `asker` is limited.
        Raises `Refused` for updates and federated queries, `Misuse` for syntax errors,
        and `LimitExceeded` if it takes too long or too much memory.
        """
        limits = limits or self._options.sparql
        query = replace_surrogates(query)
        kind = check_query(query, limits)
        async with self._shares.take(asker, limits.seconds):
            snapshot = await self._refresh()

            def judge() -> tuple[Visibility, ViewKey]:
                visibility = self._visibilities.get(snapshot, access)
                return visibility, visibility.key

            visibility, key = await run_with_access(access, judge)

            def write_triples() -> Iterator[str]:
                return snapshot.lines(snapshot.distinct_rows(visibility.all_rows()))

            evaluation = Evaluation(query, kind, limits, self.prefixes)
            try:
                return await concurrency.call(
                    lambda: self._evaluator.run(evaluation, key, write_triples)
                )
            except asyncio.CancelledError:
                evaluation.cancel()
                raise

    async def subjects(
        self, type: str = "", access: Access = FULL_ACCESS
    ) -> dict[str, tuple[str, ...]]:
        """Return the types of all typed subjects, or of the subjects of one type, by IRI.

        A type is an IRI, `schema:Person`, or the bare name `Person`. Other names of its class
        (`skos:altLabel`) mean the classes of those names as well.
        """
        return await self._answer(
            access,
            lambda snapshot, visibility: find_subjects(
                snapshot, visibility, type, self.prefixes, self._vocabulary
            ),
        )

    async def ontology(self, access: Access = FULL_ACCESS) -> Ontology:
        """Return the ontology of the triples that an access allows."""
        return await self._answer(access, self._derive)

    async def ontology_turtle(self, access: Access = FULL_ACCESS) -> str:
        """Return the ontology as SHACL shapes in Turtle."""
        ontology = await self.ontology(access)
        return await concurrency.call(write_shapes, ontology, self.prefixes)

    async def stored_ontology(self) -> str:
        """Return the SHACL shapes stored by the last update; empty before the first."""
        try:
            return (await self._storage.get(self._ontology_key)).decode()
        except ObjectNotFound:
            return ""

    async def count(self, access: Access = FULL_ACCESS) -> int:
        """Return the number of distinct triples."""
        return await self._answer(
            access,
            lambda snapshot, visibility: len(snapshot.distinct_rows(visibility.all_rows())),
        )

    def invalidate_cache(self) -> None:
        """Reload the stored triples before the next query, since another process has written."""
        self._expiries += 1
        if self._next_refresh:
            self._next_refresh = -1.0

    async def aclose(self) -> None:
        """Stop the SPARQL worker processes."""
        await concurrency.call(self._evaluator.close)

    @staticmethod
    def _is_small(rows: int, filter: Filter) -> bool:
        """Return whether a search over `rows` rows is fast enough for the event loop."""
        if filter.access is not FULL_ACCESS:
            return rows <= _MOST_ROWS_TO_JUDGE_ON_LOOP
        is_page = 0 < filter.limit <= _LARGEST_PAGE and not (filter.type or filter.prefix)
        return is_page or rows < _MOST_ROWS_ON_LOOP

    def _derive(self, snapshot: Snapshot, visibility: Visibility) -> Ontology:
        key = visibility.key
        ontology = self._ontologies.get(key)
        if ontology is None:
            ontology = derive_ontology(
                snapshot, visibility, self._options.ontology, self._vocabulary
            )
            if len(self._ontologies) >= _MOST_ONTOLOGIES:
                self._ontologies.clear()
            self._ontologies[key] = ontology
        return ontology

    async def _answer(self, access: Access, work: Callable[[Snapshot, Visibility], T]) -> T:
        snapshot = await self._refresh()
        return await run_with_access(
            access, lambda: work(snapshot, self._visibilities.get(snapshot, access))
        )

    async def _refresh(self) -> Snapshot:
        """Return the current rows; writes of other processes appear after at most a second."""
        now = time.monotonic()
        if self._next_refresh <= now and not (self._next_refresh and self._lock.locked()):
            await self._look()
        if self._table.is_sorted:
            return self._table.snapshot()
        return await concurrency.call(self._table.snapshot)

    async def _look(self) -> None:
        """Read the writes of other processes."""
        now, expiries = time.monotonic(), self._expiries
        async with self._lock:
            await self._log.refresh(self._table)
            is_current = expiries == self._expiries
            self._next_refresh = now + _REFRESH_SECONDS if is_current else -1.0

    def _compare(
        self, versions: Mapping[str, CatalogEntry]
    ) -> tuple[list[str], list[str], list[str]]:
        """Return the URIs of new, of changed and of deleted resources."""
        ours = self._table.versions()
        new: list[str] = []
        changed: list[str] = []
        for uri, entry in versions.items():
            if ours.get(uri) != entry.version and is_indexed(uri):
                (changed if uri in ours else new).append(uri)
        # entries without version were added directly, not by an update
        gone = [
            uri
            for uri, version in ours.items()
            if version and (uri not in versions or not is_indexed(uri))
        ]
        return new, changed, gone

    async def _take_in(self, resources: list[Resource]) -> dict[str, str]:
        holders = await concurrency.call(lambda: [self._read(resource) for resource in resources])
        await self._put(holders)
        return {str(holder.identifier): holder.error for holder in holders if holder.error}

    async def _put(self, holders: list[Holder]) -> None:
        by_uri = {str(holder.identifier): holder for holder in holders}
        await self._forget_ontology(by_uri)
        await self._log.append(await concurrency.call(self._encode_lines, by_uri.values()))
        for uri, holder in by_uri.items():
            self._table.put(uri, holder)

    async def _remove(self, uris: list[str]) -> None:
        await self._forget_ontology(dict.fromkeys(uris))
        await self._log.append(map(delete_line, uris))
        for uri in uris:
            self._table.remove(uri)

    async def _forget_ontology(self, changes: Mapping[str, Holder | None]) -> None:
        """Delete the stored ontology before triples change, so that a crash leaves no stale one."""
        if any(self._table.changes_with(uri, holder) for uri, holder in changes.items()):
            await self._storage.delete(self._ontology_key)

    def _encode_lines(self, holders: Iterable[Holder]) -> list[JsonObject]:
        return [encode_line(holder, self._table) for holder in holders]

    def _read_item(self, item: GraphItem) -> Holder:
        texts = encode_triples(item.triples, str(item.identifier))
        return Holder(item.identifier, "", self._table.encode(texts))

    def _read(self, resource: Resource) -> Holder:
        try:
            texts = read_content(resource.content, resource.format, resource.uri)
        except Misuse as error:
            return Holder(resource.id, resource.version, error=error.message[:500])
        return Holder(resource.id, resource.version, self._table.encode(texts))

    async def _store_ontology(self) -> None:
        snapshot = await concurrency.call(self._table.snapshot)
        visibility = self._visibilities.get(snapshot, FULL_ACCESS)
        ontology = await concurrency.call(self._derive, snapshot, visibility)
        text = await concurrency.call(write_shapes, ontology, self.prefixes)
        await self._storage.put(self._ontology_key, text.encode())


def _read_vocabulary(text: str, prefixes: Prefixes) -> list[Triple]:
    """Parse the operator's Turtle, with all prefixes declared."""
    declarations = "".join(f"@prefix {name}: <{iri}> .\n" for name, iri in prefixes.items())
    try:
        quads = [*parse(declarations + text, format=RdfFormat.TURTLE)]
    except SyntaxError as error:
        raise ConfigurationFailed(f"The vocabulary of the graph is no Turtle: {error}") from None
    return [quad.triple for quad in quads]


def _pieces(numbers: Numbers) -> Iterator[Numbers]:
    """Yield numbers in chunks of growing size, so that the first page is cheap."""
    start, size = 0, 1024
    while start < len(numbers):
        yield numbers[start : start + size]
        start, size = start + size, size * 4


def _widen(snapshot: Snapshot, visibility: Visibility, matches: Iterable[Numbers]) -> Numbers:
    """Return the holders of all triples with the subjects of some rows."""
    column = snapshot.columns[0]
    subjects = [column[visibility.rows(rows)] for rows in matches]
    if not subjects:
        return np.zeros(0, np.int32)
    return np.unique(snapshot.holders[np.isin(column, np.concatenate(subjects))])


def _each_once(pieces: Iterable[Numbers]) -> Iterator[Numbers]:
    """Yield ascending numbers without repetitions."""
    last = -1
    for piece in pieces:
        numbers = np.unique(piece)
        numbers = numbers[numbers > last]
        if len(numbers):
            last = int(numbers[-1])
            yield numbers


def _let_through(
    pieces: Iterable[Numbers], snapshot: Snapshot, visibility: Visibility, filter: Filter
) -> Iterator[Identifier]:
    """Yield the identifiers of the holders that match a filter."""
    rest = replace(filter, access=FULL_ACCESS)
    for piece in pieces:
        for number in piece[visibility.holders(piece)].tolist():
            identifier = snapshot.identifiers[number]
            if rest.matches(identifier):
                yield identifier
