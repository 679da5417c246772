"""Backup of threads with their runs and the store's secret, in SQLite or PostgreSQL."""

from collections.abc import AsyncGenerator, Sequence
from typing import Any

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
from copilot_runtime.threads.codec import decode, encode
from copilot_runtime.threads.compact import complete_log
from copilot_runtime.threads.postgres.schema import LOCKS
from copilot_runtime.threads.store import ThreadKey
from copilot_runtime.threads.transactions import Transaction
from copilot_runtime.threads.validation import is_valid_key

_THREADS_AT_ONCE = 200
_RUNS_AT_ONCE = 8
"""Runs per query, as the log of a run may have megabytes."""
_NAMES_AT_ONCE = 5_000

_COLUMNS = ("owner", "thread", "agent", "name", "archived", "created", "updated", "last_run")


class ThreadSource(TransactionSource):
    """The threads of a database. Running runs are archived as if their server had died."""

    locks = LOCKS

    async def _has_servers(self, db: Transaction) -> bool:
        return bool(await db.list_other_servers())

    async def _take_snapshot(self, db: Transaction) -> Snapshot:
        count = await count_rows(db, "copilot_threads", "copilot_runs")
        return Snapshot(count, _ThreadReader(db).read())

    def _build_replacement(self, db: Transaction) -> Replacement:
        return _ThreadReplacement(db)


class _ThreadReader:
    def __init__(self, db: Transaction) -> None:
        self._db = db

    async def read(self) -> AsyncGenerator[Record, None]:
        for (secret,) in await self._db.fetch("SELECT value FROM copilot_secret"):
            yield Row("secret", {"value": secret})
        async for row in self._read_checkpoints("thread IS NULL"):
            yield row
        last = -1
        while rows := await self._db.fetch(
            f"SELECT id, {', '.join(_COLUMNS)}, server FROM copilot_threads"  # noqa: S608  # ours
            " WHERE id > ? ORDER BY id LIMIT ?",
            *(last, _THREADS_AT_ONCE),
        ):
            for number, *values, server in rows:
                last = number
                fields = dict(zip(_COLUMNS, values, strict=True))
                yield Row("thread", {**fields, "archived": bool(fields["archived"])})
                async for row in self._read_runs(number, server):
                    yield row
                async for row in self._read_names(number):
                    yield row
                async for row in self._read_checkpoints("thread = ?", number):
                    yield row

    async def _read_runs(self, thread: int, server: Any) -> AsyncGenerator[Row, None]:
        last = -1
        while rows := await self._db.fetch(
            "SELECT id, key, run_id, agent, began, ended, log FROM copilot_runs"
            " WHERE thread = ? AND id > ? ORDER BY id LIMIT ?",
            *(thread, last, _RUNS_AT_ONCE),
        ):
            for run, key, run_id, agent, began, ended, log in rows:
                last = run
                if ended is None:
                    log = await self._end(thread, run, server, bytes(log))
                values = {"key": key, "run_id": run_id, "agent": agent}
                times = {"id": run, "began": began, "ended": ended or began}
                yield Row("run", {**values, **times, "log": bytes(log)})

    async def _end(self, thread: int, run: int, server: Any, head: bytes) -> bytes:
        """Return the log of a running run, completed by an interrupted end."""
        place = (thread, run)
        events = await self._db.read_events(server, [place])
        return encode(complete_log(decode(head, f"run {run}"), events.get(place, ())))

    async def _read_names(self, thread: int) -> AsyncGenerator[Row, None]:
        last = ""
        while rows := await self._db.fetch(
            "SELECT name FROM copilot_known WHERE thread = ? AND name > ? ORDER BY name LIMIT ?",
            *(thread, last, _NAMES_AT_ONCE),
        ):
            names: Sequence[str] = [name for (name,) in rows]
            last = names[-1]
            yield Row("names", {"names": names})

    async def _read_checkpoints(self, where: str, *values: int) -> AsyncGenerator[Row, None]:
        """Yield the checkpoints of interrupted runs, with one in memory at a time."""
        digests = await self._db.fetch(
            f"SELECT digest FROM copilot_checkpoints WHERE {where}",  # noqa: S608  # ours
            *values,
        )
        for (digest,) in digests:
            for saved, data in await self._db.fetch(
                "SELECT saved, data FROM copilot_checkpoints WHERE digest = ?", digest
            ):
                fields = {"digest": bytes(digest), "saved": saved, "data": bytes(data)}
                yield Row("checkpoint", fields)


class _ThreadReplacement(DatabaseReplacement):
    tables = (
        *("copilot_checkpoints", "copilot_known", "copilot_outbox", "copilot_runs"),
        "copilot_threads",
    )

    def __init__(self, db: Transaction) -> None:
        super().__init__(db)
        self._thread: int | None = None

    async def add(self, record: PackedRecord) -> None:
        match record:
            case Row("secret"):
                await self._db.execute("DELETE FROM copilot_secret")
                await self._db.execute(
                    "INSERT INTO copilot_secret VALUES (?)", record.text("value")
                )
            case Row("thread"):
                self._thread = await self._add_thread(record)
            case Row("run") if self._thread is not None:
                await self._add_run(self._thread, record)
            case Row("names") if self._thread is not None:
                await self._db.add_names(self._thread, record.texts("names"))
            case Row("checkpoint"):
                await self._db.execute(
                    "INSERT INTO copilot_checkpoints (digest, thread, saved, data)"
                    " VALUES (?, ?, ?, ?)",
                    *(record.data("digest"), self._thread),
                    *(record.number("saved"), record.data("data")),
                )
            case _:
                raise DamagedRecord("a record of threads is none, or before its thread")

    async def _add_thread(self, row: Row) -> int:
        key, created = ThreadKey(row.text("owner"), row.text("thread")), row.number("created")
        if not is_valid_key(key) or not key.id:
            raise DamagedRecord("the id of a thread is none")
        number, _, _, is_new = await self._db.lock_thread(key, row.text("agent"), created)
        if not is_new:
            raise DamagedRecord("a thread is there twice")
        await self._db.execute(
            "UPDATE copilot_threads SET name = ?, archived = ?, updated = ?, last_run = ?"
            " WHERE id = ?",
            *(row.optional_text("name"), row.flag("archived"), row.number("updated")),
            *(row.optional_number("last_run"), number),
        )
        return number

    async def _add_run(self, thread: int, row: Row) -> None:
        await self._db.execute(
            "INSERT INTO copilot_runs (thread, id, key, run_id, agent, began, ended, log)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            *(thread, row.number("id"), row.text("key"), row.text("run_id"), row.text("agent")),
            *(row.number("began"), row.number("ended"), row.data("log")),
        )
