"""Tools of gRPC services, made from YAML as the catalog makes them."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message_factory import GetMessageClass
from grpc.aio import ServicerContext
from grpc_reflection.v1alpha.reflection import enable_server_reflection

from copilot_runtime.api import ActionContext, RunInput
from copilot_runtime.extensions.tools.catalog.definition import parse_tools
from copilot_runtime.extensions.tools.catalog.endpoints import Operation, References, Surroundings
from copilot_runtime.extensions.tools.catalog.grpc.endpoint import GrpcEndpoint
from copilot_runtime.extensions.tools.catalog.grpc.protos import Protos, compile_files


class Tool:
    """One tool, and the operation that it stands for."""

    def __init__(self, endpoint: GrpcEndpoint, run: RunInput, context: ActionContext) -> None:
        self.endpoint = endpoint
        self._run = run
        self._context = context

    async def load(self) -> Operation:
        (operation,) = await self.endpoint.load(self._run)
        return operation

    async def call(self, **values: Any) -> Any:
        return await (await self.load()).call(values, self._context)

    async def call_in(self, context: ActionContext, **values: Any) -> Any:
        return await (await self.load()).call(values, context)


MakeTool = Callable[..., Tool]


@pytest.fixture
async def make_tool(run: RunInput, context: ActionContext) -> AsyncGenerator[MakeTool]:
    """Return what makes a tool of one file, in the folder of the tests' `.proto` files."""
    async with AsyncExitStack() as stack:

        def make(
            text: str,
            *,
            services: Mapping[str, Any] | None = None,
            folder: Path = PROTO,
            environ: Mapping[str, str] | None = None,
        ) -> Tool:
            (definition,) = parse_tools(text, "tools.yml").values()
            surroundings = Surroundings(
                folder=folder, references=References(environ or {}), services=services or {}
            )
            options: Any = definition.options
            endpoint = GrpcEndpoint(definition, options, surroundings)
            stack.push_async_callback(endpoint.aclose)
            return Tool(endpoint, run, context)

        yield make


PROTO = Path(__file__).parent / "proto"

Context = ServicerContext[Any, Any]

Answer = Callable[[dict[str, Any], Context], Awaitable[Any]]
"""Takes a request as JSON, and returns an answer as JSON, or as the bytes that are sent."""


@dataclass
class Shop:
    """A server, its address, and what it was asked."""

    address: str
    requests: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    metadata: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    deadlines: list[float] = field(default_factory=list[float])

    def note(self, request: dict[str, Any], context: Context) -> None:
        self.requests.append(request)
        self.metadata.append(
            {name: str(value) for name, value in context.invocation_metadata() or ()}
        )
        self.deadlines.append(context.time_remaining())


_compiled: list[Protos] = []


async def compile_shop() -> Protos:
    """Return the service `shop.Shop`, compiled once."""
    if not _compiled:
        _compiled.append(await compile_files([PROTO / "shop.proto"], []))
    return _compiled[0]


@asynccontextmanager
async def serve(
    answers: Mapping[str, Answer],
    *,
    reflects: bool = False,
    credentials: grpc.ServerCredentials | None = None,
    handlers: Sequence[grpc.GenericRpcHandler] = (),
) -> AsyncGenerator[Shop]:
    """Serve methods of the service `shop.Shop` on a free port."""
    protos = await compile_shop()
    server = grpc.aio.server()
    shop = Shop("")
    service: Any = protos.pool.FindServiceByName("shop.Shop")
    methods = {
        name: _handle(service.methods_by_name[name], answer, shop)
        for name, answer in answers.items()
    }
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler("shop.Shop", methods), *handlers]
    )
    if reflects:
        enable_server_reflection(["shop.Shop"], server, protos.pool)
    if credentials is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        port = server.add_secure_port("127.0.0.1:0", credentials)
    shop.address = f"127.0.0.1:{port}"
    await server.start()
    try:
        yield shop
    finally:
        await server.stop(None)


def _handle(method: Any, answer: Answer, shop: Shop) -> "grpc.RpcMethodHandler[Any, Any]":
    request_class, reply_class = (
        GetMessageClass(method.input_type),
        GetMessageClass(method.output_type),
    )

    def encode(value: Any) -> bytes:
        if isinstance(value, bytes):
            return value
        return ParseDict(value, reply_class()).SerializeToString()

    def decode(data: bytes) -> Any:
        message = request_class.FromString(data)
        return MessageToDict(message, preserving_proto_field_name=True)

    async def run(request: Any, context: Context) -> Any:
        shop.note(request, context)
        return encode(await answer(request, context))

    async def stream(request: Any, context: Context) -> Any:
        shop.note(request, context)
        async for one in await answer(request, context):
            yield encode(one)

    make = (
        grpc.unary_stream_rpc_method_handler
        if method.server_streaming
        else grpc.unary_unary_rpc_method_handler
    )
    return make(
        stream if method.server_streaming else run,
        request_deserializer=decode,
    )
