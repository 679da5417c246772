"""An MCP server: every action of this runtime is a tool, and so is every agent."""

import logging
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from copilot_runtime import __version__
from copilot_runtime.errors import RUN_FAILED, CopilotError, MissingPackage
from copilot_runtime.events import RunFailed
from copilot_runtime.interfaces import Caller
from copilot_runtime.transports.mcp.decode import build_question, get_caller
from copilot_runtime.transports.mcp.encode import Answer, build_text_result, outcome
from copilot_runtime.transports.mcp.tools import ASK, tools_of
from copilot_runtime.transports.program_runs import ProgramRuns

if TYPE_CHECKING:
    from mcp.server import Server
    from mcp.server.context import ServerRequestContext
    from mcp_types import CallToolRequestParams, CallToolResult, ListToolsResult

logger = logging.getLogger(__name__)


async def serve_pipes(program_runs: ProgramRuns, owner: Caller) -> None:
    """Speak the protocol over stdin and stdout until the other side ends.

    The other side is whoever started this process: an editor, a desktop program.
    """
    server = mcp_server(program_runs, owner)
    from mcp.server.stdio import stdio_server

    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def mcp_server(program_runs: ProgramRuns, owner: Caller | None = None) -> "Server[Any]":
    """Return the server, which speaks over whatever transport runs it. Raises `MissingPackage`.

    `owner` is the caller where no HTTP request brings one.
    """
    owner = owner or Caller()
    try:
        from mcp.server import Server
        from mcp_types import ListToolsResult
    except ImportError as error:
        raise MissingPackage("An MCP server", "mcp", "mcp") from error

    async def list_tools(context: "ServerRequestContext[Any]", params: Any) -> "ListToolsResult":
        del params  # there is one page
        caller = get_caller(context.request, owner)
        found = tools_of(await program_runs.actions(caller), await program_runs.agents(caller))
        return ListToolsResult(tools=found)

    async def call_tool(
        context: "ServerRequestContext[Any]", params: "CallToolRequestParams"
    ) -> "CallToolResult":
        tool = _Tool(
            program_runs, get_caller(context.request, owner), params.name, params.arguments or {}
        )
        try:
            return await tool.call(context.session.report_progress)
        except CopilotError as error:
            return build_text_result(error.message, is_error=True)
        except Exception:  # of hooks and agents: the client gets them without details
            logger.exception("The tool %r failed", params.name)
            return build_text_result(RUN_FAILED.message, is_error=True)

    return Server(
        "copilot-runtime",
        version=__version__,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


class _Tool:
    """One call of one tool."""

    def __init__(
        self, program_runs: ProgramRuns, caller: Caller, name: str, arguments: Mapping[str, Any]
    ) -> None:
        self._program_runs = program_runs
        self._caller = caller
        self._name = name
        self._arguments = arguments

    async def call(self, progress: Callable[..., Any]) -> "CallToolResult":
        """Return what came of it. Raises `CopilotError` for what could not be called."""
        agent = self._name.removeprefix(ASK)
        if agent != self._name and not await self._is_action():
            return await self._ask(agent, progress)
        call = (self._caller, self._name, self._arguments, "tools/call")
        return outcome(await self._program_runs.call(*call))

    async def _is_action(self) -> bool:
        """Say whether an action has a name as agents have; then it is the one that is meant."""
        actions = await self._program_runs.actions(self._caller)
        return any(action.name == self._name for action in actions)

    async def _ask(self, agent: str, progress: Callable[..., Any]) -> "CallToolResult":
        """Ask an agent, and tell what it says while it says it. Who cancels the call stops it."""
        run = build_question(self._program_runs, self._caller, agent, self._arguments)
        answer = Answer()
        async with aclosing(self._program_runs.events(run)) as events:
            async for event in events:
                if piece := answer.add(event):
                    await progress(answer.length, message=piece)
                elif isinstance(event, RunFailed):
                    texts = (answer.text, event.error.message)
                    return build_text_result("\n\n".join(filter(None, texts)), is_error=True)
        return build_text_result(answer.text)
