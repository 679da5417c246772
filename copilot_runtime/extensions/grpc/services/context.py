"""The context service: context windows of conversations."""

from collections.abc import Mapping

from copilot_runtime.extensions.grpc.protos import context_pb2
from copilot_runtime.extensions.grpc.service import (
    Call,
    RpcMethod,
    RpcService,
    require_knowledge,
)
from copilot_runtime.extensions.grpc.services.memory import identify_conversation
from copilot_runtime.transports.transport import Services


class ContextService(RpcService):
    """`copilot.context.v1.Context`"""

    descriptor = context_pb2.DESCRIPTOR.services_by_name["Context"]

    def __init__(self, services: Services) -> None:
        self._knowledge = require_knowledge(services, "context")

    def list_methods(self) -> Mapping[str, RpcMethod]:
        return {
            "GetWindow": RpcMethod(run=self.get_window, scope="data:read"),
            "OptimizeWindow": RpcMethod(run=self.optimize_window, scope="data:write"),
        }

    async def get_window(
        self, request: context_pb2.GetWindowRequest, call: Call
    ) -> context_pb2.Window:
        """Return the resources of a conversation, the oldest first."""
        uri, actor = identify_conversation(call, "", request.id)
        window = await self._knowledge.get_window(uri, actor=actor)
        resources = [
            context_pb2.Resource(
                id=one.uri,
                type=one.id.type,
                role=one.role,
                tokens=one.id.tokens or 0,
                content=one.content,
            )
            for one in window.resources
        ]
        return context_pb2.Window(id=window.id, tokens=window.tokens, resources=resources)

    async def optimize_window(
        self, request: context_pb2.OptimizeWindowRequest, call: Call
    ) -> context_pb2.OptimizeWindowResponse:
        """Reduce a window until it fits its budget."""
        uri, actor = identify_conversation(call, "", request.id)
        budget = request.budget if request.HasField("budget") else None
        result = await self._knowledge.optimize_window(uri, budget, actor=actor)
        return context_pb2.OptimizeWindowResponse(
            successful=result.successful, optimized=result.optimized
        )
