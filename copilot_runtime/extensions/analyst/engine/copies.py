"""Copy files and databases into a new DuckDB database file."""

import contextlib
import logging
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import Any

import duckdb

from copilot_runtime.extensions.analyst.engine.csv.lines import split_tables
from copilot_runtime.extensions.analyst.engine.csv.table import CsvFiles, CsvOptions
from copilot_runtime.extensions.analyst.engine.csv.totals import find_totals
from copilot_runtime.extensions.analyst.engine.datasets import (
    make_table_name,
    quote_name,
    quote_text,
    quote_texts,
)
from copilot_runtime.extensions.analyst.engine.errors import DatasetRefused
from copilot_runtime.extensions.analyst.engine.json_files import copy_json
from copilot_runtime.extensions.analyst.engine.postgres import Export
from copilot_runtime.extensions.analyst.engine.sandbox import (
    Config,
    EngineOptions,
    lock_connection,
)
from copilot_runtime.extensions.analyst.engine.sources import DataSource, list_files
from copilot_runtime.extensions.analyst.engine.sqlite import export_tables, is_sqlite
from copilot_runtime.extensions.analyst.engine.store import StoredTable, read_table
from copilot_runtime.extensions.analyst.engine.text_files import TextFile, decode_file
from copilot_runtime.extensions.analyst.engine.workbooks import DELIMITER, write_tables

logger = logging.getLogger(__name__)

Choose = Callable[[str], str]
"""Returns the name of a new data set for the name of a table."""
_Place = tuple[str, int]
"""The sheet of a table (or the name of its source), and its number there, from 1."""


class Copy:
    """A new database file. Call its methods in a worker, except `interrupt`."""

    def __init__(
        self, part: Path, options: EngineOptions, on_rows: Callable[[int], None] = lambda _: None
    ) -> None:
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
        self._on_rows = on_rows

    def copy_source(self, source: DataSource, choose: Choose) -> Sequence[StoredTable]:
        """Copy files into one table, or the tables of a DuckDB file."""
        if source.kind in {"duckdb", "sqlite"}:
            file = list_files(source)[0]
            if is_sqlite(file):
                exports = export_tables(file, source.table, self._part, self._on_rows)
                return self.copy_exports(exports, choose)
            return self._copy_database(source, choose)
        if source.kind == "xlsx":
            return self._copy_workbooks(source, choose)
        if source.kind == "csv":
            return self._copy_tables(source, choose)
        name = choose(source.name)
        if source.kind == "json":
            return [self._copy_json(source, name)]
        files = quote_texts(map(str, list_files(source)))
        self._connection.execute(
            f"CREATE OR REPLACE TABLE {quote_name(name)} AS "
            f"FROM read_parquet([{files}], union_by_name=true)"
        )
        return [self._find_totals(name)]

    def _copy_tables(self, source: DataSource, choose: Choose) -> Sequence[StoredTable]:
        """Copy each table of CSV files; those of the same number in several files are one."""
        tables: dict[_Place, list[TextFile]] = {}
        for path in list_files(source):
            file = decode_file(self._connection, path, self._texts)
            if not tables and "=" in path.parent.name:
                note = "Values in the names of folders, such as `year=2026`, are not read."
                file = file._replace(note=f"{file.note} {note}".strip())
            for number, table in enumerate(split_tables(file, self._texts), 1):
                tables.setdefault((source.name, number), []).append(table)
        return self._copy_texts(source, tables, choose)

    def _copy_workbooks(self, source: DataSource, choose: Choose) -> Sequence[StoredTable]:
        """Copy each table of the sheets; those of the same name in several files are one."""
        self._texts.mkdir(exist_ok=True)
        tables: dict[_Place, list[TextFile]] = {}
        for path in list_files(source):
            for sheet, number, file, notes in write_tables(
                path, self._texts, source.table, self._on_rows
            ):
                text = TextFile(file, " ".join(notes), DELIMITER, is_sheet=True)
                tables.setdefault((sheet, number), []).append(text)
        return self._copy_texts(source, tables, choose)

    def _copy_texts(
        self, source: DataSource, tables: Mapping[_Place, Sequence[TextFile]], choose: Choose
    ) -> Sequence[StoredTable]:
        """Copy tables; the first one of the only sheet, or of the files, has the source's name."""
        copies: list[StoredTable] = []
        left_out: list[str] = []
        is_only = len({sheet for sheet, _ in tables}) == 1
        names: dict[_Place, str] = {}
        for sheet, number in sorted(tables, key=itemgetter(1)):  # no further table takes a name
            first = source.name if is_only else sheet
            names[sheet, number] = choose(first if number == 1 else f"{first}_{number}")
        for place, files in tables.items():
            table = names[place]
            origins = {source.name, names[place[0], 1]}
            if is_only:
                origins.add(make_table_name(place[0]))
            try:
                copy = self._read_texts(source, table, files)
                copies.append(replace(copy, origins=sorted(origins)))
            except (duckdb.Error, ValueError) as error:
                if len(tables) == 1:
                    raise
                logger.error("The table %r of %r: %s", table, source.location, error)
                left_out.append(f"The table {table!r} cannot be read and is left out.")
        if not copies:
            raise DatasetRefused(f"The data source {source.label!r}: {' '.join(left_out)}")
        return [replace(copies[0], notes=[*left_out, *copies[0].notes]), *copies[1:]]

    def _read_texts(self, source: DataSource, name: str, files: Sequence[TextFile]) -> StoredTable:
        options = CsvOptions(columns=source.columns, dates=source.dates)
        table = CsvFiles(self._connection, files, self._texts, options)
        notes = table.create_table(name)
        return replace(self._read_table(name), notes=notes, totals=table.totals)

    def _copy_json(self, source: DataSource, name: str) -> StoredTable:
        files = [decode_file(self._connection, it, self._texts) for it in list_files(source)]
        options = CsvOptions(columns=source.columns, dates=source.dates)
        notes = copy_json(self._connection, name, files, self._texts, options)
        return self._find_totals(name, notes)

    def _copy_database(self, source: DataSource, choose: Choose) -> Sequence[StoredTable]:
        location = quote_text(str(list_files(source)[0]))
        self._connection.execute(f"ATTACH {location} AS source (READ_ONLY)")
        self._connection.execute("SET enable_external_access = false")
        tables = list_tables(self._connection, "source", source.table)
        views = list_views(self._connection, "source")
        copies: list[StoredTable] = []
        left_out: list[str] = []
        for schema, table in tables:
            name = choose(source.name if source.table else table)
            try:
                self._connection.execute(
                    f"CREATE TABLE {quote_name(name)} AS "
                    f"FROM source.{quote_name(schema)}.{quote_name(table)}"
                )
            except duckdb.Error as error:
                if (schema, table) not in views:
                    raise
                logger.error("The view %r of %r is left out: %s", table, source.location, error)
                left_out.append(f"The view {table!r} cannot be read and is left out.")
                continue
            copies.append(self._find_totals(name))
        self._connection.execute("DETACH source")
        if not copies:
            raise DatasetRefused(f"The database {source.label!r} has no tables.")
        return [replace(copies[0], notes=[*left_out, *copies[0].notes]), *copies[1:]]

    def copy_exports(self, exports: Iterable[Export], choose: Choose) -> Sequence[StoredTable]:
        """Copy tables that were exported from PostgreSQL into files, and delete the files."""
        copies: list[StoredTable] = []
        left_out: list[str] = []
        for export in exports:
            name = choose(export.table)
            create = f"CREATE TABLE {quote_name(name)} AS {export.build_select()}"
            try:
                self._connection.execute(create)
            except duckdb.InterruptException:
                raise
            except duckdb.Error as error:
                logger.error("The table %r: %s", export.table, error)
                left_out.append(f"The table {export.table!r} cannot be read and is left out.")
                continue
            finally:
                export.file.unlink(missing_ok=True)
            copies.append(self._find_totals(name, export.notes))
        if left_out and not copies:
            raise DatasetRefused(f"The database has no table that can be read. {left_out[0]}")
        if left_out:
            copies[0] = replace(copies[0], notes=[*left_out, *copies[0].notes])
        return copies

    def _find_totals(self, name: str, notes: Sequence[str] = ()) -> StoredTable:
        """Return a table with its notes, and those about lines that add up others."""
        more, totals = find_totals(self._connection, quote_name(name))
        return replace(self._read_table(name), notes=[*notes, *more], totals=totals)

    def _read_table(self, name: str) -> StoredTable:
        database: Any = self._connection.execute("SELECT current_database()").fetchone()
        return read_table(self._connection, name, name, str(database[0]))

    def interrupt(self) -> None:
        """Interrupt the running statement."""
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


def read_foreign(source: DataSource, choose: Choose) -> Sequence[StoredTable]:
    """Return the tables of a DuckDB file that is attached and not copied."""
    path = list_files(source)[0].resolve()
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH {quote_text(str(path))} AS source (READ_ONLY)")
        lock_connection(connection)
        views = list_views(connection, "source")
        pairs = [
            pair for pair in list_tables(connection, "source", source.table) if pair not in views
        ]
        if not pairs:
            raise DatasetRefused(f"The database {path.name!r} has no tables.")
        return [
            read_table(connection, choose(table), table, "source", schema)
            for schema, table in pairs
        ]


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
        (r"malformed json", "it is no JSON, or a part of it is broken"),
        (r"duplicate (key|name)", "a name stands twice in one of its objects"),
        (r"no magic bytes|too small to be a parquet", "it is no Parquet file"),
        (r"it is html, xml, json or packed", "it is HTML, XML, JSON or packed, and no CSV"),
        (r"first line has more", "its first line is too long"),
        (r"no space left", "the disk is full"),
        (r"expression depth", "it has too many columns: about 1,000 can be read"),
        (r"out of memory|allocate", "it needs more memory than it may have"),
        (r"error when sniffing|csv error", "it is no table of lines with equal columns"),
        (r"convert|could not cast", "a value is not of the type of its column"),
    )
]
