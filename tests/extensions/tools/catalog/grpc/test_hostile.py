"""Servers that hang, send too much, lie, or close half-way: each harms its own call only."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import grpc
import pytest

from copilot_runtime.base.errors import CopilotError, LimitExceeded, NetworkError, RunStalled
from tests.extensions.tools.catalog.grpc.conftest import MakeTool
from tests.extensions.tools.catalog.grpc.servers import Context, serve
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

ORDER = "order: {endpoint: {grpc: {address: '%s', method: shop.Shop.Order, proto: shop.proto}}%s}"
WATCH = ORDER.replace("Order", "Watch")


async def find(request: dict[str, Any], context: Context) -> Any:
    return {"content": "Still there."}


async def test_a_server_that_hangs_is_skipped_with_a_warning(make_tool: MakeTool) -> None:
    ended = asyncio.Event()

    async def hang(request: Any, context: Context) -> Any:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with serve({"Order": hang, "Find": find}) as shop:
        tool = make_tool(ORDER % (shop.address, ", timeout: 0.1"))
        with pytest.raises(RunStalled, match=r"did not answer within 0\.1 s"):
            await tool.call()
        await ended.wait()
        other = make_tool((ORDER % (shop.address, "")).replace("Order", "Find"))
        assert (await other.call())["content"] == "Still there."


async def test_a_call_that_is_cancelled_is_cancelled_there(make_tool: MakeTool) -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def hang(request: Any, context: Context) -> Any:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with serve({"Order": hang}) as shop:
        task = asyncio.create_task(make_tool(ORDER % (shop.address, "")).call())
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await ended.wait()


async def test_fifty_megabytes_are_refused(make_tool: MakeTool) -> None:
    async def flood(request: Any, context: Context) -> Any:
        return {"number": "x" * 50_000_000}

    async with serve({"Order": flood, "Find": find}) as shop:
        with pytest.raises(LimitExceeded, match="larger than max"):
            await make_tool(ORDER % (shop.address, "")).call()
        other = make_tool((ORDER % (shop.address, "")).replace("Order", "Find"))
        assert (await other.call())["content"] == "Still there."


async def test_a_stream_without_end_is_left(make_tool: MakeTool) -> None:
    ended = asyncio.Event()

    async def flood(request: Any, context: Context) -> Any:
        async def numbers() -> AsyncGenerator[Any]:
            try:
                while True:
                    yield {"number": "x" * 1000}
            finally:
                ended.set()

        return numbers()

    async with serve({"Watch": flood}) as shop:
        with pytest.raises(LimitExceeded, match="more than 1000 messages"):
            await make_tool(WATCH % (shop.address, "")).call()


async def test_a_request_that_is_too_large_is_not_sent(make_tool: MakeTool) -> None:
    async with serve({"Order": find}) as shop:
        with pytest.raises(LimitExceeded, match="Sent message larger than max"):
            await make_tool(ORDER % (shop.address, "")).call(card="x" * 2_000_000)
        assert shop.requests == []


@in_one_test("answer", [b"\xff\xff\xff", b"\x0a\x02\xff\xfe", b"\xfa\x07\x01x", b"\x08\x01"])
async def test_an_answer_that_is_none_says_so(make_tool: MakeTool, answer: bytes) -> None:
    async def lie(request: Any, context: Context) -> Any:
        return answer

    async with serve({"Order": lie}) as shop:
        with pytest.raises(CopilotError, match=r"what is no shop\.OrderReply: "):
            await make_tool(ORDER % (shop.address, "")).call()


async def test_a_long_answer_is_read_whole(make_tool: MakeTool) -> None:
    async def tell(request: Any, context: Context) -> Any:
        return {"number": "x" * 200_000}

    async with serve({"Order": tell}) as shop:
        answer = await make_tool(ORDER % (shop.address, "")).call()
        assert answer["number"] == "x" * 200_000


async def test_a_stream_that_breaks_off_is_an_error(make_tool: MakeTool) -> None:
    async def stop(request: Any, context: Context) -> Any:
        async def numbers() -> AsyncGenerator[Any]:
            yield {"number": "1"}
            await context.abort(grpc.StatusCode.DATA_LOSS, "gone")

        return numbers()

    async with serve({"Watch": stop}) as shop:
        with pytest.raises(CopilotError, match="says DATA_LOSS: gone"):
            await make_tool(WATCH % (shop.address, "")).call()


async def test_a_connection_that_closes_half_way_is_an_error(make_tool: MakeTool) -> None:
    async def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00")  # half of HTTP/2's greeting
        writer.close()

    server = await asyncio.start_server(close, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(NetworkError, match="cannot be reached"):
            await make_tool(ORDER % (f"127.0.0.1:{port}", "")).call()
