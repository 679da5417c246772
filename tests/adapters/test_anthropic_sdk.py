"""The same bytes, read by Anthropic's own SDK and by us: the same answer."""

from collections.abc import Sequence
from typing import Any

import orjson
import pytest

from copilot_runtime.adapters.anthropic import AnthropicAdapter
from copilot_runtime.api import ChatRequest
from copilot_runtime.api.events import Event, Usage
from copilot_runtime.api.messages import ActionExecutionMessage, ReasoningMessage, TextMessage
from copilot_runtime.api.transcript import fold_messages
from tests.adapters.asking import ACTIONS, HELLO, RED, SEVEN, answer_to
from tests.adapters.contract.anthropic_fake import AnthropicFake
from tests.adapters.contract.fakes import (
    KEY,
    CallArgs,
    CallEnd,
    CallStart,
    Ping,
    Say,
    Split,
    Step,
    Stop,
    Think,
    Tokens,
)
from tests.in_one_test import in_one_test

anthropic = pytest.importorskip("anthropic")
pytestmark = pytest.mark.anyio

ANSWERS: dict[str, Sequence[Step]] = {
    "text": [Say("Hel"), Ping(), Say(""), Say("lo é 🙂"), Stop(), Tokens(30, 12, cached=20)],
    "a cut text": [Say("On and on"), Stop("length")],
    "signed thoughts": [
        Think("Red is "),
        Think("nice.", "c2lnbmVk"),
        Think("", "ZW1wdHk="),
        Say("Red."),
        Stop(),
        Tokens(30, 12, reasoning=7),
    ],
    "parallel calls": [
        Say("Sure."),
        CallStart("toolu_1", "setColor"),
        CallArgs("toolu_1", RED[:5]),
        CallArgs("toolu_1", RED[5:]),
        CallEnd("toolu_1"),
        CallStart("toolu_2", "setSize"),
        CallArgs("toolu_2", SEVEN),
        CallEnd("toolu_2"),
        Stop("tool_calls"),
    ],
    "interleaved calls in odd frames": [
        CallStart("toolu_1", "setColor"),
        CallStart("toolu_2", "setSize"),
        Split(),
        CallArgs("toolu_2", SEVEN),
        Split(bytewise=True),
        CallArgs("toolu_1", RED),
        CallEnd("toolu_1"),
        CallEnd("toolu_2"),
        Stop("tool_calls"),
    ],
    "a call without arguments": [
        CallStart("toolu_1", "setColor"),
        CallEnd("toolu_1"),
        Stop("tool_calls"),
    ],
}


@in_one_test("steps", ANSWERS.values(), ids=ANSWERS)
async def test_the_sdk_and_we_read_the_same(steps: Sequence[Step]) -> None:
    async with AnthropicFake() as fake:
        fake.plays(*steps)
        ours = await answer_to(fake.adapter(), ChatRequest(messages=[HELLO], actions=ACTIONS))
        theirs = await _by_the_sdk(fake.provider.url)

    assert _told(ours) == theirs


async def test_a_client_of_the_sdk_tells_the_address_and_the_key() -> None:
    async with AnthropicFake() as fake:
        fake.plays(Say("Hi"), Stop())
        async with anthropic.AsyncAnthropic(api_key=KEY, base_url=fake.provider.url) as client:
            adapter = AnthropicAdapter("a-model", client=client)
            await answer_to(adapter)
            await adapter.aclose()

    assert fake.asked[0].headers["authorization"] == f"bearer {KEY}"


async def _by_the_sdk(url: str) -> list[Any]:
    async with (
        anthropic.AsyncAnthropic(api_key=KEY, base_url=url) as client,
        client.messages.stream(
            model="a-model", max_tokens=100, messages=[{"role": "user", "content": "Hello"}]
        ) as stream,
    ):
        message = await stream.get_final_message()
    told: list[Any] = []
    for block in message.content:
        match block.type:
            case "text":
                told.append(block.text)
            case "thinking":
                told.append(("thought", block.thinking, block.signature))
            case _:
                told.append((block.id, block.name, block.input))
    usage = message.usage
    details = usage.output_tokens_details
    told.append(
        (
            usage.input_tokens + usage.cache_read_input_tokens,
            usage.cache_read_input_tokens,
            usage.output_tokens,
            details.thinking_tokens if details else None,
        )
    )
    return told


def _told(events: Sequence[Event]) -> list[Any]:
    told: list[Any] = []
    for message in fold_messages(events):
        match message:
            case TextMessage():
                told.append(message.content)
            case ReasoningMessage():
                fields = orjson.loads((message.signature or ":{}").partition(":")[2])
                told.append(("thought", message.content, fields.get("signature")))
            case ActionExecutionMessage():
                arguments = orjson.loads(message.arguments or "{}")
                told.append((message.id, message.name, arguments))
            case _:
                raise AssertionError(f"A model says no {message!r}.")
    usage = next(event for event in events if isinstance(event, Usage))
    counts = (usage.input_tokens, usage.cached_tokens, usage.output_tokens, usage.reasoning_tokens)
    return [*told, counts]
