"""The resource types of Copilot-LD, and the rules by which their objects are named."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from copilot_runtime.api.adapter import Embedder
from copilot_runtime.base.errors import Misuse, UnknownName
from copilot_runtime.base.jsonvalue import JsonValue, as_count, as_list, as_object, get_text
from copilot_runtime.extensions.knowledge.identifiers import Identifier, hash_values
from copilot_runtime.extensions.knowledge.index import Filter
from copilot_runtime.extensions.knowledge.resources import (
    OWN_FIELDS,
    ContentFormat,
    Resource,
    ResourceIndex,
)

Naming = Literal["random", "content"]
"""The name of an object without one: a UUID, so that all differ, or a hash of its
content, so that equal ones are the same."""


@dataclass(frozen=True, slots=True)
class ResourceType:
    """The properties shared by all objects of a type."""

    name: str
    """As in `common.Message`."""
    role: str = ""
    """The default role of the content."""
    repeats_name: bool = False
    """Whether objects repeat their name as a member."""


RESOURCE_TYPES: Mapping[str, ResourceType] = {
    type.name: type
    for type in (
        ResourceType("common.Message"),
        ResourceType("common.Conversation"),
        ResourceType("common.Agent"),
        ResourceType("common.Assistant", role="system"),
        ResourceType("tool.ToolFunction", repeats_name=True),
        ResourceType("tool.ToolCallMessage"),
        ResourceType("plan.Task"),
    )
}

_SECTIONS = ("purpose", "instructions", "applicability", "evaluation")


def to_resource(fields: Mapping[str, JsonValue]) -> Resource:
    """Convert an object to a resource, by the type of its `id`. Raises `Misuse`."""
    type = get_text(as_object(fields.get("id")), "type")
    if not type:
        raise Misuse("Object must have an identifier")
    if type not in RESOURCE_TYPES:
        raise Misuse(f"Unknown type: {type}", hint=str(UnknownName("type", type, RESOURCE_TYPES)))
    return create_resource(type, fields)


def create_resource(
    type: str,
    fields: Mapping[str, JsonValue],
    *,
    parent: str | None = None,
    naming: Naming = "random",
    digits: int = 32,
) -> Resource:
    """Return an object as a resource of a type, with a name if it has none.

    Its name is that of its `id`, of which only what stands behind the last dot counts; else its
    member `name`, which comes first for types that repeat it; else made as `naming` says, a hash
    with so many hexadecimal digits. Tokens that its `id` has are not counted again.
    """
    of_type = RESOURCE_TYPES.get(type, ResourceType(type))
    id = as_object(fields.get("id"))
    content = get_text(fields, "content")
    full_name = get_text(fields, "name")
    own_name = get_text(id, "name")
    if of_type.repeats_name:
        own_name = full_name = full_name or own_name
    name = own_name.rpartition(".")[2] or full_name
    if not name and naming == "content" and content:
        name = hash_values(type, content, length=digits)
    others = {key: value for key, value in fields.items() if key not in OWN_FIELDS}
    identifier = Identifier(
        type,
        name or str(uuid4()),
        get_text(id, "parent") if parent is None else parent,
        tokens=as_count(id.get("tokens")),
        subjects=tuple(item for item in as_list(id.get("subjects")) if isinstance(item, str)),
    )
    if of_type.repeats_name:
        others["name"] = full_name or identifier.name
    return Resource(
        identifier,
        content,
        cast("ContentFormat", get_text(fields, "format") or "text"),
        get_text(fields, "role") or of_type.role,
        others,
    )


def describe(meta: Mapping[str, JsonValue]) -> str:
    """Return the description of a task or an assistant, which searches compare.

    Its sections are purpose, instructions, applicability and evaluation; empty ones are left out.
    """
    sections = ((name.capitalize(), get_text(meta, name).strip()) for name in _SECTIONS)
    return "\n\n".join(f"**{title}:** {text}" for title, text in sections if text)


_MOST = 2000
"""Maximum number of resources of a type that are compared."""


class SimilarResources:
    """Compares the descriptions of assistants, tools and tasks with the texts of a search.

    There are few of each type, and general searches must not return them. So they are compared
    only by a search that names their type.
    """

    types = frozenset(("common.Assistant", "tool.ToolFunction", "plan.Task"))
    """The types of resources that it searches."""

    def __init__(self, resources: ResourceIndex, embedder: Embedder) -> None:
        self._resources = resources
        self._embedder = embedder
        self._vectors: dict[str, NDArray[np.float32]] = {}
        """Cached vectors by their text."""

    async def search(self, texts: Sequence[str], filter: Filter) -> list[Identifier]:
        """Return the resources of the filter's type with scores, the most similar first."""
        found = await self._resources.find_by_type(filter.type, access=filter.access)
        chosen = [one for one in found if filter.matches(one)][-_MOST:]
        resources = await self._resources.get(chosen)
        if not (resources and texts):
            return []
        vectors = await self._embed([_write_profile(one) for one in resources])
        scores = (vectors @ (await self._embedder.embed_queries(texts)).T).max(axis=1).tolist()
        least = -1.0 if filter.threshold is None else filter.threshold
        ranked = sorted(zip(scores, resources, strict=True), key=lambda row: (-row[0], row[1].uri))
        return filter.cut(one.id.score_as(score) for score, one in ranked if score >= least)

    async def _embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the vectors of texts; the vectors of the last search are cached."""
        before = self._vectors
        new = [*dict.fromkeys(text for text in texts if text not in before)]
        vectors = dict(zip(new, await self._embedder.embed(new), strict=True)) if new else {}
        self._vectors = {text: vectors[text] if text in vectors else before[text] for text in texts}
        return np.stack([self._vectors[text] for text in texts])


def _write_profile(resource: Resource) -> str:
    """Return the description of a resource that is embedded."""
    profile = describe(resource.fields) or get_text(resource.fields, "description")
    return "\n\n".join(filter(None, (resource.id.name, profile or resource.content)))
