"""Store the events of runs as they happen, so that a reloaded thread shows what users saw."""

import logging
from asyncio import Task, get_running_loop
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import suppress
from contextvars import Context
from functools import partial
from time import monotonic, perf_counter

from copilot_runtime.api.bus import START, Batch, Bus, Cursor, LogWriter
from copilot_runtime.api.events import LAST, Event, RunFailed, RunFinished, RunStarted
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.concurrency import convert_exits
from copilot_runtime.base.errors import CopilotError, Interrupted, Misuse, StoreFailed
from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.span import name_error
from copilot_runtime.telemetry.telemetry import NO_TELEMETRY, Telemetry
from copilot_runtime.threads.compact import UnsavedEnds
from copilot_runtime.threads.group_commit import GroupCommit
from copilot_runtime.threads.recording import PendingWrite, Recording
from copilot_runtime.threads.store import Segment, ThreadStore

logger = logging.getLogger(__name__)

_WRITING = {semconv.STORE_OPERATION: "write"}

_FRESH = 5.0
"""Seconds for which a commit proves that no other server has declared this one dead."""


class Recorder(Bus):
    """A bus that writes the runs of threads to a store, then publishes them on another bus.

    `append` waits until the first and the last event of a run are published, and applies
    backpressure while more than `max_queued` characters wait for the store. `patience` is
    described in `GroupCommit`. If the store fails, the affected runs end with `StoreFailed`, and
    their ends are stored once the store has recovered.

    Runs of CopilotKit v1 are published first and written later, except for their last event: such
    a client sends the whole conversation with each request, and never reloads a thread.
    """

    def __init__(
        self,
        inner: Bus,
        store: ThreadStore,
        *,
        patience: float = 0.25,
        max_queued: int = 64 * 1024 * 1024,
        telemetry: Telemetry = NO_TELEMETRY,
    ) -> None:
        self.inner = inner
        self.store = store
        self.telemetry = telemetry
        self._runs: dict[str, Recording] = {}
        self._commits = GroupCommit(
            self._write,
            interval=store.commit_interval,
            patience=patience,
            max_queued=max_queued,
        )
        self._unsaved_ends = UnsavedEnds()
        self._task: Task[None] | None = None
        """The last write that needed a task; the event loop has only weak references to tasks."""

    async def begin(self, run: RunInput) -> LogWriter:
        """Open the log of a run; its events are stored if the run has `persist` set."""
        if not run.persist:
            return await self.inner.begin(run)
        if self._unsaved_ends:  # one of them may block the thread
            await self._retry_ends()
        writer = LogWriter(self, run.log_id, await self.store.begin(run))
        self._runs[run.log_id] = Recording(writer, run)
        return writer

    async def append(self, log_id: str, event: Event) -> None:
        """Add an event. Raises the error of an earlier event: `StoreFailed` or `LimitExceeded`."""
        run = self._runs.get(log_id)
        if run is None:
            await self.inner.append(log_id, event)
        elif run.has_ended:
            raise Misuse(f"The run {log_id!r} has ended: its log takes no more events.")
        elif isinstance(event, LAST):
            await self._end(run, event)
        elif run.error is not None:
            raise run.error
        else:
            if run.publish_first:
                await self.inner.append(log_id, event)
                run.log.append(event)
                if run.error is not None:  # failed meanwhile: the stored log must have no gap
                    raise run.error
            commits = self._commits
            commits.add(run, event, run.publish_first)
            if run.awaits_first:
                run.awaits_first = False
                await run.first_published
                if run.error is not None:
                    raise run.error
            elif commits.queued > commits.max_queued:
                await commits.wait_for_room()

    async def wait_for_storage(self, log_id: str) -> None:
        """Wait until the appended events are stored. Raises `StoreFailed` or `LimitExceeded`."""
        if (run := self._runs.get(log_id)) is not None:
            is_stored, began = run.is_stored, monotonic()
            self._commits.flush()
            await run.wait_for_storage()
            if is_stored or monotonic() > began + _FRESH:
                await self.store.check_run(log_id)

    def read(self, log_id: str, after: Cursor = START) -> AsyncGenerator[Batch, None]:
        """Read a log of the inner bus."""
        return self.inner.read(log_id, after)

    def count_readers(self) -> int:
        """Return the current number of readers of the inner bus."""
        return self.inner.count_readers()

    async def drop(self, log_id: str) -> None:
        """Delete a log from the inner bus; the stored thread is not changed."""
        await self.inner.drop(log_id)

    async def aclose(self) -> None:
        """Write queued events, and close the store and the inner bus."""
        await self._commits.drain()
        if self._unsaved_ends:
            await self._retry_ends()
        self._unsaved_ends.give_up()
        await self.store.aclose()
        await self.inner.aclose()

    async def _end(self, run: Recording, last: RunFinished | RunFailed) -> None:
        run.has_ended = True
        if run.has_gap:
            await self._end_without_store(run, last)
        else:
            self._commits.add(run, run.final_event(last))
            await run.last_published

    def _write(self, writes: Sequence[PendingWrite]) -> None:
        """Store pending events, then publish those that are not published yet.

        That needs no task if the store and the log can do without. If a run's log has no capacity
        for all of them, the run is stored without its last event, which will be replaced by an
        error.
        """
        segments: list[Segment] = []
        for write in writes:
            if write.last is not None and not self._has_room(write):
                self._commits.add(write.run, write.postpone_last())
            segments.append(write.segment())
        finish = partial(self._finish_write, writes, perf_counter())
        if not self.store.submit(segments, finish):
            self._spawn(writes, self._write_all(writes, segments))

    def _finish_write(
        self, writes: Sequence[PendingWrite], start: float, error: Exception | None
    ) -> None:
        """Publish what the store has got, or handle its error."""
        self._note_write(start, error)
        is_plain = error is None and not self._unsaved_ends
        for number, write in enumerate(writes):
            if not is_plain or (write.unpublished and not self._publish_all(write)):
                self._spawn(writes, self._settle(writes[number:], error))
                return
            write.run.note_storage(len(write.events))
            if write.last is not None:
                self._finish(write.run)
        self._end_write(writes)

    def _spawn(self, writes: Sequence[PendingWrite], work: Coroutine[None, None, None]) -> None:
        loop = get_running_loop()
        self._task = loop.create_task(work, name="threads:write", context=Context())
        self._task.add_done_callback(lambda _: self._end_write(writes))

    def _end_write(self, writes: Sequence[PendingWrite]) -> None:
        for write in writes:
            if write.unpublished:
                delay = get_running_loop().time() - self._commits.oldest
                self.telemetry.record(semconv.BUS_DELAY, delay)
                break
        self._commits.end_commit()

    async def _write_all(self, writes: Sequence[PendingWrite], segments: Sequence[Segment]) -> None:
        await self._settle(writes, await self._store(segments))

    async def _settle(self, writes: Sequence[PendingWrite], error: Exception | None) -> None:
        """Publish what is stored, or end the runs of what is not."""
        if error is not None and not isinstance(error, StoreFailed) and len(writes) > 1:
            for write in writes:  # one of them is at fault: write each separately
                await self._write_all([write], [write.segment()])
            return
        for write in writes:
            if error is None:
                write.run.note_storage(len(write.events))
                await self._publish(write)
            else:
                await self._fail_store(write, error)
        if error is None and self._unsaved_ends:
            await self._retry_ends()

    def _has_room(self, write: PendingWrite) -> bool:
        """Return whether the inner bus has capacity for the unpublished events."""
        if len(write.unpublished) == 1:  # `append` always takes a last event
            return True
        with suppress(Exception):  # publishing them will raise it again
            return self.inner.reserve(write.run.log_id, write.unpublished)
        return True

    async def _store(self, segments: Sequence[Segment]) -> Exception | None:
        """Write to the store; return the error, or `None`."""
        start, failure = perf_counter(), None
        try:
            await convert_exits(self.store.write(segments))
        except Exception as error:  # any error: the task must survive
            failure = error
        self._note_write(start, failure)
        return failure

    def _note_write(self, start: float, error: Exception | None) -> None:
        attributes = _WRITING
        if error is not None:
            attributes = {**_WRITING, semconv.ERROR_TYPE: name_error(error)}
        self.telemetry.record(semconv.STORE_DURATION, perf_counter() - start, attributes)

    async def _publish(self, write: PendingWrite) -> None:
        """Publish the events that are now stored."""
        run, events = write.run, write.unpublished
        if events and not self._publish_all(write):
            for event in events:
                try:
                    await self.inner.append(run.log_id, event)
                except Exception as error:  # a log that is full, nearly always
                    await self._fail_publish(write, error)
                    return
                run.note_publication(event)
        if write.last is not None:
            self._finish(run)

    def _publish_all(self, write: PendingWrite) -> bool:
        """Append all events to the inner bus at once. Returns `False` if it cannot."""
        try:
            if not self.inner.append_all(write.run.log_id, write.unpublished):
                return False
        except Exception:  # appending them one by one finds the wrong one
            return False
        write.run.note_publication(*write.unpublished)
        return True

    async def _fail_publish(self, write: PendingWrite, error: Exception) -> None:
        """End a run whose events the inner bus rejects."""
        run, queued_last = write.run, self._commits.discard(write.run)
        run.fail(error)
        if write.last is not None:
            await self._end_without_store(run, write.last)
            return
        run.notify_writer()
        if queued_last is not None:
            self._commits.add(run, run.final_event(queued_last))

    async def _fail_store(self, write: PendingWrite, error: Exception) -> None:
        """End a run whose events the store rejects."""
        run, queued_last = write.run, self._commits.discard(write.run)
        run.fail(error)
        run.has_gap = True
        if isinstance(error, Interrupted):
            run.writer.is_lost = True
        cause = error.__cause__ or error
        unforeseen = None if isinstance(error, CopilotError) else error
        logger.error(
            "The run %s could not be stored: %r",
            *(run.log_id, cause),
            exc_info=unforeseen,
            extra=run.log_fields,
        )
        if not run.log:  # it brought the messages of its request
            run.log.extend(event for event in write.events[:1] if isinstance(event, RunStarted))
        if last := write.last or queued_last:
            await self._end_without_store(run, last)
        else:
            run.notify_writer()

    async def _end_without_store(self, run: Recording, last: RunFinished | RunFailed) -> None:
        """Publish the last event of a run, and store it later."""
        run.notify_writer()
        last = run.final_event(last)
        whole = [*run.log, last]
        segment = Segment(log_id=run.log_id, events=[last], whole=whole)
        self._unsaved_ends.add(segment, run.log_fields)
        try:
            await self.inner.append(run.log_id, last)
        except Exception:  # the log is gone, and so are its readers
            logger.exception(
                "The end of the run %s could not be published", run.log_id, extra=run.log_fields
            )
        self._finish(run)

    def _finish(self, run: Recording) -> None:
        self._runs.pop(run.log_id, None)
        run.finish()

    async def _retry_ends(self) -> None:
        """Store the last events that the store has missed, unless it still fails."""
        segments = self._unsaved_ends.segments()
        error = await self._store(segments)
        if isinstance(error, StoreFailed):
            return
        for segment in segments:
            is_saved = error is None or await self._store([segment]) is None
            self._unsaved_ends.remove(segment, is_saved=is_saved)
