"""The client stub of the graph service."""

from copilot_runtime.extensions.grpc.protos import graph_pb2
from copilot_runtime.extensions.grpc.stub import Stub


class GraphStub(Stub):
    descriptor = graph_pb2.DESCRIPTOR.services_by_name["Graph"]
