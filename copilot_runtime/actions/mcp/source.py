"""MCP servers as sources of actions: https://modelcontextprotocol.io."""

import asyncio
import logging
from collections.abc import Mapping, Sequence

from copilot_runtime.actions.mcp.allowlist import AllowRule as AllowRule
from copilot_runtime.actions.mcp.allowlist import McpAllowlist as McpAllowlist
from copilot_runtime.actions.mcp.server import McpServer as McpServer
from copilot_runtime.concurrency import call, capture
from copilot_runtime.errors import MissingPackage
from copilot_runtime.interfaces import Action, ActionSource, RunInput

SERVER_TIMEOUT = 25.0
"""Seconds that a run waits for a server; connecting goes on, and serves the next one."""

logger = logging.getLogger(__name__)


def mcp_actions(*servers: McpServer) -> "McpActions":
    """Return servers as a source, for `CopilotRuntime(actions=[...])` beside others."""
    return McpActions(McpAllowlist(servers=servers))


class McpActions(ActionSource):
    """The actions of all MCP servers that count for a request.

    A server that does not answer is left out of the run, with a warning, and tried again at the
    next one. Of two actions with one name, the first counts.
    """

    def __init__(self, servers: McpAllowlist) -> None:
        try:
            from copilot_runtime.actions.mcp.pool import SessionPool  # brings the package mcp along
        except ImportError as error:
            raise MissingPackage("An MCP server", "mcp", "mcp") from error
        self._servers = servers
        self._pool = SessionPool()

    async def actions(self, run: RunInput) -> Sequence[Action]:
        """Return what models may call. Raises for a server that is not allowed."""
        servers = self._servers.resolve(run)
        actions_by_name: dict[str, Action] = {}
        for server, actions in zip(
            servers, await asyncio.gather(*(self._load(one, run) for one in servers)), strict=True
        ):
            for action in actions:
                if action.name in actions_by_name:
                    logger.warning(
                        "The action %r of %r is left out: there is one already. A prefix helps.",
                        *(action.name, server.label),
                    )
                else:
                    actions_by_name[action.name] = action
        return [*actions_by_name.values()]

    async def aclose(self) -> None:
        """Close all connections and end all processes."""
        await self._pool.aclose()

    async def _load(self, server: McpServer, run: RunInput) -> Sequence[Action]:
        try:
            async with asyncio.timeout(SERVER_TIMEOUT):
                result = await capture(self._list_server_actions(server, run))
        except TimeoutError:
            reason = f"It did not answer within {SERVER_TIMEOUT:g} s."
        else:
            if result.error is None:
                return result.value
            reason = str(result.error) or type(result.error).__name__
        logger.warning("The MCP server %r is left out of this run. %s", server.label, reason)
        return ()

    async def _list_server_actions(self, server: McpServer, run: RunInput) -> Sequence[Action]:
        from copilot_runtime.actions.mcp.tools import build_actions  # as above

        return await build_actions(self._pool.connect(server, await _headers(server, run)))


async def _headers(server: McpServer, run: RunInput) -> Mapping[str, str]:
    return await call(server.headers, run) if callable(server.headers) else server.headers
