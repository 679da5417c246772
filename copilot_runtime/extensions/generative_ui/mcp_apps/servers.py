"""MCP servers with user interfaces: list their tools, call them, and read their resources."""

import asyncio
import hmac
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.concurrency import call, capture_result
from copilot_runtime.base.errors import (
    ConfigurationFailed,
    LimitExceeded,
    MissingPackage,
    NetworkError,
)
from copilot_runtime.base.jsontext import dumps, loads
from copilot_runtime.base.jsonvalue import JsonObject
from copilot_runtime.extensions.generative_ui.mcp_apps.tokens import (
    LoadSecret,
    RememberedKeys,
    TokenKey,
    append_address,
    read_address,
)
from copilot_runtime.extensions.generative_ui.options import McpApps, McpAppServer
from copilot_runtime.extensions.mcp.client.server import McpAllowlist
from copilot_runtime.extensions.mcp.client.source import SlowServers
from copilot_runtime.telemetry import NO_TELEMETRY, Span, Telemetry

if TYPE_CHECKING:
    from copilot_runtime.extensions.generative_ui.mcp_apps.tools import UiTool
    from copilot_runtime.extensions.mcp.client.pool import Connection, SessionPool

EXTENSION = "io.modelcontextprotocol/ui"
"""Specification: https://github.com/modelcontextprotocol/ext-apps (SEP-1865)."""

MAX_TOOLS = 128
"""Maximum number of tools offered to an agent: providers accept no more."""

_EXTENSIONS = {EXTENSION: {"mimeTypes": ["text/html;profile=mcp-app"]}}

_MOST_DOWN = 1000
"""Maximum number of servers remembered as unreachable."""

_ENVELOPE = 16
"""Maximum depth of the JSON around a result when it is stored and sent."""

_ESCAPING_FACTOR = 3
"""Maximum size of a text in JSON, whose characters may be escaped, relative to that in UTF-8."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedAppServer(McpAppServer):
    """A server that a request names, with the request's `key` for it; empty if it has none."""

    key: str = ""


class AppServers:
    """The MCP servers of a runtime. Runs with the same headers share their sessions.

    In addition to the operator's servers, a request may name servers that `allowed` permits. A
    frontend identifies a server by its identifier, or by a token that requires the secret to forge.
    """

    def __init__(
        self,
        options: McpApps,
        allowed: McpAllowlist | None = None,
        load_secret: LoadSecret | None = None,
        telemetry: Telemetry = NO_TELEMETRY,
    ) -> None:
        self.options = options
        self.telemetry = telemetry
        self._allowed = allowed
        self._tokens = TokenKey(load_secret)
        self._keys = RememberedKeys()
        self._pool = _build_pool(telemetry, options.max_result_bytes)
        self._slow: SlowServers[Sequence[UiTool]] = SlowServers()
        self._down: dict[str, None] = {}
        """Servers that were unreachable at the last attempt, which was logged once."""

    def list_servers(self, run: RunInput) -> Sequence[McpAppServer]:
        """Return the servers for the agent of a run.

        A server that the request names replaces the operator's at that address if the request has a
        key for it: two keys are never combined. Raises for a server that the request may not name.
        """
        own = self._list_own(run)
        page_servers = self._list_page_servers(run)
        urls_with_key = {one.server.url for one in page_servers if one.key}
        own = [one for one in own if one.server.url not in urls_with_key]
        urls = {one.server.url for one in own}
        return [*own, *(one for one in page_servers if one.server.url not in urls)]

    async def build_token(self, server: McpAppServer, run: RunInput) -> str:
        """Return the frontend's identifier or token for a server. Raises `StoreFailed`."""
        kind = "sse" if server.server.uses_sse else "http"
        url = server.server.url
        if not isinstance(server, NamedAppServer):
            return await self._tokens.sign("server", kind, url, server.id)
        owner = _find_owner(run)
        token = append_address(await self._tokens.sign("named", owner, url, server.key), url)
        if server.key:
            self._keys.add(owner, token, server.key)
        return token

    async def find_server(self, run: RunInput, id: str, token: str) -> McpAppServer | None:
        """Return the server for an identifier or a token, or `None`.

        A server that a request had named must still be allowed.
        """
        own = self._list_own(run)
        for server in own:
            if id and server.id == id:
                return server
        if not token.isascii() or not token:
            return None
        for server in own:
            if hmac.compare_digest(await self.build_token(server, run), token):
                return server
        return await self._find_page_server(run, token)

    async def load_tools(self, run: RunInput) -> "Mapping[str, UiTool]":
        """Return the tools with a user interface that models may call, by name.

        Among tools of the same name, the last server's is used, as in Node. Unreachable servers are
        skipped; this is logged once per outage.
        """
        servers = self.list_servers(run)
        found = await asyncio.gather(*(self._try_to_list(server, run) for server in servers))
        tools: dict[str, UiTool] = {}
        for tool in (tool for some in found for tool in some if tool.is_for_models):
            if len(tools) < MAX_TOOLS or tool.name in tools:
                tools[tool.name] = tool
        return tools

    async def list_tools(self, server: McpAppServer, run: RunInput) -> "Sequence[UiTool]":
        """Return the tools of a server that are for frames or have a user interface.

        Raises `CopilotError` and `TimeoutError`, like all methods here that send requests to a
        server.
        """
        connection = await self._connect(server, run)
        async with asyncio.timeout(self.options.timeout):
            return await _list(server, connection)

    async def list_names(self, server: McpAppServer, run: RunInput) -> frozenset[str]:
        """Return the names of all tools of a server that the operator allows."""
        connection = await self._connect(server, run)
        async with asyncio.timeout(self.options.timeout):
            tools = await connection.ask(lambda session: session.tools())
        from copilot_runtime.extensions.mcp.client.tools import is_selected  # lazy as well

        return frozenset(tool.name for tool in tools if is_selected(server.server, tool))

    async def call_tool(
        self, server: McpAppServer, name: str, values: Mapping[str, Any], run: RunInput
    ) -> JsonObject:
        """Return the unmodified result of a tool.

        Raises `CopilotError` if the server fails or the result is too large.
        """
        connection = await self._connect(server, run)
        async with asyncio.timeout(self.options.timeout):
            result = await connection.ask(
                lambda session: session.call(name, values, is_idempotent=False)
            )
        return await call(self._limit, result)

    async def read_resource(self, server: McpAppServer, uri: str, run: RunInput) -> JsonObject:
        """Return a resource of a server. Raises the errors of `call_tool`."""
        connection = await self._connect(server, run)
        async with asyncio.timeout(self.options.timeout):
            result = await connection.request(lambda client: client.read_resource(uri))
        return await call(self._limit, result)

    async def ping(self, server: McpAppServer, run: RunInput) -> None:
        """Ping a server. Raises the errors of `call_tool`."""
        connection = await self._connect(server, run)
        async with asyncio.timeout(self.options.timeout):
            await connection.request(lambda client: client.send_ping())

    async def aclose(self) -> None:
        """Close all sessions."""
        self._slow.close()
        await self._pool.aclose()

    def _list_own(self, run: RunInput) -> Sequence[McpAppServer]:
        return [one for one in self.options.servers if one.agent in (None, run.agent_name)]

    def _list_page_servers(self, run: RunInput) -> Sequence[NamedAppServer]:
        if self._allowed is None:
            return ()
        found = self._allowed.list_page_servers(run)
        return [NamedAppServer(server=server, key=key) for server, key in found if server.url]

    async def _find_page_server(self, run: RunInput, token: str) -> McpAppServer | None:
        url = read_address(token)
        if not url or self._allowed is None:
            return None
        key = self._keys.find(_find_owner(run), token)
        try:
            server = NamedAppServer(server=self._allowed.find_server(url, key), key=key)
        except ConfigurationFailed:
            return None
        own_token = await self.build_token(server, run)
        return server if hmac.compare_digest(own_token, token) else None

    async def _try_to_list(self, server: McpAppServer, run: RunInput) -> "Sequence[UiTool]":
        label = describe_server(server)
        found = await capture_result(self._list_patiently(server, run))
        if found.error is None:
            self._down.pop(label, None)
            return found.value
        if label not in self._down and len(self._down) < _MOST_DOWN:
            self._down[label] = None
            reason = str(found.error) or type(found.error).__name__
            logger.warning("The MCP apps of %s are left out: %s", label, reason)
        return ()

    async def _list_patiently(self, server: McpAppServer, run: RunInput) -> "Sequence[UiTool]":
        """Return the tools of a server; a hanging request delays one run, but not the next ones."""
        connection = await self._connect(server, run)

        async def ask(span: Span) -> "Sequence[UiTool]":
            del span
            return await _list(server, connection)

        return await self._slow.ask(connection.key, ask, run.span, timeout=self.options.timeout)

    async def _connect(self, server: McpAppServer, run: RunInput) -> "Connection":
        """Return a connection with the caller's headers.

        Raises the errors of the headers function.
        """
        headers = server.server.headers
        if not callable(headers):
            return self._pool.connect(server.server, headers)
        async with asyncio.timeout(self.options.timeout):
            values = await capture_result(call(headers, run))
        if values.error is not None:
            raise NetworkError("The function for its headers failed.") from values.error
        return self._pool.connect(server.server, values.value)

    def _limit(self, result: Any) -> JsonObject:
        """Return a result as JSON. Raises `LimitExceeded` if it is too large or too deep."""
        most = self.options.max_result_bytes
        try:
            value: JsonObject = result.model_dump(mode="json", by_alias=True, exclude_unset=True)
            text = dumps(value)
            if len(text) > most:
                raise LimitExceeded(
                    f"The answer of the MCP server is too large. {_name_limit(most)}"
                )
            loads(b"[" * _ENVELOPE + text + b"]" * _ENVELOPE)
        except (ValueError, RecursionError) as error:
            raise LimitExceeded("The answer of the MCP server is nested too deeply.") from error
        return value


def describe_server(server: McpAppServer) -> str:
    """Return a server's name for the log, without path and query, which may contain a key."""
    address = urlsplit(server.server.url).netloc.rpartition("@")[2]
    name = server.id or server.server.name
    return f"{name!r} at {address}" if name else repr(address)


def _build_pool(telemetry: Telemetry, max_result_bytes: int) -> "SessionPool":
    """Return the session pool. Raises `MissingPackage`."""
    try:
        from copilot_runtime.extensions.mcp.client.pool import (
            DEFAULT_LIMIT,  # imports mcp
            MessageLimit,
            SessionPool,
        )
    except ImportError as error:
        raise MissingPackage("An MCP server", "mcp", "mcp") from error
    size = max(DEFAULT_LIMIT.size, _ESCAPING_FACTOR * max_result_bytes)
    limit = MessageLimit(size, _name_limit(max_result_bytes))
    pool = SessionPool(limit=limit, extensions=_EXTENSIONS)
    pool.telemetry = telemetry
    return pool


def _name_limit(max_result_bytes: int) -> str:
    return f"It is larger than the {max_result_bytes} bytes that mcp_apps.max_result_bytes allows."


async def _list(server: McpAppServer, connection: "Connection") -> "Sequence[UiTool]":
    from copilot_runtime.extensions.generative_ui.mcp_apps.tools import read_tools  # lazy as well

    return read_tools(server, await connection.ask(lambda session: session.tools()))


def _find_owner(run: RunInput) -> str:
    """Return the owner of a request's keys: its user, or else its thread."""
    return f"thread\0{run.thread_id}" if run.user is None else f"user\0{run.user}"
