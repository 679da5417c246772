"""Knowledge, memories and context windows over gRPC: what a caller may read, and nothing else."""

import asyncio
import gc
import gzip
import tracemalloc
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc.aio import AioRpcError, Channel
from grpc_health.v1.health_pb2 import HealthCheckRequest
from grpc_health.v1.health_pb2_grpc import HealthStub
from starlette.requests import HTTPConnection

from copilot_runtime import RunInput, ScriptedAdapter, action
from copilot_runtime.adapters.scripted import say
from copilot_runtime.api.messages import TextMessage
from copilot_runtime.extensions.access.service_tokens import ServiceTokenSigner
from copilot_runtime.extensions.grpc.message import MessageReader
from copilot_runtime.extensions.grpc.protos import (
    context_pb2,
    graph_pb2,
    memory_pb2,
    tool_pb2,
    vector_pb2,
)
from copilot_runtime.extensions.grpc.protos.context_pb2_grpc import ContextStub
from copilot_runtime.extensions.grpc.protos.graph_pb2_grpc import GraphStub
from copilot_runtime.extensions.grpc.protos.memory_pb2_grpc import MemoryStub
from copilot_runtime.extensions.grpc.protos.tool_pb2_grpc import ToolStub
from copilot_runtime.extensions.grpc.protos.vector_pb2_grpc import VectorStub
from copilot_runtime.extensions.knowledge import Knowledge
from copilot_runtime.extensions.knowledge.identifiers import Identifier
from copilot_runtime.extensions.knowledge.resources import Resource
from tests.extensions.grpc.servers import SECRET, Served, build_settings, serve
from tests.extensions.knowledge.library import ADA, LIBRARY, library, write_pages
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

OF_ANN = Identifier("common.Note", "safe", "common.User.ann")
CHAT = "common.User.ann/common.Conversation.t1"


@pytest.fixture
async def served(tmp_path: Path) -> AsyncGenerator[Served]:
    knowledge = library(write_pages(tmp_path))
    settings = build_settings("vector", "graph", "memory", "context", roles=["operator"])
    async with serve(settings, ScriptedAdapter(say("Short.")), knowledge=knowledge) as served:
        await knowledge.resources.put(Resource(OF_ANN, "Ann keeps the key under the mat."))
        await knowledge.update()
        yield served


async def test_a_search_finds_what_the_caller_may_read(served: Served) -> None:
    request = vector_pb2.SearchContentRequest(input=["when does the library open"], limit=1)
    mat = vector_pb2.SearchContentRequest(input=["key under the mat"])
    async with served.connect() as channel:
        found = await VectorStub(channel).SearchContent(request)
        of_ann = await VectorStub(channel.act_for("ann")).SearchContent(mat)
        of_bob = await VectorStub(channel.act_for("bob")).SearchContent(mat)

    assert [passage.title for passage in found.passages] == ["Mill Library"]
    assert "opens at nine" in found.passages[0].text
    assert str(OF_ANN) in [passage.id for passage in of_ann.passages]
    assert str(OF_ANN) not in [passage.id for passage in of_bob.passages]


@in_one_test(
    ("request_", "words"),
    [
        (vector_pb2.SearchContentRequest(), "1 to 10 texts"),
        (vector_pb2.SearchContentRequest(input=["a"] * 11), "1 to 10 texts"),
        (vector_pb2.SearchContentRequest(input=["a" * 10_001]), "10001 characters"),
        (vector_pb2.SearchContentRequest(input=["a"], limit=0), "limit is a number from 1 to 100"),
        (vector_pb2.SearchContentRequest(input=["a"], max_tokens=-1), "max_tokens is a number"),
    ],
)
async def test_what_cannot_be_searched_for_is_refused(
    served: Served, request_: vector_pb2.SearchContentRequest, words: str
) -> None:
    async with served.connect() as channel:
        with pytest.raises(AioRpcError) as caught:
            await VectorStub(channel).SearchContent(request_)

    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert words in (caught.value.details() or "")


async def test_the_graph_answers_a_pattern_and_has_an_ontology(served: Served) -> None:
    pattern = graph_pb2.QueryByPatternRequest(subject=LIBRARY, predicate="schema:employee")
    async with served.connect() as channel:
        graph = GraphStub(channel)
        found = await graph.QueryByPattern(pattern)
        every = await graph.QueryByPattern(graph_pb2.QueryByPatternRequest(limit=1))
        ontology = await graph.GetOntology(graph_pb2.GetOntologyRequest())

    assert [triple.object for triple in found.triples] == [f"<{ADA}>"]
    assert found.passages[0].title == "Mill Library"
    assert (len(every.triples), every.cut) == (1, True)
    assert {one.name: one.instances for one in ontology.classes}["Library"] == 1
    assert "sh:NodeShape" in ontology.turtle


async def test_a_memory_is_written_and_read_within_a_budget(served: Served) -> None:
    knowledge = served.runtime.get(Knowledge)
    assert isinstance(knowledge, Knowledge)
    message = Identifier("common.Message", "m1", CHAT)
    await knowledge.resources.put(Resource(message, "Where is the key?"))
    async with served.connect() as channel:
        memory = MemoryStub(channel.act_for("ann"))
        identifiers = [
            memory_pb2.Identifier(uri=str(message)),
            memory_pb2.Identifier(uri="common.Message.m2", tokens=50),
        ]
        done = await memory.AppendMemory(
            memory_pb2.AppendMemoryRequest(thread_id="t1", identifiers=identifiers)
        )
        window = await memory.GetWindow(memory_pb2.GetWindowRequest(resource_id=CHAT, budget=100))

    assert (done.resource_id, done.appended) == (CHAT, 2)
    assert [one.uri for one in window.conversation] == [str(message)]
    assert [(one.uri, one.tokens) for one in window.context] == [("common.Message.m2", 50)]
    assert window.tokens == 50 + window.conversation[0].tokens > 50


async def test_users_cannot_write_into_the_memory_of_others(served: Served) -> None:
    identifiers = [memory_pb2.Identifier(uri="common.Message.m1", tokens=1)]
    request = memory_pb2.AppendMemoryRequest(resource_id=CHAT, identifiers=identifiers)
    async with served.connect() as channel:
        with pytest.raises(AioRpcError) as caught:
            await MemoryStub(channel.act_for("bob")).AppendMemory(request)

    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert caught.value.details() == "Access denied"


async def test_a_resource_of_unknown_size_is_refused(served: Served) -> None:
    identifiers = [memory_pb2.Identifier(uri="common.Message.none")]
    request = memory_pb2.AppendMemoryRequest(thread_id="t1", identifiers=identifiers)
    async with served.connect() as channel:
        with pytest.raises(AioRpcError) as caught:
            await MemoryStub(channel).AppendMemory(request)

    assert "How many tokens has 'common.Message.none'?" in (caught.value.details() or "")


async def test_a_context_window_is_reduced_to_its_budget(served: Served) -> None:
    knowledge = served.runtime.get(Knowledge)
    assert isinstance(knowledge, Knowledge)
    for number in range(8):
        one = Resource(Identifier("common.Message", f"m{number}", CHAT), f"{number} word" * 100)
        await knowledge.resources.put(one)
        await knowledge.memory.append(CHAT, one.id)
    async with served.connect() as channel:
        context = ContextStub(channel.act_for("ann"))
        done = await context.OptimizeWindow(context_pb2.OptimizeWindowRequest(id=CHAT, budget=300))
        window = await context.GetWindow(context_pb2.GetWindowRequest(id=CHAT))
        with pytest.raises(AioRpcError) as caught:
            await ContextStub(channel.act_for("bob")).GetWindow(
                context_pb2.GetWindowRequest(id=CHAT)
            )

    assert (done.successful, done.optimized) == (True, True)
    assert window.tokens <= 300
    assert window.resources[0].content == "Short."
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_a_chat_with_this_runtime_has_a_window(served: Served) -> None:
    chat = "common.User.ann/common.Conversation.t9"
    question = TextMessage(id="u", role="user", content="How long may I keep a book?")
    run = RunInput(thread_id="t9", run_id="r", messages=[question], user="ann", persist=True)
    await served.runtime.runtime.start(run)
    async for _ in served.runtime.runtime.follow("r"):
        pass
    async with served.connect() as channel:
        ann, bob = channel.act_for("ann"), channel.act_for("bob")
        window = await ContextStub(ann).GetWindow(context_pb2.GetWindowRequest(id=chat))
        memory = await MemoryStub(ann).GetWindow(memory_pb2.GetWindowRequest(thread_id="t9"))
        short = memory_pb2.GetWindowRequest(thread_id="t9", budget=window.resources[1].tokens)
        newest = await MemoryStub(ann).GetWindow(short)
        with pytest.raises(AioRpcError) as caught:
            await ContextStub(bob).GetWindow(context_pb2.GetWindowRequest(id=chat))
        others = await MemoryStub(bob).GetWindow(memory_pb2.GetWindowRequest(resource_id=chat))

    said = [(one.role, one.content) for one in window.resources]
    assert said == [("user", "How long may I keep a book?"), ("assistant", "Short.")]
    uris = [one.id for one in window.resources]
    assert [one.uri for one in memory.conversation] == uris
    assert memory.tokens == window.tokens
    assert [one.uri for one in newest.conversation] == uris[1:]
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert not others.conversation


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
