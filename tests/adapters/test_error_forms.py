"""The forms in which providers send errors with a status of success, or hide them in a status."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from copilot_runtime.adapters import streaming
from copilot_runtime.adapters.anthropic import AnthropicAdapter
from copilot_runtime.adapters.bedrock import BedrockAdapter
from copilot_runtime.adapters.error_classes import ERROR_CLASSES, ErrorClass
from copilot_runtime.adapters.google import GoogleAdapter
from copilot_runtime.adapters.http_adapter import HTTPAdapter
from copilot_runtime.adapters.openai import OpenAIAdapter, presets
from copilot_runtime.base.errors import (
    AuthenticationFailed,
    CopilotError,
    LimitExceeded,
    NetworkError,
    PaymentRequired,
    RateLimited,
    Refused,
    ToolsRefused,
)
from tests.adapters.asking import answer_to, failure_of, text_in
from tests.adapters.contract.bedrock_fake import exception
from tests.adapters.provider import HEAD, Provider, Step, chunk, saying, streamed, text, whole
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

KEY = "k" * 20


@asynccontextmanager
async def adapter_of(name: str, provider: Provider, **more: Any) -> AsyncGenerator[HTTPAdapter]:
    """Yield an adapter that asks the provider."""
    shared: dict[str, Any] = {"base_url": provider.url, "api_key": KEY, "max_retries": 0, **more}
    makers: dict[str, Any] = {
        "openai": lambda: OpenAIAdapter("m", **shared),
        "openrouter": lambda: presets.openrouter("m", **shared),
        "responses": lambda: OpenAIAdapter("m", api="responses", **shared),
        "anthropic": lambda: AnthropicAdapter("m", **shared),
        "google": lambda: GoogleAdapter("m", **shared),
        "bedrock": lambda: BedrockAdapter("m", region="eu-west-1", **shared),
    }
    adapter = makers[name]()
    yield adapter
    await adapter.aclose()


def data(value: Any, event: str = "") -> bytes:
    """Return an event, with a name if it is given."""
    payload = value if isinstance(value, str) else json.dumps(value)
    return (f"event: {event}\n" if event else "").encode() + f"data: {payload}\n\n".encode()


def failed(code: Any, message: str, **more: Any) -> bytes:
    """Return the chunk with which OpenRouter ends an answer that failed."""
    return chunk({"content": ""}, finish="error", error={"code": code, "message": message, **more})


AWS = HEAD.replace(b"text/event-stream", b"application/vnd.amazon.eventstream")
CLOUDFLARE = (
    b"<!DOCTYPE html><html><head><title>api.example.com | 524: A timeout occurred</title>"
    b"</head><body><script>var a = 1</script><h1>Error code 524</h1></body></html>"
)

FORMS: dict[str, tuple[str, list[Step], type[CopilotError], int, str]] = {
    "OpenRouter, without credit": (
        "openrouter",
        streamed(text("Well,"), failed(402, "Insufficient credits")),
        PaymentRequired,
        402,
        "OpenRouter API error: Insufficient credits",
    ),
    "OpenRouter, with the words of the provider behind it": (
        "openrouter",
        streamed(
            failed(
                429, "Provider returned error", metadata={"raw": '{"error":{"message":"Busy."}}'}
            )
        ),
        RateLimited,
        429,
        "OpenRouter API error: Provider returned error: Busy.",
    ),
    "OpenRouter, flagged": (
        "openrouter",
        streamed(failed(403, "Your input was flagged")),
        Refused,
        403,
        "The content filter of OpenRouter refused the question. Please put it differently.",
    ),
    "inside a choice": (
        "openai",
        streamed(
            data({"choices": [{"index": 0, "error": {"code": 502, "message": "Disconnected"}}]})
        ),
        NetworkError,
        502,
        "OpenAI API error: Disconnected",
    ),
    "a text": (
        "openai",
        streamed(data({"error": "Rate limit reached. Please try again in 7m12.5s."})),
        RateLimited,
        429,
        "OpenAI API error: Rate limit reached. Please try again in 7m12.5s.",
    ),
    "DeepInfra, beside no choices": (
        "openai",
        streamed(
            text("Well,"),
            data({"object": "chat.completion.chunk", "choices": None, "error_message": "Died."}),
        ),
        NetworkError,
        500,
        "OpenAI API error: Died.",
    ),
    "words in place of JSON": (
        "openai",
        streamed(text("Well,"), data("[ERROR] rate limit exceeded")),
        RateLimited,
        429,
        "OpenAI API error: [ERROR] rate limit exceeded",
    ),
    "behind the last event, in one piece with it": (
        "openai",
        streamed(text("Well,") + b'{\n"error": {"message": "Overloaded.", "code": 503}}'),
        NetworkError,
        503,
        "OpenAI API error: Overloaded.",
    ),
    "the name of a status beside the words": (
        "openai",
        [whole({"statusCode": 429, "error": "Too Many Requests", "message": "Retry in 1 minute"})],
        RateLimited,
        429,
        "OpenAI API error: Too Many Requests: Retry in 1 minute",
    ),
    "vLLM": (
        "openai",
        streamed(data({"object": "error", "message": "The prompt is too long.", "code": 400})),
        LimitExceeded,
        413,
        "The conversation is too long for 'm'. OpenAI API error: The prompt is too long.",
    ),
    "an event named error": (
        "openai",
        streamed(data({"message": "No key.", "type": "authentication_error"}, event="error")),
        AuthenticationFailed,
        401,
        "OpenAI API error: No key.",
    ),
    "an event of words": (
        "openai",
        streamed(data("upstream connect error or disconnect", event="error")),
        NetworkError,
        500,
        "OpenAI API error: upstream connect error or disconnect",
    ),
    "a gateway's message": (
        "openai",
        [whole({"message": "API rate limit exceeded"}, retry_after="20")],
        RateLimited,
        429,
        "OpenAI API error: API rate limit exceeded",
    ),
    "MiniMax": (
        "openai",
        [
            whole(
                {
                    "choices": None,
                    "base_resp": {"status_code": 1008, "status_msg": "insufficient balance"},
                }
            )
        ],
        PaymentRequired,
        402,
        "OpenAI API error: insufficient balance",
    ),
    "a page": (
        "openai",
        [whole(CLOUDFLARE, content_type="text/html")],
        NetworkError,
        524,
        "OpenAI API error: api.example.com | 524: A timeout occurred",
    ),
    "a page with its status": (
        "openai",
        [whole(CLOUDFLARE, content_type="text/html", status="524 Oh")],
        NetworkError,
        524,
        "OpenAI API error: 524 api.example.com | 524: A timeout occurred",
    ),
    "plain text": (
        "anthropic",
        [whole(b"error code: 502", content_type="text/plain")],
        NetworkError,
        502,
        "Anthropic API error: error code: 502",
    ),
    "DeepSeek's stop reason": (
        "openai",
        streamed(text("Well,"), chunk({}, finish="insufficient_system_resource")),
        NetworkError,
        503,
        "OpenAI API error: The system has too few resources to finish the answer.",
    ),
    "a spent quota with the status of a rate limit": (
        "openai",
        [
            whole(
                {"error": {"message": "You exceeded your quota.", "code": "insufficient_quota"}},
                status="429 Too Many Requests",
            )
        ],
        PaymentRequired,
        429,
        "OpenAI API error: 429 You exceeded your quota.",
    ),
    "Responses, failed": (
        "responses",
        streamed(
            data(
                {
                    "type": "response.failed",
                    "response": {"error": {"code": "rate_limit_exceeded", "message": "Slowly."}},
                }
            )
        ),
        RateLimited,
        429,
        "OpenAI API error: Slowly.",
    ),
    "Responses, an error": (
        "responses",
        streamed(data({"type": "error", "code": "server_error", "message": "Oh.", "param": None})),
        NetworkError,
        500,
        "OpenAI API error: Oh.",
    ),
    "Anthropic, a spending limit": (
        "anthropic",
        streamed(
            data(
                {
                    "type": "error",
                    "error": {
                        "type": "rate_limit_error",
                        "message": "Spent.",
                        "details": {"error_code": "enforced_spend_limit_reached"},
                    },
                },
                event="error",
            )
        ),
        PaymentRequired,
        402,
        "Anthropic API error: Spent.",
    ),
    "Anthropic, without credit": (
        "anthropic",
        streamed(
            data(
                {
                    "type": "error",
                    "error": {
                        "type": "invalid_request_error",
                        "message": "Your credit balance is too low.",
                    },
                }
            )
        ),
        PaymentRequired,
        400,
        "Anthropic API error: Your credit balance is too low.",
    ),
    "another provider's form": (
        "anthropic",
        [whole({"error": {"message": "No.", "code": 401}})],
        AuthenticationFailed,
        401,
        "Anthropic API error: No.",
    ),
    "Google, a list": (
        "google",
        [
            whole(
                json.dumps(
                    [
                        {
                            "error": {
                                "code": 429,
                                "message": "Quota.",
                                "status": "RESOURCE_EXHAUSTED",
                                "details": [{"retryDelay": "20s"}],
                            }
                        }
                    ]
                ).encode()
            )
        ],
        RateLimited,
        429,
        "Google API error: Quota. Please try again in 20 seconds.",
    ),
    "Google, one frame": (
        "google",
        streamed(data({"error": {"code": 503, "message": "Busy.", "status": "UNAVAILABLE"}})),
        NetworkError,
        503,
        "Google API error: Busy.",
    ),
    "Bedrock, throttled": (
        "bedrock",
        [AWS, *streamed(exception("throttlingException", "Slowly."))[1:]],
        RateLimited,
        429,
        "Bedrock API error: Slowly.",
    ),
    "Bedrock, JSON instead of a stream": (
        "bedrock",
        [whole({"message": "Too many requests, please wait."})],
        RateLimited,
        429,
        "Bedrock API error: Too many requests, please wait.",
    ),
}


@in_one_test("form", FORMS)
async def test_an_error_in_any_form_has_its_class_and_the_words_of_the_provider(
    provider: Provider, form: str
):
    name, script, kind, status, message = FORMS[form]
    provider.answer(script)
    async with adapter_of(name, provider) as adapter:
        _, error = await failure_of(adapter)
    assert (type(error), error.status_code, error.message) == (kind, status, message)


DELAYS: dict[str, tuple[dict[str, Any], float]] = {
    "OpenAI": ({"message": "Rate limit reached. Please try again in 20s."}, 20),
    "Groq": ({"message": "Rate limit reached. Please try again in 7m12.5s."}, 432.5),
    "milliseconds": ({"message": "Rate limit reached. Please try again in 350ms."}, 0.35),
    "Azure": ({"code": 429, "message": "Please retry after 9 seconds."}, 9),
    "Fastify": ({"code": 429, "message": "Rate limit exceeded, retry in 2 minutes"}, 120),
    "a field": ({"code": 429, "message": "No.", "retry_after": 3}, 3),
    "Google": ({"code": 429, "message": "No.", "details": [{"retryDelay": "34.07s"}]}, 34.07),
    "OpenRouter": (
        {"code": 429, "message": "No.", "metadata": {"headers": {"Retry-After": "17"}}},
        17,
    ),
}


@in_one_test("case", DELAYS)
async def test_the_time_to_wait_is_found_in_fields_and_in_words(provider: Provider, case: str):
    error, delay = DELAYS[case]
    provider.answer(streamed(text("Par"), data({"error": error})))
    async with adapter_of("openai", provider) as adapter:
        _, failure = await failure_of(adapter)
    assert isinstance(failure, RateLimited)
    assert failure.retry_after == pytest.approx(delay)


@in_one_test("place", [["tools"], ["body", "tools"], ["body", "tool_choice"]])
async def test_a_service_of_fastapi_that_takes_no_tools_is_known(
    provider: Provider, place: list[str]
):
    extra = {"type": "extra_forbidden", "msg": "Extra inputs are not permitted"}
    provider.answer([whole({"detail": [{**extra, "loc": place}]}, status="422 No")])
    async with adapter_of("openai", provider) as adapter:
        _, failure = await failure_of(adapter)
    assert isinstance(failure, ToolsRefused) == ("tools" in place)


async def test_the_time_to_wait_stands_in_the_header_of_a_successful_status(provider: Provider):
    provider.answer([whole({"error": {"code": 429, "message": "No."}}, retry_after="20")])
    async with adapter_of("openai", provider) as adapter:
        _, failure = await failure_of(adapter)
    assert isinstance(failure, RateLimited)
    assert failure.retry_after == 20


@pytest.fixture
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    def backoff(attempt: int) -> float:
        return 0.0 * attempt

    monkeypatch.setattr(streaming, "backoff", backoff)


@pytest.mark.usefixtures("no_pause")
@in_one_test("one", [one for one in ERROR_CLASSES if one.codes], ids=lambda one: one.name)
async def test_a_request_is_repeated_where_the_table_says_so(provider: Provider, one: ErrorClass):
    code = next(iter(one.codes))
    provider.answer(streamed(data({"error": {"code": code, "message": "No."}})), saying(text("Hi")))
    async with adapter_of("openai", provider, max_retries=1) as adapter:
        if one.is_retried:
            assert text_in(await answer_to(adapter)) == "Hi"
        else:
            _, error = await failure_of(adapter)
            assert isinstance(error, one.error)
    assert len(provider.requests) == (2 if one.is_retried else 1)


@in_one_test(
    "error",
    [
        {"message": "You exceeded your quota.", "code": "insufficient_quota"},
        {"message": "Rate limit reached. Please try again in 7m12s."},
    ],
    ids=["without credit", "after minutes"],
)
async def test_a_refusal_that_waiting_does_not_change_is_not_asked_again(
    provider: Provider, error: dict[str, Any]
):
    provider.answer([whole({"error": error}, status="429 No")], saying(text("Hi")))
    async with adapter_of("openai", provider, max_retries=1) as adapter:
        await failure_of(adapter)
    assert len(provider.requests) == 1


async def test_a_transient_client_error_is_asked_again(provider: Provider):
    error = {"message": "The model failed. Please try again in 1ms."}
    provider.answer([whole({"error": error}, status="424 No")], saying(text("Hi")))
    async with adapter_of("openai", provider, max_retries=1) as adapter:
        assert text_in(await answer_to(adapter)) == "Hi"


async def test_a_refusal_is_asked_again_after_the_time_in_its_words(provider: Provider):
    error = {"message": "Rate limit reached. Please try again in 1ms."}
    provider.answer([whole({"error": error}, status="429 No")], saying(text("Hi")))
    async with adapter_of("openai", provider, max_retries=1) as adapter:
        assert text_in(await answer_to(adapter)) == "Hi"
