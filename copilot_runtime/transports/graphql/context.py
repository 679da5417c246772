"""The request of a GraphQL operation, for its resolvers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from graphql import DocumentNode

from copilot_runtime.interfaces import Caller
from copilot_runtime.runtime.conversations import Conversations
from copilot_runtime.runtime.run import Run
from copilot_runtime.transports.graphql.documents import Documents
from copilot_runtime.transports.graphql.inputs import check_inputs, find_inputs

if TYPE_CHECKING:
    from copilot_runtime.knowledge import Knowledge
    from copilot_runtime.transports.traces.access import TraceAccess

CONTEXT = "copilot_runtime.context"
"""The key of a WebSocket's context in its ASGI scope."""


@dataclass(slots=True)
class Context:
    """One request. `started` collects the runs that end with it."""

    runs: Conversations
    documents: Documents
    caller: Caller
    max_messages: int
    max_items: int
    max_values: int
    knowledge: "Knowledge | None" = None
    knowledge_fields: int = 0
    """How many fields of knowledge this request has asked for."""
    require_traces: "Callable[[], TraceAccess] | None" = None
    """Returns the traces, if there are any that somebody may read; raises `TracesForbidden`."""
    started: list[Run] = field(default_factory=list[Run])
    operations: int = 0
    """How many are answered at the moment, over a WebSocket."""

    def check_size(
        self, document: DocumentNode, operation_name: str | None, variables: Mapping[str, Any]
    ) -> None:
        """Raise `LimitExceeded` for variables that are too large to be read."""
        inputs = find_inputs(document, operation_name, variables)
        check_inputs(inputs, max_messages=self.max_messages, max_items=self.max_items)

    def stop_runs(self) -> None:
        """Stop the runs that end with the request, also those that are still starting."""
        for run in self.started:
            run.stop()
