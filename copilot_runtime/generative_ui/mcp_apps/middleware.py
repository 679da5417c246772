"""Offers the tools of MCP servers that have user interfaces, and answers their calls."""

from copilot_runtime.generative_ui.options import McpApps
from copilot_runtime.interfaces import Agent, Middleware, RunInput


class McpAppsMiddleware(Middleware):
    """Offers the tools of MCP servers that have user interfaces, and answers their calls."""

    def __init__(self, options: McpApps) -> None:
        self.options = options

    def wrap(self, agent: Agent, run: RunInput) -> Agent:
        """Return the agent as it is."""
        del run
        return agent
