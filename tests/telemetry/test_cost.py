"""What telemetry costs: something for each run and each span, and nothing for a chunk."""

import sys
from collections import Counter
from types import FrameType

import pytest

from copilot_runtime import CopilotRuntime, Settings
from copilot_runtime.adapters.scripted import ScriptedAdapter
from copilot_runtime.api.events import Event, TextMessageContent, TextMessageEnd, TextMessageStart
from copilot_runtime.testing import Client
from copilot_runtime.testing.client import Protocol
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

MANY = 400


def answer(chunks: int) -> list[Event]:
    texts = [TextMessageContent(message_id="m", content="word ") for _ in range(chunks)]
    return [TextMessageStart(message_id="m"), *texts, TextMessageEnd(message_id="m")]


@in_one_test("protocol", ["agui", "graphql"])
async def test_no_code_of_telemetry_runs_for_a_chunk(protocol: Protocol) -> None:
    adapter = ScriptedAdapter(answer(1), answer(1), answer(MANY))
    runtime = CopilotRuntime(adapter, settings=Settings(threads="memory"))
    async with Client(runtime, protocol=protocol) as client:
        await client.say("What is made once, is made now.")
        short = await count_calls(client, 1)
        long = await count_calls(client, MANY)
    assert short["start_chat_span"] == long["start_chat_span"] == 1  # it is on
    # but those of writes to the store, which are few
    assert (long - short).total() < MANY // 10, long - short


async def count_calls(client: Client, chunks: int) -> Counter[str]:
    """Count the calls of functions of telemetry, by their names, in one chat."""
    calls = Counter[str]()

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and "/copilot_runtime/telemetry/" in code.co_filename:
            calls[code.co_name] += 1

    sys.setprofile(note)
    try:
        reply = await client.say("Hi")
    finally:
        sys.setprofile(None)
    assert reply.text == "word " * chunks
    return calls
