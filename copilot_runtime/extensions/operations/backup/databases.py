"""Backup of stores in databases, row by row: API keys, and tables that exist only in SQLite."""

import sqlite3
from abc import abstractmethod
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, ClassVar
from urllib.parse import parse_qsl, urlsplit

from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.database.server_locks import remove_stale_locks
from copilot_runtime.database.sqlite.file import build_failure
from copilot_runtime.extensions.access.api_keys.key import COLUMNS, decode_key
from copilot_runtime.extensions.operations.backup.record import (
    DamagedRecord,
    PackedRecord,
    Record,
    Row,
)
from copilot_runtime.extensions.operations.backup.source import (
    BackupSource,
    Replacement,
    Snapshot,
    compute_identity,
)
from copilot_runtime.extensions.operations.places import (
    open_file,
    open_snapshot,
    open_transaction,
)
from copilot_runtime.extensions.operations.schemas import Schema
from copilot_runtime.threads.transactions import Transaction

_KEYS = "copilot_api_keys"


class DatabaseSource(BackupSource):
    """A store in a SQLite file or a PostgreSQL database."""

    def __init__(self, schema: Schema) -> None:
        self.name = schema.place.content
        self.address = schema.place.describe()
        self._schema = schema
        self._place = schema.place

    def identify(self) -> str:
        if self._place.path is not None:
            return compute_identity("sqlite", self._place.path)
        parts = urlsplit(self._place.url)
        query = [
            pair for pair in parse_qsl(parts.query) if pair[0] in ("host", "port", "search_path")
        ]
        return compute_identity(f"postgres:{parts.hostname}:{parts.port}{parts.path}?{query}")

    def is_there(self) -> bool:
        return self._place.is_there()


class TransactionSource(DatabaseSource):
    """A store whose transactions are the same in SQLite and in PostgreSQL."""

    locks: ClassVar[int | None] = None
    """The class of PostgreSQL's locks of servers, or `None` if they may go on meanwhile."""

    @asynccontextmanager
    async def snapshot(self) -> AsyncGenerator[Snapshot, None]:
        await self._schema.make_tables()
        async with open_snapshot(self._place) as db:
            yield await self._take_snapshot(db)

    @asynccontextmanager
    async def replace(self) -> AsyncGenerator[Replacement, None]:
        await self._schema.make_tables()
        if self.locks is not None and self._place.path is not None:
            remove_stale_locks(self._place.path)
        async with open_transaction(self._place) as db:
            if self.locks is not None and not self._place.is_sqlite:
                # starting servers wait for the end: it is the lock of their migrations
                await db.fetch("SELECT pg_advisory_xact_lock(?, 0)", self.locks)
            if await self._has_servers(db):
                raise ConfigurationFailed(
                    f"Servers use {self.address}.",
                    hint="Stop them first: they would continue with cached data.",
                )
            yield self._build_replacement(db)

    async def _has_servers(self, db: Transaction) -> bool:
        """Return `True` if servers use the store, which then cannot be replaced."""
        del db
        return False

    @abstractmethod
    async def _take_snapshot(self, db: Transaction) -> Snapshot: ...

    @abstractmethod
    def _build_replacement(self, db: Transaction) -> Replacement: ...


class DatabaseReplacement(Replacement):
    """A replacement in a transaction. Of `tables`, the last one is the one that others refer to."""

    tables: Sequence[str]

    def __init__(self, db: Transaction) -> None:
        self._db = db

    async def is_empty(self) -> bool:
        return not await self._db.fetch(f"SELECT 1 FROM {self.tables[-1]} LIMIT 1")  # noqa: S608  # ours

    async def clear(self) -> None:
        # delete dependent tables explicitly: a SQLite file may be open without foreign keys
        for table in self.tables:
            await self._db.execute(f"DELETE FROM {table}")  # noqa: S608  # ours


async def count_rows(db: Transaction, *tables: str) -> int:
    """Return the number of all rows of some tables."""
    counts = [await db.fetch(f"SELECT count(*) FROM {table}") for table in tables]  # noqa: S608  # ours
    return sum(int(rows[0][0]) for rows in counts)


class KeySource(TransactionSource):
    """API keys, of which only hashes are kept, between SQLite and PostgreSQL."""

    async def _take_snapshot(self, db: Transaction) -> Snapshot:
        return Snapshot(await count_rows(db, _KEYS), _read_keys(db))

    def _build_replacement(self, db: Transaction) -> Replacement:
        return _KeyReplacement(db)


async def _read_keys(db: Transaction) -> AsyncGenerator[Record, None]:
    for values in await db.fetch(f"SELECT {', '.join(COLUMNS)} FROM {_KEYS} ORDER BY id"):  # noqa: S608  # ours
        yield Row("key", dict(zip(COLUMNS, values, strict=True)))


def _check_key(values: Sequence[Any]) -> None:
    """Raise `DamagedRecord` for a row of which no server could make a key."""
    try:
        key = decode_key(values)
    except (ValueError, TypeError) as error:
        raise DamagedRecord("a key cannot be read") from error
    names = (*key.roles, *(key.scopes or ()))
    if not all(isinstance(name, str) for name in names):  # pyright: ignore[reportUnnecessaryIsInstance]  # of JSON
        raise DamagedRecord("a role or a scope of a key is no text")


class _KeyReplacement(DatabaseReplacement):
    tables = (_KEYS,)

    async def add(self, record: PackedRecord) -> None:
        if not isinstance(record, Row) or record.table != "key":
            raise DamagedRecord("a record of keys is none")
        row = record
        values = (
            *(row.text("id"), row.text("name"), row.text("user_id"), row.text("tenant")),
            *(row.text("roles"), row.optional_text("scopes"), row.time("created_at")),
            *(row.optional_time("expires_at"), row.optional_time("revoked_at")),
            *(row.optional_time("used_at"), row.data("salt"), row.data("hash")),
        )
        _check_key(values)
        marks = ", ".join("?" * len(COLUMNS))
        added = await self._db.execute(
            f"INSERT INTO {_KEYS} VALUES ({marks}) ON CONFLICT DO NOTHING",  # noqa: S608  # ours
            *values,
        )
        if not added:
            raise DamagedRecord("a key is there twice")


class TableSource(DatabaseSource):
    """Tables of a SQLite file, which counts as empty without a row in the first of them."""

    def __init__(self, schema: Schema, tables: Sequence[str]) -> None:
        super().__init__(schema)
        self._tables = tables

    @asynccontextmanager
    async def snapshot(self) -> AsyncGenerator[Snapshot, None]:
        with self._open(is_read=True) as connection:
            count = sum(
                connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608  # ours
                for table in self._tables
            )
            yield Snapshot(count, _read_tables(connection, self._tables))

    @asynccontextmanager
    async def replace(self) -> AsyncGenerator[Replacement, None]:
        with self._open() as connection:
            columns = {table: _list_columns(connection, table) for table in self._tables}
            yield _TableReplacement(connection, columns)

    @contextmanager
    def _open(self, *, is_read: bool = False) -> Generator[sqlite3.Connection, None, None]:
        path = self._place.path
        assert path is not None
        try:
            self._schema.make_file(path).close()
            with open_file(path, is_read=is_read) as connection:
                yield connection
        except (sqlite3.Error, OSError) as error:
            raise build_failure(path, error, content=self.name) from error


async def _read_tables(
    connection: sqlite3.Connection, tables: Sequence[str]
) -> AsyncGenerator[Record, None]:
    for table in tables:
        columns = _list_columns(connection, table)
        for values in connection.execute(f"SELECT {', '.join(columns)} FROM {table}"):  # noqa: S608  # ours
            yield Row(table, dict(zip(columns, values, strict=True)))


class _TableReplacement(Replacement):
    def __init__(
        self, connection: sqlite3.Connection, columns: Mapping[str, Sequence[str]]
    ) -> None:
        self._connection = connection
        self._columns = columns
        self._empty_tables: set[str] = set()

    async def is_empty(self) -> bool:
        first = next(iter(self._columns))
        return not self._connection.execute(f"SELECT 1 FROM {first} LIMIT 1").fetchall()  # noqa: S608  # ours

    async def clear(self) -> None:
        for table in self._columns:
            self._clear(table)

    async def add(self, record: PackedRecord) -> None:
        if not isinstance(record, Row) or not (columns := self._columns.get(record.table)):
            raise DamagedRecord("a record of tables is none")
        if unknown := record.values.keys() - {*columns}:
            raise DamagedRecord(f"{record.table} has no column {min(unknown)[:50]!r}")
        self._clear(record.table)  # a new file has initial rows, such as the id of a log
        marks = ", ".join("?" * len(record.values))
        names = ", ".join(record.values)
        try:
            self._connection.execute(
                f"INSERT INTO {record.table} ({names}) VALUES ({marks})",  # noqa: S608  # there are such columns
                [*record.values.values()],
            )
        except (sqlite3.IntegrityError, sqlite3.ProgrammingError, OverflowError) as error:
            raise DamagedRecord(f"a row of {record.table}: {error}") from error

    def _clear(self, table: str) -> None:
        if table not in self._empty_tables:
            self._empty_tables.add(table)
            self._connection.execute(f"DELETE FROM {table}")  # noqa: S608  # ours


def _list_columns(connection: sqlite3.Connection, table: str) -> Sequence[str]:
    rows = connection.execute("SELECT name FROM pragma_table_info(?)", (table,))
    return [name for (name,) in rows]
