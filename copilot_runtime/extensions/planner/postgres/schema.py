"""The PostgreSQL tables of plans, and the liveness of the servers that share them.

Times are seconds since 1970.
"""

import asyncio
import contextlib
import random
from collections.abc import Sequence
from contextvars import Context
from time import monotonic
from typing import Any

from copilot_runtime.database.postgres.pool import Pool
from copilot_runtime.database.postgres.tables import migrate

LOCKS = 0x436F7050
"""First key of our advisory locks; the second is 0 for the schema, or else a server's id."""

_MIGRATIONS = (
    """
    CREATE TABLE copilot_plans (
        id text PRIMARY KEY,
        owner text,
        thread text NOT NULL,
        title text NOT NULL,
        created float8 NOT NULL,
        updated float8 NOT NULL,
        status text NOT NULL,
        is_over boolean NOT NULL DEFAULT false,
        number bigint NOT NULL,
        server integer NOT NULL,
        epoch bigint NOT NULL DEFAULT 1
    );
    CREATE INDEX copilot_plans_of_owner ON copilot_plans (owner, created, id);
    CREATE INDEX copilot_plans_of_thread ON copilot_plans (thread, created);
    CREATE INDEX copilot_plans_by_time ON copilot_plans (created, id);
    CREATE INDEX copilot_plans_open ON copilot_plans (server) WHERE NOT is_over;
    CREATE TABLE copilot_plan_events (
        plan text NOT NULL REFERENCES copilot_plans ON DELETE CASCADE,
        number bigint NOT NULL,
        time float8 NOT NULL,
        data bytea NOT NULL,
        PRIMARY KEY (plan, number)
    );
    CREATE TABLE copilot_plan_commands (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        plan text NOT NULL REFERENCES copilot_plans ON DELETE CASCADE,
        data bytea NOT NULL
    );
    CREATE TABLE copilot_plan_servers (
        id integer PRIMARY KEY,
        until timestamptz NOT NULL,
        instance timestamptz NOT NULL
    );
    """,
)
"""Migrations: each upgrades the tables by one version.

`number` is the number of a plan's last event. `until` is the expiry of a server's heartbeat, and
`instance` the start time of the PostgreSQL that has its advisory lock: a restart loses all locks.
"""

SCHEMA_VERSION = len(_MIGRATIONS)
"""The schema version that this program reads and writes."""


async def prepare(connection: Any) -> None:
    """Create or migrate the tables, one server at a time."""
    async with connection.transaction():
        await migrate(
            connection, _MIGRATIONS, versions="copilot_plan_schema", lock=LOCKS, content="plans"
        )
        await connection.execute(
            "DELETE FROM copilot_plan_servers WHERE until < now() - interval '1 day'"
        )


_BEATS_PER_LEASE = 5
"""Heartbeats per lease."""

_RECONNECT_SECONDS = 0.1
"""Seconds between attempts to reconnect to the database."""

_LEAVE_TIMEOUT = 5.0
"""Maximum seconds for the release of lock and row at shutdown."""


class Server:
    """This server, as others see it: an advisory lock and a heartbeat row that it renews.

    PostgreSQL releases the lock as soon as the process has ended, however that happened. The row
    expires if the machine hangs or is disconnected. Lock and row use one connection, so a row that
    was renewed after a restart of PostgreSQL implies that the lock is held again.
    """

    def __init__(self, pool: Pool, lease: float) -> None:
        # random, because all programs of a database share one key space of advisory locks
        self.id = random.randint(1, 2**31 - 1)  # noqa: S311  # no secret
        self._pool = pool
        self._lease = lease
        self._connection: Any = None
        self._has_lock = False
        self._broken = asyncio.Event()
        self._beating: asyncio.Task[None] | None = None
        self._connected_at = 0.0
        self._beat_at = 0.0
        self._expiries: dict[int, tuple[Any, float]] = {}
        """The expiry of each other server's row, and since when it is unchanged (`monotonic`)."""

    @property
    def deadline(self) -> float:
        """The `monotonic` time until which no other server can consider this one dead."""
        return self._beat_at + self._lease

    async def start(self) -> None:
        """Take the lock, write the row, and start the heartbeat."""
        await self._pool.retry(self._connect)
        self._beating = asyncio.create_task(
            self._keep_beating(), name="plans:beat", context=Context()
        )

    async def leave(self) -> None:
        """Release the lock and delete the row at shutdown."""
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.wait([self._beating], timeout=_LEAVE_TIMEOUT)
        connection, self._connection = self._connection, None
        if connection is not None and not connection.is_closed():
            with contextlib.suppress(*self._pool.errors):
                async with asyncio.timeout(_LEAVE_TIMEOUT):
                    await connection.execute(
                        "DELETE FROM copilot_plan_servers WHERE id = $1", self.id
                    )
                    # the database takes a moment to notice the end of a connection
                    await connection.execute("SELECT pg_advisory_unlock_all()")
                    await connection.close()
            connection.terminate()

    async def find_dead(self, connection: Any) -> Sequence[int]:
        """Return the ids of dead servers that have open plans, within the caller's transaction.

        A row has expired if this server has seen it unchanged for a whole lease, however the clock
        of the database was set meanwhile. It counts only after this server has been connected for
        as long: if the database was unavailable, no server could renew its row.
        """
        rows = await connection.fetch(
            "SELECT DISTINCT plan.server, server.id IS NULL AS has_left,"
            " server.until,"
            " server.instance = pg_postmaster_start_time() AS has_same_instance"
            " FROM copilot_plans AS plan"
            " LEFT JOIN copilot_plan_servers AS server ON server.id = plan.server"
            " WHERE NOT plan.is_over AND plan.server <> $1",
            self.id,
        )
        now = monotonic()
        before, self._expiries = self._expiries, {}
        dead: list[int] = []
        for id, has_left, until, has_same_instance in rows:
            value, since = before.get(id, (None, now))
            self._expiries[id] = until, since if value == until else now
            unchanged_since = max(self._expiries[id][1], self._connected_at)
            is_dead = has_left or now > unchanged_since + self._lease
            if not is_dead and has_same_instance:
                is_dead = await connection.fetchval(
                    "SELECT pg_try_advisory_xact_lock($1, $2)", LOCKS, id
                )
            if is_dead:
                dead.append(id)
        return dead

    async def _connect(self) -> None:
        connection = await self._pool.connect()
        try:
            self._connection, self._has_lock = connection, False
            await self._beat()
        except BaseException:
            connection.terminate()
            raise
        self._connected_at = monotonic()
        self._broken.clear()
        connection.add_termination_listener(self._on_termination)

    def _on_termination(self, connection: Any) -> None:
        if connection is self._connection:
            self._broken.set()

    async def _beat(self) -> None:
        began = monotonic()
        if not self._has_lock:
            # this server's previous connection may hold it until PostgreSQL notices that it is
            # closed
            self._has_lock = await self._connection.fetchval(
                "SELECT pg_try_advisory_lock($1, $2)", LOCKS, self.id
            )
        await self._connection.execute(
            "INSERT INTO copilot_plan_servers VALUES"
            " ($1, clock_timestamp() + make_interval(secs => $2), pg_postmaster_start_time())"
            " ON CONFLICT (id) DO UPDATE SET until = excluded.until, instance = excluded.instance",
            *(self.id, self._lease),
        )
        self._beat_at = began

    async def _keep_beating(self) -> None:
        """Renew the row, and reconnect as soon as the database is available again."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._lease / _BEATS_PER_LEASE):
                    await self._broken.wait()
            try:
                async with asyncio.timeout(self._lease):
                    await (self._connect() if self._connection.is_closed() else self._beat())
                self._pool.note_write()
            except self._pool.errors as error:
                self._connection.terminate()
                self._pool.note_failure(error)
                await asyncio.sleep(_RECONNECT_SECONDS)
