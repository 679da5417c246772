"""Tools over gRPC, and what every service has: deadlines, cancelled calls, limits, reflection."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import grpc
import pytest
from google.protobuf.struct_pb2 import Struct
from grpc.aio import AioRpcError
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from copilot_runtime import action
from copilot_runtime.api import ActionContext
from copilot_runtime.extensions.grpc.protos import tool_pb2
from copilot_runtime.extensions.grpc.protos.tool_pb2_grpc import ToolStub
from tests.documents import blocks
from tests.extensions.grpc.servers import Served, build_settings, serve

pytestmark = pytest.mark.anyio

make_stub: Any = reflection_pb2_grpc.ServerReflectionStub


class Sleeper:
    """A tool that never ends, and knows whether it was cancelled."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.was_cancelled = asyncio.Event()

    async def sleep(self) -> None:
        self.began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.was_cancelled.set()
            raise


@pytest.fixture
def sleeper() -> Sleeper:
    return Sleeper()


@pytest.fixture
async def served(sleeper: Sleeper) -> AsyncGenerator[Served]:
    @action
    def greet(name: str, context: ActionContext) -> str:
        """Greet somebody."""
        return f"Hello {name} from {context.user}"

    @action
    def repeat(text: str, times: int) -> str:
        """Say something again and again."""
        return text * times

    @action
    async def sleep() -> None:
        """Sleep for ever."""
        await sleeper.sleep()

    @action
    def fail() -> None:
        """Fail."""
        raise ValueError("no such book")

    settings = build_settings("tool", roles=["operator"], max_body_bytes=100_000)
    async with serve(settings, actions=[greet, repeat, sleep, fail]) as served:
        yield served


def ask(tool: str, /, **arguments: str | float) -> tool_pb2.CallToolRequest:
    values = Struct()
    values.update(arguments)
    return tool_pb2.CallToolRequest(name=tool, arguments=values)


async def test_tools_are_listed_as_openai_has_them(served: Served) -> None:
    async with served.connect() as channel:
        found = await ToolStub(channel).ListTools(tool_pb2.ListToolsRequest())

    tools = {tool.function.name: tool for tool in found.tools}
    assert [*tools] == ["fail", "greet", "repeat", "sleep"]
    assert tools["greet"].type == "function"
    assert tools["greet"].function.description == "Greet somebody."
    assert [*tools["greet"].function.parameters["required"]] == ["name"]


async def test_a_tool_is_called_as_the_caller(served: Served) -> None:
    async with served.connect("till") as channel:
        own = await ToolStub(channel).CallTool(ask("greet", name="Bo"))
        of_ann = await ToolStub(channel.act_for("ann")).CallTool(ask("greet", name="Bo"))
        of_acme = await ToolStub(channel.act_for("ann", "acme")).CallTool(ask("greet", name="Bo"))

    assert own.content == "Hello Bo from service:till"
    assert of_ann.content == "Hello Bo from ann"
    assert of_acme.content == "Hello Bo from tenant:acme/ann"


async def test_whole_numbers_stay_whole(served: Served) -> None:
    async with served.connect() as channel:
        found = await ToolStub(channel).CallTool(ask("repeat", text="ha", times=3))

    assert found.content == "hahaha"


async def test_a_failure_of_a_tool_is_its_result(served: Served) -> None:
    async with served.connect() as channel:
        found = await ToolStub(channel).CallTool(ask("fail"))

    assert "no such book" in found.content


async def test_wrong_arguments_are_a_result_as_the_page_shows_it() -> None:
    @action
    def get_hours(day: str) -> str:
        """Say when the library opens."""
        return day

    [shown] = [it.code for it in blocks("json", "run/services") if "INVALID_ARGUMENTS" in it.code]
    async with (
        serve(build_settings("tool"), actions=[get_hours]) as served,
        served.connect() as channel,
    ):
        found = await ToolStub(channel).CallTool(ask("get_hours"))

    assert found.content == shown.strip()


async def test_a_tool_that_there_is_not_is_not_found(served: Served) -> None:
    async with served.connect() as channel:
        with pytest.raises(AioRpcError) as caught:
            await ToolStub(channel).CallTool(ask("greeet"))

    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert caught.value.details() == "There is no action 'greeet'."


async def test_a_deadline_ends_the_call_and_the_tool(served: Served, sleeper: Sleeper) -> None:
    async with served.connect() as channel:
        with pytest.raises(AioRpcError) as caught:
            await ToolStub(channel).CallTool(ask("sleep"), timeout=0.5)
        await sleeper.was_cancelled.wait()

    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_a_client_that_leaves_ends_the_tool(served: Served, sleeper: Sleeper) -> None:
    async with served.connect() as channel:
        calling = ToolStub(channel).CallTool(ask("sleep"))
        await sleeper.began.wait()
        calling.cancel()
        await sleeper.was_cancelled.wait()

    assert calling.cancelled()


async def test_the_server_has_a_limit_of_its_own(sleeper: Sleeper) -> None:
    @action
    async def sleep() -> None:
        """Sleep for ever."""
        await sleeper.sleep()

    settings = build_settings("tool", grpc={"timeout": 0.2})
    async with serve(settings, actions=[sleep]) as served, served.connect() as channel:
        with pytest.raises(AioRpcError) as caught:
            await ToolStub(channel).CallTool(ask("sleep"), timeout=None)
        await sleeper.was_cancelled.wait()

    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert caught.value.details() == "The call took too long."


async def test_a_call_under_way_ends_when_the_server_does(sleeper: Sleeper) -> None:
    @action
    async def sleep() -> None:
        """Sleep for ever."""
        await sleeper.sleep()

    settings = build_settings("tool", stop_timeout=0.1)
    async with serve(settings, actions=[sleep]) as served:
        channel = served.connect()
        calling = ToolStub(channel).CallTool(ask("sleep"))
        await sleeper.began.wait()
    with pytest.raises(AioRpcError):
        await calling
    await channel.aclose()

    assert sleeper.was_cancelled.is_set()


async def test_a_huge_message_is_refused_and_the_connection_goes_on(served: Served) -> None:
    async with served.connect() as channel:
        tool = ToolStub(channel)
        with pytest.raises(AioRpcError) as caught:
            await tool.CallTool(ask("greet", name="x" * 200_000))
        found = await tool.CallTool(ask("greet", name="Bo"))

    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert found.content.startswith("Hello Bo")


async def test_what_is_no_message_is_refused(served: Served) -> None:
    async with served.connect() as channel:
        call = channel.unary_unary("/copilot.tool.v1.Tool/CallTool", lambda data: data)
        with pytest.raises(AioRpcError) as caught:
            await call(b"\xff\xff\xff")

    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert caught.value.details() == "The message is no copilot.tool.v1.CallToolRequest."


async def test_a_method_that_there_is_not_is_unimplemented(served: Served) -> None:
    async with served.connect() as channel:
        call = channel.unary_unary("/copilot.tool.v1.Tool/Explode", lambda data: data)
        with pytest.raises(AioRpcError) as caught:
            await call(b"")

    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def list_services(served: Served) -> list[str]:
    """Return the services that a server describes. Raises `AioRpcError`."""
    target = served.server.address.removeprefix("grpc://")
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    async with grpc.aio.insecure_channel(target) as channel:
        answers: Any = make_stub(channel).ServerReflectionInfo(iter([request]))
        async for answer in answers:
            return [one.name for one in answer.list_services_response.service]
    return []


async def test_a_server_describes_itself(served: Served) -> None:
    assert "copilot.tool.v1.Tool" in await list_services(served)


async def test_reflection_can_be_disabled() -> None:
    async with serve(build_settings("tool", grpc={"reflection": False})) as served:
        with pytest.raises(AioRpcError) as caught:
            await list_services(served)

    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
