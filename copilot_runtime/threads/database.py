"""The common base of the SQLite and PostgreSQL thread stores."""

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from copilot_runtime.api.messages import Message
from copilot_runtime.api.run_input import Checkpoint, CheckpointKey, RunInput
from copilot_runtime.base.errors import Interrupted
from copilot_runtime.threads import transactions
from copilot_runtime.threads.log_ids import LogStatus
from copilot_runtime.threads.outbox import DatabaseOutbox
from copilot_runtime.threads.rows import (
    COLUMNS,
    Clock,
    build_page,
    build_thread,
    from_datetime,
)
from copilot_runtime.threads.store import (
    DeadRun,
    RunningRun,
    Segment,
    StoredRun,
    Thread,
    ThreadKey,
    ThreadPage,
    ThreadQuery,
    ThreadStore,
)
from copilot_runtime.threads.transactions import Place, ServerLost, Transaction
from copilot_runtime.threads.validation import (
    MOST_PER_PAGE,
    check_text,
    get_thread_key,
    is_text,
    is_valid_key,
    log_id_in_use,
    page_size,
    parse_cursor,
)

T = TypeVar("T")

Work = Callable[[Transaction], Coroutine[Any, Any, T]]
"""The body of one transaction."""


class OpenDatabase(Protocol):
    """An open database."""

    @property
    def server(self) -> Any:
        """The id of this server."""
        ...

    async def do(
        self, work: Work[T], *, reading: bool = False, is_one_statement: bool = False
    ) -> T:
        """Execute `work` in one transaction; with `reading`, in a consistent read-only snapshot.

        Work that `is_one_statement` is cheaper.
        """
        ...

    async def close(self) -> None:
        """Finish pending work, and close the database."""
        ...


Database = TypeVar("Database", bound=OpenDatabase)

logger = logging.getLogger("copilot_runtime.threads")


class OpenRun(NamedTuple):
    """An active run of this server: its thread, and its database key."""

    key: ThreadKey
    place: Place
    server: Any
    """The id of this server when the run started."""


class DatabaseThreads(ThreadStore, Generic[Database]):
    """A thread store in a database, which is opened on first use."""

    def __init__(self) -> None:
        self._clock = Clock()
        self._opening = asyncio.Lock()
        self._database: Database | None = None
        self._running: dict[str, OpenRun] = {}
        """The active runs of this server, by `log_id`."""
        self._undoing: set[asyncio.Task[None]] = set()
        self.outbox = DatabaseOutbox(self._do)

    async def open(self) -> None:
        """Open the database, and end the runs of dead servers.

        Every other method opens it if necessary. Raises `StoreFailed`, `MissingPackage`, or
        `ConfigurationFailed` if it is not a database of threads.
        """
        await self._connect()

    async def secret(self) -> str:
        """Return the secret of the database; empty if its threads are older than the secret."""
        rows = await self._fetch("SELECT value FROM copilot_secret")
        return rows[0][0] if rows else ""

    async def server(self) -> str:
        """Return the address of this process."""
        return str((await self._connect()).server)

    async def list_other_servers(self) -> Sequence[str]:
        """Return the addresses of other processes that use the database, or did a moment ago."""
        return await self._read(lambda db: db.list_other_servers())

    async def find_running(self, key: ThreadKey) -> RunningRun | None:
        """Return the active run of a thread, in whichever process it is, or `None`."""
        if not is_valid_key(key):
            return None
        return await self._read(partial(transactions.find_running, key=key))

    async def find_logs(self, key: ThreadKey, run_id: str) -> Sequence[LogStatus]:
        """Return the logs of a thread's runs with this run id, oldest first."""
        if not is_valid_key(key) or not is_text(run_id):
            return []
        return await self._do(partial(transactions.find_logs, key=key, run_id=run_id), reading=True)

    async def is_alive(self, server: str) -> bool:
        """Return whether the process with this address is alive."""
        try:
            return await self._do(lambda db: db.is_alive(db.parse_server(server)))
        except ValueError:
            return False

    async def end_dead_run(self, key: ThreadKey, log_id: str) -> bool:
        """End a run whose process died. Returns `True` if there was such a run."""
        now = self._clock.now()
        dead = await self._do(partial(transactions.end_dead_run, key=key, log_id=log_id, now=now))
        self._report_dead_runs(dead)
        return bool(dead)

    async def begin(self, run: RunInput) -> Sequence[Message]:
        """Create the log of a run. Raises `ThreadBusy`, or `Misuse` for ids that are too long.

        The subclass `DuplicateRun` of `ThreadBusy` is raised if the run has already begun.
        """
        key = get_thread_key(run)
        database = self._database or await self._connect()
        now = self._clock.now()
        undo = partial(transactions.undo_begin, key=key, run=now)
        try:
            open_run, new, dead = await self._begin(database, key, run, now)
        except asyncio.CancelledError:  # the run may have been stored all the same
            task = asyncio.create_task(self._do(undo), name=f"undo:{run.log_id}")
            self._undoing.add(task)
            task.add_done_callback(self._finish_undo)
            raise
        if dead:
            self._report_dead_runs(dead)
        if run.log_id in self._running:
            await self._do(undo)
            raise log_id_in_use(run.log_id)
        self._running[run.log_id] = open_run
        return new

    async def _begin(
        self, database: Database, key: ThreadKey, run: RunInput, now: int
    ) -> tuple[OpenRun, Sequence[Message], Sequence[DeadRun]]:
        async def begin(db: Transaction) -> tuple[OpenRun, Sequence[Message], Sequence[DeadRun]]:
            thread, new, dead = await transactions.begin_run(db, key=key, run=run, now=now)
            return OpenRun(key, (thread, now), db.server), new, dead

        try:
            return await database.do(begin)
        except ServerLost:  # this server had no run, so it did not know
            return await database.do(begin)

    async def write(self, segments: Sequence[Segment]) -> None:
        """Append to logs; segments of deleted threads are ignored.

        Raises `Interrupted` for runs that other servers have ended, because they declared this
        server dead; nothing is written then.
        """
        database = self._database or await self._connect()
        server = database.server
        parts: list[tuple[Place, Segment]] = []
        for segment in segments:
            run = self._running.get(segment.log_id)
            if run is None:
                continue
            if run.server != server:
                raise self._lose_runs(segments)
            parts.append((run.place, segment))
        if not parts:
            return
        try:
            await self._write(parts)
        except ServerLost:
            if any(segment.log_id in self._running for _, segment in parts):
                raise self._lose_runs(segments) from None
        for _, segment in parts:
            if segment.whole is not None:
                self._running.pop(segment.log_id, None)

    def _lose_runs(self, segments: Sequence[Segment]) -> Interrupted:
        """Return the error for segments of runs that no longer belong to this server.

        A run is only forgotten if its end is the single rejected segment. Several segments are
        retried one by one, and a forgotten run would look like one of a deleted thread.
        """
        if len(segments) == 1 and segments[0].whole is not None:
            self._running.pop(segments[0].log_id, None)
        return Interrupted(
            "Another server has ended this answer, because this one was silent for too long.",
            hint="This server was declared dead: it hung, or lost its database connection.",
        )

    async def list(self, query: ThreadQuery) -> ThreadPage:
        """Return a page of threads. Raises `Misuse` for an invalid cursor."""
        after, size = parse_cursor(query.cursor), page_size(query.limit)
        if not all(map(is_text, (query.owner, query.agent or ""))):
            return ThreadPage(threads=[], next_cursor=None)  # no thread has such a name
        rows = await self._fetch(
            f"SELECT {COLUMNS} FROM copilot_threads"  # noqa: S608  # ours
            " WHERE owner = ? AND (CAST(? AS text) IS NULL OR agent = ?)"
            " AND (? OR NOT archived) AND (updated, id) < (?, ?)"
            " ORDER BY updated DESC, id DESC LIMIT ?",
            *(query.owner, query.agent, query.agent, query.archived, *after, size + 1),
        )
        return build_page(rows, size)

    async def get(self, key: ThreadKey) -> Thread | None:
        """Return a thread, or None if it does not exist."""
        if not is_valid_key(key):
            return None
        return await self._read(partial(transactions.get_thread, key=key))

    async def runs(self, key: ThreadKey) -> Sequence[StoredRun]:
        """Return the runs of a thread, oldest first. Unreadable events are skipped and logged."""
        if not is_valid_key(key):
            return []
        return await self._do(partial(transactions.read_runs, key=key), reading=True)

    async def ended_runs(self, key: ThreadKey) -> Sequence[StoredRun]:
        """Return the runs of a thread like `runs`, but active runs may lack events."""
        if not is_valid_key(key):
            return []
        read = partial(transactions.read_runs, key=key, only_ended=True)
        return await self._do(read, reading=True)

    async def update(
        self, key: ThreadKey, *, name: str | None = None, archived: bool | None = None
    ) -> Thread | None:
        """Update the arguments that are not None; an empty name removes the name."""
        check_text("name", name or "")
        if not is_valid_key(key):
            return None
        now = self._clock.now()
        update = transactions.update_thread
        return await self._do(partial(update, key=key, name=name, archived=archived, now=now))

    async def delete(self, key: ThreadKey) -> bool:
        """Delete a thread; its active run is no longer stored. Returns `True` if it existed."""
        if not is_valid_key(key):
            return False
        for log_id in [log_id for log_id, run in self._running.items() if run.key == key]:
            del self._running[log_id]
        return await self._delete(key)

    async def expire(self, before: datetime) -> int:
        """Delete idle threads not updated since `before`. Returns the number of deleted threads."""
        limit, last, count = from_datetime(before), 0, 0
        while expired := await self._do(
            partial(transactions.expire_threads, before=limit, after=last)
        ):
            last, count = expired[-1], count + len(expired)
        return count

    async def everyones(self, cursor: str | None = None) -> ThreadPage:
        """Return a page of the threads of all owners, oldest first."""
        after = parse_cursor(cursor).number if cursor else 0
        rows = await self._fetch(
            f"SELECT {COLUMNS} FROM copilot_threads WHERE id > ? ORDER BY id LIMIT ?",  # noqa: S608  # ours
            *(after, MOST_PER_PAGE + 1),
        )
        return build_page(rows, MOST_PER_PAGE)

    async def list_latest(
        self, limit: int, *, agent: str | None = None, archived: bool = False
    ) -> Sequence[Thread]:
        """Return at most `limit` threads of all owners, latest first."""
        if not is_text(agent or ""):
            return []  # no agent has such a name
        # an index by time alone would slow down each run; scanning 500,000 threads takes 0.1 s
        rows = await self._fetch(
            f"SELECT {COLUMNS} FROM copilot_threads"  # noqa: S608  # ours
            " WHERE (CAST(? AS text) IS NULL OR agent = ?) AND (? OR NOT archived)"
            " ORDER BY updated DESC, id DESC LIMIT ?",
            *(agent, agent, archived, limit),
        )
        return [build_thread(row) for row in rows]

    async def count_bytes(self, owner: str, *, is_prefix: bool = False) -> int:
        """Return the bytes that the runs of an owner take, or of all with a common prefix."""
        condition = "substr(owner, 1, ?) = ?" if is_prefix else "owner = ?"
        values = (len(owner), owner) if is_prefix else (owner,)
        statement = (
            "SELECT CAST(coalesce(sum(length(log)), 0) AS bigint) FROM copilot_threads"  # noqa: S608  # ours
            f" JOIN copilot_runs ON copilot_runs.thread = copilot_threads.id WHERE {condition}"
        )
        return (await self._fetch(statement, *values))[0][0]

    async def put(self, thread: Thread, runs: Sequence[StoredRun]) -> int:
        """Import a thread from another store, with those of its runs that are not stored yet."""
        now = self._clock.now()
        return await self._do(partial(transactions.put_thread, thread=thread, runs=runs, now=now))

    async def assign(self, keys: Sequence[ThreadKey], owner: str) -> Sequence[ThreadKey]:
        """Assign threads to another owner. Raises `ThreadBusy`, or `Misuse` for a bad owner."""
        check_text("owner", owner)
        valid = [key for key in keys if is_valid_key(key)]
        return await self._do(partial(transactions.assign_threads, keys=valid, owner=owner))

    async def save_checkpoint(self, key: CheckpointKey, data: bytes) -> bool:
        """Store the checkpoint of an interrupted run."""
        if not is_valid_key(ThreadKey(key.owner, key.thread_id)):
            return False  # no stored thread can have this key
        now = self._clock.now()
        await self._do(partial(transactions.save_checkpoint, key=key, data=data, now=now))
        return True

    async def find_checkpoint(self, key: CheckpointKey) -> Checkpoint | None:
        """Return the checkpoint of a key, or None."""
        return await self._read(partial(transactions.find_checkpoint, key=key))

    async def delete_checkpoint(self, key: CheckpointKey, version: int | None = None) -> bool:
        """Delete the checkpoint of a key if it still has that version."""
        return await self._do(partial(transactions.delete_checkpoint, key=key, version=version))

    async def aclose(self) -> None:
        """Finish pending work, and close the database. The next method call reopens it."""
        if self._undoing:
            await asyncio.wait(self._undoing)
        async with self._opening:
            database, self._database = self._database, None
            if database is not None:
                await database.close()
            self._running.clear()

    async def _connect(self) -> Database:
        if self._database is not None:
            return self._database
        async with self._opening:
            if self._database is None:
                self._database = await self._open_now()
        return self._database

    async def _do(self, work: Work[T], *, reading: bool = False) -> T:
        return await (await self._connect()).do(work, reading=reading)

    async def _read(self, work: Work[T]) -> T:
        """Execute work that reads with a single statement."""
        return await (await self._connect()).do(work, reading=True, is_one_statement=True)

    async def _fetch(self, statement: str, *values: Any) -> Sequence[Sequence[Any]]:
        return await self._read(lambda db: db.fetch(statement, *values))

    async def _delete(self, key: ThreadKey) -> bool:
        """Delete a thread. Returns `True` if it existed."""
        return await self._do(partial(transactions.delete_thread, key=key, now=self._clock.now()))

    def _finish_undo(self, task: asyncio.Task[None]) -> None:
        self._undoing.discard(task)
        if not task.cancelled() and (error := task.exception()):
            logger.error("Could not delete the run of a cancelled request: %s", error)

    async def _end_dead_runs(self, database: Database) -> None:
        """End the runs of dead servers, right after the database was opened."""
        if dead := await database.do(partial(transactions.end_dead_runs, now=self._clock.now())):
            logger.warning("Ended %s runs that a server left unfinished", len(dead))
        self._report_dead_runs(dead)

    def _report_dead_runs(self, runs: Sequence[DeadRun]) -> None:
        if self.on_dead_run is not None:
            for run in runs:
                self.on_dead_run(run)

    @abstractmethod
    async def _write(self, parts: Sequence[tuple[Place, Segment]]) -> None:
        """Add segments to the logs of runs."""

    @abstractmethod
    async def _open_now(self) -> Database:
        """Open the database, and end the runs of dead servers."""
