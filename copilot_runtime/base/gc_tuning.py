"""Tune Python's cyclic garbage collector for a server.

Every request allocates some thousand objects that reference counting frees, and every few hundred
allocations trigger a collection that scans all imported modules. With 200 messages in a
conversation, this took a third of the CPU of a chat.

A single collection must also be short. The events of a run live for minutes; with 500 streams, one
collection of the last minute's events blocked all streams for 130 ms. So the youngest generation is
collected four times a second, while it is small and still in the CPU cache, and a full collection
runs when the server is idle.
"""

import asyncio
import gc
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from contextvars import Context
from time import monotonic, process_time

_SERVING = (10_000, 50, 1_000)
"""Collection thresholds of the three generations while serving.

Python 3.11 starts with (700, 10, 10). The first threshold counts allocations minus deallocations,
so nothing is collected while old logs expire; `_collect` covers that, and the oldest generation.
"""

_INTERVAL = 0.25
"""Seconds between two collections of the youngest generation."""

_TO_OLDER = 4
"""Every n-th collection includes generation 1."""

_IDLE_SHARE = 0.02
"""Share of one core below which the process counts as idle."""

_IDLE_TIME = 10.0
"""Idle seconds before a full collection."""

_LONGEST = 1_800.0
"""Maximum seconds between full collections in a process that is never idle."""

_STARTING = (200_000, 10, 10)


def tune_for_startup() -> None:
    """Raise the thresholds while modules are imported, which creates hardly any garbage."""
    gc.set_threshold(*_STARTING)


# one entry per application: a process has one collector
_saved_thresholds: list[tuple[int, int, int]] = []


@asynccontextmanager
async def tune_while_serving(_app: object) -> AsyncGenerator[None, None]:
    """A lifespan context that tunes the collector until the last application has shut down."""
    _saved_thresholds.append(gc.get_threshold())
    # Exclude all existing objects from later collections. No collection before: it would add 60 ms
    # to the start of every application, also in tests, and free a hundred objects.
    gc.freeze()
    gc.set_threshold(*_SERVING)
    collecting = asyncio.create_task(_collect(), name="collect garbage", context=Context())
    try:
        yield
    finally:
        collecting.cancel()
        await asyncio.wait([collecting])
        first = _saved_thresholds[0]
        _saved_thresholds.pop()
        if not _saved_thresholds:
            gc.set_threshold(*first)
            gc.unfreeze()


def freeze_imports() -> None:
    """Exclude everything imported so far from collections, while an application serves."""
    if _saved_thresholds:
        gc.freeze()


class Schedule:
    """Chooses the generation to collect next, by elapsed time and CPU time.

    Both are in seconds since an arbitrary start.
    """

    def __init__(self, time: float, cpu: float) -> None:
        self._looks = 0
        self._began = self._busy_at = time
        """The times of the last full collection and of the last activity."""
        self._time, self._cpu = time, cpu

    def choose(self, time: float, cpu: float) -> int:
        """Return the generation to collect, 0 to 2. `cpu` is the CPU time of the process."""
        if cpu - self._cpu > _IDLE_SHARE * (time - self._time):
            self._busy_at = time
        self._time, self._cpu = time, cpu
        was_used = self._busy_at > self._began
        if (was_used and time - self._busy_at > _IDLE_TIME) or time - self._began > _LONGEST:
            self._began = time
            return 2
        self._looks += 1
        return 1 if self._looks % _TO_OLDER == 0 else 0


async def _collect() -> None:
    """Collect young objects periodically, and all objects while the server is idle.

    Do nothing while the program has disabled the collector.
    """
    schedule = Schedule(monotonic(), process_time())
    while True:
        await asyncio.sleep(_INTERVAL)
        generation = schedule.choose(monotonic(), process_time())
        if gc.isenabled():
            gc.collect(generation)
