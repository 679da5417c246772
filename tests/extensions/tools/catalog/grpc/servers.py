"""gRPC servers on this machine, well-behaved and hostile."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message_factory import GetMessageClass
from grpc.aio import ServicerContext
from grpc_reflection.v1alpha.reflection import enable_server_reflection

from copilot_runtime.extensions.tools.catalog.grpc.protos import Protos, compile_files

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
