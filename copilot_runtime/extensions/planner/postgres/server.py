"""How the servers that share plans know which of them are alive."""

import asyncio
import contextlib
import random
from collections.abc import Sequence
from contextvars import Context
from time import monotonic
from typing import Any

from copilot_runtime.database.postgres.pool import Pool
from copilot_runtime.extensions.planner.postgres.schema import LOCKS

_BEATS = 5
"""How often a server says within its lease that it is alive."""

_PAUSE = 0.1
"""Seconds between two attempts to reach the database again."""

_FAREWELL = 5.0
"""Seconds that a server takes at most to say that it ends."""


class Server:
    """This server, which the others know by a lock and by a row that it renews.

    The lock is free as soon as the process has ended, however that happened. The row runs out if
    the machine hangs or is cut off. Lock and row are of one connection, so that a row that was
    renewed after PostgreSQL started again means that the lock is held again.
    """

    def __init__(self, pool: Pool, lease: float) -> None:
        # at random, because the locks of all programs in a database are in one space
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
        """Until when no other server can take this one for hung or cut off, by `monotonic`."""
        return self._beat_at + self._lease

    async def start(self) -> None:
        """Take the lock and write the row, and renew it from now on."""
        await self._pool.retry(self._connect)
        self._beating = asyncio.create_task(
            self._keep_beating(), name="plans:beat", context=Context()
        )

    async def leave(self) -> None:
        """Give up lock and row: this server has ended."""
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.wait([self._beating], timeout=_FAREWELL)
        connection, self._connection = self._connection, None
        if connection is not None and not connection.is_closed():
            with contextlib.suppress(*self._pool.errors):
                async with asyncio.timeout(_FAREWELL):
                    await connection.execute(
                        "DELETE FROM copilot_plan_servers WHERE id = $1", self.id
                    )
                    # the database takes a moment to notice the end of a connection
                    await connection.execute("SELECT pg_advisory_unlock_all()")
                    await connection.close()
            connection.terminate()

    async def find_dead(self, connection: Any) -> Sequence[int]:
        """Return the servers that have plans and are dead, in a transaction of the caller.

        A row that has run out means nothing while this server has not been connected for a lease
        itself: the database may have been away, for all of them.
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
            # what was this server's connection may hold it until the database notices its end
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
        """Renew the row, and come back as soon as the database does."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._lease / _BEATS):
                    await self._broken.wait()
            try:
                async with asyncio.timeout(self._lease):
                    await (self._connect() if self._connection.is_closed() else self._beat())
                self._pool.note_write()
            except self._pool.errors as error:
                self._connection.terminate()
                self._pool.note_failure(error)
                await asyncio.sleep(_PAUSE)
