"""Take whatever people have for an agent: a function, or what a framework calls one."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

from copilot_runtime.agents import AGENTS
from copilot_runtime.agents.function import Answering, FunctionAgent
from copilot_runtime.calling import call
from copilot_runtime.errors import ConfigurationFailed
from copilot_runtime.interfaces import Agent, Agents, Caller
from copilot_runtime.registry import Registry

WRAPPERS = {
    "langgraph.graph.state:CompiledStateGraph": "langgraph_inprocess",
    "pydantic_ai.agent.abstract:AbstractAgent": "pydantic_ai",
    "agents.agent:AgentBase": "openai_agents",
}
"""A class of a framework, or one below it → the name in `AGENTS` of what answers with such."""

AnyAgents = Mapping[str, Any] | Callable[[Caller], Mapping[str, Any] | Awaitable[Mapping[str, Any]]]
"""Agents as an application names them, or a function that returns those of a caller."""


def as_agents(agents: AnyAgents) -> Agents:
    """Return agents, whatever they were; those of a function when it is called."""
    if not callable(agents):
        return {name: as_agent(name, agent) for name, agent in agents.items()}
    asked = agents

    async def agents_of(caller: Caller) -> Mapping[str, Agent]:
        found = await call(asked, caller)
        if not isinstance(found, Mapping):
            return found  # the runtime says what is wrong with it
        return {name: as_agent(name, agent) for name, agent in found.items()}

    return agents_of


def as_agent(name: str, agent: Any) -> Agent:
    """Return an agent as it is, or one that answers with it. Raises `ConfigurationFailed`."""
    for kind in type(agent).__mro__:
        if kind_of_ours := WRAPPERS.get(f"{kind.__module__}:{kind.__qualname__}"):
            return Registry("copilot_runtime.agents", AGENTS)[kind_of_ours](agent)
    if not isinstance(agent, type):
        if callable(getattr(agent, "run", None)):
            return agent
        if callable(agent):
            return FunctionAgent(cast("Answering", agent))
    what = (
        f"the class {agent.__name__!r}" if isinstance(agent, type) else f"a {type(agent).__name__}"
    )
    raise ConfigurationFailed(
        f"The agent {name!r} is {what}, which is nothing that can answer.",
        hint="An agent has a method run(run), is a function of the RunInput, or an object of "
        "pydantic-ai, LangGraph or OpenAI's Agents SDK.",
    )
