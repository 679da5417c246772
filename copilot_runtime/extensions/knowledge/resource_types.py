"""The resource types of Copilot-LD, and the rules by which their objects are named."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast
from uuid import uuid4

from copilot_runtime.base.errors import Misuse, UnknownName
from copilot_runtime.base.jsonvalue import JsonValue, as_count, as_list, as_object, get_text
from copilot_runtime.extensions.knowledge.identifiers import Identifier, hash_values
from copilot_runtime.extensions.knowledge.resources import OWN_FIELDS, ContentFormat, Resource

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
