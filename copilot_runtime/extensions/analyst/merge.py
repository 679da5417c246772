"""Joins what a model streams with what its tools do meanwhile, in one stream of events."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

from copilot_runtime.api.events import Event, Events
from copilot_runtime.base.concurrency import retrieve_exception

_MOST_WAITING = 64
"""Events that wait for their reader; the model and its tools wait then."""


class Bell:
    """Wakes whoever reads a stream: something else has happened, or all there is to read."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def ring(self) -> None:
        """Wake the reader."""
        self._event.set()

    async def wait(self) -> None:
        """Wait for the next ring; one since the last wait counts."""
        await self._event.wait()
        self._event.clear()


async def merge_events(
    events: Events,
    bell: Bell,
    collect: Callable[[], Sequence[Event]],
    has_ended: Callable[[], bool],
) -> AsyncGenerator[Event, None]:
    """Yield the events, and what `collect` returns whenever the bell rings.

    It ends with the events, or as soon as `has_ended` returns true: they are closed then. What they
    raise is raised.
    """
    waiting: deque[Event] = deque()
    room = asyncio.Event()

    async def read() -> None:
        try:
            async with aclosing(events):
                async for event in events:
                    waiting.append(event)
                    bell.ring()
                    if len(waiting) >= _MOST_WAITING:
                        room.clear()
                        await room.wait()
        finally:
            bell.ring()

    reader = asyncio.create_task(read(), name="analyst: read events")
    try:
        is_over = False
        while not is_over:
            await bell.wait()
            is_over = reader.done() or has_ended()
            while waiting:
                event = waiting.popleft()
                for other in collect():
                    yield other
                yield event
            room.set()
            for other in collect():
                yield other
        if reader.done():
            reader.result()
    finally:
        if not reader.done():
            reader.cancel()
            await asyncio.wait([reader])
        retrieve_exception(reader)
