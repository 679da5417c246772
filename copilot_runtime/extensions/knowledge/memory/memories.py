"""The memories of all conversations, their prompts, and the stored optimisation of windows."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

from copilot_runtime.base.errors import Misuse, NotFound
from copilot_runtime.base.jsonvalue import JsonObject, as_count, as_list, as_object
from copilot_runtime.extensions.knowledge.access import FULL_ACCESS, Access, require, select
from copilot_runtime.extensions.knowledge.identifiers import (
    Identifier,
    parse_identifier,
    strip_namespace,
)
from copilot_runtime.extensions.knowledge.memory.index import PREFIX, MemoryIndex
from copilot_runtime.extensions.knowledge.memory.window import TOOL, Allocation, Window, find_rules
from copilot_runtime.extensions.knowledge.resources import Resource, ResourceIndex
from copilot_runtime.extensions.knowledge.tokens import count_json_tokens, cut_text
from copilot_runtime.storage import Storage
from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.genai import start_memory_span
from copilot_runtime.telemetry.span import Span, find_current_span, trace_block

WINDOW = "context.Window"
SUMMARY = "context.Summary"
"""The type of summaries, which are stored below their conversation."""


@dataclass(frozen=True, slots=True)
class WindowOptimization:
    """The differences of a window from its memory; `version` is that of the stored resource.

    It is stored as `context.Window.current` below the conversation. Items that are appended later
    are not affected; the memory itself stays complete.
    """

    replaced: Mapping[str, str] = field(default_factory=dict[str, str])
    """URIs of replaced items, with the URI of the equal item or summary that replaces each."""
    trimmed: Mapping[str, int] = field(default_factory=dict[str, int])
    """URIs of trimmed items, with the number of tokens that remain."""
    summaries: Mapping[str, int] = field(default_factory=dict[str, int])
    """Summaries, and the tokens of each."""
    version: str = ""

    def apply(self, identifiers: Iterable[Identifier]) -> list[Identifier]:
        """Return the window of the identifiers that an actor may read.

        A summary is included if the actor may read all items that it replaces; otherwise the
        readable ones are. It has the position of the first of them.
        """
        readable = {str(it): it for it in identifiers}
        usable = {
            uri: tokens
            for uri, tokens in self.summaries.items()
            if all(one in readable for one in self.find_sources(uri))
        }
        window: dict[str, Identifier] = {}
        for uri, identifier in readable.items():
            by = self.replaced.get(uri, "")
            if by in usable:
                window[by] = parse_identifier(by, usable[by])
            elif by not in readable or by in self.replaced:
                window[uri] = self._trim(uri, identifier)
        return [*window.values()]

    def find_sources(self, by: str) -> list[str]:
        """Return the URIs of the items that another one replaces."""
        return [uri for uri, other in self.replaced.items() if other == by]

    def _trim(self, uri: str, identifier: Identifier) -> Identifier:
        tokens = self.trimmed.get(uri)
        if tokens is None or (identifier.tokens or 0) <= tokens:
            return identifier
        return replace(identifier, tokens=tokens)


def identify_window(conversation: Identifier | str) -> Identifier:
    """Return the identifier of the stored optimisation of a conversation."""
    return Identifier(WINDOW, "current", strip_namespace(str(conversation)))


async def load_optimization(
    resources: ResourceIndex, conversation: Identifier | str
) -> WindowOptimization:
    """Return the stored optimisation of a window; an empty one if there is none."""
    found = await resources.get([identify_window(conversation)])
    return _decode(found[0]) if found else WindowOptimization()


async def save_optimization(
    resources: ResourceIndex, conversation: Identifier | str, optimization: WindowOptimization
) -> None:
    """Store the optimisation of a window. Raises `VersionConflict` on a concurrent write."""
    fields: JsonObject = {
        "replaced": {**optimization.replaced},
        "trimmed": {**optimization.trimmed},
        "summaries": {**optimization.summaries},
    }
    resource = Resource(identify_window(conversation), fields=fields)
    await resources.put(resource, expected=optimization.version)


def _decode(resource: Resource) -> WindowOptimization:
    """Decode a stored optimisation; malformed fields are ignored."""
    replaced = as_object(resource.fields.get("replaced"))
    return WindowOptimization(
        {uri: by for uri, by in replaced.items() if isinstance(by, str)},
        _read_counts(resource, "trimmed"),
        _read_counts(resource, "summaries"),
        resource.version,
    )


def _read_counts(resource: Resource, name: str) -> Mapping[str, int]:
    values = as_object(resource.fields.get(name))
    return {uri: count for uri, value in values.items() if (count := as_count(value)) is not None}


MAX_OPEN = 1000
"""Maximum number of open memories; the least recently used are closed."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Prompt:
    """The prompt of a conversation for a model."""

    messages: Sequence[Resource]
    """Instructions of the agent, context, conversation: trimmed where the window says so."""
    tools: Sequence[JsonObject]
    """Tools in the format of the OpenAI API."""
    window: Window
    max_tokens: int
    """Number of tokens reserved for the answer."""


class Memories:
    """The memory of each conversation: a `MemoryIndex` by conversation URI.

    A memory has the owner of its conversation: `access` is checked for the URI of the
    conversation, and for each resource that a window shows. The default is for the system itself.
    """

    def __init__(
        self,
        storage: Storage,
        resources: ResourceIndex | None = None,
        *,
        rules: str = "newest",
        allocation: Allocation | None = None,
        max_tokens: int = 4096,
    ) -> None:
        if max_tokens <= 0:
            raise Misuse("config.max_tokens is required and must be positive")
        self.allocation = allocation or Allocation()
        self.max_tokens = max_tokens
        """Default number of tokens reserved for the answer."""
        self.resources = resources or ResourceIndex(storage)
        self._storage = storage
        self._rules = find_rules(rules)
        self._counts_tools = rules == "newest"
        self._open: dict[str, MemoryIndex] = {}

    async def append(
        self,
        conversation: Identifier | str,
        *identifiers: Identifier,
        access: Access = FULL_ACCESS,
    ) -> None:
        """Append to a memory. Existing identifiers keep their positions."""
        memory = await self._find(conversation, access)
        with self._trace(semconv.UPSERT_MEMORY, memory) as span:
            span.set_attributes({semconv.MEMORY_RECORD_COUNT: len(identifiers)})
            if len(identifiers) == 1:
                span.set_attributes({semconv.MEMORY_RECORD_ID: identifiers[0].name})
            await memory.append(*identifiers)

    async def read(
        self, conversation: Identifier | str, *, access: Access = FULL_ACCESS
    ) -> list[Identifier]:
        """Return the readable identifiers of a memory, the oldest first."""
        memory = await self._find(conversation, access)
        with self._trace(semconv.SEARCH_MEMORY, memory) as span:
            found = await select(access, (await memory.load()).values())
            span.set_attributes({semconv.MEMORY_RECORD_COUNT: len(found)})
        return found

    async def window(
        self,
        conversation: Identifier | str,
        budget: int,
        allocation: Allocation | None = None,
        *,
        access: Access = FULL_ACCESS,
    ) -> Window:
        """Return the window of a memory within a budget of tokens."""
        identifiers = await self.read(conversation, access=access)
        optimization = await load_optimization(self.resources, conversation)
        identifiers = optimization.apply(identifiers)
        if self._counts_tools:
            identifiers = await self._count_tools(identifiers, access)
        return self._rules.select(identifiers, budget, allocation or self.allocation)

    async def prompt(
        self,
        conversation: Identifier | str,
        budget: int,
        max_tokens: int | None = None,
        *,
        access: Access = FULL_ACCESS,
    ) -> Prompt:
        """Return the prompt of a conversation within a budget of tokens.

        That are the instructions and tools of the agent whose URI is the field `agent_id` of the
        conversation, and what of its memory fits beside them and an answer of `max_tokens`.
        Raises `NotFound` if there is no such conversation or agent.
        """
        max_tokens = self.max_tokens if max_tokens is None else max_tokens
        if max_tokens <= 0:
            raise Misuse("maxTokens is required and must be positive")
        agent = await self._find_agent(strip_namespace(str(conversation)), access)
        tools = await self._find_tools(agent, access)
        cost = (agent.id.tokens or 0) + sum(self._count(tool) for tool in tools)
        window = await self.window(conversation, max(0, budget - cost - max_tokens), access=access)
        chosen = {tool.id.name for tool in tools}
        others = [it for it in window.tools if it.name not in chosen]
        tools += await self.resources.get_visible(others, access)
        system = replace(agent, role="system")
        messages = [system, *await self._read_content(window, access)]
        return Prompt(messages, [*map(encode_tool, tools)], window, max_tokens)

    async def conversations(self, *, access: Access = FULL_ACCESS) -> list[str]:
        """Return the URIs of the conversations that have a memory and may be listed."""
        return await select(access, await self._find_conversations(PREFIX))

    async def forget(
        self, conversation: Identifier | str, *, access: Access = FULL_ACCESS
    ) -> list[str]:
        """Delete a memory and those below its conversation. Returns the conversation URIs."""
        memory = await self._find(conversation, access)
        below = await self._find_conversations(f"{PREFIX}{memory.uri}/")
        uris = [*dict.fromkeys([memory.uri, *below])]
        await require(access, below)
        with self._trace(semconv.DELETE_MEMORY_STORE, memory):
            gone = [one for one in uris if await self._open_index(one).delete()]
        for one in uris:
            if not self._open_index(one).is_pending:
                del self._open[one]
        return gone

    async def aclose(self) -> None:
        """Write pending identifiers."""
        while self._open:
            _, memory = self._open.popitem()
            await memory.aclose()

    def _trace(self, operation: str, memory: MemoryIndex) -> AbstractContextManager[Span]:
        own_name = memory.uri.rpartition("/")[2]  # whose it is stands before that
        return trace_block(start_memory_span(find_current_span(), operation, own_name))

    async def _find(self, conversation: Identifier | str, access: Access) -> MemoryIndex:
        """Return the memory of a conversation. Raises `AccessDenied`, or `Misuse` for a bad URI."""
        uri = strip_namespace(str(conversation))
        await require(access, [uri])
        return self._open_index(uri)

    async def _find_conversations(self, prefix: str) -> list[str]:
        """Return the conversations whose memory keys have a prefix, including pending ones."""
        keys = {*await self._storage.find_by_prefix(prefix)}
        keys |= {
            memory.key
            for memory in self._open.values()
            if memory.is_pending and memory.key.startswith(prefix)
        }
        return [key.removeprefix(PREFIX).removesuffix(".jsonl") for key in sorted(keys)]

    def _open_index(self, uri: str) -> MemoryIndex:
        """Return the memory of a conversation, loaded or not. Raises `Misuse`."""
        memory = self._open.pop(uri, None) or MemoryIndex(self._storage, parse_identifier(uri))
        if len(self._open) >= MAX_OPEN:
            self._close_oldest()
        self._open[uri] = memory  # the last one used is the last one closed
        return memory

    def _close_oldest(self) -> None:
        """Close the least recently used memory without pending writes."""
        for uri, memory in self._open.items():
            if not memory.is_pending:
                del self._open[uri]
                break

    async def _find_agent(self, conversation: str, access: Access) -> Resource:
        uri = ""
        for found in await self.resources.get([conversation], access=access):
            uri = str(found.fields.get("agent_id") or found.fields.get("assistant_id") or "")
            for agent in await self.resources.get([uri] if uri else [], access=access):
                return agent
            raise NotFound(
                f"Agent not found: {uri}",
                hint=f"Put it, or correct the field agent_id of {conversation}.",
            )
        raise NotFound(f"Conversation not found: {conversation}")

    async def _find_tools(self, agent: Resource, access: Access) -> list[Resource]:
        names = [name for name in as_list(agent.fields.get("tools")) if isinstance(name, str)]
        tools = await self.resources.get([Identifier(TOOL, name) for name in names], access=access)
        if unknown := {*names} - {tool.id.name for tool in tools}:
            logger.warning(
                "The agent %s names tools that there are not: %s.",
                agent.uri,
                ", ".join(sorted(unknown)),
            )
        return tools

    async def _count_tools(
        self, identifiers: Sequence[Identifier], access: Access
    ) -> list[Identifier]:
        """Add the token counts of their schemas to tools that have none."""
        without = [it for it in identifiers if it.type == TOOL and not it.tokens]
        if not without:
            return [*identifiers]
        tools = await self.resources.get_visible(without, access)
        tokens = {tool.uri: self._count(tool) for tool in tools}
        return [
            replace(it, tokens=tokens.get(str(it), it.tokens)) if it.type == TOOL else it
            for it in identifiers
        ]

    def _count(self, tool: Resource) -> int:
        """Return the tokens of a tool; rules of older versions do not count its schema."""
        tokens = tool.id.tokens or 0
        return tokens or count_tool_tokens(tool) if self._counts_tools else tokens

    async def _read_content(self, window: Window, access: Access) -> list[Resource]:
        """Return the resources of a window in order, trimmed where necessary."""
        identifiers = [*window.context, *window.conversation]
        resources = await self.resources.get_visible(identifiers, access)
        tokens = {str(it): it.tokens or 0 for it in identifiers if str(it) in window.trimmed}
        return [cut_resource(it, tokens[it.uri]) if it.uri in tokens else it for it in resources]


def count_tool_tokens(tool: Resource) -> int:
    """Return the tokens of a tool's name, description and parameters."""
    return count_json_tokens(describe_tool(tool.id.name, tool.content, tool.fields))


def describe_tool(name: str, content: str, fields: Mapping[str, object]) -> JsonObject:
    """Return the definition of a tool for a model."""
    parameters = as_object(fields.get("parameters"))
    return {
        "name": name,
        "description": fields.get("description") or content,
        "parameters": {"type": "object", "properties": {}, **parameters},
    }


def encode_tool(tool: Resource) -> JsonObject:
    """Return a tool in the format of the OpenAI API."""
    return {"type": "function", "function": describe_tool(tool.id.name, tool.content, tool.fields)}


def cut_resource(resource: Resource, tokens: int) -> Resource:
    """Return a resource with its content truncated to about `tokens`."""
    content = cut_text(resource.content, tokens)
    return replace(resource, content=content, id=replace(resource.id, tokens=tokens))
