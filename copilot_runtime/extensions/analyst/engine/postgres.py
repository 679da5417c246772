"""Export tables of PostgreSQL into files that DuckDB reads, so that it needs no extension."""

import hashlib
import secrets
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from copilot_runtime.base.errors import MissingPackage
from copilot_runtime.extensions.analyst.engine.datasets import quote_name, quote_text
from copilot_runtime.extensions.analyst.engine.errors import DatasetRefused
from copilot_runtime.extensions.analyst.engine.sources import DataSource, Progress

EMPTY = "\\N"
"""The marker for NULL in exported files; in quotes, it is ordinary text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportColumn:
    """A column of an exported table: `select` is for PostgreSQL, `convert` for DuckDB."""

    name: str
    select: str
    convert: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """An exported table of PostgreSQL or SQLite."""

    table: str
    file: Path
    columns: Sequence[ExportColumn]
    notes: Sequence[str] = ()
    """Sentences about what is not certain."""

    def build_select(self) -> str:
        """Return DuckDB SQL that reads the file, with the types of the table."""
        names = ", ".join(f"'c{number}': 'VARCHAR'" for number in range(len(self.columns)))
        chosen = ", ".join(
            f"{column.convert.format(f'c{number}')} AS {quote_name(column.name)}"
            for number, column in enumerate(self.columns)
        )
        return (
            f"SELECT {chosen} FROM read_csv({quote_text(str(self.file))}, header=false, "
            f"auto_detect=false, delim=',', quote='\"', escape='\"', columns={{{names}}}, "
            f"nullstr={quote_text(EMPTY)}, allow_quoted_nulls=false, max_line_size=268435456)"
        )


TYPES = {
    "bool": "BOOLEAN",
    "int2": "SMALLINT",
    "int4": "INTEGER",
    "int8": "BIGINT",
    "float4": "FLOAT",
    "float8": "DOUBLE",
    "numeric": "DOUBLE",
    "date": "DATE",
    "time": "TIME",
    "timestamp": "TIMESTAMP",
    "timestamptz": "TIMESTAMP WITH TIME ZONE",
    "uuid": "UUID",
    "json": "JSON",
    "jsonb": "JSON",
    "bytea": "BLOB",
}
"""PostgreSQL type to DuckDB type. All others become texts, and arrays of these become lists."""

_TABLES = """
SELECT n.nspname AS schema, c.relname AS name, c.oid::bigint AS oid, c.relkind::text AS kind,
       c.relfilenode::bigint AS filenode, greatest(c.reltuples, 0)::bigint AS rows,
       CASE WHEN c.relkind IN ('r', 'm') THEN pg_relation_size(c.oid) ELSE 0 END AS size,
       coalesce(s.n_tup_ins + s.n_tup_upd + s.n_tup_del, 0)::bigint AS changes
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_stat_all_tables s ON s.relid = c.oid
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition
  AND n.nspname <> 'information_schema' AND n.nspname NOT LIKE 'pg\\_%'
  AND has_table_privilege(c.oid, 'SELECT') AND (NOT $1 OR pg_table_is_visible(c.oid))
ORDER BY 1, 2
"""

_COLUMNS = """
SELECT a.attname AS name, coalesce(e.typname, t.typname) AS type, e.oid IS NOT NULL AS is_array,
       a.atttypmod AS modifier, format_type(a.atttypid, a.atttypmod) AS text
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_type e ON e.oid = t.typelem AND t.typcategory = 'A'
WHERE a.attrelid = $1::bigint::oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""


@asynccontextmanager
async def _connect(source: DataSource) -> AsyncGenerator[Any]:
    try:
        asyncpg: Any = import_module("asyncpg")
    except ImportError as error:
        raise MissingPackage("Data of PostgreSQL", "asyncpg", "analyst") from error
    settings = {
        "TimeZone": "UTC",
        "DateStyle": "ISO",
        "IntervalStyle": "postgres",
        "bytea_output": "hex",
        "extra_float_digits": "3",
    }
    try:
        connection = await asyncpg.connect(source.location, server_settings=settings, timeout=15)
        try:
            yield connection
        finally:
            await connection.close(timeout=5)
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, ValueError) as error:
        kind = type(error).__name__
        raise DatasetRefused(
            f"{source.label} cannot be read ({kind}).",
            hint="Check the URL, the password and the rights of its user.",
        ) from error


async def _list_tables(connection: Any, source: DataSource) -> Sequence[Any]:
    is_path = "search_path" in urlsplit(source.location).query
    rows = await connection.fetch(_TABLES, is_path)
    if source.table is not None:
        only = source.table
        rows = [row for row in rows if only in (row["name"], f"{row['schema']}.{row['name']}")]
    if not rows:
        what = f"no table {source.table!r}" if source.table else "no tables"
        raise DatasetRefused(f"{source.label} has {what} that its user may read.")
    return rows


async def fingerprint_database(source: DataSource) -> str:
    """Return a fingerprint that changes with any table; with views, it is unique each time."""
    async with _connect(source) as connection:
        tables = await _list_tables(connection, source)
        parts: list[Any] = []
        for table in tables:
            columns = await connection.fetch(_COLUMNS, table["oid"])
            shape = [tuple(column.values()) for column in columns]
            counts = [table[key] for key in ("oid", "filenode", "size", "changes")]
            has_counts = table["kind"] in {"r", "m"}
            parts.append((table["name"], shape, counts if has_counts else secrets.token_hex(8)))
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


async def export_database(
    source: DataSource, part: Path, report: Callable[[Progress], None]
) -> Sequence[Export]:
    """Export all tables in one transaction into files beside `part`."""
    exports: list[Export] = []
    async with (
        _connect(source) as connection,
        connection.transaction(isolation="repeatable_read", readonly=True),
    ):
        tables = await _list_tables(connection, source)
        report(Progress(source=source.name))
        for number, table in enumerate(tables):
            columns = [
                _plan_column(column) for column in await connection.fetch(_COLUMNS, table["oid"])
            ]
            if not columns:
                continue
            file = part.with_name(f"{part.name}-{number}.csv")
            name = f"{quote_name(table['schema'])}.{quote_name(table['name'])}"
            query = f"SELECT {', '.join(column.select for column in columns)} FROM {name}"
            await connection.copy_from_query(query, output=file, format="csv", null=EMPTY)
            exports.append(Export(table=table["name"], file=file, columns=columns))
    return exports


def _plan_column(column: Any) -> ExportColumn:
    name, quoted = column["name"], quote_name(column["name"])
    target = _find_type(column)
    if column["is_array"]:
        element = target if target != "BLOB" else "VARCHAR"
        return ExportColumn(
            name=name,
            select=f"array_to_json({quoted})::text",
            convert=f"CAST(CAST({{}} AS JSON) AS {element}[])",
        )
    if target == "BLOB":
        return ExportColumn(name=name, select=f"encode({quoted}, 'hex')", convert="unhex({})")
    if target.startswith("DECIMAL"):
        return ExportColumn(
            name=name, select=f"{quoted}::text", convert=f"TRY_CAST({{}} AS {target})"
        )
    if target in {"DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE"}:
        return ExportColumn(
            name=name, select=f"{quoted}::text", convert=f"TRY_CAST({{}} AS {target})"
        )
    return ExportColumn(name=name, select=f"{quoted}::text", convert=f"CAST({{}} AS {target})")


def _find_type(column: Any) -> str:
    if column["type"] == "numeric" and column["modifier"] >= 4:
        precision, scale = (column["modifier"] - 4) >> 16, (column["modifier"] - 4) & 0x7FF
        if precision <= 38 and scale <= precision:
            return f"DECIMAL({precision}, {scale})"
    return TYPES.get(column["type"], "VARCHAR")
