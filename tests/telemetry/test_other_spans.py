"""Spans of hooks, retrieval, embeddings, memory and MCP, and what answers cost."""

import asyncio
from collections.abc import Sequence
from decimal import Decimal
from typing import Any
from urllib.parse import urlsplit

import pytest

from copilot_runtime.adapters import pricing
from copilot_runtime.adapters.embeddings import create_embedder
from copilot_runtime.adapters.embeddings.openai import OpenAIEmbedder
from copilot_runtime.adapters.embeddings.tei import TEIEmbedder
from copilot_runtime.adapters.pricing import price_usage
from copilot_runtime.adapters.scripted import ScriptedAdapter
from copilot_runtime.agents import instructions
from copilot_runtime.agents.direct import DirectAgent
from copilot_runtime.api import ChatRequest, ModelEndpoint, Passage, RunInput
from copilot_runtime.api.events import Events, Usage
from copilot_runtime.api.hooks import Hooks
from copilot_runtime.base.errors import CopilotError, NetworkError, Refused
from copilot_runtime.runtime import Runtime
from copilot_runtime.telemetry import (
    LocalTelemetry,
    Span,
    find_current_span,
    semconv,
    trace_block,
    work_under,
)
from copilot_runtime.telemetry.genai import start_memory_span
from copilot_runtime.telemetry.rpc import describe_mcp_call
from copilot_runtime.testing import say
from copilot_runtime.threads.run_log import MemoryBus
from tests.adapters.provider import serving, whole
from tests.runs import runtime_of
from tests.telemetry.recorded import Spans, find_violations, run

pytestmark = pytest.mark.anyio


@pytest.fixture
def spans() -> Spans:
    return Spans()


@pytest.fixture
def telemetry(spans: Spans) -> LocalTelemetry:
    return LocalTelemetry(spans, keeps_content=True)


async def test_each_hook_has_a_span_and_works_under_it(
    spans: Spans, telemetry: LocalTelemetry
) -> None:
    worked: list[Span] = []

    def before(run: RunInput) -> None:
        worked.append(find_current_span())

    async def after(run: RunInput, messages: Any) -> None:
        worked.append(find_current_span())

    hooks = Hooks(before_request=before, after_request=after)
    await run(runtime_of(say("Hi"), hooks=hooks, telemetry=telemetry))
    found = spans.of(semconv.EXECUTE_HOOK)
    assert [span.name for span in found] == [
        "execute_hook before_request",
        "execute_hook after_request",
    ]
    assert worked == found
    root = spans.named("invoke_agent default")
    assert {span.parent_id for span in found} == {root.span_id}
    assert {span.attributes[semconv.HOOK_RESULT] for span in found} == {"success"}
    assert found[0].attributes[semconv.HOOK_NAME].endswith("before")


async def test_a_hook_that_fails_fails_its_own_span(
    spans: Spans, telemetry: LocalTelemetry
) -> None:
    def after(run: RunInput, messages: Any) -> None:
        raise ValueError("Broken.")

    await run(runtime_of(say("Hi"), hooks=Hooks(after_request=after), telemetry=telemetry))
    failed = [span for span in spans.spans if span.status == "error"]
    assert [span.name for span in failed] == ["execute_hook after_request"]
    assert failed[0].attributes[semconv.HOOK_RESULT] == "error"


async def test_a_hook_that_refuses_says_so(spans: Spans, telemetry: LocalTelemetry) -> None:
    def refuse(run: RunInput) -> None:
        raise Refused("Not today.")

    reported: list[BaseException] = []
    hooks = Hooks(before_request=refuse, error=lambda error, _: reported.append(error))
    with pytest.raises(Refused):
        await run(runtime_of(say("Hi"), hooks=hooks, telemetry=telemetry))
    span = spans.named("execute_hook before_request")
    assert span.attributes[semconv.HOOK_RESULT] == "refused"


class Shelf:
    """A retriever."""

    source, limit = "shelf", 3

    def __init__(self, *passages: Passage, error: Exception | None = None) -> None:
        self.passages, self.error = passages, error

    async def retrieve(self, run: RunInput) -> Sequence[Passage]:
        if self.error is not None:
            raise self.error
        return self.passages


async def retrieve(telemetry: LocalTelemetry, shelf: Any) -> None:
    agent = DirectAgent(ScriptedAdapter(say("Hi")), retriever=shelf)
    await run(Runtime(agent, {}, MemoryBus(), telemetry=telemetry))


async def test_a_search_for_passages_has_a_span(spans: Spans, telemetry: LocalTelemetry) -> None:
    await retrieve(
        telemetry, Shelf(Passage(id="p", text="Blue.", title="Sea", url="/p", score=0.5))
    )
    span = spans.named("retrieval shelf")
    assert span.attributes[semconv.RETRIEVAL_TOP_K] == 3
    assert span.content[semconv.RETRIEVAL_QUERY_TEXT] == "Hi"
    assert span.content[semconv.RETRIEVAL_DOCUMENTS] == [
        {"id": "p", "title": "Sea", "url": "/p", "score": 0.5, "content": "Blue."}
    ]


async def test_a_search_that_fails_fails_its_span_alone(
    spans: Spans, telemetry: LocalTelemetry
) -> None:
    await retrieve(telemetry, Shelf(error=NetworkError("Gone.")))
    failed = [span for span in spans.spans if span.status == "error"]
    assert [span.name for span in failed] == ["retrieval shelf"]


async def test_a_search_that_takes_too_long_fails_its_span(
    spans: Spans, telemetry: LocalTelemetry, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow:
        async def retrieve(self, run: RunInput) -> Sequence[Passage]:
            await asyncio.Event().wait()
            return ()

    monkeypatch.setattr(instructions, "_TIMEOUT", 0.01)
    await retrieve(telemetry, Slow())
    assert spans.named("retrieval").attributes[semconv.ERROR_TYPE] == "TimeoutError"


async def test_requests_for_vectors_have_spans_below_what_needs_them(
    spans: Spans, telemetry: LocalTelemetry
) -> None:
    answer = {
        "data": [{"index": 0, "embedding": [3.0, 4.0]}],
        "model": "small-2",
        "usage": {"prompt_tokens": 7},
    }
    root = telemetry.start_span("root")
    async with serving() as provider:
        provider.answer([whole(answer)])
        embedder = OpenAIEmbedder("small", base_url=f"{provider.url}/v1", api_key="k")
        with work_under(root):
            await embedder.embed(["Hi"])
        await embedder.embed(["nobody asks"])
        await embedder.aclose()
    (span,) = spans.of(semconv.EMBEDDINGS)
    assert (span.name, span.kind, span.parent_id) == ("embeddings small", "client", root.span_id)
    assert span.attributes == {
        semconv.OPERATION_NAME: "embeddings",
        semconv.PROVIDER_NAME: "openai",
        semconv.REQUEST_MODEL: "small",
        semconv.RESPONSE_MODEL: "small-2",
        semconv.USAGE_INPUT_TOKENS: 7,
        semconv.EMBEDDINGS_DIMENSION_COUNT: 2,
        semconv.SERVER_ADDRESS: "127.0.0.1",
        semconv.SERVER_PORT: urlsplit(provider.url).port,
    }
    assert find_violations(span) == []


async def test_a_server_that_is_named_by_its_address_has_no_model(
    spans: Spans, telemetry: LocalTelemetry
) -> None:
    async with serving() as provider:
        provider.answer([whole(b"[[3.0, 4.0]]")])
        embedder = TEIEmbedder(provider.url)
        with work_under(telemetry.start_span("root")):
            await embedder.embed(["Hi"])
        await embedder.aclose()
    span = spans.named("embeddings")
    assert semconv.REQUEST_MODEL not in span.attributes
    assert find_violations(span) == []


async def test_vectors_that_hashing_makes_have_spans_as_well(
    spans: Spans, telemetry: LocalTelemetry
) -> None:
    embedder, root = create_embedder("hashing:64"), telemetry.start_span("root")
    with work_under(root):
        await embedder.embed(["Hi"])
    await embedder.embed_queries(["nobody asks"])
    (span,) = spans.spans
    assert (span.name, span.kind) == ("embeddings hashing:64", "internal")
    assert (span.parent_id, find_violations(span)) == (root.span_id, [])
    assert span.attributes[semconv.PROVIDER_NAME] == "hashing"
    assert span.attributes[semconv.EMBEDDINGS_DIMENSION_COUNT] == 64


def test_a_block_that_raises_fails_its_span(spans: Spans, telemetry: LocalTelemetry) -> None:
    root = telemetry.start_span("root")
    with (
        pytest.raises(CopilotError),
        trace_block(start_memory_span(root, semconv.SEARCH_MEMORY, "t1")),
    ):
        raise CopilotError("No.")
    (span,) = spans.spans
    assert (span.name, span.status) == ("search_memory", "error")
    assert span.attributes[semconv.MEMORY_STORE_ID] == "t1"


def test_a_call_of_a_tool_says_which_mcp_server_has_it() -> None:
    assert describe_mcp_call("m.example", "https://m.example/mcp") == {
        semconv.MCP_METHOD_NAME: "tools/call",
        semconv.TOOL_LOCATION: "mcp",
        semconv.TOOL_SERVER: "m.example",
        semconv.NETWORK_TRANSPORT: "tcp",
        semconv.NETWORK_PROTOCOL_NAME: "http",
        semconv.SERVER_ADDRESS: "m.example",
        semconv.SERVER_PORT: 443,
    }
    assert describe_mcp_call("time", "")[semconv.NETWORK_TRANSPORT] == "pipe"


class Counting(ScriptedAdapter):
    """Says what an answer took, as a service does."""

    usage = Usage(model="gpt-4o", provider="openai", input_tokens=1_000_000, output_tokens=0)

    def endpoint(self, request: ChatRequest) -> ModelEndpoint:
        return ModelEndpoint("openai", "gpt-4o", "https://api.openai.com/v1")

    async def stream(self, request: ChatRequest) -> Events:
        async for event in super().stream(request):
            yield event
        yield self.usage


async def test_an_answer_has_its_cost_and_the_run_has_none(
    spans: Spans, telemetry: LocalTelemetry
) -> None:
    pytest.importorskip("genai_prices")
    # as after a start
    pricing._providers.cache_clear()  # pyright: ignore[reportPrivateUsage]
    agent = DirectAgent(Counting(say("Hi")))
    await run(Runtime(agent, {}, MemoryBus(), telemetry=telemetry))
    expected = pricing.find_model_facts("openai", "gpt-4o").price(Counting.usage)
    assert expected is not None and expected > Decimal(0)
    assert spans.named("chat gpt-4o").attributes[semconv.COST_DOLLARS] == float(expected)
    assert semconv.COST_DOLLARS not in spans.named("invoke_agent default").attributes


async def test_an_answer_without_a_price_or_counts_has_no_cost() -> None:
    pytest.importorskip("genai_prices")
    await pricing.load_prices()
    assert price_usage(Usage(model="mine", provider="openai", input_tokens=1)) is None
    assert price_usage(Usage(model="gpt-4o", provider="openai")) is None


def test_a_cost_that_an_adapter_names_needs_no_price() -> None:
    assert price_usage(Usage(model="mine", input_tokens=1, dollars=0.5)) == 0.5
