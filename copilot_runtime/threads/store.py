"""The interface of a thread store, and its values.

A thread is one conversation: a sequence of runs, each a log of events. It belongs to its owner:
two owners may each have a thread with the same id, so a client cannot probe for ids in use.
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
from copilot_runtime.threads.outbox import Outbox

ThreadsState = Literal["reachable", "read-only", "unreachable"]
"""The availability of the thread store."""


class ThreadKey(NamedTuple):
    """The key of a thread: its owner and its id. The owner is empty for anonymous callers."""

    owner: str
    id: str

    @classmethod
    def of(cls, user: str | None, id: str) -> "ThreadKey":
        """Return the key of a user's thread; a `user` of `None` is an anonymous caller."""
        return cls(user or "", id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Thread:
    """The metadata of a thread. Times are in UTC; `updated_at` changes with each run and rename."""

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
    """A query for threads, latest first, one page at a time. An `agent` of `None` means all."""

    owner: str
    agent: str | None = None
    archived: bool = False
    """Whether archived threads are included."""
    limit: int = 50
    cursor: str | None = None
    """The `next_cursor` of the previous page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadPage:
    threads: Sequence[Thread]
    next_cursor: str | None


@dataclass(frozen=True, slots=True, weakref_slot=True, kw_only=True)
class StoredRun:
    """A run of a thread: compacted by `compact` if it has ended, else all events written so far."""

    log_id: str
    run_id: str
    agent: str
    began_at: datetime
    ended: bool
    events: Sequence[Event]


class Segment(NamedTuple):
    """Events to append to the log of one run.

    The segment with a run's last event also has its `whole` log. The store keeps that, compacted,
    in place of the events that it has stored so far.
    """

    log_id: str
    events: Sequence[Event]
    whole: Sequence[Event] | None = None


class RunningRun(NamedTuple):
    """A run that has not ended, and the address of the server process that executes it."""

    log_id: str
    run_id: str
    server: str


class DeadRun(NamedTuple):
    """A run whose process died, and which another process has ended."""

    thread: ThreadKey
    run_id: str
    agent: str


class ThreadStore:
    """Stores threads, their runs, and the events of the runs.

    Every method raises `StoreFailed` if the storage is unreachable or rejects the operation. Data
    is durable once `begin` or `write` returns: it survives a crash of the process. Methods are
    called concurrently for different threads, and sequentially for each run. A cancelled call has
    been executed completely or not at all.
    """

    commit_interval = 0.01
    """Number of seconds between two calls of `write` under load; events are batched in between.
    A shorter interval delivers events to readers sooner, but each call costs CPU time."""
    shared_file: Path | None = None
    """The file that processes of one machine may share."""
    shared_url: str = ""
    """The database that processes of any machines may share."""
    on_renewal: Callable[[], None] | None = None
    """Called when this process gets a new address, because the others declared it dead."""
    on_dead_run: Callable[[DeadRun], None] | None = None
    """Called with each run of a dead process that this process has ended."""
    outbox: Outbox | None = None
    """Messages to other systems that survive a restart as the threads do; `None` if the store has
    no place for them."""

    async def open(self) -> None:
        """Open the storage, and end the runs of dead servers. May be called twice."""

    async def check(self) -> None:
        """Check whether threads can be read and written.

        Nothing is written, unless the last write failed. Raises `StoreReadOnly` if threads can only
        be read; the store itself logs that.
        """
        await self.get(ThreadKey("", "health"))

    async def secret(self) -> str:
        """Return the persistent secret that all servers of this storage share.

        Empty if there is none: thread ids for remote agents are then derived by a plain hash.
        """
        return ""

    async def server(self) -> str:
        """Return the address of this process, by which others that share the storage know it.

        Empty if the storage cannot be shared.
        """
        return ""

    async def list_other_servers(self) -> Sequence[str]:
        """Return the addresses of other processes that use the storage, or used it a moment ago."""
        return ()

    async def find_running(self, key: ThreadKey) -> RunningRun | None:  # noqa: ARG002
        """Return the active run of a thread, in whichever process it is, or `None`."""
        return None

    async def find_logs(self, key: ThreadKey, run_id: str) -> Sequence[LogStatus]:
        """Return the logs of a thread's runs with this run id, oldest first.

        A run that answers an interrupt may have the same id as the run that raised it.
        """
        runs = await self.runs(key)
        return [LogStatus(run.log_id, run.ended) for run in runs if run.run_id == run_id]

    async def is_alive(self, server: str) -> bool:  # noqa: ARG002
        """Return whether the process with this address is alive."""
        return False

    async def end_dead_run(self, key: ThreadKey, log_id: str) -> bool:  # noqa: ARG002
        """End a run whose process died. Returns `True` if there was such a run."""
        return False

    async def begin(self, run: RunInput) -> Sequence[Message]:
        """Create the log `run.log_id`, and the thread if it is new.

        Returns the messages of the request that are new to the thread: no earlier request sent
        them, and no earlier run generated them. Raises `ThreadBusy` if another run of this thread
        is active, `DuplicateRun` if this run has already begun, and `Misuse` for ids that cannot
        be stored.
        """
        raise NotImplementedError

    async def write(self, segments: Sequence[Segment]) -> None:
        """Append to the logs of any number of runs, atomically.

        The events of a run are in order; the last segment of a run has its `whole` log. Runs of
        deleted threads are skipped.
        """
        raise NotImplementedError

    def submit(
        self,
        segments: Sequence[Segment],  # noqa: ARG002
        done: Callable[[Exception | None], None],  # noqa: ARG002
    ) -> bool:
        """Begin to `write` segments without a task, if the store is able to.

        Returns `False` if `write` has to do it. Otherwise `done` is called by the event loop with
        the error, or with `None` once the segments are durable.
        """
        return False

    async def check_run(self, log_id: str) -> None:
        """Raise `Interrupted` if other servers have ended a run of this server.

        The default never raises: it is for stores whose runs belong to their server until it exits.
        """

    async def list(self, query: ThreadQuery) -> ThreadPage:
        """Return a page of threads. Raises `Misuse` for an invalid cursor."""
        raise NotImplementedError

    async def get(self, key: ThreadKey) -> Thread | None:
        """Return a thread, or None if it does not exist."""
        raise NotImplementedError

    async def runs(self, key: ThreadKey) -> Sequence[StoredRun]:
        """Return the runs of a thread, oldest first; an empty list if there is no such thread."""
        raise NotImplementedError

    async def ended_runs(self, key: ThreadKey) -> Sequence[StoredRun]:
        """Return the runs of a thread like `runs`, but perhaps without the events of active runs.

        For callers that already have those logs: reading the events of an active run may be slow.
        """
        return await self.runs(key)

    async def update(
        self, key: ThreadKey, *, name: str | None = None, archived: bool | None = None
    ) -> Thread | None:
        """Update the arguments that are not None; return the thread, or None."""
        raise NotImplementedError

    async def delete(self, key: ThreadKey) -> bool:
        """Delete a thread and all its runs. Returns `True` if it existed."""
        raise NotImplementedError

    async def expire(self, before: datetime) -> int:
        """Delete idle threads not updated since `before`. Returns the number of deleted threads."""
        raise NotImplementedError

    async def everyones(self, cursor: str | None = None) -> ThreadPage:
        """Return a page of the threads of all owners, oldest first: for the operator only."""
        raise NotImplementedError

    async def list_latest(
        self, limit: int, *, agent: str | None = None, archived: bool = False
    ) -> Sequence[Thread]:
        """Return at most `limit` threads of all owners, latest first: for the operator only.

        An `agent` of `None` means all; with `archived`, archived threads are included.
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

    async def count_bytes(self, owner: str, *, is_prefix: bool = False) -> int:  # noqa: ARG002
        """Return the bytes that the ended runs of an owner take, or of all with a common prefix.

        The default is 0, for stores that do not count: their owners have no limit of storage.
        """
        return 0

    async def put(self, thread: Thread, runs: Sequence[StoredRun]) -> int:
        """Import a thread from another store, with those of its runs that are not stored yet.

        Returns the number of imported runs. A run that has not ended is ended. If the thread
        already exists, name and archived flag are taken from the copy that was updated last.
        """
        raise NotImplementedError

    async def assign(self, keys: Sequence[ThreadKey], owner: str) -> Sequence[ThreadKey]:
        """Assign threads to another owner, atomically: for the operator only.

        Returns the keys of the assigned threads. Threads that do not exist are skipped, and so are
        those whose id the new owner already uses. Raises `ThreadBusy` if one has an active run.
        """
        raise NotImplementedError

    async def save_checkpoint(self, key: CheckpointKey, data: bytes) -> bool:  # noqa: ARG002
        """Store the checkpoint of an interrupted run.

        It replaces an existing checkpoint of this key, and is deleted with its thread. Returns
        `False` if this store does not support checkpoints: only the run's process can resume it.
        """
        return False

    async def find_checkpoint(self, key: CheckpointKey) -> Checkpoint | None:  # noqa: ARG002
        """Return the checkpoint of a key, or None."""
        return None

    async def delete_checkpoint(self, key: CheckpointKey, version: int | None = None) -> bool:
        """Delete the checkpoint of a key if it still has that version.

        Returns `True` if this call deleted it: of several processes, exactly one gets `True`.
        """
        del key, version
        return False

    async def aclose(self) -> None:
        """Release the resources of the store at shutdown."""
