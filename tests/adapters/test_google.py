"""What Gemini's chunks become, over HTTP; what all adapters do is in the contract suite."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from time import process_time
from typing import Any
from unittest.mock import ANY

import pytest

from copilot_runtime.adapters.google import GoogleAdapter
from copilot_runtime.api import ChatRequest
from copilot_runtime.api.events import (
    ActionExecutionArgs,
    ActionExecutionEnd,
    ActionExecutionStart,
    Activity,
    Event,
    ReasoningSignature,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
    Usage,
)
from copilot_runtime.api.transcript import fold_messages
from copilot_runtime.base.errors import (
    AuthenticationFailed,
    CopilotError,
    InvalidAnswer,
    NetworkError,
    Refused,
)
from tests.adapters.asking import HELLO, REQUEST, answer_to, failure_of, fields_in
from tests.adapters.contract.fakes import data
from tests.adapters.provider import DONE, END, HEAD, Provider, piece, streamed, whole
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

PNG = "iVBORw0KGgo="
STOP = {"finishReason": "STOP"}


@pytest.fixture
async def google(provider: Provider) -> AsyncGenerator[GoogleAdapter, None]:
    adapter = GoogleAdapter("gemini-3-flash", base_url=f"{provider.url}/v1beta", api_key="k" * 20)
    yield adapter
    await adapter.aclose()


def chunk(*parts: Any, usage: Any = None, **more: Any) -> dict[str, Any]:
    counted = {"usageMetadata": usage} if usage else {}
    candidate = {"content": {"role": "model", "parts": [*parts]}, "index": 0, **more}
    said = {"responseId": "r1", "modelVersion": "gemini-3-flash-001"}
    return {"candidates": [candidate], **counted, **said}


def call(name: str, **more: Any) -> dict[str, Any]:
    return {"functionCall": {"name": name, "args": {"color": "red"}, **more}}


async def events_of(google: GoogleAdapter, provider: Provider, *chunks: Any) -> list[Event]:
    """Return the events but for the usage."""
    provider.answer(streamed(*map(data, chunks)))
    return [event for event in await answer_to(google) if not isinstance(event, Usage)]


async def test_a_call_is_signed_for_the_next_request(google: GoogleAdapter, provider: Provider):
    signed = {**call("setColor", id="c1"), "thoughtSignature": "c2ln"}
    events = await events_of(google, provider, chunk(signed, **STOP))
    assert events == [
        ActionExecutionStart(call_id="c1", name="setColor", parent_id="r1"),
        ActionExecutionArgs(call_id="c1", delta='{"color":"red"}'),
        ReasoningSignature(entity_id="c1", value=ANY, of="call"),
        ActionExecutionEnd(call_id="c1"),
    ]
    assert fields_in(events) == [{"thoughtSignature": "c2ln"}]


@in_one_test(
    ("chunks", "parts"),
    [
        (
            [{"text": "Hel"}, {"text": "lo"}, {"text": "", "thoughtSignature": "c2ln"}],
            [{"text": "Hello"}, {"text": "", "thoughtSignature": "c2ln"}],
        ),
        (
            [{"text": "Hello"}, {"text": " you", "thoughtSignature": "c2ln"}],
            [{"text": "Hello"}, {"text": " you", "thoughtSignature": "c2ln"}],
        ),
    ],
)
async def test_the_signed_part_of_a_text_goes_back_as_it_came(
    google: GoogleAdapter, provider: Provider, chunks: list[Any], parts: list[Any]
):
    events = await events_of(google, provider, *map(chunk, chunks), chunk(**STOP))

    await answer_to(google, ChatRequest(messages=[HELLO, *fold_messages(events), HELLO]))

    assert provider.requests[-1].body["contents"][1] == {"role": "model", "parts": parts}


async def test_equal_calls_without_an_id_are_two(google: GoogleAdapter, provider: Provider):
    events = await events_of(
        google, provider, chunk(call("setColor"), call("setColor")), chunk(**STOP)
    )
    started = [event.call_id for event in events if isinstance(event, ActionExecutionStart)]
    assert len(set(started)) == 2


async def test_a_chunk_of_thousands_of_calls_is_refused(google: GoogleAdapter, provider: Provider):
    parts = [{"functionCall": {"name": "setColor", "args": {}}}] * 3_000
    provider.answer(streamed(data({"candidates": [{"content": {"parts": parts}}]})))

    _, error = await failure_of(google)

    assert error.message == "One answer calls more than 256 actions."


async def test_thousands_of_thoughts_between_texts_are_named_without_counting_anew(
    google: GoogleAdapter, provider: Provider
):
    parts = [{"text": "Hm", "thought": True}, {"text": "Hi"}] * 5_000
    began = process_time()

    events = await events_of(google, provider, chunk(*parts), chunk(**STOP))

    names = {event.message_id for event in events if isinstance(event, TextMessageStart)}
    assert len(names) == 5_000
    assert process_time() - began < 2  # and not five


async def test_an_image_the_model_made_is_an_activity(google: GoogleAdapter, provider: Provider):
    image = {"inlineData": {"mimeType": "image/png", "data": PNG}}
    events = await events_of(google, provider, chunk({"text": "Here:"}), chunk(image, **STOP))
    (activity,) = [event for event in events if isinstance(event, Activity)]
    assert activity.activity_type == "image"
    assert activity.content == {"mimeType": "image/png", "data": PNG}
    assert isinstance(events[events.index(activity) - 1], TextMessageEnd)


async def test_counts_are_those_of_the_last_chunk(google: GoogleAdapter, provider: Provider):
    early = {"promptTokenCount": 10, "totalTokenCount": 10}
    last = {
        "promptTokenCount": 10,
        "toolUsePromptTokenCount": 3,
        "candidatesTokenCount": 5,
        "thoughtsTokenCount": 7,
        "cachedContentTokenCount": 4,
    }
    chunks = chunk({"text": "Hi"}, usage=early), chunk(usage=last, **STOP)
    provider.answer(streamed(*map(data, chunks)))
    assert (await answer_to(google))[-1] == Usage(
        model="gemini-3-flash-001",
        input_tokens=13,
        output_tokens=12,
        cached_tokens=4,
        reasoning_tokens=7,
        provider="google",
        stop_reason="stop",
    )


async def test_a_stop_after_calls_is_for_the_calls(google: GoogleAdapter, provider: Provider):
    provider.answer(streamed(data(chunk(call("setColor"), **STOP))))
    usage = (await answer_to(google))[-1]
    assert isinstance(usage, Usage)
    assert usage.stop_reason == "tool_calls"


@in_one_test(
    ("reason", "stop"),
    [("MAX_TOKENS", "length"), ("CONTINUATION", "pause"), ("SOMETHING_NEW", "SOMETHING_NEW")],
)
async def test_why_the_model_stopped_is_told(
    google: GoogleAdapter, provider: Provider, reason: str, stop: str
):
    provider.answer(streamed(data(chunk({"text": "Hi"}, finishReason=reason))))
    usage = (await answer_to(google))[-1]
    assert isinstance(usage, Usage)
    assert usage.stop_reason == stop


@in_one_test("reason", ["SAFETY", "RECITATION", "PROHIBITED_CONTENT", "IMAGE_SAFETY"])
async def test_a_filtered_answer_is_refused(google: GoogleAdapter, provider: Provider, reason: str):
    provider.answer(streamed(data(chunk({"text": "Well"})), data(chunk(finishReason=reason))))
    seen, error = await failure_of(google)
    assert TextMessageContent(message_id="r1", content="Well") in seen
    assert isinstance(error, Refused)


async def test_a_blocked_prompt_is_refused_before_any_word(
    google: GoogleAdapter, provider: Provider
):
    provider.answer(streamed(data({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}})))
    seen, error = await failure_of(google)
    assert seen == []
    assert isinstance(error, Refused)
    assert "PROHIBITED_CONTENT" in (error.hint or "")


async def test_a_malformed_call_is_the_models_fault(google: GoogleAdapter, provider: Provider):
    said = "Malformed function call: print("
    provider.answer(
        streamed(data(chunk(finishReason="MALFORMED_FUNCTION_CALL", finishMessage=said)))
    )
    _, error = await failure_of(google)
    assert (type(error), len(provider.requests)) == (InvalidAnswer, 2)
    assert error.message == (
        "Google API error: The model stopped with MALFORMED_FUNCTION_CALL. "
        "Malformed function call: print("
    )


async def test_a_wrong_key_is_an_authentication_error_despite_its_status(
    google: GoogleAdapter, provider: Provider
):
    detail = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}
    error = {
        "code": 400,
        "message": "API key not valid. Please pass a valid API key.",
        "status": "INVALID_ARGUMENT",
        "details": [detail],
    }
    provider.answer([whole({"error": error}, status="400 Bad Request")])
    assert isinstance((await failure_of(google))[1], AuthenticationFailed)


async def test_an_answer_that_is_a_list_is_read_too(google: GoogleAdapter, provider: Provider):
    chunks = [chunk({"text": "Hel"}), chunk({"text": "lo"}, **STOP)]
    provider.answer([whole(json.dumps(chunks).encode())])
    events = await answer_to(google)
    assert [event.content for event in events if isinstance(event, TextMessageContent)] == [
        "Hel",
        "lo",
    ]


@in_one_test("payload", [b"data: 7\n\n", b'data: {"candidates":[{"content":7}]}\n\n'])
async def test_nonsense_is_an_error_that_says_so(
    google: GoogleAdapter, provider: Provider, payload: bytes
):
    provider.answer(streamed(payload))
    _, error = await failure_of(google)
    assert isinstance(error, CopilotError)
    assert "not a stream of Gemini's chunks" in error.message


async def test_a_reason_with_every_chunk_ends_no_message(google: GoogleAdapter, provider: Provider):
    chunks = chunk({"text": "One "}, **STOP), chunk({"text": "text."}, **STOP)
    assert await events_of(google, provider, *chunks) == [
        TextMessageStart(message_id="r1"),
        TextMessageContent(message_id="r1", content="One "),
        TextMessageContent(message_id="r1", content="text."),
        TextMessageEnd(message_id="r1"),
    ]


async def test_drafts_of_an_image_are_thoughts(google: GoogleAdapter, provider: Provider):
    draft = {"inlineData": {"mimeType": "image/png", "data": PNG}, "thought": True}
    events = await events_of(google, provider, chunk(draft), chunk({"text": "Hi"}), chunk(**STOP))
    assert not any(isinstance(event, Activity) for event in events)


async def test_an_image_may_be_large(google: GoogleAdapter, provider: Provider):
    image = {"inlineData": {"mimeType": "image/png", "data": "A" * 12_000_000}}
    (activity,) = await events_of(google, provider, chunk(image, **STOP))
    assert isinstance(activity, Activity)


async def test_a_gateway_may_say_that_it_is_done(google: GoogleAdapter, provider: Provider):
    provider.answer(streamed(data(chunk({"text": "Hi"}, **STOP)), DONE))
    assert len(await answer_to(google)) == 4


async def test_an_error_between_two_events_is_told(google: GoogleAdapter, provider: Provider):
    heard = asyncio.Event()
    error = {"error": {"code": 503, "status": "UNAVAILABLE", "message": "Overloaded."}}
    begun = piece(data(chunk({"text": "Hi"})))
    provider.answer([HEAD, begun, heard, piece(json.dumps(error, indent=1).encode()), END])
    with pytest.raises(NetworkError, match="Overloaded"):
        async with aclosing(google.stream(REQUEST)) as events:
            async for event in events:
                if isinstance(event, TextMessageContent):
                    heard.set()


async def test_an_address_may_be_that_of_the_host_alone(provider: Provider):
    google = GoogleAdapter("gemini-3-flash", base_url=f"{provider.url}/", api_key="k" * 20)
    provider.answer(streamed(data(chunk({"text": "Hi"}, **STOP))))
    await answer_to(google)
    await google.aclose()
    assert provider.requests[0].line.startswith("POST /v1beta/models/gemini-3-flash:stream")
