"""Connections to one database of PostgreSQL that come back when it does."""

import asyncio
import importlib
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from urllib.parse import urlsplit

from copilot_runtime.errors import CopilotError, MissingPackage, StoreFailed

T = TypeVar("T")

_PATIENCE = 10.0
"""Seconds to try again while the database cannot be reached."""

_KEEP_ALIVE = {
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
}
"""How soon the database notices that a server's whole machine is gone, in seconds and times."""

_TRANSIENT_ERRORS = (
    "InternalClientError",  # the connection broke while asyncpg was about to use it
    "PostgresConnectionError",  # the connection broke
    "OperatorInterventionError",  # the server stops or starts
    "TooManyConnectionsError",
    "TransactionRollbackError",  # a deadlock, for instance
    "ForeignKeyViolationError",  # the thread was deleted between two statements
)


class Pool:
    """A pool of connections, and what is done when one of them breaks.

    Args:
        url: Address of the database, with user and password.
        connections: Most connections at once.
        content: What is kept there, for messages: "threads", for instance.
        timeout: Seconds that a statement may take; None for any time.
    """

    def __init__(
        self,
        url: str,
        connections: int,
        *,
        content: str = "threads",
        timeout: float | None = None,
    ) -> None:
        self._url = url
        self._timeout = timeout
        self._connections = connections
        self._content = content
        self._asyncpg = _import_asyncpg(content)
        self._transient_errors: tuple[type[Exception], ...] = tuple(
            getattr(self._asyncpg, name) for name in _TRANSIENT_ERRORS
        )
        self._pool: Any = None

    async def open(self, prepare: Callable[[Any], Awaitable[None]]) -> None:
        """Connect, and have a connection prepare the tables. Call it in what is retried."""
        self._pool = self._pool or await self._asyncpg.create_pool(
            self._url,
            min_size=1,
            max_size=self._connections,
            command_timeout=self._timeout,
        )
        async with self._pool.acquire() as connection:
            await prepare(connection)

    async def connect(self) -> Any:
        """Return a connection beside the pool, whose end the database notices soon."""
        return await self._asyncpg.connect(self._url, server_settings=_KEEP_ALIVE)

    async def execute(self, work: Callable[[Any], Awaitable[T]]) -> T:
        """Do work whose statements are a transaction each, as `do` does."""

        async def attempt() -> T:
            async with self._pool.acquire() as connection:
                return await work(connection)

        return await self.retry(attempt)

    async def do(self, work: Callable[[Any], Awaitable[T]], *, reading: bool = False) -> T:
        """Do work in a transaction, again if the database went away: it must bear a second time.

        When `reading`, all statements see the database as it was at one moment.
        """
        options = {"isolation": "repeatable_read", "readonly": True} if reading else {}

        async def attempt() -> T:
            async with self._pool.acquire() as connection, connection.transaction(**options):
                return await work(connection)

        return await self.retry(attempt)

    async def retry(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Attempt something until it succeeds, for some seconds. Raises `StoreFailed`."""
        pause = 0.05
        give_up = asyncio.get_running_loop().time() + _PATIENCE
        while True:
            try:
                return await attempt()
            except self.errors as error:
                if not self._is_transient(error) or asyncio.get_running_loop().time() > give_up:
                    raise self.build_failure(error) from error
            await asyncio.sleep(pause)
            pause = min(2 * pause, 1)

    def close(self) -> None:
        """Drop all connections at once."""
        if self._pool is not None:
            self._pool.terminate()

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """What statements and connections raise."""
        asyncpg = self._asyncpg
        return (
            OSError,
            TimeoutError,
            asyncpg.PostgresError,
            asyncpg.InterfaceError,
            asyncpg.InternalClientError,
        )

    @property
    def address(self) -> str:
        """The name of the database, without its password."""
        parts = urlsplit(self._url)
        return f"PostgreSQL ({parts.hostname or 'this machine'}{parts.path})"

    def _is_transient(self, error: Exception) -> bool:
        if isinstance(error, self._asyncpg.InterfaceError):
            return "closed" in str(error)  # the connection broke while it waited in the pool
        return isinstance(error, (OSError, TimeoutError, *self._transient_errors))

    def build_failure(self, error: Exception) -> CopilotError:
        """Return what to raise for an error of the database."""
        return StoreFailed(
            f"{self.address} cannot be used: {error or type(error).__name__}",
            hint="See whether it runs, and whether address, user and password are right.",
            public=f"The {self._content} cannot be used: their database does not answer, or "
            "refuses.",
        )


def _import_asyncpg(content: str) -> Any:
    try:
        return importlib.import_module("asyncpg")
    except ModuleNotFoundError as error:
        raise MissingPackage(
            f"The store of {content} in PostgreSQL", "asyncpg", "postgres"
        ) from error
