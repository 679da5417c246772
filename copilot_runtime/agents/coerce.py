"""Coerces functions and agents of frameworks to our `Agent`."""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from copilot_runtime.agents import AGENTS
from copilot_runtime.api.agent import Agent, AgentResolver
from copilot_runtime.api.argument_checks import check_function, complete, describe
from copilot_runtime.api.identity import Caller
from copilot_runtime.api.registry import Registry
from copilot_runtime.base.concurrency import call
from copilot_runtime.base.errors import ConfigurationFailed

if TYPE_CHECKING:
    from copilot_runtime.agents.function import AgentFunction

WRAPPERS = {
    "langgraph.graph.state:CompiledStateGraph": "langgraph_inprocess",
    "pydantic_ai.agent.abstract:AbstractAgent": "pydantic_ai",
    "agents.agent:Agent": "openai_agents",
    "ag_ui_langgraph.agent:LangGraphAgent": "langgraph_inprocess",
}
"""A framework's class or base class → its wrapper's name in `AGENTS`."""

_GRAPH_HOLDER = "LangGraphAgent"
"""A class that wraps a graph for AG-UI, such as CopilotKit's `LangGraphAGUIAgent`."""

AgentsLike = (
    Mapping[str, Any] | Callable[[Caller], Mapping[str, Any] | Awaitable[Mapping[str, Any]]]
)
"""Agents by name, or a function that returns those of a caller."""


def coerce_agents(agents: AgentsLike) -> Mapping[str, Agent] | AgentResolver:
    """Return the coerced agents of a mapping, or a function that returns those of a caller.

    Raises `ConfigurationFailed` for another type, for an object that cannot be an agent, and for a
    name that is not usable in a URL.
    """
    if isinstance(agents, Mapping):
        for name in agents:
            _check_name(name)
        return {name: coerce_agent(name, agent) for name, agent in agents.items()}
    if not callable(agents) or inspect.isasyncgenfunction(agents):
        raise ConfigurationFailed(
            f"The agents are {describe(agents)}, and not a mapping of names to agents.",
            hint="Give each a name: agents={'weather': weather}.",
        )
    check_function("agents", agents, ("caller",))
    load = agents

    async def load_agents(caller: Caller) -> Mapping[str, Agent]:
        result = await call(load, caller)
        if not isinstance(result, Mapping):
            return result  # the runtime reports what is wrong with it
        return {name: coerce_agent(name, agent) for name, agent in result.items()}

    return load_agents


def coerce_agent(name: str, agent: Any) -> Agent:
    """Return an `Agent` unchanged, or wrap a function or an agent of a framework.

    Raises `ConfigurationFailed` for anything else, and `MissingPackage`.
    """
    for kind in type(agent).__mro__:
        if wrapper := WRAPPERS.get(f"{kind.__module__}:{kind.__qualname__}"):
            wrap = Registry("copilot_runtime.agents", AGENTS)[wrapper]
            return wrap(agent) if kind.__name__ != _GRAPH_HOLDER else _wrap_graph(agent, wrap)
    if not isinstance(agent, type):
        if callable(getattr(agent, "run", None)):
            return complete(Agent, agent)
        if callable(agent):
            from copilot_runtime.agents.function import FunctionAgent  # loads a decoder of AG-UI

            return FunctionAgent(cast("AgentFunction", agent))
    what = describe(agent)
    if isinstance(agent, str):
        raise ConfigurationFailed(
            f"The agent {name!r} is {what}, which is nothing that can answer.",
            hint="Write AguiAgent('https://...') for an agent that has this URL.",
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


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or name.strip() in ("", ".", ".."):
        raise ConfigurationFailed(
            f"{name!r} cannot be the name of an agent.",
            hint="Clients write the name into a URL: it is a text, and not empty, '.' or '..'.",
        )


def _wrap_graph(agent: Any, wrap: Callable[..., Agent]) -> Agent:
    return wrap(agent.graph, config=agent.config, description=agent.description or "")
