"""Write what many runs have to store in one transaction: a group commit."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context

from copilot_runtime.api.events import Event, RunFailed, RunFinished
from copilot_runtime.threads.recording import PendingWrite, Recording

Commit = Callable[[Sequence[PendingWrite]], Awaitable[None]]
"""Stores what is pending of any number of runs. It raises nothing."""


class GroupCommit:
    """Queues the events of runs and commits them together.

    All that comes within `interval` seconds is one commit; what comes after a pause is committed
    at once. What is `deferred` waits for at most `patience` seconds, or for the next event of its
    run that is not. `wait_for_room` waits while more than `max_queued` characters are queued.
    """

    def __init__(
        self, commit: Commit, *, interval: float, patience: float, max_queued: int
    ) -> None:
        self.interval = interval
        self.patience = patience
        self.max_queued = max_queued
        self._commit = commit
        self._pending: dict[str, Recording] = {}
        """The runs with something to write, in the order in which it came."""
        self._deferred: dict[str, Recording] = {}
        """Those for which nobody waits."""
        self._deferred_timer: asyncio.TimerHandle | None = None
        self.queued = 0
        """Characters, roughly."""
        self.oldest = 0.0
        """A time of the loop: nothing that is being committed was queued before it."""
        self._last_dequeue = 0.0
        self._room: asyncio.Future[None] | None = None
        self._flusher: asyncio.Task[None] | None = None
        self._next_write = 0.0

    def add(self, run: Recording, event: Event, deferred: bool = False) -> None:
        """Queue an event of a run."""
        self.queued += run.enqueue(event)
        if deferred:
            self._deferred[run.log_id] = run
            if self._deferred_timer is None:
                loop = asyncio.get_running_loop()
                self._deferred_timer = loop.call_later(self.patience, self.flush)
            return
        if self._deferred:
            self._deferred.pop(run.log_id, None)
        self._pending[run.log_id] = run
        if self._flusher is None:
            self._start_flush()

    def discard(self, run: Recording) -> RunFinished | RunFailed | None:
        """Drop what is queued of a run; return its last event, if that was queued."""
        dropped = run.dequeue()
        self.queued -= dropped.size
        self._pending.pop(run.log_id, None)
        self._deferred.pop(run.log_id, None)
        return dropped.last

    def flush(self) -> None:
        """Commit what was deferred."""
        if self._deferred_timer is not None:
            self._deferred_timer.cancel()
            self._deferred_timer = None
        deferred, self._deferred = self._deferred, {}
        for run in deferred.values():
            self._pending[run.log_id] = run
        if self._pending and self._flusher is None:
            self._start_flush()

    async def wait_for_room(self) -> None:
        """Return once less is queued."""
        self.flush()
        if self._room is None:
            self._room = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._room)

    async def drain(self) -> None:
        """Commit all that is queued."""
        self.flush()
        while self._flusher is not None:
            await asyncio.wait([self._flusher])

    def _start_flush(self) -> None:
        self._last_dequeue = asyncio.get_running_loop().time()
        self._flusher = asyncio.create_task(self._flush(), name="threads:flush", context=Context())

    async def _flush(self) -> None:
        """Commit until nothing is pending."""
        loop = asyncio.get_running_loop()
        try:
            while self._pending:
                if (pause := self._next_write - loop.time()) > 0:
                    await asyncio.sleep(pause)
                self._next_write = loop.time() + self.interval
                pending, self._pending = self._pending, {}
                self.oldest, self._last_dequeue = self._last_dequeue, loop.time()
                writes = [run.dequeue() for run in pending.values()]
                await self._commit(writes)
                self.queued -= sum(write.size for write in writes)
                if self.queued <= self.max_queued:
                    self._release_room()
        finally:
            self._flusher = None
            self._release_room()

    def _release_room(self) -> None:
        if self._room is not None:
            self._room.set_result(None)
            self._room = None
