"""Offer tools of MCP servers that have user interfaces, and execute their calls."""

import json
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from copilot_runtime.api.action import Action, ActionContext
from copilot_runtime.api.agent import Agent, Middleware
from copilot_runtime.api.events import (
    ActionExecutionArgs,
    ActionExecutionEnd,
    ActionExecutionResult,
    ActionExecutionStart,
    Activity,
    Events,
    Interrupt,
    RunFinished,
)
from copilot_runtime.api.messages import new_uuid
from copilot_runtime.api.run_input import RunInput, wait_for_storage
from copilot_runtime.base.errors import CopilotError
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.base.jsonvalue import JsonObject, as_list, as_objects, as_text
from copilot_runtime.extensions.generative_ui.mcp_apps.proxy import AppProxy
from copilot_runtime.extensions.generative_ui.mcp_apps.servers import AppServers, describe_server
from copilot_runtime.extensions.generative_ui.mcp_apps.tokens import LoadSecret
from copilot_runtime.extensions.generative_ui.options import McpApps
from copilot_runtime.extensions.mcp.client.server import McpAllowlist
from copilot_runtime.telemetry import NO_TELEMETRY, Span, Telemetry, trace_block
from copilot_runtime.telemetry.rpc import describe_mcp_call, start_mcp_client_span

if TYPE_CHECKING:
    from copilot_runtime.extensions.generative_ui.mcp_apps.tools import UiTool

ACTIVITY = "mcp-apps"

_FAILED = "The tool could not be called."
_TOOL_ERROR = "tool_error"

logger = logging.getLogger(__name__)


class McpAppsMiddleware(Middleware):
    """Gives agents the MCP tools whose results are displayed in frames.

    `proxy` handles the requests of frames to their servers.
    """

    def __init__(
        self,
        options: McpApps,
        allowed: McpAllowlist | None = None,
        load_secret: LoadSecret | None = None,
        telemetry: Telemetry = NO_TELEMETRY,
    ) -> None:
        self.options = options
        self.servers = AppServers(options, allowed, load_secret, telemetry)
        self.proxy = AppProxy(self.servers)

    def wrap(self, agent: Agent, run: RunInput) -> Agent:
        """Return the agent with the tools of its servers, or the agent itself if it has none."""
        if not self.servers.list_servers(run):
            return agent
        return McpAppsAgent(agent, self.servers)

    async def aclose(self) -> None:
        """Close the sessions with the servers."""
        await self.servers.aclose()


class McpAppsAgent(Agent):
    """An agent that may call tools with user interfaces.

    Agents that execute actions themselves read the results in the same run. For other agents, calls
    without a result are executed at the end of the run. The app follows the result.
    """

    def __init__(self, agent: Agent, servers: AppServers) -> None:
        self.agent = agent
        self.executes_actions = agent.executes_actions
        self._servers = servers

    def check(self, run: RunInput) -> None:
        """Raise the errors of the agent that do not depend on a request."""
        self.agent.check(run)

    async def run(self, run: RunInput) -> Events:
        """Yield the events of the agent, the results of its calls, and their apps."""
        tools = _choose_tools(await self._servers.load_tools(run), run.actions)
        calls = _AppCalls(self._servers, run, tools)
        actions = [calls.build_action(tool, self.executes_actions) for tool in tools.values()]
        others = [action for action in run.actions if action.name not in tools]
        last: RunFinished | None = None
        sub_run = replace(run, actions=[*others, *actions])
        async with aclosing(self.agent.run(sub_run)) as events:
            async for event in events:
                match event:
                    case RunFinished():
                        last = event
                        break
                    case ActionExecutionResult(call_id=call_id):
                        yield event
                        calls.close(call_id)
                        if (app := calls.take_app(call_id)) is not None:
                            yield app
                    case ActionExecutionStart(call_id=call_id, name=name) if name in tools:
                        calls.open(call_id, name)
                        yield event
                    case ActionExecutionArgs(call_id=call_id, delta=delta):
                        calls.extend(call_id, delta)
                        yield event
                    case ActionExecutionEnd(call_id=call_id):
                        calls.complete(call_id)
                        yield event
                    case Interrupt(call_id=str(call_id)):
                        calls.close(call_id)
                        yield event
                    case _:
                        yield event
        async with aclosing(calls.answer_all()) as answers:
            async for answer in answers:
                yield answer
        if last is not None:
            yield last


def _choose_tools(
    tools: "Mapping[str, UiTool]", actions: Sequence[Action]
) -> "Mapping[str, UiTool]":
    """Return the tools to offer: an action of the same name takes precedence.

    An exception is an action that is the same tool of the same server.
    """
    servers = {action.name: action.mcp_server or None for action in actions}
    return {
        name: tool
        for name, tool in tools.items()
        if name not in servers or servers[name] == tool.server.server.url
    }


class _AppCalls:
    """The calls of a run to tools with user interfaces."""

    def __init__(self, servers: AppServers, run: RunInput, tools: "Mapping[str, UiTool]") -> None:
        self._servers = servers
        self._run = run
        self._tools = tools
        self._pending: dict[str, tuple[UiTool, list[str]]] = {}
        self._complete: set[str] = set()
        self._apps: dict[str, Activity] = {}

    def build_action(self, tool: "UiTool", executes_actions: bool) -> Action:
        """Return a tool as an action for the agent."""

        async def run(values: Mapping[str, Any], context: ActionContext) -> Any:
            server = tool.server.server
            context.span.set_attributes(describe_mcp_call(server.label, server.url))
            return await self._call(tool, context.call_id, values, context.span)

        return Action(
            name=tool.name,
            description=f"{tool.description}\n[UI Resource: {tool.uri}]",
            parameters=tool.parameters,
            run=run if executes_actions else None,
            mcp_server=tool.server.server.url,
            origin=tool.server.server.label,
        )

    def open(self, call_id: str, name: str) -> None:
        self._pending[call_id] = (self._tools[name], [])

    def extend(self, call_id: str, delta: str) -> None:
        if (call := self._pending.get(call_id)) is not None:
            call[1].append(delta)

    def complete(self, call_id: str) -> None:
        if call_id in self._pending:
            self._complete.add(call_id)

    def close(self, call_id: str) -> None:
        """Drop a call that already has a result or waits for a person."""
        self._pending.pop(call_id, None)

    def take_app(self, call_id: str) -> Activity | None:
        return self._apps.pop(call_id, None)

    async def answer_all(self) -> AsyncGenerator[ActionExecutionResult | Activity, None]:
        """Execute the calls without a result one after the other, and yield their results."""
        for call_id, (tool, pieces) in self._pending.items():
            if call_id not in self._complete:
                continue
            server = tool.server.server
            with trace_block(
                start_mcp_client_span(self._run.span, server.label, server.url, "tools/call")
            ) as span:
                result = await self._answer(tool, call_id, "".join(pieces), span)
            text = result if isinstance(result, str) else dumps(result).decode()
            yield ActionExecutionResult(
                call_id=call_id, name=tool.name, result=text, message_id=new_uuid()
            )
            if (app := self.take_app(call_id)) is not None:
                yield app

    async def _answer(self, tool: "UiTool", call_id: str, arguments: str, span: Span) -> Any:
        """Execute a call with the given JSON arguments, and return the result for the model."""
        try:
            # some models send null or an empty string for no arguments
            values: Any = json.loads(arguments or "{}") or {}
        except (ValueError, RecursionError):
            values = None
        if not isinstance(values, dict):
            return {"error": "The arguments of the call are no JSON object."}
        await wait_for_storage()
        return await self._call(tool, call_id, cast(JsonObject, values), span)

    async def _call(
        self, tool: "UiTool", call_id: str, values: Mapping[str, Any], span: Span
    ) -> Any:
        """Call a tool and return the result for the model; store the app's activity."""
        try:
            token = await self._servers.build_token(tool.server, self._run)
            result = await self._servers.call_tool(tool.server, tool.tool, values, self._run)
        except (CopilotError, TimeoutError, OSError) as error:
            # error details of a server are neither for models nor for frontends
            logger.warning(
                "The MCP app %r of %s failed: %s",
                *(tool.name, describe_server(tool.server), error or "It took too long."),
            )
            span.fail(error)
            return {"error": _FAILED}
        if result.get("isError") is True:
            span.fail(_TOOL_ERROR)
        content: JsonObject = {
            "result": result,
            "resourceUri": tool.uri,
            "serverHash": token,
            "toolInput": {**values},
        }
        if tool.server.id:
            content["serverId"] = tool.server.id
        self._apps[call_id] = Activity(
            message_id=new_uuid(), activity_type=ACTIVITY, content=content
        )
        parts: Sequence[JsonObject] = as_objects(result.get("content"))
        texts = [as_text(part.get("text")) for part in parts if part.get("type") == "text"]
        return "\n".join(texts) or as_list(result.get("content"))
