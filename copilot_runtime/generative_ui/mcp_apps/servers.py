"""The MCP servers with user interfaces: what they offer, and what is asked of them."""

import asyncio
import hmac
import logging
from collections.abc import Mapping, Sequence
from os import urandom
from typing import TYPE_CHECKING, Any, NamedTuple

from copilot_runtime.concurrency import call
from copilot_runtime.errors import CopilotError, LimitExceeded, MissingPackage
from copilot_runtime.generative_ui.options import McpApps, McpAppServer
from copilot_runtime.interfaces import RunInput
from copilot_runtime.jsontext import dumps
from copilot_runtime.jsonvalue import JsonObject, as_list, as_object, as_text

if TYPE_CHECKING:
    from copilot_runtime.actions.mcp.pool import Connection, SessionPool

EXTENSION = "io.modelcontextprotocol/ui"
"""Specification: https://github.com/modelcontextprotocol/ext-apps (SEP-1865)."""

_ANYBODY = ("model", "app")

_EXTENSIONS = {EXTENSION: {"mimeTypes": ["text/html;profile=mcp-app"]}}

logger = logging.getLogger(__name__)


class UiTool(NamedTuple):
    """A tool whose results are shown in a frame: the page of the frame is at `uri`."""

    server: McpAppServer
    name: str
    description: str
    parameters: Mapping[str, Any]
    uri: str
    visibility: Sequence[str]
    """Who may call it."""

    @property
    def is_for_models(self) -> bool:
        return "model" in self.visibility

    @property
    def is_for_apps(self) -> bool:
        return "app" in self.visibility


class AppServers:
    """The servers of one runtime. Their sessions are shared by all runs, for each set of headers.

    A page knows a server by a token that nobody can compute who has not the secret.
    """

    def __init__(self, options: McpApps, secret: bytes = b"") -> None:
        self.options = options
        self._secret = secret or urandom(32)
        self._pool: SessionPool | None = None
        self._down: set[int] = set()
        """Servers that did not answer the last time, which was a line in the log."""

    def list_servers(self, agent: str) -> Sequence[McpAppServer]:
        """Return the servers that an agent has."""
        return [one for one in self.options.servers if one.agent in (None, agent)]

    def build_token(self, server: McpAppServer) -> str:
        """Return what a page calls a server."""
        kind = "sse" if server.server.uses_sse else "http"
        name = f"{kind}\0{server.server.url}\0{server.id}".encode()
        return hmac.digest(self._secret, name, "sha256").hex()[:32]

    def find_server(self, agent: str, id: str, token: str) -> McpAppServer | None:
        """Return the server of an agent that a page names: by its id, else by its token."""
        servers = self.list_servers(agent)
        for server in servers:
            if id and server.id == id:
                return server
        for server in servers:
            if token and hmac.compare_digest(self.build_token(server), token):
                return server
        return None

    async def load_tools(self, run: RunInput) -> Mapping[str, UiTool]:
        """Return the tools with user interfaces that the agent of a run has, by their names.

        Of several with one name it is that of the last server, as with Node.
        A server that does not answer is left out; that is one line in the log until it does.
        """
        servers = self.list_servers(run.agent_name)
        found = await asyncio.gather(*(self._try_to_list(server, run) for server in servers))
        tools: dict[str, UiTool] = {}
        for tool in (tool for some in found for tool in some):
            tools[tool.name] = tool
        return tools

    async def list_tools(self, server: McpAppServer, run: RunInput) -> Sequence[UiTool]:
        """Return the tools of a server that have a user interface. Raises `CopilotError`."""
        connection = await self._connect(server, run)
        async with asyncio.timeout(self.options.timeout):
            tools = await connection.ask(lambda session: session.tools())
        return [tool for one in tools if (tool := _read_tool(server, _dump(one))) is not None]

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
        return self._limit(_dump(result))

    async def read_resource(self, server: McpAppServer, uri: str, run: RunInput) -> JsonObject:
        """Return a resource of a server. Raises as `call_tool` does."""
        connection = await self._connect(server, run)
        async with asyncio.timeout(self.options.timeout):
            result = await connection.request(lambda client: client.read_resource(uri))
        return self._limit(_dump(result))

    async def ping(self, server: McpAppServer, run: RunInput) -> None:
        """Ask a server whether it is there. Raises `CopilotError` if it is not."""
        connection = await self._connect(server, run)
        async with asyncio.timeout(self.options.timeout):
            await connection.request(lambda client: client.send_ping())

    async def aclose(self) -> None:
        """End all sessions."""
        if self._pool is not None:
            await self._pool.aclose()

    async def _try_to_list(self, server: McpAppServer, run: RunInput) -> Sequence[UiTool]:
        key = id(server)
        try:
            tools = await self.list_tools(server, run)
        except (CopilotError, TimeoutError, OSError) as error:
            if key not in self._down:
                self._down.add(key)
                label = server.id or server.server.label
                logger.warning("The MCP apps of %r are left out: %s", label, error)
            return ()
        self._down.discard(key)
        return tools

    async def _connect(self, server: McpAppServer, run: RunInput) -> "Connection":
        if self._pool is None:
            try:
                from copilot_runtime.actions.mcp.pool import SessionPool  # brings `mcp` along
            except ImportError as error:
                raise MissingPackage("An MCP app", "mcp", "mcp") from error
            self._pool = SessionPool(extensions=_EXTENSIONS)
        headers = server.server.headers
        values = await call(headers, run) if callable(headers) else headers
        return self._pool.connect(server.server, values)

    def _limit(self, value: JsonObject) -> JsonObject:
        most = self.options.max_result_bytes
        if len(dumps(value)) > most:
            raise LimitExceeded(f"The answer of the MCP server is larger than {most} bytes.")
        return value


def _dump(value: Any) -> JsonObject:
    dumped: JsonObject = value.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return dumped


def _read_tool(server: McpAppServer, tool: JsonObject) -> UiTool | None:
    """Return a tool that has a user interface; None for any other."""
    meta = as_object(tool.get("_meta"))
    ui = as_object(meta.get("ui"))
    uri = as_text(ui.get("resourceUri")) or as_text(meta.get("ui/resourceUri"))
    if not uri:
        return None
    return UiTool(
        server=server,
        name=as_text(tool.get("name")),
        description=as_text(tool.get("description")),
        parameters=as_object(tool.get("inputSchema")) or {"type": "object", "properties": {}},
        uri=uri,
        visibility=[*map(as_text, as_list(ui["visibility"]))] if "visibility" in ui else _ANYBODY,
    )
