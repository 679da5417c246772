"""One query on a sandbox: its rows up to a limit, with shortened cells."""

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import duckdb

from copilot_runtime.extensions.analyst.engine.datasets import quote_name
from copilot_runtime.extensions.analyst.engine.errors import QueryFailed, parse_error
from copilot_runtime.extensions.analyst.engine.sandbox import (
    EngineOptions,
    Sandbox,
    check_statement,
)
from copilot_runtime.extensions.analyst.results import Column, Table

T = TypeVar("T")

BATCH = 2_000
"""Maximum number of rows per fetch."""
_FIRST_BATCH = 64


class Query:
    """A query on a sandbox, in a worker process. `stop` may be called from another thread."""

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
        cursor = self._sandbox.open_cursor()
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

    def begin(self) -> None:
        """Start the query; `fetch` returns rows, `close` ends it."""
        try:
            self.open().execute(self._sql)
        except duckdb.Error as error:
            raise parse_error(error) from None

    def fetch(self, count: int) -> Sequence[Sequence[Any]]:
        """Return the next batch of rows, within `max_bytes`, or an empty list at the end."""
        rows: list[Sequence[Any]] = []
        size = 0
        while len(rows) < count and size < self._options.max_bytes:
            self._check_stop()
            try:
                least = min(count - len(rows), _FIRST_BATCH)
                batch = self._cursor.fetchmany(least) if self._cursor else []
            except duckdb.Error as error:
                raise parse_error(error) from None
            if not batch:
                break
            for values in batch:
                row, length = cap_cells(values, self._options.max_cell)
                rows.append(row)
                size += length
        return rows

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
