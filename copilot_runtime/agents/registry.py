"""The agents of a server, as each caller may use them."""

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping

from copilot_runtime.api.agent import Agent, AgentResolver, Agents, SupportsRun
from copilot_runtime.api.identity import Caller
from copilot_runtime.base.concurrency import call
from copilot_runtime.base.errors import ConfigurationFailed

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
            return own  # the runtime reports what is wrong with it
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
            logger.warning("The agent %r of a file is left out: another one has its name.", name)
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
