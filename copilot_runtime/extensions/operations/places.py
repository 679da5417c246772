"""The locations of a server's stores, and their opening as a snapshot or in one transaction."""

import asyncio
import socket
import sqlite3
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from copilot_runtime.base.errors import ConfigurationFailed, CopilotError, StoreFailed
from copilot_runtime.database.postgres.pool import Pool, is_read_only
from copilot_runtime.database.sqlite.file import build_failure
from copilot_runtime.extensions.access.api_keys.store import choose_address
from copilot_runtime.extensions.events.extension import choose_event_store, find_event_file
from copilot_runtime.extensions.settings import Settings
from copilot_runtime.extensions.tracing.extension import find_trace_place
from copilot_runtime.threads.postgres.transaction import PostgresTransaction
from copilot_runtime.threads.sqlite.transaction import SqliteTransaction
from copilot_runtime.threads.transactions import Transaction
from copilot_runtime.threads.url import build_store

_PATIENCE = 5.0
"""Seconds to wait for a server that locks a SQLite file."""


@dataclass(frozen=True, slots=True)
class Place:
    """The location of a store: a SQLite file or a PostgreSQL database."""

    content: str
    """The name of the content for messages, such as "threads"."""
    path: Path | None = None
    url: str = ""

    @property
    def is_sqlite(self) -> bool:
        return self.path is not None

    def describe(self) -> str:
        """Return the address without a password."""
        return f"sqlite:{self.path}" if self.path is not None else Pool(self.url, 1).address

    def is_there(self) -> bool:
        """Return `False` if the file does not exist; a database is not checked."""
        return self.path is None or self.path.exists()


@asynccontextmanager
async def open_snapshot(place: Place) -> AsyncGenerator[Transaction, None]:
    """Open a consistent snapshot of a database, while servers may continue to write.

    Raises `StoreFailed`, or `ConfigurationFailed` if it is not a database.
    """
    async with explain_errors(place):
        if place.path is not None:
            with open_file(place.path, is_read=True) as connection:
                yield SqliteTransaction(connection, place.path, "")
            return
        moment = {"isolation": "repeatable_read", "readonly": True}
        async with _connect(place) as connection, connection.transaction(**moment):
            await connection.execute("SELECT 1")  # the first statement takes the snapshot
            yield PostgresTransaction(connection, 0)


@asynccontextmanager
async def open_transaction(
    place: Place, prepare: Callable[[Any], Awaitable[None]] | None = None
) -> AsyncGenerator[Transaction, None]:
    """Open a transaction, which is committed when the block ends, or rolled back if it raises.

    `prepare` creates the tables of PostgreSQL. Raises as `open_snapshot` does.
    """
    async with explain_errors(place):
        if place.path is not None:
            with open_file(place.path) as connection:
                yield SqliteTransaction(connection, place.path, "")
            return
        async with _connect(place) as connection:
            if prepare is not None:
                await prepare(connection)
            async with connection.transaction():
                yield PostgresTransaction(connection, 0)


async def check_writable(place: Place) -> None:
    """Raise `StoreReadOnly` if a PostgreSQL database is read-only, or as `open_snapshot` does."""
    async with explain_errors(place), _connect(place) as connection:
        if await is_read_only(connection):
            raise Pool(place.url, 1, content=place.content).build_read_only()


@contextmanager
def open_file(path: Path, *, is_read: bool = False) -> Generator[sqlite3.Connection, None, None]:
    """Open a SQLite file in a transaction, which is rolled back if the block raises."""
    connection = sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None)
    with closing(connection):
        connection.execute("BEGIN" if is_read else "BEGIN IMMEDIATE")
        # a read transaction starts with its first statement
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        try:
            yield connection
        except BaseException:
            if connection.in_transaction:  # SQLite has undone it by itself if the disk is full
                with suppress(sqlite3.Error):  # an error here is irrelevant
                    connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")


@asynccontextmanager
async def _connect(place: Place) -> AsyncGenerator[Any, None]:
    pool = Pool(place.url, 1, content=place.content)
    connection = await pool.connect()
    watch = ConnectionWatch(connection)
    try:
        async with watch.hold():
            yield connection
    except pool.errors as error:
        if watch.is_silent:
            raise watch.build_failure(pool.address) from error
        raise
    finally:
        connection.terminate()


@asynccontextmanager
async def explain_errors(place: Place) -> AsyncGenerator[None, None]:
    """Convert errors of the database into ours, which name the file or the database."""
    if place.path is not None:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise build_failure(place.path, error, content=place.content) from error
        return
    pool = Pool(place.url, 1, content=place.content)
    try:
        yield
    except CopilotError:
        raise
    except pool.errors as error:
        raise pool.build_failure(error) from error


_INTERVAL = 10.0
"""Seconds without a finished statement between probes of the database."""

_ANSWER_TIMEOUT = 5.0

_MOST_SILENT = 3
"""Consecutive failed probes after which the connection is terminated."""

_QUESTION = b"\0\0\0\x08\x04\xd2\x16\x30"
"""A GSSENCRequest message: its length, and 80877104. PostgreSQL and poolers answer it before any
login, even without a free session."""


class ConnectionWatch:
    """Terminates an asyncpg connection if its database hangs, so that pending statements fail.

    A slow statement and a hanging database look the same on the connection itself. So the database
    is probed on a second connection.
    """

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._address: tuple[str, int] | str = connection._addr  # asyncpg has no other name for it
        self._has_news = False
        self.is_silent = False
        """`True` if the connection was terminated because the database did not answer."""

    @asynccontextmanager
    async def hold(self) -> AsyncGenerator[None]:
        """Watch the connection within a block."""
        self._connection.add_query_logger(self._note_statement)
        task = asyncio.create_task(self._watch(), name="watch a connection")
        try:
            yield
        finally:
            task.cancel()

    def build_failure(self, address: str) -> StoreFailed:
        """Return the error for a database that hangs; `address` is its name in the message."""
        return StoreFailed(
            f"{address} cannot be used: it went silent in the middle, and was given up.",
            hint="See whether it, its machine and any pooler before it still run, and begin anew.",
        )

    def _note_statement(self, _: Any) -> None:
        self._has_news = True

    async def _watch(self) -> None:
        silent = 0
        while silent < _MOST_SILENT:
            self._has_news = False
            await asyncio.sleep(_INTERVAL)
            # in a separate thread, as large objects may block the event loop for seconds
            if self._has_news or not await asyncio.to_thread(_is_silent, self._address):
                silent = 0
            else:
                silent += 1
        self.is_silent = True
        self._connection.terminate()


def _is_silent(address: tuple[str, int] | str) -> bool:
    """Return `True` if a database does not answer: at a host and port, or a socket's path."""
    try:
        with closing(_open(address)) as link:
            link.sendall(_QUESTION)
            link.recv(1)
    except (ConnectionError, socket.gaierror):  # the host refuses, or name resolution fails
        return False
    except OSError:
        return True
    return False


def _open(address: tuple[str, int] | str) -> socket.socket:
    if isinstance(address, tuple):
        return socket.create_connection(address, _ANSWER_TIMEOUT)
    link = socket.socket(socket.AF_UNIX)
    try:
        link.settimeout(_ANSWER_TIMEOUT)
        link.connect(address)
    except BaseException:
        link.close()
        raise
    return link


def find_threads(settings: Settings) -> Place | None:
    """Return the location of threads, or `None` in memory.

    Raises `ConfigurationFailed` for a store of a plugin.
    """
    if settings.threads.partition(":")[0] == "memory":
        return None
    store = build_store(settings.threads)
    if store.shared_file is not None:
        return Place("threads", store.shared_file)
    if store.shared_url:
        return Place("threads", url=store.shared_url)
    raise ConfigurationFailed(
        f"No backup has threads of {settings.threads.partition(':')[0]!r}, a store of a plugin.",
        hint="Leave them out by --without threads, and take them along by "
        "`copilot-runtime operate threads export`.",
    )


def find_plans(settings: Settings) -> Place | None:
    """Return the location of plans, or `None` in memory."""
    kind, _, rest = settings.planner.store.partition(":")
    if kind == "memory":
        return None
    if kind == "sqlite":
        return Place("plans", Path(rest))
    return Place("plans", url=rest if kind == "dbos" else settings.planner.store)


def find_keys(settings: Settings) -> Place:
    """Return the location of API keys and nonces, which may exist before servers use them."""
    from copilot_runtime.extensions.access.api_keys.sqlite import SqliteKeys
    from copilot_runtime.extensions.access.api_keys.store import build_key_store

    address = choose_address(settings)
    store = build_key_store(address)
    if isinstance(store, SqliteKeys):
        return Place("keys", store.path)
    return Place("keys", url=address)


def list_memory(settings: Settings) -> Sequence[str]:
    """Return the parts of a backup that exist only in the memory of a server."""
    are_in_memory = {
        "threads": settings.threads.partition(":")[0] == "memory",
        "plans": settings.planner.name != "" and settings.planner.store == "memory",
        "events": choose_event_store(settings) == "memory" and find_event_file(settings) is None,
        "traces": find_trace_place(settings)[0] == "memory",
        "knowledge": settings.knowledge.address == "memory",
    }
    return [name for name, is_in_memory in are_in_memory.items() if is_in_memory]


def list_paths(settings: Settings) -> Sequence[Path]:
    """Return the local files and folders that a server writes to."""
    places = (_try_find(find, settings) for find in (find_threads, find_plans, find_keys))
    kind, traces = find_trace_place(settings)
    local, _, folder = settings.knowledge.address.partition("?")[0].partition(":")
    events = find_event_file(settings)
    return [
        *(place.path for place in places if place is not None and place.path is not None),
        *([traces] if kind in ("sqlite", "jsonl") else []),
        *([events] if events else []),
        *([Path(settings.audit.file)] if settings.audit.file else []),
        *([Path(folder)] if local == "local" else []),
    ]


def _try_find(find: Callable[[Settings], Place | None], settings: Settings) -> Place | None:
    """Return a location, or `None` if the setting is invalid, which other checks report."""
    try:
        return find(settings)
    except CopilotError:
        return None
