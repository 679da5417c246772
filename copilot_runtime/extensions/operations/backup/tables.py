"""Backup of tables that exist only in SQLite, such as events and traces, row by row."""

import sqlite3
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from copilot_runtime.database.sqlite.file import build_failure
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
from copilot_runtime.extensions.operations.database import open_file


class TableSource(BackupSource):
    """Tables of one file, which counts as empty without a row in the first of them.

    `make_file` creates, migrates and opens the file for writing.
    """

    def __init__(
        self,
        name: str,
        path: Path,
        tables: Sequence[str],
        make_file: Callable[[Path], sqlite3.Connection],
    ) -> None:
        self.name = name
        self.address = f"sqlite:{path}"
        self._path = path
        self._tables = tables
        self._make_file = make_file

    def identify(self) -> str:
        return compute_identity("sqlite", self._path)

    def is_there(self) -> bool:
        return self._path.exists()

    @asynccontextmanager
    async def snapshot(self) -> AsyncGenerator[Snapshot, None]:
        with self._explain():
            self._make_file(self._path).close()
            with open_file(self._path, is_read=True) as connection:
                yield _TableSnapshot(connection, self._tables)

    @asynccontextmanager
    async def replace(self) -> AsyncGenerator[Replacement, None]:
        with self._explain():
            self._make_file(self._path).close()
            with open_file(self._path) as connection:
                columns = {table: _list_columns(connection, table) for table in self._tables}
                yield _TableReplacement(connection, columns)

    @contextmanager
    def _explain(self) -> Generator[None, None, None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise build_failure(self._path, error, content=self.name) from error


class _TableSnapshot(Snapshot):
    def __init__(self, connection: sqlite3.Connection, tables: Sequence[str]) -> None:
        self._connection = connection
        self._tables = tables

    async def count(self) -> int:
        return sum(
            self._connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608  # ours
            for table in self._tables
        )

    async def read(self) -> AsyncGenerator[Record, None]:
        for table in self._tables:
            columns = _list_columns(self._connection, table)
            for values in self._connection.execute(f"SELECT {', '.join(columns)} FROM {table}"):  # noqa: S608  # ours
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
