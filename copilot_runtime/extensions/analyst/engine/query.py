"""A query in a thread: run, fetched up to a limit, and interruptible from other threads."""

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import duckdb

from copilot_runtime.extensions.analyst.engine.copies import read_table
from copilot_runtime.extensions.analyst.engine.datasets import quote_name, quote_text
from copilot_runtime.extensions.analyst.engine.errors import QueryFailed, parse_error
from copilot_runtime.extensions.analyst.engine.options import EngineOptions
from copilot_runtime.extensions.analyst.engine.sandbox import (
    CONFIG,
    Config,
    Sandbox,
    attach_files,
    check_statement,
    lock_connection,
)
from copilot_runtime.extensions.analyst.engine.store import StoredTable
from copilot_runtime.extensions.analyst.results import Column, Table

T = TypeVar("T")

BATCH = 2_000
"""Maximum number of rows per fetch."""
_FIRST_BATCH = 64


class Query:
    """A query on a sandbox. Call `run` in a worker thread; `stop` may be called from any thread."""

    def __init__(self, sandbox: Sandbox, sql: str, limit: int, options: EngineOptions) -> None:
        self._sandbox = sandbox
        self._sql = sql
        self._limit = limit
        self._options = options
        self._lock = threading.Lock()
        self._cursor: duckdb.DuckDBPyConnection | None = None
        self._is_stopped = False

    def run(self) -> Table:
        """Return the rows. Raises `QueryFailed`."""
        return self._work(self._fetch)

    def explain(self) -> None:
        """Bind names and types without running the query. Raises `QueryFailed`."""
        self._work(self._bind)

    def stop(self) -> None:
        """Interrupt the query; it soon raises `QueryFailed`."""
        with self._lock:
            self._is_stopped = True
            if self._cursor is not None:
                self._cursor.interrupt()

    def open(self) -> duckdb.DuckDBPyConnection:
        """Check the statement and return a cursor for it; `close` must follow."""
        if not self._sandbox.lease():
            raise QueryFailed("The engine is closed.")
        try:
            cursor = self._sandbox.open_cursor()
        except BaseException:
            self._sandbox.release()
            raise
        with self._lock:
            self._cursor = cursor
        try:
            check_statement(cursor, self._sql)
            self._check_stop()
        except BaseException:
            self.close()
            raise
        return cursor

    def close(self) -> None:
        """Close the cursor; idempotent."""
        with self._lock:
            cursor, self._cursor = self._cursor, None
        if cursor is not None:
            cursor.close()
            self._sandbox.release()

    def begin(self) -> Sequence[Column]:
        """Start the query and return its columns; `fetch` returns rows, `close` ends it."""
        try:
            cursor = self.open()
            cursor.execute(self._sql)
            return [Column(item[0], str(item[1])) for item in cursor.description or ()]
        except duckdb.Error as error:
            raise parse_error(error) from None

    def fetch(self, count: int) -> Sequence[Sequence[Any]]:
        """Return the next batch of rows, or an empty list at the end."""
        self._check_stop()
        try:
            rows = self._cursor.fetchmany(count) if self._cursor else []
        except duckdb.Error as error:
            raise parse_error(error) from None
        return [cap_cells(row, self._options.max_cell)[0] for row in rows]

    def _work(self, work: Callable[[duckdb.DuckDBPyConnection], T]) -> T:
        try:
            return work(self.open())
        finally:
            self.close()

    def _check_stop(self) -> None:
        if self._is_stopped:
            raise QueryFailed("The query was stopped.")

    def _fetch(self, cursor: duckdb.DuckDBPyConnection) -> Table:
        columns = self._describe(cursor)
        try:
            cursor.execute(_cut_in_sql(self._sql, columns, self._options.max_cell))
            rows, is_truncated = self._fetch_rows(cursor, columns)
        except duckdb.Error as error:
            raise parse_error(error) from None
        total = None if is_truncated else len(rows)
        return Table(columns=columns, rows=rows, total_rows=total, is_truncated=is_truncated)

    def _describe(self, cursor: duckdb.DuckDBPyConnection) -> Sequence[Column]:
        """Return the result columns before the query runs."""
        prefix = "DESCRIBE "
        try:
            found = cursor.execute(prefix + self._sql).fetchall()
        except duckdb.Error as error:
            raise parse_error(error, offset=len(prefix)) from None
        return [Column(str(row[0]), str(row[1])) for row in found]

    def _fetch_rows(
        self, cursor: duckdb.DuckDBPyConnection, columns: Sequence[Column]
    ) -> tuple[list[Sequence[Any]], bool]:
        rows: list[Sequence[Any]] = []
        nested = [at for at, column in enumerate(columns) if _is_nested(column.type)]
        size, count = 0, _FIRST_BATCH
        while len(rows) <= self._limit:
            self._check_stop()
            batch = cursor.fetchmany(min(count, self._limit + 1 - len(rows)))
            count = min(2 * count, BATCH)
            if not batch:
                return rows, False
            for row in batch:
                values = _take_cuts(row, nested) if nested else row
                row, length = cap_cells(values, self._options.max_cell)
                size += length
                if size > self._options.max_bytes and rows:
                    return rows, True
                rows.append(row)
        return rows[: self._limit], True

    def _bind(self, cursor: duckdb.DuckDBPyConnection) -> None:
        prefix = "EXPLAIN "
        try:
            cursor.execute(prefix + self._sql)
        except duckdb.Error as error:
            raise parse_error(error, offset=len(prefix)) from None


def _is_text(type: str) -> bool:
    return type in ("VARCHAR", "BLOB", "JSON", "BIT") or type.startswith("ENUM")


def _is_nested(type: str) -> bool:
    return type.endswith("]") or type.startswith(("STRUCT", "MAP", "UNION", "VARIANT"))


def _cut_in_sql(sql: str, columns: Sequence[Column], limit: int) -> str:
    """Return SQL in which DuckDB shortens long cells: converting them to Python would hold the GIL.

    A nested value that is too long becomes NULL, and the start of its text is in an extra column at
    the end.
    """
    if not any(_is_text(column.type) or _is_nested(column.type) for column in columns):
        return sql
    names = [f"c{number}" for number in range(len(columns))]
    items: list[str] = []
    cuts: list[str] = []
    for name, column in zip(names, columns, strict=True):
        cell = name
        if column.type == "VARCHAR":
            cell = f"left({name}, {limit + 1})"
        elif column.type == "BLOB":
            cell = f"CASE WHEN octet_length({name}) > {limit} THEN NULL ELSE {name} END"
        elif _is_nested(column.type):
            is_long = f"length(CAST({name} AS VARCHAR)) > {limit}"
            cell = f"CASE WHEN {is_long} THEN NULL ELSE {name} END"
            cuts.append(f"CASE WHEN {is_long} THEN left(CAST({name} AS VARCHAR), {limit}) END")
        items.append(f"{cell} AS {quote_name(column.name)}")
    return f"SELECT {', '.join([*items, *cuts])} FROM ({sql}\n) AS result({', '.join(names)})"


def _take_cuts(row: Sequence[Any], nested: Sequence[int]) -> Sequence[Any]:
    """Return a row whose shortened texts replace the originals."""
    values = [*row[: len(row) - len(nested)]]
    for at, text in zip(nested, row[len(values) :], strict=True):
        if text is not None:
            values[at] = text + "…"
    return tuple(values)


def cap_cells(row: Sequence[Any], limit: int) -> tuple[Sequence[Any], int]:
    """Return a row with shortened texts, and the row's approximate size in bytes."""
    size = 8 * len(row)
    longest = 0
    for cell in row:
        if isinstance(cell, str | bytes):
            size += len(cell)
            longest = max(longest, len(cell))
        elif isinstance(cell, list | dict):
            length = len(repr(cell))
            size += length
            longest = max(longest, length)
    return (row, size) if longest <= limit else ([_cap_cell(cell, limit) for cell in row], size)


def _cap_cell(cell: Any, limit: int) -> Any:
    if isinstance(cell, str) and len(cell) > limit:
        return cell[:limit] + "…"
    if isinstance(cell, bytes) and len(cell) > limit:
        return cell[:limit]
    if isinstance(cell, list | dict) and len(text := repr(cell)) > limit:
        return text[:limit] + "…"
    return cell


INTERVAL = 0.1
"""Seconds between two checks of a file's size."""


class Saving:
    """The only writing connection; it is locked like a sandbox, except for its new file."""

    def __init__(self, part: Path, files: Mapping[str, Path], options: EngineOptions) -> None:
        self._part = part
        config: Config = {
            **CONFIG,
            "memory_limit": options.memory_limit,
            "threads": str(options.threads),
        }
        self._connection = duckdb.connect(config=config)
        self._max_rows = options.max_rows
        self._max_file = options.max_file
        self._is_too_large = False
        try:
            attach_files(self._connection, files, options.folder)
            self._execute(f"ATTACH {quote_text(str(part))} AS target")
            path = ",".join(f'{quote_name(alias)}."main"' for alias in files)
            self._execute(f"SET search_path = {quote_text(path)}")
            lock_connection(self._connection)
        except BaseException:
            self.discard()
            raise

    def _execute(self, sql: str) -> None:
        self._connection.execute(sql)

    def run(self, name: str, sql: str) -> StoredTable:
        """Save the rows of a query as a table. Raises `QueryFailed`."""
        check_statement(self._connection, sql)
        prefix = f"CREATE TABLE target.main.{quote_name(name)} AS FROM ("
        text = sql.rstrip().rstrip(";")
        try:
            self._execute(f"{prefix}{text}\n) LIMIT {self._max_rows + 1}")
            stored = read_table(self._connection, name, name, "target")
            self._check_size(stored)
            self._execute("CHECKPOINT target")
            if self._part.stat().st_size > self._max_file:
                raise QueryFailed("The result is too large to be saved.")
        except duckdb.Error as error:
            if self._is_too_large:
                raise QueryFailed("The result is too large to be saved.") from None
            raise parse_error(error, offset=len(prefix)) from None
        self._connection.close()
        return stored

    def _check_size(self, table: StoredTable) -> None:
        if table.row_count > self._max_rows:
            raise QueryFailed(
                "The result has too many rows to be saved.",
                hint=f"At most {self._max_rows:,} rows can be saved: aggregate or filter.",
            )

    async def watch_size(self, work: "asyncio.Task[StoredTable]") -> None:
        """Interrupt the work once its file is too large."""
        while not (await asyncio.wait({work}, timeout=INTERVAL))[0]:
            if self._part.exists() and self._part.stat().st_size > self._max_file:
                self._is_too_large = True
                self.interrupt()

    def interrupt(self) -> None:
        """Interrupt the running statement."""
        try:
            self._connection.interrupt()
        except duckdb.Error:
            return

    def discard(self) -> None:
        """Close the connection, and remove the unfinished file."""
        self._connection.close()
        for path in (self._part, self._part.with_name(self._part.name + ".wal")):
            path.unlink(missing_ok=True)
