"""The client stub of the context service."""

from copilot_runtime.extensions.grpc.protos import context_pb2
from copilot_runtime.extensions.grpc.stub import Stub


class ContextStub(Stub):
    descriptor = context_pb2.DESCRIPTOR.services_by_name["Context"]
