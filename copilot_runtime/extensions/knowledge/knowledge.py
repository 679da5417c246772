"""The facade of the extension: resources, indexes, ingestion, memory and uploads in one object."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from glob import has_magic, iglob
from importlib import import_module
from importlib.util import find_spec
from itertools import compress
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any, cast

from copilot_runtime.api.action import Action, ActionContext
from copilot_runtime.api.adapter import Embedder
from copilot_runtime.api.registry import Registry
from copilot_runtime.api.retrieval import Passage
from copilot_runtime.api.run_input import CURRENT_PATH
from copilot_runtime.base.concurrency import call
from copilot_runtime.base.errors import (
    ConfigurationFailed,
    CopilotError,
    MissingPackage,
    Misuse,
    UnknownName,
)
from copilot_runtime.extensions.knowledge.access import (
    FULL_ACCESS,
    Access,
    AccessAction,
    Actor,
    judge,
    select,
)
from copilot_runtime.extensions.knowledge.events import ResourceEvents
from copilot_runtime.extensions.knowledge.identifiers import (
    Identifier,
    check_base,
    identify_file,
    name_file,
    parse_identifier,
    strip_namespace,
)
from copilot_runtime.extensions.knowledge.index import Filter
from copilot_runtime.extensions.knowledge.memory import (
    ContextWindow,
    ContextWindows,
    Memories,
    OptimizationResult,
)
from copilot_runtime.extensions.knowledge.memory.context import Summarize, report_missing
from copilot_runtime.extensions.knowledge.memory.user_memories import KnowledgeMemories
from copilot_runtime.extensions.knowledge.mirror import ReadFields, ResourceMirror
from copilot_runtime.extensions.knowledge.passages import PassageReader, cut_passages
from copilot_runtime.extensions.knowledge.policies import (
    OWNERS_ONLY,
    Policy,
    build_actor,
    conversation_identifier,
    load_policy,
    narrow_access,
)
from copilot_runtime.extensions.knowledge.resources import PREFIX, Resource, ResourceIndex
from copilot_runtime.extensions.knowledge.retrieval import (
    KnowledgeRetriever,
    list_messages,
    recall_messages,
)
from copilot_runtime.extensions.knowledge.settings import KnowledgeSettings
from copilot_runtime.extensions.knowledge.things import FiledAccess
from copilot_runtime.extensions.knowledge.tools import build_functions, build_tools, read_texts
from copilot_runtime.extensions.knowledge.updater import (
    KnowledgeStatus,
    KnowledgeUpdate,
    StepProgress,
    Updater,
)
from copilot_runtime.extensions.knowledge.uploads.chat import ChatFiles
from copilot_runtime.storage import Storage
from copilot_runtime.storage.storage import open_storage
from copilot_runtime.telemetry import (
    NO_TELEMETRY,
    Telemetry,
    find_current_span,
    semconv,
    trace_block,
)
from copilot_runtime.telemetry.database import start_database_span
from copilot_runtime.threads.store import ThreadKey, ThreadStore

if TYPE_CHECKING:
    from copilot_runtime.extensions.knowledge.graph import (
        GraphIndex,
        GraphOptions,
        Ontology,
        SparqlResult,
    )
    from copilot_runtime.extensions.knowledge.ingestion import Ingestion, SourceStatus
    from copilot_runtime.extensions.knowledge.resource_types import SimilarResources
    from copilot_runtime.extensions.knowledge.uploads.uploads import Scan, Upload, Uploads
    from copilot_runtime.extensions.knowledge.vectors import VectorIndex
    from copilot_runtime.extensions.knowledge.vectors.pgvector import PgVectorIndex

Pattern = tuple[str, str, str]
"""Subject, predicate and object; `?` is a wildcard."""

_PACKAGES = ("numpy", "pyoxigraph", "lxml")
"""Required packages, which are located without being imported."""

_GRAPH = "oxigraph"
"""The database system named in spans of graph queries."""

_LEAST_SCORE = 0.0005
"""Minimum score of a search without threshold: lower scores are displayed as 0."""

logger = logging.getLogger(__name__)


class Knowledge:
    """Resources with a vector index, a graph and memories, in one storage.

    >>> knowledge = Knowledge("local:.copilot/knowledge", sources=["pages"])
    >>> await knowledge.ingest()
    >>> await knowledge.search("When is the library open?", limit=3)

    Storage and packages are opened on first use. Methods return only what the policy allows the
    `actor` to read; without an actor, the program itself is the caller and reads everything.

    Parameters:

    * **storage** - The storage: `local:PATH`, `memory`, `s3://BUCKET/PREFIX`, or a
      `Storage`. Default: the one of the settings.
    * **sources** - Files, folders and patterns such as `docs/**/*.html` that `ingest` takes in, and
      a server when it starts, beside those of the settings.
    * **embedder** - Computes vectors: a name, such as `openai:text-embedding-3-small`, or an
      `Embedder`.
    * **policy** - The access policy: a `Policy`, or its file. By default, users have full access to
      their own resources, and all other resources are readable.
    * **base** - IRI that relative names of things in HTML are resolved against.
    * **scan** - Scanner of uploads, called with the bytes and the name of each file before it is
      stored. Returns the reason of a refusal, or None.
    * **settings** - Numbers and switches: the section `knowledge` of the settings.

    Raises `ConfigurationFailed` for what can be known to be wrong without opening anything.
    """

    def __init__(
        self,
        storage: Storage | str | None = None,
        *,
        sources: Sequence[str | Path] = (),
        embedder: Embedder | str | None = None,
        policy: Policy | str | Path | None = None,
        base: str | None = None,
        scan: "Scan | None" = None,
        settings: KnowledgeSettings | None = None,
    ) -> None:
        self.settings = settings or KnowledgeSettings()
        self.sources = [*map(str, (*self.settings.sources, *_check_sources(sources)))]
        self.base = base or self.settings.base
        self.path: str | None = None
        """The path of the runtime's URL; set by the runtime that serves."""
        self.origin = ""
        """The public origin of links, if it is known; set by the runtime that serves."""
        self.threads: ThreadStore | None = None
        """The thread store that `recall` searches; set by the runtime that serves."""
        self.telemetry: Telemetry = NO_TELEMETRY
        """The telemetry of updates and uploads; set by the runtime that serves."""
        self.summarize: Summarize | None = None
        """Summarises the oldest items of a window; set by the runtime that serves."""
        self.on_change: Callable[[], None] | None = None
        """Callback after this process changed the indexes; set by the runtime that serves."""
        self._storage = storage or self.settings.address or "local:.copilot/knowledge"
        self._embedder = embedder or self.settings.embedder
        policy = policy or self.settings.policy or None
        self._policy = None if policy is OWNERS_ONLY else policy
        self._scan = scan
        self._updater = Updater(self)
        self._mirrors: list[ResourceMirror] = []
        self._check()

    @cached_property
    def storage(self) -> Storage:
        """The storage of resources and indexes."""
        if isinstance(self._storage, Storage):
            return self._storage
        return open_storage(self._storage)

    @property
    def address(self) -> str:
        """The URL of the storage, for messages."""
        storage = self._storage
        return storage if isinstance(storage, str) else f"a {type(storage).__name__}"

    @property
    def link(self) -> str:
        """The base URL of resource pages for the client of this request; empty without a server."""
        if self.path is None:
            return ""
        path = self.path if self.origin else CURRENT_PATH.get(self.path)
        return f"{self.origin}{path}/knowledge/resources/"

    @cached_property
    def events(self) -> ResourceEvents:
        """The events of changes of resources."""
        return ResourceEvents()

    @cached_property
    def resources(self) -> ResourceIndex:
        """The store of all resources."""
        return ResourceIndex(self.storage, self.events)

    @cached_property
    def embedder(self) -> Embedder:
        """The embedder, which computes vectors."""
        if isinstance(self._embedder, Embedder):
            return self._embedder
        create = _embeddings().create_embedder
        return create(self._embedder, **self.settings.embedder_options)

    @cached_property
    def vectors(self) -> "VectorIndex | PgVectorIndex":
        """Finds resources by meaning."""
        if self.settings.vector_database:
            from copilot_runtime.extensions.knowledge.vectors.pgvector import PgVectorIndex

            return PgVectorIndex(self.settings.vector_database, self.embedder)
        from copilot_runtime.extensions.knowledge.vectors import VectorIndex

        return VectorIndex(self.storage, self.embedder, engine=self.settings.vector_engine)

    @cached_property
    def similar(self) -> "SimilarResources":
        """Similarity search over assistants, tools and tasks."""
        from copilot_runtime.extensions.knowledge.resource_types import SimilarResources

        return SimilarResources(self.resources, self.embedder)

    @cached_property
    def graph(self) -> "GraphIndex":
        """Finds resources by the triples in them."""
        from copilot_runtime.extensions.knowledge.graph import GraphIndex

        return GraphIndex(self.storage, self._graph_options)

    @cached_property
    def memory(self) -> Memories:
        """The memories of conversations. The runtime's own chats are in its thread store."""
        return Memories(self.storage, self.resources)

    @cached_property
    def user_memories(self) -> KnowledgeMemories:
        """The memories of users, beyond one conversation."""
        return KnowledgeMemories(self)

    @property
    def context(self) -> ContextWindows:
        """The context windows of conversations."""
        return ContextWindows(
            self.memory, budget=self.settings.context_tokens, summarize=self.summarize
        )

    @cached_property
    def uploads(self) -> "Uploads":
        """The files that users have attached to chats."""
        from copilot_runtime.extensions.knowledge.uploads.uploads import Uploads

        return Uploads(self, self._scan)

    @cached_property
    def ingestion(self) -> "Ingestion":
        """The ingestion of files."""
        from copilot_runtime.extensions.knowledge.ingestion import Ingestion, ItemForm

        form = ItemForm(by_file=self._policy is not None)
        return Ingestion(self.resources, self.storage, base=self.base, form=form)

    @cached_property
    def _graph_options(self) -> "GraphOptions":
        from copilot_runtime.extensions.knowledge.graph import read_options

        return read_options(self.settings.graph_options, "knowledge.graph_options")

    @cached_property
    def policy(self) -> Policy:
        """The access policy."""
        if self._policy is None:
            return OWNERS_ONLY
        return self._policy if isinstance(self._policy, Policy) else load_policy(self._policy)

    def access(self, actor: Actor | None, action: AccessAction = "read") -> Access:
        """Return the access of an actor; `FULL_ACCESS` if it is `None`."""
        if actor is None:
            return FULL_ACCESS
        _check_actor(actor)
        access = self.policy.access(actor, action)
        if self._policy is not None:
            access = FiledAccess(access)
        if actor.conversation and self.settings.uploads == "thread":
            return narrow_access(access, actor.conversation)
        return access

    def status(self) -> KnowledgeStatus:
        """Return the status, without opening the storage."""
        return self._updater.status()

    def invalidate_cache(self) -> None:
        """Reload the indexes before the next search; call it after changes of other processes."""
        for name in ("vectors", "graph"):
            if (index := self.__dict__.get(name)) is not None:
                index.invalidate_cache()

    def start(self) -> None:
        """Start a background update of sources and indexes, unless one is running."""
        self._updater.start()
        for mirror in self._mirrors:
            mirror.update()

    def mirror(self, type: str, origin: str, read: ReadFields) -> ResourceMirror:
        """Return a mirror that keeps resources of a type equal to an external source.

        `origin` names the source, and `read` returns the fields of each resource by name. Call
        `update` of the mirror to read them again.
        """
        mirror = ResourceMirror(lambda: self.resources, type, origin, read)
        self._mirrors.append(mirror)
        return mirror

    async def select_names(self, type: str, names: Sequence[str], user: str | None) -> list[str]:
        """Return the names, existing or not, whose resources of a type a user may read."""
        if self._policy is None:
            return [*names]
        identifiers = [Identifier(type, name) for name in names]
        return [one.name for one in await select(self.access(build_actor(user)), identifiers)]

    async def update(
        self, sources: Sequence[str | Path] | None = None, progress: StepProgress | None = None
    ) -> KnowledgeUpdate:
        """Ingest sources, and update both indexes from the resources.

        Updates run one after the other. Raises `CopilotError`; completed work is kept, and the
        next update continues.
        """
        return await self._updater.update(sources, progress)

    async def embed_resources(
        self, uris: Collection[str], progress: StepProgress | None = None
    ) -> None:
        """Update the vectors of some new, changed or deleted resources only.

        Does not wait for a running update. Their triples are indexed by the next update.
        """
        await self._updater.embed(uris, progress)

    async def provenance(self, resource: Resource, *, actor: Actor | None = None) -> list[str]:
        """Return the names of the source files of a resource that the actor may list."""
        names = [it.source for it in await self.ingestion.provenance(resource.uri)]
        return [*compress(names, await self._may_list(names, actor))]

    async def list_sources(self, *, actor: Actor | None = None) -> "list[SourceStatus]":
        """Return the status of each source file at its last ingestion."""
        found = await self.ingestion.list_sources()
        return [*compress(found, await self._may_list([it.name for it in found], actor))]

    async def find_secrets(self, patterns: Iterable[str]) -> list[str]:
        """Return the files of patterns that an anonymous user may not list."""
        paths = await call(lambda: [Path(path) for it in patterns for path in iglob(it)])  # noqa: PTH207 - also whole paths
        names = [*map(name_file, paths)]
        judged = zip(names, await self._may_list(names, build_actor(None)), strict=True)
        return [name for name, may in judged if not may]

    async def ingest(
        self, *sources: str | Path, progress: StepProgress | None = None
    ) -> KnowledgeUpdate:
        """Ingest files and folders, by default all `sources`, and update the indexes."""
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
        """Return the resources most similar to any of the texts, the best first.

        Without a `prefix`, a thing in several files is one result, with what all of these say.
        `threshold` is the minimum cosine similarity; without it, that of the embedder, and more
        than almost zero. Resources that relate to no text, by `Embedder.relates`, are left out
        unless it is 0 or less.
        """
        await self._updater.wait_for_first()
        access = self.access(actor)
        if threshold is None:
            threshold = max(_LEAST_SCORE, self.embedder.least_score)
        filter = Filter(
            access=access,
            type=type,
            prefix=prefix,
            distinct=not prefix,
            threshold=threshold,
            limit=limit,
        )
        texts = [texts] if isinstance(texts, str) else texts
        if type in self.similar.types:
            found = await self.similar.search(texts, filter)
        else:
            found = await self.vectors.search(texts, filter, diversity=diversity)
        passages = await self._make_reader(access).read_results(found, whole=not prefix)
        if threshold > 0:
            passages = await call(self._select_relevant, texts, passages)
        return cut_passages(passages, max_tokens)

    async def find(
        self,
        pattern: Pattern | str,
        *,
        actor: Actor | None = None,
        type: str = "",
        prefix: str = "",
        limit: int = 10,
        offset: int = 0,
        max_tokens: int = 0,
    ) -> list[Passage]:
        """Return the resources with triples that match a pattern."""
        await self._updater.wait_for_first()
        access = self.access(actor)
        filter = Filter(access=access, type=type, prefix=prefix, limit=limit)
        found = await self.graph.find(pattern, filter, offset=offset)
        return await self._make_reader(access).read_results(found, max_tokens)

    async def triples(
        self, pattern: Pattern | str, *, actor: Actor | None = None, limit: int = 100
    ) -> list[Pattern]:
        """Return the triples that match a pattern, with terms in N-Triples syntax."""
        await self._updater.wait_for_first()
        triples = await self.graph.triples(pattern, self.access(actor), limit)
        return [(str(it.subject), str(it.predicate), str(it.object)) for it in triples]

    async def sparql(
        self, query: str, *, actor: Actor | None = None, limit: int = 1000
    ) -> "SparqlResult":
        """Run a read-only SPARQL query over the triples that the actor may read.

        Raises `Refused` for updates and federated queries, `Misuse` for syntax errors,
        and `LimitExceeded` on timeout.
        """
        await self._updater.wait_for_first()
        limits = self._graph_options.sparql
        limits = replace(limits, rows=min(limit, limits.rows))
        asker = None if actor is None else actor.name
        with trace_block(
            start_database_span(find_current_span(), system=_GRAPH, operation="SPARQL")
        ) as span:
            result = await self.graph.sparql(query, self.access(actor), limits, asker=asker)
            if span.is_recording:
                span.name = result.kind.upper()
                span.set_attributes(
                    {
                        semconv.DB_OPERATION_NAME: span.name,
                        semconv.DB_RESPONSE_RETURNED_ROWS: len(result.rows) or len(result.triples),
                    }
                )
            return result

    async def subjects(
        self, type: str = "", *, actor: Actor | None = None
    ) -> Mapping[str, Sequence[str]]:
        """Return subjects with their types, optionally only those of one type."""
        await self._updater.wait_for_first()
        return await self.graph.subjects(type, self.access(actor))

    async def ontology(self, *, actor: Actor | None = None) -> "Ontology":
        """Return the ontology of the triples that the actor may read."""
        await self._updater.wait_for_first()
        return await self.graph.ontology(self.access(actor))

    async def ontology_turtle(self, *, actor: Actor | None = None) -> str:
        """Return the ontology of the triples that the actor may read, as SHACL shapes in Turtle."""
        await self._updater.wait_for_first()
        return await self.graph.ontology_turtle(self.access(actor))

    async def picture(self, *, actor: Actor | None = None) -> str:
        """Return the ontology of the triples that the actor may read, as SVG."""
        from copilot_runtime.extensions.knowledge.graph.picture import draw_ontology

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
        """Return the messages of the actor's thread that are most similar to the texts.

        The run of `run_id`, and one that goes on, is left out.
        """
        access = self.access(actor)
        conversation = conversation_identifier(actor.name or None, thread_id)
        if self.threads is None or not await select(access, [conversation]):
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

    async def get_window(self, id: str, *, actor: Actor | None = None) -> ContextWindow:
        """Return the context window of a conversation, limited to what the actor may read.

        Of a chat with this runtime that has no memory, these are the messages of its thread. Raises
        `NotFound` without such a conversation, also if the actor may neither read nor list it, and
        `AccessDenied` if the actor may only list it.
        """
        access = self.access(actor)
        if not await self._is_visible(id, actor):
            raise report_missing()
        if actor is not None and (chat := await self._read_chat(id, actor, access)) is not None:
            return chat
        return await self.context.get(id, access=access)

    async def _read_chat(self, id: str, actor: Actor, access: Access) -> ContextWindow | None:
        """Return the window of one of the actor's threads; `None` if there is no such thread."""
        uri = strip_namespace(str(id))
        thread_id = parse_identifier(uri).name
        conversation = conversation_identifier(actor.name or None, thread_id)
        is_own = str(conversation) == uri and await select(access, [conversation])
        if self.threads is None or not is_own or await self.memory.read(uri, access=access):
            return None
        runs = await self.threads.runs(ThreadKey(actor.name, thread_id))
        found = await asyncio.to_thread(list_messages, runs, uri)
        return ContextWindow(uri, tuple(found)) if found else None

    async def optimize_window(
        self,
        window: ContextWindow | str,
        budget: int | None = None,
        *,
        actor: Actor | None = None,
    ) -> OptimizationResult:
        """Optimise the context window of a conversation to fit a budget of tokens.

        Equal items become one, large ones are trimmed, and the oldest are summarised. Nothing is
        lost: memory and resources stay. Returns whether it is within the budget, and whether
        anything has changed.
        """
        access, write = self.access(actor), self.access(actor, "write")
        id = window.id if isinstance(window, ContextWindow) else window
        if not await self._is_visible(id, actor):
            raise report_missing()
        return await self.context.optimize(window, budget, access=access, write=write)

    async def find_resources(
        self, *, actor: Actor | None = None, type: str = "", prefix: str = ""
    ) -> list[Identifier]:
        """Return the identifiers of the resources that the actor may list.

        Without a prefix, those of a thing in several files are one, as in searches.
        """
        access, filter = self.access(actor, "list"), Filter(prefix=prefix)
        if type:
            found = await self.resources.find_by_type(type, access=access)
            found = [it for it in found if filter.matches(it)]
        elif prefix:
            found = await self.resources.find_by_prefix(filter.prefix, access=access)
        else:
            found = await self.resources.find_all(access=access)
        return found if prefix else await self.resources.drop_shorter(found)

    async def read(self, resource: Resource, *, actor: Actor | None = None) -> Passage:
        """Return a resource as a passage, with the parts that the actor may read."""
        return await self._make_reader(self.access(actor)).read(resource)

    async def read_titles(
        self, found: Sequence[Identifier], *, actor: Actor | None = None
    ) -> dict[str, str]:
        """Return the titles, by URI, of the resources that the actor may read."""
        return await self._make_reader(self.access(actor)).read_titles(found)

    async def get(self, uri: str, *, actor: Actor | None = None) -> Resource | None:
        """Return a resource, or `None` if it does not exist, or is hidden from the actor.

        Raises `AccessDenied` if the actor may list it, and not read it.
        """
        if not await self._is_visible(uri, actor):
            return None
        try:
            found = await self.resources.get([uri], access=self.access(actor))
        except Misuse:  # nothing can be stored under such a name
            return None
        return found[0] if found else None

    async def _is_visible(self, uri: str, actor: Actor | None) -> bool:
        """Return whether the actor may read or list a resource, and so may know that it exists."""
        uris = [strip_namespace(uri)]
        readable = await select(self.access(actor), uris)
        return bool(readable or await select(self.access(actor, "list"), uris))

    async def read_texts(self, uris: Sequence[str], context: ActionContext) -> list[str]:
        """Return the texts of resources that the caller of an action may read."""
        return await read_texts(self, uris, context, self.settings.tool_tokens)

    def tools(self) -> list[Action]:
        """Return the knowledge tools for models and agents."""
        return build_tools(self, self.settings.tools, self.settings.tool_tokens)

    def functions(self) -> list[Callable[..., Awaitable[Any]]]:
        """Return the tools as async functions, which agent frameworks can wrap.

        Each acts for the user, and in the thread, of the run in which it is called. Outside of a
        run of a runtime, it raises `Misuse`.
        """
        return build_functions(self.tools())

    def retriever(self) -> KnowledgeRetriever | None:
        """Return the retriever, or `None` if the settings disable retrieval."""
        if not self.settings.retrieval:
            return None
        return KnowledgeRetriever(
            self,
            limit=self.settings.retrieval_limit,
            max_tokens=self.settings.retrieval_tokens,
            threshold=self.settings.retrieval_threshold,
        )

    def files(self) -> ChatFiles | None:
        """Return the handler of files in chats, or `None` if the settings disable uploads."""
        if self.settings.uploads == "off":
            return None
        return ChatFiles(self)

    async def forget_thread(self, user: str, thread_id: str) -> None:
        """Delete the data of a thread that is being deleted.

        Deletes its files, its memory, and the resources below its conversation, with their index
        entries.
        """
        conversation = conversation_identifier(user or None, thread_id)
        await self.uploads.forget(conversation)
        await self.memory.forget(conversation)
        below = await self.storage.find_by_prefix(f"{PREFIX}{conversation}/")
        if below or await self.resources.has(conversation):
            removed = await self.resources.delete(conversation)
            await self.remove_from_indexes(map(str, removed))

    async def remove_from_indexes(self, uris: Iterable[str]) -> None:
        """Remove deleted resources from the indexes. The next update repeats what fails."""
        uris = [*uris]
        try:
            await self.vectors.remove(uris)
            await self.graph.remove(uris)
        except CopilotError as error:
            logger.warning("Resources are deleted, and an index still names them: %s", error)
        self.report_change()

    def report_change(self) -> None:
        """Notify other processes that this one has changed the indexes."""
        if self.on_change is not None:
            self.on_change()

    async def forget_old_files(self, before: float) -> int:
        """Delete uploads older than a time whose threads no longer exist.

        Returns their number. If only a digest of the user or the thread is known, the existence of
        the thread cannot be checked: `forget_thread` deletes its files.
        """

        async def exists(upload: "Upload") -> bool:
            thread = upload.find_thread()
            if thread is None or self.threads is None:
                return True
            return await self.threads.get(ThreadKey(*thread)) is not None

        return await self.uploads.forget_older(before, exists)

    async def aclose(self) -> None:
        """Cancel the update, and close all opened parts. The object can be used again."""
        await self._updater.aclose()
        owned = {"storage": self._storage, "embedder": self._embedder}
        for mirror in self._mirrors:
            await mirror.aclose()
        parts = (
            "uploads",
            "memory",
            "similar",
            "graph",
            "vectors",
            "ingestion",
            "resources",
            *owned,
        )
        for name in parts:
            part = self.__dict__.pop(name, None)
            close = getattr(part, "aclose", None)
            if close is not None and part is not owned.get(name):
                await close()
        if "events" in self.__dict__:  # subscribers stay subscribed
            await self.events.aclose()
        policy: Policy | None = self.__dict__.pop("policy", None)
        if policy is not None and policy is not self._policy:
            await call(policy.close)

    async def _may_list(self, files: Iterable[str], actor: Actor | None) -> list[bool]:
        """Return, for each source file, whether an actor may list its document."""
        uris = [str(identify_file(name)) for name in files]
        return await judge(self.access(actor, "list"), uris)

    def _select_relevant(
        self, texts: Sequence[str], passages: Sequence[Passage]
    ) -> Sequence[Passage]:
        relates = self.embedder.relates
        return [it for it in passages if any(relates(text, it.text) for text in texts)]

    def _make_reader(self, access: Access) -> PassageReader:
        return PassageReader(self.resources, access, self.link)

    def _check(self) -> None:
        """Raise `ConfigurationFailed` for an invalid configuration, without opening the storage."""
        for package in _PACKAGES:
            if find_spec(package) is None:
                raise MissingPackage("Knowledge", package, "knowledge")
        if self.settings.vector_engine == "faiss" and find_spec("faiss") is None:
            raise MissingPackage("The vector engine 'faiss'", "faiss-cpu", "faiss")
        check_base(self.base)
        _ = self.storage  # whose address is read now; nothing is opened
        for source in self.sources:
            if not has_magic(source) and not Path(source).exists():
                raise ConfigurationFailed(
                    f"There is no file or folder '{source}' to take knowledge from "
                    f"(looked in {Path.cwd()}).",
                    hint="Correct knowledge.sources in copilot.yml, or the argument sources.",
                )
        self._check_vector_database()
        if self.settings.graph_options:
            _ = self._graph_options
        if self._policy is not None:
            _ = self.policy  # reads the policy, and raises if it is invalid
        if isinstance(self._embedder, str):
            kind = self._embedder.partition(":")[0].strip()
            table = Registry("copilot_runtime.embedders", _embeddings().EMBEDDERS)
            if kind not in table:
                raise UnknownName("embedder", kind, table)

    def _check_vector_database(self) -> None:
        url = self.settings.vector_database
        if url and url.partition(":")[0] not in ("postgresql", "postgres"):
            raise ConfigurationFailed(
                "knowledge.vector_database is no address of PostgreSQL.",
                hint="It looks like postgresql://user:password@host/database.",
            )
        if url and self.settings.vector_engine != "exact":
            raise ConfigurationFailed(
                f"Vectors in a database are not searched by {self.settings.vector_engine}.",
                hint="Leave knowledge.vector_engine out: the database has indexes of its own.",
            )


def _check_sources(sources: object) -> Sequence[str | Path]:
    if isinstance(sources, str | Path):
        raise ConfigurationFailed(
            "sources is one path, and not a list.", hint=f"Write sources=[{str(sources)!r}]."
        )
    return cast("Sequence[str | Path]", sources)


def _check_actor(actor: object) -> None:
    if not isinstance(actor, Actor):
        raise Misuse(
            f"actor is {shorten(repr(actor), 80)}, and not an Actor.",
            hint="Write actor=build_actor(user), of copilot_runtime.knowledge.",
        )


def _embeddings() -> Any:
    """Import the package of embedders on first use."""
    return import_module("copilot_runtime.adapters.embeddings")
