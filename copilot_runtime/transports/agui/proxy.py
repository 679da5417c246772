"""Requests of MCP apps in frames, which look like runs and are none."""

from typing import Protocol

from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.jsonvalue import JsonObject

PROPERTY = "__proxiedMCPRequest"
"""The forwarded property in which CopilotKit's client sends such a request."""


class AppRequests(Protocol):
    """Answers MCP apps for the servers they came from."""

    async def answer(self, run: RunInput, client_host: str) -> JsonObject:
        """Return the result of the request, or an object with `error`."""
        ...
