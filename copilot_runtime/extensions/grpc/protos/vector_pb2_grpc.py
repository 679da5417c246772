"""The client stub of the vector service."""

from copilot_runtime.extensions.grpc.protos import vector_pb2
from copilot_runtime.extensions.grpc.stub import Stub


class VectorStub(Stub):
    descriptor = vector_pb2.DESCRIPTOR.services_by_name["Vector"]
