"""MCP servers as sources of actions: https://modelcontextprotocol.io."""

import asyncio
import logging
from collections.abc import Mapping, Sequence

from copilot_runtime.actions.mcp.allowed import Allowed as Allowed
from copilot_runtime.actions.mcp.allowed import NamedServers as NamedServers
from copilot_runtime.actions.mcp.server import McpServer as McpServer
from copilot_runtime.concurrency import call, guarded
from copilot_runtime.errors import MissingPackage
from copilot_runtime.interfaces import Action, RunInput

PATIENCE = 25.0
"""Seconds that a run waits for a server; connecting goes on, and serves the next one."""

logger = logging.getLogger(__name__)


def mcp_actions(*servers: McpServer) -> "McpActions":
    """Return servers as a source, for `CopilotRuntime(actions=[...])` beside others."""
    return McpActions(NamedServers(servers=servers))


class McpActions:
    """The actions of all MCP servers that count for a request.

    A server that cannot be asked is left out, with a warning, and asked again at the next
    request. Of two actions of one name the first counts.
    """

    def __init__(self, servers: NamedServers) -> None:
        try:
            from copilot_runtime.actions.mcp.pool import Pool  # brings the package mcp along
        except ImportError as error:
            raise MissingPackage("An MCP server", "mcp", "mcp") from error
        self._servers = servers
        self._pool = Pool()

    async def actions(self, run: RunInput) -> Sequence[Action]:
        """Return what models may call. Raises for a server that the request may not name."""
        servers = self._servers.of(run)
        found: dict[str, Action] = {}
        for server, actions in zip(
            servers, await asyncio.gather(*(self._of(one, run) for one in servers)), strict=True
        ):
            for action in actions:
                if action.name in found:
                    logger.warning(
                        "The action %r of %r is left out: there is one already. A prefix helps.",
                        *(action.name, server.label),
                    )
                else:
                    found[action.name] = action
        return [*found.values()]

    async def aclose(self) -> None:
        """Close all connections and end all processes."""
        await self._pool.aclose()

    async def _of(self, server: McpServer, run: RunInput) -> Sequence[Action]:
        try:
            async with asyncio.timeout(PATIENCE):
                returned = await guarded(self._asked(server, run))
        except TimeoutError:
            reason = f"It did not answer within {PATIENCE:g} s."
        else:
            if returned.error is None:
                return returned.value
            reason = str(returned.error) or type(returned.error).__name__
        logger.warning("The MCP server %r is left out of this run. %s", server.label, reason)
        return ()

    async def _asked(self, server: McpServer, run: RunInput) -> Sequence[Action]:
        from copilot_runtime.actions.mcp.tools import actions_of  # as above

        return await actions_of(self._pool.of(server, await _headers(server, run)))


async def _headers(server: McpServer, run: RunInput) -> Mapping[str, str]:
    return await call(server.headers, run) if callable(server.headers) else server.headers
