"""A PostgreSQL connection pool that reconnects after a restart of the database."""

import asyncio
import importlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import urlsplit

from copilot_runtime.base.errors import (
    CopilotError,
    MissingPackage,
    Misuse,
    StoreFailed,
    StoreReadOnly,
)
from copilot_runtime.base.outages import Outage

T = TypeVar("T")

_PATIENCE = 10.0
"""Seconds for which operations are retried while the database is unreachable."""

_CONNECT_TIMEOUT = 5.0
"""Timeout of a connection attempt in seconds, so that `_PATIENCE` allows two attempts."""

_FIRST_ANSWER_TIMEOUT = 5.0
"""Timeout in seconds of the first query on a new connection, which is trivial."""

_FAREWELL = 1.0
"""Seconds that the database has to end a cancelled statement."""

_KEEP_ALIVE = {
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
}
"""TCP keep-alive in seconds and counts: how soon the database notices a vanished machine."""

_IDLE = {"idle_in_transaction_session_timeout": "5000"}
"""Milliseconds after which the database ends an idle transaction.

Otherwise a machine that hangs or vanishes would hold its locks for hours, and no other server
could end its runs.
"""

_OUTAGE_ERRORS = (
    "InternalClientError",  # the connection broke while asyncpg was about to use it
    "PostgresConnectionError",  # the connection broke
    "IdleInTransactionSessionTimeoutError",  # this server hung
    "OperatorInterventionError",  # the server stops or starts
    "TooManyConnectionsError",
)

_CONFLICT_ERRORS = (
    "TransactionRollbackError",  # a deadlock, for instance
    "ForeignKeyViolationError",  # the thread was deleted between two statements
)


_READ_ONLY_HINT = (
    "Name the primary in the address if this is a standby, make room if the disk is full, and see "
    "that default_transaction_read_only is off."
)


class Pool:
    """A connection pool that retries operations if a connection breaks.

    Args:
        url: The URL of the database, with user and password.
        connections: Maximum number of connections.
        content: The noun for the stored data in messages, such as "threads".
        timeout: Timeout of a statement in seconds; `None` for no limit.
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
        self._outage_errors = self._list_errors(_OUTAGE_ERRORS)
        self._conflict_errors = self._list_errors(_CONFLICT_ERRORS)
        self._pool: Any = None
        logger = logging.getLogger("copilot_runtime.database")
        self.outage = Outage(logger, self.address)
        self._read_only = Outage(
            logger, self.address, message="is read-only", recovery="can be written again"
        )

    async def open(self, prepare: Callable[[Any], Awaitable[None]]) -> None:
        """Connect, and create or migrate the tables with `prepare`. Call it within `retry`."""
        self._pool = self._pool or await self._asyncpg.create_pool(
            self._url,
            min_size=0,  # with more, asyncpg logs a traceback each second of an outage
            max_size=self._connections,
            server_settings={**_KEEP_ALIVE, **_IDLE},
            timeout=_CONNECT_TIMEOUT,
            command_timeout=self._timeout,
            reset=_reset_nothing,
        )
        connection = await self.connect()  # outside the pool, without its statement timeout
        try:
            await prepare(connection)
        finally:
            connection.terminate()

    async def connect(self) -> Any:
        """Return a new connection outside the pool, with TCP keep-alive on the database's side.

        It has already answered a query. Raises one of `errors`.
        """
        connection = await self._asyncpg.connect(
            self._url, timeout=_CONNECT_TIMEOUT, server_settings=_KEEP_ALIVE
        )
        try:
            await connection.execute("SELECT 1", timeout=_FIRST_ANSWER_TIMEOUT)
        except TimeoutError:
            connection.terminate()
            raise TimeoutError(
                f"it accepted the login, but no query within {_FIRST_ANSWER_TIMEOUT:g} seconds. It "
                "hangs, or a pooler before it has no connection to spare"
            ) from None
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def execute(self, work: Callable[[Any], Awaitable[T]]) -> T:
        """Execute `work`, each of whose statements is its own transaction; retry like `do`."""

        async def attempt() -> T:
            return await self._lend(work)

        return await self.retry(attempt)

    async def do(self, work: Callable[[Any], Awaitable[T]], *, reading: bool = False) -> T:
        """Execute `work` in a transaction; retry it during an outage, so it must be idempotent.

        With `reading`, all statements see one consistent snapshot.
        """
        options = {"isolation": "repeatable_read", "readonly": True} if reading else {}

        async def attempt() -> T:
            return await self._lend(work, options)

        return await self.retry(attempt)

    async def retry(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Retry `attempt` during an outage, for up to `_PATIENCE` seconds. Raises `StoreFailed`."""
        pause = 0.05
        give_up = asyncio.get_running_loop().time() + _PATIENCE
        while True:
            try:
                result = await attempt()
            except self.errors as error:
                is_outage = self._is_outage(error)
                is_transient = is_outage or isinstance(error, self._conflict_errors)
                if not is_transient or asyncio.get_running_loop().time() > give_up:
                    failure = self.build_failure(error)
                    if isinstance(failure, StoreReadOnly):
                        await self._renew_connections()
                    raise failure from error
                if is_outage:
                    self.outage.begin(self._explain(error))
            else:
                self.outage.end()
                return result
            await asyncio.sleep(pause)
            pause = min(2 * pause, 1)

    async def check_writable(self) -> None:
        """Raise `StoreReadOnly` if transactions cannot write now."""
        if await self.execute(is_read_only):
            await self._renew_connections()
            raise self.build_read_only()

    def note_failure(self, error: Exception) -> None:
        """Log, once, that writing failed: the database is unreachable or read-only."""
        if isinstance(error, (StoreReadOnly, self._asyncpg.ReadOnlySQLTransactionError)):
            self.outage.end()  # it answered
            self._read_only.begin(StoreReadOnly(f"nothing can be stored. {_READ_ONLY_HINT}"))
        else:
            self.outage.begin(self._explain(error))

    def note_write(self) -> None:
        """Log, once, that the database is reachable and writable again."""
        self.outage.end()
        self._read_only.end()

    async def _renew_connections(self) -> None:
        """Replace all pooled connections: new ones may reach a writable database."""
        if self._pool is not None:
            await self._pool.expire_connections()

    async def _lend(
        self, work: Callable[[Any], Awaitable[T]], options: Mapping[str, Any] | None = None
    ) -> T:
        """Execute `work` with a pooled connection; with `options`, in a transaction with these.

        A cancelled statement may continue in the database. Its end is awaited for a short time, so
        that it does not overlap with the next operation; a database that hangs never reports it.
        """
        connection = await self._pool.acquire()
        farewell = _Farewell(connection, self._asyncpg.InterfaceError)
        try:
            with farewell:
                if options is None:
                    return await work(connection)
                async with connection.transaction(**options):
                    with farewell:
                        return await work(connection)
        finally:
            try:
                await self._pool.release(connection)
            except BaseException:
                farewell.drop()
                raise
            finally:
                farewell.end()

    def close(self) -> None:
        """Drop all connections at once."""
        if self._pool is not None:
            self._pool.terminate()

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """The exceptions of statements and connections."""
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
        """The database's name for messages: without the password, and without the port 5432."""
        parts = urlsplit(self._url)
        host = parts.netloc.rpartition("@")[2].removesuffix(":5432")
        where = "this machine" if not host or host.startswith(":") else ""
        return f"PostgreSQL ({where}{host}{parts.path})"

    def _explain(self, error: Exception) -> Exception:
        """Return an error with a readable message."""
        if isinstance(error, TimeoutError) and not str(error):
            return TimeoutError("it does not answer in time")
        if isinstance(error, self._asyncpg.InternalClientError):
            # the database sent the reason unprompted, and asyncpg discards it
            return ConnectionError(
                "it ended a connection. Its own log says why; idle in a transaction means that "
                "this process hung"
            )
        return error

    def _is_outage(self, error: Exception) -> bool:
        if isinstance(error, self._asyncpg.InterfaceError):
            return "closed" in str(error)  # the connection broke while it waited in the pool
        return isinstance(error, (OSError, TimeoutError, *self._outage_errors))

    def _list_errors(self, names: Sequence[str]) -> tuple[type[Exception], ...]:
        return tuple(getattr(self._asyncpg, name) for name in names)

    def build_failure(self, error: Exception) -> CopilotError:
        """Return the `CopilotError` for a database error."""
        if isinstance(error, self._asyncpg.ReadOnlySQLTransactionError):
            return self.build_read_only()
        if _is_wrong_text(error, self._asyncpg):
            return Misuse(
                "A text contains U+0000 or a lone surrogate.",
                hint="Send it without them.",
            )
        reason = str(self._explain(error)).rstrip(".") or type(error).__name__
        return StoreFailed(
            f"{self.address} cannot be used: {reason}.",
            hint="See whether it runs, and whether address, user and password are right.",
            public=f"The {self._content} cannot be used: their database does not answer, or "
            "refuses.",
        )

    def build_read_only(self) -> StoreReadOnly:
        """Return the `CopilotError` for a read-only database."""
        return StoreReadOnly(
            f"{self.address} is read-only: nothing can be stored.",
            hint=_READ_ONLY_HINT,
            public=f"The {self._content} cannot be used: their database is read-only now.",
        )


class _Farewell:
    """Drops a connection if the database does not soon confirm the end of a cancelled statement."""

    def __init__(self, connection: Any, closed_error: type[Exception]) -> None:
        self._connection = connection
        self._closed_error = closed_error
        self._timer: asyncio.TimerHandle | None = None
        self._cancelled: BaseException | None = None

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, asyncio.CancelledError):
            self._cancelled = error
        elif self._cancelled is not None:  # the end of the transaction found the connection gone
            raise self._cancelled from error
        if self._timer is None and isinstance(error, (asyncio.CancelledError, TimeoutError)):
            self._timer = asyncio.get_running_loop().call_later(_FAREWELL, self.drop)

    def drop(self) -> None:
        with suppress(self._closed_error):  # it is in the pool again
            self._connection.terminate()

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def _is_wrong_text(error: Exception, asyncpg: Any) -> bool:
    """Return whether PostgreSQL or its encoding cannot represent a text."""
    return isinstance(error, asyncpg.CharacterNotInRepertoireError) or (
        isinstance(error, asyncpg.DataError) and isinstance(error.__cause__, UnicodeEncodeError)
    )


async def is_read_only(connection: Any) -> bool:
    """Return whether transactions of a connection are read-only, as on a standby."""
    return await connection.fetchval("SELECT current_setting('transaction_read_only') = 'on'")


async def _reset_nothing(connection: Any) -> None:
    """Skip asyncpg's session reset: it costs as much as a short query, and no work needs it."""
    del connection


def _import_asyncpg(content: str) -> Any:
    try:
        return importlib.import_module("asyncpg")
    except ModuleNotFoundError as error:
        raise MissingPackage(
            f"The store of {content} in PostgreSQL", "asyncpg", "postgres"
        ) from error
