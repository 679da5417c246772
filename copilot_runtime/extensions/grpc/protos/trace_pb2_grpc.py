"""The client stub of the trace service."""

from copilot_runtime.extensions.grpc.protos import trace_pb2
from copilot_runtime.extensions.grpc.stub import Stub


class TraceStub(Stub):
    descriptor = trace_pb2.DESCRIPTOR.services_by_name["Trace"]
