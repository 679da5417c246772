"""The MCP servers with user interfaces: what they offer, and what is asked of them."""

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
from copilot_runtime.extensions.mcp.client.allowlist import McpAllowlist
from copilot_runtime.extensions.mcp.client.slow_servers import SlowServers
from copilot_runtime.telemetry import NO_TELEMETRY, Span, Telemetry

if TYPE_CHECKING:
    from copilot_runtime.extensions.generative_ui.mcp_apps.tools import UiTool
    from copilot_runtime.extensions.mcp.client.pool import Connection, SessionPool

EXTENSION = "io.modelcontextprotocol/ui"
"""Specification: https://github.com/modelcontextprotocol/ext-apps (SEP-1865)."""

MAX_TOOLS = 128
"""Tools that an agent is offered: providers take no more."""

_EXTENSIONS = {EXTENSION: {"mimeTypes": ["text/html;profile=mcp-app"]}}

_MOST_DOWN = 1000
"""Servers of which it is known that they did not answer."""

_ENVELOPE = 16
"""Levels of JSON, at most, in which a result is stored and sent."""

_MOST_VALUES = 250_000
"""Commas of a result: so many values take this server, and a page, long to go through."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedAppServer(McpAppServer):
    """A server that a request names, with the `key` that it has for it; empty if it has none."""

    key: str = ""


class AppServers:
    """The servers of one runtime. Their sessions are shared by all runs, for each set of headers.

    Beside those of the operator there are those that a request names, as far as `allowed` lets
    pages name MCP servers. A page knows a server by its id, or by a token that nobody can compute
    who has not the secret.
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
        self._pool = _build_pool(telemetry)
        self._slow: SlowServers[Sequence[UiTool]] = SlowServers()
        self._down: dict[str, None] = {}
        """Servers that did not answer the last time, which was a line in the log."""

    def list_servers(self, run: RunInput) -> Sequence[McpAppServer]:
        """Return the servers that the agent of a run has.

        One that the page names takes the place of the operator's at that address, if the page has a
        key for it: two keys are never sent together. Raises for one that it may not name.
        """
        own = self._list_own(run)
        page_servers = self._list_page_servers(run)
        urls_with_key = {one.server.url for one in page_servers if one.key}
        own = [one for one in own if one.server.url not in urls_with_key]
        urls = {one.server.url for one in own}
        return [*own, *(one for one in page_servers if one.server.url not in urls)]

    async def build_token(self, server: McpAppServer, run: RunInput) -> str:
        """Return what the page of a run calls a server. Raises `StoreFailed`."""
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
        """Return the server that a page names: by its id, else by its token. None for any other.

        One that a page had named has to be allowed still.
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
        """Return the tools with a page that models may call, by their names.

        Of several with one name it is that of the last server, as with Node. A server that does
        not answer is left out; that is one line in the log until it does.
        """
        servers = self.list_servers(run)
        found = await asyncio.gather(*(self._try_to_list(server, run) for server in servers))
        tools: dict[str, UiTool] = {}
        for tool in (tool for some in found for tool in some if tool.is_for_models):
            if len(tools) < MAX_TOOLS or tool.name in tools:
                tools[tool.name] = tool
        return tools

    async def list_tools(self, server: McpAppServer, run: RunInput) -> "Sequence[UiTool]":
        """Return the tools of a server that are for frames or have a page.

        Raises `CopilotError`, and `TimeoutError`, as everything here that asks a server does.
        """
        connection = await self._connect(server, run)
        async with asyncio.timeout(self.options.timeout):
            return await _list(server, connection)

    async def list_names(self, server: McpAppServer, run: RunInput) -> frozenset[str]:
        """Return what a server calls all tools that the operator lets be used."""
        connection = await self._connect(server, run)
        async with asyncio.timeout(self.options.timeout):
            tools = await connection.ask(lambda session: session.tools())
        from copilot_runtime.extensions.mcp.client.tools import is_selected  # as the pool

        return frozenset(tool.name for tool in tools if is_selected(server.server, tool))

    async def call_tool(
        self, server: McpAppServer, name: str, values: Mapping[str, Any], run: RunInput
    ) -> JsonObject:
        """Return the result of a tool, as the server gave it.

        Raises `CopilotError` for a server that fails, and for a result that is too large.
        """
        connection = await self._connect(server, run)
        async with asyncio.timeout(self.options.timeout):
            result = await connection.ask(
                lambda session: session.call(name, values, is_idempotent=False)
            )
        return self._limit(result)

    async def read_resource(self, server: McpAppServer, uri: str, run: RunInput) -> JsonObject:
        """Return a resource of a server. Raises as `call_tool` does."""
        connection = await self._connect(server, run)
        async with asyncio.timeout(self.options.timeout):
            result = await connection.request(lambda client: client.read_resource(uri))
        return self._limit(result)

    async def ping(self, server: McpAppServer, run: RunInput) -> None:
        """Ask a server whether it is there. Raises as `call_tool` does."""
        connection = await self._connect(server, run)
        async with asyncio.timeout(self.options.timeout):
            await connection.request(lambda client: client.send_ping())

    async def aclose(self) -> None:
        """End all sessions."""
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
        """Return the tools of a server; one that hangs delays one run, and not the next ones."""
        connection = await self._connect(server, run)

        async def ask(span: Span) -> "Sequence[UiTool]":
            del span
            return await _list(server, connection)

        return await self._slow.ask(connection.key, ask, run.span, timeout=self.options.timeout)

    async def _connect(self, server: McpAppServer, run: RunInput) -> "Connection":
        """Return a connection with the headers of the caller. Raises what their function raises."""
        headers = server.server.headers
        if not callable(headers):
            return self._pool.connect(server.server, headers)
        async with asyncio.timeout(self.options.timeout):
            values = await capture_result(call(headers, run))
        if values.error is not None:
            raise NetworkError("The function for its headers failed.") from values.error
        return self._pool.connect(server.server, values.value)

    def _limit(self, result: Any) -> JsonObject:
        """Return a result as JSON. Raises `LimitExceeded` for one that is too large or too deep."""
        most = self.options.max_result_bytes
        try:
            value: JsonObject = result.model_dump(mode="json", by_alias=True, exclude_unset=True)
            text = dumps(value)
            if len(text) > most:
                raise LimitExceeded(f"The answer of the MCP server is larger than {most} bytes.")
            if text.count(b",") > _MOST_VALUES:
                raise LimitExceeded("The answer of the MCP server has too many values.")
            loads(b"[" * _ENVELOPE + text + b"]" * _ENVELOPE)
        except (ValueError, RecursionError) as error:
            raise LimitExceeded("The answer of the MCP server is nested too deeply.") from error
        return value


def describe_server(server: McpAppServer) -> str:
    """Return what the log calls a server; never its path or query, which may have a key."""
    address = urlsplit(server.server.url).netloc.rpartition("@")[2]
    name = server.id or server.server.name
    return f"{name!r} at {address}" if name else repr(address)


def _build_pool(telemetry: Telemetry) -> "SessionPool":
    """Return what keeps the sessions with servers. Raises `MissingPackage`."""
    try:
        from copilot_runtime.extensions.mcp.client.pool import (
            SessionPool,  # brings the package mcp along
        )
    except ImportError as error:
        raise MissingPackage("An MCP server", "mcp", "mcp") from error
    pool = SessionPool(extensions=_EXTENSIONS)
    pool.telemetry = telemetry
    return pool


async def _list(server: McpAppServer, connection: "Connection") -> "Sequence[UiTool]":
    from copilot_runtime.extensions.generative_ui.mcp_apps.tools import read_tools  # as the pool

    return read_tools(server, await connection.ask(lambda session: session.tools()))


def _find_owner(run: RunInput) -> str:
    """Return whose keys for servers those of a request are: a user's, or those of a thread."""
    return f"thread\0{run.thread_id}" if run.user is None else f"user\0{run.user}"
