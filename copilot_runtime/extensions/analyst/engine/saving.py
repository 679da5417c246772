"""Save the rows of a query in a new database file."""

import errno
import os
from collections.abc import Mapping
from pathlib import Path

import duckdb

from copilot_runtime.extensions.analyst.engine.datasets import quote_name, quote_text
from copilot_runtime.extensions.analyst.engine.errors import QueryFailed, parse_error
from copilot_runtime.extensions.analyst.engine.sandbox import (
    EngineOptions,
    attach_files,
    check_statement,
    lock_connection,
)
from copilot_runtime.extensions.analyst.engine.store import StoredTable, read_table

_TOO_LARGE = "The result is too large to be saved."


class Saving:
    """The only writing connection; it is locked like a sandbox, except for its new file.

    The worker process that has it may not write a larger file than `max_file`.
    """

    def __init__(self, part: Path, files: Mapping[str, Path], options: EngineOptions) -> None:
        self._part = part
        self._connection = duckdb.connect(config=options.build_config())
        self._max_rows = options.max_rows
        self._max_file = options.max_file
        attach_files(self._connection, files, options.folder)
        self._execute(f"ATTACH {quote_text(str(part))} AS target")
        path = ",".join(f'{quote_name(alias)}."main"' for alias in files)
        self._execute(f"SET search_path = {quote_text(path)}")
        lock_connection(self._connection)

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
                raise QueryFailed(_TOO_LARGE)
        except duckdb.Error as error:
            if os.strerror(errno.EFBIG) in str(error):
                raise QueryFailed(_TOO_LARGE) from None
            raise parse_error(error, offset=len(prefix)) from None
        self._connection.close()
        return stored

    def _check_size(self, table: StoredTable) -> None:
        if table.row_count > self._max_rows:
            raise QueryFailed(
                "The result has too many rows to be saved.",
                hint=f"At most {self._max_rows:,} rows can be saved: aggregate or filter.",
            )
