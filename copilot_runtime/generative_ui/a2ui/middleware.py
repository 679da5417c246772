"""Draws the surfaces that an agent writes."""

from copilot_runtime.generative_ui.options import A2ui
from copilot_runtime.interfaces import Agent, Middleware, RunInput


class A2uiMiddleware(Middleware):
    """Draws the surfaces that an agent writes."""

    def __init__(self, options: A2ui | None) -> None:
        self.options = options

    def wrap(self, agent: Agent, run: RunInput) -> Agent:
        """Return the agent as it is."""
        del run
        return agent
