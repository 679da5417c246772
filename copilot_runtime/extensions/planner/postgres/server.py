"""Liveness of the servers that share plans: an advisory lock and a heartbeat row each."""

import asyncio
import contextlib
import random
from collections.abc import Sequence
from contextvars import Context
from time import monotonic
from typing import Any

from copilot_runtime.database.postgres.pool import Pool
from copilot_runtime.extensions.planner.postgres.schema import LOCKS

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

        An expired row counts only after this server has been connected for a whole lease: if the
        database was unavailable, no server could renew its row.
        """
        rows = await connection.fetch(
            "SELECT DISTINCT plan.server, server.id IS NULL AS has_left,"
            " server.until < clock_timestamp() AS has_run_out,"
            " server.instance = pg_postmaster_start_time() AS has_same_instance"
            " FROM copilot_plans AS plan"
            " LEFT JOIN copilot_plan_servers AS server ON server.id = plan.server"
            " WHERE NOT plan.is_over AND plan.server <> $1",
            self.id,
        )
        is_steady = monotonic() > self._connected_at + self._lease
        dead: list[int] = []
        for id, has_left, has_run_out, has_same_instance in rows:
            is_dead = has_left or (has_run_out and is_steady)
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
