"""Threads in PostgreSQL: the store for servers on several machines."""

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context
from functools import partial
from itertools import count
from time import monotonic
from typing import Any, TypeVar

from copilot_runtime.base.errors import StoreFailed
from copilot_runtime.database.postgres.pool import Pool
from copilot_runtime.threads.database import DatabaseThreads
from copilot_runtime.threads.postgres.schema import LEASE, LOCKS, prepare
from copilot_runtime.threads.postgres.transaction import PostgresTransaction
from copilot_runtime.threads.store import Segment
from copilot_runtime.threads.transactions import Place, ServerLost, write_segments

T = TypeVar("T")

_BEAT = 1.0
"""Seconds between two heartbeats."""

_TIMEOUT = 30.0
"""Timeout of a statement in seconds: the database may vanish silently and fail over."""

_MEMORY = 24 * 60 * 60
"""Seconds after which a dead server is forgotten; by then its connections have ended."""

logger = logging.getLogger("copilot_runtime.threads")


class Link:
    """A pool, and one connection whose advisory lock shows other servers that this one is alive.

    It also writes a heartbeat into the database every second. If a server's lease expires or its
    lock is lost, the others declare it dead and end its runs, and it continues under a new id.
    """

    def __init__(
        self, url: str, connections: int, *, on_renewal: Callable[[], None] = lambda: None
    ) -> None:
        self._pool = Pool(url, connections, timeout=_TIMEOUT)
        self._on_renewal = on_renewal
        self._lock_holder: Any = None
        self._restoring: asyncio.Task[None] | None = None
        self._beating: asyncio.Task[None] | None = None
        self._renewing = asyncio.Lock()
        self.server = 0

    async def open(self) -> None:
        """Connect, create the tables, and take this server's number and lock."""

        async def connect() -> None:
            await self._pool.open(prepare)
            await self._become_server()
            await self._pool.execute(_delete_old_servers)

        try:
            await self._pool.retry(connect)
        except BaseException:
            await self.close()
            raise
        self._beating = asyncio.create_task(self._beat(), name="show life", context=Context())

    async def do(
        self,
        work: Callable[[PostgresTransaction], Awaitable[T]],
        *,
        reading: bool = False,
        is_one_statement: bool = False,
    ) -> T:
        """Execute `work` in a transaction of the pool; a single statement needs no explicit one.

        Raises `ServerLost` if this server was declared dead; it then continues under a new id.
        """
        server, attempts = self.server, count()

        async def attempt(connection: Any) -> T:
            may_be_done = next(attempts) > 0
            return await work(PostgresTransaction(connection, server, may_be_done=may_be_done))

        try:
            if is_one_statement:
                return await self._pool.execute(attempt)
            return await self._pool.do(attempt, reading=reading)
        except ServerLost:
            await self._renew(server)
            raise

    async def check(self) -> None:
        """Check that the tables can be read and written. Raises `StoreReadOnly` otherwise."""
        await self._pool.execute(_read_nothing)
        await self._pool.check_writable()

    async def close(self) -> None:
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.wait([self._beating])
        if self._restoring:
            self._restoring.cancel()
            await asyncio.wait([self._restoring])
        holder, self._lock_holder = self._lock_holder, None
        if holder is not None and not holder.is_closed():
            with contextlib.suppress(*self._pool.errors):
                # the database takes a moment to notice the end of a connection
                await holder.execute(
                    "DELETE FROM copilot_servers WHERE id = $1", self.server, timeout=5
                )
                await holder.execute("SELECT pg_advisory_unlock_all()", timeout=5)
                await holder.close(timeout=5)
            holder.terminate()  # in case closing it failed
        self._pool.close()

    async def _renew(self, lost: int) -> None:
        """Replace the lost server id by a new one, and return once this server has it."""
        async with self._renewing:
            if lost != self.server:
                return
            await self._pool.retry(self._become_server)
        logger.warning("The other servers declared this one dead. It continues under a new id.")
        self._on_renewal()

    async def _become_server(self) -> None:
        """Take a new server number, and its lock."""
        # at random, because all programs of a database share the lock keys
        server = random.randint(1, 2**31 - 1)  # noqa: S311  # no secret
        holder = await self._take_lock(server)
        try:
            await self._show_life(server)
        except BaseException:
            holder.terminate()
            raise
        before, self.server = self._lock_holder, server  # others see it as alive from now on
        self._hold(holder)
        if before is not None:
            before.terminate()  # which releases the lock of the old id

    async def _beat(self) -> None:
        """Send heartbeats in an endless loop."""
        while True:
            await asyncio.sleep(_BEAT)
            try:
                await self._show_life(self.server, is_new=False)
                self._pool.note_write()
            except StoreFailed as error:
                self._pool.note_failure(error)

    async def _show_life(self, server: int, *, is_new: bool = True) -> None:
        """Write a heartbeat; that of an existing server has no effect once it was declared dead."""
        until = "(extract(epoch FROM clock_timestamp()) + $2) * 1000000"
        statement = f"UPDATE copilot_servers SET until = {until} WHERE id = $1 AND until > 0"  # noqa: S608  # ours
        if is_new:
            statement = f"INSERT INTO copilot_servers (id, until) VALUES ($1, {until})"  # noqa: S608  # ours
        await self._pool.execute(lambda connection: connection.execute(statement, server, LEASE))

    async def _take_lock(self, server: int) -> Any:
        """Return a new connection that holds the lock of a server."""
        holder = await self._pool.connect()
        try:
            await holder.execute("SELECT pg_advisory_lock($1, $2)", LOCKS, server)
        except BaseException:
            holder.terminate()
            raise
        return holder

    def _hold(self, holder: Any) -> None:
        """Keep the connection with this server's lock, and replace it when it breaks."""
        self._lock_holder = holder
        holder.add_termination_listener(self._on_termination)
        if holder.is_closed():  # it broke before the listener was added
            self._on_termination(holder)

    def _on_termination(self, holder: Any) -> None:
        """Take the lock again as soon as possible, before others declare this server dead."""
        if holder is self._lock_holder:
            self._restoring = asyncio.get_running_loop().create_task(
                self._restore_lock(), context=Context()
            )

    async def _restore_lock(self) -> None:
        server = self.server
        while server == self.server:
            try:
                holder = await self._take_lock(server)
            except self._pool.errors as error:
                self._pool.outage.begin(error)
                await asyncio.sleep(random.uniform(0.5, 1.5))  # noqa: S311  # no secret
                continue
            if server == self.server:
                self._hold(holder)
            else:
                holder.terminate()
            return


async def _read_nothing(connection: Any) -> None:
    """Execute a query on the table of threads that returns no rows."""
    await connection.execute("SELECT 1 FROM copilot_threads WHERE id = 0")


async def _delete_old_servers(connection: Any) -> None:
    """Delete the leases of servers that died long ago."""
    await connection.execute(
        "DELETE FROM copilot_servers"
        " WHERE abs(until) < (extract(epoch FROM clock_timestamp()) - $1) * 1000000",
        _MEMORY,
    )


class PostgresThreads(DatabaseThreads[Link]):
    """Stores threads in the tables `copilot_…` of a database, which are created if missing.

    Other servers detect that this one is alive by an advisory lock of its session, so a pooler such
    as PgBouncer must use session pooling, not transaction pooling. While the database restarts,
    operations are retried for ten seconds.
    """

    commit_interval = 0.005
    """Readers on other servers also wait for the carrier, and large batches delay each other.
    A commit is a single statement here, and cheap."""

    def __init__(self, url: str, *, max_connections: int = 10) -> None:
        super().__init__()
        self.shared_url = url
        self._make = partial(Link, url, max_connections)

    async def check(self) -> None:
        """Check that threads can be read and written. Raises `StoreFailed` or `StoreReadOnly`."""
        await (await self._connect()).check()

    async def check_run(self, log_id: str) -> None:
        """Write an empty segment to a log, which fails if this server was declared dead."""
        is_late = True
        while is_late:  # it may have been declared dead since the write
            began = monotonic()
            await self.write([Segment(log_id=log_id, events=())])
            is_late = monotonic() > began + LEASE / 2

    async def _open_now(self) -> Link:
        link = self._make(on_renewal=self._report_renewal)
        await link.open()
        try:
            await self._end_dead_runs(link)
        except BaseException:
            await link.close()
            raise
        return link

    async def _write(self, parts: Sequence[tuple[Place, Segment]]) -> None:
        link = await self._connect()
        work = partial(write_segments, segments=parts, now=self._clock.now(len(parts)))
        await link.do(work, is_one_statement=True)

    def _report_renewal(self) -> None:
        if self.on_renewal is not None:
            self.on_renewal()
