"""The GraphQL schema of a runtime with knowledge. Every field runs as the caller.

Without knowledge the schema is that of CopilotKit 1.10 and our subscription, and nothing here is
imported.
"""

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

import strawberry
from strawberry import UNSET

from copilot_runtime.api.retrieval import Passage
from copilot_runtime.base.errors import LimitExceeded, Misuse
from copilot_runtime.extensions.knowledge import Knowledge
from copilot_runtime.extensions.knowledge.events import EventFilter
from copilot_runtime.extensions.knowledge.policies import build_actor, conversation_identifier
from copilot_runtime.extensions.knowledge.policies.ownership import (
    admit_stranger,
    check_conversation,
)
from copilot_runtime.transports.graphql.context import Context
from copilot_runtime.transports.graphql.errors import hide_details
from copilot_runtime.transports.graphql.schema import CopilotInfo
from copilot_runtime.transports.graphql.types import JSONObject

if TYPE_CHECKING:
    from copilot_runtime.extensions.knowledge import Knowledge
    from copilot_runtime.extensions.knowledge.access import Actor
    from copilot_runtime.extensions.knowledge.graph import SparqlResult
    from copilot_runtime.extensions.knowledge.identifiers import Identifier

_MOST_FIELDS = 10
"""Maximum number of knowledge fields in a request, since each may cost an embedding."""

_MOST_RESULTS = 100
_MOST_TOKENS = 20_000
_MOST_TEXTS = 10
_LONGEST_TEXT = 10_000


@strawberry.type(description="A resource as lists have it")
class ResourceEntry:
    id: str
    type: str
    tokens: int


@strawberry.type(description="Resources from an offset on, and how many there are in all")
class ResourcePage:
    resources: list[ResourceEntry]
    total: int


@strawberry.type(description="A resource with all that is stored of it")
class KnowledgeResource:
    id: str
    type: str
    title: str
    text: str = strawberry.field(description="Its text for people and models")
    url: str = strawberry.field(description="Where a reader can open it")
    format: str = strawberry.field(description="That of its content: text, jsonld, nquads, turtle")
    content: str
    role: str
    fields: JSONObject
    subjects: list[str] = strawberry.field(description="The IRIs of the things it is about")
    tokens: int
    version: str


@strawberry.type(description="A resource that a search found; the score of a pattern is null")
class SearchResult:
    id: str
    title: str
    text: str
    url: str
    score: float | None


@strawberry.type(description="Subject, predicate and object, as in N-Triples")
class Triple:
    subject: str
    predicate: str
    object: str


@strawberry.type(
    description="What the graph answers: triples and their resources to a pattern; to SPARQL "
    "triples, rows of the variables, or yes or no"
)
class GraphAnswer:
    triples: list[Triple]
    resources: list[SearchResult]
    variables: list[str]
    rows: list[list[str | None]]
    boolean: bool | None
    cut: bool = strawberry.field(description="Whether there is more than the limit")


@strawberry.type(description="A class, and how many things are of it")
class OntologyClass:
    iri: str
    name: str
    instances: int
    properties: list[str] = strawberry.field(description="IRIs of the properties of its instances")


@strawberry.type(description="The vocabulary of the graph")
class KnowledgeOntology:
    classes: list[OntologyClass]

    @strawberry.field(description="SHACL shapes")
    async def turtle(self, info: CopilotInfo) -> str:
        knowledge, actor = _ask(info.context)
        return await knowledge.ontology_turtle(actor=actor)

    @strawberry.field(description="A picture of it")
    async def svg(self, info: CopilotInfo) -> str:
        knowledge, actor = _ask(info.context)
        return await knowledge.picture(actor=actor)


@strawberry.type(description="A resource of a conversation, without its content")
class MemoryItem:
    id: str
    type: str
    tokens: int
    score: float | None


@strawberry.type(description="The part of a memory for a model, within a budget of tokens")
class MemoryWindow:
    tools: list[MemoryItem]
    context: list[MemoryItem]
    conversation: list[MemoryItem]
    trimmed: list[str] = strawberry.field(description="Ids of truncated resources")
    tokens: int


@strawberry.type(description="The memory of a conversation of the caller, the oldest item first")
class ConversationMemory:
    conversation: str = strawberry.field(description="Its URI")
    items: list[MemoryItem]
    thread_id: strawberry.Private[str]

    @strawberry.field(description="The part that fits into a budget of tokens")
    async def window(self, info: CopilotInfo, budget: int = 4000) -> MemoryWindow:
        knowledge, actor = _ask(info.context, self.thread_id)
        access = knowledge.access(actor)
        found = await knowledge.memory.window(self.conversation, max(0, budget), access=access)
        return MemoryWindow(
            tools=[*map(_build_item, found.tools)],
            context=[*map(_build_item, found.context)],
            conversation=[*map(_build_item, found.conversation)],
            trimmed=sorted(found.trimmed),
            tokens=found.tokens,
        )

    @strawberry.field(description="Messages of the thread that contain these words")
    async def recall(
        self, info: CopilotInfo, input: list[str], limit: int = 10
    ) -> list[SearchResult]:
        knowledge, actor = _ask(info.context, self.thread_id)
        found = await knowledge.recall(
            _check_texts(input),
            actor=actor,
            thread_id=self.thread_id,
            limit=_check_limit(limit),
            max_tokens=_MOST_TOKENS,
        )
        return [*map(_build_result, found)]


@strawberry.type(description="A resource of a context window, as far as it is read")
class WindowResource:
    id: str
    type: str
    role: str
    tokens: int
    content: str


@strawberry.type(description="The resources of a conversation, oldest first")
class ContextWindow:
    id: str
    tokens: int
    resources: list[WindowResource]


@strawberry.type(description="Whether a window is within its budget, and whether it has changed")
class WindowOptimization:
    successful: bool
    optimized: bool


@strawberry.type(description="Something was done to resources")
class ResourceEvent:
    id: str
    source: str
    time: str
    detail_type: str = strawberry.field(description="RESOURCE_PUT, RESOURCE_GET, RESOURCE_DELETE")
    resources: list[str]


@strawberry.type(description="A file of the sources, as it was read last")
class KnowledgeSource:
    name: str
    state: str = strawberry.field(description="taken in, in part, failed, or skipped")
    message: str = strawberry.field(description="What could not be read, or was guessed, and why")
    read_at: float = strawberry.field(description="Seconds since 1970; 0 if it never was read")


@strawberry.type
class KnowledgeQuery:
    @strawberry.field(description="The files that were taken in, failed, or were skipped")
    async def knowledge_sources(self, info: CopilotInfo) -> list[KnowledgeSource]:
        knowledge, actor = _ask(info.context)
        found = await knowledge.list_sources(actor=actor)
        return [
            KnowledgeSource(name=it.name, state=it.state, message=it.message, read_at=it.read_at)
            for it in found
        ]

    @strawberry.field(description="The resources of a type, or below a URI")
    async def resources(
        self,
        info: CopilotInfo,
        prefix: str = "",
        type: str = "",
        limit: int = 50,
        offset: int = 0,
    ) -> ResourcePage:
        knowledge, actor = _ask(info.context)
        found = await knowledge.find_resources(actor=actor, type=type, prefix=prefix)
        page = found[_check_number("offset", offset, 10**9) :][: _check_limit(limit)]
        entries = [ResourceEntry(id=str(it), type=it.type, tokens=it.tokens or 0) for it in page]
        return ResourcePage(resources=entries, total=len(found))

    @strawberry.field(description="One resource; null without one")
    async def resource(self, info: CopilotInfo, id: str) -> KnowledgeResource | None:
        knowledge, actor = _ask(info.context)
        resource = await knowledge.get(_check_text("id", id), actor=actor)
        if resource is None:
            return None
        passage = await knowledge.read(resource, actor=actor)
        return KnowledgeResource(
            id=resource.uri,
            type=resource.id.type,
            title=passage.title,
            text=passage.text,
            url=passage.url,
            format=resource.format,
            content=resource.content,
            role=resource.role,
            fields=JSONObject({**resource.fields}),
            subjects=[*resource.id.subjects],
            tokens=resource.id.tokens or 0,
            version=resource.version,
        )

    @strawberry.field(description="The resources whose meaning is nearest to any of the texts")
    async def search(
        self,
        info: CopilotInfo,
        input: list[str],
        prefix: str = "",
        type: str = "",
        threshold: float | None = UNSET,
        limit: int = 10,
        max_tokens: int = 4000,
    ) -> list[SearchResult]:
        knowledge, actor = _ask(info.context)
        found = await knowledge.search(
            _check_texts(input),
            actor=actor,
            prefix=prefix,
            type=type,
            threshold=None if threshold is UNSET else threshold,
            limit=_check_limit(limit),
            max_tokens=_check_number("maxTokens", max_tokens, _MOST_TOKENS),
        )
        return [*map(_build_result, found)]

    @strawberry.field(
        description="What fits a pattern, of which each part may be ? or left out; or the answer "
        "to a SPARQL query that reads"
    )
    async def graph(
        self,
        info: CopilotInfo,
        subject: str = "?",
        predicate: str = "?",
        object: str = "?",
        sparql: str | None = UNSET,
        limit: int = 50,
    ) -> GraphAnswer:
        knowledge, actor = _ask(info.context)
        limit = _check_limit(limit)
        if sparql:
            return await _query_sparql(knowledge, _check_text("sparql", sparql), actor, limit)
        parts = {"subject": subject, "predicate": predicate, "object": object}
        pattern = tuple(_check_text(name, text) or "?" for name, text in parts.items())
        subject, predicate, object = pattern
        triples = await knowledge.triples(
            (subject, predicate, object), actor=actor, limit=limit + 1
        )
        found = await knowledge.find(
            (subject, predicate, object), actor=actor, limit=limit, max_tokens=_MOST_TOKENS
        )
        return GraphAnswer(
            triples=[Triple(subject=s, predicate=p, object=o) for s, p, o in triples[:limit]],
            resources=[*map(_build_result, found)],
            variables=[],
            rows=[],
            boolean=None,
            cut=len(triples) > limit,
        )

    @strawberry.field(description="The vocabulary of all that the caller may read")
    async def ontology(self, info: CopilotInfo) -> KnowledgeOntology:
        knowledge, actor = _ask(info.context)
        ontology = await knowledge.ontology(actor=actor)
        return KnowledgeOntology(
            classes=[
                OntologyClass(
                    iri=it.iri,
                    name=it.name,
                    instances=it.instances,
                    properties=[
                        *dict.fromkeys(one.path for one in it.properties if not one.is_inverse)
                    ],
                )
                for it in ontology.classes
            ]
        )

    @strawberry.field(description="The resources of a conversation of the caller")
    async def memory(self, info: CopilotInfo, thread_id: str) -> ConversationMemory:
        knowledge, actor = _ask(info.context, thread_id)
        check_conversation(thread_id)
        conversation = str(conversation_identifier(info.context.caller.user, thread_id))
        items = await knowledge.memory.read(conversation, access=knowledge.access(actor))
        return ConversationMemory(
            conversation=conversation, items=[*map(_build_item, items)], thread_id=thread_id
        )

    @strawberry.field(description="The context window of a conversation, by its URI")
    async def context_window(self, info: CopilotInfo, id: str) -> ContextWindow:
        knowledge, actor = _ask_for(info.context, id)
        window = await knowledge.get_window(id, actor=actor)
        return ContextWindow(
            id=window.id,
            tokens=window.tokens,
            resources=[
                WindowResource(
                    id=it.uri,
                    type=it.id.type,
                    role=it.role,
                    tokens=it.id.tokens or 0,
                    content=it.content,
                )
                for it in window.resources
            ],
        )


@strawberry.type
class KnowledgeMutation:
    @strawberry.mutation(
        description="Make a context window smaller until it is within a budget of tokens: equal "
        "items become one, large ones are trimmed, the oldest are summarised. Nothing is deleted"
    )
    async def optimize_context_window(
        self, info: CopilotInfo, id: str, budget: int | None = UNSET
    ) -> WindowOptimization:
        knowledge, actor = _ask_for(info.context, id)
        tokens = None if budget is UNSET else budget
        result = await knowledge.optimize_window(id, tokens, actor=actor)
        return WindowOptimization(successful=result.successful, optimized=result.optimized)


@strawberry.type
class KnowledgeSubscription:
    @strawberry.subscription(
        description="New events of these sources and types, about a resource and those below it"
    )
    async def resource_events(
        self,
        info: CopilotInfo,
        sources: list[str] | None = UNSET,
        detail_types: list[str] | None = UNSET,
        prefix: str = "",
    ) -> AsyncGenerator[ResourceEvent, None]:
        try:
            knowledge, actor = _ask(info.context)
            chosen = EventFilter(
                sources=sources or (),
                detail_types=detail_types or (),
                prefix=_check_text("prefix", prefix),
                access=knowledge.access(actor),
            )
        except Exception as error:  # the client gets it without details
            raise hide_details(error) from None
        with knowledge.events.subscribe(chosen) as events:
            async for event in events:
                yield ResourceEvent(
                    id=event.id,
                    source=event.source,
                    time=event.time,
                    detail_type=event.detail_type,
                    resources=[str(identifier) for identifier in event.resources],
                )


ROOTS = {
    "Query": KnowledgeQuery,
    "Mutation": KnowledgeMutation,
    "Subscription": KnowledgeSubscription,
}


def _ask(context: Context, thread_id: str = "") -> "tuple[Knowledge, Actor]":
    """Return the knowledge and the actor. Raises `LimitExceeded` for too many fields."""
    context.count_field("knowledge", _MOST_FIELDS)
    knowledge = context.services.parts.find(Knowledge)
    assert knowledge is not None
    return knowledge, build_actor(context.caller.user, thread_id)


def _ask_for(context: Context, uri: str) -> "tuple[Knowledge, Actor]":
    """Return the knowledge and the actor, with access to the conversation of a URI."""
    knowledge, actor = _ask(context)
    return knowledge, admit_stranger(actor, _check_text("id", uri))


async def _query_sparql(
    knowledge: "Knowledge", query: str, actor: "Actor", limit: int
) -> GraphAnswer:
    result = await knowledge.sparql(query, actor=actor, limit=limit)
    return GraphAnswer(
        triples=[
            Triple(subject=str(it.subject), predicate=str(it.predicate), object=str(it.object))
            for it in result.triples
        ],
        resources=[],
        variables=[*result.variables],
        rows=_write_rows(result),
        boolean=result.boolean,
        cut=bool(result.cut),
    )


def _write_rows(result: "SparqlResult") -> list[list[str | None]]:
    return [
        [None if (term := row.get(name)) is None else str(term) for name in result.variables]
        for row in result.rows
    ]


def _build_item(identifier: "Identifier") -> MemoryItem:
    return MemoryItem(
        id=str(identifier),
        type=identifier.type,
        tokens=identifier.tokens or 0,
        score=identifier.score,
    )


def _build_result(passage: Passage) -> SearchResult:
    return SearchResult(
        id=passage.id,
        title=passage.title,
        text=passage.text,
        url=passage.url,
        score=passage.score,
    )


def _check_limit(limit: int) -> int:
    return _check_number("limit", limit, _MOST_RESULTS, least=1)


def _check_number(name: str, value: int, most: int, least: int = 0) -> int:
    if not least <= value <= most:
        raise Misuse(f"{name} is {value}; it is a number from {least} to {most}.")
    return value


def _check_texts(texts: list[str]) -> list[str]:
    if not 0 < len(texts) <= _MOST_TEXTS:
        raise Misuse(f"Search for 1 to {_MOST_TEXTS} texts.")
    return [_check_text("input", text) for text in texts]


def _check_text(name: str, text: str) -> str:
    if len(text) > _LONGEST_TEXT:
        raise LimitExceeded(f"{name} has {len(text)} characters; {_LONGEST_TEXT} are allowed.")
    return text
