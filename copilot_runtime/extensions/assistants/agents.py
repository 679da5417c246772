"""The assistants of a folder as agents, updated when files change."""

from collections.abc import Callable, Mapping

from copilot_runtime.api.agent import Agent
from copilot_runtime.api.identity import Caller
from copilot_runtime.extensions.assistants.agent import AssistantAgent
from copilot_runtime.extensions.assistants.folder import AssistantFolder


class AssistantAgents:
    """Returns an agent for each assistant that a caller may use.

    Args:
        folder: The folder of assistants.
        build: Creates the agent with a name.
    """

    def __init__(self, folder: AssistantFolder, build: Callable[[str], AssistantAgent]) -> None:
        self.folder = folder
        self._build = build
        self._agents: dict[str, AssistantAgent] = {}

    async def __call__(self, caller: Caller) -> Mapping[str, Agent]:
        """Reload changed files, and return the agents."""
        await self.folder.refresh()
        return {name: self._find(name) for name in await self.folder.select(caller.user)}

    def _find(self, name: str) -> AssistantAgent:
        if name not in self._agents:
            self._agents[name] = self._build(name)
        return self._agents[name]
