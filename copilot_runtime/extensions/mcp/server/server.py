"""An MCP server whose tools are the runtime's actions and agents."""

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from copilot_runtime import __version__
from copilot_runtime.actions.execute import parse_failure
from copilot_runtime.api.action import Action
from copilot_runtime.api.agent import Agent
from copilot_runtime.api.events import (
    Event,
    Interrupt,
    RunFailed,
    TextMessageContent,
    TextMessageStart,
)
from copilot_runtime.api.identity import Caller
from copilot_runtime.api.messages import TextMessage, new_id
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.errors import RUN_FAILED, CopilotError, MissingPackage, Misuse
from copilot_runtime.base.jsonvalue import to_text
from copilot_runtime.telemetry.context import SpanContext
from copilot_runtime.telemetry.rpc import omit_tool
from copilot_runtime.telemetry.span import find_current_span
from copilot_runtime.transports.program_runs import ProgramRuns

if TYPE_CHECKING:
    from mcp.server import Server
    from mcp.server.context import ServerRequestContext
    from mcp_types import (
        CallToolRequestParams,
        CallToolResult,
        ListToolsResult,
        Tool,
    )


ASK = "ask_"
"""The prefix of an agent's tool."""

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
"""Tool names that the protocol allows."""

_MESSAGE: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "message": {
            "type": "string",
            "description": "The question or the task. The agent knows nothing else of this chat.",
        }
    },
    "required": ["message"],
    "additionalProperties": False,
}


def build_tools(actions: Sequence[Action], agents: Mapping[str, Agent]) -> "list[Tool]":
    """Return a tool for each action and each agent, in the order of their names."""
    from mcp_types import Tool

    found: dict[str, Tool] = {}
    for action in actions:
        schema = {**action.parameters, "type": "object"}
        found[action.name] = Tool(
            name=action.name, description=action.description, input_schema=schema
        )
    for name, agent in agents.items():
        described = agent.description or f"Ask the agent {name}."
        tool = Tool(name=f"{ASK}{name}", description=described, input_schema={**_MESSAGE})
        found.setdefault(tool.name, tool)
    named = sorted(name for name in found if _NAME.fullmatch(name))
    for name in found.keys() - set(named):
        logger.warning("%r is no name for a tool of MCP; it is left out.", name)
    return [found[name] for name in named]


logger = logging.getLogger(__name__)

CALLER = "copilot_runtime.caller"
"""The key of the caller in the ASGI scope of an MCP request."""

THREAD = "x-thread-id"
"""The header in which an agent states the thread that it works in, by its own identifier."""


async def serve_pipes(program_runs: ProgramRuns, owner: Caller) -> None:
    """Serve the protocol over stdin and stdout until the client closes them.

    The client is the program that started this process, such as an editor.
    """
    server = build_server(program_runs, owner)
    from mcp.server.stdio import stdio_server

    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def build_server(program_runs: ProgramRuns, owner: Caller | None = None) -> "Server[Any]":
    """Return the server, for any transport of the protocol. Raises `MissingPackage`.

    `owner` is the caller of requests that do not come over HTTP.
    """
    owner = owner or Caller()
    try:
        from mcp.server import Server
        from mcp_types import ListToolsResult

        from copilot_runtime.extensions.mcp.server.tracing import SpanMiddleware
    except ImportError as error:
        raise MissingPackage("An MCP server", "mcp", "mcp") from error

    async def list_tools(context: "ServerRequestContext[Any]", params: Any) -> "ListToolsResult":
        del params  # there is a single page
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
        except Exception:  # any error of hooks and agents: details stay in the log
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
    if telemetry.is_recording:  # replaces the package's middleware: both would trace requests
        server.middleware = [SpanMiddleware(telemetry, _find_parent)]
    return server


@dataclass(frozen=True, slots=True)
class _Tool:
    """A call of a tool."""

    program_runs: ProgramRuns
    caller: Caller
    name: str
    arguments: Mapping[str, Any]
    thread: str

    async def call(self, progress: Callable[..., Any]) -> "CallToolResult":
        """Return the tool's result. Raises `CopilotError` if the tool could not be called."""
        agent = self.name.removeprefix(ASK)
        if agent != self.name and not await self._is_action():
            return await self._ask(agent, progress)
        call = (self.caller, self.name, self.arguments, "tools/call")
        return build_result(await self.program_runs.call(*call, thread=self.thread))

    async def exists(self) -> bool:
        """Return whether the caller may call a tool of this name.

        False if listing the tools fails.
        """
        try:
            agents = await self.program_runs.agents(self.caller)
            return self.name in map(ASK.__add__, agents) or await self._is_action()
        except Exception:  # any error of the application's lists
            return False

    async def _is_action(self) -> bool:
        """Return whether an action has this name; actions take precedence over agents."""
        actions = await self.program_runs.actions(self.caller)
        return any(action.name == self.name for action in actions)

    async def _ask(self, agent: str, progress: Callable[..., Any]) -> "CallToolResult":
        """Run an agent and report its text as progress. Cancelling the call stops the run."""
        run = _build_question(self.program_runs, self.caller, agent, self.arguments)
        answer = AgentAnswer()
        async with aclosing(self.program_runs.events(run)) as events:
            async for event in events:
                if piece := answer.add(event):
                    await progress(answer.length, message=piece)
                elif isinstance(event, RunFailed):
                    texts = (answer.text, event.error.message)
                    return build_text_result("\n\n".join(filter(None, texts)), is_error=True)
        return build_text_result(answer.text)


def _get_caller(context: "ServerRequestContext[Any]", owner: Caller) -> Caller:
    """Return the sender of an HTTP request, or else the owner of the process.

    Its runs become children of the request's span.
    """
    caller = owner if context.request is None else context.request.scope[CALLER]
    span = find_current_span()
    return replace(caller, parent=span.context) if span.is_recording else caller


def _find_parent(request: Any) -> SpanContext | None:
    """Return the span that the headers of a request name."""
    return None if request is None else request.scope[CALLER].parent


def _get_thread(request: Any) -> str:
    """Return the thread that an agent of this runtime states in a header, or an empty string."""
    return "" if request is None else request.headers.get(THREAD, "")


def _build_question(
    program_runs: ProgramRuns, caller: Caller, agent: str, arguments: Mapping[str, Any]
) -> RunInput:
    """Return the run for a question to an agent. Raises `Misuse` if the question is empty."""
    text = arguments.get("message")
    if not isinstance(text, str) or not text.strip():
        raise Misuse("The argument `message` must be a text.")
    messages = [TextMessage(id=new_id(), role="user", content=text)]
    return program_runs.build_run(caller, agent=agent, messages=messages, operation="tools/call")


def build_text_result(text: str, *, is_error: bool = False) -> "CallToolResult":
    """Return a text result."""
    from mcp_types import CallToolResult, TextContent

    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=is_error)


def build_result(result: str) -> "CallToolResult":
    """Return an action's result, or the reason why it failed."""
    failure = parse_failure(result)
    return build_text_result(result if failure is None else failure, is_error=failure is not None)


class AgentAnswer:
    """Collects the texts and interrupts of an agent's answer."""

    def __init__(self) -> None:
        self._texts: dict[str, list[str]] = {}
        self._questions: list[str] = []
        self.length = 0
        """Number of characters so far."""

    def add(self, event: Event) -> str:
        """Process an event, and return the text that it adds to the answer."""
        match event:
            case TextMessageStart(message_id=id, role="assistant"):
                self._texts[id] = []
            case TextMessageContent(message_id=id, content=piece) if id in self._texts:
                self._texts[id].append(piece)
                self.length += len(piece)
                return piece
            case Interrupt():
                self._questions.append(_question(event))
            case _:
                pass
        return ""

    @property
    def text(self) -> str:
        """The complete answer."""
        texts = ["".join(pieces) for pieces in self._texts.values()]
        return "\n\n".join(filter(None, [*texts, *self._questions]))


def _question(event: Interrupt) -> str:
    question = event.message or event.value
    text = to_text(question)
    return f"The agent waits for a person, who cannot answer here: {text}"
