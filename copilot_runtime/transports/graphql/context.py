"""The request of a GraphQL operation, for its resolvers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from copilot_runtime.api.identity import Caller
from copilot_runtime.base.errors import LimitExceeded
from copilot_runtime.runtime.conversations import Conversations
from copilot_runtime.runtime.run import Run
from copilot_runtime.transports.graphql.documents import Documents
from copilot_runtime.transports.graphql.inputs import check_inputs
from copilot_runtime.transports.graphql.operation import Operation
from copilot_runtime.transports.request import Request
from copilot_runtime.transports.transport import Services

CONTEXT = "copilot_runtime.context"
"""The key of a WebSocket's context in its ASGI scope."""


@dataclass(slots=True)
class Context:
    """The context of one request; `started` are the runs that end with it."""

    request: Request
    services: Services
    documents: Documents
    fields: dict[str, int] = field(default_factory=dict[str, int])
    """Number of fields that this request has selected, by part of the schema."""
    started: list[Run] = field(default_factory=list[Run])
    trace_id: str = ""
    """The id of the trace of the started run, if the client requests it."""
    operations: int = 0
    """Number of active operations, over a WebSocket."""

    @property
    def runs(self) -> Conversations:
        return self.services.runs

    @property
    def caller(self) -> Caller:
        return self.request.caller

    def check_size(self, operation: Operation, variables: Mapping[str, Any]) -> None:
        """Raise `LimitExceeded` for variables that exceed the limits on messages and items."""
        settings = self.services.settings
        inputs = operation.select_inputs(variables)
        check_inputs(inputs, max_messages=settings.max_messages, max_items=settings.max_items)

    def count_field(self, part: str, most: int) -> None:
        """Count one more field of a part. Raises `LimitExceeded` above `most` per request."""
        self.fields[part] = count = self.fields.get(part, 0) + 1
        if count > most:
            raise LimitExceeded(f"A request may ask for {most} fields of {part}.")

    def stop_runs(self) -> None:
        """Stop the runs that end with the request, including those that are still starting."""
        for run in self.started:
            run.stop()
