"""The client stub of the llm service."""

from copilot_runtime.extensions.grpc.protos import llm_pb2
from copilot_runtime.extensions.grpc.stub import Stub


class LlmStub(Stub):
    descriptor = llm_pb2.DESCRIPTOR.services_by_name["Llm"]
