"""Problems of MCP servers: each is logged once, and `/health/ready` shows those of tools."""

import logging
from collections.abc import Sequence

from copilot_runtime.base.outages import OnceLogger
from copilot_runtime.extensions.mcp.client.server import McpServer

logger = logging.getLogger(__name__)


class Problems:
    """The malformed parts that were left out of answers of a pool's servers, with the reasons."""

    def __init__(self) -> None:
        self._log = OnceLogger(logger)
        self._of_tools: dict[tuple[str, ...], Sequence[str]] = {}

    def log(self, server: McpServer, problem: str) -> None:
        """Log a problem, unless it was logged before."""
        self._log.warn(_name_server(server, problem))

    def set_tools(self, server: McpServer, problems: Sequence[str]) -> None:
        """Replace the problems of a server's list of tools, which was read again."""
        self._of_tools[_key(server)] = [_name_server(server, problem) for problem in problems]

    def list_tools(self, servers: Sequence[McpServer]) -> list[str]:
        """Return the problems of the tools of these servers, each as a sentence."""
        return [text for server in servers for text in self._of_tools.get(_key(server), ())]


def _key(server: McpServer) -> tuple[str, ...]:
    return (server.url, *server.command)


def _name_server(server: McpServer, problem: str) -> str:
    return f"MCP server {server.label!r}: {problem}"
