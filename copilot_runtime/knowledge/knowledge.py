"""Puts the pieces of knowledge together: resources, and the indexes that find them."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from glob import has_magic
from importlib import import_module
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal, cast

from copilot_runtime.concurrency import call, retrieve_exception
from copilot_runtime.config.sections import KnowledgeSettings
from copilot_runtime.errors import (
    ConfigurationFailed,
    CopilotError,
    MissingPackage,
    Misuse,
    UnknownName,
)
from copilot_runtime.interfaces import Action, Embedder, Passage
from copilot_runtime.knowledge.access import FULL_ACCESS, Access, AccessAction, Actor, judge, select
from copilot_runtime.knowledge.filter import Filter
from copilot_runtime.knowledge.identifiers import hash_values, parse_identifier, strip_namespace
from copilot_runtime.knowledge.passages import (
    add_parts,
    build_passage,
    cut_passages,
    find_parts,
)
from copilot_runtime.registry import Registry
from copilot_runtime.storage import Storage

if TYPE_CHECKING:
    from copilot_runtime.knowledge.events import ResourceEvents
    from copilot_runtime.knowledge.graph import GraphIndex, GraphOptions, Ontology, SparqlResult
    from copilot_runtime.knowledge.graph.patterns import Pattern as GraphPattern
    from copilot_runtime.knowledge.identifiers import Identifier
    from copilot_runtime.knowledge.ingestion import (
        Ingestion,
        IngestProgress,
        IngestReport,
        SourceStatus,
    )
    from copilot_runtime.knowledge.memory import Memories
    from copilot_runtime.knowledge.policies import Policy
    from copilot_runtime.knowledge.resources import Resource, ResourceIndex
    from copilot_runtime.knowledge.retrieval import KnowledgeRetriever
    from copilot_runtime.knowledge.uploads.chat import ChatFiles
    from copilot_runtime.knowledge.uploads.uploads import Scan, Upload, Uploads
    from copilot_runtime.knowledge.vectors import EmbeddingReport, VectorIndex
    from copilot_runtime.threads.store import ThreadStore

Pattern = tuple[str, str, str]
"""Subject, predicate and object; `?` stands for anything."""

Step = Literal["read", "store", "embed", "link"]
Progress = Callable[[Step, int, int], None]
"""Called with a step of an update, and how much of it is done, of how much."""

State = Literal["closed", "updating", "ready", "incomplete", "failed"]
"""Of what is incomplete, some cannot be found by meaning; why, is in the log."""

_PACKAGES = ("numpy", "pyoxigraph", "lxml")
"""What no knowledge can do without. They are looked for, not imported."""

_FIRST_UPDATE = 10.0
"""Seconds that a question waits where nothing at all has been taken in yet."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnowledgeStatus:
    """What is loaded, for operators."""

    state: State
    resources: int = 0
    error: str = ""
    """Why the last update failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnowledgeUpdate:
    """What became of one update: of the sources, if there were any, and of both indexes."""

    sources: "IngestReport | None"
    vectors: "EmbeddingReport"
    graph: Any


class Knowledge:
    """Resources with a vector index, a graph and memories, in one storage.

    >>> knowledge = Knowledge("local:.copilot/knowledge", sources=["pages"])
    >>> await knowledge.ingest()
    >>> await knowledge.search("When is the library open?", limit=3)

    Nothing is opened, and no package of it imported, before it is used. `actor` is who asks, and
    sees what the policy lets it read; without one, the program itself asks, and sees everything.

    Parameters:

    * **storage** - Where everything is: `local:PATH`, `memory`, `s3://BUCKET/PREFIX`, or a
      `Storage`. Default: the one of the settings.
    * **sources** - Files, folders and patterns such as `docs/**/*.html` that `ingest` takes in, and
      a server when it starts, beside those of the settings.
    * **embedder** - What makes vectors: a name, such as `openai:text-embedding-3-small`, or an
      `Embedder`.
    * **policy** - Who may do what: a `Policy`, or a file of one. Default: what belongs to a user is
      that user's, all else may be read by everybody.
    * **base** - IRI that relative names of things in HTML are resolved against.
    * **scan** - Looks at each file that somebody attaches to a question, before it is stored: gets
      its bytes and name, and returns why it is refused, or None.
    * **settings** - Numbers and switches: the section `knowledge` of the settings.

    Raises `ConfigurationFailed` for what can be known to be wrong without opening anything.
    """

    def __init__(
        self,
        storage: Storage | str | None = None,
        *,
        sources: Sequence[str | Path] = (),
        embedder: Embedder | str | None = None,
        policy: "Policy | str | Path | None" = None,
        base: str | None = None,
        scan: "Scan | None" = None,
        settings: KnowledgeSettings | None = None,
    ) -> None:
        self.settings = settings or KnowledgeSettings()
        self.sources = [*map(str, (*self.settings.sources, *_check_sources(sources)))]
        self.base = base or self.settings.base
        self.link = ""
        """The address below which a server shows resources; set by the runtime that serves."""
        self.threads: ThreadStore | None = None
        """Where conversations are, which `recall` searches; set by the runtime that serves."""
        self._storage = storage or self.settings.address or "local:.copilot/knowledge"
        self._embedder = embedder or self.settings.embedder
        self._policy = policy or self.settings.policy or None
        self._scan = scan
        self._writing = asyncio.Lock()
        self._updating: asyncio.Task[None] | None = None
        self._count = 0
        self._counted = asyncio.Event()
        """Set once the update that goes on has found out whether there is anything yet."""
        self._is_empty = False
        """Whether the update that goes on is the first one of all."""
        self._error = ""
        self._gap = ""
        """Why something cannot be found by its meaning."""
        self._check()

    @cached_property
    def storage(self) -> Storage:
        """Where everything is."""
        if isinstance(self._storage, Storage):
            return self._storage
        from copilot_runtime.storage.url import open_storage

        return open_storage(self._storage)

    @property
    def address(self) -> str:
        """Where everything is, for messages."""
        storage = self._storage
        return storage if isinstance(storage, str) else f"a {type(storage).__name__}"

    @cached_property
    def events(self) -> "ResourceEvents":
        """What happens to resources."""
        from copilot_runtime.knowledge.events import ResourceEvents

        return ResourceEvents()

    @cached_property
    def resources(self) -> "ResourceIndex":
        """Everything that may be known."""
        from copilot_runtime.knowledge.resources import ResourceIndex

        return ResourceIndex(self.storage, self.events)

    @cached_property
    def embedder(self) -> Embedder:
        """What makes vectors."""
        if isinstance(self._embedder, Embedder):
            return self._embedder
        create = _embeddings().create_embedder
        return create(self._embedder, **self.settings.embedder_options)

    @cached_property
    def vectors(self) -> "VectorIndex":
        """Finds resources by meaning."""
        from copilot_runtime.knowledge.vectors import VectorIndex

        return VectorIndex(self.storage, self.embedder, engine=self.settings.vector_engine)

    @cached_property
    def graph(self) -> "GraphIndex":
        """Finds resources by the triples in them."""
        from copilot_runtime.knowledge.graph import GraphIndex

        return GraphIndex(self.storage, self._graph_options)

    @cached_property
    def memory(self) -> "Memories":
        """What belongs to each conversation. Chats of the runtime are threads, and not in it."""
        from copilot_runtime.knowledge.memory import Memories

        return Memories(self.storage, self.resources)

    @cached_property
    def uploads(self) -> "Uploads":
        """The files that people have attached to their questions."""
        from copilot_runtime.knowledge.uploads.uploads import Uploads

        return Uploads(self, self._scan)

    @cached_property
    def _ingestion(self) -> "Ingestion":
        from copilot_runtime.knowledge.ingestion import Ingestion

        return Ingestion(self.resources, self.storage, base=self.base)

    @cached_property
    def _graph_options(self) -> "GraphOptions":
        from copilot_runtime.knowledge.graph import read_options

        return read_options(self.settings.graph_options, "knowledge.graph_options")

    @cached_property
    def policy(self) -> "Policy":
        """Who may do what."""
        from copilot_runtime.knowledge.policies import OWNERS_ONLY, Policy, load_policy

        if self._policy is None:
            return OWNERS_ONLY
        return self._policy if isinstance(self._policy, Policy) else load_policy(self._policy)

    def access(self, actor: Actor | None, action: AccessAction = "read") -> Access:
        """Return what somebody may do."""
        if actor is None:
            return FULL_ACCESS
        access = self.policy.access(actor, action)
        if actor.conversation and self.settings.uploads == "thread":
            from copilot_runtime.knowledge.policies import narrow_access

            return narrow_access(access, actor.conversation)
        return access

    def status(self) -> KnowledgeStatus:
        """Return what is loaded. Opens nothing."""
        is_updating = self._updating is not None and not self._updating.done()
        state: State = "incomplete" if self._gap else "ready"
        if self._updating is None:
            state = "closed"
        elif is_updating:
            state = "updating"
        elif self._error:
            state = "failed"
        return KnowledgeStatus(state=state, resources=self._count, error=self._error)

    def start(self) -> None:
        """Begin an update in the background, unless one goes on: of the sources and the indexes."""
        if self._updating is not None and not self._updating.done():
            return
        self._counted = asyncio.Event()
        self._updating = asyncio.create_task(self._update_quietly(), name="update knowledge")
        self._updating.add_done_callback(retrieve_exception)

    async def update(
        self, sources: Sequence[str | Path] | None = None, progress: Progress | None = None
    ) -> KnowledgeUpdate:
        """Take in sources, and bring both indexes up to date with the resources.

        One update waits for another. Raises `CopilotError`; what was done until then stays, and
        the next update does the rest.
        """
        async with self._writing:
            if not self.resources.is_reconciled:  # with what other programs may have written
                await self.resources.reconcile()
            report = None
            if chosen := self.sources if sources is None else [*sources]:
                report = await self._ingestion.run(chosen, _follow(progress), wait=True)
            vectors = await self.vectors.update(self.resources, _step("embed", progress))
            self._gap = await self._find_gap(vectors)
            graph = await self.graph.update(self.resources, _step("link", progress))
            self._count = len(await self.resources.versions())
            return KnowledgeUpdate(sources=report, vectors=vectors, graph=graph)

    async def embed_resources(
        self, uris: "Collection[str]", progress: Progress | None = None
    ) -> None:
        """Let searches find some resources, new ones or gone ones, however many others there are.

        It waits for no update that goes on. The triples in them come with the next one.
        """
        report = await self.vectors.update(self.resources, _step("embed", progress), only=uris)
        self._gap = next(iter(report.failed.values()), self._gap)
        self._count = len(await self.resources.versions())

    async def provenance(self, resource: "Resource", *, actor: Actor | None = None) -> list[str]:
        """Return the files that say something of a resource, as far as the actor may list them."""
        files = [it.source for it in await self._ingestion.provenance(resource.uri)]
        allowed = await self._judge_files(files, actor)
        return [name for name, may in zip(files, allowed, strict=True) if may]

    async def list_sources(self, *, actor: Actor | None = None) -> "list[SourceStatus]":
        """Return the files that were taken in, or could not be when that was last tried."""
        statuses = await self._ingestion.list_sources()
        allowed = await self._judge_files([it.name for it in statuses], actor)
        return [it for it, may in zip(statuses, allowed, strict=True) if may]

    async def ingest(
        self, *sources: str | Path, progress: Progress | None = None
    ) -> KnowledgeUpdate:
        """Take in files and folders, or else all `sources`; see `update`."""
        return await self.update(sources or None, progress)

    async def search(
        self,
        texts: str | Sequence[str],
        *,
        actor: Actor | None = None,
        type: str = "",
        prefix: str = "",
        threshold: float | None = None,
        limit: int = 10,
        max_tokens: int = 0,
        diversity: float | None = None,
    ) -> list[Passage]:
        """Return the resources whose meaning is nearest to any of the texts, the best first."""
        await self._wait_for_first_update()
        access = self.access(actor)
        filter = Filter(access=access, type=type, prefix=prefix, threshold=threshold, limit=limit)
        texts = [texts] if isinstance(texts, str) else texts
        return await self._read(
            await self.vectors.search(texts, filter, diversity=diversity), access, max_tokens
        )

    async def find(
        self,
        pattern: Pattern,
        *,
        actor: Actor | None = None,
        type: str = "",
        prefix: str = "",
        limit: int = 10,
        offset: int = 0,
        max_tokens: int = 0,
    ) -> list[Passage]:
        """Return the resources that hold triples of a pattern."""
        await self._wait_for_first_update()
        access = self.access(actor)
        filter = Filter(access=access, type=type, prefix=prefix, limit=limit)
        found = await self.graph.find(_as_pattern(pattern), filter, offset=offset)
        return await self._read(found, access, max_tokens)

    async def triples(
        self, pattern: Pattern, *, actor: Actor | None = None, limit: int = 100
    ) -> list[Pattern]:
        """Return the triples of a pattern, each term as N-Triples has it."""
        await self._wait_for_first_update()
        triples = await self.graph.triples(_as_pattern(pattern), self.access(actor), limit)
        return [(str(it.subject), str(it.predicate), str(it.object)) for it in triples]

    async def sparql(
        self, query: str, *, actor: Actor | None = None, limit: int = 1000
    ) -> "SparqlResult":
        """Answer a SPARQL query that reads, over what the actor may read.

        Raises `Refused` for one that would write or look elsewhere, `Misuse` for what is no SPARQL,
        and `LimitExceeded` for one that takes too long.
        """
        await self._wait_for_first_update()
        limits = self._graph_options.sparql
        limits = replace(limits, rows=min(limit, limits.rows))
        asker = None if actor is None else actor.name
        return await self.graph.sparql(query, self.access(actor), limits, asker=asker)

    async def subjects(
        self, type: str = "", *, actor: Actor | None = None
    ) -> Mapping[str, Sequence[str]]:
        """Return things and their types, all of them or those of one type."""
        await self._wait_for_first_update()
        return await self.graph.subjects(type, self.access(actor))

    async def ontology(self, *, actor: Actor | None = None) -> "Ontology":
        """Return the vocabulary of what the actor may read."""
        await self._wait_for_first_update()
        return await self.graph.ontology(self.access(actor))

    async def ontology_turtle(self, *, actor: Actor | None = None) -> str:
        """Return the vocabulary of what the actor may read, as SHACL shapes in Turtle."""
        await self._wait_for_first_update()
        return await self.graph.ontology_turtle(self.access(actor))

    async def picture(self, *, actor: Actor | None = None) -> str:
        """Return a picture of the vocabulary of what the actor may read, as SVG."""
        from copilot_runtime.knowledge.graph.picture import draw_ontology

        return await call(draw_ontology, await self.ontology(actor=actor))

    async def recall(
        self,
        texts: str | Sequence[str],
        *,
        actor: Actor,
        thread_id: str,
        run_id: str = "",
        limit: int = 10,
        max_tokens: int = 0,
    ) -> list[Passage]:
        """Return what was said in a thread of the actor and has most in common with the texts.

        The run of `run_id`, and one that goes on, is left out.
        """
        from copilot_runtime.knowledge.policies import conversation_identifier
        from copilot_runtime.knowledge.recall import recall_messages
        from copilot_runtime.threads.store import ThreadKey

        conversation = conversation_identifier(actor.name or None, thread_id)
        if self.threads is None or not await select(self.access(actor), [conversation]):
            return []
        found = await recall_messages(
            self.threads,
            ThreadKey(actor.name, thread_id),
            [texts] if isinstance(texts, str) else texts,
            embedder=_embeddings().create_embedder("hashing"),
            run_id=run_id,
            limit=limit,
        )
        return cut_passages(found, max_tokens)

    async def find_resources(
        self, *, actor: Actor | None = None, type: str = "", prefix: str = ""
    ) -> "list[Identifier]":
        """Return the resources that the actor may see listed."""
        access, filter = self.access(actor, "list"), Filter(prefix=strip_namespace(prefix))
        if type:
            found = await self.resources.find_by_type(type, access=access)
            return [it for it in found if filter.matches(it)]
        if prefix:
            return await self.resources.find_by_prefix(prefix, access=access)
        return await self.resources.find_all(access=access)

    async def read(self, resource: "Resource", *, actor: Actor | None = None) -> Passage:
        """Return what is read of a resource, with its parts as far as the actor may read them."""
        parts = await self._read_parts([resource], self.access(actor))
        return add_parts(build_passage(resource, self.link), parts[resource.uri])

    async def read_titles(
        self, found: "Sequence[Identifier]", *, actor: Actor | None = None
    ) -> dict[str, str]:
        """Return the titles of those resources, by URI, that the actor may read as well as list."""
        resources = await self.resources.get_visible(found, self.access(actor))
        return {it.uri: build_passage(it).title for it in resources}

    async def get(self, uri: str, *, actor: Actor | None = None) -> "Resource | None":
        """Return a resource, or None without one. Raises `AccessDenied`."""
        try:
            found = await self.resources.get([uri], access=self.access(actor))
        except Misuse:  # nothing can be stored under such a name
            return None
        return found[0] if found else None

    def tools(self) -> list[Action]:
        """Return the actions by which models and agents use knowledge."""
        from copilot_runtime.knowledge.tools import build_tools

        return build_tools(self, self.settings.tools, self.settings.tool_tokens)

    def functions(self) -> "list[Callable[..., Awaitable[Any]]]":
        """Return the tools as async functions, of which any framework of agents makes its own.

        Each acts for the user, and in the thread, of the run in which it is called. Outside of a
        run of a runtime, it raises `Misuse`.
        """
        from copilot_runtime.knowledge.functions import build_functions

        return build_functions(self.tools())

    def retriever(self) -> "KnowledgeRetriever | None":
        """Return what finds passages for questions, if the settings want it."""
        from copilot_runtime.knowledge.retrieval import KnowledgeRetriever

        if not self.settings.retrieval:
            return None
        return KnowledgeRetriever(
            self,
            limit=self.settings.retrieval_limit,
            max_tokens=self.settings.retrieval_tokens,
            threshold=self.settings.retrieval_threshold,
        )

    def files(self) -> "ChatFiles | None":
        """Return what takes in the files of a chat, if the settings want it."""
        if self.settings.uploads == "off":
            return None
        from copilot_runtime.knowledge.uploads.chat import ChatFiles

        return ChatFiles(self)

    async def forget_thread(self, user: str, thread_id: str) -> None:
        """Delete all that is here of a thread, which is being deleted itself.

        That are its files, its memory, and the resources below its conversation, with what indexes
        have of them.
        """
        from copilot_runtime.knowledge.policies import conversation_identifier
        from copilot_runtime.knowledge.resources import PREFIX

        conversation = conversation_identifier(user or None, thread_id)
        await self.uploads.forget(conversation)
        await self.memory.forget(conversation)
        below = await self.storage.find_by_prefix(f"{PREFIX}{conversation}/")
        if below or await self.resources.has(conversation):
            removed = await self.resources.delete(conversation)
            await self.remove_from_indexes(map(str, removed))

    async def remove_from_indexes(self, uris: Iterable[str]) -> None:
        """Remove what indexes have of deleted resources. What fails, the next update does."""
        uris = [*uris]
        try:
            await self.vectors.remove(uris)
            await self.graph.remove(uris)
        except CopilotError as error:
            logger.warning("Resources are deleted, and an index still names them: %s", error)

    async def forget_old_files(self, before: float) -> int:
        """Delete the files that came before a time to threads that are no more.

        Returns how many. Where the user or the thread is known by a digest alone, nobody can tell
        whether the thread is still there: its files go with `forget_thread`.
        """
        from copilot_runtime.knowledge.policies import find_owner
        from copilot_runtime.knowledge.policies.ownership import is_shortened
        from copilot_runtime.threads.store import ThreadKey

        async def exists(upload: "Upload") -> bool:
            if upload.thread is not None:
                thread = ThreadKey(*upload.thread)
            else:
                owner = find_owner(upload.uri)
                user = owner.name if owner and owner.kind == "user" else ""
                thread = ThreadKey(user, parse_identifier(upload.id.parent).name)
                if any(map(is_shortened, thread)):
                    return True
            return self.threads is None or await self.threads.get(thread) is not None

        return await self.uploads.forget_older(before, exists)

    async def aclose(self) -> None:
        """End the update, and let go of everything that was opened here. It can be used again."""
        if self._updating is not None:
            self._updating.cancel()
            await asyncio.wait((self._updating,))
            self._updating = None
        owned = {"storage": self._storage, "embedder": self._embedder}
        parts = ("uploads", "memory", "graph", "vectors", "_ingestion", "resources", *owned)
        for name in parts:
            part = self.__dict__.pop(name, None)
            close = getattr(part, "aclose", None)
            if close is not None and part is not owned.get(name):
                await close()
        policy: Policy | None = self.__dict__.pop("policy", None)
        if policy is not None and policy is not self._policy:
            await call(policy.close)

    async def _judge_files(self, names: Sequence[str], actor: Actor | None) -> list[bool]:
        """Return which files may be listed: those whose text, as a document, may be."""
        uris = [f"common.Document.{hash_values(name)}" for name in names]
        return await judge(self.access(actor, "list"), uris)

    def _check(self) -> None:
        """Raise `ConfigurationFailed` for what cannot work, before anything is opened."""
        for package in _PACKAGES:
            if find_spec(package) is None:
                raise MissingPackage("Knowledge", package, "knowledge")
        for source in self.sources:
            if not has_magic(source) and not Path(source).exists():
                raise ConfigurationFailed(
                    f"There is no file or folder '{source}' to take knowledge from "
                    f"(looked in {Path.cwd()}).",
                    hint="Correct knowledge.sources in copilot.yml, or the argument sources.",
                )
        if self.settings.graph_options:
            _ = self._graph_options
        if self._policy is not None:
            _ = self.policy  # which is read now, and says what is wrong with it
        if isinstance(self._embedder, str):
            kind = self._embedder.partition(":")[0].strip()
            table = Registry("copilot_runtime.embedders", _embeddings().EMBEDDERS)
            if kind not in table:
                raise UnknownName("embedder", kind, table)

    async def _update_quietly(self) -> None:
        """Update in the background of a server; a failure is logged and shown by `status`."""
        try:
            self._count = len(await self.resources.versions())
            self._is_empty = not self._count
            self._counted.set()
            started = monotonic()
            await self.uploads.resume()
            await self.update()
        except Exception as error:
            self._error = error.public if isinstance(error, CopilotError) else type(error).__name__
            is_ours = isinstance(error, CopilotError)
            logger.error("Knowledge is not up to date: %s", error, exc_info=not is_ours)
        else:
            self._error = ""
            seconds = monotonic() - started
            if self._gap:
                logger.warning(
                    "Knowledge is incomplete: a search by meaning misses resources. %s", self._gap
                )
                return
            logger.info("Knowledge: %d resources, up to date after %.1f s", self._count, seconds)
        finally:
            self._is_empty = False
            self._counted.set()

    async def _find_gap(self, vectors: "EmbeddingReport") -> str:
        """Return why not everything can be found by its meaning, or nothing."""
        from copilot_runtime.knowledge.vectors.update import describe_failure

        if vectors.failed:
            return next(iter(vectors.failed.values()))
        try:
            await self.embedder.check_key()
        except CopilotError as error:
            return describe_failure(error)
        return ""

    async def _wait_for_first_update(self) -> None:
        """Wait a while for the first update of all: nobody asks for nothing."""
        if self._updating is not None and not self._updating.done():
            await self._counted.wait()
            if self._is_empty:
                await asyncio.wait((self._updating,), timeout=_FIRST_UPDATE)

    async def _read(
        self, found: "Sequence[Identifier]", access: Access, max_tokens: int
    ) -> list[Passage]:
        """Return what is read of resources that a search found, as far as they are still there."""
        resources = await self.resources.get_visible(found, access)
        parts = await self._read_parts(resources, access)
        scores = {str(identifier): identifier.score for identifier in found}

        def render() -> list[Passage]:
            passages = (
                add_parts(build_passage(it, self.link, scores.get(it.uri)), parts[it.uri])
                for it in resources
            )
            return cut_passages([*passages], max_tokens)

        return await asyncio.to_thread(render)

    async def _read_parts(
        self, resources: "Sequence[Resource]", access: Access
    ) -> "dict[str, list[Resource]]":
        """Return the nameless parts of each resource that may be read, by its URI."""
        uris = {resource.uri: find_parts(resource) for resource in resources}
        every = [*dict.fromkeys(chain.from_iterable(uris.values()))]
        parts = {part.uri: part for part in await self.resources.get_visible(every, access)}
        return {uri: [parts[it] for it in below if it in parts] for uri, below in uris.items()}


def _check_sources(sources: object) -> Sequence[str | Path]:
    if isinstance(sources, str | Path):
        raise ConfigurationFailed(
            "sources is one path, and not a list.", hint=f"Write sources=[{str(sources)!r}]."
        )
    return cast("Sequence[str | Path]", sources)


def _follow(progress: Progress | None) -> "Callable[[IngestProgress], None] | None":
    if progress is None:
        return None
    return lambda at: progress(at.stage, at.done, at.total)


def _step(step: Step, progress: Progress | None) -> Callable[[int, int], None] | None:
    return None if progress is None else partial(progress, step)


def _as_pattern(pattern: Pattern) -> "GraphPattern":
    from copilot_runtime.knowledge.graph.patterns import Pattern as GraphPattern

    return GraphPattern(*pattern)


def _embeddings() -> Any:
    """Return the package of embedders: it is beside this one, so it is looked up by its name."""
    return import_module("copilot_runtime.adapters.embeddings")
