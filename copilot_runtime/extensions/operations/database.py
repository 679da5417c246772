"""Databases as operators use them: as they are at one moment, or changed as a whole."""

import sqlite3
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from copilot_runtime.base.errors import CopilotError
from copilot_runtime.database.postgres.pool import Pool, is_read_only
from copilot_runtime.database.sqlite.file import build_failure
from copilot_runtime.extensions.operations.connection_watch import ConnectionWatch
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
