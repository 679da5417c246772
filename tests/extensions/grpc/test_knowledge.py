"""Knowledge, memories and context windows over gRPC: what a caller may read, and nothing else."""

from collections.abc import AsyncGenerator
from pathlib import Path

import grpc
import pytest
from grpc.aio import AioRpcError

from copilot_runtime import ScriptedAdapter
from copilot_runtime.adapters.scripted import say
from copilot_runtime.extensions.grpc.protos import context_pb2, graph_pb2, memory_pb2, vector_pb2
from copilot_runtime.extensions.grpc.protos.context_pb2_grpc import ContextStub
from copilot_runtime.extensions.grpc.protos.graph_pb2_grpc import GraphStub
from copilot_runtime.extensions.grpc.protos.memory_pb2_grpc import MemoryStub
from copilot_runtime.extensions.grpc.protos.vector_pb2_grpc import VectorStub
from copilot_runtime.extensions.knowledge import Knowledge
from copilot_runtime.extensions.knowledge.identifiers import Identifier
from copilot_runtime.extensions.knowledge.resources import Resource
from tests.extensions.grpc.servers import Served, build_settings, serve
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
    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
