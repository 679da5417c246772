"""Queries of the tools themselves: columns by approximate names, trees, and their guarded runs."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlglot import exp

from copilot_runtime.extensions.analyst.results import Column, Fix, Lineage, Table, Trust
from copilot_runtime.extensions.analyst.sql.guard import GuardedQuery
from copilot_runtime.extensions.analyst.sql.parsing import hash_sql
from copilot_runtime.extensions.analyst.tools.tool import ToolFailed
from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.database import start_database_span
from copilot_runtime.telemetry.span import Span, find_current_span, trace_block

if TYPE_CHECKING:
    from copilot_runtime.extensions.analyst.engine.datasets import Dataset
    from copilot_runtime.extensions.analyst.session import Session


CLOSE_ENOUGH = 80.0
"""Minimum similarity of two names, from 0 to 100."""

MOST_NAMES = 60
"""Maximum number of columns that an error message lists."""

_SCORES = re.compile(r"score|accuracy|precision|recall|rate|ratio|quality", re.I)
_IDS = re.compile(r"(^|_)(id|uuid|key|code|number|no)$|^id_", re.I)


def is_score(name: str) -> bool:
    """Return `True` if a column's name suggests a score between 0 and 1."""
    return _SCORES.search(name) is not None


def is_id(name: str) -> bool:
    """Return `True` if a column's name suggests an identifier."""
    return _IDS.search(name) is not None


def list_measures(columns: Sequence[Column]) -> list[Column]:
    """Return the numeric columns; identifier-like ones only if there are no others."""
    numeric = [column for column in columns if column.is_numeric]
    return [column for column in numeric if not is_id(column.name)] or numeric


def find_column(
    name: str, columns: Sequence[Column], synonyms: Mapping[str, str] | None = None
) -> Column:
    """Return the column that a name refers to.

    Tries the name in any case, synonyms, the column whose name contains it, and the most similar
    one. Raises `ToolFailed` with a list of the columns.
    """
    if found := match_column(name, columns, synonyms):
        return found
    raise ToolFailed(
        f"There is no column {name[:100]!r}.",
        hint="Use one of the available columns.",
        details={"available_columns": [column.name for column in columns[:MOST_NAMES]]},
    )


def match_column(
    name: str, columns: Sequence[Column], synonyms: Mapping[str, str] | None = None
) -> Column | None:
    """Return the column that best matches a name, or `None` if no name is close enough."""
    name = name.strip().strip('"`[]')
    for column in columns:
        if column.name == name:
            return column
    target = _normalize(name)
    if not target:
        return None
    by_name = {_normalize(column.name): column for column in reversed(columns)}
    if target in by_name:
        return by_name[target]
    meaning = (synonyms or {}).get(name.lower())
    if meaning and _normalize(meaning) in by_name:
        return by_name[_normalize(meaning)]
    within = [key for key in by_name if target in key]
    if len(target) > 2 and within:
        return by_name[min(within, key=lambda key: (len(key), key))]
    return _match_similar(target, by_name)


def _match_similar(target: str, by_name: Mapping[str, Column]) -> Column | None:
    from rapidfuzz import fuzz, process

    best = process.extractOne(target, list(by_name), scorer=fuzz.ratio, score_cutoff=CLOSE_ENOUGH)
    return by_name[best[0]] if best else None


def _normalize(name: str) -> str:
    """Return a name case-folded and without word separators."""
    return re.sub(r"[\W_]+", "_", name.strip().lower()).strip("_")


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
    if column.is_numeric:
        # a single NaN would make the average NaN
        double = exp.cast(named, "DOUBLE")
        if column.type.upper() in ("DOUBLE", "FLOAT", "REAL"):
            is_usable = exp.func("ISFINITE", double.copy())
            return exp.Case(ifs=[exp.If(this=is_usable, true=double)])
        return double
    return exp.TryCast(this=named, to=exp.DataType.build("DOUBLE"))


STATISTICS: Mapping[str, tuple[str, *tuple[float, ...]]] = {
    "count": ("count",),
    "avg": ("avg",),
    "std": ("stddev_samp",),
    "min": ("min",),
    "q25": ("quantile_cont", 0.25),
    "median": ("quantile_cont", 0.5),
    "q75": ("quantile_cont", 0.75),
    "max": ("max",),
}
"""Statistics of numbers: a function of DuckDB each, and its arguments after the column."""


def measure(column: Column, statistic: str) -> exp.Expr:
    """Return a statistic of a column's numbers."""
    name, *arguments = STATISTICS[statistic]
    return call(name, to_number(column), *map(build_literal, arguments))


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
    query = await session.guard(tree)
    engine, timeout = session.services.engine, session.services.query_timeout
    with trace_block(start_query_span(session, query)) as span:
        table = await engine.run(query.with_limit(limit + 1), limit=limit, timeout=timeout)
        span.set_attributes({semconv.DB_RESPONSE_RETURNED_ROWS: len(table.rows)})
        return table, query


async def read_row(session: "Session", tree: exp.Expr) -> tuple[Mapping[str, Any], GuardedQuery]:
    """Return the only row of an aggregate query, by column name."""
    table, query = await run_tree(session, tree, limit=1)
    return dict(zip((one.name for one in table.columns), table.rows[0], strict=True)), query


async def count_matches(
    session: "Session", dataset: "Dataset", conditions: Sequence[exp.Expr], table: Table
) -> int:
    """Return the number of rows that meet conditions, of which a table has the first ones."""
    if not table.is_truncated:
        return len(table.rows)
    count = as_name(exp.Count(this=exp.Star()), "total")
    row, _ = await read_row(session, select([count], dataset.name, conditions))
    return int(row["total"])


async def describe_left_out(
    session: "Session",
    dataset: "Dataset",
    columns: Sequence[Column],
    conditions: Sequence[exp.Expr] = (),
) -> list[str]:
    """Return a sentence for each column of which `to_number` leaves values or rows out."""
    if not columns:
        return []
    items = [as_name(exp.Count(this=exp.Star()), "all_rows")]
    for index, column in enumerate(columns):
        items += [
            as_name(exp.Count(this=name_column(column.name)), f"filled_{index}"),
            as_name(exp.Count(this=to_number(column)), f"numbers_{index}"),
        ]
    row, _ = await read_row(session, select(items, dataset.name, conditions))
    total = int(row["all_rows"])
    sentences: list[str] = []
    for index, column in enumerate(columns):
        filled, numbers = int(row[f"filled_{index}"]), int(row[f"numbers_{index}"])
        if others := filled - numbers:
            kind = "not finite" if column.is_numeric else "no numbers"
            sentences.append(
                f"{others:,} of {filled:,} values of {column.name!r} are {kind} and left out."
            )
        if empty := total - filled:
            sentences.append(f"{empty:,} of {total:,} rows have no value of {column.name!r}.")
    return sentences


class Order(NamedTuple):
    """By what the records of a column are ordered, and what that leaves out."""

    value: exp.Expr
    checks: Sequence[str] = ()


async def find_order(
    session: "Session", dataset: "Dataset", column: Column, conditions: Sequence[exp.Expr]
) -> Order:
    """Return the numbers of a text column, if most of its values are some."""
    named = name_column(column.name)
    if not column.is_text:
        return Order(named)
    items = [
        as_name(exp.Count(this=named.copy()), "filled"),
        as_name(exp.Count(this=to_number(column)), "numbers"),
    ]
    row, _ = await read_row(session, select(items, dataset.name, conditions))
    if int(row["numbers"]) * 2 <= int(row["filled"]):
        return Order(
            named, [f"The values of {column.name!r} are texts, compared by their letters."]
        )
    checks = await describe_left_out(session, dataset, [column], conditions)
    return Order(to_number(column), checks)


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
