"""The client stub of the plan service."""

from copilot_runtime.extensions.grpc.protos import plan_pb2
from copilot_runtime.extensions.grpc.stub import Stub


class PlanStub(Stub):
    descriptor = plan_pb2.DESCRIPTOR.services_by_name["Plan"]
