"""The worker process in which DuckDB runs queries, within limits of the kernel.

It runs one query at a time. Requests are pickled tuples of a number, a method and its arguments;
replies are pickled tuples of plain values, the only ones that the server reads. The server runs
this file by its path.
"""

import copyreg
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any, BinaryIO
from zoneinfo import ZoneInfo

import duckdb

from copilot_runtime.base.processes import limit_cpu, limit_process
from copilot_runtime.extensions.analyst.engine.errors import (
    QueryFailed,
    parse_error,
    refuse_memory,
)
from copilot_runtime.extensions.analyst.engine.query import Query
from copilot_runtime.extensions.analyst.engine.sandbox import EngineOptions, Sandbox
from copilot_runtime.extensions.analyst.engine.saving import Saving

_WARM_UP = """
SELECT now(), uuid(), 1.5, INTERVAL 1 DAY, count(*) FROM range(1_000_000) WHERE range % 7 = 3
"""
"""Starts the threads, and loads modules for values: no file can be opened later."""
_SPARE_SECONDS = 5.0
"""CPU seconds of a request beyond its time limit on every thread."""


class Runner:
    """The requests that a server can send, over DuckDB in this process.

    With `part`, it only saves one result in that new file.
    """

    def __init__(self, options: EngineOptions, files: Mapping[str, Path], part: Path | None):
        self._options = options
        self._saving = None if part is None else Saving(part, files, options)
        self._sandbox = Sandbox(options, {} if part else files)
        self._query: Query | None = None
        self.number = 0
        """The number of the latest request."""
        cursor = self._sandbox.open_cursor()
        cursor.execute(_WARM_UP).fetchall()
        cursor.close()
        limit_process(
            memory=options.memory_bytes + options.memory_reserve,
            file_size=options.max_file if part else 0,
            open_files=None if part else 0,
        )

    def run(self, sql: str, limit: int) -> tuple[Any, ...]:
        """Return columns and rows of a query, and whether there are more."""
        self._query = Query(self._sandbox, sql, limit, self._options)
        table = self._query.run()
        return _list_columns(table.columns), table.rows, table.is_truncated

    def explain(self, sql: str) -> None:
        """Bind the names of a query."""
        self._query = Query(self._sandbox, sql, 0, self._options)
        self._query.explain()

    def begin(self, sql: str) -> None:
        """Start a query of which `fetch` returns the rows."""
        self._query = Query(self._sandbox, sql, 0, self._options)
        self._query.begin()

    def fetch(self, count: int) -> Sequence[Sequence[Any]]:
        """Return the next rows of the query that was begun."""
        return self._query.fetch(count) if self._query else []

    def save(self, name: str, sql: str) -> tuple[Any, ...]:
        """Save the rows of a query in the new file, and return row count and columns."""
        assert self._saving is not None
        table = self._saving.run(name, sql)
        return table.row_count, _list_columns(table.columns)

    def stop(self) -> None:
        """Interrupt the query; called by another thread."""
        if self._query is not None:
            self._query.stop()


METHODS: Mapping[str, Callable[..., Any]] = {
    "run": Runner.run,
    "explain": Runner.explain,
    "begin": Runner.begin,
    "fetch": Runner.fetch,
    "save": Runner.save,
}


def _list_columns(columns: Sequence[Any]) -> list[tuple[str, str]]:
    return [(column.name, column.type) for column in columns]


def main() -> None:
    """Answer requests until the server closes the connection."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to the server, too
    requests, replies = sys.stdin.buffer, sys.stdout.buffer
    copyreg.pickle(ZoneInfo, lambda zone: (ZoneInfo, (zone.key,)))  # not by a private function
    options, files, part = pickle.load(requests)  # noqa: S301 - of the server
    try:
        runner = Runner(options, files, part)
    except (duckdb.Error, OSError) as error:
        _reply(replies, "broken", str(error))
        return
    jobs: SimpleQueue[tuple[int, str, Sequence[Any]]] = SimpleQueue()
    threading.Thread(target=_read, args=(requests, runner, jobs), daemon=True).start()
    _reply(replies, "done", None)
    while True:
        runner.number, method, arguments = jobs.get()
        limit_cpu(options.query_timeout * options.threads + _SPARE_SECONDS)
        try:
            _reply(replies, "done", METHODS[method](runner, *arguments))
            continue
        except QueryFailed as error:
            failure = error
        except (MemoryError, duckdb.OutOfMemoryException):
            failure = refuse_memory(options.memory_limit)
        except duckdb.Error as error:
            failure = parse_error(error)
        except (ArithmeticError, RuntimeError, ValueError):
            failure = QueryFailed("The result has a value that cannot be converted.")
        _reply(replies, "failed", failure.to_fields())


def _read(requests: BinaryIO, runner: Runner, jobs: "SimpleQueue[Any]") -> None:
    """Queue requests, and interrupt the query whose number a `stop` names."""
    while True:
        try:
            job = pickle.load(requests)  # noqa: S301 - of the server
        except EOFError:  # the server has ended
            os._exit(0)
        if job[1] != "stop":
            jobs.put(job)
        elif job[0] == runner.number:
            runner.stop()


def _reply(replies: BinaryIO, kind: str, value: Any) -> None:
    replies.write(pickle.dumps((kind, value), protocol=5))
    replies.flush()


if __name__ == "__main__":
    main()
