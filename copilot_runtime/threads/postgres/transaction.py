"""A transaction of PostgreSQL."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import count
from typing import Any

from copilot_runtime.api.events import Event
from copilot_runtime.threads.codec import decode, encode
from copilot_runtime.threads.postgres.schema import LEASE, LOCKS, hash_key
from copilot_runtime.threads.store import ThreadKey
from copilot_runtime.threads.transactions import EndedRun, Part, Place, ServerLost, Transaction


class PostgresTransaction(Transaction):
    """A transaction of an asyncpg connection."""

    table_prefix = "copilot_"
    by_key = "digest = ?"

    def __init__(self, connection: Any, server: int, *, may_be_done: bool = False) -> None:
        self.server: int = server
        self._connection = connection
        self._may_be_done = may_be_done
        """Whether this is a retry after a broken connection, whose commit may have succeeded."""

    async def fetch(self, statement: str, *values: Any) -> Sequence[Sequence[Any]]:
        return await self._connection.fetch(number_values(statement), *values)

    async def execute(self, statement: str, *values: Any) -> int:
        status: str = await self._connection.execute(number_values(statement), *values)
        return int(status.rpartition(" ")[2])

    async def execute_many(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        await self._connection.executemany(number_values(statement), rows)

    def key_values(self, key: ThreadKey) -> Sequence[Any]:
        return (hash_key(key),)

    async def lock_thread(
        self, key: ThreadKey, agent: str, now: int, *, run: int | None = None
    ) -> tuple[int, int | None, Any, bool]:
        # a second transaction waits here for the end of the first one
        row = await self._connection.fetchrow(
            "INSERT INTO copilot_threads AS old"
            " (digest, owner, thread, agent, created, updated, last_run, running, server)"
            " VALUES ($1, $2, $3, $4, $5, $5, $6, $6, $7) ON CONFLICT (digest)"
            " DO UPDATE SET updated = old.updated RETURNING id, running, server, xmax = 0",
            *(hash_key(key), *key, agent, now, run, None if run is None else self.server),
        )
        return tuple(row)

    async def set_key(self, thread: int, key: ThreadKey) -> None:
        await self._connection.execute(
            "UPDATE copilot_threads SET digest = $1, owner = $2, thread = $3 WHERE id = $4",
            *(hash_key(key), *key, thread),
        )

    async def add_names(self, thread: int, names: Iterable[str]) -> None:
        await self.add_new_names(thread, names)

    async def add_new_names(self, thread: int, names: Iterable[str]) -> set[str]:
        rows = await self._connection.fetch(
            "INSERT INTO copilot_known SELECT $1, * FROM unnest($2::text[])"
            " ON CONFLICT DO NOTHING RETURNING name",
            *(thread, sorted(names)),
        )
        return {name for (name,) in rows}

    async def write(self, now: int, parts: Sequence[Part], ended: Sequence[EndedRun]) -> None:
        """Write everything in one statement: each statement costs a turn of the event loop."""
        added = [
            (*place, number, encode(events)) for number, (place, events) in enumerate(parts, now)
        ]
        values = [self.server, *_transpose(added, 4)]
        if ended:
            names = [(run.place[0], name) for run in ended for name in run.names]
            logs = [(*run.place, encode(run.log)) for run in ended]
            values += [now, *_transpose(logs, 3), *_transpose(names, 2)]
        statement = build_write(has_ended=bool(ended), may_be_done=self._may_be_done)
        if not await self._connection.fetchval(statement, *values):
            raise ServerLost

    async def read_events(
        self, server: int, places: Sequence[Place]
    ) -> Mapping[Place, Sequence[Event]]:
        del server
        return {place: await self._read_events(*place) for place in places}

    async def _read_events(self, thread: int, run: int) -> Sequence[Event]:
        rows = await self._connection.fetch(
            "SELECT number, data FROM copilot_events WHERE thread = $1 AND run = $2"
            " ORDER BY number",
            *(thread, run),
        )
        where = f"table 'copilot_events', thread {thread}, run {run}, number"
        return [event for number, data in rows for event in decode(data, f"{where} {number}")]

    async def delete_events(self, place: Place) -> None:
        await self._connection.execute(
            "DELETE FROM copilot_events WHERE thread = $1 AND run = $2", *place
        )

    async def check_server(self) -> None:
        statement = "SELECT id FROM copilot_servers WHERE id = $1 AND until > 0 FOR SHARE"
        if await self._connection.fetchval(statement, self.server) is None:
            raise ServerLost

    async def bury_server(self, server: int) -> None:
        """Mark a server as dead, in case the database still regards its lock as held.

        It may take a minute to notice that a server's machine is unreachable.
        """
        await self._connection.execute(
            "UPDATE copilot_servers SET until = -abs(until) WHERE id = $1", server
        )

    async def is_alive(self, server: int) -> bool:
        """Return whether a server holds its lock and its lease has not expired.

        A free lock means that its server has died, unless the database itself has just started:
        servers then have the rest of their lease to come back. While this transaction lasts, a
        server that seems dead cannot take its lock again.
        """
        is_free, until, just_started = await self._connection.fetchrow(
            "SELECT pg_try_advisory_xact_lock($1, $2),"
            " (SELECT until > extract(epoch FROM clock_timestamp()) * 1000000"
            " FROM copilot_servers WHERE id = $2),"
            " pg_postmaster_start_time() > clock_timestamp() - $3 * interval '1 second'",
            *(LOCKS, server, LEASE),
        )
        if is_free:
            return bool(until and just_started)
        return until is None or until  # servers of earlier versions have no row

    def parse_server(self, address: str) -> int:
        return int(address)

    async def list_other_servers(self) -> Sequence[str]:
        rows = await self._connection.fetch(
            "SELECT objid FROM pg_locks WHERE locktype = 'advisory' AND granted"
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
            " AND classid = $1 AND objid <> 0 AND objid <> $2",
            *(LOCKS, self.server),
        )
        return [str(number) for (number,) in rows]

    async def delete_server(self, server: int) -> None:
        """Do nothing: all events are stored with their runs."""


def _transpose(rows: Sequence[Sequence[Any]], width: int) -> Sequence[Sequence[Any]]:
    """Return the columns of rows."""
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[]] * width


@cache
def build_write(*, has_ended: bool, may_be_done: bool) -> str:
    """Return the statement that appends events and ends runs, if their server is alive.

    It yields 0 if this server was declared dead, which cannot happen while it runs. A retry skips
    events that were already stored, which takes PostgreSQL a quarter longer.
    """
    parts = [_ADD + (" ON CONFLICT DO NOTHING" if may_be_done else "") + ")"]
    if has_ended:
        parts.append(_END)
    return f"WITH {_ME}, {', '.join(parts)} SELECT count(*) FROM me"  # noqa: S608  # ours


_ME = "me AS (SELECT id FROM copilot_servers WHERE id = $1 AND until > 0 FOR SHARE)"

_ADD = (
    "added AS (INSERT INTO copilot_events (thread, run, number, data)"
    " SELECT new.* FROM me, unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::bytea[])"
    " AS new (thread, run, number, data)"
    " JOIN copilot_threads ON copilot_threads.id = new.thread"
)

_END = (
    # in a fixed order, as everywhere, which prevents deadlocks
    "held AS (SELECT new.* FROM me, unnest($7::bigint[], $8::bigint[], $9::bytea[])"
    " AS new (thread, run, log)"
    " JOIN copilot_threads AS old ON old.id = new.thread AND old.running = new.run"
    " AND old.server = $1 ORDER BY old.id FOR NO KEY UPDATE OF old),"
    " freed AS (UPDATE copilot_threads SET running = NULL, server = NULL FROM held"
    " WHERE id = held.thread),"
    " ended AS (UPDATE copilot_runs AS old SET ended = $6, log = held.log FROM held"
    " WHERE old.thread = held.thread AND old.id = held.run RETURNING old.thread, old.id),"
    " deleted AS (DELETE FROM copilot_events AS old USING ended"
    " WHERE old.thread = ended.thread AND old.run = ended.id),"
    " named AS (INSERT INTO copilot_known (thread, name)"
    " SELECT new.* FROM unnest($10::bigint[], $11::text[]) AS new (thread, name)"
    " JOIN ended USING (thread) ORDER BY 1, 2 ON CONFLICT DO NOTHING)"
)


@cache
def number_values(statement: str) -> str:
    """Return a statement with numbered placeholders: `$1`, `$2` …"""
    first, *others = statement.split("?")
    return first + "".join(f"${number}{text}" for number, text in zip(count(1), others))
