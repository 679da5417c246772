"""Plans with their events, between SQLite and PostgreSQL."""

from collections.abc import AsyncGenerator
from typing import Any, NamedTuple

from copilot_runtime.database.server_locks import list_other_locks
from copilot_runtime.extensions.operations.backup.databases import (
    DatabaseReplacement,
    TransactionSource,
    count_rows,
)
from copilot_runtime.extensions.operations.backup.record import (
    DamagedRecord,
    PackedRecord,
    Record,
    Row,
)
from copilot_runtime.extensions.operations.backup.source import Replacement, Snapshot
from copilot_runtime.extensions.operations.schemas import Schema
from copilot_runtime.extensions.planner.plan import FINAL_STATUSES
from copilot_runtime.extensions.planner.postgres.log import clean_text
from copilot_runtime.extensions.planner.postgres.schema import LOCKS
from copilot_runtime.threads.transactions import Transaction

_PLANS = "copilot_plans"
_PLANS_AT_ONCE = 200
_EVENTS_AT_ONCE = 100


class PlanSource(TransactionSource):
    """The plans of a database. Unfinished plans continue after they are restored."""

    locks = LOCKS

    def __init__(self, schema: Schema) -> None:
        super().__init__(schema)
        self._tables = _SQLITE if self._place.is_sqlite else _POSTGRES

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

    async def _take_snapshot(self, db: Transaction) -> Snapshot:
        count = await count_rows(db, _PLANS, self._tables.events)
        return Snapshot(count, _read_plans(db, self._tables))

    def _build_replacement(self, db: Transaction) -> Replacement:
        return _PlanReplacement(db, self._tables)


class _Tables(NamedTuple):
    """Names of tables and columns, which differ between databases."""

    events: str
    commands: str
    owner: str
    nobody: Any
    """The id of a nonexistent server: the next server takes over the plans that have it."""


_SQLITE = _Tables("copilot_events", "copilot_commands", "user", "")
_POSTGRES = _Tables("copilot_plan_events", "copilot_plan_commands", "owner", 0)


async def _read_plans(db: Transaction, tables: _Tables) -> AsyncGenerator[Record, None]:
    columns = f"id, {tables.owner}, thread, title, created, updated, status, epoch"
    last = ""
    while rows := await db.fetch(
        f"SELECT {columns} FROM {_PLANS} WHERE id > ? ORDER BY id LIMIT ?",  # noqa: S608  # ours
        *(last, _PLANS_AT_ONCE),
    ):
        for id, owner, thread, title, created, updated, status, epoch in rows:
            last = id
            values = {"id": id, "owner": owner, "thread": thread, "title": title}
            times = {"created": created, "updated": updated}
            yield Row("plan", {**values, **times, "status": status, "epoch": epoch})
            async for row in _read_events(db, tables, id):
                yield row
            for (data,) in await db.fetch(
                f"SELECT data FROM {tables.commands} WHERE plan = ? ORDER BY id",  # noqa: S608  # ours
                id,
            ):
                yield Row("command", {"data": bytes(data)})


async def _read_events(db: Transaction, tables: _Tables, plan: str) -> AsyncGenerator[Row, None]:
    last = 0
    while rows := await db.fetch(
        f"SELECT number, time, data FROM {tables.events}"  # noqa: S608  # ours
        " WHERE plan = ? AND number > ? ORDER BY number LIMIT ?",
        *(plan, last, _EVENTS_AT_ONCE),
    ):
        for number, time, data in rows:
            last = number
            yield Row("event", {"number": number, "time": time, "data": bytes(data)})


class _PlanReplacement(DatabaseReplacement):
    def __init__(self, db: Transaction, tables: _Tables) -> None:
        super().__init__(db)
        self.tables = (tables.commands, tables.events, _PLANS)
        self._tables = tables
        self._plan = ""
        self._number = 0

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
            f"INSERT INTO {_PLANS} ({names}, epoch{more})"  # noqa: S608  # ours
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
                f"UPDATE {_PLANS} SET number = ? WHERE id = ?",  # noqa: S608  # ours
                *(number, self._plan),
            )


def _keep(text: str | None) -> str | None:
    return text
