"""What an app in a frame asks of its MCP server, by way of the page and this server."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, cast

from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.errors import CopilotError, LimitExceeded
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.base.jsonvalue import JsonObject, as_object, as_text
from copilot_runtime.extensions.generative_ui.mcp_apps.quota import RequestQuota
from copilot_runtime.extensions.generative_ui.mcp_apps.servers import AppServers, describe_server
from copilot_runtime.extensions.generative_ui.mcp_apps.uris import is_allowed
from copilot_runtime.extensions.generative_ui.options import McpAppServer
from copilot_runtime.telemetry import Span, trace_block
from copilot_runtime.telemetry.genai import name_tool, start_mcp_request_span

PROPERTY = "__proxiedMCPRequest"
"""The property of a run that is no run, but a request of an app."""

_FAILURE = "Error: MCP request failed"
_NOT_FOR_APPS: JsonObject = {
    "error": "Error: this tool is not for apps.",
    # also the result of a tool, because apps read the content of one without asking for errors
    "content": [{"type": "text", "text": "Error: this tool is not for apps."}],
    "isError": True,
}
_REFUSAL = "refused"
_TOOL_ERROR = "tool_error"

logger = logging.getLogger(__name__)


class AppProxy:
    """Passes requests of apps on, as far as their servers and the operator allow it.

    Nothing of them is stored, and no agent gets to know of them.
    """

    def __init__(self, servers: AppServers) -> None:
        self._servers = servers
        self._quota = RequestQuota(servers.options.max_requests)

    async def answer(self, run: RunInput, client: str = "") -> JsonObject:
        """Return the result of a request; one that is refused or fails has an `error`.

        Whoever has not signed in shares the quota of `client`, the address that the request came
        from.
        """
        request = run.properties.get(PROPERTY)
        if _is_too_large(request, self._servers.options.max_request_bytes):
            return _refuse("The request of the app is too large.")
        fields: Mapping[str, Any] = as_object(request)
        id, token = fields.get("serverId"), fields.get("serverHash")
        method, called = fields.get("method"), "an unknown server"
        try:
            server = await self._servers.find_server(run, as_text(id), as_text(token))
            if server is None:
                return _refuse(f"Unknown server: {_describe(id or token)}")
            called = describe_server(server)
            match method:
                case "notifications/message":
                    return {"success": True}
                case "ping" | "resources/read" | "tools/call":
                    pass
                case _:
                    name = _describe(method)
                    return _refuse(f"Error: MCP method not allowed for UI proxy: {name}")
            user = f"client\0{client}" if run.user is None else f"user\0{run.user}"
            async with self._quota.enter(user):
                return await self._trace(server, method, as_object(fields.get("params")), run)
        except LimitExceeded as error:
            return _refuse(error.message)
        except (CopilotError, TimeoutError, OSError) as error:
            # what a server says of itself is not for pages
            reason = error or "It took too long."
            logger.warning("A request of an app of %s failed: %s", called, reason)
            return _refuse(_FAILURE)

    async def _trace(
        self, server: McpAppServer, method: str, params: JsonObject, run: RunInput
    ) -> JsonObject:
        """Return the answer to a request under a span, which has no run above it."""
        label, url = server.server.label, server.server.url
        telemetry = self._servers.telemetry
        with trace_block(
            start_mcp_request_span(telemetry, label, url, method, parent=run.parent)
        ) as span:
            async with asyncio.timeout(self._servers.options.timeout):
                answer = await self._pass_on(server, method, params, run, span)
            if answer is _NOT_FOR_APPS or ("error" in answer and "content" not in answer):
                span.fail(_REFUSAL)
            elif answer.get("isError") is True:
                span.fail(_TOOL_ERROR)
            return answer

    async def _pass_on(
        self, server: McpAppServer, method: str, params: JsonObject, run: RunInput, span: Span
    ) -> JsonObject:
        options = self._servers.options
        if method == "ping":
            await self._servers.ping(server, run)
            return {}
        if method == "resources/read":
            uri = as_text(params.get("uri"))
            if not is_allowed(uri, options.uris):
                return _refuse("Error: this resource is not for apps.")
            return await self._servers.read_resource(server, uri, run)
        name, values = as_text(params.get("name")), params.get("arguments", {})
        if not name or not await self._may_call(server, name, run):
            return _NOT_FOR_APPS
        name_tool(span, name)
        if not isinstance(values, dict):
            return _refuse(_FAILURE)
        return await self._servers.call_tool(server, name, cast(JsonObject, values), run)

    async def _may_call(self, server: McpAppServer, name: str, run: RunInput) -> bool:
        """Return whether frames may call a tool, as the server and the operator have it."""
        if self._servers.options.tools == "all":
            return name in await self._servers.list_names(server, run)
        tools = await self._servers.list_tools(server, run)
        return any(tool.tool == name and tool.is_for_apps for tool in tools)


def _is_too_large(request: Any, most: int) -> bool:
    try:
        return len(dumps(request)) > most
    except (ValueError, RecursionError):
        return True


def _describe(value: Any) -> str:
    """Return a value of a request as a message has it."""
    if value is None:
        return "undefined"
    return (value if isinstance(value, str) else dumps(value).decode())[:100]


def _refuse(message: str) -> JsonObject:
    return {"error": message}
