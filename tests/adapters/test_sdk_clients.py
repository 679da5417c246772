"""Clients of the SDKs of Anthropic, Google and Amazon: the same answers as without them."""

import asyncio
import threading
from base64 import b64encode
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any, cast

import pytest

from copilot_runtime.adapters.google import GoogleAdapter
from copilot_runtime.api import Action, Adapter, ChatRequest, Parameters
from copilot_runtime.api.events import (
    Activity,
    Event,
    ReasoningSignature,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
    Usage,
)
from copilot_runtime.api.messages import (
    ActionExecutionMessage,
    MediaPart,
    ReasoningMessage,
    ResultMessage,
    TextMessage,
    TextPart,
)
from copilot_runtime.base.errors import CopilotError, NetworkError, RunStalled
from tests.adapters.asking import answer_of, asking, calls_in, signed, text_in, thought_in
from tests.adapters.contract.fakes import (
    KEY,
    Breaks,
    CallArgs,
    CallEnd,
    CallStart,
    ErrorInStream,
    Fails,
    HttpFake,
    Say,
    Silence,
    Split,
    Step,
    Stop,
    Think,
    Tokens,
    Waits,
    data,
    make_fake,
)
from tests.adapters.provider import serving, streamed
from tests.adapters.test_google import STOP, chunk
from tests.in_one_test import in_one_test

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore:Inheritance class:DeprecationWarning"),  # google-genai's
]

Close = Callable[[], Any]
MODELS = {
    "anthropic": "claude-sonnet-5-5",
    "google": "gemini-3-flash",
    "bedrock": "eu.anthropic.claude-sonnet-4-5-20250929-v1:0",
}
SIGNERS = {
    "anthropic": ("messages", "claude", "signature"),
    "google": ("gemini", "gemini", "thoughtSignature"),
    "bedrock": ("converse", "anthropic", "signature"),
}
"""Fake → API, family of models and name of the signature."""
ANSWER: Sequence[Step] = [
    Think("Red is nice.", "c2lnbmVk"),
    Say("Hel"),
    Split(),
    Say("lo é 🙂"),
    CallStart("call_1", "setColor"),
    CallArgs("call_1", '{"color":'),
    CallArgs("call_1", '"red"}'),
    CallEnd("call_1"),
    Stop("tool_calls"),
    Tokens(30, 12, cached=20),
]


def make_client(name: str, url: str, timeout: float = 20.0) -> tuple[Any, Close]:
    """Return a client of the SDK that sends its requests to `url`, and what closes it."""
    if name == "anthropic":
        anthropic: Any = pytest.importorskip("anthropic")
        client = anthropic.AsyncAnthropic(api_key=KEY, base_url=url, timeout=timeout, max_retries=0)
        return client, client.close
    if name == "google":
        genai: Any = pytest.importorskip("google.genai")
        retries = genai.types.HttpRetryOptions(attempts=1)
        options = genai.types.HttpOptions(
            base_url=url, timeout=int(timeout * 1000), retry_options=retries
        )
        client = genai.Client(api_key=KEY, http_options=options)
        return client, client.aio.aclose
    boto3: Any = pytest.importorskip("boto3")
    config: Any = pytest.importorskip("botocore.config")
    client = boto3.client(
        "bedrock-runtime",
        endpoint_url=url,
        region_name="eu-west-1",
        aws_access_key_id="AKID",
        aws_secret_access_key="secret",
        config=config.Config(read_timeout=timeout, retries={"max_attempts": 0}),
    )

    async def close() -> None:
        await asyncio.to_thread(client.close)

    return client, close


class Pair:
    """A fake provider, and two adapters for it: by its SDK's client, and by our connection."""

    def __init__(self, fake: HttpFake, close: list[Close]) -> None:
        self.fake = fake
        self._close = close

    def by_client(self, timeout: float = 20.0) -> Adapter:
        client, close = make_client(self.fake.name, self.fake.provider.url, timeout)
        self._close.append(close)
        return self.fake.adapter(model=MODELS[self.fake.name], client=client)

    def by_connection(self) -> Adapter:
        return self.fake.adapter(model=MODELS[self.fake.name], max_retries=0)


@pytest.fixture(params=list(MODELS))
async def pair(request: pytest.FixtureRequest, anyio_backend: str) -> AsyncGenerator[Pair, None]:
    close: list[Close] = []
    async with cast("HttpFake", make_fake(request.param)) as fake:
        yield Pair(fake, close)
        for each in close:
            await each()


async def read_failure(adapter: Adapter) -> tuple[str, CopilotError]:
    """Return the text before the error, and the error."""
    seen: list[Event] = []
    with pytest.raises(CopilotError) as caught:
        async with aclosing(adapter.stream(asking())) as events:
            async for event in events:
                seen.append(event)
    return text_in(seen), caught.value


async def test_the_events_are_the_same(pair: Pair):
    pair.fake.plays(*ANSWER)

    ours, theirs = await answer_of(pair.by_connection()), await answer_of(pair.by_client())

    assert [event.type for event in theirs] == [event.type for event in ours]
    assert (text_in(theirs), thought_in(theirs)) == ("Hello é 🙂", "Red is nice.")
    assert calls_in(theirs) == calls_in(ours)
    assert signatures_in(theirs) == signatures_in(ours) != []
    assert theirs[-1] == ours[-1]
    assert isinstance(ours[-1], Usage)


def signatures_in(events: Sequence[Event]) -> list[str]:
    return [event.value for event in events if isinstance(event, ReasoningSignature)]


async def test_the_request_is_the_same(pair: Pair):
    pair.fake.plays(Say("Hi"), Stop())
    blob = b64encode(b"\x89PNG\r\n\x1a\n").decode()
    image = MediaPart(kind="image", source="data", value=blob, mime_type="image/png")
    schema = {"type": "object", "properties": {"bytes": {"type": "string"}}}
    api, model, name = SIGNERS[pair.fake.name]
    signature = signed(api, pair.fake.provider.url, model, **{name: blob})
    request = ChatRequest(
        messages=[
            TextMessage(id="s", role="system", content="Be short."),
            TextMessage(id="u", role="user", content="See", parts=[TextPart(text="See"), image]),
            ReasoningMessage(id="m-reasoning", content="Hm.", signature=signature),
            ActionExecutionMessage(id="t1", name="write_file", arguments='{"bytes":"cmVk"}'),
            ResultMessage(id="r", call_id="t1", name="write_file", result="done"),
        ],
        actions=[Action(name="write_file", description="Writes.", parameters=schema)],
        parameters=Parameters(temperature=0.5, max_tokens=100, stop=["END"]),
    )

    await answer_of(pair.by_connection(), request)
    await answer_of(pair.by_client(), request)

    ours, theirs = pair.fake.provider.requests
    assert theirs.body == ours.body
    assert theirs.line.replace("/v1beta/", "/v1/") == ours.line.replace("/v1beta/", "/v1/")


@in_one_test("status", [400, 401, 403, 404, 429, 500, 503])
async def test_an_error_response_is_the_same_error(pair: Pair, status: int):
    pair.fake.plays(Fails(status))

    _, ours = await read_failure(pair.by_connection())
    _, theirs = await read_failure(pair.by_client())

    assert (type(theirs), theirs.message, theirs.kind) == (type(ours), ours.message, ours.kind)


@in_one_test("kind", ["overloaded", "rate_limit", "server_error"])
async def test_an_error_within_the_response_is_the_same_error(pair: Pair, kind: Any):
    pair.fake.plays(Say("Hel"), ErrorInStream(kind))

    ours = await read_failure(pair.by_connection())
    theirs = await read_failure(pair.by_client())

    assert theirs[0] == ours[0] == "Hel"
    assert (type(theirs[1]), theirs[1].message) == (type(ours[1]), ours[1].message)


async def test_a_response_that_breaks_off_is_an_error(pair: Pair):
    pair.fake.plays(Say("Hel"), Breaks())

    text, error = await read_failure(pair.by_client())

    assert (text, type(error)) == ("Hel", NetworkError)
    assert error.message.endswith("API error: Premature close")


@in_one_test("steps", [[Silence()], [Say("Hel"), Silence()]], ids=["before", "within"])
async def test_the_timeout_of_the_client_ends_a_silence(pair: Pair, steps: Sequence[Step]):
    pair.fake.plays(*steps)
    assert isinstance((await read_failure(pair.by_client(timeout=1.0)))[1], RunStalled)


async def test_a_server_that_is_not_there_is_a_network_error(pair: Pair):
    client, close = make_client(pair.fake.name, "http://127.0.0.1:1")
    try:
        adapter = pair.fake.adapter(model=MODELS[pair.fake.name], client=client)
        assert isinstance((await read_failure(adapter))[1], NetworkError)
    finally:
        await close()


async def test_leaving_a_response_closes_its_connection(pair: Pair):
    pair.fake.plays(Say("Hel"), Silence())
    async with aclosing(pair.by_client().stream(asking())) as events:
        async for event in events:
            if isinstance(event, TextMessageContent):
                break
    await pair.fake.until_closed()
    await no_threads_are_left()


async def test_cancelling_before_the_response_closes_the_connection(pair: Pair):
    begin = asyncio.Event()
    pair.fake.plays(Waits(begin), Say("Hel"), Silence())
    task = asyncio.create_task(answer_of(pair.by_client()))
    await pair.fake.until_asked(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    begin.set()  # a thread cannot be kept from waiting for the head of a response
    await pair.fake.until_closed()
    await no_threads_are_left()


async def no_threads_are_left() -> None:
    for thread in threading.enumerate():
        if thread.name == "bedrock-client":
            await asyncio.to_thread(thread.join)


async def test_the_client_stays_open(pair: Pair):
    pair.fake.plays(Say("Hi"), Stop())
    adapter = pair.by_client()
    await adapter.aclose()
    first, second = await answer_of(adapter), await answer_of(adapter)
    assert text_in(first) == text_in(second) == "Hi"
    assert [type(event) for event in first[:3]] == [
        TextMessageStart,
        TextMessageContent,
        TextMessageEnd,
    ]


async def test_the_part_of_a_client_that_is_async_is_enough():
    async with cast("HttpFake", make_fake("google")) as fake:
        fake.plays(Say("Hi"), Stop())
        client, close = make_client("google", fake.provider.url)
        adapter = fake.adapter(model="gemini-3-flash", client=client.aio)
        assert text_in(await answer_of(adapter)) == "Hi"
        assert fake.provider.requests[0].headers["x-goog-api-key"] == KEY.lower()
        await close()


async def test_images_of_a_model_are_whole():
    image = b64encode(bytes(range(248, 256)) * 3).decode()  # with + and / in it
    part = {"inlineData": {"mimeType": "image/png", "data": image}}
    async with serving() as provider:
        provider.answer(streamed(data(chunk(part, **STOP))))
        client, close = make_client("google", provider.url)
        events = await answer_of(GoogleAdapter("gemini-3-flash", client=client))
        await close()
    (activity,) = [event for event in events if isinstance(event, Activity)]
    assert activity.content == {"mimeType": "image/png", "data": image}
