"""What Bedrock's events become, over HTTP; what all adapters do is in the contract suite."""

from base64 import b64encode
from collections.abc import AsyncGenerator, Mapping
from hashlib import sha256
from hmac import digest
from typing import Any
from unittest.mock import ANY
from urllib.parse import quote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copilot_runtime.adapters.bedrock import BedrockAdapter
from copilot_runtime.adapters.bedrock.auth import sign_request
from copilot_runtime.api.events import (
    ActionExecutionArgs,
    ActionExecutionEnd,
    ActionExecutionStart,
    Activity,
    Event,
    ReasoningContent,
    ReasoningEnd,
    ReasoningSignature,
    ReasoningStart,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
    Usage,
)
from copilot_runtime.base.errors import (
    ConfigurationFailed,
    CopilotError,
    NetworkError,
    RateLimited,
)
from tests.adapters.asking import answer_to, failure_of, fields_in
from tests.adapters.contract.bedrock_fake import event, exception, message
from tests.adapters.provider import HEAD, Provider, Step, streamed, whole
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

MODEL = "eu.anthropic.claude-sonnet-4-5-20250929-v1:0"
STOP = event("messageStop", {"stopReason": "end_turn"})
COUNTS = event(
    "metadata",
    {
        "usage": {
            "inputTokens": 10,
            "outputTokens": 5,
            "totalTokens": 45,
            "cacheReadInputTokens": 20,
            "cacheWriteInputTokens": 10,
        },
        "metrics": {"latencyMs": 7},
    },
)


@pytest.fixture
async def bedrock(provider: Provider) -> AsyncGenerator[BedrockAdapter, None]:
    adapter = BedrockAdapter(
        MODEL, region="eu-west-1", base_url=provider.url, api_key="k" * 20, max_retries=0
    )
    yield adapter
    await adapter.aclose()


def answered(*events: bytes) -> list[Step]:
    script = streamed(event("messageStart", {"role": "assistant"}), *events)
    head = HEAD.replace(b"text/event-stream", b"application/vnd.amazon.eventstream")
    return [head, *script[1:]]


def start(at: int, value: Any) -> bytes:
    return event("contentBlockStart", {"contentBlockIndex": at, "start": value})


def delta(at: int, value: Any) -> bytes:
    return event("contentBlockDelta", {"contentBlockIndex": at, "delta": value})


def stop(at: int) -> bytes:
    return event("contentBlockStop", {"contentBlockIndex": at})


def thought(**value: Any) -> bytes:
    return delta(0, {"reasoningContent": value})


HI = delta(9, {"text": "Hi"})
TEXT = {TextMessageStart, TextMessageContent, TextMessageEnd}


async def events_of(bedrock: BedrockAdapter, provider: Provider, *events: bytes) -> list[Event]:
    """Return the events but for the usage."""
    provider.answer(answered(*events, STOP, COUNTS))
    return [event for event in await answer_to(bedrock) if not isinstance(event, Usage)]


async def test_a_thought_keeps_its_signature(bedrock: BedrockAdapter, provider: Provider):
    events = await events_of(
        bedrock, provider, thought(text="Hm."), thought(signature="c2ln"), stop(0), HI
    )
    id = events[0].message_id if isinstance(events[0], ReasoningStart) else ""
    assert events[:4] == [
        ReasoningStart(message_id=id),
        ReasoningContent(message_id=id, content="Hm."),
        ReasoningSignature(entity_id=id, value=ANY),
        ReasoningEnd(message_id=id),
    ]
    assert fields_in(events) == [{"signature": "c2ln"}]


async def test_a_thought_nobody_may_read_is_kept_whole(bedrock: BedrockAdapter, provider: Provider):
    first, second = (b64encode(piece).decode() for piece in (b"se", b"cret"))
    events = await events_of(
        bedrock,
        provider,
        thought(redactedContent=first),
        thought(redactedContent=second),
        stop(0),
        HI,
    )
    assert fields_in(events) == [{"redactedContent": b64encode(b"secret").decode()}]
    assert not any(isinstance(event, ReasoningContent) for event in events)


async def test_a_call_ends_with_its_block(bedrock: BedrockAdapter, provider: Provider):
    use = {"toolUse": {"toolUseId": "tooluse_1", "name": "setColor"}}
    events = await events_of(
        bedrock,
        provider,
        start(0, use),
        delta(0, {"toolUse": {"input": ""}}),
        delta(0, {"toolUse": {"input": '{"color":'}}),
        delta(0, {"toolUse": {"input": '"red"}'}}),
        stop(0),
        delta(1, {"text": "Done."}),
    )
    assert [type(event) for event in events[:4]] == [
        ActionExecutionStart,
        ActionExecutionArgs,
        ActionExecutionArgs,
        ActionExecutionEnd,
    ]


async def test_a_tool_that_runs_at_amazon_is_no_call(bedrock: BedrockAdapter, provider: Provider):
    use = {"toolUseId": "t1", "name": "search", "type": "server_tool_use"}
    events = await events_of(
        bedrock,
        provider,
        start(0, {"toolUse": use}),
        delta(0, {"toolUse": {"input": "{}"}}),
        stop(0),
        HI,
    )
    assert {type(event) for event in events} == TEXT


async def test_an_image_the_model_made_is_an_activity(bedrock: BedrockAdapter, provider: Provider):
    first, second = (b64encode(piece).decode() for piece in (b"\x89P", b"NG"))
    events = await events_of(
        bedrock,
        provider,
        start(0, {"image": {"format": "png"}}),
        delta(0, {"image": {"source": {"bytes": first}}}),
        delta(0, {"image": {"source": {"bytes": second}}}),
        stop(0),
    )
    (activity,) = events
    assert isinstance(activity, Activity)
    content = {"mimeType": "image/png", "data": b64encode(b"\x89PNG").decode()}
    assert (activity.activity_type, activity.content) == ("image", content)


async def test_cached_tokens_are_tokens_of_the_question(
    bedrock: BedrockAdapter, provider: Provider
):
    provider.answer(answered(delta(0, {"text": "Hi"}), STOP, COUNTS))
    assert (await answer_to(bedrock))[-1] == Usage(
        model=MODEL,
        input_tokens=40,
        output_tokens=5,
        cached_tokens=20,
        cache_write_tokens=10,
        provider="bedrock",
        stop_reason="stop",
    )


async def test_a_guardrails_words_are_the_answer(bedrock: BedrockAdapter, provider: Provider):
    stopped = event("messageStop", {"stopReason": "guardrail_intervened"})
    provider.answer(answered(delta(0, {"text": "Let us not."}), stop(0), stopped, COUNTS))
    events = await answer_to(bedrock)
    assert [e.content for e in events if isinstance(e, TextMessageContent)] == ["Let us not."]
    assert isinstance(events[-1], Usage)
    assert events[-1].stop_reason == "content_filter"


async def test_a_malformed_call_is_the_models_fault(bedrock: BedrockAdapter, provider: Provider):
    provider.answer(answered(event("messageStop", {"stopReason": "malformed_tool_use"})))
    _, error = await failure_of(bedrock)
    assert isinstance(error, NetworkError)
    assert error.message == "Bedrock API error: The model stopped with malformed_tool_use."


@in_one_test(
    ("name", "kind", "status"),
    [
        ("throttlingException", RateLimited, 429),
        ("serviceUnavailableException", NetworkError, 503),
        ("modelStreamErrorException", NetworkError, 500),
        ("internalServerException", NetworkError, 500),
        ("validationException", ConfigurationFailed, 400),
        ("modelTimeoutException", NetworkError, 504),
    ],
)
async def test_an_exception_in_the_stream_is_raised_after_what_came(
    bedrock: BedrockAdapter,
    provider: Provider,
    name: str,
    kind: type[CopilotError],
    status: int,
):
    provider.answer(answered(delta(0, {"text": "Hel"}), exception(name, "No.")))
    seen, error = await failure_of(bedrock)
    assert [e.content for e in seen if isinstance(e, TextMessageContent)] == ["Hel"]
    assert isinstance(error, kind)
    assert (error.status_code, error.message) == (status, "Bedrock API error: No.")


async def test_an_answer_of_another_kind_is_told(bedrock: BedrockAdapter, provider: Provider):
    provider.answer([whole(b"<html>Welcome to the proxy</html>", content_type="text/html")])
    _, error = await failure_of(bedrock)
    assert error.message == "Bedrock API error: The answer is not an event stream."


async def test_an_answer_cut_in_an_event_is_no_answer(bedrock: BedrockAdapter, provider: Provider):
    provider.answer(answered(delta(0, {"text": "Hel"}), STOP[:-3]))
    _, error = await failure_of(bedrock)
    assert error.message == "Bedrock API error: Premature close"


@in_one_test(
    "nonsense",
    [event("contentBlockDelta", {"delta": 7}), event("contentBlockStart", {})],
)
async def test_an_event_without_its_members_is_an_error_that_says_so(
    bedrock: BedrockAdapter, provider: Provider, nonsense: bytes
):
    provider.answer(answered(nonsense))
    _, error = await failure_of(bedrock)
    assert "not an event stream of Bedrock's" in error.message


async def test_an_error_without_a_name_of_its_own_is_told(
    bedrock: BedrockAdapter, provider: Provider
):
    headers = {":message-type": "error", ":error-message": "Oh."}
    provider.answer(answered(delta(0, {"text": "Hel"}), message(headers, b"")))
    _, error = await failure_of(bedrock)
    assert error.message == "Bedrock API error: Oh."


async def test_an_image_that_failed_is_none(bedrock: BedrockAdapter, provider: Provider):
    start = {"contentBlockIndex": 0, "start": {"image": {"format": "png"}}}
    failed = delta(0, {"image": {"error": {"message": "No."}}})
    stop = event("contentBlockStop", {"contentBlockIndex": 0})
    begin = event("contentBlockStart", start)
    events = await events_of(bedrock, provider, begin, failed, stop, HI)
    assert {type(event) for event in events} == TEXT


async def test_an_answer_whose_last_frame_lacks_its_end_is_not_asked_for_again(provider: Provider):
    bedrock = BedrockAdapter(
        MODEL, region="eu-west-1", base_url=provider.url, api_key="k" * 20, max_retries=2
    )
    provider.answer(answered(delta(0, {"text": "Par"}), STOP[:-4]), answered(STOP, COUNTS))

    seen, error = await failure_of(bedrock)
    await bedrock.aclose()

    assert [e.content for e in seen if isinstance(e, TextMessageContent)] == ["Par"]
    assert (type(error), len(provider.requests)) == (NetworkError, 1)


HOST = "https://bedrock-runtime.eu-west-1.amazonaws.com"
credentials: Any = pytest.importorskip("botocore.credentials")
PLAIN = credentials.Credentials("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
TEMPORARY = credentials.Credentials("AKIDEXAMPLE", "secret", "a token")


def signature_by_hand(url: str, body: bytes, headers: Mapping[str, str], secret: str) -> str:
    """Return the signature of a POST, all of whose headers are signed."""
    parts = urlsplit(url)
    whole = {**headers, "host": parts.netloc.removesuffix(":443")}
    names = sorted(whole)
    request = "\n".join(
        [
            "POST",
            quote(parts.path, safe="/~") or "/",
            "",
            *(f"{name}:{' '.join(whole[name].split())}" for name in names),
            "",
            ";".join(names),
            sha256(body).hexdigest(),
        ]
    )
    time = headers["x-amz-date"]
    scope = (time[:8], "eu-west-1", "bedrock", "aws4_request")
    text = "\n".join(
        ["AWS4-HMAC-SHA256", time, "/".join(scope), sha256(request.encode()).hexdigest()]
    )
    key = f"AWS4{secret}".encode()
    for part in (*scope, text):
        key = digest(key, part.encode(), "sha256")
    return key.hex()


def check(url: str, body: bytes, headers: Mapping[str, str], who: Any) -> None:
    signed = sign_request(url, body, headers, who, "eu-west-1")
    authorization = signed.pop("authorization")
    names = ";".join(sorted([*signed, "host"]))
    assert f"Credential=AKIDEXAMPLE/{signed['x-amz-date'][:8]}/eu-west-1/bedrock/" in authorization
    assert f"SignedHeaders={names}," in authorization
    expected = signature_by_hand(url, body, signed, who.secret_key)
    assert authorization.endswith(f"Signature={expected}")


@in_one_test("who", [PLAIN, TEMPORARY])
@in_one_test(
    "path",
    [
        "/model/amazon.nova-lite-v1%3A0/converse-stream",
        "/model/arn%3Aaws%3Abedrock%3Aeu-west-1%3A1%3Ainference-profile%2Feu.x-v1%3A0/converse-stream",
        "/model/a:b/with~tilde/converse-stream",
        "/",
        "",
    ],
)
def test_a_request_is_signed_as_it_is_sent(who: Any, path: str):
    check(
        HOST + path, b"{}", {"content-type": "application/json", "x-extra": "  two   words "}, who
    )


@given(st.binary(max_size=200), st.sampled_from([HOST, f"{HOST}:443", f"{HOST}:8443"]))
def test_every_body_is_signed(body: bytes, host: str):
    check(f"{host}/model/m/converse-stream", body, {}, PLAIN)
