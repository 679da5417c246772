"""The plan log in a SQLite file, for any number of servers on one machine."""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from pathlib import Path
from time import time
from typing import Any, TypeVar

from copilot_runtime.base.errors import CopilotError, StoreFailed, StoreReadOnly
from copilot_runtime.database.server_locks import Server, is_alive, remove_stale_locks
from copilot_runtime.database.sqlite.file import build_failure, is_write_refusal
from copilot_runtime.database.sqlite.tables import Tables, open_tables
from copilot_runtime.database.sqlite.workers import Work, Writer
from copilot_runtime.extensions.planner.events import (
    PlanEntry,
    PlanEvent,
    QuestionAnswered,
    StopRequested,
    decode_event,
    encode_event,
)
from copilot_runtime.extensions.planner.log import (
    MAX_DELETIONS,
    PUBLIC,
    Lease,
    PlanCommand,
    PlanLog,
    PlanQuery,
    PlanSummary,
    build_closed_error,
    build_conditions,
    build_gap_error,
    build_lost_error,
    build_missing_error,
    decode_command,
    decode_summary,
    number_events,
)
from copilot_runtime.extensions.planner.plan import FINAL_STATUSES, Status
from copilot_runtime.threads.store import ThreadKey

T = TypeVar("T")

APPLICATION = 0x436F7050
"""The `application_id` of our files: `CopP`."""

SCHEMA_VERSION = 2
"""The only schema version that can be opened."""

_SCHEMA = """
CREATE TABLE plans (
    id TEXT PRIMARY KEY,
    user TEXT,
    thread TEXT NOT NULL,
    title TEXT NOT NULL,
    created REAL NOT NULL,
    updated REAL NOT NULL,
    status TEXT NOT NULL,
    is_over INTEGER NOT NULL DEFAULT 0,
    server TEXT NOT NULL,
    epoch INTEGER NOT NULL DEFAULT 1
) WITHOUT ROWID;
CREATE INDEX plans_of_user ON plans (user, created);
CREATE INDEX plans_of_thread ON plans (thread, created);
CREATE INDEX plans_by_time ON plans (created);
CREATE INDEX plans_open ON plans (server) WHERE is_over = 0;
CREATE TABLE events (
    plan TEXT NOT NULL REFERENCES plans,
    number INTEGER NOT NULL,
    time REAL NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (plan, number)
) WITHOUT ROWID;
CREATE TABLE commands (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    plan TEXT NOT NULL REFERENCES plans,
    data BLOB NOT NULL
);
"""
_TABLES = Tables(
    application=APPLICATION,
    version=SCHEMA_VERSION,
    schema=_SCHEMA,
    content="database of plans",
    public=PUBLIC,
)
_COLUMNS = "id, user, thread, created, updated, status, title"


class SqlitePlanLog(PlanLog):
    """Plans in one SQLite file, which is created with its folder when it is first needed.

    Several server processes of one machine may share the file. The plans of a dead server are
    available at once to the next server that claims them.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        clock: Callable[[], float] = time,
    ) -> None:
        self.path = Path(path)
        self._clock = clock
        self._writer: Writer | None = None
        self._server: Server | None = None
        self._identity: tuple[int, int] | None = None
        """Device and inode of the open file."""
        self._opening = asyncio.Lock()

    async def open(self) -> None:
        async with self._opening:
            if self._writer is None:
                await self._open()

    async def _open(self) -> None:
        writer = Writer(partial(open_plan_file, self.path))
        try:
            await writer.ready()
            self._identity = _identify(self.path)
            self._server = await writer.do(lambda _: Server(self.path))
        except BaseException as error:
            await writer.end()
            if isinstance(error, sqlite3.Error | OSError):
                raise _build_failure(self.path, error) from error
            raise
        self._writer = writer

    async def create(
        self, summary: PlanSummary, events: Sequence[PlanEvent]
    ) -> tuple[Lease, Sequence[PlanEntry]]:
        server = await self._get_server()
        now = self._clock()
        entries = number_events(events, 1, now)
        row = (
            summary.id,
            summary.user,
            summary.thread_id,
            summary.title,
            now,
            now,
            summary.status,
            server.id,
        )

        def insert(connection: sqlite3.Connection) -> None:
            connection.execute(
                "INSERT INTO plans (id, user, thread, title, created, updated, status, server) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                row,
            )
            _insert_entries(connection, summary.id, entries)

        await self._do(insert)
        return Lease(summary.id, 1), entries

    def append(
        self,
        lease: Lease,
        number: int,
        events: Sequence[PlanEvent],
        *,
        status: Status | None = None,
    ) -> "asyncio.Future[Sequence[PlanEntry]]":
        now = self._clock()
        entries = number_events(events, number, now)

        def insert(connection: sqlite3.Connection) -> Sequence[PlanEntry]:
            changed = connection.execute(
                "UPDATE plans SET updated = ?, status = coalesce(?, status), "
                "is_over = coalesce(?, is_over) WHERE id = ? AND epoch = ? "
                "AND (SELECT max(number) FROM events WHERE plan = id) = ?",
                (now, status, status and status in FINAL_STATUSES, *key, number - 1),
            ).rowcount
            if not changed:
                _check_lease(connection, lease)
                raise build_gap_error(lease.plan_id)
            _insert_entries(connection, lease.plan_id, entries)
            return entries

        key = (lease.plan_id, lease.epoch)
        future: asyncio.Future[Sequence[PlanEntry]] = asyncio.get_running_loop().create_future()
        if self._writer is None:
            future.set_exception(build_closed_error())
        else:
            stored = self._writer.do(self._check_first(insert))
            stored.add_done_callback(partial(self._settle, future))
        return future

    def _settle(
        self,
        future: "asyncio.Future[Sequence[PlanEntry]]",
        stored: "asyncio.Future[Sequence[PlanEntry]]",
    ) -> None:
        error = stored.exception()
        if future.cancelled():
            return
        if error is None:
            future.set_result(stored.result())
        elif isinstance(error, sqlite3.Error | OSError):
            future.set_exception(_build_failure(self.path, error))
        else:
            future.set_exception(error)

    async def read(self, plan_id: str, after: int = 0) -> Sequence[PlanEntry]:
        def select(connection: sqlite3.Connection) -> list[tuple[int, float, bytes]]:
            _select_plan(connection, plan_id)
            return connection.execute(
                "SELECT number, time, data FROM events WHERE plan = ? AND number > ? "
                "ORDER BY number",
                (plan_id, after),
            ).fetchall()

        rows = await self._do(select)
        return [PlanEntry(number, moment, decode_event(data)) for number, moment, data in rows]

    async def list_plans(self, query: PlanQuery) -> Sequence[PlanSummary]:
        conditions, values = build_conditions(query, "user IS ?")
        statement = (
            f"SELECT {_COLUMNS} FROM plans WHERE {conditions} "  # noqa: S608  # constants
            "ORDER BY created DESC, id DESC LIMIT ?"
        )
        rows = await self._do(lambda db: db.execute(statement, (*values, query.limit)).fetchall())
        return [decode_summary(row) for row in rows]

    async def find(self, plan_id: str) -> PlanSummary:
        return decode_summary(await self._do(lambda db: _select_plan(db, plan_id)))

    async def claim(self) -> Sequence[Lease]:
        server = await self._get_server()

        def take(connection: sqlite3.Connection) -> list[Lease]:
            servers = connection.execute("SELECT DISTINCT server FROM plans WHERE is_over = 0")
            leases: list[Lease] = []
            for (other,) in servers.fetchall():
                if other != server.id and not is_alive(self.path, other):
                    rows = connection.execute(
                        "UPDATE plans SET server = ?, epoch = epoch + 1 "
                        "WHERE server = ? AND is_over = 0 RETURNING id, epoch",
                        (server.id, other),
                    )
                    leases += [Lease(id, epoch) for id, epoch in rows.fetchall()]
            remove_stale_locks(self.path)
            return leases

        return await self._do(take)

    async def claim_plan(
        self, plan_id: str, number: int, events: Sequence[PlanEvent]
    ) -> tuple[Lease, Sequence[PlanEntry]]:
        server = await self._get_server()
        now = self._clock()
        entries = number_events(events, number, now)

        def take(connection: sqlite3.Connection) -> Lease:
            _select_plan(connection, plan_id)
            rows = connection.execute(
                "UPDATE plans SET server = ?, epoch = epoch + 1, status = 'running', is_over = 0, "
                "updated = ? WHERE id = ? AND is_over = 1 "
                "AND (SELECT max(number) FROM events WHERE plan = id) = ? RETURNING epoch",
                (server.id, now, plan_id, number - 1),
            ).fetchall()
            if not rows:
                raise build_lost_error(plan_id)
            connection.execute("DELETE FROM commands WHERE plan = ?", (plan_id,))
            _insert_entries(connection, plan_id, entries)
            return Lease(plan_id, rows[0][0])

        return await self._do(take), entries

    async def renew(self, lease: Lease) -> Lease:
        server = await self._get_server()

        def take(connection: sqlite3.Connection) -> Lease:
            rows = connection.execute(
                "UPDATE plans SET epoch = epoch + 1 WHERE id = ? AND server = ? AND is_over = 0 "
                "RETURNING epoch",
                (lease.plan_id, server.id),
            ).fetchall()
            if not rows:
                raise build_lost_error(lease.plan_id)
            return Lease(lease.plan_id, rows[0][0])

        return await self._do(take)

    async def delete_plans(self, *, before: float = inf, thread: ThreadKey | None = None) -> int:
        owner, thread_id = thread or (None, None)

        def delete(connection: sqlite3.Connection) -> int:
            rows = connection.execute(
                "SELECT id FROM plans WHERE is_over = 1 AND updated < ? "
                "AND (? IS NULL OR (thread = ? AND coalesce(user, '') = ?)) LIMIT ?",
                (before, thread_id, thread_id, owner, MAX_DELETIONS),
            ).fetchall()
            for table, column in (("commands", "plan"), ("events", "plan"), ("plans", "id")):
                statement = f"DELETE FROM {table} WHERE {column} = ?"  # noqa: S608  # constants
                connection.executemany(statement, rows)
            return len(rows)

        return await self._do(delete)

    async def add_command(self, plan_id: str, event: StopRequested | QuestionAnswered) -> None:
        row = (plan_id, encode_event(event))
        await self._do(
            lambda db: db.execute("INSERT INTO commands (plan, data) VALUES (?, ?)", row)
        )

    async def read_commands(self) -> Sequence[PlanCommand]:
        server = await self._get_server()
        rows = await self._do(
            lambda db: db.execute(
                "SELECT commands.id, plan, data FROM commands JOIN plans ON plans.id = plan "
                "WHERE server = ? ORDER BY commands.id",
                (server.id,),
            ).fetchall()
        )
        return [decode_command(row) for row in rows]

    async def remove_command(self, id: int) -> None:
        await self._do(lambda db: db.execute("DELETE FROM commands WHERE id = ?", (id,)))

    async def aclose(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            await writer.end()
        server, self._server = self._server, None
        if server is not None:
            await asyncio.to_thread(server.leave)

    async def _get_server(self) -> Server:
        await self.open()
        assert self._server is not None
        return self._server

    async def _do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if self._writer is None:
            await self.open()
        assert self._writer is not None
        try:
            return await self._writer.do(self._check_first(work))
        except (sqlite3.Error, OSError) as error:
            raise _build_failure(self.path, error) from error

    def _check_first(self, work: Callable[[sqlite3.Connection], T]) -> Work[T]:
        """Wrap work so that it fails once the file was deleted or replaced.

        SQLite would continue to write to the deleted file, and all of it would be lost.
        """

        def check_and_work(connection: sqlite3.Connection) -> T:
            if _identify(self.path) != self._identity:
                raise _build_removed_error(self.path)
            return work(connection)

        return check_and_work


def _insert_entries(
    connection: sqlite3.Connection, plan_id: str, entries: Sequence[PlanEntry]
) -> None:
    connection.executemany(
        "INSERT INTO events (plan, number, time, data) VALUES (?, ?, ?, ?)",
        [(plan_id, entry.number, entry.time, encode_event(entry.event)) for entry in entries],
    )


def _select_plan(connection: sqlite3.Connection, plan_id: str) -> tuple[Any, ...]:
    row = connection.execute(
        f"SELECT {_COLUMNS} FROM plans WHERE id = ?",  # noqa: S608  # a constant
        (plan_id,),
    ).fetchone()
    if row is None:
        raise build_missing_error(plan_id)
    return row


def _check_lease(connection: sqlite3.Connection, lease: Lease) -> None:
    """Raise `LeaseLost` if another server has taken the plan over."""
    found = connection.execute("SELECT epoch FROM plans WHERE id = ?", (lease.plan_id,)).fetchone()
    if found != (lease.epoch,):
        raise build_lost_error(lease.plan_id)


def open_plan_file(path: Path) -> sqlite3.Connection:
    """Open a plan file for writing; see `open_tables`."""
    return open_tables(path, _TABLES)


def _identify(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _build_removed_error(path: Path) -> StoreFailed:
    return StoreFailed(
        f"The plans in {str(path)!r} cannot be used: the file was deleted, or replaced.",
        hint="Put back the file that was there, or start the server again to begin a new one.",
        public=PUBLIC,
    )


def _build_failure(path: Path, error: Exception) -> CopilotError:
    failure = build_failure(path, error, content="plans")
    if not is_write_refusal(error):
        return failure
    return StoreReadOnly(failure.message, hint=failure.hint, public=failure.public)
