"""What a GraphQL operation may know of the request it came with."""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from copilot_runtime.interfaces import START, Agent, Batch, Caller, Cursor, RunInput
from copilot_runtime.runtime.run import Run
from copilot_runtime.transports.graphql.documents import Documents

CONTEXT = "copilot_runtime.context"
"""The key of a WebSocket's context in its ASGI scope."""


class Runs(Protocol):
    """What the resolvers need of the runtime: see `Conversations`."""

    async def start(self, request: RunInput) -> Run: ...

    def stop(self, log_id: str) -> bool: ...

    def follow(self, log_id: str, after: Cursor = START) -> AsyncGenerator[Batch, None]: ...


class Gateway(Runs, Protocol):
    """The runtime, as this transport sees it."""

    async def agents_for(self, caller: Caller) -> Mapping[str, Agent]: ...

    async def agent(self, name: str | None, caller: Caller) -> Agent: ...


@dataclass(slots=True)
class Context:
    """One request. `started` collects the runs that end with it."""

    runs: Gateway
    documents: Documents
    caller: Caller
    max_messages: int
    started: list[str] = field(default_factory=list[str])
