"""The interface of a store of threads, and its values.

A thread is one conversation: a sequence of runs, each a log of events. It belongs to its owner:
the same id means another thread for somebody else, so nobody can find out whose ids are taken.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from heapq import nlargest
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Literal, NamedTuple

from copilot_runtime.api.events import Event
from copilot_runtime.api.messages import Message
from copilot_runtime.api.run_input import Checkpoint, CheckpointKey, RunInput
from copilot_runtime.threads.log_ids import LogStatus

ThreadsState = Literal["reachable", "read-only", "unreachable"]
"""The availability of the thread store."""


class ThreadKey(NamedTuple):
    """Whose thread it is, and which. The owner is empty where nobody signs in."""

    owner: str
    id: str

    @classmethod
    def of(cls, user: str | None, id: str) -> "ThreadKey":
        """Return the key of a thread of a user, or of nobody."""
        return cls(user or "", id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Thread:
    """What a list of threads shows. Times are in UTC; a new run and a new name are an update."""

    key: ThreadKey
    agent: str
    name: str | None
    archived: bool
    created_at: datetime
    updated_at: datetime
    last_run_at: datetime | None
    is_running: bool = False
    """Whether a run is active, in any process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadQuery:
    """Which threads to list: the latest first, a page at a time. `agent` of None means all."""

    owner: str
    agent: str | None = None
    archived: bool = False
    """Whether archived ones are listed too."""
    limit: int = 50
    cursor: str | None = None
    """The `next_cursor` of the page before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadPage:
    threads: Sequence[Thread]
    next_cursor: str | None


@dataclass(frozen=True, slots=True, weakref_slot=True, kw_only=True)
class StoredRun:
    """A run of a thread: shortened by `compact` if it has ended, else all that was written."""

    log_id: str
    run_id: str
    agent: str
    began_at: datetime
    ended: bool
    events: Sequence[Event]


class Segment(NamedTuple):
    """What is to be added to the log of one run.

    With the last event of a run comes its `whole` log, which the store keeps shortened, in
    place of what it has of that run.
    """

    log_id: str
    events: Sequence[Event]
    whole: Sequence[Event] | None = None


class RunningRun(NamedTuple):
    """A run that has not ended, and the address of the server process that has it."""

    log_id: str
    run_id: str
    server: str


class DeadRun(NamedTuple):
    """A run whose process died, and that another one has ended."""

    thread: ThreadKey
    run_id: str
    agent: str


class ThreadStore:
    """Stores threads, their runs and the events of these.

    Every method raises `StoreFailed` when the storage cannot be reached or refuses. What `begin`
    and `write` have returned from survives the death of the process. Methods are called at the
    same time for different threads, and one at a time for each run; a call that is cancelled has
    done all of its work or nothing.
    """

    commit_interval = 0.01
    """Seconds between two calls of `write` at least, in which events are gathered: what a shorter
    time saves readers, it costs in CPU for each call."""
    shared_file: Path | None = None
    """The file that processes of one machine may share."""
    shared_url: str = ""
    """The database that processes of any machines may share."""
    on_renewal: Callable[[], None] | None = None
    """Called when this process has another address, because the others took it for dead."""
    on_dead_run: Callable[[DeadRun], None] | None = None
    """Called with each run of a dead process that this process has ended."""

    async def open(self) -> None:
        """Make ready, and end the runs of servers that died. May be called twice."""

    async def check(self) -> None:
        """See whether threads can be read and written now.

        Nothing is written, unless that failed last. Raises `StoreReadOnly` when they can only be
        read: the log has that from the store itself.
        """
        await self.get(ThreadKey("", "health"))

    async def secret(self) -> str:
        """Return a secret that all servers of this storage share, and always find again.

        Empty if there is none: other programs then know threads by ids that can be computed.
        """
        return ""

    async def server(self) -> str:
        """Return the address of this process, which others that share the storage find here.

        Empty if none can share it.
        """
        return ""

    async def list_other_servers(self) -> Sequence[str]:
        """Return the addresses of the other processes that use the storage, or did just now."""
        return ()

    async def find_running(self, key: ThreadKey) -> RunningRun | None:  # noqa: ARG002
        """Return the run of a thread that has not ended, in whatever process, or None."""
        return None

    async def find_logs(self, key: ThreadKey, run_id: str) -> Sequence[LogStatus]:
        """Return the logs of the runs of a thread that have an id, the oldest first.

        A run that answers an interrupt may have the id of the one that asked.
        """
        runs = await self.runs(key)
        return [LogStatus(run.log_id, run.ended) for run in runs if run.run_id == run_id]

    async def is_alive(self, server: str) -> bool:  # noqa: ARG002
        """Return whether a process with such an address runs."""
        return False

    async def end_dead_run(self, key: ThreadKey, log_id: str) -> bool:  # noqa: ARG002
        """End a run whose process died. Returns whether there was such a run."""
        return False

    async def begin(self, run: RunInput) -> Sequence[Message]:
        """Begin the log of a run, `run.log_id`, and its thread if it is new.

        Returns those messages of the request that its thread does not have yet: neither did an
        earlier request bring them, nor an earlier run make them. Raises `ThreadBusy` when another
        run of this thread has not ended, `DuplicateRun` when this one has begun before, and
        `Misuse` for ids that cannot be stored.
        """
        raise NotImplementedError

    async def write(self, segments: Sequence[Segment]) -> None:
        """Add to the logs of any number of runs, all or nothing.

        The events of one run come in their order; the last segment of a run has its `whole` log.
        A run whose thread was deleted is skipped.
        """
        raise NotImplementedError

    async def check_run(self, log_id: str) -> None:
        """Raise `Interrupted` if others have ended a run of this server, which lives.

        They never do where servers keep their runs until their processes end.
        """

    async def list(self, query: ThreadQuery) -> ThreadPage:
        """Return a page of threads. Raises `Misuse` for an invalid cursor."""
        raise NotImplementedError

    async def get(self, key: ThreadKey) -> Thread | None:
        """Return a thread, or None if it does not exist."""
        raise NotImplementedError

    async def runs(self, key: ThreadKey) -> Sequence[StoredRun]:
        """Return the runs of a thread, the oldest first; none for a thread that is not there."""
        raise NotImplementedError

    async def ended_runs(self, key: ThreadKey) -> Sequence[StoredRun]:
        """Return the runs of a thread as `runs` does; one that goes on may have no events.

        For those who have its log: to collect what is stored of a run that goes on may take long.
        """
        return await self.runs(key)

    async def update(
        self, key: ThreadKey, *, name: str | None = None, archived: bool | None = None
    ) -> Thread | None:
        """Update the arguments that are not None; return the thread, or None."""
        raise NotImplementedError

    async def delete(self, key: ThreadKey) -> bool:
        """Delete a thread and all its runs. Returns whether there was one."""
        raise NotImplementedError

    async def expire(self, before: datetime) -> int:
        """Delete threads not updated since `before`, except those with a run. Returns how many."""
        raise NotImplementedError

    async def everyones(self, cursor: str | None = None) -> ThreadPage:
        """Return a page of the threads of all owners, the oldest first: for the operator only."""
        raise NotImplementedError

    async def list_latest(
        self, limit: int, *, agent: str | None = None, archived: bool = False
    ) -> Sequence[Thread]:
        """Return at most `limit` threads of all owners, the latest first: for the operator only.

        An `agent` of None means all; with `archived`, archived ones are listed too.
        """
        latest: Sequence[Thread] = ()
        cursor: str | None = None
        while True:  # the stores of this package search for them instead
            page = await self.everyones(cursor)
            threads = (
                thread
                for thread in page.threads
                if agent in (None, thread.agent) and (archived or not thread.archived)
            )
            latest = nlargest(limit, chain(latest, threads), key=attrgetter("updated_at"))
            cursor = page.next_cursor
            if cursor is None:
                return latest

    async def put(self, thread: Thread, runs: Sequence[StoredRun]) -> int:
        """Import a thread of another store, with its runs that are not stored yet.

        Returns how many those were. A run that had not ended is ended. Of two names, and of two
        values of `archived`, the one of the later update counts.
        """
        raise NotImplementedError

    async def assign(self, keys: Sequence[ThreadKey], owner: str) -> Sequence[ThreadKey]:
        """Give threads to another owner, all or nothing: for the operator only.

        Returns which are given. Those that are not there are skipped, and so are those whose id a
        thread of that owner has. Raises `ThreadBusy` if one of them is being answered.
        """
        raise NotImplementedError

    async def save_checkpoint(self, key: CheckpointKey, data: bytes) -> bool:  # noqa: ARG002
        """Store the checkpoint of an interrupted run.

        It replaces what has the same key, and is deleted with its thread. Returns False if this
        store has no place for it; then only the process in which the run began can go on with it.
        """
        return False

    async def find_checkpoint(self, key: CheckpointKey) -> Checkpoint | None:  # noqa: ARG002
        """Return the checkpoint of a key, or None."""
        return None

    async def delete_checkpoint(self, key: CheckpointKey, version: int | None = None) -> bool:
        """Delete the checkpoint of a key if it still has that version.

        Returns whether this call did: of several processes, one gets True.
        """
        del key, version
        return False

    async def aclose(self) -> None:
        """Release the resources of the store at shutdown."""
