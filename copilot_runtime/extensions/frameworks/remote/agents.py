"""Combines the agents of remote endpoints with those of the application."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from copilot_runtime.agents.directory import AgentDirectory
from copilot_runtime.api.agent import Agent, Agents
from copilot_runtime.api.argument_checks import check_items
from copilot_runtime.api.identity import Caller
from copilot_runtime.base.concurrency import call
from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.extensions.frameworks.remote.endpoint import RemoteEndpoint

if TYPE_CHECKING:
    import httpx

logger = logging.getLogger(__name__)

UNSUPPORTED_KINDS = frozenset({"langgraph_agui"})
"""Kinds of agents that endpoints list but cannot run."""


def coerce_endpoints(
    endpoints: Sequence[str | RemoteEndpoint], http_client: "httpx.AsyncClient | None" = None
) -> list[RemoteEndpoint]:
    """Return endpoints for URLs and endpoints; of several with one URL, the first.

    `http_client` is for those made of URLs.
    """
    check_items("remote_endpoints", endpoints, (str, RemoteEndpoint), "RemoteEndpoint")
    items = (
        RemoteEndpoint(one, http_client=http_client) if isinstance(one, str) else one
        for one in endpoints
    )
    found: dict[str, RemoteEndpoint] = {}
    for endpoint in items:
        found.setdefault(endpoint.url.rstrip("/"), endpoint)
    return [*found.values()]


class AgentResolver:
    """Returns the agents of the application and of the endpoints; the first of a name wins."""

    def __init__(self, own: Agents, endpoints: Sequence[RemoteEndpoint]) -> None:
        self._own = own
        self._endpoints = endpoints
        self._duplicates: set[str] = set()

    async def __call__(self, caller: Caller) -> Mapping[str, Agent]:
        own = await call(self._own, caller) if callable(self._own) else self._own
        if not isinstance(own, Mapping):
            return own  # the runtime reports what is wrong with it
        catalogs = await asyncio.gather(
            *(endpoint.fetch_catalog(caller) for endpoint in self._endpoints)
        )
        found = AgentDirectory(own)
        for endpoint, catalog in zip(self._endpoints, catalogs, strict=True):
            for entry in catalog.agents:
                if entry.kind in UNSUPPORTED_KINDS:
                    found.unsupported.setdefault(entry.name, _unsupported_error(entry.name))
                elif entry.name not in found:
                    found[entry.name] = endpoint.agent(entry)
                elif entry.name not in self._duplicates:
                    self._duplicates.add(entry.name)
                    logger.warning("There are several agents %r; one counts.", entry.name)
        found.failures = [catalog.failure for catalog in catalogs if catalog.failure is not None]
        return found


def _unsupported_error(name: str) -> ConfigurationFailed:
    return ConfigurationFailed(
        f"The agent {name!r} cannot be run through its remote endpoint. "
        "It has to be registered by the address where it speaks AG-UI.",
        hint="Endpoints of the package copilotkit only list agents of type langgraph_agui. Serve "
        "it with add_langgraph_fastapi_endpoint of ag_ui_langgraph, and register "
        f"agents={{{name!r}: AguiAgent(url)}}.",
    )
