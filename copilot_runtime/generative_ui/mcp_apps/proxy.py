"""What an app in a frame asks of its MCP server, by way of the page and this server."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Mapping
from time import monotonic
from typing import Any

from copilot_runtime.errors import CopilotError, LimitExceeded
from copilot_runtime.generative_ui.mcp_apps.servers import AppServers
from copilot_runtime.generative_ui.options import McpAppServer
from copilot_runtime.interfaces import RunInput
from copilot_runtime.jsontext import dumps
from copilot_runtime.jsonvalue import JsonObject, as_object, as_text

PROPERTY = "__proxiedMCPRequest"
"""The property of a run that is no run, but a request of an app."""

_AT_ONCE = 8
"""Requests of one user that servers work on at the same time."""

_MOST_USERS = 10_000

_FAILED = "Error: MCP request failed"

logger = logging.getLogger(__name__)


class AppProxy:
    """Passes requests of apps on, as far as their servers and the operator allow it.

    Nothing of them is stored, and no agent gets to know of them.
    """

    def __init__(self, servers: AppServers) -> None:
        self._servers = servers
        self._quota = _Quota(servers.options.max_requests)

    async def answer(self, run: RunInput) -> JsonObject:
        """Return the result of a request; one that is refused or fails has an `error`."""
        request = run.properties.get(PROPERTY)
        if len(dumps(request)) > self._servers.options.max_request_bytes:
            return _refuse("The request of the app is too large.")
        fields: Mapping[str, Any] = as_object(request)
        id, token = fields.get("serverId"), fields.get("serverHash")
        server = self._servers.find_server(run.agent_name, as_text(id), as_text(token))
        if server is None:
            return _refuse(f"Unknown server: {_describe(id or token)}")
        method = fields.get("method")
        match method:
            case "notifications/message":
                return {"success": True}
            case "ping" | "resources/read" | "tools/call":
                pass
            case _:
                return _refuse(f"Error: MCP method not allowed for UI proxy: {_describe(method)}")
        try:
            async with self._quota.enter(run.user or ""):
                return await self._pass_on(server, method, as_object(fields.get("params")), run)
        except LimitExceeded as error:
            return _refuse(error.message)
        except (CopilotError, TimeoutError, OSError) as error:
            logger.warning("A request of an MCP app failed: %s", error)
            return _refuse(_FAILED)

    async def _pass_on(
        self, server: McpAppServer, method: str, params: JsonObject, run: RunInput
    ) -> JsonObject:
        options = self._servers.options
        if method == "ping":
            await self._servers.ping(server, run)
            return {}
        if method == "resources/read":
            uri = as_text(params.get("uri"))
            if not uri.startswith(tuple(options.uris)):
                return _refuse("Error: this resource is not for apps.")
            return await self._servers.read_resource(server, uri, run)
        name = as_text(params.get("name"))
        if options.tools != "all":
            tools = await self._servers.list_tools(server, run)
            if not any(tool.name == name and tool.is_for_apps for tool in tools):
                return _refuse("Error: this tool is not for apps.")
        values = params.get("arguments", {})
        if not isinstance(values, dict):
            return _refuse(_FAILED)
        return await self._servers.call_tool(server, name, values, run)


class _Quota:
    """So many requests a second, and so many at once, for each user: a bucket of tokens."""

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._most = max(1.0, 2 * per_second)
        self._users: OrderedDict[str, _Bucket] = OrderedDict()

    def enter(self, user: str) -> "_Bucket":
        """Count a request. Raises `LimitExceeded`."""
        bucket = self._users.get(user)
        if bucket is None:
            bucket = self._users[user] = _Bucket(self._most)
            if len(self._users) > _MOST_USERS:
                self._users.popitem(last=False)
        self._users.move_to_end(user)
        bucket.take(self._per_second, self._most)
        return bucket


class _Bucket:
    def __init__(self, tokens: float) -> None:
        self._tokens = tokens
        self._last = monotonic()
        self._places = asyncio.Semaphore(_AT_ONCE)

    def take(self, per_second: float, most: float) -> None:
        now = monotonic()
        self._tokens = min(most, self._tokens + (now - self._last) * per_second)
        self._last = now
        if self._tokens < 1:
            raise LimitExceeded("Too many requests of MCP apps. Try again in a second.")
        self._tokens -= 1

    async def __aenter__(self) -> None:
        await self._places.acquire()

    async def __aexit__(self, *_: object) -> None:
        self._places.release()


def _describe(value: Any) -> str:
    """Return a value of a request as a message has it."""
    if value is None:
        return "undefined"
    return (value if isinstance(value, str) else dumps(value).decode())[:100]


def _refuse(message: str) -> JsonObject:
    return {"error": message}
