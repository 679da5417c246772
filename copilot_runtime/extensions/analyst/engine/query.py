"""Queries in threads: run up to a limit, interrupted after a time, and at most so many at once."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import duckdb

from copilot_runtime.base.concurrency import ThreadPool, retrieve_exception
from copilot_runtime.extensions.analyst.engine.datasets import quote_name
from copilot_runtime.extensions.analyst.engine.errors import QueryFailed, QueryTimedOut, parse_error
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


GRACE = 1.0
"""Seconds for interrupted work to end before it is abandoned."""

LEAVE = 5.0
"""Seconds to wait for threads at the end: a program that exits while DuckDB works aborts."""

REPEAT = 0.02
"""Seconds between two interrupts: an interrupt just before a query starts is lost."""


class Executor:
    """The worker threads of an engine.

    Args:
        concurrency: Maximum number of concurrent queries; an uninterruptible query keeps its slot.
    """

    def __init__(self, concurrency: int) -> None:
        self._slots = asyncio.Semaphore(concurrency)
        self._pool = ThreadPool(concurrency, "analyst")
        self._writers = ThreadPool(2, "analyst-writer")
        self._tasks: set[asyncio.Task[Any]] = set()
        self._stops: set[Callable[[], None]] = set()
        self._lock = threading.Lock()
        self._busy = 0
        self._pending: dict[Query, asyncio.Task[Any]] = {}

    def start(self, work: Callable[..., T], *arguments: Any) -> "asyncio.Task[T]":
        """Start work that is not a query: opening, copying, closing."""
        return self.watch(self._writers.run(self._count(lambda: work(*arguments))))

    async def run(
        self,
        query: Query,
        work: Callable[[Query], T],
        timeout: float,
        on_start: Callable[[], None] | None = None,
    ) -> T:
        """Run one step of a query once a slot is free.

        Raises `QueryTimedOut`. Cancellation interrupts the query.
        """
        await self._slots.acquire()
        try:
            if on_start is not None:
                on_start()
            task = self.watch(self._pool.run(self._count(lambda: work(query))))
        except BaseException:
            self._slots.release()
            raise
        self._pending[query] = task

        def finish(_: object) -> None:
            self._slots.release()
            del self._pending[query]

        task.add_done_callback(finish)
        return await self.attend(task, query.stop, timeout)

    async def attend(self, work: "asyncio.Task[T]", stop: Callable[[], None], timeout: float) -> T:
        """Await work in a thread; interrupt it on timeout or cancellation."""
        self._stops.add(stop)
        work.add_done_callback(lambda _: self._stops.discard(stop))
        try:
            done, _ = await asyncio.wait({work}, timeout=timeout)
        except asyncio.CancelledError:
            stop()
            self.watch(_stop_work(stop, work))
            raise
        if not done:
            await _stop_work(stop, work)
            raise QueryTimedOut(timeout)
        return work.result()

    def close_query(self, query: Query) -> None:
        """Stop a started query, and close it once its thread is done."""
        query.stop()
        task = self._pending.get(query)
        if task is None:
            self.start(query.close)
        else:
            task.add_done_callback(lambda _: self.start(query.close))

    async def wait_idle(self) -> None:
        """Wait until no work is running."""
        while self._tasks:
            await asyncio.wait({*self._tasks})

    async def aclose(self) -> None:
        """Interrupt all work, and wait for it briefly."""
        for stop in [*self._stops]:
            stop()
        if self._tasks:
            await asyncio.wait({*self._tasks}, timeout=GRACE)
        loop = asyncio.get_running_loop()
        end = loop.time() + LEAVE
        while self._busy and loop.time() < end:
            for stop in [*self._stops]:
                stop()
            await asyncio.sleep(REPEAT)

    def _count(self, work: Callable[[], T]) -> Callable[[], T]:
        """Count the work as running until its thread ends, even if its waiter was cancelled."""

        def run() -> T:
            with self._lock:
                self._busy += 1
            try:
                return work()
            finally:
                with self._lock:
                    self._busy -= 1

        return run

    def watch(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Run a coroutine as a task that `wait_idle` and `aclose` wait for."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(retrieve_exception)
        return task


async def _stop_work(stop: Callable[[], None], work: "asyncio.Task[Any]") -> None:
    """Interrupt work repeatedly until its thread is done or the grace period is over."""
    loop = asyncio.get_running_loop()
    end = loop.time() + GRACE
    while not work.done() and loop.time() < end:
        stop()
        await asyncio.wait({work}, timeout=REPEAT)
