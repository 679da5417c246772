"""Queries of the tools themselves: built as trees, guarded like a model's SQL, and run."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from copilot_runtime.extensions.analyst.results import Column, Fix, Lineage, Table, Trust
from copilot_runtime.extensions.analyst.sql.guard import GuardedQuery
from copilot_runtime.extensions.analyst.sql.parsing import hash_sql
from copilot_runtime.extensions.analyst.tools.columns import is_numeric
from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.database import start_database_span
from copilot_runtime.telemetry.span import Span, find_current_span, trace_block

if TYPE_CHECKING:
    from copilot_runtime.extensions.analyst.session import Session

MOST_ROWS = 500
"""Maximum number of result rows for the user."""


def name_column(name: str) -> exp.Column:
    """Return a column node with a quoted name."""
    return exp.column(exp.to_identifier(name, quoted=True))


def name_table(name: str) -> exp.Table:
    """Return a table node with a quoted name."""
    return exp.Table(this=exp.to_identifier(name, quoted=True))


def build_literal(value: Any) -> exp.Expr:
    """Return a value as a literal node: a model's text can never become SQL."""
    if value is None:
        return exp.Null()
    if isinstance(value, bool):
        return exp.Boolean(this=value)
    if isinstance(value, float) and not math.isfinite(value):
        return exp.cast(exp.Literal.string(str(value)), "DOUBLE")
    if isinstance(value, int | float | Decimal):
        return exp.convert(value)
    if isinstance(value, datetime | date):
        return exp.Literal.string(value.isoformat())
    return exp.Literal.string(str(value).replace("\0", ""))


def to_text(expression: exp.Expr) -> exp.Expr:
    """Return an expression as VARCHAR."""
    return exp.cast(expression, "VARCHAR")


def to_number(column: Column) -> exp.Expr:
    """Cast a column to a number for averages; text that is not a number becomes NULL."""
    named = name_column(column.name)
    if is_numeric(column):
        # a single NaN would make the average NaN
        double = exp.cast(named, "DOUBLE")
        if column.type.upper() in ("DOUBLE", "FLOAT", "REAL"):
            is_usable = exp.func("ISFINITE", double.copy())
            return exp.Case(ifs=[exp.If(this=is_usable, true=double)])
        return double
    return exp.TryCast(this=named, to=exp.DataType.build("DOUBLE"))


def call(name: str, *arguments: exp.Expr) -> exp.Expr:
    """Return a call of a DuckDB function by its name in DuckDB."""
    return exp.Anonymous(this=name, expressions=list(arguments))


def select(
    items: Iterable[exp.Expr], table: str, conditions: Sequence[exp.Expr] = ()
) -> exp.Select:
    """Return `SELECT items FROM table WHERE conditions`."""
    query = exp.Select().select(*items).from_(name_table(table))
    return query.where(*conditions) if conditions else query


def as_name(expression: exp.Expr, name: str) -> exp.Expr:
    """Return `expression AS "name"`."""
    return exp.alias_(expression, exp.to_identifier(name, quoted=True))


async def run_tree(
    session: "Session", tree: exp.Expr, *, limit: int = MOST_ROWS
) -> tuple[Table, GuardedQuery]:
    """Run our own query for the caller, through the same guard and filters as a model's."""
    query = session.guard(tree)
    return await run_query(session, query, limit=limit), query


async def run_query(
    session: "Session", query: GuardedQuery, *, limit: int, timeout: float | None = None
) -> Table:
    """Run a guarded query within its own span."""
    with trace_block(start_query_span(session, query)) as span:
        table = await session.services.engine.run(
            query.with_limit(limit + 1),
            limit=limit,
            timeout=timeout or session.services.query_timeout,
        )
        span.set_attributes({semconv.DB_RESPONSE_RETURNED_ROWS: len(table.rows)})
        return table


def start_query_span(session: "Session", query: GuardedQuery, attempt: int = 1) -> Span:
    """Start the span of one attempt to run a query."""
    current = find_current_span()
    parent = current if current.is_recording else session.span
    if not parent.is_recording:
        return parent.start_child("")
    span = start_database_span(
        parent,
        system="duckdb",
        operation="SELECT",
        collection=", ".join(query.tables),
        query=query.display_sql,
    )
    span.set_attributes(
        {semconv.SQL_ATTEMPT: attempt, semconv.SQL_HASH: hash_sql(query.display_sql)}
    )
    return span


async def count_rows(session: "Session", tables: Iterable[str]) -> int:
    """Return the total number of rows in the tables that the caller may see."""
    engine, total = session.services.engine, 0
    for name in tables:
        total += (await engine.describe(name, session.scope)).row_count
    return total


async def build_lineage(
    session: "Session",
    queries: Sequence[GuardedQuery],
    *,
    trust: Trust = "derived",
    metrics: Sequence[str] = (),
    checks: Sequence[str] = (),
    fixes: Sequence[Fix] = (),
) -> Lineage:
    """Build the lineage of one result."""
    tables = list(dict.fromkeys(name for query in queries for name in query.tables))
    return Lineage(
        trust=trust,
        sql=";\n".join(query.display_sql for query in queries),
        tables=tables,
        columns=list(dict.fromkeys(name for query in queries for name in query.columns)),
        filters=list(dict.fromkeys(text for query in queries for text in _list_filters(query))),
        metrics=metrics,
        rows_scanned=await count_rows(session, tables),
        checks=checks,
        fixes=fixes,
    )


def _list_filters(query: GuardedQuery) -> Iterator[str]:
    yield from query.filters
    for table in query.restricted:
        yield f"{table}: only rows that you may see"


def limit_rows(table: Table, most: int) -> Table:
    """Return the first rows of a table."""
    if len(table.rows) <= most:
        return table
    return replace(table, rows=table.rows[:most], is_truncated=True)
