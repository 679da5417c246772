"""The transactions of the thread stores, one function each.

Each must be idempotent: it is retried if the connection breaks before the commit is confirmed.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from copilot_runtime.api.events import Event, RunStarted
from copilot_runtime.api.messages import Message
from copilot_runtime.api.run_input import Checkpoint, CheckpointKey, RunInput
from copilot_runtime.threads.checkpoints import LIFETIME, MOST_WITHOUT_THREAD, hash_key
from copilot_runtime.threads.codec import decode, encode
from copilot_runtime.threads.compact import compact, complete_log, prepend_head
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
from copilot_runtime.threads.rows import (
    COLUMNS,
    build_new_rows,
    build_run,
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
)
from copilot_runtime.threads.validation import busy

Place = tuple[int, int]
"""The numbers of a thread and of one of its runs. A run's number is the time it began."""

Part = tuple[Place, Sequence[Event]]
"""Events of an active run."""

_EXPIRED_AT_ONCE = 100
"""Threads deleted in one transaction: runs wait while it holds its locks."""


class EndedRun(NamedTuple):
    """The stored data of an ended run."""

    place: Place
    log: Sequence[Event]
    """The log, shortened."""
    names: Iterable[str]
    """The names of the messages that it generated."""


class Transaction(ABC):
    """One transaction: SQL statements, and operations that differ between the databases.

    Statements are in PostgreSQL's dialect, with `?` as placeholder for positional values.
    """

    table_prefix: ClassVar[str]
    """The prefix of the table names."""
    by_key: ClassVar[str]
    """The condition that selects a thread by its key."""
    server: Any
    """The id of this server, by which other servers of the database check whether it is alive."""

    @abstractmethod
    async def fetch(self, statement: str, *values: Any) -> Sequence[Sequence[Any]]:
        """Return the rows of a query."""

    @abstractmethod
    async def execute(self, statement: str, *values: Any) -> int:
        """Execute a statement. Returns the number of affected rows."""

    @abstractmethod
    async def execute_many(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        """Execute a statement for each row of values."""

    @abstractmethod
    def key_values(self, key: ThreadKey) -> Sequence[Any]:
        """Return the values for the placeholders of `by_key`."""

    @abstractmethod
    async def lock_thread(
        self, key: ThreadKey, agent: str, now: int, *, run: int | None = None
    ) -> tuple[int, int | None, Any, bool]:
        """Lock a thread; return its number, its active run, that run's server, and if it is new.

        A new thread is inserted with `run` as its active run. Other servers cannot lock the thread
        until the transaction ends.
        """

    @abstractmethod
    async def set_key(self, thread: int, key: ThreadKey) -> None:
        """Change the key of the thread with this number; no other thread may have the new key."""

    @abstractmethod
    async def add_names(self, thread: int, names: Iterable[str]) -> None:
        """Store message names of a thread."""

    @abstractmethod
    async def add_new_names(self, thread: int, names: Iterable[str]) -> set[str]:
        """Store message names of a thread, and return those that are new in it."""

    @abstractmethod
    async def write(self, now: int, parts: Sequence[Part], ended: Sequence[EndedRun]) -> None:
        """Append events to active runs and end other runs, all of this server.

        `now` and the microseconds after it are unused as keys. Raises `ServerLost`.
        """

    @abstractmethod
    async def read_events(
        self, server: Any, places: Sequence[Place]
    ) -> Mapping[Place, Sequence[Event]]:
        """Return the events appended to the logs of runs of one server."""

    @abstractmethod
    async def delete_events(self, place: Place) -> None:
        """Delete the events appended to the log of a run, if that needs no full scan."""

    async def check_server(self) -> None:  # noqa: B027
        """Raise `ServerLost` if this server was declared dead; keep it alive until the commit."""

    async def bury_server(self, server: Any) -> None:  # noqa: B027
        """Fence off a server that seems dead, so that it cannot write if it comes back."""

    @abstractmethod
    async def is_alive(self, server: Any) -> bool:
        """Return whether a server is alive. If it is not, its runs can be ended here."""

    @abstractmethod
    def parse_server(self, address: str) -> Any:
        """Return the server id in an address. Raises `ValueError`."""

    @abstractmethod
    async def list_other_servers(self) -> Sequence[str]:
        """Return the addresses of the other servers that are alive, or seem to be."""

    async def list_servers(self) -> set[Any]:
        """Return the servers that are alive or have left data behind."""
        rows = await self.fetch(
            "SELECT DISTINCT server FROM copilot_threads WHERE running IS NOT NULL"
        )
        return {server for (server,) in rows}

    @abstractmethod
    async def delete_server(self, server: Any) -> None:
        """Delete the data of a dead server, apart from its runs."""


class ServerLost(Exception):
    """This server lost its lease: other servers have ended its runs."""


async def begin_run(
    db: Transaction, *, key: ThreadKey, run: RunInput, now: int
) -> tuple[int, Sequence[Message], Sequence[DeadRun]]:
    """Add a run with the number `now`, and its thread if it is new.

    Raises `ThreadBusy`, `DuplicateRun` if the run has already begun, and `NotFound` if the request
    belongs to a thread that was deleted.

    Returns the number of the thread, the messages that are new in it, and the dead server's run
    that was ended to free the thread, if there was one.
    """
    dead: Sequence[DeadRun] = ()
    await db.check_server()
    agent = run.agent_name
    thread, running, server, is_new = await db.lock_thread(key, agent, now, run=now)
    place = (thread, now)
    if not is_new:
        if running == now and server == db.server:  # a retry: the first attempt was committed
            return thread, _messages_of(await _read_head(db, place)), dead
        if is_duplicate(run, await _list_logs(db, thread, run.run_id)):
            raise build_duplicate_error(run.run_id)
        if running is not None:
            if server == db.server or await db.is_alive(server):
                raise busy(key)
            dead = await _end_dead_runs(db, server, [(thread, running)], now=now)
        await db.execute(
            "UPDATE copilot_threads SET updated = ?, last_run = ?, running = ?, server = ?"
            " WHERE id = ?",
            *(now, now, now, db.server, thread),
        )
    named = index_by_name(run.messages)
    if is_new:  # no names are stored yet
        await db.add_names(thread, named)
        new = [*named.values()]
    else:
        new_names = await db.add_new_names(thread, named)
        new = [message for name, message in named.items() if name in new_names]
    head = RunStarted(run_id=run.run_id, thread_id=run.thread_id, messages=new)
    count = await db.execute(
        "INSERT INTO copilot_runs (thread, id, key, run_id, agent, began, log)"
        " SELECT CAST(? AS bigint), CAST(? AS bigint), CAST(? AS text), CAST(? AS text),"
        " CAST(? AS text), CAST(? AS bigint), CAST(? AS bytea)"
        " WHERE NOT EXISTS (SELECT 1 FROM copilot_deleted_runs WHERE digest = ?)",
        *(*place, run.log_id, run.run_id, agent, now, encode([head])),
        digest_request(*key, run.run_id, run.log_id) or b"",
    )
    if not count:
        raise build_deletion_error()
    return thread, new, dead


async def undo_begin(db: Transaction, *, key: ThreadKey, run: int) -> None:
    """Delete a run whose request was cancelled, and its thread if it has no other run."""
    rows = await db.fetch(
        f"SELECT id FROM copilot_threads WHERE {db.by_key} AND running = ? FOR UPDATE",  # noqa: S608  # ours
        *(*db.key_values(key), run),
    )
    for (thread,) in rows:
        place = (thread, run)
        names = collect_names(await _read_head(db, place))
        await db.execute("DELETE FROM copilot_runs WHERE thread = ? AND id = ?", *place)
        await db.execute_many(
            "DELETE FROM copilot_known WHERE thread = ? AND name = ?",
            [(thread, name) for name in names],
        )
        await _free_thread(db, place, db.server)
        await db.execute(
            "DELETE FROM copilot_threads WHERE id = ? AND name IS NULL"
            " AND NOT EXISTS (SELECT 1 FROM copilot_runs WHERE thread = ?)",
            *(thread, thread),
        )


async def write_segments(
    db: Transaction, *, segments: Sequence[tuple[Place, Segment]], now: int
) -> None:
    """Append to logs and end runs; segments of deleted runs are ignored."""
    parts: list[Part] = []
    ended: list[EndedRun] = []
    for place, segment in segments:
        if (log := segment.whole) is not None:
            ended.append(EndedRun(place, compact(log), collect_generated_names(log)))
        elif segment.events:
            parts.append((place, segment.events))
    await db.write(now, parts, ended)


async def end_dead_runs(db: Transaction, *, now: int) -> Sequence[DeadRun]:
    """End all runs of dead servers, and return them."""
    dead: list[DeadRun] = []
    for server in await db.list_servers():
        if await db.is_alive(server):
            continue
        rows = await db.fetch(
            "SELECT id, running FROM copilot_threads WHERE running IS NOT NULL AND server = ?"
            " ORDER BY id FOR UPDATE SKIP LOCKED",
            server,
        )
        places = [(thread, run) for thread, run in rows]
        dead += await _end_dead_runs(db, server, places, now=now)
        await db.delete_server(server)
    return dead


async def end_dead_run(
    db: Transaction, *, key: ThreadKey, log_id: str, now: int
) -> Sequence[DeadRun]:
    """End one run of a dead server; return it, or an empty sequence if there is none."""
    rows = await db.fetch(
        "SELECT copilot_threads.id, running, server FROM copilot_threads JOIN copilot_runs"  # noqa: S608  # ours
        " ON copilot_runs.thread = copilot_threads.id AND copilot_runs.id = running"
        f" WHERE {db.by_key} AND copilot_runs.key = ? FOR UPDATE",
        *(*db.key_values(key), log_id),
    )
    for thread, run, server in rows:
        if server != db.server and not await db.is_alive(server):
            return await _end_dead_runs(db, server, [(thread, run)], now=now)
    return ()


async def find_running(db: Transaction, *, key: ThreadKey) -> RunningRun | None:
    """Return the active run of a thread, or `None`."""
    rows = await db.fetch(
        "SELECT key, run_id, server FROM copilot_threads JOIN copilot_runs"  # noqa: S608  # ours
        " ON copilot_runs.thread = copilot_threads.id AND copilot_runs.id = running"
        f" WHERE {db.by_key}",
        *db.key_values(key),
    )
    return next((RunningRun(log_id, run_id, str(server)) for log_id, run_id, server in rows), None)


async def find_logs(db: Transaction, *, key: ThreadKey, run_id: str) -> Sequence[LogStatus]:
    """Return the logs of a thread's runs with this run id, oldest first."""
    statement = f"SELECT id FROM copilot_threads WHERE {db.by_key}"  # noqa: S608  # ours
    rows = await db.fetch(statement, *db.key_values(key))
    return await _list_logs(db, rows[0][0], run_id) if rows else []


async def _list_logs(db: Transaction, thread: int, run_id: str) -> Sequence[LogStatus]:
    rows = await db.fetch(
        "SELECT key, ended FROM copilot_runs WHERE thread = ? AND run_id = ? ORDER BY id",
        *(thread, run_id),
    )
    return [LogStatus(log_id, ended is not None) for log_id, ended in rows]


async def read_runs(
    db: Transaction, *, key: ThreadKey, only_ended: bool = False
) -> Sequence[StoredRun]:
    """Return the runs of a thread, oldest first; with `only_ended`, active ones may lack events."""
    rows = await db.fetch(
        "SELECT copilot_threads.id, server, copilot_runs.id, key, run_id, copilot_runs.agent,"  # noqa: S608  # ours
        " began, ended, log FROM copilot_threads JOIN copilot_runs"
        " ON copilot_runs.thread = copilot_threads.id"
        f" WHERE {db.by_key}",
        *db.key_values(key),
    )
    runs: list[StoredRun] = []
    # sorting in the database would copy the logs twice
    for thread, server, run, *row, log in sorted(rows, key=_get_beginning):
        place, has_ended = (thread, run), row[-1] is not None
        is_whole = has_ended or only_ended
        events = {} if is_whole else await db.read_events(server, [place])
        head = decode(log, _describe(db, place))
        runs.append(build_run(row, prepend_head(head, events.get(place, ()))))
    return runs


def _get_beginning(row: Sequence[Any]) -> tuple[int, int]:
    _, _, run, _, _, _, began, _, _ = row
    return began, run


async def get_thread(db: Transaction, *, key: ThreadKey) -> Thread | None:
    """Return a thread, or None if it does not exist."""
    rows = await db.fetch(
        f"SELECT {COLUMNS} FROM copilot_threads WHERE {db.by_key}",  # noqa: S608  # ours
        *db.key_values(key),
    )
    return build_thread(rows[0]) if rows else None


async def update_thread(
    db: Transaction, *, key: ThreadKey, name: str | None, archived: bool | None, now: int
) -> Thread | None:
    """Update the arguments that are not None; an empty name removes the name."""
    await db.execute(
        "UPDATE copilot_threads SET updated = ?, archived = coalesce(?, archived),"  # noqa: S608  # ours
        f" name = nullif(coalesce(?, name), '') WHERE {db.by_key}",
        *(now, archived, name, *db.key_values(key)),
    )
    return await get_thread(db, key=key)


async def delete_thread(db: Transaction, *, key: ThreadKey, now: int) -> bool:
    """Delete a thread; foreign keys cascade to its runs. Returns `True` if it existed.

    Digests of its latest requests are kept for a while, to reject the same requests if repeated.
    """
    before = now - REMEMBERED_S * 1_000_000
    rows = await db.fetch(
        "SELECT run_id, key FROM copilot_threads JOIN copilot_runs"  # noqa: S608  # ours
        " ON copilot_runs.thread = copilot_threads.id"
        f" WHERE {db.by_key} AND copilot_runs.id > ?",
        *(*db.key_values(key), before),
    )
    requests = {digest_request(*key, run_id, log_id) for run_id, log_id in rows}
    await db.execute("DELETE FROM copilot_deleted_runs WHERE deleted < ?", before)
    await db.execute_many(
        "INSERT INTO copilot_deleted_runs (digest, deleted) VALUES (?, ?) ON CONFLICT DO NOTHING",
        [(digest, now) for digest in sorted(filter(None, requests))],
    )
    statement = f"DELETE FROM copilot_threads WHERE {db.by_key}"  # noqa: S608  # ours
    return await db.execute(statement, *db.key_values(key)) > 0


async def expire_threads(db: Transaction, *, before: int, after: int) -> Sequence[int]:
    """Delete a batch of idle threads not updated since `before`; return their numbers in order.

    Only threads with a number greater than `after` are deleted.
    """
    rows = await db.fetch(
        "SELECT id FROM copilot_threads WHERE id > ? AND updated < ? AND running IS NULL"
        " ORDER BY id LIMIT ? FOR UPDATE SKIP LOCKED",
        *(after, before, _EXPIRED_AT_ONCE),
    )
    numbers = [number for (number,) in rows]
    statement = "DELETE FROM copilot_threads WHERE id = ?"
    await db.execute_many(statement, [(number,) for number in numbers])
    return numbers


async def assign_threads(
    db: Transaction, *, keys: Sequence[ThreadKey], owner: str
) -> Sequence[ThreadKey]:
    """Assign threads to another owner; skip ids that the owner already uses. Returns the keys.

    Raises `ThreadBusy` if one of them has an active run.
    """
    select = f"SELECT id, running FROM copilot_threads WHERE {db.by_key} FOR UPDATE"  # noqa: S608  # ours
    moves: list[ThreadKey] = []
    # in a fixed order everywhere, which prevents deadlocks
    for key in sorted(keys):
        rows = await db.fetch(select, *db.key_values(key))
        new_key = ThreadKey(owner, key.id)
        if any(running is not None for _, running in rows):
            raise busy(key)
        if rows and not await db.fetch(select, *db.key_values(new_key)):
            await db.set_key(rows[0][0], new_key)
            moves.append(key)
    return moves


async def put_thread(
    db: Transaction, *, thread: Thread, runs: Iterable[StoredRun], now: int
) -> int:
    """Add a thread, or update its metadata if the import is newer. Return how many runs are new."""
    created, updated = from_datetime(thread.created_at), from_datetime(thread.updated_at)
    number, *_ = await db.lock_thread(thread.key, thread.agent, created)
    await db.execute(
        "UPDATE copilot_threads SET name = ?, archived = ?, updated = ?"
        " WHERE id = ? AND updated <= ?",
        *(thread.name, thread.archived, updated, number, updated),
    )
    if thread.last_run_at is not None:
        last_run = from_datetime(thread.last_run_at)
        await db.execute(
            "UPDATE copilot_threads SET last_run = ? WHERE id = ? AND coalesce(last_run, 0) < ?",
            *(last_run, number, last_run),
        )
    rows = await db.fetch("SELECT id, key, began FROM copilot_runs WHERE thread = ?", number)
    new = [*build_new_rows(runs, rows, now)]
    for row, names in new:
        await db.execute(
            "INSERT INTO copilot_runs (thread, id, key, run_id, agent, began, ended, log)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            *(number, *row),
        )
        await db.add_names(number, names)
    return len(new)


async def save_checkpoint(db: Transaction, *, key: CheckpointKey, data: bytes, now: int) -> None:
    """Store a checkpoint with its thread, if it has one; delete old ones without a thread."""
    thread = ThreadKey(key.owner, key.thread_id)
    await db.execute(
        "INSERT INTO copilot_checkpoints (digest, thread, saved, data)"  # noqa: S608  # ours
        f" VALUES (?, (SELECT id FROM copilot_threads WHERE {db.by_key}), ?, ?)"
        " ON CONFLICT (digest) DO UPDATE"
        " SET thread = excluded.thread, saved = excluded.saved, data = excluded.data",
        *(hash_key(key), *db.key_values(thread), now, data),
    )
    await db.execute(
        "DELETE FROM copilot_checkpoints WHERE thread IS NULL AND (saved < ? OR saved <="
        " (SELECT saved FROM copilot_checkpoints WHERE thread IS NULL"
        " ORDER BY saved DESC LIMIT 1 OFFSET ?))",
        *(now - LIFETIME, MOST_WITHOUT_THREAD),
    )


async def find_checkpoint(db: Transaction, *, key: CheckpointKey) -> Checkpoint | None:
    """Return a checkpoint, or None."""
    rows = await db.fetch(
        "SELECT saved, data FROM copilot_checkpoints WHERE digest = ?", hash_key(key)
    )
    return Checkpoint(*rows[0]) if rows else None


async def delete_checkpoint(db: Transaction, *, key: CheckpointKey, version: int | None) -> bool:
    """Delete a checkpoint if it still has that version. Returns `True` if it was deleted.

    A retry after an unconfirmed commit returns `False`: the run is then resumed by no process,
    which is better than by two.
    """
    deleted = await db.execute(
        "DELETE FROM copilot_checkpoints WHERE digest = ? AND saved = coalesce(?, saved)",
        *(hash_key(key), version),
    )
    return deleted > 0


async def move_events(db: Transaction, place: Place, events: Sequence[Event]) -> None:
    """Move appended events of an active run into its log."""
    head = await _read_head(db, place)
    if head and events:  # else the run was deleted, or has no events
        await db.execute(
            "UPDATE copilot_runs SET log = ? WHERE thread = ? AND id = ?",
            *(encode(prepend_head(head, events)), *place),
        )


async def end_run(db: Transaction, server: Any, run: EndedRun, *, now: int) -> bool:
    """End a run: store its compacted log and the names of its messages.

    Returns `True` if it was ended now, `False` if it had ended before or its thread was deleted.
    """
    # first, as everywhere, which prevents deadlocks
    if not await _free_thread(db, run.place, server):
        return False
    ended = await db.execute(
        "UPDATE copilot_runs SET ended = ?, log = ? WHERE thread = ? AND id = ?",
        *(now, encode(run.log), *run.place),
    )
    if ended:  # else it was deleted meanwhile
        await db.delete_events(run.place)
        await db.add_names(run.place[0], run.names)
    return ended > 0


async def _end_dead_runs(
    db: Transaction, server: Any, places: Sequence[Place], *, now: int
) -> Sequence[DeadRun]:
    """End runs of a dead server, and return those that had not been ended before."""
    await db.bury_server(server)
    events = await db.read_events(server, places)
    dead: list[DeadRun] = []
    for place in places:
        log = complete_log(await _read_head(db, place), events[place])
        if await end_run(db, server, EndedRun(place, log, collect_generated_names(log)), now=now):
            dead.append(await _read_dead_run(db, place))
    return dead


async def _read_dead_run(db: Transaction, place: Place) -> DeadRun:
    rows = await db.fetch(
        "SELECT owner, copilot_threads.thread, run_id, copilot_runs.agent FROM copilot_threads"
        " JOIN copilot_runs ON copilot_runs.thread = copilot_threads.id"
        " WHERE copilot_runs.thread = ? AND copilot_runs.id = ?",
        *place,
    )
    [(owner, thread, run_id, agent)] = rows
    return DeadRun(ThreadKey(owner, thread), run_id, agent)


async def _free_thread(db: Transaction, place: Place, server: Any) -> bool:
    """Clear the active run of a thread. Returns `True` if it was this run of this server."""
    changed = await db.execute(
        "UPDATE copilot_threads SET running = NULL, server = NULL"
        " WHERE id = ? AND running = ? AND server = ?",
        *(*place, server),
    )
    return changed > 0


async def _read_head(db: Transaction, place: Place) -> Sequence[Event]:
    """Return the first events of a run; an empty list if it was deleted."""
    rows = await db.fetch("SELECT log FROM copilot_runs WHERE thread = ? AND id = ?", *place)
    return decode(rows[0][0], _describe(db, place)) if rows else []


def _messages_of(head: Sequence[Event]) -> Sequence[Message]:
    return [
        message for event in head if isinstance(event, RunStarted) for message in event.messages
    ]


def _describe(db: Transaction, place: Place) -> str:
    """Return the location of a row for log lines, to find it with `sqlite3` or `psql`."""
    return f"table '{db.table_prefix}runs', thread {place[0]}, id {place[1]}"
