"""Runs as the tests of the runtime make and read them."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from copilot_runtime.adapters.scripted import ScriptedAdapter
from copilot_runtime.agents.direct import DirectAgent
from copilot_runtime.api import RunInput
from copilot_runtime.api.events import Event, Events
from copilot_runtime.api.messages import TextMessage
from copilot_runtime.runtime import Runtime
from copilot_runtime.threads.run_log import MemoryBus


def run_input(run_id: str = "r", **more: Any) -> RunInput:
    messages = [TextMessage(id="u", role="user", content="Hi")]
    return RunInput(thread_id="t", run_id=run_id, messages=messages, **more)


def runtime_of(*turns: Any, **more: Any) -> Runtime:
    """Return a runtime whose model says these turns."""
    return Runtime(DirectAgent(ScriptedAdapter(*turns)), {}, MemoryBus(), **more)


def runtime_with(agent: "Says", **more: Any) -> Runtime:
    return Runtime(agent, {}, MemoryBus(), **more)


class Says:
    """An agent that yields these events and raises these exceptions; a function is called."""

    def __init__(self, *steps: Event | BaseException | Callable[[], Any]) -> None:
        self.steps = steps
        self.began = 0
        self.ended = asyncio.Event()

    async def run(self, run: RunInput) -> Events:
        self.began += 1
        try:
            for step in self.steps:
                if isinstance(step, BaseException):
                    raise step
                if callable(step):
                    await step()
                else:
                    yield step
        finally:
            self.ended.set()


async def forever() -> None:
    await asyncio.Event().wait()


async def log_of(runtime: Runtime, run_id: str = "r") -> Sequence[Event]:
    """Return the whole log of a run, once it has ended."""
    return [event async for batch in runtime.follow(run_id) for event in batch.events]


async def told(runtime: Runtime, run: RunInput) -> Sequence[Event]:
    """Start a run and return what it said, without its first event."""
    await runtime.start(run)
    return (await log_of(runtime, run.run_id))[1:]
