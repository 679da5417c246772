"""An MCP server: every action of this runtime is a tool, and so is every agent."""

import logging
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from copilot_runtime import __version__
from copilot_runtime.api.caller import Caller
from copilot_runtime.api.events import RunFailed
from copilot_runtime.api.messages import TextMessage, new_id
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.errors import RUN_FAILED, CopilotError, MissingPackage, Misuse
from copilot_runtime.extensions.mcp.server.encode import Answer, build_result, build_text_result
from copilot_runtime.extensions.mcp.server.tools import ASK, build_tools
from copilot_runtime.telemetry.context import SpanContext
from copilot_runtime.telemetry.genai import omit_tool
from copilot_runtime.telemetry.span import find_current_span
from copilot_runtime.transports.program_runs import ProgramRuns

if TYPE_CHECKING:
    from mcp_types import (
        CallToolRequestParams,
        CallToolResult,
        ListToolsResult,
    )

    from mcp.server import Server
    from mcp.server.context import ServerRequestContext

logger = logging.getLogger(__name__)

CALLER = "copilot_runtime.caller"
"""The key of the caller in the ASGI scope of an MCP request."""

THREAD = "x-thread-id"
"""The header by which an agent says in which thread it works, by the id that it has of that."""


async def serve_pipes(program_runs: ProgramRuns, owner: Caller) -> None:
    """Serve the protocol over stdin and stdout until the other side ends.

    The other side is whoever started this process: an editor, a desktop program.
    """
    server = build_server(program_runs, owner)
    from mcp.server.stdio import stdio_server

    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def build_server(program_runs: ProgramRuns, owner: Caller | None = None) -> "Server[Any]":
    """Return the server, for any transport of the protocol. Raises `MissingPackage`.

    `owner` is the caller where no HTTP request brings one.
    """
    owner = owner or Caller()
    try:
        from mcp_types import ListToolsResult

        from copilot_runtime.extensions.mcp.server.tracing import SpanMiddleware
        from mcp.server import Server
    except ImportError as error:
        raise MissingPackage("An MCP server", "mcp", "mcp") from error

    async def list_tools(context: "ServerRequestContext[Any]", params: Any) -> "ListToolsResult":
        del params  # there is one page
        caller = _get_caller(context, owner)
        found = build_tools(await program_runs.actions(caller), await program_runs.agents(caller))
        return ListToolsResult(tools=found)

    async def call_tool(
        context: "ServerRequestContext[Any]", params: "CallToolRequestParams"
    ) -> "CallToolResult":
        tool = _Tool(
            program_runs,
            _get_caller(context, owner),
            params.name,
            params.arguments or {},
            thread=_get_thread(context.request),
        )
        try:
            return await tool.call(context.session.report_progress)
        except CopilotError as error:
            message = error.public
        except Exception:  # of hooks and agents: the client gets them without details
            logger.exception("The tool %r failed", params.name)
            message = RUN_FAILED.message
        if find_current_span().is_recording and not await tool.exists():
            omit_tool(find_current_span())
        return build_text_result(message, is_error=True)

    server = Server(
        "copilot-runtime",
        version=__version__,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )
    telemetry = program_runs.conversations.runtime.telemetry
    if telemetry.is_recording:  # in place of the package's own, so that nothing is traced twice
        server.middleware = [SpanMiddleware(telemetry, _find_parent)]
    return server


class _Tool:
    """One call of one tool."""

    def __init__(
        self,
        program_runs: ProgramRuns,
        caller: Caller,
        name: str,
        arguments: Mapping[str, Any],
        *,
        thread: str,
    ) -> None:
        self._program_runs = program_runs
        self._caller = caller
        self._name = name
        self._arguments = arguments
        self._thread = thread

    async def call(self, progress: Callable[..., Any]) -> "CallToolResult":
        """Return what came of it. Raises `CopilotError` for what could not be called."""
        agent = self._name.removeprefix(ASK)
        if agent != self._name and not await self._is_action():
            return await self._ask(agent, progress)
        call = (self._caller, self._name, self._arguments, "tools/call")
        return build_result(await self._program_runs.call(*call, thread=self._thread))

    async def exists(self) -> bool:
        """Return whether the caller may call such a tool, as far as that can be known now."""
        try:
            agents = await self._program_runs.agents(self._caller)
            return self._name in map(ASK.__add__, agents) or await self._is_action()
        except Exception:  # of the application, which lists them
            return False

    async def _is_action(self) -> bool:
        """Return whether an action has such a name; it goes before an agent."""
        actions = await self._program_runs.actions(self._caller)
        return any(action.name == self._name for action in actions)

    async def _ask(self, agent: str, progress: Callable[..., Any]) -> "CallToolResult":
        """Run an agent and report its text as progress. A cancelled call stops the run."""
        run = _build_question(self._program_runs, self._caller, agent, self._arguments)
        answer = Answer()
        async with aclosing(self._program_runs.events(run)) as events:
            async for event in events:
                if piece := answer.add(event):
                    await progress(answer.length, message=piece)
                elif isinstance(event, RunFailed):
                    texts = (answer.text, event.error.message)
                    return build_text_result("\n\n".join(filter(None, texts)), is_error=True)
        return build_text_result(answer.text)


def _get_caller(context: "ServerRequestContext[Any]", owner: Caller) -> Caller:
    """Return who sent a request; behind pipes, the owner of the process calls.

    What it starts is below the span of the request.
    """
    caller = owner if context.request is None else context.request.scope[CALLER]
    span = find_current_span()
    return replace(caller, parent=span.context) if span.is_recording else caller


def _find_parent(request: Any) -> SpanContext | None:
    """Return the span that the headers of a request name."""
    return None if request is None else request.scope[CALLER].parent


def _get_thread(request: Any) -> str:
    """Return the thread for which an agent of this runtime calls, as far as it says so."""
    return "" if request is None else request.headers.get(THREAD, "")


def _build_question(
    program_runs: ProgramRuns, caller: Caller, agent: str, arguments: Mapping[str, Any]
) -> RunInput:
    """Return the run that asks an agent. Raises `Misuse` for a question that is none."""
    text = arguments.get("message")
    if not isinstance(text, str) or not text.strip():
        raise Misuse("The argument `message` must be a text.")
    messages = [TextMessage(id=new_id(), role="user", content=text)]
    return program_runs.build_run(caller, agent=agent, messages=messages, operation="tools/call")
