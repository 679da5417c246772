"""Plans with their events, between SQLite and PostgreSQL."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from copilot_runtime.database.server_locks import list_other_locks, remove_stale_locks
from copilot_runtime.extensions.operations.backup.record import (
    DamagedRecord,
    PackedRecord,
    Record,
    Row,
)
from copilot_runtime.extensions.operations.backup.source import (
    DatabaseSource,
    Replacement,
    Snapshot,
    build_running_error,
    hold_servers,
)
from copilot_runtime.extensions.operations.database import (
    Place,
    open_snapshot,
    open_transaction,
)
from copilot_runtime.extensions.planner.plan import FINAL_STATUSES
from copilot_runtime.extensions.planner.postgres.log import clean_text
from copilot_runtime.extensions.planner.postgres.schema import LOCKS, prepare
from copilot_runtime.extensions.planner.sqlite import open_plan_file
from copilot_runtime.threads.transactions import Transaction

_PLANS_AT_ONCE = 200
_EVENTS_AT_ONCE = 100


class PlanSource(DatabaseSource):
    """The plans of a database. Those under way go on where they are put back."""

    name = "plans"

    def __init__(self, place: Place) -> None:
        super().__init__(place, partial(open_plan_file, durability="NORMAL"), prepare)
        self._tables = _SQLITE if place.is_sqlite else _POSTGRES

    @asynccontextmanager
    async def snapshot(self) -> AsyncGenerator[Snapshot, None]:
        await self._make_tables()
        async with open_snapshot(self._place) as db:
            yield _PlanSnapshot(db, self._tables)

    @asynccontextmanager
    async def replace(self) -> AsyncGenerator[Replacement, None]:
        await self._make_tables()
        if self._place.path is not None:
            remove_stale_locks(self._place.path)
        async with open_transaction(self._place) as db:
            if not self._place.is_sqlite:
                await hold_servers(db, LOCKS)
            if await self._has_servers(db):
                raise build_running_error(self.address)
            yield _PlanReplacement(db, self._tables)

    async def _has_servers(self, db: Transaction) -> bool:
        if self._place.path is not None:
            return bool(list_other_locks(self._place.path, ""))
        return bool(
            await db.fetch(
                "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted AND database ="
                " (SELECT oid FROM pg_database WHERE datname = current_database())"
                " AND classid = ? AND objid <> 0",
                LOCKS,
            )
        )


class _Tables:
    """What the tables and columns of a database are called."""

    def __init__(self, events: str, commands: str, owner: str, nobody: Any) -> None:
        self.plans = "copilot_plans"
        self.events = events
        self.commands = commands
        self.owner = owner
        self.nobody = nobody
        """A server that is not there: the plans of this one are taken over by the next."""


_SQLITE = _Tables("copilot_events", "copilot_commands", "user", "")
_POSTGRES = _Tables("copilot_plan_events", "copilot_plan_commands", "owner", 0)


class _PlanSnapshot(Snapshot):
    def __init__(self, db: Transaction, tables: _Tables) -> None:
        self._db = db
        self._tables = tables

    async def count(self) -> int:
        tables = self._tables
        rows = await self._db.fetch(
            f"SELECT (SELECT count(*) FROM {tables.plans})"  # noqa: S608  # ours
            f" + (SELECT count(*) FROM {tables.events})"
        )
        return int(rows[0][0])

    async def read(self) -> AsyncGenerator[Record, None]:
        columns = f"id, {self._tables.owner}, thread, title, created, updated, status, epoch"
        last = ""
        while rows := await self._db.fetch(
            f"SELECT {columns} FROM {self._tables.plans} WHERE id > ? ORDER BY id LIMIT ?",  # noqa: S608  # ours
            *(last, _PLANS_AT_ONCE),
        ):
            for id, owner, thread, title, created, updated, status, epoch in rows:
                last = id
                values = {"id": id, "owner": owner, "thread": thread, "title": title}
                times = {"created": created, "updated": updated}
                yield Row("plan", {**values, **times, "status": status, "epoch": epoch})
                async for row in self._read_events(id):
                    yield row
                for (data,) in await self._db.fetch(
                    f"SELECT data FROM {self._tables.commands} WHERE plan = ? ORDER BY id",  # noqa: S608  # ours
                    id,
                ):
                    yield Row("command", {"data": bytes(data)})

    async def _read_events(self, plan: str) -> AsyncGenerator[Row, None]:
        last = 0
        while rows := await self._db.fetch(
            f"SELECT number, time, data FROM {self._tables.events}"  # noqa: S608  # ours
            " WHERE plan = ? AND number > ? ORDER BY number LIMIT ?",
            *(plan, last, _EVENTS_AT_ONCE),
        ):
            for number, time, data in rows:
                last = number
                yield Row("event", {"number": number, "time": time, "data": bytes(data)})


class _PlanReplacement(Replacement):
    def __init__(self, db: Transaction, tables: _Tables) -> None:
        self._db = db
        self._tables = tables
        self._plan = ""
        self._number = 0

    async def is_empty(self) -> bool:
        return not await self._db.fetch(f"SELECT 1 FROM {self._tables.plans} LIMIT 1")  # noqa: S608  # ours

    async def clear(self) -> None:
        for table in (self._tables.commands, self._tables.events, self._tables.plans):
            await self._db.execute(f"DELETE FROM {table}")  # noqa: S608  # ours

    async def add(self, record: PackedRecord) -> None:
        match record:
            case Row("plan"):
                await self._add_plan(record)
            case Row("event") if self._plan:
                await self._add_event(record)
            case Row("command") if self._plan:
                await self._db.execute(
                    f"INSERT INTO {self._tables.commands} (plan, data) VALUES (?, ?)",  # noqa: S608  # ours
                    *(self._plan, record.data("data")),
                )
            case _:
                raise DamagedRecord("a record of plans is none, or before its plan")

    async def _add_plan(self, row: Row) -> None:
        tables, status = self._tables, row.text("status")
        self._plan, self._number = row.text("id"), 0
        clean = clean_text if tables is _POSTGRES else _keep
        names = f"id, {tables.owner}, thread, title, created, updated, status, is_over, server"
        values = (
            self._plan,
            *map(clean, (row.optional_text("owner"), row.text("thread"), row.text("title"))),
            *(row.time("created"), row.time("updated"), status, status in FINAL_STATUSES),
            *(tables.nobody, row.number("epoch")),
        )
        more, mark = ("", "") if tables is _SQLITE else (", number", ", 0")
        await self._db.execute(
            f"INSERT INTO {tables.plans} ({names}, epoch{more})"  # noqa: S608  # ours
            f" VALUES ({', '.join('?' * len(values))}{mark})",
            *values,
        )

    async def _add_event(self, row: Row) -> None:
        number = row.number("number")
        if number != self._number + 1:
            raise DamagedRecord("an event of a plan is missing")
        self._number = number
        await self._db.execute(
            f"INSERT INTO {self._tables.events} (plan, number, time, data) VALUES (?, ?, ?, ?)",  # noqa: S608  # ours
            *(self._plan, number, row.time("time"), row.data("data")),
        )
        if self._tables is _POSTGRES:
            await self._db.execute(
                "UPDATE copilot_plans SET number = ? WHERE id = ?", number, self._plan
            )


def _keep(text: str | None) -> str | None:
    return text
