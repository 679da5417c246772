"""The agents of the application, and those that remote endpoints have, under one roof."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from copilot_runtime.agents.remote.endpoint import RemoteEndpoint
from copilot_runtime.concurrency import call
from copilot_runtime.errors import (
    AuthenticationFailed,
    ConfigurationFailed,
    CopilotError,
    NetworkError,
)
from copilot_runtime.interfaces import Agent, Agents, Caller

logger = logging.getLogger(__name__)

UNFIT = frozenset({"langgraph_agui"})
"""The kinds of agents that endpoints list and have no way to run."""


def as_endpoints(endpoints: Sequence[str | RemoteEndpoint]) -> list[RemoteEndpoint]:
    """Return the endpoints, each address once: the first one counts."""
    made = (RemoteEndpoint(one) if isinstance(one, str) else one for one in endpoints)
    found: dict[str, RemoteEndpoint] = {}
    for endpoint in made:
        found.setdefault(endpoint.url.rstrip("/"), endpoint)
    return [*found.values()]


class KnownAgents(dict[str, Agent]):
    """The agents there are, as far as it is known.

    `failures` tell why endpoints are down, `unfit` why agents that are listed are not here.
    """

    def __init__(self, agents: Mapping[str, Agent]) -> None:
        super().__init__(agents)
        self.failures: Sequence[CopilotError] = ()
        self.unfit: dict[str, CopilotError] = {}

    def check(self) -> None:
        """Raise when there is nobody, and this is because nobody answers."""
        if not self and self.failures:
            raise self.failures[0].with_traceback(None)

    def __missing__(self, name: str) -> Agent:
        if name in self.unfit:
            raise self.unfit[name]
        if not self.failures:
            raise KeyError(name)
        failure = self.failures[0]
        if isinstance(failure, AuthenticationFailed):
            raise failure.with_traceback(None)
        raise NetworkError(
            f"The agent {name!r} is not there. It may be at a remote endpoint that is down.",
            hint=failure.hint or failure.message,
        )


class WithRemote:
    """Returns your agents and those discovered; of one name, yours counts, then the first."""

    def __init__(
        self, own: Agents, endpoints: Sequence[RemoteEndpoint], properties: Mapping[str, Any]
    ) -> None:
        self._own = own
        self._endpoints = endpoints
        self._properties = properties
        self._doubles: set[str] = set()

    async def __call__(self, caller: Caller) -> Mapping[str, Agent]:
        own = await call(self._own, caller) if callable(self._own) else self._own
        if not isinstance(own, Mapping):
            return own  # the runtime says what is wrong with it
        caller = replace(caller, properties={**self._properties, **caller.properties})
        offers = await asyncio.gather(*(endpoint.offer(caller) for endpoint in self._endpoints))
        found = KnownAgents(own)
        for endpoint, offer in zip(self._endpoints, offers, strict=True):
            for offered in offer.agents:
                if offered.kind in UNFIT:
                    found.unfit.setdefault(offered.name, _unfit(offered.name))
                elif offered.name not in found:
                    found[offered.name] = endpoint.agent(offered, self._properties)
                elif offered.name not in self._doubles:
                    self._doubles.add(offered.name)
                    logger.warning("There are several agents %r; one counts.", offered.name)
        found.failures = [offer.failure for offer in offers if offer.failure is not None]
        return found


def _unfit(name: str) -> ConfigurationFailed:
    return ConfigurationFailed(
        f"The agent {name!r} cannot be run through its remote endpoint. "
        "It has to be registered by the address where it speaks AG-UI.",
        hint="Endpoints of the package copilotkit only list agents of type langgraph_agui. Serve "
        "it with add_langgraph_fastapi_endpoint of ag_ui_langgraph, and register "
        f"agents={{{name!r}: AguiAgent(url)}}.",
    )
