"""Tables of SQLite, written into files that DuckDB reads: it needs no extension then."""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from copilot_runtime.extensions.analyst.engine.datasets import quote_name
from copilot_runtime.extensions.analyst.engine.errors import DatasetRefused
from copilot_runtime.extensions.analyst.engine.exports import EMPTY, Export, ExportColumn

BATCH = 5_000

_TABLES = """
SELECT name FROM sqlite_master
WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name
"""


def is_sqlite(file: Path) -> bool:
    """Return whether a file is a database of SQLite, or one that cannot be read.

    SQLite itself opens it: to close it here would end the locks of all who have it open in this
    process, such as the store of traces.
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
    """Write table after table, of one moment, into files beside `part`."""
    try:
        with closing(_connect(file)) as connection:
            connection.text_factory = _decode_text
            connection.execute("BEGIN")
            names = [row[0] for row in connection.execute(_TABLES)]
            names = [name for name in names if only in {None, name}]
            if not names:
                raise DatasetRefused(f"The database {file.name!r} has no table to copy.")
            for number, name in enumerate(names):
                target = part.with_name(f"{part.name}-{number}.csv")
                yield _export_table(connection, name, target, on_rows)
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
    """Find the types by the values: those that a table of SQLite declares bind nobody."""
    types = ("blob", "text", "real", "integer")
    counts = ", ".join(
        f"max(typeof({quote_name(name)}) = '{type}')" for name in names for type in types
    )
    found = connection.execute(f"SELECT {counts} FROM {quote_name(table)}").fetchone()
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
