"""The tools, resources and prompts of an MCP server, as actions."""

import hashlib
import logging
import re
from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

from mcp import ClientSession, MCPError
from mcp_types import (
    METHOD_NOT_FOUND,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    GetPromptResult,
    PaginatedRequestParams,
    ReadResourceResult,
    TextContent,
    TextResourceContents,
    Tool,
)

from copilot_runtime.api.action import Action, ActionContext, RunAction
from copilot_runtime.base.errors import CopilotError, NetworkError
from copilot_runtime.base.jsonvalue import JsonObject, get_object
from copilot_runtime.extensions.mcp.client.pool import Connection
from copilot_runtime.extensions.mcp.client.server import McpServer
from copilot_runtime.extensions.mcp.client.session import MAX_PAGES, Session
from copilot_runtime.telemetry import NO_SPAN, Span, semconv, trace_block
from copilot_runtime.telemetry.rpc import describe_mcp_call, start_mcp_client_span

MAX_ACTIONS = 500
"""Maximum number of tools per server. Each adapter keeps the limit of its provider."""

MAX_DESCRIPTION = 4000
MAX_LISTED = 200
"""Maximum number of resources or prompts in one list for a model."""

_MAX_NAME = 64
_TOOL_ERROR = "tool_error"
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")

_NO_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}}
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


async def build_actions(connection: Connection, parent: Span = NO_SPAN) -> Sequence[Action]:
    """Return an action for each tool, and for the selected resources and prompts.

    Requests that the run waits for have a span below `parent`. Raises an error if the server cannot
    be reached.
    """
    server = connection.server

    def trace(method: str, *, is_ready: bool) -> AbstractContextManager[Span]:
        above = NO_SPAN if is_ready else parent
        return trace_block(start_mcp_client_span(above, server.label, server.url, method))

    with trace("initialize", is_ready=connection.is_open):
        capabilities = await connection.ask(Session.capabilities)
    actions: list[Action] = []
    if capabilities.tools is not None:
        with trace("tools/list", is_ready=connection.has_tools):
            tools = await connection.ask(Session.tools)
        actions += _build_tools(connection, tools)
    if capabilities.resources is not None and server.resources:
        actions += _build_resource_actions(connection)
    if capabilities.prompts is not None and server.prompts:
        actions += _build_prompt_actions(connection)
    return actions


def _build_tools(connection: Connection, tools: Sequence[Tool]) -> Sequence[Action]:
    server = connection.server
    selected = [tool for tool in tools if is_selected(server, tool)]
    names = name_tools(server, selected)
    actions = [_build_action(connection, tool, names[tool.name]) for tool in selected]
    if len(actions) > MAX_ACTIONS:
        logger.warning(
            "%r has %d tools, of which the first %d are offered; McpServer(tools=[...]) chooses.",
            *(server.label, len(actions), MAX_ACTIONS),
        )
    return actions[:MAX_ACTIONS]


def is_selected(server: McpServer, tool: Tool) -> bool:
    """Return whether the operator allows models to use a tool."""
    return server.tools(tool) if callable(server.tools) else _matches(tool.name, server.tools)


def name_tools(server: McpServer, tools: Sequence[Tool]) -> Mapping[str, str]:
    """Return the name for models of each tool, by its name on the server.

    It has at most 64 letters, digits, _ and -. Of several that would be equal, one that needs no
    change keeps its name, and the others get a number, in the order of the list.
    """
    names = {tool.name: _encode_name(server.prefix + tool.name) for tool in tools}
    used = {name for own, name in names.items() if name == server.prefix + own}
    for own, plain in names.items():
        if plain == server.prefix + own:
            continue
        name, number = plain, 1
        while name in used:
            number += 1
            end = f"_{number}"
            name = plain[: _MAX_NAME - len(end)] + end
        used.add(name)
        names[own] = name
    return names


def _encode_name(name: str) -> str:
    plain = _NOT_IN_NAMES.sub("_", name)
    if len(plain) <= _MAX_NAME:
        return plain or "_"
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{plain[: _MAX_NAME - 9]}_{digest}"


def _build_action(connection: Connection, tool: Tool, name: str) -> Action:
    server = connection.server
    hints = tool.annotations
    is_idempotent = hints is not None and bool(hints.read_only_hint or hints.idempotent_hint)

    async def run(values: Mapping[str, Any], context: ActionContext) -> Any:
        # servers receive the caller's identity in headers only
        call = partial(Session.call, tool=tool.name, values=values, is_idempotent=is_idempotent)
        with describe_request(context.span, server, "tools/call"):
            result = await connection.ask(call)
        if result.is_error:
            context.span.fail(_TOOL_ERROR)
        return parse_tool_result(result)

    return Action(
        name=name,
        description=(tool.description or tool.title or "")[:MAX_DESCRIPTION],
        parameters={"type": "object", "properties": {}, **tool.input_schema},
        run=run,
        timeout=server.max_time,
        is_idempotent=is_idempotent,
        mcp_server=server.url,
        origin=server.label,
    )


def _build_resource_actions(connection: Connection) -> Sequence[Action]:
    server = connection.server

    async def list_all(session: ClientSession) -> Sequence[Any]:
        items: list[Any] = []
        cursor: str | None = None
        cursors: set[str] = set()
        for _ in range(MAX_PAGES):
            page = await session.list_resources(params=PaginatedRequestParams(cursor=cursor))
            items += page.resources
            cursor = page.next_cursor
            if not cursor or cursor in cursors or len(items) >= MAX_LISTED:
                break
            cursors.add(cursor)
        try:
            templates = await session.list_resource_templates()
        except MCPError as error:
            if error.code != METHOD_NOT_FOUND:  # servers without templates may not know it
                raise
            return items
        return [*items, *templates.resource_templates]

    async def list_items(values: Mapping[str, Any], context: ActionContext) -> Any:
        del values
        with describe_request(context.span, server, "resources/list"):
            items = [_describe(one) for one in await connection.request(list_all)]
        return [
            one for one in items if "uriTemplate" in one or _matches(one["uri"], server.resources)
        ][:MAX_LISTED]

    async def read(values: Mapping[str, Any], context: ActionContext) -> Any:
        uri = str(values.get("uri"))
        if not _matches(uri, server.resources):
            raise CopilotError(f"The resource {uri!r} may not be read.")
        with describe_request(context.span, server, "resources/read"):
            context.span.set_content({semconv.MCP_RESOURCE_URI: uri})
            found = await connection.request(lambda client: client.read_resource(uri))
        return parse_resource(found)

    slug, label = server.slug, server.label
    return [
        _build_reader(f"{slug}_list_resources", f"List what {label} has to read.", list_items),
        _build_reader(
            f"{slug}_read_resource", f"Read a resource of {label} by its URI.", read, _URI
        ),
    ]


def _build_prompt_actions(connection: Connection) -> Sequence[Action]:
    server = connection.server

    async def list_items(values: Mapping[str, Any], context: ActionContext) -> Any:
        del values
        with describe_request(context.span, server, "prompts/list"):
            found = await connection.request(lambda client: client.list_prompts())
        selected = [one for one in found.prompts if _matches(one.name, server.prompts)]
        return [_describe(one) for one in selected[:MAX_LISTED]]

    async def get(values: Mapping[str, Any], context: ActionContext) -> Any:
        name = str(values.get("name"))
        if not _matches(name, server.prompts):
            raise CopilotError(f"The prompt {name!r} may not be used.")
        texts = {key: str(value) for key, value in get_object(values, "arguments").items()}
        with describe_request(context.span, server, "prompts/get"):
            found = await connection.request(lambda client: client.get_prompt(name, texts))
        context.span.set_attributes({semconv.PROMPT_NAME: name})  # the server has the text
        return parse_prompt(found)

    slug, label = server.slug, server.label
    return [
        _build_reader(
            f"{slug}_list_prompts",
            f"List the prompts that {label} has prepared, and their arguments.",
            list_items,
        ),
        _build_reader(f"{slug}_get_prompt", f"Get a prompt of {label} by its name.", get, _PROMPT),
    ]


def _build_reader(
    name: str, description: str, run: RunAction, parameters: Mapping[str, Any] = _NO_PARAMETERS
) -> Action:
    return Action(
        name=name, description=description, parameters=parameters, run=run, is_idempotent=True
    )


@contextmanager
def describe_request(span: Span, server: McpServer, method: str) -> Generator[None]:
    """Record a call's server and method on its span, and the code of an error."""
    span.set_attributes(describe_mcp_call(server.label, server.url, method))
    try:
        yield
    except CopilotError as error:
        cause = error.__cause__
        if isinstance(cause, MCPError) and not isinstance(error, NetworkError):
            code = str(cause.error.code)
            span.set_attributes({semconv.RPC_RESPONSE_STATUS_CODE: code})
            span.fail(code)
        raise


def _describe(one: Any) -> dict[str, Any]:
    selected = {"uri", "uri_template", "name", "title", "description", "mime_type", "arguments"}
    return one.model_dump(mode="json", by_alias=True, exclude_none=True, include=selected)


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def parse_tool_result(result: CallToolResult) -> Any:
    """Return a tool's result. Raises `CopilotError` with its text if the tool failed.

    A single text is returned as a string, and several blocks as `{"content": [...]}` in MCP's
    format, whose images adapters can show to models. Structured content is returned if there is no
    single text.
    """
    content = [_encode_block(block) for block in result.content]
    if result.is_error:
        words = "\n".join(block["text"] for block in content if block["type"] == "text")
        raise CopilotError(words or "The tool failed and did not say why.")
    if any(block["type"] != "text" for block in content):
        return {"content": content}
    if result.structured_content is not None and len(content) != 1:
        return result.structured_content
    return "\n".join(block["text"] for block in content)


def parse_resource(result: ReadResourceResult) -> Any:
    """Return the content of a resource."""
    return _join_content([_encode_resource(contents) for contents in result.contents])


def parse_prompt(result: GetPromptResult) -> Any:
    """Return the messages of a prompt."""
    return [
        {"role": message.role, "content": _join_content([_encode_block(message.content)])}
        for message in result.messages
    ]


def _join_content(content: Sequence[JsonObject]) -> Any:
    if all(block["type"] == "text" for block in content):
        return "\n".join(block["text"] for block in content)
    return {"content": [*content]}


def _encode_block(block: ContentBlock) -> JsonObject:
    match block:
        case TextContent(text=text):
            return {"type": "text", "text": text}
        case EmbeddedResource(resource=resource):
            return _encode_resource(resource)
        case _:
            return _dump(block)


def _encode_resource(contents: TextResourceContents | BlobResourceContents) -> JsonObject:
    match contents:
        case TextResourceContents(text=text):
            return {"type": "text", "text": text}
        case BlobResourceContents(blob=data, mime_type=str(kind)) if kind.startswith("image/"):
            return {"type": "image", "data": data, "mimeType": kind}
        case _:
            return {"type": "resource", "resource": _dump(contents)}


def _dump(value: Any) -> JsonObject:
    return value.model_dump(mode="json", by_alias=True, exclude_none=True)
