"""Servers that describe themselves, and some that lie about it."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest, ServerReflectionResponse

from copilot_runtime.base.errors import CopilotError
from copilot_runtime.extensions.tools.catalog.grpc import endpoint
from tests.extensions.tools.catalog.grpc.conftest import Context, MakeTool, compile_shop, serve
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

REFLECTED = "order: {endpoint: {grpc: {address: '%s', method: shop.Shop.Order, reflection: true}}}"


async def sell(request: dict[str, Any], context: Context) -> Any:
    return {"number": "n1"}


def describe_by(
    *answers: ServerReflectionResponse | bytes, version: str = "v1"
) -> grpc.GenericRpcHandler:
    """Return reflection that gives these answers one after the other, whatever is asked."""
    left = [*answers]

    async def info(requests: Any, context: Context) -> AsyncGenerator[bytes]:
        async for _ in requests:
            if not left:
                return
            answer = left.pop(0)
            yield answer if isinstance(answer, bytes) else answer.SerializeToString()

    handler = grpc.stream_stream_rpc_method_handler(info)
    name = f"grpc.reflection.{version}.ServerReflection"
    return grpc.method_handlers_generic_handler(name, {"ServerReflectionInfo": handler})


def file_answer(*files: FileDescriptorProto | bytes) -> ServerReflectionResponse:
    answer = ServerReflectionResponse()
    answer.file_descriptor_response.file_descriptor_proto.extend(
        file if isinstance(file, bytes) else file.SerializeToString() for file in files
    )
    return answer


def refusal(file: str) -> ServerReflectionResponse:
    request = ServerReflectionRequest(file_by_filename=file)
    answer = ServerReflectionResponse(original_request=request)
    answer.error_response.error_code = 5
    answer.error_response.error_message = "never heard of it"
    return answer


async def find_file(name: str) -> FileDescriptorProto:
    file = FileDescriptorProto()
    (await compile_shop()).pool.FindFileByName(name).CopyToProto(file)
    return file


async def test_a_server_describes_its_methods_itself(make_tool: MakeTool) -> None:
    async with serve({"Order": sell}, reflects=True) as shop:
        tool = make_tool(REFLECTED % shop.address)
        operation = await tool.load()
        assert operation.parameters["properties"]["speed"]["enum"] == ["SLOW", "FAST"]
        assert (await tool.call(speed="FAST"))["number"] == "n1"
        assert shop.requests == [{"speed": "FAST"}]


async def test_without_a_proto_the_seeds_form_asks_the_server(make_tool: MakeTool) -> None:
    async with serve({"Order": sell}, reflects=True) as shop:
        tool = make_tool(
            "order: {method: shop.Shop.Order, request: shop.OrderRequest}",
            services={"shop": {"address": shop.address, "reflection": True}},
        )
        assert (await tool.call())["number"] == "n1"


async def test_files_come_one_by_one_and_those_of_google_are_here(make_tool: MakeTool) -> None:
    names = [
        "any",
        "duration",
        "empty",
        "field_mask",
        "struct",
        "timestamp",
        "wrappers",
    ]  # each is asked for in the order of the names, after common/money.proto
    answers = [
        file_answer(await find_file("shop.proto")),
        file_answer(await find_file("common/money.proto")),
        *(refusal(f"google/protobuf/{name}.proto") for name in names),
    ]
    async with serve({"Order": sell}, handlers=[describe_by(*answers)]) as shop:
        tool = make_tool(REFLECTED % shop.address)
        assert (await tool.call(due="2026-01-01T00:00:00Z"))["number"] == "n1"


async def test_a_server_without_reflection_says_what_to_do(make_tool: MakeTool) -> None:
    async with serve({"Order": sell}) as shop:
        with pytest.raises(CopilotError, match="does not describe itself") as raised:
            await make_tool(REFLECTED % shop.address).load()
        assert "proto:" in (raised.value.hint or "")


async def test_an_unknown_service_has_the_words_of_the_contract(make_tool: MakeTool) -> None:
    async with serve({"Order": sell}, reflects=True) as shop:
        with pytest.raises(CopilotError, match="Client class not found: FooClient"):
            await make_tool((REFLECTED % shop.address).replace("shop.Shop", "a.Foo")).load()


@in_one_test(
    ("answers", "words"),
    [
        ([b"\xff\xff"], "sent an invalid descriptor"),
        ([], "closed half-way"),
        ([file_answer(b"\xff")], "is none"),
        ([file_answer()], "Client class not found: ShopClient"),
        (
            [
                file_answer(FileDescriptorProto(name="a.proto", dependency=["b.proto"])),
                refusal("b.proto"),
            ],
            "'a.proto' is no valid .proto",
        ),
        (
            [
                file_answer(FileDescriptorProto(name="a.proto", dependency=["b.proto"])),
                file_answer(FileDescriptorProto(name="b.proto", dependency=["a.proto"])),
            ],
            "is no valid .proto",
        ),
        (
            [file_answer(*(FileDescriptorProto(name=f"{number}.proto") for number in range(600)))],
            "at such length that it is not read",
        ),
    ],
)
async def test_lies_are_errors_of_this_tool(
    make_tool: MakeTool, answers: list[ServerReflectionResponse | bytes], words: str
) -> None:
    async with serve({"Order": sell}, handlers=[describe_by(*answers)]) as shop:
        with pytest.raises(CopilotError) as raised:
            await make_tool(REFLECTED % shop.address).load()
        assert words in raised.value.message


async def test_a_server_that_hangs_is_left_after_its_time(
    make_tool: MakeTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from copilot_runtime.extensions.tools.catalog.grpc import protos

    monkeypatch.setattr(protos, "_TIMEOUT", 0.05)

    async def info(requests: Any, context: Context) -> AsyncGenerator[bytes]:
        await asyncio.Event().wait()
        yield b""

    handler = grpc.stream_stream_rpc_method_handler(info)
    name = "grpc.reflection.v1.ServerReflection"
    hanging = grpc.method_handlers_generic_handler(name, {"ServerReflectionInfo": handler})
    async with serve({"Order": sell}, handlers=[hanging]) as shop:
        tool = make_tool(REFLECTED % shop.address)
        with pytest.raises(CopilotError, match=r"did not answer within 0\.05 s"):
            await tool.load()


async def test_a_description_is_read_again_later_and_the_last_one_counts(
    make_tool: MakeTool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(endpoint, "REFLECTION_TTL", 0)
    files = [await find_file("shop.proto"), await find_file("common/money.proto")]
    google = [
        await find_file(f"google/protobuf/{name}.proto")
        for name in ("any", "duration", "empty", "field_mask", "struct", "timestamp", "wrappers")
    ]
    handlers = [describe_by(file_answer(*files, *google))]
    async with serve({"Order": sell}, handlers=handlers) as shop:
        tool = make_tool(REFLECTED % shop.address)
        first = await tool.load()
        assert await tool.load() is first
        assert "The last description of 'order' counts" in caplog.text


async def test_a_failure_is_remembered_for_a_while(make_tool: MakeTool) -> None:
    tool = make_tool(REFLECTED % "127.0.0.1:1")
    errors: list[Exception] = []
    for _ in range(2):
        with pytest.raises(CopilotError) as raised:
            await tool.load()
        errors.append(raised.value)
    assert errors[0] is errors[1]
