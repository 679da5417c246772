"""Memories of users, as resources that searches find.

common.User.ann/memory.Memory.m1     belongs to the user ann
memory.Memory.m2                     is read by all whom the policy lets, and written by grant
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, cast

from copilot_runtime.api.messages import new_id
from copilot_runtime.api.user_memories import Kind, Scope, UserMemories, UserMemory
from copilot_runtime.base.errors import CopilotError, LimitExceeded, Misuse, NotFound
from copilot_runtime.base.jsonvalue import as_list, get_text
from copilot_runtime.extensions.knowledge.access import Actor, require
from copilot_runtime.extensions.knowledge.identifiers import Identifier
from copilot_runtime.extensions.knowledge.policies import build_actor, user_identifier
from copilot_runtime.extensions.knowledge.policies.ownership import is_shortened
from copilot_runtime.extensions.knowledge.resources import Resource
from copilot_runtime.extensions.knowledge.retrieval import LONGEST_QUERY

if TYPE_CHECKING:
    from copilot_runtime.extensions.knowledge.knowledge import Knowledge

MEMORY = "memory.Memory"
"""The type of memories of users."""

_MOST = 1000
"""Maximum number of memories of a user, and of a project."""

logger = logging.getLogger(__name__)


class KnowledgeMemories(UserMemories):
    """Stores memories as resources, so that searches and retrieval find them for their users."""

    def __init__(self, knowledge: "Knowledge") -> None:
        self._knowledge = knowledge

    async def list(self, user: str) -> Sequence[UserMemory]:
        access = self._knowledge.access(build_actor(user))
        found = await self._knowledge.resources.find_by_type(MEMORY, access=access)
        resources = await self._knowledge.resources.get_visible(found, access)
        resources.sort(key=lambda it: get_text(it.fields, "created"), reverse=True)
        return [*map(_decode, resources)]

    async def recall(
        self, user: str, query: str, *, scope: Scope | None = None, limit: int = 10
    ) -> Sequence[UserMemory]:
        actor = build_actor(user)
        prefix = str(user_identifier(actor.name)) if scope == "user" else ""
        found = await self._knowledge.search(
            query, actor=actor, type=MEMORY, prefix=prefix, limit=min(limit, _MOST)
        )
        scores = {passage.id: passage.score for passage in found}
        resources = await self._knowledge.resources.get_visible(
            scores, self._knowledge.access(actor)
        )
        memories = [replace(_decode(it), score=scores[it.uri]) for it in resources]
        return [it for it in memories if scope in (None, it.scope)]

    async def add(self, user: str, memory: UserMemory) -> UserMemory:
        resource = await self._put(build_actor(user), memory)
        await self._embed(resource.uri)
        return _decode(resource)

    async def replace(self, user: str, id: str, memory: UserMemory) -> UserMemory:
        actor = build_actor(user)
        old = await self._find(actor, id)
        await require(self._knowledge.access(actor, "delete"), [str(old)])
        new = await self._put(actor, memory, old=old)
        if not await self._delete(actor, old):  # another request has replaced it meanwhile
            await self._knowledge.resources.delete(new.id)
            raise _report_missing(id)
        await self._embed(new.uri, str(old))
        return _decode(new)

    async def delete(self, user: str, id: str) -> None:
        actor = build_actor(user)
        old = await self._find(actor, id)
        if not await self._delete(actor, old):
            raise _report_missing(id)
        await self._embed(str(old))

    async def _find(self, actor: Actor, id: str) -> Identifier:
        """Return the identifier of a memory that an actor may read: their own, or a project's."""
        if not id.isprintable() or is_shortened(id):  # no memory has such a name
            raise _report_missing(id)
        own = Identifier(MEMORY, id, str(user_identifier(actor.name)))
        access = self._knowledge.access(actor)
        found = await self._knowledge.resources.get_visible([own, Identifier(MEMORY, id)], access)
        if not found:
            raise _report_missing(id)
        return found[0].id

    async def _put(
        self, actor: Actor, memory: UserMemory, old: Identifier | None = None
    ) -> Resource:
        content = memory.content.strip()
        if not content:
            raise Misuse("The content of a memory is empty.", hint="Say what to remember.")
        length = len(content) + sum(map(len, memory.threads))
        if length > LONGEST_QUERY:
            raise LimitExceeded(
                f"A memory and the ids of its threads have at most {LONGEST_QUERY} characters; "
                f"these have {length}.",
                hint="Remember what matters of it, or take it in as a document.",
            )
        parent = str(user_identifier(actor.name)) if memory.scope == "user" else ""
        await self._knowledge.embedder.check_budget()  # else no search would find it
        await self._check_count(parent, old)
        resource = Resource(
            Identifier(MEMORY, new_id(), parent),
            content,
            fields={
                "title": "A memory of yours" if parent else "A memory of all",
                "kind": memory.kind,
                "threads": [*memory.threads],
                "created": datetime.now(UTC).isoformat(),
            },
        )
        access = self._knowledge.access(actor, "write")
        await self._knowledge.resources.put(resource, access=access)
        return resource

    async def _check_count(self, parent: str, old: Identifier | None) -> None:
        """Raise `LimitExceeded` if a user, or the project, has the most memories already."""
        stored = await self._knowledge.resources.find_by_type(MEMORY)
        count = sum(it.parent == parent and it != old for it in stored)
        if count >= _MOST:
            raise LimitExceeded(
                f"There are {_MOST} memories already.", hint="Delete some that are of no use now."
            )

    async def _delete(self, actor: Actor, memory: Identifier) -> bool:
        access = self._knowledge.access(actor, "delete")
        return bool(await self._knowledge.resources.delete(memory, access=access))

    async def _embed(self, *uris: str) -> None:
        """Let searches find what has changed; after a failure, the next update does."""
        try:
            await asyncio.shield(self._knowledge.embed_resources(uris))
        except CopilotError as error:
            logger.warning("A memory is stored, and searches do not find it yet: %s", error)


def _report_missing(id: str) -> NotFound:
    return NotFound(f"There is no memory {id[:100]!r}.")


def _decode(resource: Resource) -> UserMemory:
    return UserMemory(
        id=resource.id.name,
        content=resource.content,
        kind=cast("Kind", get_text(resource.fields, "kind")),
        scope="user" if resource.id.parent else "project",
        threads=[str(it) for it in as_list(resource.fields.get("threads"))],
    )
