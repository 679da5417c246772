"""What the span of a request to a model tells: who is asked, what was sent, what came back."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import pytest

from copilot_runtime import action
from copilot_runtime.adapters.anthropic import AnthropicAdapter
from copilot_runtime.adapters.bedrock import BedrockAdapter
from copilot_runtime.adapters.budget import BudgetedAdapter
from copilot_runtime.adapters.demo import DemoAdapter
from copilot_runtime.adapters.fallback import FallbackAdapter
from copilot_runtime.adapters.google import GoogleAdapter
from copilot_runtime.adapters.langchain import LangChainAdapter
from copilot_runtime.adapters.openai import OpenAIAdapter, presets
from copilot_runtime.adapters.scripted import ScriptedAdapter
from copilot_runtime.agents.direct import DirectAgent
from copilot_runtime.api import Adapter, ChatRequest, ModelEndpoint, Parameters
from copilot_runtime.api.events import TextMessageContent
from copilot_runtime.api.messages import TextMessage
from copilot_runtime.base.errors import NetworkError
from copilot_runtime.runtime import Runtime
from copilot_runtime.telemetry import LocalTelemetry, Span, semconv
from copilot_runtime.telemetry.genai import PROVIDERS
from copilot_runtime.testing import call, say
from copilot_runtime.threads.run_log import MemoryBus
from tests.adapters.provider import (
    HANG,
    HEAD,
    RESET,
    Provider,
    piece,
    saying,
    serving,
    text,
    whole,
)
from tests.in_one_test import in_one_test
from tests.runs import run_input
from tests.telemetry.recorded import Spans, run

pytestmark = pytest.mark.anyio

QUESTION = ChatRequest(messages=[TextMessage(id="u", role="user", content="Hi")])


@pytest.fixture
async def provider(anyio_backend: str) -> AsyncGenerator[Provider, None]:
    async with serving() as provider:
        yield provider


async def ask(adapter: Adapter, *, keeps_content: bool = False, **more: Any) -> Span:
    """Return the span of the only request of a run."""
    spans = Spans()
    telemetry = LocalTelemetry(spans, keeps_content=keeps_content)
    await run(Runtime(DirectAgent(adapter), {}, MemoryBus(), telemetry=telemetry), **more)
    (span,) = spans.of(semconv.CHAT)
    return span


@in_one_test(
    ("adapter", "provider", "model", "address"),
    [
        (OpenAIAdapter("gpt-4o", api_key="k"), "openai", "gpt-4o", "api.openai.com"),
        (OpenAIAdapter("o3", api="responses", api_key="k"), "openai", "o3", "api.openai.com"),
        (presets.groq("llama", api_key="k"), "groq", "llama", "api.groq.com"),
        (presets.mistral("small", api_key="k"), "mistral_ai", "small", "api.mistral.ai"),
        (
            presets.azure("gpt", api="responses", api_key="k", base_url="https://a.example"),
            "azure.ai.openai",
            "gpt",
            "a.example",
        ),
        (AnthropicAdapter("claude-x", api_key="k"), "anthropic", "claude-x", "api.anthropic.com"),
        (
            BedrockAdapter("nova", region="eu-west-1", api_key="k"),
            "aws.bedrock",
            "nova",
            "bedrock-runtime.eu-west-1.amazonaws.com",
        ),
        (
            GoogleAdapter("gemini-x", api_key="k"),
            "gcp.gemini",
            "gemini-x",
            "generativelanguage.googleapis.com",
        ),
        (
            GoogleAdapter("gemini-x", project="p", location="us-east1", token="t"),
            "gcp.vertex_ai",
            "gemini-x",
            "us-east1-aiplatform.googleapis.com",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_each_adapter_says_who_is_asked(
    adapter: Adapter, provider: str, model: str, address: str
) -> None:
    endpoint = adapter.endpoint(QUESTION)
    assert PROVIDERS[endpoint.provider] == provider
    assert endpoint.model == model
    assert f"//{address}/" in endpoint.url
    assert BudgetedAdapter(adapter, tokens=1).endpoint(QUESTION) == endpoint
    assert FallbackAdapter(adapter).endpoint(QUESTION) == endpoint


def test_an_adapter_that_lacks_its_region_says_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    assert BedrockAdapter("nova", api_key="k").endpoint(QUESTION) == ("bedrock", "nova", "", False)


@in_one_test(
    ("module", "name", "provider"),
    [
        ("langchain_openai.chat_models", "ChatOpenAI", "openai"),
        ("langchain_openai.chat_models", "AzureChatOpenAI", "azure"),
        ("langchain_aws", "ChatBedrock", "bedrock"),
        ("langchain_core.runnables", "RunnableSequence", "langchain"),
        ("mine", "Chain", "langchain"),
    ],
)
def test_a_model_of_langchain_is_told_by_its_package(module: str, name: str, provider: str) -> None:
    fields = {"__module__": module, "model_name": "m", "base_url": "https://m.example/v1"}
    model: Any = type(name, (), fields)()
    endpoint = LangChainAdapter(model).endpoint(QUESTION)
    assert endpoint == (provider, "m", "https://m.example/v1", False)


def test_models_in_this_process_are_no_services() -> None:
    assert all(
        adapter.endpoint(QUESTION).in_process for adapter in (DemoAdapter(), ScriptedAdapter())
    )


async def test_the_span_has_what_was_really_sent_and_what_came_back(provider: Provider) -> None:
    usage = {
        "prompt_tokens": 9,
        "completion_tokens": 2,
        "prompt_tokens_details": {"cached_tokens": 4},
    }
    provider.answer(saying(text("Hi", usage=usage)))
    adapter = OpenAIAdapter("gpt-4o", base_url=f"{provider.url}/v1", api_key="k")
    wishes = Parameters(temperature=0, max_tokens=5, stop=["."], seed=3)
    span = await ask(adapter, parameters=wishes)
    assert (span.name, span.kind, span.status) == ("chat gpt-4o", "client", "unset")
    expected = {
        semconv.PROVIDER_NAME: "openai",
        semconv.SERVER_ADDRESS: "127.0.0.1",
        semconv.REQUEST_TEMPERATURE: 0.0,
        semconv.REQUEST_MAX_TOKENS: 5,
        semconv.REQUEST_STOP_SEQUENCES: ["."],
        semconv.REQUEST_SEED: 3,
        semconv.RESPONSE_ID: "chatcmpl-1",
        semconv.RESPONSE_MODEL: "m",
        semconv.RESPONSE_FINISH_REASONS: ["stop"],
        semconv.USAGE_INPUT_TOKENS: 9,
        semconv.USAGE_OUTPUT_TOKENS: 2,
        semconv.USAGE_CACHE_READ_TOKENS: 4,
    }
    assert {name: span.attributes.get(name) for name in expected} == expected


async def test_openai_says_which_tier_and_system_answered(provider: Provider) -> None:
    said = {"type": "message", "content": [{"type": "output_text", "text": "Hi"}]}
    provider.answer(
        saying(text("Hi", service_tier="flex", system_fingerprint="fp_1")),
        [whole({"object": "response", "id": "r", "service_tier": "priority", "output": [said]})],
        saying(text("Hi", service_tier=5, system_fingerprint="fp_2")),
    )
    url = f"{provider.url}/v1"
    spans = [
        await ask(OpenAIAdapter("m", base_url=url, api_key="k")),
        await ask(OpenAIAdapter("m", base_url=url, api_key="k", api="responses")),
        await ask(presets.groq("m", base_url=url, api_key="k")),
    ]
    names = (
        semconv.OPENAI_API_TYPE,
        semconv.OPENAI_RESPONSE_SERVICE_TIER,
        semconv.OPENAI_RESPONSE_SYSTEM_FINGERPRINT,
    )
    assert [[span.attributes.get(name) for name in names] for span in spans] == [
        ["chat_completions", "flex", "fp_1"],
        ["responses", "priority", None],
        [None, None, None],
    ]


async def test_an_adapters_own_defaults_are_told_as_well(provider: Provider) -> None:
    provider.answer([whole({"type": "error", "error": {"message": "No."}}, status="400 Bad")])
    adapter = AnthropicAdapter("claude-x", base_url=provider.url, api_key="k", max_tokens=77)
    span = await ask(adapter)
    assert span.attributes[semconv.REQUEST_MAX_TOKENS] == 77
    assert span.status == "error"
    assert span.attributes[semconv.RESPONSE_FINISH_REASONS] == ["error"]


async def test_an_answer_that_breaks_off_has_its_id_and_failed(provider: Provider) -> None:
    provider.answer([HEAD, piece(text("Hel")), RESET])
    adapter = OpenAIAdapter("gpt-4o", base_url=f"{provider.url}/v1", api_key="k", max_retries=0)
    span = await ask(adapter, keeps_content=True)
    assert span.attributes[semconv.RESPONSE_ID] == "chatcmpl-1"
    assert span.attributes[semconv.ERROR_TYPE] == "NETWORK_ERROR"
    assert span.attributes[semconv.RESPONSE_FINISH_REASONS] == ["error"]
    (answer,) = span.content[semconv.OUTPUT_MESSAGES]
    assert answer == {
        "role": "assistant",
        "parts": [{"type": "text", "content": "Hel"}],
        "finish_reason": "error",
    }


async def test_a_request_that_is_sent_again_is_one_span_with_an_event(provider: Provider) -> None:
    provider.answer([HEAD, RESET], saying(text("Hi")))
    span = await ask(OpenAIAdapter("gpt-4o", base_url=f"{provider.url}/v1", api_key="k"))
    (event,) = span.events
    assert (event.name, event.attributes) == (
        semconv.EVENT_RETRY,
        {semconv.ERROR_TYPE: "NETWORK_ERROR"},
    )
    assert span.status == "unset"


async def test_an_answer_that_is_stopped_ends_its_span(provider: Provider) -> None:
    provider.answer([HEAD, piece(text("Hel")), HANG])
    adapter = OpenAIAdapter("gpt-4o", base_url=f"{provider.url}/v1", api_key="k")
    spans = Spans()
    telemetry = LocalTelemetry(spans)
    runtime = Runtime(DirectAgent(adapter), {}, MemoryBus(), telemetry=telemetry)
    started = await runtime.start(run_input(detached=True))
    async for batch in runtime.follow(started.log_id):
        if any(isinstance(event, TextMessageContent) for event in batch.events):
            runtime.stop(started.log_id)
    await runtime.aclose()
    (span,) = spans.of(semconv.CHAT)
    assert span.status == "unset"
    assert span.attributes[semconv.RESPONSE_FINISH_REASONS] == ["error"]
    assert span.attributes[semconv.RESPONSE_ID] == "chatcmpl-1"


async def test_the_span_tells_which_of_several_adapters_answered() -> None:
    class Named(ScriptedAdapter):
        model = "small"

    adapter = FallbackAdapter(
        ScriptedAdapter(NetworkError("Down.")), OpenAIAdapter("gpt-4o"), by_agent={}
    )
    adapter.adapters[1] = Named(say("Hi"))
    span = await ask(adapter)
    assert span.attributes[semconv.PROVIDER_NAME] == "scripted"
    assert [event.name for event in span.events] == [semconv.EVENT_RETRY]
    assert span.status == "unset"


@action
def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


async def test_content_is_what_the_model_got_and_said() -> None:
    spans = Spans()
    adapter = ScriptedAdapter(call("add", {"a": 1, "b": 2}, id="c1"), say("Three."))
    agent = DirectAgent(adapter, instructions="Be exact.")
    telemetry = LocalTelemetry(spans, keeps_content=True)
    await run(Runtime(agent, {}, MemoryBus(), sources=[[add]], telemetry=telemetry))
    first, second = spans.of(semconv.CHAT)
    (instructions,) = first.content[semconv.SYSTEM_INSTRUCTIONS]
    assert "Be exact." in instructions["content"]
    assert first.content[semconv.TOOL_DEFINITIONS][0]["name"] == "add"
    called = {"type": "tool_call", "id": "c1", "name": "add", "arguments": {"a": 1, "b": 2}}
    assert first.content[semconv.OUTPUT_MESSAGES] == [
        {"role": "assistant", "parts": [called], "finish_reason": "tool_call"}
    ]
    assert second.content[semconv.INPUT_MESSAGES] == [
        {"role": "user", "parts": [{"type": "text", "content": "Hi"}]},
        {"role": "assistant", "parts": [called]},
        {
            "role": "tool",
            "parts": [{"type": "tool_call_response", "id": "c1", "response": "3"}],
        },
    ]
    assert second.content[semconv.OUTPUT_MESSAGES][0]["finish_reason"] == "stop"


async def test_nothing_of_it_is_gathered_where_content_is_not_kept() -> None:
    span = await ask(ScriptedAdapter(say("Hi")))
    assert span.content == {}


async def test_an_agent_has_the_parameters_of_its_requests() -> None:
    spans = Spans()
    agent = DirectAgent(ScriptedAdapter(say("Hi")), parameters={"max_tokens": 50})
    parameters = Parameters(temperature=0.0, stop=["."], seed=3, top_p=0.5, tool_choice="auto")
    telemetry = LocalTelemetry(spans)
    await run(Runtime(agent, {}, MemoryBus(), telemetry=telemetry), parameters=parameters)
    (chat,), (root,) = spans.of(semconv.CHAT), spans.of(semconv.INVOKE_AGENT)
    expected = {
        semconv.REQUEST_TEMPERATURE: 0.0,
        semconv.REQUEST_MAX_TOKENS: 50,
        semconv.REQUEST_STOP_SEQUENCES: ["."],
        semconv.REQUEST_SEED: 3,
        semconv.REQUEST_TOP_P: 0.5,
    }
    for span in (chat, root):
        assert {name: span.attributes.get(name) for name in expected} == expected


@in_one_test(
    ("models", "found"),
    [(["small", "small"], "small"), (["small", "large", "small"], None), (["", ""], None)],
)
async def test_only_an_agent_of_one_model_has_a_model(models: list[str], found: str | None) -> None:
    class Changing(ScriptedAdapter):
        def endpoint(self, request: ChatRequest) -> ModelEndpoint:
            return ModelEndpoint("scripted", left.pop(0))

    left, spans = [*models], Spans()
    turns = [call("add", {"a": 1, "b": 2}) for _ in models[1:]]
    agent = DirectAgent(Changing(*turns, say("Three.")))
    telemetry = LocalTelemetry(spans)
    await run(Runtime(agent, {}, MemoryBus(), sources=[[add]], telemetry=telemetry))
    (root,) = spans.of(semconv.INVOKE_AGENT)
    assert root.attributes.get(semconv.REQUEST_MODEL) == found
    assert root.attributes[semconv.RUN_TURNS] == len(models)


@in_one_test(("tokens", "found"), [(100, True), (100_000, None)])
async def test_a_request_says_whether_older_messages_were_left_out(
    provider: Provider, tokens: int, found: bool | None
) -> None:
    provider.answer(saying(text("Hi")))
    adapter = OpenAIAdapter(
        "gpt-4o", base_url=f"{provider.url}/v1", api_key="k", context_tokens=tokens
    )
    messages = [
        TextMessage(id="u1", role="user", content="x" * 5_000),
        TextMessage(id="a1", role="assistant", content="Hm."),
        TextMessage(id="u2", role="user", content="And now?"),
    ]
    spans = Spans()
    runtime = Runtime(DirectAgent(adapter), {}, MemoryBus(), telemetry=LocalTelemetry(spans))
    started = await runtime.start(replace(run_input(detached=True), messages=messages))
    assert started.task is not None
    await asyncio.wait([started.task])
    (span,) = spans.of(semconv.CHAT)
    assert span.attributes.get(semconv.CONVERSATION_COMPACTED) is found
