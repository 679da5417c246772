"""Write the rows of a query into a new database file."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import duckdb

from copilot_runtime.extensions.analyst.engine.copies import read_table
from copilot_runtime.extensions.analyst.engine.datasets import quote_name, quote_text
from copilot_runtime.extensions.analyst.engine.errors import QueryFailed, parse_error
from copilot_runtime.extensions.analyst.engine.options import EngineOptions
from copilot_runtime.extensions.analyst.engine.sandbox import (
    CONFIG,
    Config,
    attach_files,
    check_statement,
    lock_connection,
)
from copilot_runtime.extensions.analyst.engine.store import StoredTable

INTERVAL = 0.1
"""Seconds between two looks at the size of a file."""


class Saving:
    """The one connection that writes: only into its new file; all else is as in a sandbox."""

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
        """Stop the work once its file is too large."""
        while not (await asyncio.wait({work}, timeout=INTERVAL))[0]:
            if self._part.exists() and self._part.stat().st_size > self._max_file:
                self._is_too_large = True
                self.interrupt()

    def interrupt(self) -> None:
        """Stop what runs."""
        try:
            self._connection.interrupt()
        except duckdb.Error:
            return

    def discard(self) -> None:
        """Close it and remove what it wrote."""
        self._connection.close()
        for path in (self._part, self._part.with_name(self._part.name + ".wal")):
            path.unlink(missing_ok=True)
