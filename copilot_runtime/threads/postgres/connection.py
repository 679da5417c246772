"""A database of threads: its connections, and the lock that shows that this server is alive."""

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from copilot_runtime.threads.postgres.pool import Pool
from copilot_runtime.threads.postgres.schema import LOCKS, prepare
from copilot_runtime.threads.postgres.transaction import PostgresTransaction

T = TypeVar("T")

logger = logging.getLogger("copilot_runtime.threads")


class Link:
    """A pool, and one connection whose lock shows the other servers that this one is alive."""

    def __init__(self, url: str, connections: int) -> None:
        self._pool = Pool(url, connections)
        self._lock_holder: Any = None
        self._restoring: asyncio.Task[None] | None = None
        self.server = 0

    async def open(self) -> None:
        """Connect, make the tables, and take this server's number and lock."""

        async def connect() -> None:
            await self._pool.open(prepare)
            # at random, because the locks of all programs in a database are in one space
            self.server = random.randint(1, 2**31 - 1)  # noqa: S311  # no secret
            await self._hold_lock()

        try:
            await self._pool.retry(connect)
        except BaseException:
            await self.close()
            raise

    async def do(
        self, work: Callable[[PostgresTransaction], Awaitable[T]], *, reading: bool = False
    ) -> T:
        """Do work in a transaction, as a pool does."""
        return await self._pool.do(
            lambda connection: work(PostgresTransaction(connection, self.server)), reading=reading
        )

    async def close(self) -> None:
        if self._restoring:
            self._restoring.cancel()
            await asyncio.wait([self._restoring])
        holder, self._lock_holder = self._lock_holder, None
        if holder is not None and not holder.is_closed():
            with contextlib.suppress(*self._pool.errors):
                # the database takes a moment to notice the end of a connection
                await holder.execute("SELECT pg_advisory_unlock_all()", timeout=5)
                await holder.close(timeout=5)
        self._pool.close()

    async def _hold_lock(self) -> None:
        holder = await self._pool.connect()
        await holder.execute("SELECT pg_advisory_lock($1, $2)", LOCKS, self.server)
        self._lock_holder = holder
        holder.add_termination_listener(self._on_termination)

    def _on_termination(self, holder: Any) -> None:
        """Come back as soon as the database does: others might take this server for dead."""
        if holder is self._lock_holder:
            self._restoring = asyncio.get_running_loop().create_task(self._restore_lock())

    async def _restore_lock(self) -> None:
        while True:
            try:
                return await self._hold_lock()
            except self._pool.errors as error:
                logger.warning("%s cannot be reached: %s", self._pool.address, error)
                await asyncio.sleep(random.uniform(0.5, 1.5))  # noqa: S311  # no secret
