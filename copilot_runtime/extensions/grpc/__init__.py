"""The services of a runtime over gRPC: https://grpc.io. Needs the extra `grpc`."""

from collections.abc import Iterable

_HERE = "copilot_runtime.extensions.grpc.services"

RPC_SERVICES = {
    "agent": f"{_HERE}.agent:AgentService",
    "context": f"{_HERE}.context:ContextService",
    "event": f"{_HERE}.event:EventService",
    "graph": f"{_HERE}.graph:GraphService",
    "llm": f"{_HERE}.llm:LlmService",
    "memory": f"{_HERE}.memory:MemoryService",
    "plan": f"{_HERE}.plan:PlanService",
    "tool": f"{_HERE}.tool:ToolService",
    "trace": f"{_HERE}.trace:TraceService",
    "vector": f"{_HERE}.vector:VectorService",
}
"""Name in the setting `grpc.services` → import string of a class that is built from `Services`."""

_WITHOUT_MODEL = frozenset({"context", "event", "graph", "memory", "tool", "trace", "vector"})


def asks_model(names: Iterable[str]) -> bool:
    """Return whether services may call the runtime's model; services of applications may."""
    return not _WITHOUT_MODEL.issuperset(names)
