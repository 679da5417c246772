"""Draw pages while a model writes them."""

from asyncio import CancelledError
from contextlib import aclosing

from copilot_runtime.api.agent import Agent, Middleware
from copilot_runtime.api.events import (
    ActionExecutionArgs,
    ActionExecutionEnd,
    ActionExecutionStart,
    Events,
    RunFinished,
)
from copilot_runtime.api.run_input import CURRENT_RUN, RunInput
from copilot_runtime.extensions.generative_ui.open_generative_ui.page import TOOL, SandboxedPage
from copilot_runtime.extensions.generative_ui.options import OpenGenerativeUi


class OpenGenerativeUiMiddleware(Middleware):
    """Wraps agents so that their pages are drawn."""

    def __init__(self, options: OpenGenerativeUi) -> None:
        self.options = options

    def wrap(self, agent: Agent, run: RunInput) -> Agent:
        """Return the wrapped agent, or the agent itself if the options exclude it."""
        agents = self.options.agents
        if not self.options.enabled or (agents is not None and run.agent_name not in agents):
            return agent
        return OpenGenerativeUiAgent(agent)


class OpenGenerativeUiAgent(Agent):
    """An agent whose `generateSandboxedUi` calls are drawn as pages.

    The frontend returns the results of these calls, as for any of its tools.
    """

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.executes_actions = agent.executes_actions

    def check(self, run: RunInput) -> None:
        """Raise the errors of the agent that do not depend on a request."""
        self.agent.check(run)

    async def run(self, run: RunInput) -> Events:
        """Yield the agent's events, with page updates before and between those of its calls."""
        pages: dict[str, SandboxedPage] = {}
        last: RunFinished | None = None
        try:
            async with aclosing(self.agent.run(run)) as events:
                async for event in events:
                    match event:
                        case ActionExecutionArgs(call_id=key) if key in pages:
                            for one in pages[key].feed(event):
                                yield one
                        case ActionExecutionStart(name=name) if name == TOOL:
                            pages[event.call_id] = SandboxedPage(event)
                        case ActionExecutionEnd(call_id=key) if key in pages:
                            for one in pages.pop(key).finish():
                                yield one
                            yield event
                        case RunFinished():
                            last = event
                            break
                        case _:
                            yield event
        except (CancelledError, GeneratorExit):
            if (slot := CURRENT_RUN.get(None)) is not None:
                rest = [event for page in pages.values() for event in page.finish()]
                slot.closing_events = [*slot.closing_events, *rest]
            raise
        except Exception:
            for page in pages.values():
                for one in page.finish():
                    yield one
            raise
        for page in pages.values():
            for one in page.finish():
                yield one
        if last is not None:
            yield last
