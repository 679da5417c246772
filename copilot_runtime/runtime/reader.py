"""Read long threads for many clients at once, and have them in memory once."""

import asyncio
from collections.abc import Sequence
from weakref import WeakValueDictionary

from copilot_runtime.api.bus import Batch
from copilot_runtime.base.concurrency import convert_exits, retrieve_exception
from copilot_runtime.runtime.run import Log
from copilot_runtime.threads.store import StoredRun, Thread, ThreadKey, ThreadStore


class ThreadReader:
    """Reads the runs of threads from a store.

    Forty clients that open a thread of 12 MB and read slowly hold it once: who asks while a
    thread is read waits for the next reading, which is one for all of them. What somebody still
    holds is not read again unless the thread has changed, and then its old runs are shared.
    """

    def __init__(self, store: ThreadStore) -> None:
        self._store = store
        self._next: dict[tuple[ThreadKey, bool], asyncio.Task[Sequence[StoredRun]]] = {}
        """Readings that have not begun, by thread and whether they are `only_ended`."""
        self._locks: WeakValueDictionary[ThreadKey, asyncio.Lock] = WeakValueDictionary()
        self._readings: WeakValueDictionary[ThreadKey, _Reading] = WeakValueDictionary()
        self._runs: WeakValueDictionary[tuple[ThreadKey, str], StoredRun] = WeakValueDictionary()
        """Ended runs that somebody holds."""

    async def read(self, key: ThreadKey, *, only_ended: bool = False) -> Sequence[StoredRun]:
        """Return the runs of a thread, as they are after the call at the earliest.

        With `only_ended`, one that goes on may have no events.
        """
        reading = self._next.get((key, only_ended))
        if reading is None:
            reading = asyncio.create_task(self._read_in_turn(key, only_ended))
            self._next[key, only_ended] = reading
            reading.add_done_callback(retrieve_exception)
        return await asyncio.shield(reading)

    async def _read_in_turn(self, key: ThreadKey, only_ended: bool) -> Sequence[StoredRun]:
        lock = self._locks.setdefault(key, asyncio.Lock())
        try:
            await lock.acquire()
        finally:
            del self._next[key, only_ended]
        try:
            return await convert_exits(self._read(key, only_ended))
        finally:
            lock.release()

    async def _read(self, key: ThreadKey, only_ended: bool) -> Sequence[StoredRun]:
        thread = await self._store.get(key)  # before its runs, which may be more by then
        last = self._readings.get(key)
        if last is not None and last.thread == thread and all(run.ended for run in last):
            return last  # each run that begins changes the thread
        runs = await (self._store.ended_runs(key) if only_ended else self._store.runs(key))
        reading = _Reading(
            self._runs.setdefault((key, run.log_id), run) if run.ended else run for run in runs
        )
        reading.thread = thread
        self._readings[key] = reading
        return reading


async def replay_run(run: StoredRun) -> Log:
    """Yield the events of a stored run as its log had them."""
    for number, event in enumerate(run.events, 1):
        yield Batch(str(number), (event,))


class _Reading(list[StoredRun]):
    """The runs of a thread, and what the thread was before they were read."""

    thread: Thread | None = None
