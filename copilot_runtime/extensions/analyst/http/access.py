"""Authorise the analyst's routes: the scope in which a request sees data and results.

Every resource belongs to a scope, which is derived from the authenticated caller. For other scopes,
it does not exist.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from copilot_runtime.api.agent import Agents
from copilot_runtime.api.identity import Caller
from copilot_runtime.base.concurrency import call
from copilot_runtime.base.errors import AgentNotFound
from copilot_runtime.extensions.analyst.agent import AnalystAgent
from copilot_runtime.extensions.analyst.analyst import Analyst
from copilot_runtime.extensions.analyst.sql.rules import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class Viewer:
    """A caller, and the analyst that the request is for."""

    name: str
    """The agent's name for clients."""
    agent: AnalystAgent
    scope: Scope
    caller: Caller

    @property
    def analyst(self) -> Analyst:
        """The analyst's shared state."""
        return self.agent.analyst


class AnalystAccess:
    """Finds the analyst of a request and the scope of its caller."""

    def __init__(self, agents: Agents) -> None:
        self._agents = agents

    async def identify(
        self, caller: Caller, name: str = "", agent_name: str | None = None
    ) -> Viewer:
        """Return the caller with the named analyst, or with the first one.

        Raises `AgentNotFound`. `agent_name` restricts the scope to rows of that agent.
        """
        agents = await self.find_agents(caller)
        if not agents or (name and name not in agents):
            raise AgentNotFound(name or "analyst", agents)
        name = name or next(iter(agents))
        agent = agents[name]
        scope = await agent.analyst.build_scope(caller, agent_name)
        return Viewer(name=name, agent=agent, scope=scope, caller=caller)

    async def find_agents(self, caller: Caller) -> Mapping[str, AnalystAgent]:
        """Return the analysts that a caller may use, by name."""
        agents = self._agents
        every: Any = await call(agents, caller) if callable(agents) else agents
        if not isinstance(every, Mapping):  # a run of the agent reports the invalid value
            return {}
        return {name: one for name, one in every.items() if isinstance(one, AnalystAgent)}


PRIVATE = {"cache-control": "private, no-store", "x-content-type-options": "nosniff"}
"""Headers of responses that only their recipient may cache."""
