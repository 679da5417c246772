"""A mapping of agents by name that explains missing ones."""

from collections.abc import Mapping, Sequence

from copilot_runtime.api.agent import Agent, SupportsRun
from copilot_runtime.api.argument_checks import complete
from copilot_runtime.base.errors import AuthenticationFailed, CopilotError, NetworkError


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
