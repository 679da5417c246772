"""An agent wrapper that stores attached files before the agent runs."""

from contextlib import aclosing
from dataclasses import replace

from copilot_runtime.agents.direct import DirectAgent
from copilot_runtime.api.agent import Agent
from copilot_runtime.api.events import Events
from copilot_runtime.api.retrieval import FileStore, PreparedMessages
from copilot_runtime.api.run_input import RunInput


class FileStoringAgent(Agent):
    """Stores the files of a run before the wrapped agent runs, so that its tools can search them.

    A CopilotKit v1 client cannot show progress, so it gets no progress events.
    """

    def __init__(self, agent: Agent, files: FileStore) -> None:
        self.agent = agent
        self.executes_actions = agent.executes_actions
        self.files = files

    def check(self, run: RunInput) -> None:
        """Raise the errors of the agent that need no request."""
        self.agent.check(run)

    def run(self, run: RunInput) -> Events:
        """Yield the progress of the files, if there are any, and the events of the agent."""
        return self._store_and_run(run) if self.files.has_files(run) else self.agent.run(run)

    async def _store_and_run(self, run: RunInput) -> Events:
        async with aclosing(self.files.store_files(run)) as steps:
            async for step in steps:
                if isinstance(step, PreparedMessages):
                    run = replace(run, messages=step.messages)
                elif not run.is_v1:
                    yield step
        async with aclosing(self.agent.run(run)) as events:
            async for event in events:
                yield event


def stores_files(agent: Agent) -> bool:
    """Return whether an agent ingests its files itself."""
    return isinstance(agent, DirectAgent) and agent.files is not None
