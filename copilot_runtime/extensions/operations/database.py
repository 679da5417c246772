"""Databases as operators use them: as they are at one moment, or changed as a whole."""

import asyncio
import socket
import sqlite3
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from copilot_runtime.base.errors import CopilotError, StoreFailed
from copilot_runtime.database.postgres.pool import Pool, is_read_only
from copilot_runtime.database.sqlite.file import build_failure
from copilot_runtime.threads.postgres.transaction import PostgresTransaction
from copilot_runtime.threads.sqlite.transaction import SqliteTransaction
from copilot_runtime.threads.transactions import Transaction

_PATIENCE = 5.0
"""Seconds to wait for a server that writes into a file of SQLite."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where something is kept: a file of SQLite, or a database of PostgreSQL."""

    content: str
    """What is kept there, for messages: "threads", for instance."""
    path: Path | None = None
    url: str = ""

    @property
    def is_sqlite(self) -> bool:
        return self.path is not None

    def describe(self) -> str:
        """Return it without a password."""
        return f"sqlite:{self.path}" if self.path is not None else Pool(self.url, 1).address

    def is_there(self) -> bool:
        """Return whether there can be something: no file is made to find out."""
        return self.path is None or self.path.exists()


@asynccontextmanager
async def open_snapshot(place: Place) -> AsyncGenerator[Transaction, None]:
    """Open a database for reading, as it is at this moment, whatever servers write meanwhile.

    Raises `StoreFailed`, or `ConfigurationFailed` for what is no database.
    """
    async with explain_errors(place):
        if place.path is not None:
            with open_file(place.path, is_read=True) as connection:
                yield SqliteTransaction(connection, place.path, "")
            return
        moment = {"isolation": "repeatable_read", "readonly": True}
        async with _connect(place) as connection, connection.transaction(**moment):
            await connection.execute("SELECT 1")  # the moment is that of the first statement
            yield PostgresTransaction(connection, 0)


@asynccontextmanager
async def open_transaction(
    place: Place, prepare: Callable[[Any], Awaitable[None]] | None = None
) -> AsyncGenerator[Transaction, None]:
    """Open a database for writing: all is done when the block ends, or nothing if it raises.

    `prepare` makes the tables of PostgreSQL. Raises as `open_snapshot` does.
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
    """Raise `StoreReadOnly` for a database of PostgreSQL that cannot be written, or as above."""
    async with explain_errors(place), _connect(place) as connection:
        if await is_read_only(connection):
            raise Pool(place.url, 1, content=place.content).build_read_only()


@contextmanager
def open_file(path: Path, *, is_read: bool = False) -> Generator[sqlite3.Connection, None, None]:
    """Open a file of SQLite in a transaction, which is undone if the block raises."""
    connection = sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None)
    with closing(connection):
        connection.execute("BEGIN" if is_read else "BEGIN IMMEDIATE")
        # a transaction that only reads begins with its first look
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        try:
            yield connection
        except BaseException:
            if connection.in_transaction:  # SQLite has undone it by itself if the disk is full
                with suppress(sqlite3.Error):  # which is no cause of anything
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
    """Raise our errors for those of databases: they name the file or the database."""
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
"""Seconds without the end of a statement after which the database is asked."""

_ANSWER_TIMEOUT = 5.0

_MOST_SILENT = 3
"""How often in a row the database may say nothing."""

_QUESTION = b"\0\0\0\x08\x04\xd2\x16\x30"
"""A GSSENCRequest: its length, and 80877104."""


class ConnectionWatch:
    """Ends a connection of asyncpg to a database that is silent: who waits there gets an error."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._address: tuple[str, int] | str = connection._addr  # asyncpg has no other name for it
        self._has_news = False
        self.is_silent = False
        """Whether the database has said nothing for so long that the connection was ended."""

    @asynccontextmanager
    async def hold(self) -> AsyncGenerator[None]:
        """Watch the connection for the length of a block."""
        self._connection.add_query_logger(self._note_statement)
        task = asyncio.create_task(self._watch(), name="watch a connection")
        try:
            yield
        finally:
            task.cancel()

    def build_failure(self, address: str) -> StoreFailed:
        """Return what to raise for a database that is silent; `address` is its name for people."""
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
            # in a thread of its own, as large objects may keep this one busy for seconds
            if self._has_news or not await asyncio.to_thread(_is_silent, self._address):
                silent = 0
            else:
                silent += 1
        self.is_silent = True
        self._connection.terminate()


def _is_silent(address: tuple[str, int] | str) -> bool:
    """Return whether nothing answers at an address: a host with its port, or a socket's path."""
    try:
        with closing(_open(address)) as link:
            link.sendall(_QUESTION)
            link.recv(1)
    except (ConnectionError, socket.gaierror):  # somebody says no, or names are not known now
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
