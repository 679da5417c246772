"""Each adapter beside the SDK of its vendor: both read one answer and count its texts."""

import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from copilot_runtime.api import ChatRequest
from copilot_runtime.api.events import TextMessageContent
from copilot_runtime.api.messages import TextMessage

KEY = "sk-bench"
QUESTION = "Say token, often."

Reads = Callable[[], Awaitable[int]]
"""Asks once and reads the whole answer; returns how many texts there were in it."""


@dataclass(frozen=True, slots=True)
class Pair:
    """An adapter by its name below `copilot_runtime.adapters`, and the SDK's way to read."""

    package: str
    """The SDK, as PyPI calls it."""
    adapter: str
    options: Mapping[str, Any]
    path: str
    """Of the adapter's base URL."""
    sdk: Callable[[str], Reads]


def ours(pair: Pair, url: str) -> tuple[Reads, Callable[[], Awaitable[None]]]:
    """Return how our adapter reads, and how it is closed."""
    module, _, name = pair.adapter.partition(":")
    make = getattr(import_module(f"copilot_runtime.adapters.{module}"), name)
    adapter = make(base_url=f"{url}{pair.path}", **pair.options)
    message = TextMessage(id="u1", role="user", content=QUESTION)

    async def read() -> int:
        texts = 0
        async with aclosing(adapter.stream(ChatRequest(messages=[message]))) as events:
            async for event in events:
                if type(event) is TextMessageContent:
                    texts += 1
        return texts

    return read, adapter.aclose


async def _count(stream: AsyncIterator[Any], text_of: Callable[[Any], Any]) -> int:
    texts = 0
    async for chunk in stream:
        if text_of(chunk):
            texts += 1
    return texts


def _openai(url: str) -> Reads:
    from openai import AsyncOpenAI

    client = AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY)

    async def read() -> int:
        stream = await client.chat.completions.create(
            model="gpt-4o", messages=[{"role": "user", "content": QUESTION}], stream=True
        )
        return await _count(stream, lambda chunk: chunk.choices and chunk.choices[0].delta.content)

    return read


def _openai_responses(url: str) -> Reads:
    from openai import AsyncOpenAI

    client = AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY)

    async def read() -> int:
        stream = await client.responses.create(model="gpt-5", input=QUESTION, stream=True)
        return await _count(stream, lambda event: event.type == "response.output_text.delta")

    return read


def _openai_assistants(url: str) -> Reads:
    from openai import AsyncOpenAI

    client = AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY)

    async def read() -> int:
        with warnings.catch_warnings(action="ignore"):  # the SDK calls this API deprecated
            stream = await client.beta.threads.create_and_run(assistant_id="asst_1", stream=True)
        return await _count(stream, lambda event: event.event == "thread.message.delta")

    return read


def _anthropic(url: str) -> Reads:
    from anthropic import AsyncAnthropic

    client = AsyncAnthropic(base_url=url, api_key=KEY)

    async def read() -> int:
        # the cheaper of the SDK's two ways; `messages.stream` builds the message besides
        stream = await client.messages.create(
            model="claude-sonnet-5-5",
            max_tokens=1024,
            messages=[{"role": "user", "content": QUESTION}],
            stream=True,
        )
        return await _count(stream, lambda event: event.type == "content_block_delta")

    return read


def _google(url: str) -> Reads:
    from google.genai import Client, types

    client = Client(api_key=KEY, http_options=types.HttpOptions(base_url=url))

    async def read() -> int:
        stream = await client.aio.models.generate_content_stream(
            model="gemini-2.5-flash", contents=QUESTION
        )
        return await _count(stream, lambda chunk: chunk.text)

    return read


def _bedrock(url: str) -> Reads:
    import boto3

    client = boto3.client(
        "bedrock-runtime",
        region_name="us-east-1",
        endpoint_url=url,
        aws_access_key_id="AKIDBENCH",
        aws_secret_access_key=KEY,
    )

    async def read() -> int:
        answer = client.converse_stream(
            modelId="amazon.nova-lite-v1:0",
            messages=[{"role": "user", "content": [{"text": QUESTION}]}],
        )
        return sum("contentBlockDelta" in event for event in answer["stream"])

    return read


PAIRS: Mapping[str, Pair] = {
    "openai": Pair("openai", "openai:OpenAIAdapter", {"api_key": KEY}, "/v1", _openai),
    "openai_responses": Pair(
        "openai",
        "openai:OpenAIAdapter",
        {"api": "responses", "model": "gpt-5", "api_key": KEY},
        "/v1",
        _openai_responses,
    ),
    "openai_assistants": Pair(
        "openai",
        "openai.assistants:OpenAIAssistantsAdapter",
        {"assistant_id": "asst_1", "api_key": KEY},
        "/v1",
        _openai_assistants,
    ),
    "anthropic": Pair(
        "anthropic",
        "anthropic:AnthropicAdapter",
        {"model": "claude-sonnet-5-5", "api_key": KEY},
        "",
        _anthropic,
    ),
    "google": Pair(
        "google-genai",
        "google:GoogleAdapter",
        {"model": "gemini-2.5-flash", "api_key": KEY},
        "/v1beta",
        _google,
    ),
    "bedrock": Pair(
        "boto3",
        "bedrock:BedrockAdapter",
        {"access_key": "AKIDBENCH", "secret_key": KEY, "region": "us-east-1"},
        "",
        _bedrock,
    ),
}
"""Adapter → how it and its SDK read. Presets are `openai` with another address."""
