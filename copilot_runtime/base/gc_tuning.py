"""Keep Python's cyclic garbage collector out of the way of a server.

Every request makes some thousand objects that are freed by reference counting, and each few
hundred of them set the collector off on everything that was ever imported. Measured with 200
messages in a conversation, that was a third of the CPU of a chat.

Nor may it look at much at a time. An event of a run is an object that stays for minutes, and with
500 streams, a look at those of the last minute took 130 ms, in which no stream got anything. So
the young are looked at four times a second, while they are few and the CPU still has them in its
cache, and all that is there when the server has nothing else to do.
"""

import asyncio
import gc
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from contextvars import Context
from time import monotonic, process_time

_SERVING = (10_000, 50, 1_000)
"""Objects more than freed ones before a look at the young, the older and the old.

Python 3.11 begins with (700, 10, 10). It counts what comes less what goes: while old logs expire,
it does not look at all. That, and the old, is left to `_collect`.
"""

_INTERVAL = 0.25
"""Seconds between two looks at the young."""

_TO_OLDER = 4
"""Looks at the young before one at those who were there then."""

_IDLE_SHARE = 0.02
"""Of a core: a process that uses less has nothing to do."""

_IDLE_TIME = 10.0
"""Seconds without anything to do before a look at all objects."""

_LONGEST = 1_800.0
"""Seconds without such a look, in a process that always has something to do."""

_STARTING = (50_000, 10, 10)


def tune_for_startup() -> None:
    """Collect rarely while a program imports its modules: nothing of that is garbage."""
    gc.set_threshold(*_STARTING)


# one entry per application: a process has one collector
_saved_thresholds: list[tuple[int, int, int]] = []


@asynccontextmanager
async def tune_while_serving(_app: object) -> AsyncGenerator[None, None]:
    """A lifespan: collect less often, and less, until the last application has ended."""
    _saved_thresholds.append(gc.get_threshold())
    # What is here now stays: never look at it again. Nor now: a collection would take 60 ms of the
    # start, for a hundred objects, and as much of every test that starts an application.
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
    """Never look again at what has been imported while an application serves."""
    if _saved_thresholds:
        gc.freeze()


class Schedule:
    """Chooses the generation that is looked at next, by the time and the CPU that was used.

    Both are in seconds, from any beginning.
    """

    def __init__(self, time: float, cpu: float) -> None:
        self._looks = 0
        self._began = self._busy_at = time
        """The last look at all objects, and when there was something to do."""
        self._time, self._cpu = time, cpu

    def choose(self, time: float, cpu: float) -> int:
        """Return a generation: 0 are the young, 2 all objects. `cpu` is that of the process."""
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
    """Look at few objects at a time, and at all of them while that disturbs nobody.

    A program that has disabled the collector is left alone.
    """
    schedule = Schedule(monotonic(), process_time())
    while True:
        await asyncio.sleep(_INTERVAL)
        generation = schedule.choose(monotonic(), process_time())
        if gc.isenabled():
            gc.collect(generation)
