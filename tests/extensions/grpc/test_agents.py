"""Answers of agents and models over gRPC."""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import grpc
import pytest
from google.protobuf.struct_pb2 import Struct
from grpc.aio import AioRpcError

from copilot_runtime import ScriptedAdapter, action
from copilot_runtime.adapters.scripted import call, say
from copilot_runtime.api import Adapter, ChatRequest
from copilot_runtime.api.events import (
    Events,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
    Usage,
)
from copilot_runtime.extensions.grpc.names import CODE
from copilot_runtime.extensions.grpc.protos import agent_pb2, llm_pb2
from copilot_runtime.extensions.grpc.protos.agent_pb2_grpc import AgentStub
from copilot_runtime.extensions.grpc.protos.llm_pb2_grpc import LlmStub
from copilot_runtime.extensions.knowledge import Knowledge
from tests.extensions.grpc.servers import Served, build_settings, serve
from tests.extensions.knowledge.library import WordCounter
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio


class Chatterbox(Adapter):
    """Says many words, or never ends, and notes what it was asked."""

    def __init__(self, words: int = 100, *, ends: bool = True) -> None:
        self.words = words
        self.ends = ends
        self.requests: list[ChatRequest] = []
        self.was_stopped = asyncio.Event()

    async def stream(self, request: ChatRequest) -> Events:
        self.requests.append(request)
        yield TextMessageStart(message_id="m1")
        for number in range(self.words):
            yield TextMessageContent(message_id="m1", content=f"{number} ")
        if not self.ends:
            try:
                await asyncio.Event().wait()
            finally:
                self.was_stopped.set()
        yield TextMessageEnd(message_id="m1")
        yield Usage(model="talk-1", input_tokens=3, output_tokens=self.words, stop_reason="stop")


def say_hello(**more: Any) -> agent_pb2.ProcessRequestRequest:
    messages = [agent_pb2.Message(role="user", content="Hello")]
    return agent_pb2.ProcessRequestRequest(messages=messages, **more)


@pytest.fixture
async def talk() -> AsyncGenerator[tuple[Served, Chatterbox]]:
    adapter = Chatterbox()
    async with serve(build_settings("agent", "llm"), adapter) as served:
        yield served, adapter


async def test_a_question_is_answered(talk: tuple[Served, Chatterbox]) -> None:
    served, _ = talk
    async with served.connect() as channel:
        found = await AgentStub(channel).ProcessRequest(say_hello())

    (message,) = found.messages
    assert (message.role, message.content[:6]) == ("assistant", "0 1 2 ")
    assert (found.usage.prompt_tokens, found.usage.total_tokens) == (3, 103)


async def test_a_thread_is_continued_by_its_latest_message(
    talk: tuple[Served, Chatterbox],
) -> None:
    served, adapter = talk
    async with served.connect() as channel:
        agent = AgentStub(channel)
        for _ in range(2):
            await agent.ProcessRequest(say_hello(thread_id="t1"))
        await AgentStub(served.connect("bank")).ProcessRequest(say_hello(thread_id="t1"))

    assert [len(request.messages) for request in adapter.requests] == [1, 3, 1]


async def test_events_come_in_batches(talk: tuple[Served, Chatterbox]) -> None:
    served, _ = talk
    async with served.connect() as channel:
        stream = AgentStub(channel).ProcessStream(say_hello())
        messages = [[json.loads(one) for one in message.events] async for message in stream]

    events = [event for message in messages for event in message]
    assert [events[0]["type"], events[-1]["type"]] == ["RUN_STARTED", "RUN_FINISHED"]
    deltas = [event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT"]
    assert "".join(deltas) == "".join(f"{number} " for number in range(100))
    assert max(map(len, messages)) <= 20
    assert len(messages) < len(events) / 2


async def test_who_leaves_stops_the_run() -> None:
    adapter = Chatterbox(ends=False)
    async with serve(build_settings("agent"), adapter) as served, served.connect() as channel:
        stream = AgentStub(channel).ProcessStream(say_hello())
        async for _ in stream:
            stream.cancel()
            break
        await adapter.was_stopped.wait()


@in_one_test(
    ("request_", "code", "words"),
    [
        (agent_pb2.ProcessRequestRequest(), "INVALID_ARGUMENT", "1 to 2000 messages"),
        (say_hello(agent="nobody"), "NOT_FOUND", "Available agents are: default."),
        (say_hello(thread_id="a\0b"), "INVALID_ARGUMENT", "thread_id"),
        (
            agent_pb2.ProcessRequestRequest(messages=[agent_pb2.Message(role="king")]),
            "INVALID_ARGUMENT",
            "The role of a message",
        ),
    ],
)
async def test_what_cannot_be_meant_is_refused(
    talk: tuple[Served, Chatterbox],
    request_: agent_pb2.ProcessRequestRequest,
    code: str,
    words: str,
) -> None:
    served, _ = talk
    async with served.connect() as channel:
        for method in ("ProcessRequest", "ProcessStream"):
            with pytest.raises(AioRpcError) as caught:
                answer = getattr(AgentStub(channel), method)(request_)
                _ = [one async for one in answer] if method == "ProcessStream" else await answer
            assert caught.value.code().name == code
            assert words in (caught.value.details() or "")


async def test_a_run_that_fails_says_so_by_its_status() -> None:
    class Broken(Adapter):
        async def stream(self, request: ChatRequest) -> Events:
            yield TextMessageStart(message_id="m1")
            raise RuntimeError("the password is 1234")

    events: list[str] = []
    async with serve(build_settings("agent"), Broken()) as served, served.connect() as channel:
        with pytest.raises(AioRpcError) as unary:
            await AgentStub(channel).ProcessRequest(say_hello())
        with pytest.raises(AioRpcError) as streamed:
            async for message in AgentStub(channel).ProcessStream(say_hello()):
                events += [json.loads(one)["type"] for one in message.events]

    assert events[-1] == "RUN_ERROR"
    for caught in (unary, streamed):
        assert caught.value.code() is grpc.StatusCode.INTERNAL
        assert "1234" not in str(caught.value)
        assert dict(caught.value.trailing_metadata() or ())[CODE] == "UNKNOWN"


async def test_a_completion_calls_tools_of_the_client_and_none_of_the_server() -> None:
    @action
    def of_the_server() -> str:
        """Must not be called."""
        raise AssertionError

    adapter = ScriptedAdapter(call("weather", {"city": "Ulm"}, id="c1"), say("Sunny."))
    values = Struct()
    values.update({"type": "object", "properties": {"city": {"type": "string"}}})
    function = llm_pb2.Function(name="weather", description="Look out.", parameters=values)
    tools = [llm_pb2.ToolDefinition(type="function", function=function)]
    asked = llm_pb2.Message(role="user", content="How is Ulm?")
    settings = build_settings("llm")
    async with (
        serve(settings, adapter, actions=[of_the_server]) as served,
        served.connect() as channel,
    ):
        first = await LlmStub(channel).CreateCompletions(
            llm_pb2.CreateCompletionsRequest(messages=[asked], tools=tools, temperature=0)
        )
        (wanted,) = first.choices[0].message.tool_calls
        result = llm_pb2.Message(role="tool", tool_call_id=wanted.id, content="sun")
        second = await LlmStub(channel).CreateCompletions(
            llm_pb2.CreateCompletionsRequest(
                messages=[asked, first.choices[0].message, result], tools=tools
            )
        )

    assert (wanted.function.name, json.loads(wanted.function.arguments)) == (
        "weather",
        {"city": "Ulm"},
    )
    assert first.choices[0].finish_reason == "tool_calls"
    assert [one.name for one in adapter.requests[0].actions] == ["weather"]
    assert adapter.requests[0].parameters.temperature == 0
    assert [message.type for message in adapter.requests[1].messages] == [
        "text",
        "action_execution",
        "result",
    ]
    assert second.choices[0].message.content == "Sunny."
    assert second.choices[0].finish_reason == "stop"


async def test_a_completion_says_what_it_has_used(talk: tuple[Served, Chatterbox]) -> None:
    served, _ = talk
    messages = [llm_pb2.Message(role="user", content="Hello")]
    async with served.connect() as channel:
        found = await LlmStub(channel).CreateCompletions(
            llm_pb2.CreateCompletionsRequest(messages=messages)
        )

    assert (found.model, found.usage.completion_tokens) == ("talk-1", 100)


async def test_texts_become_vectors() -> None:
    knowledge = Knowledge("memory", embedder=WordCounter())
    async with (
        serve(build_settings("llm"), knowledge=knowledge) as served,
        served.connect() as channel,
    ):
        found = await LlmStub(channel).CreateEmbeddings(
            llm_pb2.CreateEmbeddingsRequest(input=["one two", "three"])
        )

    assert found.model == "test-words-512"
    assert [(one.index, len(one.embedding)) for one in found.data] == [(0, 512), (1, 512)]
    assert sum(found.data[1].embedding) == 1


async def test_without_knowledge_there_are_no_embeddings(talk: tuple[Served, Chatterbox]) -> None:
    served, _ = talk
    async with served.connect() as channel:
        with pytest.raises(AioRpcError) as caught:
            await LlmStub(channel).CreateEmbeddings(llm_pb2.CreateEmbeddingsRequest(input=["a"]))

    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
