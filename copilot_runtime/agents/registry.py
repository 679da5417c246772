"""The agents of a server, which wrap functions and frameworks' agents, for each caller."""

import inspect
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from copilot_runtime.agents import AGENTS
from copilot_runtime.api.agent import Agent, AgentResolver, Agents, SupportsRun
from copilot_runtime.api.argument_checks import check_function, complete, describe
from copilot_runtime.api.identity import Caller
from copilot_runtime.api.registry import Registry
from copilot_runtime.base.concurrency import call
from copilot_runtime.base.errors import (
    AuthenticationFailed,
    ConfigurationFailed,
    CopilotError,
    NetworkError,
)

if TYPE_CHECKING:
    from copilot_runtime.agents.function import AgentFunction


FindAgents = Callable[[Caller], Awaitable[Mapping[str, Agent]]]
"""Returns the current agents from files that a caller may use."""

logger = logging.getLogger(__name__)


class AgentRegistry:
    """The agents of the program, those from files, and planners.

    It is called for each request, so changes of files take effect, and agents that a caller may not
    use are missing. An agent of the program takes precedence over one from a file.

    Args:
        own: The agents of the program.
    """

    def __init__(self, own: Mapping[str, Agent] | AgentResolver) -> None:
        self._own = own
        self._find_others: FindAgents | None = None
        self._list_others: Callable[[], Collection[str]] = tuple
        self._planners: Mapping[str, Agent] = {}
        self._opened: Mapping[str, Agent] = {}
        """Agents from the settings, if the program's agents are a function."""
        self._duplicates: set[str] = set()

    @property
    def lasting(self) -> Mapping[str, Agent]:
        """The agents that are the same for every caller, opened and closed with the server."""
        own = {} if callable(self._own) else self._own
        return {**own, **self._opened, **self._planners}

    @property
    def is_empty(self) -> bool:
        """Whether there can be no agents other than planners."""
        return self._find_others is None and not callable(self._own) and not self._own

    @property
    def current(self) -> Agents:
        """The agents if they are the same for all callers and constant, else this registry."""
        return self if self._find_others is not None or callable(self._own) else self.lasting

    @property
    def is_open(self) -> bool:
        """Whether the program's agents are a function of the caller, so their names are unknown."""
        return callable(self._own)

    def add_agent(self, name: str, agent: Agent) -> None:
        """Add an agent from the settings; it is also a worker. Raises `ConfigurationFailed`."""
        own = self._own
        if name in self.lasting:
            raise build_duplicate_error(name)
        if not callable(own):
            self._own = {**own, name: agent}
            return

        async def find_own(caller: Caller) -> Mapping[str, SupportsRun]:
            return {**await call(own, caller), name: agent}

        self._own = find_own
        self._opened = {**self._opened, name: agent}

    def add_planner(self, name: str, planner: Agent) -> None:
        """Add an agent that delegates tasks to the others. Raises `ConfigurationFailed`."""
        if name in self.lasting:
            raise build_duplicate_error(name)
        self._planners = {**self._planners, name: planner}

    def add_files(self, find: FindAgents, list_names: Callable[[], Collection[str]]) -> None:
        """Add agents that come and go with files: `list_names` returns those there are now."""
        self._find_others, self._list_others = find, list_names

    def check_names(self) -> None:
        """Raise `ConfigurationFailed` if an agent of a file has the name of another one."""
        if twice := self.lasting.keys() & self._list_others():
            raise build_duplicate_error(min(twice))

    async def __call__(self, caller: Caller) -> Mapping[str, SupportsRun]:
        """Return the agents that a caller may use."""
        own = await self._find_own(caller)
        if not isinstance(own, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]  # as promised
            return own  # the runtime reports the error
        return {**await self._add_others(own, caller), **self._planners}

    async def find_workers(self, caller: Caller) -> Mapping[str, Agent]:
        """Return the caller's agents that may execute tasks of a plan."""
        return await self._add_others(await self._find_own(caller), caller)

    async def _find_own(self, caller: Caller) -> Mapping[str, Agent]:
        return await call(self._own, caller) if callable(self._own) else self._own

    async def _add_others(self, own: Mapping[str, Agent], caller: Caller) -> Mapping[str, Agent]:
        if self._find_others is None:
            return own
        others = await self._find_others(caller)
        for name in others.keys() & (own.keys() | self._planners.keys()) - self._duplicates:
            self._duplicates.add(name)
            logger.warning("The agent %r of a file is ignored: another one has its name.", name)
        found = {name: one for name, one in others.items() if name not in self._planners}
        return {**found, **own}


def build_duplicate_error(name: str) -> ConfigurationFailed:
    """Return the error for two agents of one name."""
    return ConfigurationFailed(
        f"Two agents have the name {name!r}.", hint="Give one of them another."
    )


def has_plans(agent: object) -> bool:
    """Return whether an agent makes plans."""
    return bool(getattr(agent, "has_plans", False))


class AgentDirectory(dict[str, Agent]):
    """Agents by name. A missing name raises the failure that may be the reason, else `KeyError`.

    `failures` are the errors of endpoints that are down; `unsupported` has an error for each agent
    that an endpoint lists but cannot run.
    """

    def __init__(self, agents: Mapping[str, SupportsRun]) -> None:
        super().__init__({name: complete(Agent, agent) for name, agent in agents.items()})
        self.failures: Sequence[CopilotError] = ()
        self.unsupported: dict[str, CopilotError] = {}

    def check(self) -> None:
        """Raise the first failure if there are no agents at all because of failures."""
        if not self and self.failures:
            raise self.failures[0].with_traceback(None)

    def __missing__(self, name: str) -> Agent:
        if name in self.unsupported:
            raise self.unsupported[name]
        if not self.failures:
            raise KeyError(name)
        failure = self.failures[0]
        if isinstance(failure, AuthenticationFailed):
            raise failure.with_traceback(None)
        raise NetworkError(
            f"The agent {name!r} is not there. It may be at a remote endpoint that is down.",
            hint=failure.hint or failure.message,
        )


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
            return result  # the runtime reports the error
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
            f"The agent {name!r} is {what}, which cannot be an agent.",
            hint="Write AguiAgent('https://...') for an agent that has this URL.",
        )
    if hasattr(agent, "compile"):
        raise ConfigurationFailed(
            f"The agent {name!r} is {what} that is not compiled.",
            hint="Compile it with a memory: builder.compile(checkpointer=InMemorySaver()).",
        )
    raise ConfigurationFailed(
        f"The agent {name!r} is {what}, which cannot be an agent.",
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
