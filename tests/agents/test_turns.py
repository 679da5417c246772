"""An agent that sends thousands of events at once keeps nobody from having a turn."""

import asyncio
import json
from collections.abc import Callable

import pytest

from copilot_runtime.agents.agui import AguiAgent
from copilot_runtime.api import Agent
from copilot_runtime.http.client import Exchange
from tests.agents.offline import Reply, graph_agent, remote_agent
from tests.agents.remote import FINISHED, STARTED, asked, frame, text
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

COUNT = 3_000
CHUNK = {
    "event": "on_chat_model_stream",
    "run_id": "m",
    "metadata": {"langgraph_node": "answer"},
    "data": {"chunk": {"type": "AIMessageChunk", "id": "run-1", "content": "Hi"}},
}
PIECE = {"type": "TextMessageContent", "messageId": "m", "content": "x"}
BLOCKS: dict[str, bytes] = {
    "agui": b"".join(map(frame, [STARTED, *text("m", *"x" * COUNT), FINISHED])),
    "langgraph": b"event: events\ndata: %b\n\n" % json.dumps(CHUNK).encode() * COUNT,
    "remote": json.dumps(PIECE).encode() + b"\n" + (json.dumps(PIECE).encode() + b"\n") * COUNT,
}


AGENTS: dict[str, Callable[[], Agent]] = {
    "agui": lambda: AguiAgent("http://127.0.0.1:9/agent"),
    "langgraph": graph_agent,
    "remote": remote_agent,
}


@in_one_test("name", BLOCKS)
async def test_others_have_their_turn_within_a_block_of_thousands_of_events(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def enter(_: Exchange) -> Reply:
        return Reply([BLOCKS[name]])

    monkeypatch.setattr(Exchange, "__aenter__", enter)
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(take_turns())
    events = [event async for event in AGENTS[name]().run(asked())]
    other.cancel()

    assert len(events) > COUNT
    assert turns > COUNT / 100
