"""The interface of endpoints, and the table of their kinds."""

import os
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast

from pydantic import BaseModel, ConfigDict

from copilot_runtime.api.action import ActionContext
from copilot_runtime.api.registry import Registry
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.errors import ConfigurationFailed, CopilotError
from copilot_runtime.base.jsontext import dumps, loads
from copilot_runtime.base.secrets import REDACTOR

if TYPE_CHECKING:
    from copilot_runtime.extensions.tools.catalog.definition import ToolDefinition


SECRETS = Path("/run/secrets")
"""The folder in which Docker and Kubernetes mount secrets, as a file each."""

_REFERENCE = re.compile(
    r"\$(?P<escape>\$)?\{(?:(?P<kind>[a-z]+):)?(?P<name>[A-Za-z_][A-Za-z0-9_.-]*)"
    r"(?::-(?P<default>[^}]*))?\}"
)
"""`${NAME}`, `${secret:NAME}`, `${NAME:-default}`, and `$${NAME}` as an escape."""

_OF_CALL = re.compile(rb"\$\{(header|property|caller):[^}]*\}")

_OF_REQUEST: Mapping[str, Callable[[ActionContext, str], Any]] = {
    "header": lambda context, name: context.headers.get(name.lower()),
    "property": lambda context, name: context.properties.get(name),
    "caller": lambda context, name: {
        "user": context.user,
        "thread": context.thread_id,
        "agent": context.agent,
    }.get(name),
}
"""Resolvers of values of the request, by the kind of reference."""


class References:
    """The environment variables and secrets of this server, by reference.

    `${NAME}` is an environment variable. `${secret:NAME}` is a variable that is hidden from logs
    and models, or else a file of that name in `folder`. `${header:NAME}`, `${property:NAME}` and
    `${caller:user}` are values of the current request.
    """

    def __init__(
        self, environ: Mapping[str, str] | None = None, folder: Path | str = SECRETS
    ) -> None:
        self._environ = os.environ if environ is None else environ
        self._folder = Path(folder)

    def check(self, value: Any) -> None:
        """Raise `ConfigurationFailed` if a reference is invalid or undefined."""
        for match in _find_references(value):
            kind, name = match["kind"], match["name"]
            if kind in _OF_REQUEST:
                continue
            if kind not in (None, "secret"):
                kinds = ", ".join(f"${{{kind}:…}}" for kind in ("secret", *_OF_REQUEST))
                raise ConfigurationFailed(
                    f"{match[0]!r} names nothing that there is.",
                    hint=f"There are ${{NAME}}, {kinds}; $${{…}} is the text itself.",
                )
            if self._read(kind, name) is None and match["default"] is None:
                what = "secret" if kind else "environment variable"
                raise ConfigurationFailed(
                    f"The {what} {name!r} is not set.",
                    hint=f"Set the environment variable {name}"
                    + (f", or write the secret to {self._folder / name}." if kind else "."),
                )

    def resolve(self, value: Any, context: ActionContext | None = None) -> Any:
        """Return a value with its references resolved, also in nested lists and mappings.

        Raises `CopilotError` if the request lacks a value.
        """
        if isinstance(value, Mapping):
            items = cast("Mapping[Any, Any]", value).items()
            return {name: self.resolve(inner, context) for name, inner in items}
        if isinstance(value, list | tuple):
            return [self.resolve(inner, context) for inner in cast("list[Any]", value)]
        if not isinstance(value, str) or "${" not in value:
            return value
        return _REFERENCE.sub(lambda match: self._substitute(match, context), value)

    def learn_secrets(self, options: Any) -> None:
        """Redact the secrets in options from now on; those of a request are known with it."""
        with suppress(CopilotError):
            REDACTOR.learn(self.resolve(loads(_OF_CALL.sub(b"", dumps(options)))))

    def _substitute(self, match: re.Match[str], context: ActionContext | None) -> str:
        if match["escape"]:
            return match[0][1:]
        kind, name = match["kind"], match["name"]
        find = _OF_REQUEST.get(kind)
        if find is None:
            found = self._read(kind, name)
        else:
            found = None if context is None else find(context, name)
        if found is None:
            found = match["default"]
        if found is None:
            raise CopilotError(
                f"This needs the {kind or 'environment variable'} {name!r}, which is not there."
            )
        return str(found)

    def _read(self, kind: str | None, name: str) -> str | None:
        value = self._environ.get(name)
        if kind != "secret":
            return value or None
        if not value and "/" not in name:
            with suppress(OSError, UnicodeDecodeError):
                value = (self._folder / name).read_text(encoding="utf-8").rstrip("\r\n")
        if value:
            REDACTOR.add(value)
        return value or None


def _find_references(value: Any) -> Iterator[re.Match[str]]:
    """Yield the references in a value, except escaped ones."""
    if isinstance(value, Mapping):
        for inner in cast("Mapping[Any, Any]", value).values():
            yield from _find_references(inner)
    elif isinstance(value, list | tuple):
        for inner in cast("list[Any]", value):
            yield from _find_references(inner)
    elif isinstance(value, str):
        yield from (match for match in _REFERENCE.finditer(value) if not match["escape"])


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
