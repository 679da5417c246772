"""The places of streams, whose readers may be slow or stop reading."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from math import inf

from copilot_runtime.extensions.analyst.engine.errors import QueryFailed, QueryTimedOut

PATIENCE = 10.0
"""Seconds without reading after which a stream loses its place, if another one waits for it."""


class StreamPlace:
    """The place of one stream; `idle_since` is the time since which its reader reads nothing."""

    def __init__(self, close: Callable[[], None]) -> None:
        self.close = close
        self.idle_since = inf
        self.is_lost = False

    @contextmanager
    def wait_for_reader(self) -> Generator[None]:
        """Wait in the block for the reader. Raises `QueryFailed` if the place was lost."""
        self.idle_since = asyncio.get_running_loop().time()
        yield
        self.idle_since = inf
        if self.is_lost:
            raise QueryFailed(f"Nothing was read for {PATIENCE:g} s while others waited.")


class StreamPlaces:
    """A number of places. Who waits for one gets that of the reader who has stopped reading."""

    def __init__(self, most: int) -> None:
        self._free = asyncio.Semaphore(most)
        self._taken: set[StreamPlace] = set()

    @asynccontextmanager
    async def take(self, close: Callable[[], None], seconds: float) -> AsyncGenerator[StreamPlace]:
        """Hold a place, whose loss calls `close`. Raises `QueryTimedOut` if none becomes free."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while True:
            try:
                self._free_idle_place(loop.time() - PATIENCE)
                await asyncio.wait_for(self._free.acquire(), min(1.0, seconds))
                break
            except TimeoutError:
                if loop.time() >= until:
                    raise QueryTimedOut(seconds) from None
        place = StreamPlace(close)
        self._taken.add(place)
        try:
            yield place
        finally:
            close()
            if not place.is_lost:
                self._taken.discard(place)
                self._free.release()

    def _free_idle_place(self, before: float) -> None:
        """Take the place of the reader who has read nothing for longest, since `before`."""
        if not self._free.locked():
            return
        place = min(self._taken, key=lambda one: one.idle_since, default=None)
        if place is not None and place.idle_since <= before:
            place.is_lost = True
            self._taken.discard(place)
            place.close()
            self._free.release()
