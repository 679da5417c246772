"""Take whatever people have for an agent: a function, or what a framework calls one."""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

from copilot_runtime.agents import AGENTS
from copilot_runtime.agents.function import Answering, FunctionAgent
from copilot_runtime.concurrency import call
from copilot_runtime.errors import ConfigurationFailed
from copilot_runtime.interfaces import Agent, Agents, Caller
from copilot_runtime.registry import Registry

WRAPPERS = {
    "langgraph.graph.state:CompiledStateGraph": "langgraph_inprocess",
    "pydantic_ai.agent.abstract:AbstractAgent": "pydantic_ai",
    "agents.agent:Agent": "openai_agents",
    "ag_ui_langgraph.agent:LangGraphAgent": "langgraph_inprocess",
}
"""A class of a framework, or one below it → the name in `AGENTS` of what answers with such."""

_SERVED = "LangGraphAgent"
"""A class that holds a graph to serve it in AG-UI; CopilotKit's `LangGraphAGUIAgent` is one."""

AgentsLike = (
    Mapping[str, Any] | Callable[[Caller], Mapping[str, Any] | Awaitable[Mapping[str, Any]]]
)
"""Agents as an application names them, or a function that returns those of a caller."""


def coerce_agents(agents: AgentsLike) -> Agents:
    """Return agents, whatever they were; those of a function when it is called.

    Raises `ConfigurationFailed`.
    """
    if isinstance(agents, Mapping):
        return {name: coerce_agent(name, agent) for name, agent in agents.items()}
    if not callable(agents) or inspect.isasyncgenfunction(agents):
        raise ConfigurationFailed(
            f"The agents are a {type(agents).__name__}, and not a mapping of names to agents.",
            hint="Give each a name: agents={'weather': weather}.",
        )
    asked = agents

    async def agents_of(caller: Caller) -> Mapping[str, Agent]:
        found = await call(asked, caller)
        if not isinstance(found, Mapping):
            return found  # the runtime says what is wrong with it
        return {name: coerce_agent(name, agent) for name, agent in found.items()}

    return agents_of


def coerce_agent(name: str, agent: Any) -> Agent:
    """Return an agent as it is, or one that answers with it. Raises `ConfigurationFailed`."""
    for kind in type(agent).__mro__:
        if kind_of_ours := WRAPPERS.get(f"{kind.__module__}:{kind.__qualname__}"):
            wrap = Registry("copilot_runtime.agents", AGENTS)[kind_of_ours]
            return wrap(agent) if kind.__name__ != _SERVED else _unserved(agent, wrap)
    if not isinstance(agent, type):
        if callable(getattr(agent, "run", None)):
            return agent
        if callable(agent):
            return FunctionAgent(cast("Answering", agent))
    what = (
        f"the class {agent.__name__!r}" if isinstance(agent, type) else f"a {type(agent).__name__}"
    )
    if hasattr(agent, "compile"):
        raise ConfigurationFailed(
            f"The agent {name!r} is {what} that is not compiled.",
            hint="Compile it with a memory: builder.compile(checkpointer=InMemorySaver()).",
        )
    raise ConfigurationFailed(
        f"The agent {name!r} is {what}, which is nothing that can answer.",
        hint="An agent has a method run(run), is a function of the RunInput, or an object of "
        "pydantic-ai, LangGraph or OpenAI's Agents SDK.",
    )


def _unserved(agent: Any, wrap: Callable[..., Agent]) -> Agent:
    return wrap(agent.graph, config=agent.config, description=agent.description or "")
