"""Endpoints that are tools of an MCP server."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from copilot_runtime.api.action import Action
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.errors import CopilotError, MissingPackage
from copilot_runtime.extensions.mcp.client.server import McpServer
from copilot_runtime.extensions.tools.catalog.endpoints import (
    Endpoint,
    EndpointOptions,
    Operation,
    Surroundings,
    build_context,
)
from copilot_runtime.telemetry.span import build_environment

if TYPE_CHECKING:
    from copilot_runtime.extensions.mcp.client.pool import SessionPool
    from copilot_runtime.extensions.tools.catalog.definition import ToolDefinition


class McpOptions(EndpointOptions):
    """A server, by URL or command, and one of its tools."""

    server: str | Annotated[tuple[str, ...], Field(min_length=1)]
    """A URL, or a command: the program, followed by its arguments."""
    tool: str = ""
    """The tool's name on the server; default: its name here."""
    headers: Mapping[str, str] = {}
    env: Mapping[str, str] = {}
    """Environment variables for the command."""
    transport: Literal["http", "sse"] | None = None


class McpEndpoint(Endpoint[McpOptions]):
    """A tool of a server, which describes its parameters. Tools of one server share a session."""

    Options = McpOptions
    is_fixed = False

    def __init__(
        self, tool: "ToolDefinition", options: McpOptions, surroundings: Surroundings
    ) -> None:
        super().__init__(tool, options, surroundings)
        surroundings.references.check(options.model_dump())
        self._remote_name = options.tool or tool.name
        self._build_server({})

    async def load(self, run: RunInput) -> Sequence[Operation]:
        action = await self._find_action(run)
        assert action.run is not None  # as all tools of MCP servers do
        return [
            Operation(
                call=action.run,
                description=action.description,
                parameters=action.parameters,
                is_idempotent=action.is_idempotent,
            )
        ]

    async def check(self, run: RunInput) -> str:
        await self._find_action(run)
        return f"{self._build_server({}).label} has {self._remote_name}"

    async def _find_action(self, run: RunInput) -> Action:
        """Return the tool as the server describes it. Raises `CopilotError`."""
        from copilot_runtime.extensions.mcp.client.tools import (
            build_actions,  # imports the package mcp
        )

        references, context = self.surroundings.references, build_context(run)
        server = self._build_server(references.resolve(self.options.env, context))
        environment = build_environment(run.span) if server.command else None
        headers = references.resolve(self.options.headers, context)
        connection = self._pool().connect(server, headers, environment)
        actions = await build_actions(connection)
        if not actions:
            raise CopilotError(
                f"The MCP server {server.label!r} has no tool {self._remote_name!r}."
            )
        return actions[0]

    def _build_server(self, env: Mapping[str, str]) -> McpServer:
        options, references = self.options, self.surroundings.references
        server = references.resolve(options.server)
        is_address = isinstance(server, str)
        return McpServer(
            server if is_address else "",
            command=() if is_address else tuple(server),
            env=env,
            cwd=None if is_address else str(self.surroundings.folder),
            tools=(self._remote_name,),
            transport=options.transport,
            timeout=self.tool.timeout,
            max_time=self.tool.timeout,
        )

    def _pool(self) -> "SessionPool":
        """Return the session pool of the catalog."""
        try:
            from copilot_runtime.extensions.mcp.client.pool import SessionPool
        except ImportError as error:
            raise MissingPackage("An MCP server", "mcp", "mcp") from error
        return self.surroundings.shared.setdefault("mcp", SessionPool())
