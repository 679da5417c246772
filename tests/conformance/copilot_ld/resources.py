"""The index of resources: files, order, access, prefixes."""

import re
from typing import Any

from copilot_runtime.extensions.knowledge.access import Actor
from copilot_runtime.extensions.knowledge.identifiers import Identifier
from copilot_runtime.extensions.knowledge.policies.rule_policy import NativePolicy
from copilot_runtime.extensions.knowledge.policies.rules import ACTIONS, Rule, Scope
from copilot_runtime.extensions.knowledge.resources import PREFIX, Resource, ResourceIndex
from copilot_runtime.storage import MemoryStorage
from tests.conformance.copilot_ld.cases import Case

CONVERSATION = Resource(Identifier("common.Conversation", "c1"))
MESSAGE = Resource(
    Identifier("common.Message", "m1", "common.Conversation.c1"), "hello", role="user"
)


POLICY = NativePolicy([Rule("deny", frozenset(ACTIONS), Scope(users=("deny",)))], default="allow")


async def answer(case: Case) -> Any:
    """Put a conversation and a message under it, and do what the case says."""
    resources = ResourceIndex(MemoryStorage())
    await resources.put_many([CONVERSATION, MESSAGE])
    feature = case.feature
    if "files on disk" in feature:
        keys = await resources.storage.find_by_prefix(PREFIX)
        return [key.removeprefix(PREFIX) for key in keys]
    if "stored JSON" in feature:
        return (await resources.storage.get(f"{PREFIX}{MESSAGE.uri}.json")).decode()
    if "denied" in feature or "actor" in f"{feature} {case.input}":
        name = "deny" if "deny" in str(case.input) else "common.System.root"
        access = POLICY.access(Actor(name, conversation=CONVERSATION.uri), "read")
        return uris(await resources.get([MESSAGE.uri], access=access))
    if "findByPrefix" in feature:
        return [str(id) for id in await resources.find_by_prefix(case.input)]
    if "findAll" in feature:
        return [str(id) for id in await resources.find_all()]
    if re.search(r"\bhas\b", feature):
        return await resources.has(case.input)
    return uris(await resources.get(case.input))


def uris(resources: list[Resource]) -> list[str]:
    return [resource.uri for resource in resources]
