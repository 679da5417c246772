"""The application brings its own `openai.AsyncOpenAI`: it asks, we read."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING

import pytest

from copilot_runtime.adapters.openai import OpenAIAdapter
from copilot_runtime.api import Action, ChatRequest, Parameters
from copilot_runtime.api.events import (
    Event,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
)
from copilot_runtime.api.messages import TextMessage
from copilot_runtime.base.errors import (
    AuthenticationFailed,
    CopilotError,
    NetworkError,
    RateLimited,
    RunStalled,
)
from tests.adapters.provider import (
    HANG,
    HEAD,
    RESET,
    Provider,
    Step,
    piece,
    saying,
    text,
    whole,
)
from tests.in_one_test import in_one_test

if TYPE_CHECKING:
    from openai import AsyncOpenAI

openai = pytest.importorskip("openai")
pytestmark = pytest.mark.anyio

REQUEST = ChatRequest(
    messages=[TextMessage(id="u1", role="user", content="Hello")],
    actions=[Action(name="a")],
    parameters=Parameters(temperature=0.0),
)
HI = [
    TextMessageStart(message_id="chatcmpl-1"),
    TextMessageContent(message_id="chatcmpl-1", content="Hi"),
]


@pytest.fixture
async def client(provider: Provider) -> "AsyncGenerator[AsyncOpenAI, None]":
    client = openai.AsyncOpenAI(
        base_url=f"{provider.url}/v1", api_key="sk-of-its-own", max_retries=0
    )
    yield client
    await client.close()


async def answer_to(adapter: OpenAIAdapter) -> list[Event]:
    async with aclosing(adapter.stream(REQUEST)) as events:
        return [event async for event in events]


async def error_of(adapter: OpenAIAdapter) -> CopilotError:
    with pytest.raises(CopilotError) as caught:
        await answer_to(adapter)
    return caught.value


async def test_its_key_and_address_count(provider: Provider, client: "AsyncOpenAI"):
    provider.answer(saying(text("Hi")))
    adapter = OpenAIAdapter(client=client)

    events = [await answer_to(adapter), await answer_to(adapter)]
    await adapter.aclose()

    assert events == [[*HI, TextMessageEnd(message_id="chatcmpl-1")]] * 2
    assert provider.requests[0].headers["authorization"] == "bearer sk-of-its-own"
    assert provider.requests[0].body == {
        "model": "gpt-4o",
        "stream": True,
        "messages": [{"role": "user", "content": "Hello"}],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "a",
                    "description": "",
                    "parameters": {"type": "object", "properties": {}},
                },
            }
        ],
        "temperature": 0,
    }
    assert provider.connections == 1


async def test_it_stays_open_for_its_owner(provider: Provider, client: "AsyncOpenAI"):
    provider.answer(saying(text("Hi")))
    await OpenAIAdapter(client=client).aclose()
    assert not client.is_closed()


async def test_leaving_an_answer_closes_its_connection(provider: Provider, client: "AsyncOpenAI"):
    provider.answer([HEAD, piece(text("Hi")), HANG])
    async with aclosing(OpenAIAdapter(client=client).stream(REQUEST)) as events:
        async for _ in events:
            break
    await provider.until_open(0)


async def test_a_refusal_is_the_same_error_as_without_it(provider: Provider, client: "AsyncOpenAI"):
    body = {
        "error": {
            "message": "Incorrect API key provided: sk-of-its-own.",
            "code": "invalid_api_key",
        }
    }
    provider.answer([whole(body, status="401 No", x_request_id="req_7")])

    error = await error_of(OpenAIAdapter(client=client))

    assert isinstance(error, AuthenticationFailed)
    assert error.message == "OpenAI API error: 401 Incorrect API key provided: ***."
    assert (error.kind, error.hint) == (
        "AuthenticationError",
        "Model: 'gpt-4o'. Request id: req_7.",
    )


async def test_a_rate_limit_is_the_same_error_as_without_it(
    provider: Provider, client: "AsyncOpenAI"
):
    provider.answer([whole({"error": {"message": "Slow down."}}, status="429 No")])
    error = await error_of(OpenAIAdapter(client=client))
    assert (type(error), error.message) == (RateLimited, "OpenAI API error: 429 Slow down.")


async def test_an_answer_cut_short_is_the_same_error_as_without_it(
    provider: Provider, client: "AsyncOpenAI"
):
    provider.answer([HEAD, piece(text("Hi")), RESET])
    seen: list[Event] = []
    with pytest.raises(NetworkError) as caught:
        async with aclosing(OpenAIAdapter(client=client).stream(REQUEST)) as events:
            async for event in events:
                seen.append(event)
    assert (seen, caught.value.message) == (HI, "OpenAI API error: Premature close")


SILENCES: dict[str, list[Step]] = {"before": [HANG], "within": [HEAD, piece(text("Hi")), HANG]}


@in_one_test("case", SILENCES)
async def test_its_time_limit_ends_a_silence(provider: Provider, client: "AsyncOpenAI", case: str):
    provider.answer(SILENCES[case])
    error = await error_of(OpenAIAdapter(client=client.with_options(timeout=0.05)))
    assert isinstance(error, RunStalled)


async def test_nobody_listening_is_explained(client: "AsyncOpenAI"):
    unused = client.with_options(base_url="http://127.0.0.1:1/v1")
    error = await error_of(OpenAIAdapter(client=unused))
    assert (type(error), error.kind) == (NetworkError, "APIConnectionError")
    assert error.message == "OpenAI API error: Connection error."


async def test_it_asks_the_responses_api_too(provider: Provider, client: "AsyncOpenAI"):
    created = b'data: {"type":"response.created","response":{"id":"chatcmpl-1"}}\n\n'
    words = b'data: {"type":"response.output_text.delta","output_index":0,"delta":"Hi"}\n\n'
    completed = b'data: {"type":"response.completed","response":{"id":"chatcmpl-1"}}\n\n'
    provider.answer([HEAD, piece(created + words + completed), HANG])

    events = await answer_to(OpenAIAdapter(client=client, api="responses"))

    assert events[:3] == [*HI, TextMessageEnd(message_id="chatcmpl-1")]
    assert provider.requests[0].line == "POST /v1/responses HTTP/1.1"
