"""What calls may take of the memory: of strangers nothing, and of others what limits allow."""

import asyncio
import gc
import gzip
import tracemalloc
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager
from itertools import islice
from typing import Any

import grpc
import pytest
from grpc.aio import AioRpcError, Channel
from grpc_health.v1.health_pb2 import HealthCheckRequest
from grpc_health.v1.health_pb2_grpc import HealthStub
from starlette.requests import HTTPConnection

from copilot_runtime import action
from copilot_runtime.extensions.access.service_tokens import ServiceTokenSigner
from copilot_runtime.extensions.grpc.message import MessageReader
from copilot_runtime.extensions.grpc.protos import tool_pb2
from copilot_runtime.extensions.grpc.protos.tool_pb2_grpc import ToolStub
from tests.extensions.grpc.servers import SECRET, Served, build_settings, serve
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

CALL = "/copilot.tool.v1.Tool/CallTool"
MEGABYTE = 1 << 20
BOMB = gzip.compress(bytes(64 * MEGABYTE))


@action
def greet(name: str) -> str:
    """Greet somebody."""
    return f"Hello {name}"


@action
def fail() -> str:
    """Fail."""
    raise RuntimeError("It failed.")


@asynccontextmanager
async def serving(**settings: Any) -> AsyncGenerator[Served]:
    async with serve(build_settings("tool", **settings), actions=[greet, fail]) as served:
        yield served


@asynccontextmanager
async def connect(served: Served, **options: Any) -> AsyncGenerator[Channel]:
    """Return a connection of somebody without a token."""
    target = served.server.address.removeprefix("grpc://")
    async with grpc.aio.insecure_channel(target, **options) as channel:
        yield channel


async def find_status(call: Awaitable[object]) -> str:
    """Return how a call ends."""
    try:
        async with asyncio.timeout(10):
            await call
    except AioRpcError as error:
        return error.code().name
    return "OK"


def sign(body: bytes) -> list[tuple[str, str]]:
    token = ServiceTokenSigner("shop", [SECRET]).sign(CALL, body)
    return [("authorization", f"Bearer {token}")]


@pytest.fixture
def peak() -> Generator[Callable[[], float]]:
    """Return what tells the most megabytes that Python has had since the test began."""
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    yield lambda: (tracemalloc.get_traced_memory()[1] - before) / MEGABYTE
    tracemalloc.stop()


async def test_a_stranger_is_refused_before_any_message_comes() -> None:
    async with serving() as served, connect(served) as channel:
        status = await find_status(channel.stream_unary(CALL)())

    assert status == "UNAUTHENTICATED"


async def test_what_strangers_send_is_not_unpacked(peak: Callable[[], float]) -> None:
    async with (
        serving() as served,
        connect(served, compression=grpc.Compression.Gzip) as channel,
    ):
        body = bytes(8 * MEGABYTE)
        call = channel.unary_unary(CALL)
        statuses = {await find_status(call(body)) for _ in range(5)}

    assert statuses == {"UNAUTHENTICATED"}
    assert peak() < 10  # of which 8 are the client's


async def test_what_is_packed_is_unpacked_up_to_the_limit(peak: Callable[[], float]) -> None:
    async with serving(max_body_bytes=MEGABYTE) as served, connect(served) as channel:
        call = channel.unary_unary(CALL)
        status = await find_status(call(BOMB, metadata=sign(bytes(64 * MEGABYTE))))

    assert status == "RESOURCE_EXHAUSTED"
    assert peak() < 70  # of which 64 are what the test signs


@in_one_test("packed", [BOMB[:-9], BOMB + b"more", BOMB[:2] + b"nonsense"])
async def test_what_is_packed_wrongly_is_no_message(packed: bytes) -> None:
    async with serving(max_body_bytes=65 * MEGABYTE) as served, connect(served) as channel:
        status = await find_status(channel.unary_unary(CALL)(packed, metadata=sign(b"")))

    assert status == "INVALID_ARGUMENT"


async def test_a_packed_message_is_signed_as_it_is_unpacked() -> None:
    body = tool_pb2.CallToolRequest(name="greet", arguments={"name": "Bo" * 9999})
    data = body.SerializeToString()
    async with serving() as served, connect(served, compression=grpc.Compression.Gzip) as channel:
        answer = await channel.unary_unary(CALL)(data, metadata=sign(data))

    assert tool_pb2.CallToolResponse.FromString(answer).content == "Hello " + "Bo" * 9999


async def test_a_compression_without_a_limit_is_refused() -> None:
    async with (
        serving() as served,
        connect(served, compression=grpc.Compression.Deflate) as channel,
    ):
        status = await find_status(channel.unary_unary(CALL)(bytes(1000), metadata=sign(b"")))

    assert status == "UNIMPLEMENTED"


async def test_a_message_that_does_not_come_is_not_waited_for() -> None:
    def authenticate(_connection: HTTPConnection) -> str:
        return "ann"

    settings = build_settings("tool", access={}, service_tokens={}, read_timeout=0.05)
    async with (
        serve(settings, authenticate=authenticate) as served,
        connect(served) as channel,
    ):
        status = await find_status(channel.stream_unary(CALL)())

    assert status == "DEADLINE_EXCEEDED"


async def test_a_call_without_a_message_is_answered() -> None:
    async with serving() as served, connect(served) as channel:
        call = channel.stream_unary(CALL)(metadata=sign(b""))
        await call.done_writing()

        assert await find_status(call) == "INVALID_ARGUMENT"


async def test_calls_that_have_ended_leave_nothing_to_the_collector() -> None:
    ask = tool_pb2.CallToolRequest
    async with serving() as served, connect(served) as channel, served.connect() as shop:
        tool = ToolStub(shop)
        gc.collect()
        gc.disable()
        try:
            statuses = [
                await find_status(channel.unary_unary(CALL)(b"")),
                await find_status(tool.CallTool(ask(name="none"))),
                await find_status(tool.CallTool(ask(name="greet", arguments={"name": "Bo"}))),
                await find_status(tool.CallTool(ask(name="fail"))),
            ]
            await tool.ListTools(tool_pb2.ListToolsRequest())
            left = [one for one in gc.get_objects() if isinstance(one, MessageReader)]
        finally:
            gc.enable()

    assert statuses[0] == "UNAUTHENTICATED"
    assert len(left) <= 1  # the last call is perhaps still ending


async def test_open_calls_do_not_block_health_checks() -> None:
    async with serving() as served, connect(served) as channel:
        open_call = channel.stream_unary("/grpc.health.v1.Health/Check")
        async with asyncio.TaskGroup() as tasks:
            stalled = [tasks.create_task(find_status(open_call())) for _ in range(40)]
            stub: Any = HealthStub(channel)
            answer = await stub.Check(HealthCheckRequest(), timeout=10)
            ended = [await one for one in islice(asyncio.as_completed(stalled), 24)]
            for one in stalled:
                one.cancel()

    assert answer.status == answer.SERVING
    assert set(ended) == {"RESOURCE_EXHAUSTED"}
