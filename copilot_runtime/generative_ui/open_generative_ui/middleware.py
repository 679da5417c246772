"""Draws the pages that a model writes, while it writes them."""

from copilot_runtime.generative_ui.options import OpenGenerativeUi
from copilot_runtime.interfaces import Agent, Middleware, RunInput


class OpenGenerativeUiMiddleware(Middleware):
    """Draws the pages that a model writes, while it writes them."""

    def __init__(self, options: OpenGenerativeUi) -> None:
        self.options = options

    def wrap(self, agent: Agent, run: RunInput) -> Agent:
        """Return the agent as it is."""
        del run
        return agent
