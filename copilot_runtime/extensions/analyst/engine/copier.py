"""The worker process that copies data sources, whose files may be hostile or never end.

It copies one source at a time, within limits of the kernel. Requests are pickled; replies are
pickled tuples of plain values, the only ones that the server reads. The server runs this file by
its path.
"""

import logging
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from queue import SimpleQueue
from typing import Any, BinaryIO

import duckdb

from copilot_runtime.base.errors import CopilotError
from copilot_runtime.base.processes import (
    limit_cpu,
    limit_file_size,
    limit_process,
    measure_memory,
    start_worker,
)
from copilot_runtime.extensions.analyst.engine.copies import Copy, read_foreign, refuse_copy
from copilot_runtime.extensions.analyst.engine.datasets import choose_name
from copilot_runtime.extensions.analyst.engine.errors import DatasetRefused
from copilot_runtime.extensions.analyst.engine.sandbox import EngineOptions
from copilot_runtime.extensions.analyst.engine.sources import DataSource, list_files
from copilot_runtime.extensions.analyst.engine.store import StoredTable, decode_table
from copilot_runtime.extensions.analyst.engine.workers import SIGXCPU, PlainUnpickler

logger = logging.getLogger(__name__)

_SLOWEST = 100_000
"""Bytes of a source that are read in a second, beyond the time that a small one may take."""


class Copier:
    """The process as the server sees it. `copy` blocks; `kill` may be called meanwhile."""

    def __init__(self, options: EngineOptions) -> None:
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self.rows = 0
        """Number of rows of SQLite or of a workbook copied so far."""

    def start(self) -> "subprocess.Popen[bytes]":
        """Start the process, unless it runs: its imports take longer than a small copy."""
        if self._process is None:
            self._process = start_worker(
                Path(__file__), stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            self._send(self._options)
        return self._process

    def copy(
        self, source: DataSource, part: Path, names: Collection[str], keywords: Collection[str]
    ) -> Sequence[StoredTable]:
        """Copy the tables of a source into a new file, under names other than those of `names`.

        A source that is attached is only read. Raises `DatasetRefused`.
        """
        self.rows = 0
        process = self.start()
        self._send((source, part, names, keywords))
        try:
            tables = self._receive(source)
        except BaseException:
            self.close()  # it may lack memory now
            raise
        if measure_memory(process.pid)[1] > self._options.memory_reserve:
            self.close()
        return tables

    def kill(self) -> None:
        """End the process at once; a copy under way fails."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        """End the process and close its pipes; the next copy starts another one."""
        self.kill()
        process, self._process = self._process, None
        if process is not None:
            for stream in (process.stdin, process.stdout):
                with suppress(OSError):
                    stream.close()  # type: ignore

    def _send(self, value: Any) -> None:
        assert self._process is not None and self._process.stdin is not None
        with suppress(OSError):  # it has ended: `_receive` says so
            pickle.dump(value, self._process.stdin, protocol=5)
            self._process.stdin.flush()

    def _receive(self, source: DataSource) -> Sequence[StoredTable]:
        assert self._process is not None and self._process.stdout is not None
        while True:
            try:
                kind, value = PlainUnpickler(self._process.stdout).load()
            except (EOFError, OSError, ValueError, pickle.UnpicklingError):
                self.kill()
                code = self._process.returncode
                reason = f"its process ended (exit code {code})"
                if code == -SIGXCPU:
                    reason = "it takes more time than one of its size may take"
                raise DatasetRefused(
                    f"The data source {source.label!r} cannot be read: {reason}."
                ) from None
            match kind:
                case "rows":
                    self.rows += value
                case "log":
                    logger.error("%s", value)
                case "failed":
                    raise DatasetRefused(value[0], public=value[1])
                case _:
                    return [decode_table(table) for table in value]


class _ForwardingHandler(logging.Handler):
    """Sends log records to the server."""

    def __init__(self, replies: BinaryIO) -> None:
        super().__init__(logging.ERROR)
        self._replies = replies

    def emit(self, record: logging.LogRecord) -> None:
        _reply(self._replies, "log", record.getMessage())


def main() -> None:
    """Copy sources until the server closes the connection."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to the server, too
    requests, replies = sys.stdin.buffer, sys.stdout.buffer
    options = pickle.load(requests)  # noqa: S301 - of the server
    data = 2 * options.memory_bytes + options.memory_reserve
    limit_process(data=data, file_size=None, open_files=None)
    logging.getLogger().addHandler(_ForwardingHandler(replies))
    jobs: SimpleQueue[tuple[DataSource, Path, Collection[str], frozenset[str]]] = SimpleQueue()
    threading.Thread(target=_read, args=(requests, jobs), daemon=True).start()
    while True:
        source, part, names, keywords = jobs.get()
        size = sum(path.stat().st_size for path in list_files(source))
        limit_cpu((options.copy_timeout + size / _SLOWEST) * options.threads)
        limit_file_size(part.parent)
        try:
            tables = _copy(source, part, {*names}, keywords, options, replies)
        except (CopilotError, OSError, ValueError, duckdb.Error) as error:
            failure = error if isinstance(error, CopilotError) else refuse_copy(source, error)
            _reply(replies, "failed", (failure.message, failure.public))
        except MemoryError:
            failure = refuse_copy(source, MemoryError("out of memory"))
            _reply(replies, "failed", (failure.message, failure.public))
        else:
            _reply(replies, "done", [asdict(table) for table in tables])


def _copy(
    source: DataSource,
    part: Path,
    names: set[str],
    keywords: frozenset[str],
    options: EngineOptions,
    replies: BinaryIO,
) -> Sequence[StoredTable]:
    def choose(table: str) -> str:
        name = choose_name(table, source.name, names, keywords)
        names.add(name)
        return name

    if source.mode == "attach":
        return read_foreign(source, choose)
    copy = Copy(part, options, lambda rows: _reply(replies, "rows", rows))
    try:
        tables = copy.copy_source(source, choose)
        copy.finish()
    except BaseException:
        copy.discard()
        raise
    return tables


def _read(requests: BinaryIO, jobs: "SimpleQueue[Any]") -> None:
    while True:
        try:
            jobs.put(pickle.load(requests))  # noqa: S301 - of the server
        except EOFError:  # the server has ended, or needs no more copies
            os._exit(0)


def _reply(replies: BinaryIO, kind: str, value: Any) -> None:
    replies.write(pickle.dumps((kind, value), protocol=5))
    replies.flush()


if __name__ == "__main__":
    main()
