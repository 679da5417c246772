"""A bus that keeps what it is told, and a store whose moods the tests decide."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from copilot_runtime.adapters.scripted import say
from copilot_runtime.api import RunInput
from copilot_runtime.api.events import (
    Event,
    RunFinished,
    RunStarted,
    TextMessageContent,
    TextMessageStart,
)
from copilot_runtime.api.messages import Message, TextMessage
from copilot_runtime.threads.memory import MemoryThreads
from copilot_runtime.threads.recorder import Recorder
from copilot_runtime.threads.run_log import MemoryBus
from copilot_runtime.threads.store import Segment, ThreadKey, ThreadQuery, ThreadStore

BEGUN = TextMessageStart(message_id="m")
WORDS: Sequence[Event] = say(["one ", "two ", "three"], id="m")


class Store(MemoryThreads):
    """A store that waits, fails and remembers what it was asked to write."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[Sequence[Segment]] = []
        self.failure: Exception | None = None
        self.poison: str | None = None
        """The run that the store chokes on."""
        self.asked = asyncio.Event()
        self.free = asyncio.Event()
        self.free.set()
        self.closed = False

    async def write(self, segments: Sequence[Segment]) -> None:
        self.asked.set()
        await self.free.wait()
        if self.failure is not None:
            raise self.failure
        if any(segment.log_id == self.poison for segment in segments):
            raise ValueError("cannot be written")
        self.writes.append(segments)
        await super().write(segments)

    async def aclose(self) -> None:
        self.closed = True
        await super().aclose()

    async def log(self, thread: str = "t") -> Sequence[Event]:
        """Return what is kept of the latest run of a thread."""
        return (await self.runs(ThreadKey("", thread)))[-1].events

    def hold(self) -> None:
        """Let nothing be written for now."""
        self.free.clear()
        self.asked.clear()


def request(key: str = "r", thread: str = "t", **more: Any) -> RunInput:
    return RunInput(thread_id=thread, run_id=key, messages=[], persist=True, **more)


def started(key: str = "r", thread: str = "t") -> RunStarted:
    return RunStarted(run_id=key, thread_id=thread)


async def seen(bus: Recorder, key: str = "r") -> list[Event]:
    """Return what a reader who comes now sees at once."""
    reader = bus.read(key)
    try:
        return [*(await anext(reader)).events]
    finally:
        await reader.aclose()


@asynccontextmanager
async def recorded(
    store: Store,
    run: RunInput | None = None,
    *,
    bus: MemoryBus | None = None,
    on_failure: Callable[[Any], object] | None = None,
    **more: Any,
) -> AsyncGenerator[Recorder]:
    """Open a bus on which a run has begun."""
    run = run or request()
    recording = Recorder(MemoryBus() if bus is None else bus, store, **more)
    writer = await recording.begin(run)
    if on_failure is not None:
        writer.failed.add_done_callback(on_failure)
    await recording.append(run.log_id, started(run.log_id))
    yield recording
    await recording.aclose()


async def until_it_raises(bus: Recorder, error: type[Exception], key: str = "r") -> None:
    with pytest.raises(error):
        while True:
            await bus.append(key, TextMessageContent(message_id="m", content="x"))
            await asyncio.sleep(0)


KEY = ThreadKey("ann", "t")


def user(id: str = "u", text: str = "Hi") -> TextMessage:
    return TextMessage(id=id, role="user", content=text)


def run_of(
    key: ThreadKey = KEY, run_id: str = "r", messages: Sequence[Message] = (), **more: Any
) -> RunInput:
    return RunInput(
        thread_id=key.id,
        user=key.owner,
        run_id=run_id,
        messages=messages or [user()],
        persist=True,
        **more,
    )


def log_of(run: RunInput, *events: Event, new: Sequence[Message] = ()) -> list[Event]:
    """Return a whole log of a run; without events it says hello."""
    head = RunStarted(run_id=run.run_id, thread_id=run.thread_id, messages=new)
    return [head, *(events or say(["Hel", "lo"], id=f"m-{run.run_id}")), RunFinished()]


async def told(store: ThreadStore, run: RunInput, *events: Event) -> Sequence[Message]:
    """Begin a run, write it, end it. Return what was new in the request."""
    new = await store.begin(run)
    log = log_of(run, *events, new=new)
    await store.write([Segment(log_id=run.log_id, events=log[:-1])])
    await store.write([Segment(log_id=run.log_id, events=log[-1:], whole=log)])
    return new


ANNS = ThreadQuery(owner="ann")


async def listed(store: ThreadStore, query: ThreadQuery = ANNS) -> list[str]:
    return [thread.key.id for thread in (await store.list(query)).threads]


def threads(*ids: str, owner: str = "ann") -> Sequence[ThreadKey]:
    return [ThreadKey(owner, id) for id in ids]
