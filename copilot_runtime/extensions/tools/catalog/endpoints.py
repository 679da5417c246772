"""The interface of endpoints, and the table of their kinds."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel, ConfigDict

from copilot_runtime.api.action import ActionContext
from copilot_runtime.api.registry import Registry
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.extensions.tools.catalog.references import References

if TYPE_CHECKING:
    from copilot_runtime.extensions.tools.catalog.definition import ToolDefinition

ENDPOINTS: Mapping[str, str] = {
    "function": "copilot_runtime.extensions.tools.catalog.function:FunctionEndpoint",
    "grpc": "copilot_runtime.extensions.tools.catalog.grpc.endpoint:GrpcEndpoint",
    "http": "copilot_runtime.extensions.tools.catalog.http:HttpEndpoint",
    "openapi": "copilot_runtime.extensions.tools.catalog.openapi:OpenapiEndpoint",
    "mcp": "copilot_runtime.extensions.tools.catalog.mcp:McpEndpoint",
    "graphql": "copilot_runtime.extensions.tools.catalog.graphql:GraphqlEndpoint",
}
"""Name → import string of every endpoint kind in this package. The modules must be importable
without their extras, because options of all kinds are parsed to check a file."""


@cache
def endpoint_kinds() -> "Registry":
    """Return the endpoint classes by the name of their kind, including those of other packages."""
    return Registry("copilot_runtime.tool_endpoints", ENDPOINTS, noun="endpoint")


class EndpointOptions(BaseModel):
    """The options of an endpoint; unknown fields are an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


Call = Callable[[Mapping[str, Any], ActionContext], Awaitable[Any]]
"""Executes an operation with all arguments, including fixed ones, and returns its result. It raises
`InvalidArguments` if the model can correct the call, `NetworkError` for temporary failures, and
another `CopilotError` if the service refuses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation of an endpoint, as the endpoint describes it."""

    call: Call
    name: str = ""
    """The endpoint's name of the operation; if there are several, actions are named after the tool
    and the operation."""
    description: str = ""
    parameters: Mapping[str, Any] = field(
        default_factory=lambda: {"type": "object", "properties": {}}
    )
    """The JSON schema of the arguments, which is an object."""
    result_schema: Mapping[str, Any] | None = None
    """The JSON schema of the result, or None if unknown."""
    is_idempotent: bool = False
    checks_arguments: bool = False
    """True if `call` validates the arguments itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The services of the catalog for its endpoints."""

    folder: Path
    """The folder of the tool's file, to which paths are relative."""
    references: References
    """Resolves `${…}` in options: secrets, environment variables, and values of the request."""
    services: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The section `services` of the files: addresses that tools share."""
    shared: dict[str, Any] = field(default_factory=dict[str, Any], compare=False)
    """Objects that endpoints of a kind share, by its name; the catalog closes them with their
    `aclose`."""


O = TypeVar("O", bound=EndpointOptions)  # noqa: E741 - options


class Endpoint(Generic[O]):
    """The endpoint of a tool. Each kind is a class, with one instance per tool.

    The constructor opens no connection, and raises `ConfigurationFailed` if the options are
    invalid.
    """

    Options: ClassVar[type[EndpointOptions]]
    """The model of the kind's options in a file."""
    is_fixed: ClassVar[bool] = True
    """True if `load` needs no network and returns the same until the file changes."""

    def __init__(self, tool: "ToolDefinition", options: O, surroundings: Surroundings) -> None:
        self.tool = tool
        self.options = options
        self.surroundings = surroundings

    async def load(self, run: RunInput) -> Sequence[Operation]:
        """Return the operations.

        Raises `CopilotError` if the service is unreachable or lacks the operation.

        Called for each run unless `is_fixed`, so implementations should cache.
        """
        raise NotImplementedError

    def list_operations(self) -> Sequence[Operation]:
        """Return the operations that are known without contacting the service."""
        return ()

    async def check(self, run: RunInput) -> str:
        """Contact the service without calling the tool. Return a phrase that describes the result.

        Raises `CopilotError` with the problem.
        """
        raise NotImplementedError

    async def aclose(self) -> None:
        """Close its connections."""


def build_context(run: RunInput) -> ActionContext:
    """Return the context in which references are resolved when there is no call."""
    return ActionContext(
        thread_id=run.thread_id,
        run_id=run.run_id,
        call_id="",
        properties=run.properties,
        headers=run.headers,
        user=run.user,
        span=run.span,
    )
