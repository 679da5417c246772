"""The worker processes of an engine, as the server sees them."""

import logging
import pickle
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from time import sleep
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import duckdb

from copilot_runtime.base.errors import CopilotError
from copilot_runtime.base.processes import measure_memory, start_worker
from copilot_runtime.extensions.analyst.engine.errors import (
    QueryFailed,
    QueryTimedOut,
    parse_error,
    refuse_memory,
)
from copilot_runtime.extensions.analyst.engine.sandbox import EngineOptions
from copilot_runtime.extensions.analyst.engine.store import StoredTable
from copilot_runtime.extensions.analyst.results import Column, Table

logger = logging.getLogger(__name__)

_PROGRAM = Path(__file__).with_name("worker.py")
_PATIENCE = 0.25
"""Seconds without a change after which a query that waits for a worker starts one more."""
_INTERVAL = 0.02
"""Seconds between two measurements of the memory of all workers together."""
SIGXCPU = 24
"""The signal of the kernel after too much CPU time, on Linux and macOS."""


class Workers:
    """Processes that run queries over the same database files, each one query at a time.

    As many as `threads` stay warm; more are started only while queries wait. Methods block.
    """

    def __init__(self, options: EngineOptions) -> None:
        """Start the first worker."""
        self._options = options
        self._files: Mapping[str, Path] = {}
        self._base = 0
        self._state = threading.Condition()
        self._warm = min(options.threads, options.most_workers)
        self._idle: list[Worker] = []
        self._busy: set[Worker] = set()
        self._streams: set[Worker] = set()
        """The workers that are used for longer, or for something else than queries."""
        self._is_closed = False
        self._idle.append(Worker(options))

    def open(self, files: Mapping[str, Path]) -> None:
        """Open the files in the first worker, and start the others. Raises `duckdb.Error`."""
        self._files = files
        try:
            self._idle[0].open(files)
            self._idle[0].wait()
        except BaseException:
            self.close()
            raise
        self._base = self._idle[0].measure_size()
        for _ in range(1, self._warm):
            self._replace()
        threading.Thread(target=self._watch_memory, name="analyst-memory", daemon=True).start()

    def take(self, *, is_stream: bool = False, part: Path | None = None) -> "Worker":
        """Return a worker for one query; `give_back` must follow. Raises `duckdb.Error`.

        A worker for a stream is replaced at once: its reader may be slow. With `part`, it is a new
        one that saves a result in that file.
        """
        with self._state:
            while self._idle and not self._idle[-1].is_usable:  # the system has ended it
                self._idle.pop().close()
            while not (self._idle or part or self._is_closed or len(self._busy) < self._warm):
                if not self._state.wait(_PATIENCE):
                    break
            if self._is_closed:
                raise duckdb.ConnectionException("The data sets have been replaced.")
            worker = self._idle.pop() if self._idle and not part else self._start(part)
            (self._streams if is_stream or part else self._busy).add(worker)
            if is_stream:
                self._replace()
            self._state.notify_all()
        return worker

    def give_back(self, worker: "Worker") -> None:
        """Keep a worker for the next query, or close it if it should not be used again."""
        with self._state:
            is_stream = worker in self._streams
            self._streams.discard(worker)
            self._busy.discard(worker)
            is_fit = worker.is_usable and not (is_stream or worker.has_grown)
            is_fit = is_fit and len(self._idle) < self._warm and not self._is_closed
            if is_fit:
                self._idle.append(worker)
            elif not (is_stream or self._is_closed):
                self._replace()
            self._state.notify_all()
        if not is_fit:
            worker.close()

    def _replace(self) -> None:
        """Start a worker, which is warm when the next query needs it."""
        if len(self._idle) + len(self._busy) < self._warm:
            self._idle.insert(0, self._start())

    def _start(self, part: Path | None = None) -> "Worker":
        worker = Worker(self._options)
        worker.open(self._files, part)
        return worker

    def retire(self) -> None:
        """Close each worker after its query."""
        with self._state:
            self._is_closed = True
            idle, self._idle = self._idle, []
            self._state.notify_all()
        for worker in idle:
            worker.close()

    def close(self) -> None:
        """Stop all queries and close all workers."""
        self.retire()
        with self._state:
            workers = [*self._busy, *self._streams]
        for worker in workers:
            worker.close()

    def _watch_memory(self) -> None:
        """Kill workers while all of them together have more memory than one may have."""
        while True:
            with self._state:
                self._state.wait_for(lambda: self._busy or self._streams or self._is_closed)
                if self._is_closed and not (self._busy or self._streams):
                    return
            sleep(_INTERVAL)
            with self._state:
                busy = [*self._busy, *self._streams]
                sizes = {one: one.measure_size() for one in (*busy, *self._idle)}
                if sum(sizes.values()) <= self._options.memory_bytes + self._base:
                    continue
                spare = max(self._idle, key=lambda one: sizes[one], default=None)
                if spare is not None:
                    self._idle.remove(spare)
                elif busy:
                    max(busy, key=lambda one: sizes[one]).kill(is_too_large=True)
            if spare is not None:
                spare.close()


class Worker:
    """A process that runs one query after the other."""

    def __init__(self, options: EngineOptions) -> None:
        """Start the process."""
        self._options = options
        self._lock = threading.Lock()
        self._number = 0
        self._is_ready = False
        self._size = 0
        self._is_killed = False
        self._is_too_large = False
        self._process = start_worker(_PROGRAM, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def open(self, files: Mapping[str, Path], part: Path | None = None) -> None:
        """Let it open the files; `wait` waits until it has. With `part`, it saves a result."""
        self._send((self._options, {**files}, part))

    @property
    def is_usable(self) -> bool:
        """Whether the process runs."""
        return not self._is_killed and self._process.poll() is None

    @property
    def has_grown(self) -> bool:
        """Whether so much memory was not returned that the next query could lack it."""
        size = measure_memory(self._process.pid)[0]
        return size - self._size > self._options.memory_reserve

    def wait(self) -> None:
        """Wait until the files are open. Raises `duckdb.Error`."""
        if not self._is_ready:
            self._receive()
            self._size = measure_memory(self._process.pid)[0]
            self._is_ready = True

    def ask(self, method: str, *arguments: Any) -> Any:
        """Run a method of the process, and return its result. Raises `CopilotError`."""
        self._number += 1
        self._send((self._number, method, arguments))
        return self._receive()

    def stop(self) -> None:
        """Interrupt the running query."""
        self._send((self._number, "stop", ()))

    def kill(self, *, is_too_large: bool = False) -> None:
        """End the process at once; its query fails."""
        self._is_killed = True
        self._is_too_large = self._is_too_large or is_too_large
        self._process.kill()

    def close(self) -> None:
        """End the process and wait for its end."""
        self.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                stream.close()  # type: ignore

    def measure_size(self) -> int:
        """Return the resident memory of the process in bytes, or 0 if it is not known."""
        return 0 if self._is_killed else measure_memory(self._process.pid)[1]

    def _send(self, request: tuple[Any, ...]) -> None:
        stream = self._process.stdin
        assert stream is not None
        with self._lock, suppress(OSError, ValueError):  # it has ended: `_receive` tells why
            stream.write(pickle.dumps(request, protocol=5))
            stream.flush()

    def _receive(self) -> Any:
        assert self._process.stdout is not None
        try:
            kind, value = PlainUnpickler(self._process.stdout).load()
        except (EOFError, OSError, ValueError, pickle.UnpicklingError):
            self._process.kill()
            raise self._find_cause() from None
        if kind == "broken":
            raise duckdb.IOException(value)
        if kind == "failed":
            if value["kind"] == "out_of_memory":
                raise refuse_memory(self._options.memory_limit)
            raise QueryFailed(**value)
        return value

    def _find_cause(self) -> CopilotError:
        """Return the error for a process that ended during its query."""
        code = self._process.wait()
        if self._is_killed and not self._is_too_large:
            return QueryFailed("The query was stopped.")
        if not self._is_ready:
            return QueryFailed(f"The process for queries could not start (exit code {code}).")
        logger.warning("A query ended the process in which it ran (exit code %d).", code)
        if code == -SIGXCPU:
            return QueryTimedOut(self._options.query_timeout)
        return refuse_memory(self._options.memory_limit)


class PlainUnpickler(pickle.Unpickler):
    """Reads values that DuckDB's rows have, and nothing that could run code."""

    def find_class(self, module: str, name: str) -> Any:
        """Return a class of the list."""
        try:
            return _CLASSES[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"A result has a value of {module}.{name}.") from None


_CLASSES: Mapping[tuple[str, str], Any] = {
    (kind.__module__, kind.__name__): kind
    for kind in (date, datetime, time, timedelta, timezone, Decimal, UUID, ZoneInfo)
}


class RemoteQuery:
    """A query in a worker process. Its methods block; `stop` and `kill` may be called meanwhile."""

    def __init__(self, find: Callable[[], Workers], sql: str, limit: int) -> None:
        """Create a query that runs in a worker of `find()`."""
        self._find = find
        self._sql = sql
        self._limit = limit
        self._lock = threading.Lock()
        self._workers: Workers | None = None
        self._worker: Worker | None = None
        self._is_stopped = False

    def run(self) -> Table:
        """Return the rows. Raises `QueryFailed`."""
        columns, rows, is_truncated = self._ask("run", self._sql, self._limit)
        return Table(
            columns=[Column(*one) for one in columns],
            rows=rows,
            total_rows=None if is_truncated else len(rows),
            is_truncated=is_truncated,
        )

    def explain(self) -> None:
        """Bind names and types without running the query. Raises `QueryFailed`."""
        self._ask("explain", self._sql)

    def begin(self) -> None:
        """Start the query; `fetch` returns rows, `close` ends it."""
        self._take(is_stream=True).ask("begin", self._sql)

    def fetch(self, count: int) -> Sequence[Sequence[Any]]:
        """Return the next batch of rows, or an empty list at the end."""
        return self._worker.ask("fetch", count) if self._worker else []

    def stop(self) -> None:
        """Interrupt the query; it soon raises `QueryFailed`."""
        with self._lock:
            self._is_stopped = True
            if self._worker is not None:
                self._worker.stop()

    def kill(self) -> None:
        """End the process of a query that does not stop."""
        with self._lock:
            if self._worker is not None:
                self._worker.kill()

    def close(self) -> None:
        """Give the worker back; idempotent."""
        with self._lock:
            worker, self._worker = self._worker, None
        if worker is not None and self._workers is not None:
            self._workers.give_back(worker)

    def _ask(self, method: str, *arguments: Any) -> Any:
        try:
            return self._take().ask(method, *arguments)
        finally:
            self.close()

    def _take(self, *, is_stream: bool = False) -> Worker:
        try:
            return self._hold(is_stream=is_stream)
        except duckdb.Error:  # the data sets were replaced meanwhile
            self.close()
        try:
            return self._hold(is_stream=is_stream)
        except duckdb.Error as error:
            raise parse_error(error) from None

    def _hold(self, *, is_stream: bool) -> Worker:
        self._workers = self._find()
        worker = self._workers.take(is_stream=is_stream)
        with self._lock:
            self._worker = worker
            if self._is_stopped:
                raise QueryFailed("The query was stopped.")
        worker.wait()
        return worker


class RemoteSaving:
    """A worker process that saves one result in a new file. `kill` may be called meanwhile."""

    def __init__(self, workers: Workers, part: Path) -> None:
        self._workers = workers
        self._part = part
        self._worker = workers.take(part=part)

    def run(self, name: str, sql: str) -> StoredTable:
        """Save the rows of a query as a table. Raises `QueryFailed`."""
        try:
            self._worker.wait()
            row_count, columns = self._worker.ask("save", name, sql)
        except duckdb.Error as error:
            raise parse_error(error) from None
        finally:
            self._workers.give_back(self._worker)
        columns = [Column(*one) for one in columns]
        return StoredTable(name=name, table=name, row_count=row_count, columns=columns)

    def kill(self) -> None:
        """End the process."""
        self._worker.kill()

    def discard(self) -> None:
        """Remove the unfinished file."""
        self._workers.give_back(self._worker)
        for path in (self._part, self._part.with_name(self._part.name + ".wal")):
            path.unlink(missing_ok=True)
