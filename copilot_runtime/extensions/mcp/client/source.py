"""MCP servers as sources of actions: https://modelcontextprotocol.io."""

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from copilot_runtime.api.action import Action, ActionSource
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.concurrency import call, capture_result
from copilot_runtime.base.errors import MissingPackage
from copilot_runtime.extensions.mcp.client.allowlist import AllowRule as AllowRule
from copilot_runtime.extensions.mcp.client.allowlist import McpAllowlist as McpAllowlist
from copilot_runtime.extensions.mcp.client.server import McpServer as McpServer
from copilot_runtime.extensions.mcp.client.slow_servers import SlowServers
from copilot_runtime.telemetry import Span
from copilot_runtime.telemetry.span import build_environment

if TYPE_CHECKING:
    from copilot_runtime.extensions.mcp.client.pool import Connection

SERVER_TIMEOUT = 25.0
"""Seconds that a run waits for a server; connecting continues for the next run."""

logger = logging.getLogger(__name__)

_MOST_DUPLICATES = 100
"""Maximum number of duplicate actions that are logged."""


def mcp_actions(*servers: McpServer) -> "McpActions":
    """Return servers as an action source, for `CopilotRuntime(actions=[...])` beside others."""
    return McpActions(McpAllowlist(servers=servers))


class McpActions(ActionSource):
    """The actions of all MCP servers of a request.

    A server that does not answer is skipped with a warning, and tried again by the next run. One
    that hangs delays a single run: later runs query it in the background, and skip it until it has
    answered. Of two actions with the same name, the first is used.
    """

    def __init__(self, servers: McpAllowlist) -> None:
        try:
            from copilot_runtime.extensions.mcp.client.pool import (
                SessionPool,  # imports the package mcp
            )
        except ImportError as error:
            raise MissingPackage("An MCP server", "mcp", "mcp") from error
        self._servers = servers
        self._pool = SessionPool()
        self._slow: SlowServers[Sequence[Action]] = SlowServers()
        self._duplicates: set[tuple[str, str]] = set()
        """Names and servers of duplicate actions that were already logged."""

    async def actions(self, run: RunInput) -> Sequence[Action]:
        """Return the actions for a request. Raises an error if a server is not allowed."""
        servers = self._servers.resolve(run)
        actions_by_name: dict[str, Action] = {}
        for server, actions in zip(
            servers, await asyncio.gather(*(self._load(one, run) for one in servers)), strict=True
        ):
            for action in actions:
                if action.name in actions_by_name:
                    self._warn_of_duplicate(action.name, server.label)
                else:
                    actions_by_name[action.name] = action
        return [*actions_by_name.values()]

    def _warn_of_duplicate(self, name: str, label: str) -> None:
        """Log once that an action is a duplicate, up to a maximum number of actions."""
        key = (name, label)
        if key not in self._duplicates and len(self._duplicates) < _MOST_DUPLICATES:
            self._duplicates.add(key)
            logger.warning(
                "The action %r of %r is left out: there is one already. A prefix helps.",
                name,
                label,
            )

    async def aclose(self) -> None:
        """Close all connections and end all processes."""
        self._slow.close()
        await self._pool.aclose()

    async def _load(self, server: McpServer, run: RunInput) -> Sequence[Action]:
        try:
            async with asyncio.timeout(SERVER_TIMEOUT):
                headers = await capture_result(_headers(server, run))
        except TimeoutError:
            return _leave_out(server, f"Its headers took more than {SERVER_TIMEOUT:g} s.")
        if headers.error is not None:
            return _leave_out(server, headers.error)
        environment = build_environment(run.span) if server.command else None
        if run.span.telemetry is not None:
            self._pool.telemetry = run.span.telemetry
        connection = self._pool.connect(server, headers.value, environment)
        answer = await capture_result(
            self._slow.ask(
                connection.key, partial(_ask, connection), run.span, timeout=SERVER_TIMEOUT
            )
        )
        return answer.value if answer.error is None else _leave_out(server, answer.error)


def _ask(connection: "Connection", parent: Span) -> Coroutine[Any, Any, Sequence[Action]]:
    from copilot_runtime.extensions.mcp.client.tools import build_actions  # as above

    return build_actions(connection, parent)


def _leave_out(server: McpServer, reason: BaseException | str | None) -> Sequence[Action]:
    text = str(reason or "") or type(reason).__name__
    logger.warning("The MCP server %r is left out of this run. %s", server.label, text)
    return ()


async def _headers(server: McpServer, run: RunInput) -> Mapping[str, str]:
    return await call(server.headers, run) if callable(server.headers) else server.headers
