"""The request of a GraphQL operation, for its resolvers."""

from dataclasses import dataclass, field

from copilot_runtime.interfaces import Caller
from copilot_runtime.runtime.conversations import Conversations
from copilot_runtime.runtime.run import Run
from copilot_runtime.transports.graphql.documents import Documents

CONTEXT = "copilot_runtime.context"
"""The key of a WebSocket's context in its ASGI scope."""


@dataclass(slots=True)
class Context:
    """One request. `started` collects the runs that end with it."""

    runs: Conversations
    documents: Documents
    caller: Caller
    max_messages: int
    started: list[Run] = field(default_factory=list[Run])

    def stop_runs(self) -> None:
        """Stop the runs that end with the request, also those that are still starting."""
        for run in self.started:
            run.stop()
