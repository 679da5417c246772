"""The client stub of the memory service."""

from copilot_runtime.extensions.grpc.protos import memory_pb2
from copilot_runtime.extensions.grpc.stub import Stub


class MemoryStub(Stub):
    descriptor = memory_pb2.DESCRIPTOR.services_by_name["Memory"]
