"""Keep threads in this process: for tests, and for those who want nothing on disk."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from copilot_runtime.events import Event, RunStarted
from copilot_runtime.interfaces import DEFAULT_AGENT, RunInput
from copilot_runtime.messages import Message
from copilot_runtime.threads.clock import Clock, from_datetime, to_datetime
from copilot_runtime.threads.compact import compact
from copilot_runtime.threads.endings import ended, with_head
from copilot_runtime.threads.known import by_name, names_in
from copilot_runtime.threads.limits import (
    MOST_PER_PAGE,
    Place,
    busy,
    check_text,
    name_taken,
    page_size,
    place_of,
    thread_of,
)
from copilot_runtime.threads.store import (
    Segment,
    StoredRun,
    Thread,
    ThreadKey,
    ThreadPage,
    ThreadQuery,
)


class MemoryThreads:
    """At most `max_threads`: the one not touched for longest makes room, unless it has a run."""

    def __init__(self, *, max_threads: int = 1000) -> None:
        self.max_threads = max_threads
        self._clock = Clock()
        self._count = 0
        self._threads: dict[ThreadKey, _Thread] = {}
        self._running: dict[str, tuple[_Thread, _Run]] = {}

    async def open(self) -> None:
        """Do nothing: a new process has no threads."""

    async def begin(self, run: RunInput) -> Sequence[Message]:
        """Begin the log of a run. Raises `ThreadBusy`, or `Misuse` for ids too long to keep."""
        key = thread_of(run)
        thread = self._threads.get(key)
        if thread and thread.is_running():
            raise busy(key)
        if run.key in self._running:
            raise name_taken(run.key)
        now = self._clock.now()
        thread = thread or self._new(key, run.agent or DEFAULT_AGENT, now)
        new = {
            name: message
            for name, message in by_name(run.messages).items()
            if name not in thread.known
        }
        thread.known.update(new)
        thread.updated = thread.last_run = now
        messages = list(new.values())
        head = RunStarted(run_id=run.run_id, thread_id=run.thread_id, messages=messages)
        begun = _Run(run.key, run.run_id, run.agent or DEFAULT_AGENT, now, head=[head])
        thread.runs.append(begun)
        self._running[run.key] = (thread, begun)
        return messages

    async def write(self, segments: Sequence[Segment]) -> None:
        """Add to logs. What belongs to a thread that was deleted goes nowhere."""
        for segment in segments:
            if segment.key not in self._running:
                continue
            thread, run = self._running[segment.key]
            if segment.whole is None:
                run.events.extend(segment.events)
                continue
            del self._running[segment.key]
            run.events = list(compact(segment.whole))
            run.has_ended = True
            thread.known.update(names_in(segment.whole))

    async def list(self, query: ThreadQuery) -> ThreadPage:
        """Return a page of threads. Raises `Misuse` for a cursor that is none."""
        after = place_of(query.cursor)
        found = [
            thread
            for thread in self._threads.values()
            if thread.key.owner == query.owner
            and query.agent in (None, thread.agent)
            and (query.archived or not thread.archived)
            and thread.place() < after
        ]
        found.sort(key=_Thread.place, reverse=True)
        return _page(found, page_size(query.limit))

    async def get(self, key: ThreadKey) -> Thread | None:
        thread = self._threads.get(key)
        return thread and thread.shown()

    async def runs(self, key: ThreadKey) -> Sequence[StoredRun]:
        """Return the runs of a thread, the oldest first."""
        thread = self._threads.get(key)
        return [run.shown() for run in thread.runs] if thread else []

    async def update(
        self, key: ThreadKey, *, name: str | None = None, archived: bool | None = None
    ) -> Thread | None:
        """Change what is not None; an empty name takes the name away."""
        check_text("name", name or "")
        thread = self._threads.get(key)
        if thread is None:
            return None
        if name is not None:
            thread.name = name or None
        if archived is not None:
            thread.archived = archived
        thread.updated = self._clock.now()
        return thread.shown()

    async def delete(self, key: ThreadKey) -> bool:
        """Forget a thread; a run that goes on is kept no more."""
        thread = self._threads.pop(key, None)
        if thread is None:
            return False
        for run in thread.runs:
            if not run.has_ended:
                self._running.pop(run.key, None)
        return True

    async def expire(self, before: datetime) -> int:
        """Forget threads not touched since `before`, except those with a run."""
        limit = from_datetime(before)
        old = [key for key, thread in self._threads.items() if thread.updated < limit]
        gone = [key for key in old if not self._threads[key].is_running()]
        for key in gone:
            del self._threads[key]
        return len(gone)

    async def everyones(self, cursor: str | None = None) -> ThreadPage:
        """Return a page of the threads of all owners, the oldest first."""
        after = place_of(cursor).number if cursor else 0
        found = [thread for thread in self._threads.values() if thread.number > after]
        return _page(found, MOST_PER_PAGE)

    async def put(self, thread: Thread, runs: Sequence[StoredRun]) -> int:
        """Take in a thread of another store, and those of its runs that are not here yet."""
        updated = from_datetime(thread.updated_at)
        kept = self._threads.get(thread.key)
        if kept is None:
            kept = self._new(thread.key, thread.agent, from_datetime(thread.created_at))
            kept.updated = 0
        if updated > kept.updated:
            kept.name, kept.archived, kept.updated = thread.name, thread.archived, updated
        if thread.last_run_at:
            kept.last_run = max(kept.last_run or 0, from_datetime(thread.last_run_at))
        here = {(run.key, run.began) for run in kept.runs}
        new = [run for run in runs if (run.key, from_datetime(run.began_at)) not in here]
        for run in new:
            events = run.events if run.ended else ended([], run.events)
            began = from_datetime(run.began_at)
            kept.runs.append(
                _Run(run.key, run.run_id, run.agent, began, events=list(events), has_ended=True)
            )
            kept.known.update(names_in(events))
        kept.runs.sort(key=lambda run: run.began)
        return len(new)

    async def aclose(self) -> None:
        """Do nothing: what is kept here may be read on."""

    def _new(self, key: ThreadKey, agent: str, now: int) -> "_Thread":
        idle = [thread for thread in self._threads.values() if not thread.is_running()]
        if len(self._threads) >= self.max_threads and idle:
            del self._threads[min(idle, key=_Thread.place).key]
        self._count += 1
        thread = self._threads[key] = _Thread(key, self._count, agent, now)
        return thread


@dataclass(slots=True)
class _Run:
    key: str
    run_id: str
    agent: str
    began: int
    head: Sequence[Event] = ()
    events: list[Event] = field(default_factory=list[Event])
    has_ended: bool = False

    def shown(self) -> StoredRun:
        return StoredRun(
            key=self.key,
            run_id=self.run_id,
            agent=self.agent,
            began_at=to_datetime(self.began),
            ended=self.has_ended,
            events=list(self.events if self.has_ended else with_head(self.head, self.events)),
        )


class _Thread:
    def __init__(self, key: ThreadKey, number: int, agent: str, now: int) -> None:
        self.key = key
        self.number = number
        self.agent = agent
        self.name: str | None = None
        self.archived = False
        self.created = self.updated = now
        self.last_run: int | None = None
        self.runs: list[_Run] = []
        self.known: set[str] = set()

    def is_running(self) -> bool:
        return any(not run.has_ended for run in reversed(self.runs))

    def place(self) -> Place:
        return Place(self.updated, self.number)

    def shown(self) -> Thread:
        return Thread(
            key=self.key,
            agent=self.agent,
            name=self.name,
            archived=self.archived,
            created_at=to_datetime(self.created),
            updated_at=to_datetime(self.updated),
            last_run_at=None if self.last_run is None else to_datetime(self.last_run),
        )


def _page(threads: Sequence[_Thread], size: int) -> ThreadPage:
    more = len(threads) > size
    page = threads[:size]
    return ThreadPage(
        threads=[thread.shown() for thread in page],
        next_cursor=page[-1].place().cursor() if more else None,
    )
