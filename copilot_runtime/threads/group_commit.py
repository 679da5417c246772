"""Commit the events of all runs in groups."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context

from copilot_runtime.api.events import Event, RunFailed, RunFinished
from copilot_runtime.threads.recording import PendingWrite, Recording

_EVENT_SECONDS = 0.002
"""The share of time of one event: up to 500 events a second are committed at once."""

_BURST_SECONDS = 0.02
"""The shares of ten events, which may arrive together without being a load."""

Commit = Callable[[Sequence[PendingWrite]], Awaitable[None]]
"""Writes the pending events of any number of runs. Must not raise."""


class GroupCommit:
    """Queues the events of runs and commits them in groups.

    An event is committed at once, with those that arrived during the previous commit. Under load,
    which is more than 500 events a second beyond a burst of ten, commits begin `interval` seconds
    apart. A `deferred` event waits for at most `patience` seconds, or for the next event of its
    run that is not deferred. `wait_for_room` blocks while more than `max_queued` characters are
    queued.
    """

    def __init__(
        self, commit: Commit, *, interval: float, patience: float, max_queued: int
    ) -> None:
        self.interval = interval
        self.patience = patience
        self.max_queued = max_queued
        self._commit = commit
        self._pending: dict[str, Recording] = {}
        """The runs with pending events, in order of arrival."""
        self._deferred: dict[str, Recording] = {}
        """Runs with deferred events only."""
        self._deferred_timer: asyncio.TimerHandle | None = None
        self.queued = 0
        """Characters, roughly."""
        self.oldest = 0.0
        """A loop time: none of the events in the current commit was queued earlier."""
        self._last_dequeue = 0.0
        self._room: asyncio.Future[None] | None = None
        self._flusher: asyncio.Task[None] | None = None
        self._next_write = 0.0
        self._loaded_until = 0.0
        """The loop time at which the shares of all committed events have passed, at most an
        interval after those of a burst."""

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
        """Drop the queued events of a run; return its last event if it was one of them."""
        dropped = run.dequeue()
        self.queued -= dropped.size
        self._pending.pop(run.log_id, None)
        self._deferred.pop(run.log_id, None)
        return dropped.last

    def flush(self) -> None:
        """Commit the deferred events."""
        if self._deferred_timer is not None:
            self._deferred_timer.cancel()
            self._deferred_timer = None
        deferred, self._deferred = self._deferred, {}
        for run in deferred.values():
            self._pending[run.log_id] = run
        if self._pending and self._flusher is None:
            self._start_flush()

    async def wait_for_room(self) -> None:
        """Wait until the queue has capacity again."""
        self.flush()
        if self._room is None:
            self._room = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._room)

    async def drain(self) -> None:
        """Commit all queued events."""
        self.flush()
        while self._flusher is not None:
            await asyncio.wait([self._flusher])

    def _start_flush(self) -> None:
        loop = asyncio.get_running_loop()
        self._last_dequeue = loop.time()
        self._flusher = loop.create_task(self._flush(), name="threads:flush", context=Context())

    async def _flush(self) -> None:
        """Commit until nothing is pending."""
        loop = asyncio.get_running_loop()
        try:
            while self._pending:
                if (pause := self._next_write - loop.time()) > 0:
                    await asyncio.sleep(pause)
                pending, self._pending = self._pending, {}
                self.oldest, self._last_dequeue = self._last_dequeue, loop.time()
                writes: list[PendingWrite] = []
                count = size = 0
                for run in pending.values():
                    write = run.dequeue()
                    writes.append(write)
                    count += len(write.events)
                    size += write.size
                self._plan_next_write(count)
                await self._commit(writes)
                self.queued -= size
                if self._room is not None and self.queued <= self.max_queued:
                    self._release_room()
        finally:
            self._flusher = None
            self._release_room()

    def _plan_next_write(self, count: int) -> None:
        """Set the earliest time of the commit after that of `count` events, which begins now."""
        now = self._last_dequeue
        load = count * _EVENT_SECONDS
        if self._loaded_until > now:
            load += self._loaded_until - now
        if load > _BURST_SECONDS:
            load = min(load, _BURST_SECONDS + self.interval)
            self._next_write = now + self.interval
        self._loaded_until = now + load

    def _release_room(self) -> None:
        if self._room is not None:
            self._room.set_result(None)
            self._room = None
