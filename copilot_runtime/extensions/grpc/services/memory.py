"""The memory service: memories of conversations."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from copilot_runtime.base.errors import Misuse, NotFound
from copilot_runtime.extensions.grpc.protos import memory_pb2
from copilot_runtime.extensions.grpc.service import (
    Call,
    RpcMethod,
    RpcService,
    check_number,
    check_text,
    require_knowledge,
)
from copilot_runtime.extensions.knowledge.access import AccessDenied, Actor
from copilot_runtime.extensions.knowledge.identifiers import Identifier, parse_identifier
from copilot_runtime.extensions.knowledge.memory.window import Allocation, Window
from copilot_runtime.extensions.knowledge.policies import build_actor, conversation_identifier
from copilot_runtime.extensions.knowledge.policies.ownership import (
    admit_stranger,
    check_conversation,
)
from copilot_runtime.transports.transport import Services

_MOST_IDENTIFIERS = 1000
_MOST_TOKENS = 10_000_000
_LONGEST_URI = 2_000
_BUDGET = 4000


class MemoryService(RpcService):
    """`copilot.memory.v1.Memory`"""

    descriptor = memory_pb2.DESCRIPTOR.services_by_name["Memory"]

    def __init__(self, services: Services) -> None:
        self._knowledge = require_knowledge(services, "memory")

    def list_methods(self) -> Mapping[str, RpcMethod]:
        return {
            "AppendMemory": RpcMethod(run=self.append_memory, scope="data:write"),
            "GetWindow": RpcMethod(run=self.get_window, scope="data:read"),
        }

    async def append_memory(
        self, request: memory_pb2.AppendMemoryRequest, call: Call
    ) -> memory_pb2.AppendMemoryResponse:
        """Append resources; missing token counts are taken from the store."""
        if not 1 <= len(request.identifiers) <= _MOST_IDENTIFIERS:
            raise Misuse(f"identifiers has 1 to {_MOST_IDENTIFIERS} resources.")
        conversation, actor = identify_conversation(call, request.thread_id, request.resource_id)
        identifiers = [*map(_decode, request.identifiers)]
        access = self._knowledge.access(actor, "write")
        await self._knowledge.memory.append(
            conversation, *await self._count(identifiers, actor), access=access
        )
        return memory_pb2.AppendMemoryResponse(resource_id=conversation, appended=len(identifiers))

    async def get_window(
        self, request: memory_pb2.GetWindowRequest, call: Call
    ) -> memory_pb2.GetWindowResponse:
        """Return the part of a memory that fits the token budget."""
        conversation, actor = identify_conversation(call, request.thread_id, request.resource_id)
        budget = request.budget if request.HasField("budget") else _BUDGET
        shares = request.allocation
        allocation = Allocation(shares.tools, shares.context, shares.conversation)
        try:
            found = await self._knowledge.memory.window(
                conversation,
                check_number("budget", budget, _MOST_TOKENS),
                allocation if request.HasField("allocation") else None,
                access=self._knowledge.access(actor),
            )
        except AccessDenied:  # a hidden memory is as one that does not exist
            found = Window()
        if not (found.tools or found.context or found.conversation):
            return await self._read_chat(conversation, actor, budget)
        return memory_pb2.GetWindowResponse(
            resource_id=conversation,
            tools=map(_encode, found.tools),
            context=map(_encode, found.context),
            conversation=map(_encode, found.conversation),
            trimmed=sorted(found.trimmed),
            tokens=found.tokens,
        )

    async def _read_chat(
        self, conversation: str, actor: Actor, budget: int
    ) -> memory_pb2.GetWindowResponse:
        """Return the newest messages of a chat with this runtime that fit the token budget."""
        answer = memory_pb2.GetWindowResponse(resource_id=conversation)
        try:
            window = await self._knowledge.get_window(conversation, actor=actor)
        except NotFound:
            return answer
        chosen: list[Identifier] = []
        for one in reversed(window.resources):
            tokens = one.id.tokens or 0
            if answer.tokens + tokens > budget:
                break
            answer.tokens += tokens
            chosen.insert(0, one.id)
        answer.conversation.extend(map(_encode, chosen))
        return answer

    async def _count(self, found: Sequence[Identifier], actor: Actor) -> Iterable[Identifier]:
        """Return identifiers with token counts. Raises `Misuse` if a count is unknown."""
        missing = [one for one in found if one.tokens is None]
        access = self._knowledge.access(actor)
        stored = {
            str(one.id): one.id.tokens
            for one in await self._knowledge.resources.get_visible(missing, access)
        }
        counts = [stored.get(str(one)) if one.tokens is None else one.tokens for one in found]
        identifiers = [replace(one, tokens=count) for one, count in zip(found, counts, strict=True)]
        unknown = next((one for one in identifiers if one.tokens is None), None)
        if unknown is not None:
            raise Misuse(f"How many tokens has {str(unknown)!r}? There is no such resource here.")
        return identifiers


def identify_conversation(call: Call, thread_id: str, uri: str) -> tuple[str, Actor]:
    """Return a conversation's URI, and the actor of the caller. Raises `Misuse`.

    A conversation without an owner belongs to every caller who knows its URI, as its thread does.
    """
    user = call.caller.user
    if thread_id and uri:
        raise Misuse("Name a thread_id or a resource_id, and not both.")
    if thread_id:
        check_conversation(thread_id)
        return str(conversation_identifier(user, thread_id)), build_actor(user, thread_id)
    path = str(parse_identifier(check_text("resource_id", uri, _LONGEST_URI)))
    return path, admit_stranger(build_actor(user), path)


def _decode(item: memory_pb2.Identifier) -> Identifier:
    tokens = item.tokens if item.HasField("tokens") else None
    if tokens is not None:
        check_number("tokens", tokens, _MOST_TOKENS)
    identifier = parse_identifier(check_text("uri", item.uri, _LONGEST_URI), tokens)
    return identifier.score_as(item.score) if item.HasField("score") else identifier


def _encode(identifier: Identifier) -> memory_pb2.Identifier:
    return memory_pb2.Identifier(
        uri=str(identifier), tokens=identifier.tokens, score=identifier.score
    )
