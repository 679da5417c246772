"""The client stub of the tool service."""

from copilot_runtime.extensions.grpc.protos import tool_pb2
from copilot_runtime.extensions.grpc.stub import Stub


class ToolStub(Stub):
    descriptor = tool_pb2.DESCRIPTOR.services_by_name["Tool"]
