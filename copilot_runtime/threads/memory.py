"""A thread store in the memory of this process, for tests and for servers without a disk."""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from heapq import nlargest
from operator import attrgetter
from secrets import token_hex
from typing import Any

from copilot_runtime.api.events import Event, RunStarted
from copilot_runtime.api.messages import Message
from copilot_runtime.api.run_input import Checkpoint, CheckpointKey, RunInput
from copilot_runtime.threads.checkpoints import MemoryCheckpoints
from copilot_runtime.threads.codec import encode
from copilot_runtime.threads.compact import compact, prepend_head
from copilot_runtime.threads.log_ids import (
    REMEMBERED_S,
    LogStatus,
    build_deletion_error,
    build_duplicate_error,
    collect_generated_names,
    collect_names,
    digest_request,
    index_by_name,
    is_duplicate,
)
from copilot_runtime.threads.outbox import Outbox
from copilot_runtime.threads.rows import (
    Clock,
    build_page,
    build_run,
    build_thread,
    from_datetime,
    select_new_runs,
)
from copilot_runtime.threads.store import (
    Segment,
    StoredRun,
    Thread,
    ThreadKey,
    ThreadPage,
    ThreadQuery,
    ThreadStore,
)
from copilot_runtime.threads.validation import (
    MOST_PER_PAGE,
    Place,
    busy,
    check_text,
    get_thread_key,
    log_id_in_use,
    page_size,
    parse_cursor,
)


class MemoryThreads(ThreadStore):
    """Stores up to `max_threads` threads; the least recently used idle one is evicted."""

    def __init__(self, *, max_threads: int = 1000) -> None:
        self.max_threads = max_threads
        self._clock = Clock()
        self._count = 0
        self._threads: dict[ThreadKey, _Thread] = {}
        """In the order of use, least recent first."""
        self._latest: defaultdict[str, _Latest] = defaultdict(_Latest)
        """The threads of each owner."""
        self._running: dict[str, tuple[_Thread, _Run]] = {}
        self._deleted: dict[bytes, int] = {}
        """Digests of the latest requests of deleted threads, with the time of deletion."""
        self._secret = token_hex(32)
        self._checkpoints = MemoryCheckpoints()
        self.outbox = Outbox()

    async def open(self) -> None:
        """Do nothing: a new process has no threads."""

    async def secret(self) -> str:
        """Return a secret that is created and lost together with the threads."""
        return self._secret

    async def begin(self, run: RunInput) -> Sequence[Message]:
        """Create the log of a run. Raises `ThreadBusy`, or `Misuse` for ids that are too long."""
        key = get_thread_key(run)
        thread = self._threads.get(key)
        if thread is not None:
            if is_duplicate(run, thread.find_logs(run.run_id)):
                raise build_duplicate_error(run.run_id)
            if thread.running:
                raise busy(key)
        if run.log_id in self._running:
            raise log_id_in_use(run.log_id)
        if self._deleted and digest_request(*key, run.run_id, run.log_id) in self._deleted:
            raise build_deletion_error()
        now = self._clock.now()
        if thread is None:
            thread = self._new(key, run.agent_name, now)
        else:
            self._touch(thread, now)
        new = {
            name: message
            for name, message in index_by_name(run.messages).items()
            if name not in thread.message_ids
        }
        thread.message_ids.update(new)
        thread.last_run = now
        messages = list(new.values())
        new_run = _Run(run.log_id, run.run_id, run.agent_name, now, messages)
        thread.runs.append(new_run)
        thread.running = new_run
        self._running[run.log_id] = (thread, new_run)
        return messages

    async def find_logs(self, key: ThreadKey, run_id: str) -> Sequence[LogStatus]:
        """Return the logs of a thread's runs with this run id, oldest first."""
        thread = self._threads.get(key)
        return thread.find_logs(run_id) if thread else []

    async def write(self, segments: Sequence[Segment]) -> None:
        """Append to logs; segments of deleted threads are ignored."""
        for segment in segments:
            if segment.log_id not in self._running:
                continue
            thread, run = self._running[segment.log_id]
            if segment.whole is None:
                run.events.extend(segment.events)
                continue
            del self._running[segment.log_id]
            run.events = compact(segment.whole)
            run.has_ended = True
            thread.running = None
            self._note_use(thread)
            thread.message_ids.update(collect_generated_names(segment.whole))

    async def list(self, query: ThreadQuery) -> ThreadPage:
        """Return a page of threads. Raises `Misuse` for an invalid cursor."""
        after = parse_cursor(query.cursor)
        size = page_size(query.limit)
        found: list[_Thread] = []
        for thread in self._latest.get(query.owner, _Latest()).before(after):
            if query.agent in (None, thread.agent) and (query.archived or not thread.archived):
                found.append(thread)
                if len(found) > size:
                    break
        return build_page([thread.row() for thread in found], size)

    async def get(self, key: ThreadKey) -> Thread | None:
        thread = self._threads.get(key)
        return thread and build_thread(thread.row())

    async def runs(self, key: ThreadKey) -> Sequence[StoredRun]:
        """Return the runs of a thread, oldest first."""
        thread = self._threads.get(key)
        return [run.to_stored_run(key.id) for run in thread.runs] if thread else []

    async def update(
        self, key: ThreadKey, *, name: str | None = None, archived: bool | None = None
    ) -> Thread | None:
        """Update the arguments that are not None; an empty name removes the name."""
        check_text("name", name or "")
        thread = self._threads.get(key)
        if thread is None:
            return None
        if name is not None:
            thread.name = name or None
        if archived is not None:
            thread.archived = archived
        self._touch(thread, self._clock.now())
        self._note_use(thread)
        return build_thread(thread.row())

    async def delete(self, key: ThreadKey) -> bool:
        """Delete a thread; its active run is no longer stored. Returns `True` if it existed."""
        thread = self._threads.get(key)
        if thread is None:
            return False
        self._remove(thread)
        if thread.running:
            del self._running[thread.running.log_id]
        self._remember(key, thread)
        return True

    def _remember(self, key: ThreadKey, thread: "_Thread") -> None:
        """Remember the latest requests of a deleted thread for a while, in case of repetitions."""
        now = self._clock.now()
        before = now - REMEMBERED_S * 1_000_000
        for run in thread.runs:
            request = digest_request(*key, run.run_id, run.log_id)
            if request is not None and run.began > before:
                self._deleted[request] = now
        while self._deleted and next(iter(self._deleted.values())) < before:
            del self._deleted[next(iter(self._deleted))]

    async def expire(self, before: datetime) -> int:
        """Delete idle threads not updated since `before`. Returns the number of deleted threads."""
        limit = from_datetime(before)
        old = [
            thread
            for thread in self._threads.values()
            if thread.place.updated < limit and not thread.running
        ]
        for thread in old:
            self._remove(thread)
        return len(old)

    async def everyones(self, cursor: str | None = None) -> ThreadPage:
        """Return a page of the threads of all owners, oldest first."""
        after = parse_cursor(cursor).number if cursor else 0
        threads = sorted(self._threads.values(), key=lambda thread: thread.number)
        rows = [thread.row() for thread in threads if thread.number > after]
        return build_page(rows, MOST_PER_PAGE)

    async def list_latest(
        self, limit: int, *, agent: str | None = None, archived: bool = False
    ) -> Sequence[Thread]:
        """Return at most `limit` threads of all owners, latest first."""
        threads = (
            thread
            for thread in self._threads.values()
            if agent in (None, thread.agent) and (archived or not thread.archived)
        )
        latest = nlargest(limit, threads, key=_get_place)
        return [build_thread(thread.row()) for thread in latest]

    async def count_bytes(self, owner: str, *, is_prefix: bool = False) -> int:
        """Return the bytes that the ended runs of an owner would take in a file."""
        threads = [
            thread
            for key, thread in self._threads.items()
            if key.owner == owner or (is_prefix and key.owner.startswith(owner))
        ]
        return sum(run.count_bytes() for thread in threads for run in thread.runs)

    async def put(self, thread: Thread, runs: Sequence[StoredRun]) -> int:
        """Import a thread from another store, with those of its runs that are not stored yet."""
        updated = from_datetime(thread.updated_at)
        local = self._threads.get(thread.key)
        if local is None:
            local = self._new(thread.key, thread.agent, from_datetime(thread.created_at))
            self._touch(local, 0)
        if updated > local.place.updated:
            local.name, local.archived = thread.name, thread.archived
            self._touch(local, updated)
        if thread.last_run_at:
            local.last_run = max(local.last_run or 0, from_datetime(thread.last_run_at))
        here = {(run.log_id, run.began) for run in local.runs}
        new = [*select_new_runs(runs, here)]
        for run, began, log in new:
            local.runs.append(
                _Run(run.log_id, run.run_id, run.agent, began, events=list(log), has_ended=True)
            )
            local.message_ids.update(collect_names(log))
        local.runs.sort(key=lambda run: run.began)
        return len(new)

    async def assign(self, keys: Sequence[ThreadKey], owner: str) -> Sequence[ThreadKey]:
        """Assign threads to another owner. Raises `ThreadBusy`, or `Misuse` for a bad owner."""
        check_text("owner", owner)
        found = [thread for key in keys if (thread := self._threads.get(key)) is not None]
        if running := next((thread for thread in found if thread.running), None):
            raise busy(running.key)
        moves: list[ThreadKey] = []
        for thread in found:
            key, new_key = thread.key, ThreadKey(owner, thread.key.id)
            if new_key not in self._threads:
                self._remove(thread)
                thread.key = new_key
                self._threads[new_key] = thread
                self._latest[owner].add(thread)
                moves.append(key)
        return moves

    async def save_checkpoint(self, key: CheckpointKey, data: bytes) -> bool:
        """Store the checkpoint of an interrupted run."""
        return await self._checkpoints.save_checkpoint(key, data)

    async def find_checkpoint(self, key: CheckpointKey) -> Checkpoint | None:
        """Return the checkpoint of a key, or None."""
        return await self._checkpoints.find_checkpoint(key)

    async def delete_checkpoint(self, key: CheckpointKey, version: int | None = None) -> bool:
        """Delete the checkpoint of a key if it still has that version."""
        return await self._checkpoints.delete_checkpoint(key, version)

    async def aclose(self) -> None:
        """Do nothing: the threads remain readable after the shutdown."""

    def _new(self, key: ThreadKey, agent: str, now: int) -> "_Thread":
        if len(self._threads) >= self.max_threads:
            idle = (thread for thread in self._threads.values() if not thread.running)
            if (oldest := next(idle, None)) is not None:
                self._remove(oldest)
        self._count += 1
        thread = self._threads[key] = _Thread(key, self._count, agent, now)
        self._latest[key.owner].add(thread)
        return thread

    def _remove(self, thread: "_Thread") -> None:
        owner = thread.key.owner
        del self._threads[thread.key]
        self._checkpoints.forget_thread(*thread.key)
        self._latest[owner].remove(thread)
        if not self._latest[owner]:
            del self._latest[owner]

    def _note_use(self, thread: "_Thread") -> None:
        self._threads[thread.key] = self._threads.pop(thread.key)

    def _touch(self, thread: "_Thread", now: int) -> None:
        """Set the time of the last update, which determines the order of lists."""
        latest = self._latest[thread.key.owner]
        latest.remove(thread)
        thread.place = Place(now, thread.number)
        latest.add(thread)


@dataclass(slots=True)
class _Run:
    log_id: str
    run_id: str
    agent: str
    began: int
    messages: Sequence[Message] = ()
    """The messages that the request added to the thread."""
    events: list[Event] = field(default_factory=list[Event])
    has_ended: bool = False
    _bytes: int = 0

    def count_bytes(self) -> int:
        """Return the bytes of an ended run, which are counted once."""
        if self.has_ended and not self._bytes:
            self._bytes = len(encode(self.events))
        return self._bytes

    def to_stored_run(self, thread_id: str) -> StoredRun:
        events = self.events
        if not self.has_ended:
            head = RunStarted(run_id=self.run_id, thread_id=thread_id, messages=self.messages or ())
            events = prepend_head([head], events)
        row = (self.log_id, self.run_id, self.agent, self.began, self.has_ended or None)
        return build_run(row, list(events))


class _Thread:
    def __init__(self, key: ThreadKey, number: int, agent: str, now: int) -> None:
        self.key = key
        self.number = number
        self.agent = agent
        self.name: str | None = None
        self.archived = False
        self.created = now
        self.place = Place(now, number)
        """The position in lists, which contains the time of the last update."""
        self.last_run: int | None = None
        self.runs: list[_Run] = []
        self.running: _Run | None = None
        self.message_ids: set[str] = set()

    def find_logs(self, run_id: str) -> Sequence[LogStatus]:
        return [LogStatus(run.log_id, run.has_ended) for run in self.runs if run.run_id == run_id]

    def row(self) -> Sequence[Any]:
        """Return the row of a thread in the order of `COLUMNS`."""
        times = (self.created, self.place.updated, self.last_run)
        running = self.running and self.running.began
        return (self.number, *self.key, self.agent, self.name, self.archived, *times, running)


_get_place = attrgetter("place")


class _Latest:
    """Threads of one owner, sorted by position: finding one is a binary search."""

    def __init__(self) -> None:
        self._threads: list[_Thread] = []

    def __len__(self) -> int:
        return len(self._threads)

    def add(self, thread: _Thread) -> None:
        insort(self._threads, thread, key=_get_place)

    def remove(self, thread: _Thread) -> None:
        del self._threads[self._find(thread.place)]

    def before(self, place: Place) -> Iterator[_Thread]:
        """Yield the threads before a position, latest first."""
        for index in range(self._find(place) - 1, -1, -1):
            yield self._threads[index]

    def _find(self, place: Place) -> int:
        return bisect_left(self._threads, place, key=_get_place)
