"""A chunk is written when it is added to the log, or with the next batch where it would wait."""

import asyncio
from collections.abc import MutableMapping, Sequence
from functools import partial
from typing import Any

import pytest

from copilot_runtime.adapters.scripted import say
from copilot_runtime.api.events import Event, RunFinished, TextMessageContent
from copilot_runtime.threads.run_log import MemoryBus
from copilot_runtime.transports.streaming import Stream

pytestmark = pytest.mark.anyio

Message = MutableMapping[str, Any]


class Uvicorn:
    """A request as uvicorn has it: `send` waits while the client has no room."""

    write_paused = False

    def __init__(self) -> None:
        self.flow = self
        self.written: list[bytes] = []
        self.resumed = asyncio.Event()

    async def receive(self) -> Message:
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if self.write_paused:
            await self.resumed.wait()
        if message["type"] == "http.response.body":
            self.written.append(message["body"])


def encode(events: Sequence[Event]) -> bytes:
    return b"".join(
        event.content.encode() if isinstance(event, TextMessageContent) else b"."
        for event in events
    )


@pytest.mark.parametrize("is_slow", [False, True])
async def test_a_chunk_is_written_without_a_task_while_the_client_has_room(
    is_slow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus, server = MemoryBus(), Uvicorn()
    now = asyncio.get_running_loop().time()
    times = iter([now + 10, now + 20, now + 20.0005])  # the last chunk is one of a flood
    start, *chunks, end = say(["one", "two", "three"], id="m")
    await bus.append("r", start)
    head: Message = {"type": "http.response.start", "status": 200}
    async with Stream(server.receive, server.send, head, 60.0) as stream:
        writing = asyncio.create_task(stream.write_log(bus.read("r"), encode))
        await asyncio.sleep(0)
        server.write_paused = is_slow
        with monkeypatch.context() as patch:
            patch.setattr(asyncio.get_running_loop(), "time", partial(next, times, now))
            for event in chunks:
                await bus.append("r", event)  # nothing of this lets a task run
        at_once = [*server.written]
        server.write_paused = False
        for event in (end, RunFinished()):
            await bus.append("r", event)
        await writing

    assert at_once == ([b"."] if is_slow else [b".", b"one", b"two"])
    assert b"".join(server.written) == b".onetwothree.."
