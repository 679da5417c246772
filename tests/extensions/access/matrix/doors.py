"""Lists the doors of a runtime, from the application itself: whatever it answers to has a name."""

import ast
import inspect
from collections.abc import Callable, Iterator, Mapping
from textwrap import dedent
from typing import Any

from a2a.server.routes.jsonrpc_dispatcher import JsonRpcDispatcher
from grpc_health.v1.health import SERVICE_NAME as HEALTH
from grpc_reflection.v1alpha.reflection import SERVICE_NAME as REFLECTION
from starlette.routing import WebSocketRoute

from copilot_runtime import CopilotRuntime
from copilot_runtime.app.extension import OffPage
from copilot_runtime.extensions import SCHEMAS
from copilot_runtime.extensions.grpc.server import GrpcServer
from copilot_runtime.extensions.knowledge.http import KnowledgeEndpoint
from copilot_runtime.extensions.mcp.server.server import build_server
from copilot_runtime.transports.agui import routes as agui
from copilot_runtime.transports.graphql.schema import core_schema
from copilot_runtime.transports.transport import Transport
from tests.extensions.access.matrix.callers import BASE

Names = Iterator[str]


def list_doors(runtime: CopilotRuntime, app: Any) -> list[str]:
    """Return the names of all doors: routes, operations of protocols, methods over gRPC."""
    names = [*_list_routes(app)]
    for transport in runtime.transports:
        expand = _EXPANDED.get(type(transport).__name__)
        names += _list_patterns(transport) if expand is None else expand(runtime, transport)
    names += [f"POST {path}" for path in _list_plain(runtime)]
    if (grpc := runtime.find(GrpcServer)) is not None:
        names += _list_grpc(grpc)
    return sorted(dict.fromkeys(names))


def _list_routes(app: Any) -> Names:
    """Yield the routes of the application; what its router takes whole is told by transports."""
    for route in app.router.routes:
        path: str = getattr(route, "path", "")
        if path in (BASE, f"{BASE}/", f"{BASE}/{{rest:path}}") or isinstance(route, OffPage):
            continue
        below = path.removeprefix(f"{BASE}/") if path.startswith(f"{BASE}/") else path
        methods = getattr(route, "methods", None) or {type(route).__name__}
        kind = {"WEBSOCKET"} if isinstance(route, WebSocketRoute) else methods - {"HEAD"}
        yield from (f"{method} {below}" for method in kind or {"HEAD"})


def _list_patterns(transport: Transport) -> Names:
    """Yield paths of a transport that has no typed routes for them and no list of its own."""
    typed = [getattr(route, "path", "") for route in transport.routes("", _nowhere)]
    for pattern in transport.paths:
        first = pattern.partition("/{")[0]
        if not any(path.lstrip("/").startswith(first) for path in typed):
            yield f"{type(transport).__name__} {pattern}"


async def _nowhere(*_: Any) -> None:
    pass


def _list_plain(runtime: CopilotRuntime) -> Names:
    """Yield paths that have one method, and no types in the description."""
    for transport in runtime.transports:
        if type(transport).__name__ in ("RemoteServer", "OtlpEndpoint"):
            yield from transport.paths


def _list_agui(runtime: CopilotRuntime, transport: Transport) -> Names:
    del runtime
    for path, methods in agui.REST_ROUTES.items():
        yield from (f"{method} {path}" for method in methods)
    table: Mapping[str, str] = vars(agui)["_BY_METHOD"]
    yield from (f"envelope {method}" for method in (*table, "resource/request"))
    yield "POST a run"
    known = [path.partition("/")[0] for path in agui.REST_ROUTES]
    yield from (
        f"ANY {path}" for path in transport.paths if path and path.partition("/")[0] not in known
    )


def _list_graphql(runtime: CopilotRuntime, transport: Transport) -> Names:
    del runtime, transport
    schema = core_schema(tuple(SCHEMAS.values()))
    kinds = {
        "query": schema.query_type,
        "mutation": schema.mutation_type,
        "subscription": schema.subscription_type,
    }
    for kind, root in kinds.items():
        assert root is not None
        for name, field in root.fields.items():
            yield f"{kind} {name}"
            inner: Any = field.type.of_type if hasattr(field.type, "of_type") else field.type
            if name == "analyst":
                yield from (f"{kind} {name}.{one}" for one in inner.fields)
    yield "GET ?query="


def _list_mcp(runtime: CopilotRuntime, transport: Transport) -> Names:
    del transport
    handlers: Mapping[str, Any] = vars(build_server(runtime.program_runs))["_request_handlers"]
    yield from (f"mcp {method}" for method in handlers)
    yield from ("mcp initialize", "GET mcp", "DELETE mcp")


def _list_a2a(runtime: CopilotRuntime, transport: Transport) -> Names:
    del runtime
    yield from (f"a2a {method}" for method in JsonRpcDispatcher.METHOD_TO_MODEL)
    yield from (f"GET {path}" for path in transport.paths if "{" not in path)
    yield "GET a2a/{agent}/.well-known/agent-card.json"
    dispatcher: Any = vars(transport)["_dispatcher"]
    for route in vars(dispatcher)["_routes"]:
        yield from (f"a2a {method} {route.path}" for method in route.methods - {"HEAD"})


def _list_knowledge(runtime: CopilotRuntime, transport: Transport) -> Names:
    """Yield what the source of the endpoint tells apart: it has no typed routes."""
    del runtime, transport
    tree = ast.parse(dedent(inspect.getsource(KnowledgeEndpoint.__call__)))
    for case in (node for node in ast.walk(tree) if isinstance(node, ast.match_case)):
        values = [node.value for node in ast.walk(case.pattern) if isinstance(node, ast.Constant)]
        if values:
            below = "/{id}" if len(values) == 1 else ""
            yield f"GET knowledge/{values[0]}{below}".rstrip("/")
    yield from ("POST knowledge/files", "POST knowledge/context/{id}")


def _nothing(runtime: CopilotRuntime, transport: Transport) -> Names:
    del runtime, transport
    yield from ()


_EXPANDED: Mapping[str, Callable[[CopilotRuntime, Transport], Names]] = {
    "A2aEndpoint": _list_a2a,
    "AguiEndpoint": _list_agui,
    "GraphQLEndpoint": _list_graphql,
    "KnowledgeEndpoint": _list_knowledge,
    "McpEndpoint": _list_mcp,
    "OtlpEndpoint": _nothing,
    "RemoteServer": _nothing,
}


def _list_grpc(server: Any) -> Names:
    for service in server.services:
        yield from (
            f"grpc {service.descriptor.full_name}/{name}" for name in service.list_methods()
        )
    yield from (f"grpc {HEALTH}/Check", f"grpc {HEALTH}/Watch")
    yield f"grpc {REFLECTION}/ServerReflectionInfo"
