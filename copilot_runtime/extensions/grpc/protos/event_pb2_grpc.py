"""The client stub of the event service."""

from copilot_runtime.extensions.grpc.protos import event_pb2
from copilot_runtime.extensions.grpc.stub import Stub


class EventStub(Stub):
    descriptor = event_pb2.DESCRIPTOR.services_by_name["Event"]
