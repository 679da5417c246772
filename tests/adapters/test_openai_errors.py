"""What a provider that refuses, or is not there, becomes for the person in front of the browser."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

import pytest

from copilot_runtime.adapters.openai import OpenAIAdapter
from copilot_runtime.api import ChatRequest
from copilot_runtime.api.events import Event
from copilot_runtime.api.messages import TextMessage
from copilot_runtime.base.errors import (
    AuthenticationFailed,
    ConfigurationFailed,
    CopilotError,
    InvalidAnswer,
    LimitExceeded,
    NetworkError,
    RateLimited,
    RunStalled,
)
from copilot_runtime.http import client as _client
from tests.adapters.asking import text_in
from tests.adapters.contract.fakes import data
from tests.adapters.provider import (
    DONE,
    END,
    HANG,
    HEAD,
    Provider,
    Step,
    finish,
    piece,
    saying,
    streamed,
    text,
    whole,
)
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

REQUEST = ChatRequest(messages=[TextMessage(id="u1", role="user", content="Hello")])
SECRET = "sk-very-secret"


@pytest.fixture
async def adapter(provider: Provider) -> AsyncGenerator[OpenAIAdapter, None]:
    adapter = OpenAIAdapter(base_url=f"{provider.url}/v1", api_key=SECRET, max_retries=0)
    yield adapter
    await adapter.aclose()


async def answer_to(adapter: OpenAIAdapter) -> list[Event]:
    async with aclosing(adapter.stream(REQUEST)) as events:
        return [event async for event in events]


async def error_of(adapter: OpenAIAdapter) -> CopilotError:
    with pytest.raises(CopilotError) as caught:
        await answer_to(adapter)
    return caught.value


def refusal(message: str, **more: Any) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, **more}}


STATUSES: dict[str, tuple[type[CopilotError], str, str]] = {
    "400 Bad Request": (ConfigurationFailed, "CONFIGURATION_ERROR", "BadRequestError"),
    "401 Unauthorized": (AuthenticationFailed, "AUTHENTICATION_ERROR", "AuthenticationError"),
    "403 Forbidden": (AuthenticationFailed, "AUTHENTICATION_ERROR", "PermissionDeniedError"),
    "404 Not Found": (ConfigurationFailed, "CONFIGURATION_ERROR", "NotFoundError"),
    "408 Request Timeout": (NetworkError, "NETWORK_ERROR", "APIError"),
    "409 Conflict": (NetworkError, "NETWORK_ERROR", "ConflictError"),
    "413 Too Large": (LimitExceeded, "LIMIT_EXCEEDED", "APIError"),
    "422 Unprocessable": (ConfigurationFailed, "CONFIGURATION_ERROR", "UnprocessableEntityError"),
    "429 Too Many Requests": (RateLimited, "RATE_LIMITED", "RateLimitError"),
    "500 Internal Server Error": (NetworkError, "NETWORK_ERROR", "InternalServerError"),
    "503 Service Unavailable": (NetworkError, "NETWORK_ERROR", "InternalServerError"),
}


@in_one_test("status", STATUSES)
async def test_a_status_becomes_the_error_the_node_runtime_makes_of_it(
    provider: Provider, adapter: OpenAIAdapter, status: str
):
    provider.answer([whole(refusal("No, from mock."), status=status)])

    error = await error_of(adapter)

    report = error.report()
    assert (type(error), report.code, report.kind) == STATUSES[status]
    assert (report.status_code, report.severity, report.visibility) == (
        int(status[:3]),
        "warning" if isinstance(error, LimitExceeded | RateLimited) else "critical",
        "banner",
    )
    assert report.message == (
        f"OpenAI API error: {status[:3]} No, from mock."
        + (" (Model: 'gpt-4o'.)" if status.startswith("404") else "")
    )


BODIES: dict[str, tuple[bytes | dict[str, Any], str]] = {
    "OpenAI": (refusal("No."), "500 No."),
    "a text as error": ({"error": "No."}, "500 No."),
    "FastAPI": ({"detail": "No."}, "500 No."),
    "FastAPI's validation": ({"detail": [{"loc": ["body", 0], "msg": "No."}]}, "500 body.0: No."),
    "Gemini": (b'[{"error": {"code": 500, "message": "No."}}]', "500 No."),
    "vLLM": ({"object": "error", "message": "No."}, "500 No."),
    "JSON of another kind": ({"a": 1}, '500 {"a":1}'),
    "text": (b"Bad\n gateway", "500 Bad gateway"),
    "a page": (b"<html><style>p{}</style><h1>Bad</h1>gateway</html>", "500 Bad gateway"),
    "a page that is cut off": (b"<h1>Bad</h1>gateway<script>let a = ", "500 Bad gateway"),
    "bytes": (b"\xff", "500 \N{REPLACEMENT CHARACTER}"),
    "nothing": (b"", "500 status code (no body)"),
    "a novel": (b"x" * 5_000, "500 " + "x" * 500 + "..."),
}


@in_one_test("case", BODIES)
async def test_the_reason_is_found_in_any_body(
    provider: Provider, adapter: OpenAIAdapter, case: str
):
    body, message = BODIES[case]
    provider.answer([whole(body, status="500 Oh")])
    assert (await error_of(adapter)).message == f"OpenAI API error: {message}"


async def test_a_status_without_its_body_is_still_that_status(
    provider: Provider, adapter: OpenAIAdapter
):
    provider.answer([b"HTTP/1.1 401 No\r\ncontent-length: 99\r\n\r\n{", "reset"])
    assert (await error_of(adapter)).status_code == 401


async def test_a_redirect_is_explained_and_the_key_not_sent_on(
    provider: Provider, adapter: OpenAIAdapter
):
    provider.answer([whole(b"", status="308 Moved", location="http://elsewhere.test/v1")])
    error = await error_of(adapter)
    assert error.message == "OpenAI API error: 308 redirects are not followed"
    assert error.hint is not None
    assert error.hint.startswith("It redirects to 'http://elsewhere.test/v1': is the base URL")


async def test_a_key_is_needed_where_openai_answers_itself(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)

    error = await error_of(OpenAIAdapter())

    assert isinstance(error, ConfigurationFailed)
    assert error.message == "There is no API key for OpenAI."
    assert error.hint is not None
    assert "OPENAI_API_KEY" in error.hint


async def test_elsewhere_no_key_is_needed(provider: Provider, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("OPENAI_BASE_URL", f"{provider.url}/v1/")
    provider.answer(saying(text("Hi")))
    adapter = OpenAIAdapter("llama3")

    await answer_to(adapter)
    await adapter.aclose()

    assert provider.requests[0].line == "POST /v1/chat/completions HTTP/1.1"
    assert "authorization" not in provider.requests[0].headers


@in_one_test("key", ["sk-ü", "sk-a\r\nx-evil: 1"])
async def test_a_key_that_cannot_be_one_is_refused_without_repeating_it(key: str):
    error = await error_of(OpenAIAdapter(api_key=key))
    assert error.message == "The API key for OpenAI contains invalid characters."


@in_one_test("address", ["api.openai.com/v1", "ftp://x/v1", "https://", "nonsense"])
def test_a_base_url_that_is_none_is_refused_at_once(address: str):
    with pytest.raises(ConfigurationFailed, match="is not an address"):
        OpenAIAdapter(base_url=address)


def test_a_password_in_the_base_url_beside_a_key_is_refused_at_once():
    with pytest.raises(ConfigurationFailed, match="a user or a password in it") as caught:
        OpenAIAdapter(api_key="key", base_url="https://ann:secret@models.example/v1")
    assert "secret" not in f"{caught.value} {caught.value.hint}"


def test_a_password_in_the_base_url_takes_the_place_of_a_key(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    OpenAIAdapter(base_url="https://ann:secret@models.example/v1")


SILENCES: dict[str, list[Step]] = {
    "before the answer": [HANG],
    "before the first word": [HEAD, HANG],
    "in the middle": [HEAD, piece(text("Hi")), HANG],
}


@in_one_test("case", SILENCES)
async def test_a_silence_ends_in_an_error(provider: Provider, case: str):
    provider.answer(SILENCES[case])
    # connecting takes no time, and the limit for it is a part of that for the first byte
    adapter = OpenAIAdapter(base_url=f"{provider.url}/v1", connect_timeout=2, idle_timeout=0.05)

    error = await error_of(adapter)
    await provider.until_open(0)
    await adapter.aclose()

    assert isinstance(error, RunStalled)
    assert error.message == "OpenAI API error: No answer for 0.05 seconds."
    assert len(provider.requests) == 1


@in_one_test("sign", [b": OPENROUTER PROCESSING\n\n", b'event: ping\ndata: {"type": "ping"}\n\n'])
async def test_signs_of_life_are_no_answer_for_ever(
    provider: Provider, monkeypatch: pytest.MonkeyPatch, sign: bytes
):
    monkeypatch.setattr(_client, "_KEEP_ALIVES", 1e-9)
    later = asyncio.Event()
    provider.answer([HEAD, piece(sign), later, piece(sign), HANG])
    adapter = OpenAIAdapter(base_url=f"{provider.url}/v1", max_retries=0)
    asyncio.get_running_loop().call_later(0.05, later.set)

    error = await error_of(adapter)
    await provider.until_open(0)
    await adapter.aclose()

    assert isinstance(error, RunStalled)


async def test_an_error_that_never_ends_is_told_by_its_status(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(_client, "ERROR_BODY_TIMEOUT", 0.05)
    head = HEAD.replace(b"200 OK", b"400 Bad Request")
    provider.answer([head, piece(b"One moment"), HANG])
    adapter = OpenAIAdapter(base_url=f"{provider.url}/v1")

    error = await error_of(adapter)
    await provider.until_open(0)
    await adapter.aclose()

    assert error.message == "OpenAI API error: 400 One moment"


async def test_silence_after_the_reason_takes_nothing_from_the_answer(provider: Provider):
    provider.answer([HEAD, piece(text("Hi") + finish()), HANG])
    adapter = OpenAIAdapter(base_url=f"{provider.url}/v1", idle_timeout=0.05)

    events = await answer_to(adapter)
    await provider.until_open(0)
    await adapter.aclose()

    assert len(events) == 3  # start, content, end; and no error


async def test_a_slow_reader_is_not_a_silent_model(provider: Provider):
    read_on = asyncio.Event()
    provider.answer([HEAD, piece(text("Hi")), read_on, piece(finish()), END])
    adapter = OpenAIAdapter(base_url=f"{provider.url}/v1", idle_timeout=0.01)
    asyncio.get_running_loop().call_later(0.05, read_on.set)

    seen: list[Event] = []
    async with aclosing(adapter.stream(REQUEST)) as events:
        async for event in events:
            await read_on.wait()
            seen.append(event)
    await adapter.aclose()

    assert len(seen) == 3


NATIVE = {"finish_reason": "stop", "native_finish_reason": "MALFORMED_FUNCTION_CALL"}
MISSPELT: dict[str, Sequence[Step]] = {
    "Groq": [
        whole(
            refusal("Failed to call a function.", code="tool_use_failed", failed_generation="x"),
            status="400 Bad Request",
        )
    ],
    "Groq, in its stream": streamed(
        data(refusal("Failed to call a function.", code="tool_use_failed"))
    ),
    "Gemini behind OpenAI's API": streamed(
        finish("function_call_filter: MALFORMED_FUNCTION_CALL"), DONE
    ),
    "Gemini behind OpenRouter": streamed(
        data({"choices": [{"index": 0, "delta": {}, **NATIVE}]}), DONE
    ),
}


@in_one_test("case", MISSPELT)
async def test_a_call_that_the_model_misspelt_is_asked_for_again_once(
    provider: Provider, case: str
):
    adapter = OpenAIAdapter(base_url=f"{provider.url}/v1", api_key=SECRET, max_retries=5)
    provider.answer(MISSPELT[case], saying(text("fine")))
    assert text_in(await answer_to(adapter)) == "fine"

    provider.answer(MISSPELT[case])
    provider.requests.clear()
    error = await error_of(adapter)
    assert (type(error), error.code, len(provider.requests)) == (InvalidAnswer, "NETWORK_ERROR", 2)
    await adapter.aclose()
