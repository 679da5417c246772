"""Draws the surfaces that an agent writes."""

from contextlib import aclosing

from copilot_runtime.events import ActionExecutionResult
from copilot_runtime.generative_ui.a2ui.results import draw_result
from copilot_runtime.generative_ui.options import A2ui
from copilot_runtime.interfaces import Agent, Events, Middleware, RunInput


class A2uiMiddleware(Middleware):
    """Draws the surfaces in the results of an agent's tools.

    Without options it is for pages that say that they have a catalog.
    """

    def __init__(self, options: A2ui | None) -> None:
        self.options = options

    def wrap(self, agent: Agent, run: RunInput) -> Agent:
        """Return an agent that draws surfaces, or the one given where A2UI does not apply."""
        options = self.options
        if options is None:
            has_catalog = run.properties.get("a2uiCatalogAvailable") is True
            return A2uiAgent(agent, A2ui()) if has_catalog else agent
        if not options.enabled:
            return agent
        applies = options.agents is None or run.agent_name in options.agents
        return A2uiAgent(agent, options) if applies else agent


class A2uiAgent(Agent):
    """An agent whose results with operations of A2UI are followed by their surfaces."""

    def __init__(self, agent: Agent, options: A2ui) -> None:
        self.agent = agent
        self.executes_actions = agent.executes_actions
        self.options = options

    def check(self, run: RunInput) -> None:
        """Raise the errors of the agent that need no request."""
        self.agent.check(run)

    async def run(self, run: RunInput) -> Events:
        """Yield the events of the agent, and each surface after the result that it is in."""
        async with aclosing(self.agent.run(run)) as events:
            async for event in events:
                yield event
                if isinstance(event, ActionExecutionResult):
                    for surface in draw_result(event, self.options):
                        yield surface
