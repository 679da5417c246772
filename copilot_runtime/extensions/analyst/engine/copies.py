"""Copy files and databases into a new DuckDB database file."""

import contextlib
import logging
import re
import shutil
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb

from copilot_runtime.extensions.analyst.engine.csv.table import CsvFiles, CsvOptions
from copilot_runtime.extensions.analyst.engine.datasets import quote_name, quote_text
from copilot_runtime.extensions.analyst.engine.errors import DatasetRefused
from copilot_runtime.extensions.analyst.engine.postgres import EMPTY, Export, ExportColumn
from copilot_runtime.extensions.analyst.engine.sandbox import Config, EngineOptions
from copilot_runtime.extensions.analyst.engine.sources import DataSource, list_files
from copilot_runtime.extensions.analyst.engine.store import StoredTable
from copilot_runtime.extensions.analyst.engine.text_files import decode_file
from copilot_runtime.extensions.analyst.results import Column

logger = logging.getLogger(__name__)

_PARQUET = "read_parquet([{}], union_by_name=true)"
_JSON = "read_json([{}], union_by_name=true)"
_WHOLE_JSON = "read_json([{}], union_by_name=true, sample_size=-1)"
"""It reads all rows to infer the types: slow, but a late row may differ from the first."""

Choose = Callable[[str], str]
"""Returns the name of a new data set for the name of a table."""


class Copy:
    """A new database file. Call its methods in a worker thread, except `interrupt`."""

    def __init__(self, part: Path, options: EngineOptions) -> None:
        self._part = part
        self._spill = part.with_suffix(".part-spill")
        self._texts = part.with_suffix(".part-texts")
        config: Config = {
            "memory_limit": options.memory_limit,
            "threads": str(options.threads),
            "temp_directory": str(self._spill),
            "python_enable_replacements": "false",
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
        }
        self._connection = duckdb.connect(str(part), config=config)
        self.rows = 0
        """Number of SQLite rows copied so far."""
        self._is_stopped = False

    def copy_source(self, source: DataSource, choose: Choose) -> Sequence[StoredTable]:
        """Copy files into one table, or the tables of a DuckDB file."""
        if source.kind in {"duckdb", "sqlite"}:
            file = list_files(source)[0]
            if is_sqlite(file):
                exports = export_tables(file, source.table, self._part, self._count_rows)
                return self.copy_exports(exports, choose)
            return self._copy_database(source, choose)
        return [self._copy_files(source, choose(source.name))]

    def _copy_files(self, source: DataSource, name: str) -> StoredTable:
        paths = list_files(source)
        if source.kind == "parquet":
            return self._read_files(name, _PARQUET, paths)
        files = [decode_file(self._connection, path, self._texts) for path in paths]
        if source.kind == "csv":
            options = CsvOptions(columns=source.columns, dates=source.dates)
            notes = CsvFiles(self._connection, files, self._texts, options).create_table(name)
            return replace(self._read_table(name), notes=notes)
        paths = [file.path for file in files]
        try:
            return self._read_files(name, _JSON, paths)
        except (duckdb.ConversionException, duckdb.InvalidInputException):
            return self._read_files(name, _WHOLE_JSON, paths)

    def _read_files(self, name: str, reader: str, paths: Sequence[Path]) -> StoredTable:
        files = ", ".join(quote_text(str(path)) for path in paths)
        self._connection.execute(
            f"CREATE OR REPLACE TABLE {quote_name(name)} AS FROM {reader.format(files)}"
        )
        return self._read_table(name)

    def _copy_database(self, source: DataSource, choose: Choose) -> Sequence[StoredTable]:
        location = quote_text(str(list_files(source)[0]))
        self._connection.execute(f"ATTACH {location} AS source (READ_ONLY)")
        self._connection.execute("SET enable_external_access = false")
        tables = list_tables(self._connection, "source", source.table)
        views = list_views(self._connection, "source")
        copies: list[StoredTable] = []
        for schema, table in tables:
            name = choose(source.name if source.table else table)
            try:
                self._connection.execute(
                    f"CREATE TABLE {quote_name(name)} AS "
                    f"FROM source.{quote_name(schema)}.{quote_name(table)}"
                )
            except duckdb.Error as error:
                if (schema, table) not in views or self._is_stopped:
                    raise
                logger.error("The view %r of %r is left out: %s", table, source.location, error)
                continue
            copies.append(self._read_table(name))
        self._connection.execute("DETACH source")
        if not copies:
            raise DatasetRefused(f"The database {source.label!r} has no tables.")
        return copies

    def _count_rows(self, rows: int) -> None:
        self.rows += rows
        if self._is_stopped:
            raise DatasetRefused("The copy was stopped.")

    def copy_exports(self, exports: Iterable[Export], choose: Choose) -> Sequence[StoredTable]:
        """Copy tables that were exported from PostgreSQL into files, and delete the files."""
        copies: list[StoredTable] = []
        for export in exports:
            name = choose(export.table)
            self._connection.execute(f"CREATE TABLE {quote_name(name)} AS {export.build_select()}")
            export.file.unlink(missing_ok=True)
            copies.append(self._read_table(name))
        return copies

    def _read_table(self, name: str) -> StoredTable:
        database: Any = self._connection.execute("SELECT current_database()").fetchone()
        return read_table(self._connection, name, name, str(database[0]))

    def interrupt(self) -> None:
        """Interrupt the running statement."""
        self._is_stopped = True
        with contextlib.suppress(duckdb.Error):
            self._connection.interrupt()

    def finish(self) -> None:
        """Flush the file and close it."""
        self._connection.execute("CHECKPOINT")
        self._connection.close()
        self._remove_folders()

    def discard(self) -> None:
        """Close the file and delete everything written."""
        self._connection.close()
        self._remove_folders()
        for path in self._part.parent.glob(f"{self._part.name}*"):
            path.unlink(missing_ok=True)

    def _remove_folders(self) -> None:
        for folder in (self._spill, self._texts):
            shutil.rmtree(folder, ignore_errors=True)


def list_views(connection: duckdb.DuckDBPyConnection, database: str) -> Collection[tuple[str, str]]:
    """Return schema and name of the views of an attached database."""
    sql = "SELECT schema_name, view_name FROM duckdb_views() WHERE database_name = ?"
    return set(connection.execute(sql, [database]).fetchall())


def list_tables(
    connection: duckdb.DuckDBPyConnection, database: str, only: str | None
) -> Sequence[tuple[str, str]]:
    """Return schema and name of the tables and views of an attached database."""
    found: list[tuple[str, str]] = connection.execute(
        "SELECT schema_name, table_name FROM duckdb_tables() WHERE database_name = ? "
        "AND NOT internal UNION ALL SELECT schema_name, view_name FROM duckdb_views() "
        "WHERE database_name = ? AND NOT internal ORDER BY ALL",
        [database, database],
    ).fetchall()
    if only is not None:
        found = [pair for pair in found if only in (pair[1], ".".join(pair))]
        if not found:
            raise DatasetRefused(f"There is no table {only!r} in that database.")
    return found


def read_table(
    connection: duckdb.DuckDBPyConnection,
    name: str,
    table: str,
    database: str,
    schema: str = "main",
) -> StoredTable:
    """Return the stored table: its name for questions, columns and row count."""
    physical = ".".join(map(quote_name, (database, schema, table)))
    cursor = connection.execute(f"FROM {physical} LIMIT 0")
    columns = [Column(item[0], str(item[1])) for item in cursor.description or ()]
    row: Any = connection.execute(f"SELECT count(*) FROM {physical}").fetchone()
    return StoredTable(
        name=name, table=table, row_count=int(row[0]), columns=columns, schema=schema
    )


def refuse_copy(source: DataSource, error: Exception) -> DatasetRefused:
    """Return the error for a source that cannot be copied.

    Its message is for the log: DuckDB quotes rows and paths. `public` has a sentence for users.
    """
    name = f"The data source {source.label!r} cannot be read"
    text = str(error)
    cause = next((cause for pattern, cause in _CAUSES if pattern.search(text)), "")
    line = re.search(r"CSV Error on Line: (\d+)", text)
    place = f" (line {line[1]})" if line else ""
    return DatasetRefused(
        f"{name}: {text}", public=f"{name}{place}: {cause}." if cause else f"{name}{place}."
    )


_CAUSES = [
    (re.compile(pattern, re.IGNORECASE), cause)
    for pattern, cause in (
        (r"utf-?8|invalid unicode", "it is not UTF-8"),
        (r"external access|disabled by configuration", "it reads other files"),
        (r"no such file|no files found|cannot open file", "it cannot be opened"),
        (r"permission denied", "it may not be read"),
        (r"file is empty", "it is empty"),
        (r"no space left", "the disk is full"),
        (r"out of memory|allocate", "it needs more memory than it may have"),
        (r"error when sniffing|csv error", "it is no table of lines with equal columns"),
        (r"convert|could not cast", "a value is not of the type of its column"),
    )
]


BATCH = 5_000

_TABLES = """
SELECT name, type FROM pragma_table_list
WHERE schema = 'main' AND type IN ('table', 'view', 'virtual')
  AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name
"""
"""Without the shadow tables in which an index, such as that of FTS5, keeps its data."""

_COLUMNS_AT_ONCE = 200
"""A statement of SQLite has at most 2,000 results."""


def is_sqlite(file: Path) -> bool:
    """Return `True` if a file is an SQLite database, or one that cannot be read.

    SQLite itself opens the file: closing it here directly would release the locks of all other
    users of the file in this process, such as the trace store.
    """
    try:
        with closing(_connect(file)) as connection:
            connection.execute("PRAGMA schema_version")
    except sqlite3.DatabaseError as error:
        return error.sqlite_errorcode != sqlite3.SQLITE_NOTADB
    return True


def export_tables(
    file: Path, only: str | None, part: Path, on_rows: Callable[[int], None]
) -> Iterator[Export]:
    """Export all tables in one transaction into files beside `part`."""
    try:
        with closing(_connect(file)) as connection:
            connection.text_factory = _decode_text
            connection.execute("BEGIN")
            found = [row for row in connection.execute(_TABLES) if only in {None, row[0]}]
            is_empty = True
            for number, (name, type) in enumerate(found):
                target = part.with_name(f"{part.name}-{number}.csv")
                try:
                    export = _export_table(connection, name, target, on_rows)
                except sqlite3.OperationalError as error:
                    if type == "table" or only is not None:
                        raise
                    logger.error("The view %r of %r is left out: %s", name, file.name, error)
                    continue
                is_empty = False
                yield export
            if is_empty:
                raise DatasetRefused(f"The database {file.name!r} has no table to copy.")
    except sqlite3.Error as error:
        raise DatasetRefused(f"The database {file.name!r} cannot be read: {error}.") from error


def _connect(file: Path) -> sqlite3.Connection:
    uri = f"{file.resolve().as_uri()}?mode=ro"
    return sqlite3.connect(uri, uri=True, isolation_level=None)


def _decode_text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _export_table(
    connection: sqlite3.Connection, table: str, target: Path, on_rows: Callable[[int], None]
) -> Export:
    cursor = connection.execute(f"SELECT * FROM {quote_name(table)} LIMIT 0")
    names = [str(item[0]) for item in cursor.description]
    columns = _plan_columns(connection, table, names)
    cursor = connection.execute(f"SELECT * FROM {quote_name(table)}")
    with target.open("w", encoding="utf-8", newline="") as out:
        while rows := cursor.fetchmany(BATCH):
            out.writelines(",".join(map(_format_cell, row)) + "\n" for row in rows)
            on_rows(len(rows))
    return Export(table=table, file=target, columns=columns)


def _plan_columns(
    connection: sqlite3.Connection, table: str, names: Sequence[str]
) -> Sequence[ExportColumn]:
    """Infer column types from the values: SQLite does not enforce declared types."""
    types = ("blob", "text", "real", "integer")
    found: list[bool] = []
    for start in range(0, len(names), _COLUMNS_AT_ONCE):
        counts = ", ".join(
            f"max(typeof({quote_name(name)}) = '{type}')"
            for name in names[start : start + _COLUMNS_AT_ONCE]
            for type in types
        )
        found += connection.execute(f"SELECT {counts} FROM {quote_name(table)}").fetchone()
    columns: list[ExportColumn] = []
    for number, name in enumerate(names):
        has_blob, has_text, has_real, has_integer = found[4 * number : 4 * number + 4]
        if has_blob and not (has_text or has_real or has_integer):
            convert = "unhex({})"
        elif has_text or has_blob:
            convert = "{}"
        elif has_real:
            convert = "CAST({} AS DOUBLE)"
        else:
            convert = "CAST({} AS BIGINT)" if has_integer else "{}"
        columns.append(ExportColumn(name=name, select=quote_name(name), convert=convert))
    return columns


def _format_cell(cell: Any) -> str:
    match cell:
        case None:
            return EMPTY
        case str():
            return '"' + cell.replace('"', '""') + '"'
        case bytes():
            return f'"{cell.hex()}"'
        case _:
            return repr(cell)
