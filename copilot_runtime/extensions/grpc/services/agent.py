"""The services that execute: agents and the plain chat, plans, and tools."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from copilot_runtime.api.events import (
    Event,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
    Usage,
)
from copilot_runtime.api.messages import TextMessage
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.api.transcript import fold_messages
from copilot_runtime.base.batches import split_batches
from copilot_runtime.base.errors import AgentNotFound, ConfigurationFailed, Misuse
from copilot_runtime.extensions.grpc.protos import agent_pb2, plan_pb2, tool_pb2
from copilot_runtime.extensions.grpc.runs import build_request, collect_run, follow_run
from copilot_runtime.extensions.grpc.service import (
    Call,
    RpcMethod,
    RpcService,
    build_struct,
    check_text,
    read_struct,
)
from copilot_runtime.extensions.planner.agent import PlannerAgent
from copilot_runtime.extensions.planner.http.access import PlanAccess
from copilot_runtime.transports.agui.encode import Dialect, Encoder
from copilot_runtime.transports.agui.handlers import AgentNames
from copilot_runtime.transports.transport import Services

_EVENTS_AT_ONCE = 20
"""Events in one message: a message per event would cost twenty times as much."""
_FIELD = len(b"data: ")


class AgentService(RpcService):
    """`copilot.agent.v1.Agent`"""

    descriptor = agent_pb2.DESCRIPTOR.services_by_name["Agent"]

    def __init__(self, services: Services) -> None:
        self._runs = services.program_runs
        self._conversations = services.runs
        self._names = AgentNames(services.runs, chat=services.serves_chat)
        self._most = services.settings.max_messages

    def list_methods(self) -> Mapping[str, RpcMethod]:
        return {
            "ProcessRequest": RpcMethod(
                run=self.process_request, scope="runs:start", starts_run=True
            ),
            "ProcessStream": RpcMethod(
                run=self.process_stream, scope="runs:start", starts_run=True
            ),
        }

    async def process_request(
        self, request: agent_pb2.ProcessRequestRequest, call: Call
    ) -> agent_pb2.ProcessRequestResponse:
        """Return the complete answer. Cancelling the call stops the run."""
        run = await self._build(request, call, "ProcessRequest")
        events = await collect_run(self._conversations, run)
        return agent_pb2.ProcessRequestResponse(
            thread_id=run.thread_id,
            run_id=run.run_id,
            messages=[
                agent_pb2.Message(id=one.id, role=one.role, content=one.content)
                for one in fold_messages(events)
                if isinstance(one, TextMessage)
            ],
            usage=agent_pb2.Usage(**sum_usage(events)),
        )

    async def process_stream(
        self, request: agent_pb2.ProcessRequestRequest, call: Call
    ) -> AsyncGenerator[agent_pb2.ProcessStreamResponse, None]:
        """Yield the run's AG-UI events. Cancelling the call stops the run."""
        run = await self._build(request, call, "ProcessStream")
        encoder = Encoder(
            run.thread_id, run.run_id, agent=run.agent_name, dialect=Dialect(legacy=False)
        )
        async with aclosing(follow_run(self._conversations, run)) as batches:
            async for events in batches:
                frames = b"".join(encoder.feed(events)).split(b"\n\n")
                texts = [frame[_FIELD:].decode() for frame in frames if frame]
                for part in split_batches(texts, _EVENTS_AT_ONCE):
                    yield agent_pb2.ProcessStreamResponse(events=part)

    async def _build(
        self, request: agent_pb2.ProcessRequestRequest, call: Call, operation: str
    ) -> RunInput:
        """Return the run of a request. Raises `Misuse`, and `AgentNotFound` with all names."""
        messages: Any = request.messages
        run = await build_request(
            self._runs,
            call,
            messages,
            operation=operation,
            most=self._most,
            agent=request.agent,
            thread_id=request.thread_id,
        )
        if run.agent is not None:
            agents = await self._names.agents(call.caller)
            if run.agent not in agents:
                raise AgentNotFound(run.agent, agents)
        return run


def sum_usage(events: Sequence[Event]) -> Mapping[str, int]:
    """Return the token counts of all model calls of a run."""
    found = [event for event in events if isinstance(event, Usage)]
    prompt = sum(event.input_tokens or 0 for event in found)
    completion = sum(event.output_tokens or 0 for event in found)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }


class PlanService(RpcService):
    """`copilot.plan.v1.Plan`"""

    descriptor = plan_pb2.DESCRIPTOR.services_by_name["Plan"]

    def __init__(self, services: Services) -> None:
        if services.parts.find(PlanAccess) is None:
            raise ConfigurationFailed(
                "grpc.services names 'plan', and no agent plans.",
                hint="Set planner.name, such as planner.",
            )
        self._runs = services.program_runs
        self._conversations = services.runs

    def list_methods(self) -> Mapping[str, RpcMethod]:
        return {"Process": RpcMethod(run=self.process, scope="runs:start", starts_run=True)}

    async def process(
        self, request: plan_pb2.ProcessRequest, call: Call
    ) -> AsyncGenerator[plan_pb2.ProcessResponse, None]:
        """Yield the messages of a plan, each when it is complete."""
        if not request.content.strip():
            raise Misuse("Write into content what shall be done.")
        message: Any = plan_pb2.Message(role="user", content=request.content)
        run = await build_request(
            self._runs,
            call,
            [message],
            operation="Process",
            most=1,
            agent=await self._choose(request.agent, call),
            thread_id=request.thread_id,
        )
        texts = _Texts()
        async with aclosing(follow_run(self._conversations, run)) as batches:
            async for events in batches:
                if found := texts.feed(events):
                    yield plan_pb2.ProcessResponse(messages=found)

    async def _choose(self, name: str, call: Call) -> str:
        """Return the name of a planning agent. Raises `Misuse`."""
        agents = await self._conversations.agents_for(call.caller)
        planners = [one for one, agent in agents.items() if isinstance(agent, PlannerAgent)]
        if name in planners:
            return name
        if name or len(planners) != 1:
            raise Misuse(f"agent is one of those that plan: {', '.join(planners) or 'none'}.")
        return planners[0]


class _Texts:
    """Joins the chunks of messages."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[str, list[str]]] = {}

    def feed(self, events: Sequence[Event]) -> list[plan_pb2.Message]:
        """Process events, and return the messages that are now complete."""
        found: list[plan_pb2.Message] = []
        for event in events:
            match event:
                case TextMessageStart(message_id=id, role=role):
                    self._open[id] = (role, [])
                case TextMessageContent(message_id=id, content=piece) if id in self._open:
                    self._open[id][1].append(piece)
                case TextMessageEnd(message_id=id) if id in self._open:
                    role, pieces = self._open.pop(id)
                    found.append(plan_pb2.Message(id=id, role=role, content="".join(pieces)))
                case _:
                    pass
        return found


class ToolService(RpcService):
    """`copilot.tool.v1.Tool`"""

    descriptor = tool_pb2.DESCRIPTOR.services_by_name["Tool"]

    def __init__(self, services: Services) -> None:
        self._runs = services.program_runs

    def list_methods(self) -> Mapping[str, RpcMethod]:
        return {
            "CallTool": RpcMethod(run=self.call_tool, scope="runs:start", starts_run=True),
            "ListTools": RpcMethod(run=self.list_tools, scope="runs:start"),
        }

    async def call_tool(
        self, request: tool_pb2.CallToolRequest, call: Call
    ) -> tool_pb2.CallToolResponse:
        """Call a tool on behalf of the caller. Cancelling the call cancels the tool."""
        if not request.name:
            raise Misuse("Name a tool, such as one that ListTools returns.")
        content = await self._runs.call(
            call.caller,
            check_text("name", request.name, 200),
            read_struct(request.arguments),
            "CallTool",
            thread=check_text("thread_id", request.thread_id, 1000),
        )
        return tool_pb2.CallToolResponse(content=content)

    async def list_tools(
        self,
        request: tool_pb2.ListToolsRequest,  # noqa: ARG002
        call: Call,
    ) -> tool_pb2.ListToolsResponse:
        """Return the tools that the caller may call, by their names."""
        actions = await self._runs.actions(call.caller)
        tools = [
            tool_pb2.ToolDefinition(
                type="function",
                function=tool_pb2.Function(
                    name=action.name,
                    description=action.description,
                    parameters=build_struct({**action.parameters, "type": "object"}),
                ),
            )
            for action in sorted(actions, key=lambda one: one.name)
        ]
        return tool_pb2.ListToolsResponse(tools=tools)
