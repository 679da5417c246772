"""What a tool calls: the table of the kinds of endpoints, and what each kind implements."""

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
"""Name → import string of every kind of endpoint in this package.

The module that a line names must be importable without its extra: settings of all kinds are read
to check a file.
"""


@cache
def endpoint_kinds() -> "Registry":
    """Return the classes of endpoints by the name of their kind, those of other packages too."""
    return Registry("copilot_runtime.tool_endpoints", ENDPOINTS, noun="endpoint")


class EndpointOptions(BaseModel):
    """What stands below the name of a kind; what is none of its fields is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


Call = Callable[[Mapping[str, Any], ActionContext], Awaitable[Any]]
"""Takes the arguments, fixed ones among them, and returns what the tool gave.

It raises `InvalidArguments` for what the model can mend, `NetworkError` for what may pass by
itself, and another `CopilotError` for what the tool refused.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One thing that an endpoint does, as the endpoint itself describes it."""

    call: Call
    name: str = ""
    """What the endpoint calls it; a tool of an endpoint with several is named after both."""
    description: str = ""
    parameters: Mapping[str, Any] = field(
        default_factory=lambda: {"type": "object", "properties": {}}
    )
    """The JSON schema of an object."""
    result_schema: Mapping[str, Any] | None = None
    """The JSON schema of what it gives, as far as the endpoint says it."""
    is_idempotent: bool = False
    checks_arguments: bool = False
    """Whether `call` checks the arguments itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What endpoints get of the server that they are in."""

    folder: Path
    """Where the file of the tool is: relative paths in it begin here."""
    references: References
    """Secrets, environment variables and what a request has, for `${…}` in options."""
    services: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What stands below `services` in the files: addresses that several tools share."""
    shared: dict[str, Any] = field(default_factory=dict[str, Any], compare=False)
    """What endpoints of a kind share, by its name: closed by its `aclose` with the catalog."""


O = TypeVar("O", bound=EndpointOptions)  # noqa: E741 - options


class Endpoint(Generic[O]):
    """What a tool calls. A class for each kind, and an object for each tool.

    Constructing one opens no connection and raises `ConfigurationFailed` for options that can
    never work.
    """

    Options: ClassVar[type[EndpointOptions]]
    """What stands below the name of the kind in a file."""
    is_fixed: ClassVar[bool] = True
    """Whether `load` returns the same as long as the file is the same, without the network."""

    def __init__(self, tool: "ToolDefinition", options: O, surroundings: Surroundings) -> None:
        self.tool = tool
        self.options = options
        self.surroundings = surroundings

    async def load(self, run: RunInput) -> Sequence[Operation]:
        """Return what it does. Raises `CopilotError` if it cannot be reached or has no such thing.

        Called for each run where it is not fixed, so a kind remembers what it has read.
        """
        raise NotImplementedError

    def list_operations(self) -> Sequence[Operation]:
        """Return what it does as far as that is known without reaching it."""
        return ()

    async def check(self, run: RunInput) -> str:
        """Reach it without calling it, and return what was seen, as half a sentence.

        Raises `CopilotError` with what is wrong.
        """
        raise NotImplementedError

    async def aclose(self) -> None:
        """Close its connections."""


def build_context(run: RunInput) -> ActionContext:
    """Return what references of a request are resolved with, where there is no call yet."""
    return ActionContext(
        thread_id=run.thread_id,
        run_id=run.run_id,
        call_id="",
        properties=run.properties,
        headers=run.headers,
        user=run.user,
        span=run.span,
    )
