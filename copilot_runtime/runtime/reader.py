"""Share one in-memory copy of a long thread among concurrent readers."""

import asyncio
from collections.abc import Sequence
from weakref import WeakValueDictionary

from copilot_runtime.api.bus import Batch
from copilot_runtime.base.concurrency import convert_exits, retrieve_exception
from copilot_runtime.runtime.run import Log
from copilot_runtime.threads.store import StoredRun, Thread, ThreadKey, ThreadStore


class ThreadReader:
    """Reads the runs of threads from a store, and shares them among concurrent readers.

    Forty clients that open a thread of 12 MB and read slowly hold one copy. A request that arrives
    during a read waits for the next read, which serves all such requests. Runs that are still
    referenced are read again only if the thread has changed, and then its old runs are shared.
    """

    def __init__(self, store: ThreadStore) -> None:
        self._store = store
        self._next: dict[tuple[ThreadKey, bool], asyncio.Task[Sequence[StoredRun]]] = {}
        """Pending reads, by thread and `only_ended`."""
        self._locks: WeakValueDictionary[ThreadKey, asyncio.Lock] = WeakValueDictionary()
        self._readings: WeakValueDictionary[ThreadKey, _Reading] = WeakValueDictionary()
        self._runs: WeakValueDictionary[tuple[ThreadKey, str], StoredRun] = WeakValueDictionary()
        """Ended runs that are still referenced (weak references)."""

    async def read(self, key: ThreadKey, *, only_ended: bool = False) -> Sequence[StoredRun]:
        """Return the runs of a thread, read no earlier than this call.

        With `only_ended`, the events of active runs may be omitted.
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
        thread = await self._store.get(key)  # before its runs: new ones may start in between
        last = self._readings.get(key)
        if last is not None and last.thread == thread and all(run.ended for run in last):
            return last  # the start of a run changes the thread
        runs = await (self._store.ended_runs(key) if only_ended else self._store.runs(key))
        reading = _Reading(
            self._runs.setdefault((key, run.log_id), run) if run.ended else run for run in runs
        )
        reading.thread = thread
        self._readings[key] = reading
        return reading


async def replay_run(run: StoredRun) -> Log:
    """Yield the events of a stored run in the order of its log."""
    for number, event in enumerate(run.events, 1):
        yield Batch(str(number), (event,))


class _Reading(list[StoredRun]):
    """The runs of a thread, and the thread's state before they were read."""

    thread: Thread | None = None
