"""Rows of the methods of gRPC."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from google.protobuf.descriptor_pool import Default
from google.protobuf.json_format import ParseDict
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from tests.extensions.access.matrix.callers import Asker, Reply
from tests.extensions.access.matrix.rows.asks import Kind, Row, insert_ids
from tests.extensions.access.matrix.world import Things


def call(method: str, /, kind: Kind = "own", *, changes: bool = False, **given: Any) -> Row:
    """Return a call by the full name of a method, with a message of these fields."""

    async def ask(asker: Asker, things: Things) -> Reply:
        return await asker.call(method, _build_message(method, insert_ids(given, things)))

    return Row(ask, "", kind, changes)


def _build_message(method: str, given: Any) -> bytes:
    service, _, name = method.partition("/")
    pool: Any = Default()
    found = pool.FindServiceByName(service).methods_by_name[name].input_type
    message: Message = GetMessageClass(found)()
    return ParseDict(given, message).SerializeToString()


def ours(name: str, /, kind: Kind = "own", *, changes: bool = False, **given: Any) -> Row:
    """Return a call of one of our services, such as `tool.Tool/ListTools`."""
    package, _, rest = name.partition(".")
    import_module(f"copilot_runtime.extensions.grpc.protos.{package}_pb2")
    return call(f"copilot.{package}.v1.{rest}", kind, changes=changes, **given)


SAID = [{"role": "user", "content": "Hi"}]
TALK: dict[str, Any] = {"messages": SAID, "threadId": "<thread>"}
NOTE: dict[str, Any] = {"detailType": "NOTE", "source": "shop", "resources": ["<conversation>"]}
ITEMS: dict[str, Any] = {
    "resourceId": "<conversation>",
    "identifiers": [{"uri": "common.Message.m2", "tokens": 5}],
}
PLAN: dict[str, Any] = {"content": "Hi", "agent": "planner", "threadId": "<thread>"}
TOOL: dict[str, Any] = {
    "name": "search_content",
    "arguments": {"input": "mat"},
    "threadId": "<thread>",
}

_OURS: Mapping[str, Row] = {
    "agent.Agent/ProcessRequest": ours("agent.Agent/ProcessRequest", changes=True, **TALK),
    "agent.Agent/ProcessStream": ours("agent.Agent/ProcessStream", changes=True, **TALK),
    "context.Context/GetWindow": ours("context.Context/GetWindow", id="<conversation>"),
    "context.Context/OptimizeWindow": ours(
        "context.Context/OptimizeWindow", changes=True, id="<conversation>"
    ),
    "event.Event/Publish": ours("event.Event/Publish", changes=True, **NOTE),
    "event.Event/Subscribe": ours("event.Event/Subscribe", prefix="<conversation>", after="0"),
    "graph.Graph/GetOntology": ours("graph.Graph/GetOntology"),
    "graph.Graph/QueryByPattern": ours("graph.Graph/QueryByPattern"),
    "llm.Llm/CreateCompletions": ours("llm.Llm/CreateCompletions", messages=SAID),
    "llm.Llm/CreateEmbeddings": ours("llm.Llm/CreateEmbeddings", input=["Hi"]),
    "memory.Memory/AppendMemory": ours("memory.Memory/AppendMemory", changes=True, **ITEMS),
    "memory.Memory/GetWindow": ours(
        "memory.Memory/GetWindow", resourceId="<conversation>", budget=100
    ),
    "plan.Plan/Process": ours("plan.Plan/Process", changes=True, **PLAN),
    "tool.Tool/CallTool": ours("tool.Tool/CallTool", **TOOL),
    "tool.Tool/ListTools": ours("tool.Tool/ListTools"),
    "trace.Trace/FlushTraces": ours("trace.Trace/FlushTraces", "operator"),
    "trace.Trace/QuerySpans": ours("trace.Trace/QuerySpans", "operator", traceId="<trace>"),
    "trace.Trace/RecordSpan": ours("trace.Trace/RecordSpan", "operator", changes=True),
    "vector.Vector/SearchContent": ours("vector.Vector/SearchContent", input=["mat key file"]),
}
_REFLECTION = "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"

GRPC_ROWS: Mapping[str, Row] = {
    **{f"grpc copilot.{name.replace('.', '.v1.', 1)}": row for name, row in _OURS.items()},
    "grpc grpc.health.v1.Health/Check": call("grpc.health.v1.Health/Check", "public"),
    "grpc grpc.health.v1.Health/Watch": call("grpc.health.v1.Health/Watch", "public"),
    f"grpc {_REFLECTION}": call(_REFLECTION, "public", listServices="*"),
}
"""Our services, health and reflection."""
