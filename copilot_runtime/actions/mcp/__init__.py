"""MCP servers as sources of actions: https://modelcontextprotocol.io."""

from copilot_runtime.actions.mcp.server import McpServer
from copilot_runtime.actions.mcp.source import McpActions, mcp_actions

__all__ = ["McpActions", "McpServer", "mcp_actions"]
