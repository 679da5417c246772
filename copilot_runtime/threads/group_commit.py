"""Commit the events of all runs in groups."""

import asyncio
from collections.abc import Callable, Sequence

from copilot_runtime.api.events import Event, RunFailed, RunFinished
from copilot_runtime.threads.recording import PendingWrite, Recording

_EVENT_SECONDS = 0.002
"""The share of time of one event: up to 500 events a second are committed at once."""

_BURST_SECONDS = 0.02
"""The shares of ten events, which may arrive together without being a load."""

Commit = Callable[[Sequence[PendingWrite]], None]
"""Begins to write the pending events of any number of runs, and calls `end_commit` when it has
ended, even if it has failed. Must not raise."""


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
        self._idle: asyncio.Future[None] | None = None
        """Resolves when nothing is pending any more, if `drain` waits for that."""
        self._is_committing = False
        """Whether a commit is under way or planned."""
        self._size = 0
        """Characters in the current commit, roughly."""
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
        if not self._is_committing:
            self._plan_commit()

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
        if self._pending and not self._is_committing:
            self._plan_commit()

    async def wait_for_room(self) -> None:
        """Wait until the queue has capacity again."""
        self.flush()
        if self._room is None:
            self._room = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._room)

    async def drain(self) -> None:
        """Commit all queued events."""
        self.flush()
        if self._is_committing:
            if self._idle is None:
                self._idle = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._idle)

    def end_commit(self) -> None:
        """Note the end of the commit, and plan the next one if events are pending."""
        self.queued -= self._size
        if self._room is not None and (self.queued <= self.max_queued or not self._pending):
            self._room.set_result(None)
            self._room = None
        if self._pending:
            self._plan_commit()
            return
        self._is_committing = False
        if self._idle is not None:
            self._idle.set_result(None)
            self._idle = None

    def _plan_commit(self) -> None:
        """Commit in the next turn of the event loop, or under load at the end of the interval."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        if not self._is_committing:
            self._is_committing, self._last_dequeue = True, now
        if self._next_write > now:
            loop.call_at(self._next_write, self._begin_commit)
        else:
            loop.call_soon(self._begin_commit)

    def _begin_commit(self) -> None:
        """Commit all that is pending."""
        pending, self._pending = self._pending, {}
        self.oldest, self._last_dequeue = self._last_dequeue, asyncio.get_running_loop().time()
        writes: list[PendingWrite] = []
        count = size = 0
        for run in pending.values():
            write = run.dequeue()
            writes.append(write)
            count += len(write.events)
            size += write.size
        self._size = size
        self._plan_next_write(count)
        self._commit(writes)

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
