"""The recorder's state of each stored run."""

import asyncio
from collections.abc import Mapping, Sequence

from copilot_runtime.api.bus import LogWriter
from copilot_runtime.api.events import (
    BRIEF,
    LAST,
    ActionExecutionArgs,
    ActionExecutionResult,
    Activity,
    AgentState,
    Custom,
    Event,
    Interrupt,
    MessagesSnapshot,
    Raw,
    ReasoningContent,
    RunFailed,
    RunFinished,
    TextMessageContent,
)
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.errors import CopilotError, StoreFailed, build_error_report
from copilot_runtime.telemetry.logs import build_run_fields
from copilot_runtime.threads.store import Segment

_EVENT_SIZE = 200
_VALUE_SIZE = 10_000
"""The assumed size of an arbitrary value, in characters: measuring it would take too long."""


class PendingWrite:
    """The pending events of one run since its last write."""

    __slots__ = ("events", "last", "run", "size", "unpublished")

    def __init__(self, run: "Recording", events: list[Event], size: int) -> None:
        self.run = run
        self.events = events
        self.size = size
        self.last: RunFinished | RunFailed | None = None
        """The last event of the run, if it is among these."""
        self.unpublished: Sequence[Event] = () if run.publish_first else events
        """The events that are published only after they are stored."""
        if run.has_ended and events and isinstance(last := events[-1], LAST):
            self.last = last
            if run.publish_first:
                self.unpublished = (last,)

    def postpone_last(self) -> Event:
        """Remove the last event from this write, and return it."""
        *events, last = self.events
        self.events = self.unpublished = events
        self.last = None
        self.run.event_count -= 1  # it will be added again
        return last

    def segment(self) -> Segment:
        whole = None if self.last is None else [*self.run.log, *self.unpublished]
        return Segment(self.run.log_id, self.events, whole)


class Recording:
    """The recorder's state of a stored run: its published log, and the events to be written."""

    __slots__ = (
        "_ids",
        "_queue",
        "_size",
        "_waiters",
        "awaits_first",
        "error",
        "event_count",
        "first_published",
        "has_ended",
        "has_gap",
        "last_published",
        "log",
        "log_id",
        "publish_first",
        "stored_count",
        "writer",
    )

    def __init__(self, writer: LogWriter, run: RunInput) -> None:
        self.writer = writer
        self.log_id = run.log_id
        self._ids = (run.thread_id, run.run_id, run.span)
        self.publish_first = run.is_v1
        """Whether all events but the last are published before they are stored."""
        self.log: list[Event] = []
        """The published events; with the last event, they are written to the store as a whole."""
        self.error: CopilotError | None = None
        """The error that ends the run early."""
        self.has_gap = False
        """Whether the store lacks some of its events."""
        self.has_ended = False
        """Whether its last event was appended."""
        self.awaits_first = not self.publish_first
        """Whether `append` still has to wait for the publication of the first event."""
        loop = asyncio.get_running_loop()
        self.first_published: asyncio.Future[None] = loop.create_future()
        """Done when the first event is published, or never will be."""
        self.last_published: asyncio.Future[None] = loop.create_future()
        """Done when the last event is published."""
        self.event_count = 0
        """Number of appended events."""
        self.stored_count = 0
        """Number of stored events."""
        self._queue: list[Event] = []
        self._size = 0
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        """Waiting tasks, each with the number of events that must be stored."""

    @property
    def log_fields(self) -> Mapping[str, str]:
        """The run's ids, for log lines written outside of its own tasks."""
        return build_run_fields(*self._ids)

    def enqueue(self, event: Event) -> int:
        """Queue an event. Returns its size in characters."""
        size = _EVENT_SIZE
        if type(event) is TextMessageContent:  # nearly always
            size += len(event.content)
        elif type(event) not in BRIEF:
            size += _content_size(event)
        self._queue.append(event)
        self._size += size
        self.event_count += 1
        return size

    def dequeue(self) -> PendingWrite:
        """Empty the queue, and return its events as a write."""
        pending = PendingWrite(self, self._queue, self._size)
        self._queue, self._size = [], 0
        return pending

    def note_publication(self, *events: Event) -> None:
        """Record that events were published."""
        self.log.extend(events)
        _set(self.first_published)

    @property
    def is_stored(self) -> bool:
        """Whether all appended events are stored."""
        return self.stored_count >= self.event_count

    async def wait_for_storage(self) -> None:
        """Wait until all appended events are stored. Raises the error of the run."""
        if not self.is_stored and self.error is None:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append((self.event_count, waiter))
            await waiter
        if self.error is not None:
            raise self.error

    def note_storage(self, count: int) -> None:
        """Record that `count` more events are stored."""
        self.stored_count += count
        if self._waiters:
            self._wake_waiters(self.stored_count)

    def _wake_waiters(self, stored: int) -> None:
        for count, waiter in self._waiters:
            if count <= stored:
                _set(waiter)
        self._waiters = [it for it in self._waiters if it[0] > stored]

    def fail(self, error: Exception) -> None:
        """Set the error of the run: only its last event is still accepted."""
        if isinstance(error, CopilotError):
            self.error = error
        else:
            self.error = StoreFailed(
                "The answer was stopped, because it could not be saved.",
                hint="The server's log says why.",
            )
            self.error.__cause__ = error
        self._wake_waiters(self.event_count)
        _set(self.first_published)

    def finish(self) -> None:
        """Record that the last event was published."""
        _set(self.first_published)
        _set(self.last_published)

    def notify_writer(self) -> None:
        """Notify the writer that the log accepts only a last event, and no success, from now on."""
        if self.error is not None and not self.writer.failed.done():
            self.writer.failed.set_result(self.error)

    def final_event(self, last: RunFinished | RunFailed) -> RunFinished | RunFailed:
        """Return the last event, replaced by `RunFailed` if the run has an error."""
        if self.error is not None and isinstance(last, RunFinished):
            return RunFailed(error=build_error_report(self.error))
        return last


def _set(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


def _content_size(event: Event) -> int:
    """Return the approximate size of an event's content, in characters."""
    match event:
        case ActionExecutionArgs(delta=text) | ActionExecutionResult(result=text):
            return len(text)
        case TextMessageContent(content=text) | ReasoningContent(content=text):
            return len(text)
        case AgentState() | MessagesSnapshot() | Activity() | Custom() | Raw() | Interrupt():
            return _VALUE_SIZE
        case _:
            return 0
