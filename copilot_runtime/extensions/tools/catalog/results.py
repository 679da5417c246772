"""Converts a tool's result for the model: its content, or the texts of resources that it names."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from copilot_runtime.api.action import ActionContext
from copilot_runtime.base.errors import CopilotError
from copilot_runtime.base.jsonvalue import as_list, as_object, as_text, get_text
from copilot_runtime.extensions.tools.catalog.definition import ToolDefinition

NOTHING = "No results found."

ReadResources = Callable[[Sequence[str], ActionContext], Awaitable[Sequence[str]]]
"""Returns the texts of the resources, by URI, that the caller may read."""


async def read_result(
    tool: ToolDefinition, value: Any, read_resources: ReadResources | None, context: ActionContext
) -> Any:
    """Return the result of a tool.

    A tool in Copilot-LD's form returns a non-empty `content`, or else `identifiers`, or a message
    with neither field, such as its own example `sha256_hash`. Raises `CopilotError` if it has only
    an empty content.
    """
    fields = as_object(value)
    if tool.result_form == "identifiers":
        identifiers = fields.get("identifiers", value)
        return await _read_resources(_list_uris(identifiers), read_resources, context)
    if isinstance(value, str):
        return value
    if content := get_text(fields, "content"):
        return content if tool.method or tool.result_form == "content" else value
    if not tool.method or tool.result_form == "content":
        return value
    if fields and fields.keys().isdisjoint({"content", "identifiers"}):
        return value
    if "identifiers" not in fields:
        raise CopilotError("Invalid tool call result: no content or identifiers")
    return await _read_resources(_list_uris(fields["identifiers"]), read_resources, context)


def _list_uris(identifiers: Any) -> Sequence[str]:
    """Return the URIs of identifiers. Raises `CopilotError` if the value is no list of them."""
    uris = [_read_uri(identifier) for identifier in as_list(identifiers)]
    if not isinstance(identifiers, list) or not all(uris):
        raise CopilotError(
            "Invalid tool call result: identifiers must be a list of URIs, such as "
            "common.Document.d1."
        )
    return uris


def _read_uri(identifier: Any) -> str:
    """Return the URI of an identifier: a string, or an object with type, name and parent."""
    fields = as_object(identifier)
    if not fields:
        return as_text(identifier)
    if uri := get_text(fields, "uri") or get_text(fields, "id"):
        return uri
    kind, name, parent = (get_text(fields, key) for key in ("type", "name", "parent"))
    own = f"{kind}.{name}" if kind and name else ""
    return f"{parent}/{own}" if parent and own else own


async def _read_resources(
    uris: Sequence[str], read_resources: ReadResources | None, context: ActionContext
) -> str:
    if not uris:
        return NOTHING
    if read_resources is None:
        raise CopilotError("This tool names resources of knowledge, and there is no knowledge.")
    return "\n\n".join(await read_resources(uris, context)) or NOTHING
