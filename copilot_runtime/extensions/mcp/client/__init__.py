"""MCP servers as sources of actions: https://modelcontextprotocol.io."""

from copilot_runtime.extensions.mcp.client.server import McpServer
from copilot_runtime.extensions.mcp.client.source import McpActions, mcp_actions

__all__ = ["McpActions", "McpServer", "mcp_actions"]
