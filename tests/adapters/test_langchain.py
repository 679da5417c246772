"""What LangChain's chat models, chains and plain functions become."""

import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from importlib import import_module
from itertools import count
from types import ModuleType
from typing import Any

import pytest

from tests.in_one_test import in_one_test

pytest.importorskip("langchain_core")

from langchain_core.language_models import GenericFakeChatModel
from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from pydantic import BaseModel

from copilot_runtime.adapters import assembly as _assemble
from copilot_runtime.adapters.langchain import LangChainAdapter
from copilot_runtime.adapters.langchain.request import LangChainRequest
from copilot_runtime.api import ChatRequest, Parameters
from copilot_runtime.api.events import (
    Custom,
    Event,
    ReasoningContent,
    ReasoningEnd,
    ReasoningSignature,
    ReasoningStart,
    Usage,
)
from copilot_runtime.api.messages import ActionExecutionMessage, ReasoningMessage, ResultMessage
from copilot_runtime.api.transcript import fold_messages
from copilot_runtime.base.errors import ConfigurationFailed, MissingPackage, RateLimited, Refused
from tests.adapters.asking import (
    ACTIONS,
    HELLO,
    RED,
    SEVEN,
    answer_to,
    called,
    failure_of,
    here,
    said,
    signed,
)

pytestmark = pytest.mark.anyio

PLAIN = ChatRequest(messages=[HELLO])


@pytest.fixture(autouse=True)
def ids(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = count(1)
    monkeypatch.setattr(_assemble, "new_id", lambda: f"ck-{next(numbers)}")


class Color(BaseModel):
    name: str


def chunk(content: Any = "", **more: Any) -> AIMessageChunk:
    return AIMessageChunk(content=content, id="run-1", **more)


def saying(*chunks: Any) -> Callable[[LangChainRequest], AsyncIterator[Any]]:
    """Return a function that answers with these chunks."""

    async def answer(_: LangChainRequest) -> AsyncIterator[Any]:
        for one in chunks:
            yield one

    return answer


def giving(answer: Any) -> Callable[[LangChainRequest], Any]:
    """Return a function that answers at once."""

    def give(_: LangChainRequest) -> Any:
        return answer

    return give


def codes_in(events: Sequence[Event]) -> list[str]:
    return [event.value["code"] for event in events if isinstance(event, Custom)]


async def asynchronous(_: LangChainRequest) -> str:
    return "Hi"


def pieces(_: LangChainRequest) -> Iterator[str]:
    yield "H"
    yield "i"


FUNCTIONS: dict[str, tuple[Any, Sequence[Event]]] = {
    "text": (giving("Hi"), said("Hi", id="ck-1")),
    "text, in time": (asynchronous, said("Hi", id="ck-1")),
    "pieces of text": (pieces, said("H", "i", id="ck-1")),
    "pieces of text, in time": (saying("H", "i"), said("H", "i", id="ck-1")),
    "nothing": (giving(None), []),
    "a message": (giving(AIMessage("Hi", id="run-1")), said("Hi", id="run-1")),
    "a message with calls": (
        giving(
            AIMessage(
                "",
                id="run-1",
                tool_calls=[
                    {"id": "call_1", "name": "setColor", "args": {"color": "red"}},
                    {"id": "call_2", "name": "setSize", "args": {"size": 7}},
                ],
            )
        ),
        [
            *called("setColor", RED, parent="run-1"),
            *called("setSize", SEVEN, id="call_2", parent="run-1"),
        ],
    ),
    "an object with an answer": (giving({"docs": [1], "answer": "Hi"}), said("Hi", id="ck-1")),
    "an object without one": (giving({"size": 7}), said('{"size":7}', id="ck-1")),
    "a model of pydantic": (giving(Color(name="red")), said('{"name":"red"}', id="ck-1")),
    "the state of a graph": (
        giving({"messages": [HumanMessage("Hello"), AIMessage("Hi", id="run-1")]}),
        said("Hi", id="run-1"),
    ),
    "what was asked": (giving([HumanMessage("Hello")]), []),
}


@pytest.mark.parametrize(("function", "events"), FUNCTIONS.values(), ids=FUNCTIONS)
async def test_a_function_answers_as_it_likes(function: Any, events: Sequence[Event]) -> None:
    assert await answer_to(LangChainAdapter(function), PLAIN) == events


async def test_a_function_is_told_what_a_model_would_be() -> None:
    heard: list[LangChainRequest] = []
    request = ChatRequest(
        messages=[HELLO],
        actions=ACTIONS[:1],
        parameters=Parameters(temperature=0.0),
        thread_id="t",
        run_id="r",
    )

    await answer_to(LangChainAdapter(heard.append), request)

    (asked,) = heard
    assert asked.messages == [HumanMessage("Hello")]
    assert asked.tools[0]["function"]["name"] == "setColor"
    assert (asked.thread_id, asked.run_id, asked.parameters.temperature) == ("t", "r", 0.0)


def thought(*events: Event) -> list[Event]:
    return [
        ReasoningStart(message_id="run-1-reasoning"),
        *events,
        ReasoningEnd(message_id="run-1-reasoning"),
    ]


HM = ReasoningContent(message_id="run-1-reasoning", content="Hm.")
SIGNED = ReasoningSignature(
    entity_id="run-1-reasoning", value='here:{"type":"thinking","signature":"c2ln"}'
)
ANSWERED = ReasoningSignature(
    entity_id="run-1", value='here:{"$answer":{"reasoning_content":"Hm."}}'
)
THOUGHTS: dict[str, Sequence[AIMessageChunk]] = {
    "blocks of Anthropic": [
        chunk([{"type": "thinking", "thinking": "Hm.", "index": 0}]),
        chunk([{"type": "thinking", "signature": "c2ln", "index": 0}]),
        chunk([{"type": "text", "text": "Hi", "index": 1}]),
    ],
    "standard blocks": [chunk([{"type": "reasoning", "reasoning": "Hm."}]), chunk("Hi")],
    "a field beside the text, which goes back with it": [
        chunk(additional_kwargs={"reasoning_content": "Hm."}),
        chunk(["Hi"]),
    ],
}


@in_one_test("chunks", THOUGHTS.values(), ids=THOUGHTS)
async def test_thoughts_are_found_wherever_they_are(chunks: Sequence[AIMessageChunk]) -> None:
    events = await answer_to(LangChainAdapter(saying(*chunks)), PLAIN)

    signature = [SIGNED] if chunks is THOUGHTS["blocks of Anthropic"] else []
    kept = (
        [ANSWERED] if chunks is THOUGHTS["a field beside the text, which goes back with it"] else []
    )
    assert here(events) == [*thought(HM, *signature), *said("Hi", id="run-1"), *kept]


async def test_signed_thoughts_go_back_as_they_came_with_the_calls_they_led_to() -> None:
    heard: list[LangChainRequest] = []
    messages = [
        HELLO,
        ReasoningMessage(
            id="t1",
            content="Hm.",
            signature=signed(
                "langchain.langchain", "", "append", type="thinking", signature="c2ln"
            ),
        ),
        ActionExecutionMessage(id="c1", name="setColor", arguments=RED, parent_id="a"),
        ActionExecutionMessage(id="c2", name="setSize", arguments=SEVEN, parent_id="a"),
        ResultMessage(id="r1", call_id="c1", name="setColor", result="done"),
        ResultMessage(id="r2", call_id="c2", name="setSize", result="", error="Too big."),
    ]

    await answer_to(LangChainAdapter(heard.append), ChatRequest(messages=messages))

    _, answer, *results = heard[0].messages
    assert isinstance(answer, AIMessage)
    assert answer.content == [{"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}]
    assert [call["id"] for call in answer.tool_calls] == ["c1", "c2"]
    assert results == [
        ToolMessage("done", tool_call_id="c1", name="setColor"),
        ToolMessage("Error: Too big.", tool_call_id="c2", name="setSize", status="error"),
    ]


async def test_fields_beside_an_answer_go_back_beside_its_calls() -> None:
    kept = {"__gemini_function_call_thought_signatures__": {"c1": "c2ln"}}
    heard: list[LangChainRequest] = []

    async def answer(request: LangChainRequest) -> AsyncIterator[Any]:
        heard.append(request)
        calls = [{"name": "setColor", "args": RED, "id": "c1", "index": 0}]
        yield chunk("Well.", tool_call_chunks=calls, additional_kwargs=kept)

    adapter = LangChainAdapter(answer)
    messages = fold_messages(await answer_to(adapter))

    await answer_to(adapter, ChatRequest(messages=[HELLO, *messages]))

    assert [one.additional_kwargs for one in heard[1].messages] == [{}, kept, {}]


async def test_counts_of_all_chunks_are_added() -> None:
    def counts(input: int, output: int) -> Any:
        return {"input_tokens": input, "output_tokens": output, "total_tokens": input + output}

    adapter = LangChainAdapter(
        saying(
            chunk("Hi", usage_metadata=counts(10, 0)),
            chunk(usage_metadata=counts(0, 5)),
            chunk(response_metadata={"stop_reason": "max_tokens", "model_name": "m"}),
        )
    )

    events = await answer_to(adapter, PLAIN)

    assert events[-2:] == [
        Custom(name="finish_reason", value="length"),
        Usage(
            model="m", provider="langchain", input_tokens=10, output_tokens=5, stop_reason="length"
        ),
    ]


async def test_a_filtered_answer_is_an_error() -> None:
    adapter = LangChainAdapter(
        saying(chunk("We"), chunk(response_metadata={"finish_reason": "SAFETY"}))
    )

    seen, error = await failure_of(adapter)

    assert seen[:3] == said("We", id="run-1")
    assert isinstance(error, Refused)


async def test_a_call_that_langchain_cannot_parse_arrives_and_has_no_end() -> None:
    cut: Any = {"name": "setColor", "args": '{"color": "re', "id": "call_1", "error": None}
    message = AIMessage(
        "", id="run-1", invalid_tool_calls=[cut], response_metadata={"finish_reason": "length"}
    )
    events = await answer_to(LangChainAdapter(giving(message)), PLAIN)

    assert events[:2] == called("setColor", '{"color": "re', parent="run-1")[:2]
    assert [event.type for event in events[2:]] == ["custom", "usage"]


async def test_a_chat_model_that_does_not_stream_answers_at_once() -> None:
    model = FakeMessagesListChatModel(responses=[AIMessage("Hi", id="run-1")])

    assert await answer_to(LangChainAdapter(model), PLAIN) == said("Hi", id="run-1")


async def test_a_chat_model_without_tools_says_so_or_refuses() -> None:
    model = GenericFakeChatModel(messages=iter([AIMessage("Hi there", id="run-1")]))
    request = ChatRequest(messages=[HELLO], actions=ACTIONS)

    events = await answer_to(LangChainAdapter(model), request)

    assert codes_in(events) == ["calls"]
    assert events[1:] == said("Hi", " ", "there", id="run-1")
    with pytest.raises(ConfigurationFailed, match="takes no tools"):
        await answer_to(LangChainAdapter(model, unsupported="refuse"), request)


async def test_a_chain_answers_what_its_prompt_is_made_of() -> None:
    model = GenericFakeChatModel(messages=iter([AIMessage("Hi there")]))
    prompt = ChatPromptTemplate.from_template("Answer: {question}")
    chain = prompt | model | StrOutputParser()

    adapter = LangChainAdapter(chain, prompt=lambda asked: {"question": asked.messages[-1].text})

    assert await answer_to(adapter, PLAIN) == said("Hi", " ", "there", id="ck-1")


async def test_a_chain_that_yields_parts_of_an_object_speaks_with_its_answer() -> None:
    def answer(_: Any) -> str:
        return "Hi"

    chain = RunnablePassthrough.assign(answer=RunnableLambda(answer))
    adapter = LangChainAdapter(chain, prompt=lambda _: {"answer": ""})

    assert await answer_to(adapter, PLAIN) == said("Hi", id="ck-1")


class ClientError(Exception):
    """What clients of providers raise, each in its own way."""

    def __init__(self, **fields: Any) -> None:
        super().__init__("Slow down.")
        self.__dict__ |= fields


BOTO = {"ResponseMetadata": {"HTTPStatusCode": 429}, "Error": {"Code": "ThrottlingException"}}
BOTO_STREAM = {"Error": {"Code": "throttlingException", "Message": "Slow down."}}
OPENAI_STREAM = {"message": "Slow down.", "type": "requests", "code": "rate_limit_exceeded"}
ANTHROPIC_STREAM = {
    "type": "error",
    "error": {"type": "rate_limit_error", "message": "Slow down."},
}


@in_one_test(
    "error",
    [
        ClientError(status_code=429),
        ClientError(code=429),
        ClientError(response=BOTO),
        ClientError(body=OPENAI_STREAM),
        ClientError(status_code=200, body=ANTHROPIC_STREAM),
        ClientError(response=BOTO_STREAM),
    ],
    ids=[
        *("OpenAI", "Google", "AWS"),
        *("OpenAI, in a stream", "Anthropic, in a stream", "AWS, in a stream"),
    ],
)
async def test_errors_of_clients_mean_what_their_status_or_body_means(error: ClientError) -> None:
    def fail(_: LangChainRequest) -> str:
        raise error

    _, failure = await failure_of(LangChainAdapter(fail))

    assert isinstance(failure, RateLimited)
    assert failure.message == "LangChain API error: Slow down."


async def test_an_error_nobody_knows_stays_what_it_is() -> None:
    def fail(_: LangChainRequest) -> str:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await answer_to(LangChainAdapter(fail), PLAIN)


def test_a_model_by_its_name_needs_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "langchain.chat_models", None)

    with pytest.raises(MissingPackage, match=r"package 'langchain'.*: pip install langchain$"):
        LangChainAdapter("openai:gpt-4o")


def test_a_model_by_its_name_needs_the_package_of_its_provider(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def init_chat_model(name: str) -> None:
        try:
            import_module("langchain_not_there.chat_models")
        except ImportError as error:
            raise ImportError("Please install it.") from error  # as LangChain does

    installed = ModuleType("langchain.chat_models")
    installed.__dict__["init_chat_model"] = init_chat_model
    monkeypatch.setitem(sys.modules, "langchain.chat_models", installed)

    with pytest.raises(MissingPackage) as caught:
        LangChainAdapter("not-there:gpt-4o")

    assert caught.value.message == (
        "The chat model 'not-there:gpt-4o' needs the package 'langchain-not-there'. "
        "Install it with: pip install langchain-not-there"
    )


def test_langchain_itself_names_the_package_of_a_provider(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("langchain.chat_models")
    monkeypatch.setitem(sys.modules, "langchain_openai", None)

    with pytest.raises(MissingPackage, match=r"pip install langchain-openai$"):
        LangChainAdapter("openai:gpt-4o")


def test_a_name_that_says_no_provider_is_explained() -> None:
    pytest.importorskip("langchain.chat_models")

    with pytest.raises(ConfigurationFailed, match="knows no chat model 'no-such-model'"):
        LangChainAdapter("no-such-model")
