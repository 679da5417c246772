"""The plan service: creates a plan for a message, and executes it."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from copilot_runtime.api.events import (
    Event,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
)
from copilot_runtime.base.errors import ConfigurationFailed, Misuse
from copilot_runtime.extensions.grpc.protos import plan_pb2
from copilot_runtime.extensions.grpc.runs import build_request, follow_run
from copilot_runtime.extensions.grpc.service import Call, RpcMethod, RpcService
from copilot_runtime.extensions.planner.agent import PlannerAgent
from copilot_runtime.extensions.planner.http.access import PlanAccess
from copilot_runtime.transports.transport import Services


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
