"""The agent service: questions to agents, and to the plain chat."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from copilot_runtime.api.events import Event, Usage
from copilot_runtime.api.messages import TextMessage
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.api.transcript import fold_messages
from copilot_runtime.base.batches import split_batches
from copilot_runtime.base.errors import AgentNotFound
from copilot_runtime.extensions.grpc.protos import agent_pb2
from copilot_runtime.extensions.grpc.runs import build_request, collect_run, follow_run
from copilot_runtime.extensions.grpc.service import Call, RpcMethod, RpcService
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
