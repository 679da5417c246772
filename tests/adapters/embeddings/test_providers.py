"""Embeddings over HTTP: what is sent to each provider, and what its answer becomes."""

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from copilot_runtime.adapters.embeddings import create_embedder
from copilot_runtime.adapters.embeddings.bedrock import BedrockEmbedder
from copilot_runtime.adapters.embeddings.google import GoogleEmbedder
from copilot_runtime.adapters.embeddings.http_embedder import Embeddings, HTTPEmbedder
from copilot_runtime.adapters.embeddings.openai import OpenAIEmbedder, github
from copilot_runtime.adapters.embeddings.tei import TEIEmbedder
from copilot_runtime.api import Embedder
from copilot_runtime.api.budget import Budget, Kind, Limit
from copilot_runtime.api.run_input import CURRENT_RUN, RunSlot
from copilot_runtime.base.errors import (
    AuthenticationFailed,
    ConfigurationFailed,
    CopilotError,
    LimitExceeded,
    NetworkError,
    RateLimited,
)
from tests.adapters.provider import HANG, Provider, whole
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

KEY = "sk-0123456789"
HALF = [0.6, 0.8]
LONG = [6.0, 8.0]


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "GOOGLE_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("EMBEDDING_BASE_URL", "GITHUB_TOKEN", "AWS_BEARER_TOKEN_BEDROCK", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)


@asynccontextmanager
async def closing(embedder: Embedder) -> AsyncGenerator[Embedder, None]:
    try:
        yield embedder
    finally:
        await embedder.aclose()


def openai_answer(*vectors: Any, tokens: int = 3) -> bytes:
    data = [
        {"object": "embedding", "index": index, "embedding": vector}
        for index, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return whole({"object": "list", "data": data[::-1], "model": "m", "usage": usage})


def openai(provider: Provider, **options: Any) -> OpenAIEmbedder:
    options = {"api_key": KEY, "max_retries": 0, "base_url": f"{provider.url}/v1", **options}
    return OpenAIEmbedder(**options)


async def test_openai_gets_texts_and_returns_vectors_in_their_order(provider: Provider):
    provider.answer([openai_answer([1, 0], LONG)])
    async with closing(openai(provider, dimensions=2)) as embedder:
        vectors = await embedder.embed(["a", "b"])
        assert vectors.tolist() == [[1, 0], pytest.approx(HALF)]
        assert vectors.dtype == np.float32
        assert embedder.model == "openai:text-embedding-3-small:2"
        assert embedder.tokens == 3
        assert embedder.max_tokens == 8191
    (request,) = provider.requests
    assert request.line == "POST /v1/embeddings HTTP/1.1"
    assert request.headers["authorization"] == f"bearer {KEY}"
    assert request.body == {"model": "text-embedding-3-small", "input": ["a", "b"], "dimensions": 2}


async def test_vectors_in_base64_are_read_too(provider: Provider):
    encoded = b64encode(np.array(LONG, "<f4").tobytes()).decode()
    provider.answer([openai_answer(encoded)])
    async with closing(openai(provider)) as embedder:
        assert (await embedder.embed(["a"])).tolist() == [pytest.approx(HALF)]


async def test_openai_itself_is_asked_for_base64(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
):
    embedder = OpenAIEmbedder("text-embedding-3-large", api_key=KEY)
    monkeypatch.setattr(embedder, "_url", f"{provider.url}/embeddings")
    provider.answer([openai_answer([1, 0])])
    async with closing(embedder):
        await embedder.embed(["a"])
    assert provider.requests[0].body["encoding_format"] == "base64"


async def test_many_texts_are_sent_in_several_requests_and_stay_in_order(provider: Provider):
    provider.scripts = [[openai_answer([1, number]) for _ in range(1)] for number in range(5)]
    async with closing(openai(provider, batch_size=1, requests_at_once=1)) as embedder:
        vectors = await embedder.embed([*"abcde"])
    assert [round(row[1] / row[0]) for row in vectors.tolist()] == [0, 1, 2, 3, 4]
    assert [request.body["input"] for request in provider.requests] == [[one] for one in "abcde"]
    assert embedder.tokens == 15


async def test_embeddings_count_in_the_budget_of_who_asks(provider: Provider):
    kinds: dict[Kind, float] = {"tokens": 5, "dollars": 1, "requests": 9}
    limits = [Limit(kind, most, lambda _: LimitExceeded("Enough.")) for kind, most in kinds.items()]
    CURRENT_RUN.set(RunSlot(None, Budget(limits)))
    provider.answer([openai_answer([1, 0], tokens=3)])
    async with closing(openai(provider)) as embedder:
        for _ in range(2):
            await embedder.embed(["a"])
        with pytest.raises(LimitExceeded, match="Enough"):
            await embedder.embed_queries(["a"])

    assert [limit.amount for limit in limits] == [6, pytest.approx(6 * 0.02e-6), 0]
    assert len(provider.requests) == 2


async def test_texts_count_as_long_as_they_are_where_the_provider_counts_none(provider: Provider):
    tokens = Limit("tokens", 900, lambda _: LimitExceeded("Enough."))
    CURRENT_RUN.set(RunSlot(None, Budget([tokens])))
    provider.answer([whole(b"[[1, 0]]")])
    async with closing(TEIEmbedder(provider.url)) as embedder:
        await embedder.embed(["x" * 300])

    assert tokens.amount == 100


class Uneven(HTTPEmbedder):
    """Embeds a text at a time, and counts none; it fails at an `f`, and waits at a `w`."""

    def __init__(self) -> None:
        super().__init__("m", provider="p", service="P", batch_size=1, requests_at_once=1)
        self.waits = asyncio.Event()

    async def _request(self, texts: Sequence[str], *, is_query: bool) -> Embeddings:
        if texts[0][0] == "f":
            raise RuntimeError("It is broken.")
        if texts[0][0] == "w":
            self.waits.set()
            await asyncio.Event().wait()
        return Embeddings([[1.0, 0.0]])


@in_one_test(("texts", "used"), [("af", 100), ("awa", 200), ("wa", 100)])
async def test_batches_that_were_sent_and_have_not_failed_count(texts: str, used: int):
    tokens, embedder = Limit("tokens", 900, lambda _: LimitExceeded("Enough.")), Uneven()
    CURRENT_RUN.set(RunSlot(None, Budget([tokens])))
    task = asyncio.create_task(embedder.embed([letter * 300 for letter in texts]))
    waiting = asyncio.create_task(embedder.waits.wait())
    await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
    task.cancel()
    waiting.cancel()
    await asyncio.wait([task])

    assert tokens.amount == used


async def test_no_texts_are_no_request(provider: Provider):
    async with closing(openai(provider)) as embedder:
        assert len(await embedder.embed([])) == 0
    assert provider.requests == []


async def test_requests_go_out_a_few_at_a_time(provider: Provider):
    provider.answer([HANG])
    async with closing(openai(provider, batch_size=1, requests_at_once=3, idle_timeout=0.3)) as one:
        with pytest.raises(NetworkError):
            await one.embed([*"abcdefgh"])
    assert provider.connections == 3


async def test_a_request_is_sent_again_when_the_provider_says_later(provider: Provider):
    busy = whole({"error": {"message": "Slow down"}}, status="429 x", retry_after="0")
    provider.answer([busy], [whole(b"", status="503 x", retry_after="0")], [openai_answer(HALF)])
    async with closing(openai(provider, max_retries=5)) as embedder:
        assert len(await embedder.embed(["a"])) == 1
    assert len(provider.requests) == 3


@in_one_test(
    ("status", "body", "error", "message"),
    [
        (401, {"error": {"message": f"Bad key {KEY}"}}, AuthenticationFailed, r"Bad key \*\*\*"),
        (404, {"error": {"message": "no such model"}}, ConfigurationFailed, "no such model"),
        (429, {"error": {"message": "Slow down"}}, RateLimited, "Slow down"),
        (500, {"error": {"message": "Oops"}}, NetworkError, "Oops"),
        (
            400,
            {"error": {"message": "This model's maximum context length is 8192 tokens, however"}},
            LimitExceeded,
            "too long",
        ),
        (200, b"no JSON", NetworkError, "not embeddings"),
        (200, {"data": []}, NetworkError, "not embeddings"),
        (200, [], NetworkError, "not embeddings"),
        (200, {"data": [{"embedding": ["x"]}]}, NetworkError, "not embeddings"),
        (200, {"data": [{"embedding": None}]}, NetworkError, "not embeddings"),
        (200, {"data": [{"embedding": "abc"}]}, NetworkError, "not embeddings"),
        (200, {"data": [{"embedding": [1, 2]}] * 2}, NetworkError, "not embeddings"),
    ],
)
async def test_an_answer_that_is_none_is_an_error_with_the_reason(
    provider: Provider, status: int, body: Any, error: type[CopilotError], message: str
):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    provider.answer([whole(data, status=f"{status} x")])
    async with closing(openai(provider)) as embedder:
        with pytest.raises(error, match=message):
            await embedder.embed(["a"])


async def test_without_a_key_the_error_names_the_variable():
    async with closing(OpenAIEmbedder()) as embedder:
        with pytest.raises(ConfigurationFailed) as caught:
            await embedder.embed(["a"])
    assert "OPENAI_API_KEY" in (caught.value.hint or "")


@in_one_test("name", ["openai", "google", "github"])
async def test_a_key_that_is_missing_is_seen_before_anything_is_embedded(name: str):
    async with closing(create_embedder(name)) as embedder:
        with pytest.raises(ConfigurationFailed, match="There is no API key"):
            await embedder.check_key()
    async with closing(create_embedder(name, api_key=KEY)) as embedder:
        await embedder.check_key()


@in_one_test(
    ("name", "model"),
    [
        ("github", "github:openai/text-embedding-3-small"),
        ("mistral", "mistral:mistral-embed"),
        ("ollama", "ollama:nomic-embed-text"),
        ("vllm:BAAI/bge-m3", "vllm:BAAI/bge-m3"),
        ("lmstudio:bge", "lmstudio:bge"),
        ("together:x", "together:x"),
    ],
)
async def test_services_with_the_same_api_are_presets(name: str, model: str):
    assert create_embedder(name).model == model


async def test_azure_is_asked_at_its_own_address(provider: Provider):
    provider.answer([openai_answer(HALF)])
    azure = create_embedder("azure:my-deployment", base_url=provider.url, api_key=KEY)
    async with closing(azure):
        await azure.embed(["a"])
    (request,) = provider.requests
    assert request.line == "POST /openai/v1/embeddings HTTP/1.1"
    assert request.headers["api-key"] == KEY
    assert request.body == {"model": "my-deployment", "input": ["a"]}


@in_one_test(
    ("base_url", "url"),
    [
        (None, "https://models.github.ai/inference/embeddings"),
        (
            "https://models.github.ai/orgs/acme/",
            "https://models.github.ai/orgs/acme/inference/embeddings",
        ),
        (
            "https://models.github.ai/orgs/acme/inference",
            "https://models.github.ai/orgs/acme/inference/embeddings",
        ),
    ],
)
async def test_models_of_github_are_asked_for_oneself_or_an_organisation(
    base_url: str | None, url: str
):
    assert github(base_url=base_url)._url == url  # pyright: ignore[reportPrivateUsage]


def google(provider: Provider, name: str = "gemini-embedding-001", **options: Any) -> Embedder:
    options = {"api_key": KEY, "max_retries": 0, "base_url": f"{provider.url}/v1beta", **options}
    return GoogleEmbedder(name, **options)


async def test_google_is_told_what_is_a_question_and_what_is_not(provider: Provider):
    provider.answer(
        [whole({"embeddings": [{"values": LONG}], "usageMetadata": {"promptTokenCount": 4}})]
    )
    async with closing(google(provider, dimensions=768)) as embedder:
        assert (await embedder.embed(["a"])).tolist() == [pytest.approx(HALF)]
        await embedder.embed_queries(["b"])
        assert embedder.model == "google:gemini-embedding-001:768"
        assert embedder.tokens == 8
    first, second = provider.requests
    assert first.line == "POST /v1beta/models/gemini-embedding-001:batchEmbedContents HTTP/1.1"
    assert first.headers["x-goog-api-key"] == KEY
    assert first.body == {
        "requests": [
            {
                "model": "models/gemini-embedding-001",
                "content": {"parts": [{"text": "a"}]},
                "taskType": "RETRIEVAL_DOCUMENT",
                "outputDimensionality": 768,
            }
        ]
    }
    assert second.body["requests"][0]["taskType"] == "RETRIEVAL_QUERY"


async def test_the_second_generation_of_google_reads_its_task_in_the_text(provider: Provider):
    provider.answer([whole({"embeddings": [{"values": HALF}]})])
    async with closing(google(provider, "gemini-embedding-2")) as embedder:
        await embedder.embed(["a"])
        await embedder.embed_queries(["b"])
    requests = [request.body["requests"][0] for request in provider.requests]
    assert [request["content"]["parts"][0]["text"] for request in requests] == [
        "title: none | text: a",
        "task: search result | query: b",
    ]
    assert all("taskType" not in request for request in requests)


async def test_vertex_takes_a_token_and_one_text_at_a_time(provider: Provider):
    prediction = {"embeddings": {"values": LONG, "statistics": {"token_count": 5}}}
    provider.answer([whole({"predictions": [prediction]})])
    vertex = google(provider, project="acme", token="a-token", dimensions=2, requests_at_once=1)
    async with closing(vertex) as embedder:
        assert (await embedder.embed(["a", "b"])).shape == (2, 2)
        assert embedder.tokens == 10
    first, second = provider.requests
    assert first.line.endswith(
        "/projects/acme/locations/global/publishers/google/models/gemini-embedding-001:predict"
        " HTTP/1.1"
    )
    assert first.headers["authorization"] == "bearer a-token"
    assert first.body == {
        "instances": [{"content": "a", "task_type": "RETRIEVAL_DOCUMENT"}],
        "parameters": {"outputDimensionality": 2},
    }
    assert second.body["instances"][0]["content"] == "b"


def bedrock(provider: Provider, *name: str, **options: Any) -> Embedder:
    options = {"api_key": KEY, "max_retries": 0, "base_url": provider.url, **options}
    return BedrockEmbedder(*name, **options)


async def test_titan_takes_one_text_in_a_request(provider: Provider):
    provider.answer([whole({"embedding": LONG, "inputTextTokenCount": 2})])
    async with closing(bedrock(provider, dimensions=256, requests_at_once=1)) as embedder:
        assert (await embedder.embed(["a", "b"])).shape == (2, 2)
        assert embedder.tokens == 4
    first, second = provider.requests
    assert first.line == "POST /model/amazon.titan-embed-text-v2%3a0/invoke HTTP/1.1".replace(
        "%3a", "%3A"
    )
    assert first.headers["authorization"] == f"bearer {KEY}"
    assert [first.body, second.body] == [
        {"inputText": "a", "dimensions": 256},
        {"inputText": "b", "dimensions": 256},
    ]


@in_one_test(
    ("name", "truncate", "size"),
    [("cohere.embed-multilingual-v3", "END", 2048), ("cohere.embed-v4:0", "RIGHT", 3000)],
)
async def test_cohere_is_told_what_is_a_question(
    provider: Provider, name: str, truncate: str, size: int
):
    answer = {"embeddings": {"float": [LONG, HALF]}}
    provider.answer([whole(answer, x_amzn_bedrock_input_token_count="9")])
    async with closing(bedrock(provider, name, dimensions=512)) as embedder:
        assert (await embedder.embed(["a" * 3000, "b"])).shape == (2, 2)
        await embedder.embed_queries(["a", "b"])
        assert embedder.tokens == 18
    first, second = provider.requests
    assert [len(text) for text in first.body["texts"]] == [size, 1]
    assert first.body["truncate"] == truncate
    assert first.body["input_type"] == "search_document"
    assert first.body["output_dimension"] == 512
    assert second.body["input_type"] == "search_query"


async def test_an_older_answer_of_cohere_is_read_too(provider: Provider):
    provider.answer([whole({"embeddings": [LONG]})])
    async with closing(bedrock(provider, "cohere.embed-english-v3")) as embedder:
        assert (await embedder.embed(["a"])).tolist() == [pytest.approx(HALF)]


async def test_requests_to_bedrock_are_signed(provider: Provider):
    pytest.importorskip("botocore")
    provider.answer([whole({"embedding": HALF, "inputTextTokenCount": 2})])
    signed = bedrock(
        provider, api_key=None, access_key="AKIDEXAMPLE", secret_key="secret", region="eu-west-1"
    )
    async with closing(signed) as embedder:
        await embedder.embed(["a"])
    assert "credential=akidexample" in provider.requests[0].headers["authorization"]


async def test_tei_takes_texts_and_returns_rows(provider: Provider):
    provider.answer([whole(json.dumps([LONG]).encode())])
    async with closing(create_embedder(f"tei:{provider.url}/", api_key=KEY)) as embedder:
        assert (await embedder.embed(["a"])).tolist() == [pytest.approx(HALF)]
        assert embedder.tokens == 0
        assert embedder.model == f"tei:{provider.url}"
    (request,) = provider.requests
    assert request.line == "POST /embed HTTP/1.1"
    assert request.headers["authorization"] == f"bearer {KEY}"
    assert request.body == {"inputs": ["a"], "truncate": True}


async def test_tei_can_be_asked_as_copilot_ld_does(provider: Provider):
    provider.answer([whole(json.dumps([HALF]).encode())])
    tei = TEIEmbedder(provider.url, truncate=None, name="bge-small-en-v1.5")
    async with closing(tei) as embedder:
        await embedder.embed(["a"])
        assert embedder.model == "tei:bge-small-en-v1.5"
    assert provider.requests[0].body == {"inputs": ["a"]}
    assert "authorization" not in provider.requests[0].headers


async def test_tei_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("EMBEDDING_BASE_URL", "http://tei.example:8080")
    assert create_embedder("tei").model == "tei:http://tei.example:8080"
    with pytest.raises(ConfigurationFailed, match="not an address"):
        create_embedder("tei:localhost")


async def test_tokens_have_a_price_where_the_model_is_known():
    pytest.importorskip("genai_prices")
    assert await OpenAIEmbedder(api_key=KEY).price(1_000_000) == Decimal("0.02")
    assert await OpenAIEmbedder("mine", api_key=KEY).price(1_000_000) is None


async def test_without_the_package_of_prices_there_are_none(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(__import__("sys").modules, "copilot_runtime.adapters.pricing", None)
    assert await OpenAIEmbedder(api_key=KEY).price(1_000_000) is None


@in_one_test(
    ("name", "options", "message"),
    [
        ("opnai", {}, "Did you mean 'openai'"),
        ("openai", {"size": 3}, "unexpected keyword argument 'size'"),
        ("vllm", {}, "No model of vLLM"),
        ("openai", {"batch_size": 0}, "1 at least"),
        ("openai", {"base_url": "nowhere"}, "not an address"),
        ("hashing:many", {}, "not a valid number of dimensions"),
        ("hashing:3", {}, "not a valid number of dimensions"),
    ],
)
async def test_an_embedder_that_cannot_be_made_says_why(
    name: str, options: dict[str, Any], message: str
):
    with pytest.raises(ConfigurationFailed) as caught:
        create_embedder(name, **options)
    assert message in caught.value.message


async def test_what_a_plugin_makes_must_be_an_embedder(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(
        __import__("copilot_runtime.adapters.embeddings").adapters.embeddings.EMBEDDERS,
        "mine",
        "builtins:dict",
    )
    with pytest.raises(ConfigurationFailed, match="returned a dict"):
        create_embedder("mine")
