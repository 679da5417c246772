"""Export the tables of SQLite databases into files, in one transaction."""

import logging
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from copilot_runtime.extensions.analyst.engine.datasets import quote_name
from copilot_runtime.extensions.analyst.engine.errors import DatasetRefused
from copilot_runtime.extensions.analyst.engine.postgres import EMPTY, Export, ExportColumn

logger = logging.getLogger(__name__)

BATCH = 5_000

_TABLES = """
SELECT name, type FROM pragma_table_list
WHERE schema = 'main' AND type IN ('table', 'view', 'virtual')
  AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name
"""
"""Without the shadow tables in which an index, such as that of FTS5, keeps its data."""

_MOMENT = re.compile("DATETIME|TIMESTAMP|DATE")
"""Declared types of dates."""
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
            texts = _Texts()
            connection.text_factory = texts.decode
            connection.execute("BEGIN")
            found = [row for row in connection.execute(_TABLES) if only in {None, row[0]}]
            notes = [*_describe_views(connection, found)]
            is_empty = True
            for number, (name, type) in enumerate(found):
                target = part.with_name(f"{part.name}-{number}.csv")
                try:
                    texts.count = 0
                    export = _export_table(connection, name, target, on_rows)
                    if texts.count:
                        note = f"Texts that are not UTF-8 are read as cp1252: {texts.count:,}."
                        notes.append(note)
                except sqlite3.OperationalError as error:
                    if type == "table" or only is not None:
                        raise
                    logger.error("The view %r of %r is left out: %s", name, file.name, error)
                    continue
                yield replace(export, notes=[*notes, *export.notes])
                is_empty, notes = False, []
            if is_empty:
                raise DatasetRefused(f"The database {file.name!r} has no table to copy.")
    except sqlite3.Error as error:
        raise DatasetRefused(f"The database {file.name!r} cannot be read: {error}.") from error


def _describe_views(
    connection: sqlite3.Connection, found: Sequence[tuple[str, str]]
) -> Iterator[str]:
    """Yield a sentence for each view that cannot be read."""
    for name, type in found:
        try:
            connection.execute(f"SELECT * FROM {quote_name(name)} LIMIT 0")
        except sqlite3.OperationalError:
            if type != "table":
                yield f"The view {name!r} cannot be read and is left out."


def _connect(file: Path) -> sqlite3.Connection:
    uri = f"{file.resolve().as_uri()}?mode=ro"
    return sqlite3.connect(uri, uri=True, isolation_level=None)


class _Texts:
    """Decodes texts; SQLite keeps any bytes that a program has written."""

    def __init__(self) -> None:
        self.count = 0
        """The number of those that were not UTF-8."""

    def decode(self, data: bytes) -> str:
        """Return a text."""
        try:
            return data.decode()
        except UnicodeDecodeError:
            self.count += 1
            return data.decode("cp1252", "replace")


def _export_table(
    connection: sqlite3.Connection, table: str, target: Path, on_rows: Callable[[int], None]
) -> Export:
    cursor = connection.execute(f"SELECT * FROM {quote_name(table)} LIMIT 0")
    names = [str(item[0]) for item in cursor.description]
    columns, notes = _plan_columns(connection, table, names)
    cursor = connection.execute(f"SELECT * FROM {quote_name(table)}")
    with target.open("w", encoding="utf-8", newline="") as out:
        while rows := cursor.fetchmany(BATCH):
            out.writelines(",".join(map(_format_cell, row)) + "\n" for row in rows)
            on_rows(len(rows))
    return Export(table=table, file=target, columns=columns, notes=notes)


def _plan_columns(
    connection: sqlite3.Connection, table: str, names: Sequence[str]
) -> tuple[Sequence[ExportColumn], Sequence[str]]:
    """Infer column types from the values: SQLite does not enforce declared types.

    Returns what is not certain as well, in sentences.
    """
    types = ("blob", "text", "real", "integer")
    declared = {
        str(row[1]): str(row[2]).upper()
        for row in connection.execute(f"PRAGMA table_xinfo({quote_name(table)})")
    }
    notes: list[str] = []
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
            kind = declared.get(name, "")
            if has_real or has_integer:
                notes.append(f"{name!r} is a text: it has numbers and other values.")
            elif match := _MOMENT.match(kind):
                type = "DATE" if match[0] == "DATE" else "TIMESTAMP"
                if _has_dates(connection, table, name, is_day=type == "DATE"):
                    convert = f"CAST({{}} AS {type})"
                else:
                    notes.append(f"{name!r} is a text: not all of its values are a {type}.")
        elif has_real:
            convert = "CAST({} AS DOUBLE)"
        else:
            convert = "CAST({} AS BIGINT)" if has_integer else "{}"
        title = name or f"column{number}"
        columns.append(ExportColumn(name=title, select=quote_name(name), convert=convert))
    return columns, notes


def _has_dates(connection: sqlite3.Connection, table: str, name: str, *, is_day: bool) -> bool:
    """Return whether all texts of a column are dates that exist, or dates with a time."""
    column = quote_name(name)
    time = (
        ""
        if is_day
        else f" OR datetime({column}, '+0 days') = replace(substr({column}, 1, 19), 'T', ' ')"
    )
    row = connection.execute(
        f"SELECT 1 FROM {quote_name(table)} WHERE {column} IS NOT NULL "
        f"AND NOT coalesce(date({column}, '+0 days') = {column}{time}, FALSE) LIMIT 1"
    )
    return row.fetchone() is None


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
