"""What an MCP server offers, as actions."""

import hashlib
import logging
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import orjson
from mcp import ClientSession
from mcp_types import PaginatedRequestParams, Tool

from copilot_runtime.actions.mcp.pool import Connection
from copilot_runtime.actions.mcp.results import value_of, value_of_prompt, value_of_resource
from copilot_runtime.actions.mcp.server import McpServer
from copilot_runtime.actions.mcp.session import Session
from copilot_runtime.errors import CopilotError
from copilot_runtime.interfaces import Action, ActionContext

MOST_ACTIONS = 128
"""Tools of one server that are offered: providers take no more."""

LONGEST_DESCRIPTION = 4000
LARGEST_SCHEMA = 64 * 1024
MOST_LISTED = 200
"""Resources or prompts in one list for a model."""

_LONGEST_NAME = 64
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")

_NOTHING: Mapping[str, Any] = {"type": "object", "properties": {}}
_URI: Mapping[str, Any] = {
    "type": "object",
    "properties": {"uri": {"type": "string"}},
    "required": ["uri"],
}
_PROMPT: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "arguments": {"type": "object", "additionalProperties": {"type": "string"}},
    },
    "required": ["name"],
}

logger = logging.getLogger(__name__)


async def actions_of(connection: Connection) -> Sequence[Action]:
    """Return an action for each tool, and for resources and prompts if the operator wants them.

    Raises what keeps the server from being asked.
    """
    server = connection.server
    offered = await connection.ask(Session.capabilities)
    actions: list[Action] = []
    if offered.tools is not None:
        actions += _tools(connection, await connection.ask(Session.tools))
    if offered.resources is not None and server.resources:
        actions += _resources(connection)
    if offered.prompts is not None and server.prompts:
        actions += _prompts(connection)
    return actions


def _tools(connection: Connection, tools: Sequence[Tool]) -> Sequence[Action]:
    server = connection.server
    wanted = [tool for tool in tools if _wants(server, tool)]
    actions = [action for tool in wanted if (action := _action(connection, tool)) is not None]
    if len(actions) > MOST_ACTIONS:
        logger.warning(
            "%r has %d tools, of which the first %d are offered; McpServer(tools=[...]) chooses.",
            *(server.label, len(actions), MOST_ACTIONS),
        )
    return actions[:MOST_ACTIONS]


def _wants(server: McpServer, tool: Tool) -> bool:
    return server.tools(tool) if callable(server.tools) else _matches(tool.name, server.tools)


def _action(connection: Connection, tool: Tool) -> Action | None:
    server = connection.server
    if not _is_sendable(tool.input_schema):
        logger.warning("The schema of %r of %r is too large to be sent.", tool.name, server.label)
        return None
    hints = tool.annotations
    harmless = hints is not None and bool(hints.read_only_hint or hints.idempotent_hint)

    async def run(values: Mapping[str, Any], context: ActionContext) -> Any:
        del context  # what the server may know of the person is in its headers
        call = partial(Session.call, tool=tool.name, values=values, harmless=harmless)
        return value_of(await connection.ask(call))

    return Action(
        name=_name(server.prefix + tool.name),
        description=(tool.description or tool.title or "")[:LONGEST_DESCRIPTION],
        parameters={"type": "object", "properties": {}, **tool.input_schema},
        run=run,
        timeout=server.max_time,
    )


def _is_sendable(schema: Mapping[str, Any]) -> bool:
    try:
        return len(orjson.dumps(schema)) <= LARGEST_SCHEMA
    except TypeError:  # a number that has more than 64 bits, or nesting without end
        return False


def _resources(connection: Connection) -> Sequence[Action]:
    server = connection.server

    async def every(session: ClientSession) -> Sequence[Any]:
        found: list[Any] = []
        cursor: str | None = None
        while len(found) < MOST_LISTED:
            page = await session.list_resources(params=PaginatedRequestParams(cursor=cursor))
            found += page.resources
            if not (cursor := page.next_cursor) or not page.resources:
                break
        templates = await session.list_resource_templates()
        return [*found, *templates.resource_templates]

    async def listed(values: Mapping[str, Any], context: ActionContext) -> Any:
        del values, context
        found = await connection.ask(lambda session: session.asked(every))
        known = [_described(one) for one in found]
        return [
            one for one in known if "uriTemplate" in one or _matches(one["uri"], server.resources)
        ][:MOST_LISTED]

    async def read(values: Mapping[str, Any], context: ActionContext) -> Any:
        del context
        uri = str(values.get("uri"))
        if not _matches(uri, server.resources):
            raise CopilotError(f"The resource {uri!r} may not be read.")
        ask = partial(Session.asked, question=lambda session: session.read_resource(uri))
        return value_of_resource(await connection.ask(ask))

    word, label = server.word, server.label
    return [
        Action(
            name=f"{word}_list_resources",
            description=f"List what {label} has to read.",
            parameters=_NOTHING,
            run=listed,
        ),
        Action(
            name=f"{word}_read_resource",
            description=f"Read a resource of {label} by its URI.",
            parameters=_URI,
            run=read,
        ),
    ]


def _prompts(connection: Connection) -> Sequence[Action]:
    server = connection.server

    async def listed(values: Mapping[str, Any], context: ActionContext) -> Any:
        del values, context
        found = await connection.ask(
            lambda session: session.asked(lambda client: client.list_prompts())
        )
        wanted = [one for one in found.prompts if _matches(one.name, server.prompts)]
        return [_described(one) for one in wanted[:MOST_LISTED]]

    async def get(values: Mapping[str, Any], context: ActionContext) -> Any:
        del context
        name, given = str(values.get("name")), values.get("arguments")
        if not _matches(name, server.prompts):
            raise CopilotError(f"The prompt {name!r} may not be used.")
        texts = {key: str(value) for key, value in given.items()} if isinstance(given, dict) else {}
        ask = partial(Session.asked, question=lambda session: session.get_prompt(name, texts))
        return value_of_prompt(await connection.ask(ask))

    word, label = server.word, server.label
    return [
        Action(
            name=f"{word}_list_prompts",
            description=f"List the prompts that {label} has prepared, and their arguments.",
            parameters=_NOTHING,
            run=listed,
        ),
        Action(
            name=f"{word}_get_prompt",
            description=f"Get a prompt of {label} by its name.",
            parameters=_PROMPT,
            run=get,
        ),
    ]


def _described(one: Any) -> dict[str, Any]:
    wanted = {"uri", "uri_template", "name", "title", "description", "mime_type", "arguments"}
    return one.model_dump(mode="json", by_alias=True, exclude_none=True, include=wanted)


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _name(name: str) -> str:
    """Return a name that providers take: letters, digits, _ and -, at most 64 of them."""
    plain = _NOT_IN_NAMES.sub("_", name)
    if len(plain) <= _LONGEST_NAME:
        return plain or "_"
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{plain[: _LONGEST_NAME - 9]}_{digest}"
