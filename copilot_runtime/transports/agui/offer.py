"""The agents of a runtime under the names that AG-UI clients call them by."""

from collections.abc import Mapping
from contextlib import suppress

from copilot_runtime.errors import AgentNotFound
from copilot_runtime.interfaces import DEFAULT_AGENT, Agent, Caller
from copilot_runtime.runtime.conversations import Conversations
from copilot_runtime.transports.agui.errors import no_agent


class Offer:
    """With `chat`, the plain chat is the agent `default`, where no other is called that."""

    def __init__(self, conversations: Conversations, *, chat: bool) -> None:
        self._conversations = conversations
        self._chat = chat

    async def agents(self, caller: Caller) -> Mapping[str, Agent]:
        """Return all that this caller may talk to."""
        agents = await self._conversations.agents_for(caller)
        if not self._chat or DEFAULT_AGENT in agents:
            return agents
        return {DEFAULT_AGENT: self._conversations.chat, **agents}

    async def name(self, requested_name: str, caller: Caller) -> str | None:
        """Return the runtime's name of an agent: None is the plain chat. Raises `Refusal`."""
        agents = await self.agents(caller)
        if requested_name not in agents:
            with suppress(AgentNotFound):
                await self._conversations.agent(requested_name, caller)  # it may be known why
            raise no_agent(requested_name)
        return None if agents[requested_name] is self._conversations.chat else requested_name
