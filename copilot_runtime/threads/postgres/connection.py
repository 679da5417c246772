"""Connections to PostgreSQL that come back when the server does."""

import asyncio
import contextlib
import importlib
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from urllib.parse import urlsplit

from copilot_runtime.errors import CopilotError, MissingPackage, StoreFailed
from copilot_runtime.threads.postgres.schema import LOCKS, prepare
from copilot_runtime.threads.postgres.transaction import PostgresTransaction

T = TypeVar("T")

logger = logging.getLogger("copilot_runtime.threads")

_PATIENCE = 10.0
"""Seconds to try again while the database cannot be reached."""

_KEEP_ALIVE = {
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
}
"""How soon the database notices that a server's whole machine is gone, in seconds and times."""

_TRANSIENT_ERRORS = (
    "PostgresConnectionError",  # the connection broke
    "OperatorInterventionError",  # the server stops or starts
    "TooManyConnectionsError",
    "TransactionRollbackError",  # a deadlock, for instance
    "ForeignKeyViolationError",  # the thread was deleted between two statements
)


class Link:
    """A pool, and one connection whose lock shows the other servers that this one is alive."""

    def __init__(self, url: str, connections: int) -> None:
        self._url = url
        self._connections = connections
        self._asyncpg = _asyncpg()
        self._transient_errors: tuple[type[Exception], ...] = tuple(
            getattr(self._asyncpg, name) for name in _TRANSIENT_ERRORS
        )
        self._pool: Any = None
        self._lock_holder: Any = None
        self._restoring: asyncio.Task[None] | None = None
        self.server = 0

    async def open(self) -> None:
        """Connect, make the tables, and take this server's number and lock."""

        async def connect() -> None:
            self._pool = self._pool or await self._asyncpg.create_pool(
                self._url, min_size=1, max_size=self._connections
            )
            async with self._pool.acquire() as connection:
                await prepare(connection)
            # at random, because the locks of all programs in a database are in one space
            self.server = random.randint(1, 2**31 - 1)  # noqa: S311  # no secret
            await self._hold_lock()

        try:
            await self._retry(connect)
        except BaseException:
            await self.close()
            raise

    async def do(
        self, work: Callable[[PostgresTransaction], Awaitable[T]], *, reading: bool = False
    ) -> T:
        """Do work in a transaction, again if the database went away: it must bear a second time.

        When `reading`, all statements see the database as it was at one moment.
        """
        options = {"isolation": "repeatable_read", "readonly": True} if reading else {}

        async def attempt() -> T:
            async with self._pool.acquire() as connection, connection.transaction(**options):
                return await work(PostgresTransaction(connection, self.server))

        return await self._retry(attempt)

    async def close(self) -> None:
        if self._restoring:
            self._restoring.cancel()
            await asyncio.wait([self._restoring])
        holder, self._lock_holder = self._lock_holder, None
        if holder is not None and not holder.is_closed():
            with contextlib.suppress(OSError, TimeoutError, *self._errors()):
                # the database takes a moment to notice the end of a connection
                await holder.execute("SELECT pg_advisory_unlock_all()", timeout=5)
                await holder.close(timeout=5)
        if self._pool is not None:
            self._pool.terminate()

    async def _hold_lock(self) -> None:
        holder = await self._asyncpg.connect(self._url, server_settings=_KEEP_ALIVE)
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
            except (OSError, TimeoutError, self._asyncpg.PostgresError) as error:
                logger.warning("%s cannot be reached: %s", self._address(), error)
                await asyncio.sleep(random.uniform(0.5, 1.5))  # noqa: S311  # no secret

    async def _retry(self, attempt: Callable[[], Awaitable[T]]) -> T:
        pause = 0.05
        give_up = asyncio.get_running_loop().time() + _PATIENCE
        while True:
            try:
                return await attempt()
            except (OSError, TimeoutError, *self._errors()) as error:
                if not self._is_transient(error) or asyncio.get_running_loop().time() > give_up:
                    raise self._failure(error) from error
            await asyncio.sleep(pause)
            pause = min(2 * pause, 1)

    def _errors(self) -> tuple[type[Exception], ...]:
        return (self._asyncpg.PostgresError, self._asyncpg.InterfaceError)

    def _is_transient(self, error: Exception) -> bool:
        if isinstance(error, self._asyncpg.InterfaceError):
            return "closed" in str(error)  # the connection broke while it waited in the pool
        return isinstance(error, (OSError, TimeoutError, *self._transient_errors))

    def _failure(self, error: Exception) -> CopilotError:
        return StoreFailed(
            f"{self._address()} cannot be used: {error or type(error).__name__}",
            hint="See whether it runs, and whether address, user and password are right.",
            public="The threads cannot be used: their database does not answer, or refuses.",
        )

    def _address(self) -> str:
        """Name the database without its password."""
        parts = urlsplit(self._url)
        return f"PostgreSQL ({parts.hostname or 'this machine'}{parts.path})"


def _asyncpg() -> Any:
    try:
        return importlib.import_module("asyncpg")
    except ModuleNotFoundError as error:
        raise MissingPackage("The store of threads in PostgreSQL", "asyncpg", "postgres") from error
