"""The client stub of the agent service."""

from copilot_runtime.extensions.grpc.protos import agent_pb2
from copilot_runtime.extensions.grpc.stub import Stub


class AgentStub(Stub):
    descriptor = agent_pb2.DESCRIPTOR.services_by_name["Agent"]
