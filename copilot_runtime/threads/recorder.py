"""Keep the runs of threads while they happen: who reads a thread again finds what they saw."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence

from copilot_runtime.errors import CopilotError, Misuse, StoreFailed
from copilot_runtime.events import LAST, Event, RunFailed, RunFinished, RunStarted
from copilot_runtime.interfaces import START, Batch, Bus, Cursor, LogWriter, RunInput
from copilot_runtime.threads.recording import Recording, Taken
from copilot_runtime.threads.store import Segment, ThreadStore

logger = logging.getLogger(__name__)

_MOST_OWED = 1000
"""Ends of runs that wait for a store that failed. Beyond that the oldest is given up."""


class RecordedBus(Bus):
    """A bus that writes the runs which were begun here to a store, and then lets them be read.

    All that comes within `interval` seconds is one write; what comes after a pause is written
    at once. `append` waits only for the first event of a run and for the last to be visible, or
    while more than `max_queued` characters wait for the store. When the store fails, the runs
    concerned end with `StoreFailed`, and the store is told of their end once it works again.

    The runs of CopilotKit v1 are read at once and written behind, all but their last event: such
    a client brings its whole conversation each time, and never reads a thread again. As nobody
    waits for it, what comes of them within `patience` seconds is one write.
    """

    def __init__(
        self,
        inner: Bus,
        store: ThreadStore,
        *,
        interval: float = 0.01,
        patience: float = 0.25,
        max_queued: int = 64 * 1024 * 1024,
    ) -> None:
        self.inner = inner
        self.store = store
        self.interval = interval
        self.patience = patience
        self.max_queued = max_queued
        self._runs: dict[str, Recording] = {}
        self._waiting: dict[str, Recording] = {}
        """The runs with something to write, in the order in which it came."""
        self._behind: dict[str, Recording] = {}
        """Those for which nobody waits."""
        self._later: asyncio.TimerHandle | None = None
        """Writes them."""
        self._queued = 0
        self._room: asyncio.Future[None] | None = None
        self._flusher: asyncio.Task[None] | None = None
        self._next_write = 0.0
        self._owed: dict[str, Segment] = {}
        """The ends of runs that the store could not take."""

    async def begin(self, run: RunInput) -> LogWriter:
        """Open the log of a run, which is stored from now on if it is to `persist`."""
        if not run.persist:
            return await self.inner.begin(run)
        if self._owed:  # the thread may wait for just that
            await self._pay()
        new = await self.store.begin(run)
        writer = LogWriter(self, run.log_id, new)
        self._runs[run.log_id] = Recording(writer, run.log_id, shown_first=run.is_v1)
        return writer

    async def append(self, log_id: str, event: Event) -> None:
        """Add an event. Raises what became of those before: `StoreFailed` or `LimitExceeded`."""
        run = self._runs.get(log_id)
        if run is None:
            await self.inner.append(log_id, event)
        elif run.ended:
            raise Misuse(f"The run {log_id!r} has ended: its log takes no more events.")
        elif isinstance(event, LAST):
            await self._end(run, event)
        elif run.error is not None:
            raise run.error
        else:
            if run.shown_first:
                await self._show_first(run, event)
            self._queue(run, event)
            if run.fresh:
                run.fresh = False
                await run.begun
                if run.error is not None:
                    raise run.error
            elif self._queued > self.max_queued:
                await self._less_queued()

    def read(self, log_id: str, after: Cursor = START) -> AsyncGenerator[Batch, None]:
        """Follow a log, as the inner bus does."""
        return self.inner.read(log_id, after)

    async def drop(self, log_id: str) -> None:
        """Forget a log; what its thread has of it stays."""
        await self.inner.drop(log_id)

    async def aclose(self) -> None:
        """Write what there is to write, and close the store, and the inner bus if it can be."""
        self._catch_up()
        while self._flusher is not None:
            await asyncio.wait([self._flusher])
        if self._owed:
            await self._pay()
        for log_id in self._owed:
            _given_up(log_id)
        await self.store.aclose()
        await self.inner.aclose()

    async def _show_first(self, run: Recording, event: Event) -> None:
        """Let everybody see an event that is not kept yet."""
        await self.inner.append(run.log_id, event)
        run.log.append(event)
        if run.error is not None:  # since a moment ago: there must be no gap in what is kept
            raise run.error

    async def _end(self, run: Recording, last: RunFinished | RunFailed) -> None:
        run.ended = True
        if run.lost:
            await self._end_lost(run, last)
        else:
            self._queue(run, run.honest(last))
            await run.done

    def _queue(self, run: Recording, event: Event) -> None:
        self._queued += run.put(event)
        if run.shown_first and not run.ended:
            self._behind[run.log_id] = run
            if self._later is None:
                loop = asyncio.get_running_loop()
                self._later = loop.call_later(self.patience, self._catch_up)
        else:
            self._behind.pop(run.log_id, None)
            self._write(run)

    def _write(self, run: Recording) -> None:
        self._waiting[run.log_id] = run
        if self._flusher is None:
            self._flusher = asyncio.create_task(self._flush(), name="threads:flush")

    def _catch_up(self) -> None:
        """Write what nobody waits for."""
        if self._later is not None:
            self._later.cancel()
            self._later = None
        behind, self._behind = self._behind, {}
        for run in behind.values():
            self._write(run)

    async def _less_queued(self) -> None:
        self._catch_up()
        if self._room is None:
            self._room = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._room)

    async def _flush(self) -> None:
        """Write until there is nothing to write."""
        loop = asyncio.get_running_loop()
        try:
            while self._waiting:
                if (pause := self._next_write - loop.time()) > 0:
                    await asyncio.sleep(pause)
                self._next_write = loop.time() + self.interval
                waiting, self._waiting = self._waiting, {}
                await self._keep([run.take() for run in waiting.values()])
                if self._queued <= self.max_queued:
                    self._let_in()
        finally:
            self._flusher = None
            self._let_in()

    def _let_in(self) -> None:
        if self._room is not None:
            self._room.set_result(None)
            self._room = None

    async def _keep(self, taken: Sequence[Taken]) -> None:
        """Write what came, and show what of it is not seen yet."""
        error = await self._written([one.segment() for one in taken])
        if error is not None and not isinstance(error, StoreFailed) and len(taken) > 1:
            for one in taken:  # something is wrong with one of them: the others go on
                await self._keep([one])
            return
        for one in taken:
            self._queued -= one.size
            if error is None:
                await self._show(one)
            else:
                await self._lose(one, error)
        if error is None and self._owed:
            await self._pay()

    async def _written(self, segments: Sequence[Segment]) -> Exception | None:
        try:
            await self.store.write(segments)
        except Exception as error:  # whatever it is, it must not end the writing
            return error
        return None

    async def _show(self, one: Taken) -> None:
        """Let everybody see what is kept now."""
        run = one.run
        if one.unseen and not await self._shown_at_once(one):
            for event in one.unseen:
                try:
                    await self.inner.append(run.log_id, event)
                except Exception as error:  # a log that is full, nearly always
                    await self._cut(one, error)
                    return
                run.seen([event])
        if one.last is not None:
            self._forget(run)

    async def _shown_at_once(self, one: Taken) -> bool:
        """Let the inner bus wake the readers once for all, if it can."""
        try:
            if not await self.inner.append_all(one.run.log_id, one.unseen):
                return False
        except Exception:  # which of them is wrong is found one by one
            return False
        one.run.seen(one.unseen)
        return True

    async def _cut(self, one: Taken, error: Exception) -> None:
        """Let a run go no further: the inner bus takes no more of it."""
        run, queued = one.run, self._unqueued(one.run)
        run.broken(error)
        if one.last is not None:
            await self._end_lost(run, one.last)
        elif queued is not None:
            self._queue(run, run.honest(queued))
        else:
            self._tell(run)

    async def _lose(self, one: Taken, error: Exception) -> None:
        """Let a run go no further: the store did not take what came of it."""
        run, queued = one.run, self._unqueued(one.run)
        run.broken(error)
        run.lost = True
        cause = error.__cause__ or error
        unforeseen = None if isinstance(error, CopilotError) else error
        logger.error("The run %s could not be kept: %r", run.log_id, cause, exc_info=unforeseen)
        if not run.log:  # it brought the messages of its request
            run.log.extend(event for event in one.events[:1] if isinstance(event, RunStarted))
        if last := one.last or queued:
            await self._end_lost(run, last)
        else:
            self._tell(run)

    def _tell(self, run: Recording) -> None:
        if run.error is not None and not run.writer.failed.done():
            run.writer.failed.set_result(run.error)

    def _unqueued(self, run: Recording) -> RunFinished | RunFailed | None:
        """Forget what is queued, except the last event."""
        dropped = run.take()
        self._queued -= dropped.size
        self._waiting.pop(run.log_id, None)
        self._behind.pop(run.log_id, None)
        return dropped.last

    async def _end_lost(self, run: Recording, last: RunFinished | RunFailed) -> None:
        """End a run for everybody to see, and owe the store its end."""
        last = run.honest(last)
        self._owed[run.log_id] = Segment(log_id=run.log_id, events=[last], whole=[*run.log, last])
        if len(self._owed) > _MOST_OWED:
            log_id = next(iter(self._owed))
            del self._owed[log_id]
            _given_up(log_id)
        try:
            await self.inner.append(run.log_id, last)
        except Exception:  # the log is gone: nobody reads it
            logger.exception("The end of the run %s could not be shown", run.log_id)
        self._forget(run)

    def _forget(self, run: Recording) -> None:
        self._runs.pop(run.log_id, None)
        run.finished()

    async def _pay(self) -> None:
        """Tell the store of the ends it missed, unless it still fails."""
        owed = dict(self._owed)
        error = await self._written([*owed.values()])
        if isinstance(error, StoreFailed):
            return
        for log_id, segment in owed.items():
            self._owed.pop(log_id, None)
            if error is not None and await self._written([segment]) is not None:
                _given_up(log_id)


def _given_up(log_id: str) -> None:
    logger.error("The end of the run %s could not be kept", log_id)
