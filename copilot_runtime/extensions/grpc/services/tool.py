"""The tool service: calls the runtime's actions."""

from collections.abc import Mapping

from copilot_runtime.base.errors import Misuse
from copilot_runtime.extensions.grpc.protos import tool_pb2
from copilot_runtime.extensions.grpc.service import (
    Call,
    RpcMethod,
    RpcService,
    build_struct,
    check_text,
    read_struct,
)
from copilot_runtime.transports.transport import Services


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
