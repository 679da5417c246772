"""Check a query result for common mistakes with bounded queries; report each as a sentence."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from math import isfinite
from typing import Any, NamedTuple

from sqlglot import exp

from copilot_runtime.base.errors import CopilotError
from copilot_runtime.extensions.analyst.results import Fix, Table
from copilot_runtime.extensions.analyst.sql.parsing import quote, read_sql
from copilot_runtime.extensions.analyst.sql.repair.casts import build_null_counts
from copilot_runtime.extensions.analyst.sql.repair.context import (
    RepairContext,
    Source,
    StepLimitExceeded,
    find_source,
    list_sources,
    to_sql,
)

FEW_ROWS = 5
"""Averages over fewer values are reported."""
SECONDS = 2.0
"""Time limit for all checks of one result, in seconds."""

_MOST_QUERIES = 8
_MOST_COLUMNS = 5

Run = Callable[[exp.Expr], Awaitable[Table]]
"""Runs an auxiliary query, guarded like the user's own, and returns a few rows."""


async def check_result(
    tree: exp.Expr,
    table: Table,
    *,
    context: RepairContext,
    run: Run | None = None,
    fixes: Sequence[Fix] = (),
) -> Sequence[str]:
    """Return warnings about a result, one sentence each.

    Args:
        tree: The query without row filters.
        table: Its rows.
        context: The schema.
        run: Runs auxiliary queries; without it, only the rows are checked.
        fixes: Repairs of the query.
    """
    found = [*_check_rows(tree, table)]
    found += [
        f"{fix.nulls:,} {'value' if fix.nulls == 1 else 'values'} of {fix.before!r} did not "
        "convert and count as NULL."
        for fix in fixes
        if fix.nulls
    ]
    if run is not None and isinstance(tree, exp.Select):
        measure = _Measure(tree, context, run, {fix.after for fix in fixes})
        try:
            async with asyncio.timeout(SECONDS):
                async for sentence in measure.list_findings():
                    found.append(sentence)
        except (TimeoutError, StepLimitExceeded):
            pass  # report the findings so far
    return list(dict.fromkeys(found))


def _check_rows(tree: exp.Expr, table: Table) -> Iterator[str]:
    rows = table.rows
    if not rows:
        where = tree.args.get("where")
        condition = f": none fulfils {to_sql(where.this)}" if isinstance(where, exp.Where) else ""
        yield f"The result is empty{condition}."
        return
    empty = [
        column.name
        for at, column in enumerate(table.columns)
        if all(row[at] is None for row in rows)
    ]
    if empty:
        names = ", ".join(map(repr, empty[:_MOST_COLUMNS]))
        yield f"Every value of {names} is NULL."
    for at, column in enumerate(table.columns):
        if any(isinstance(row[at], float) and not isfinite(row[at]) for row in rows):
            yield f"{column.name!r} has values that are NaN or infinite, shown as empty."
    limit = _read_limit(tree)
    if table.is_truncated:
        yield f"Only the first {len(rows):,} rows were fetched; there are more."
    elif limit is not None and len(rows) == limit > 1:
        order = "" if tree.args.get("order") else ", and without ORDER BY it is any of them"
        yield f"LIMIT {limit:,} may have cut the result{order}."


def _read_limit(tree: exp.Expr) -> int | None:
    limit = tree.args.get("limit")
    value = limit.expression if isinstance(limit, exp.Limit) else None
    return int(value.name) if isinstance(value, exp.Literal) and value.name.isdigit() else None


class _Key(NamedTuple):
    """The columns by which one side of a join is matched."""

    alias: str
    table: str
    columns: tuple[str, ...]

    def __str__(self) -> str:
        return ", ".join(f"{self.table}.{name}" for name in self.columns)


class _Join(NamedTuple):
    """The sides of a join, and whether the query aggregates anything, or columns of a side."""

    left: _Key
    right: _Key
    has_aggregates: bool
    uses_left: bool
    uses_right: bool


class _Measure:
    """Checks a query with auxiliary queries on the data."""

    def __init__(
        self, tree: exp.Select, context: RepairContext, run: Run, repairs: set[str]
    ) -> None:
        self._tree = tree
        self._context = context
        self._run = run
        self._repairs = repairs
        self._queries = 0

    async def list_findings(self) -> AsyncIterator[str]:
        """Yield warnings that the data supports, the most important first."""
        for select in self._tree.find_all(exp.Select):
            for join in select.args.get("joins") or []:
                if self._queries >= _MOST_QUERIES:
                    return
                async for sentence in self._check_join(select, join):
                    yield sentence
        for check in (self._check_casts, self._check_averages, self._check_texts):
            async for sentence in check():
                yield sentence

    async def _check_join(self, select: exp.Select, join: exp.Join) -> AsyncIterator[str]:
        read = await read_sql(partial(_read_join, select, join, self._context))
        if read is None:
            return
        left, right = read.left, read.right
        most_left, most_right = await self._count_most(left), await self._count_most(right)
        repeats_left, repeats_right = most_right > 1, most_left > 1
        if repeats_left and repeats_right and read.has_aggregates:
            yield (
                f"Neither {left} nor {right} is unique: the join combines up to "
                f"{most_left:,} with up to {most_right:,} rows, so counts and sums may be too high."
            )
        elif repeats_left and read.uses_left:
            yield _describe_fan_out(left, right, most_right)
        elif repeats_right and read.uses_right:
            yield _describe_fan_out(right, left, most_left)
        if not join.side and join.kind in ("", "INNER"):
            for one, other in ((left, right), (right, left)):
                total, matched = await self._count_matches(one, other)
                if total > matched:
                    yield (
                        f"The join leaves out {total - matched:,} of {total:,} rows of "
                        f"{one.table!r}: {other.table!r} has no row for them."
                    )

    async def _count_most(self, key: _Key) -> int:
        """Return the maximum number of rows with the same key."""
        columns = [exp.column(quote(name)) for name in key.columns]
        counts = exp.select(exp.alias_(exp.Count(this=exp.Star()), "n"))
        counts = counts.from_(exp.Table(this=quote(key.table))).where(
            *(exp.Not(this=exp.Is(this=it.copy(), expression=exp.Null())) for it in columns)
        )
        counts = counts.group_by(*columns)
        row = await self._ask(
            exp.select(exp.Max(this=exp.column("n"))).from_(counts.subquery("keys"))
        )
        return int(row[0] or 0) if row else 0

    async def _count_matches(self, key: _Key, other: _Key) -> tuple[int, int]:
        """Return the number of rows, and of rows with a match on the other side of the join."""
        names = [f"k{at}" for at in range(len(key.columns))]
        pairs = zip(other.columns, names, strict=True)
        keys = exp.select(*(exp.alias_(exp.column(quote(it)), name) for it, name in pairs))
        keys = keys.from_(exp.Table(this=quote(other.table))).distinct()
        conditions = [
            exp.EQ(
                this=exp.column(quote(column), table="rows_of"),
                expression=exp.column(name, table="keys"),
            )
            for column, name in zip(key.columns, names, strict=True)
        ]
        query = exp.select(
            exp.Count(this=exp.Star()), exp.Count(this=exp.column(names[0], table="keys"))
        ).from_(exp.alias_(exp.Table(this=quote(key.table)), "rows_of", table=True))
        query = query.join(keys.subquery("keys"), on=exp.and_(*conditions), join_type="left")
        row = await self._ask(query)
        return (int(row[0]), int(row[1])) if row else (0, 0)

    async def _check_casts(self) -> AsyncIterator[str]:
        """Yield a warning for each TRY_CAST of the query that produces NULLs."""
        counts = (
            one
            for one in build_null_counts(exp.select("1"), self._tree)
            if one[0] not in self._repairs
        )
        for text, query in await read_sql(lambda: [*islice(counts, _MOST_QUERIES)]):
            row = await self._ask(query)
            if row and row[0]:
                values = "value does" if row[0] == 1 else "values do"
                yield f"{int(row[0]):,} {values} not convert by {text} and count as NULL."

    async def _check_averages(self) -> AsyncIterator[str]:
        """Yield a warning if averages are over few values."""
        averages = [it for it in _list_aggregates(self._tree) if isinstance(it, _MEANS)]
        if not averages or self._tree.args.get("distinct"):
            return
        query = self._tree.copy()
        count = exp.Count(this=averages[0].this.copy())
        query.append("expressions", exp.alias_(count, "values_of_average"))
        few = exp.LT(this=exp.column("values_of_average"), expression=exp.Literal.number(FEW_ROWS))
        outer = exp.select(
            exp.Count(this=exp.Star()), exp.CountIf(this=few), exp.Min(this=few.this.copy())
        ).from_(query.subquery("averages"))
        row = await self._ask(outer)
        if not row or not row[1]:
            return
        if int(row[0]) == 1:
            yield f"The average is over {int(row[2])} values only."
        else:
            yield (
                f"{int(row[1]):,} of {int(row[0]):,} averages are over fewer than {FEW_ROWS} "
                f"values, the smallest over {int(row[2])}."
            )

    async def _check_texts(self) -> AsyncIterator[str]:
        """Yield warnings for text columns that are compared as text, but contain numbers."""
        texts = _list_compared_texts(self._tree, self._context)
        for column, table in await read_sql(lambda: [*islice(texts, _MOST_QUERIES)]):
            value = exp.column(quote(column))
            number = exp.TryCast(this=value.copy(), to=exp.DataType.build("DOUBLE"))
            row = await self._ask(
                exp.select(exp.Count(this=value), exp.Count(this=number)).from_(
                    exp.Table(this=quote(table))
                )
            )
            if row and int(row[1]) * 2 > int(row[0]):
                yield (
                    f"{column!r} is text and is compared as text, where '9' is more than "
                    "'10': most of its values are numbers."
                )

    async def _ask(self, query: exp.Expr) -> Sequence[Any] | None:
        """Return the first row of a query, or `None` if it fails or the query budget is used up."""
        if self._queries >= _MOST_QUERIES:
            return None
        self._queries += 1
        try:
            table = await self._run(query)
        except CopilotError:
            return None
        return table.rows[0] if table.rows else None


_MEANS = (exp.Avg, exp.Median, exp.Stddev, exp.StddevSamp, exp.Variance)
_ORDERS = (exp.Max, exp.Min, exp.Median)
_REPEATABLE = (exp.Sum, exp.Avg, exp.Count, exp.Median, exp.Stddev)


def _describe_fan_out(one: _Key, other: _Key, most: int) -> str:
    return (
        f"{other} is not unique: the join repeats rows of {one.table!r} up to {most:,} times, so "
        f"counts and sums of {one.table!r} may be too high."
    )


def _list_aggregates(select: exp.Select) -> Sequence[exp.AggFunc]:
    """Return the aggregates of a SELECT, without those of its subqueries."""
    return [
        node
        for part in select.expressions
        for node in part.find_all(exp.AggFunc)
        if node.find_ancestor(exp.Select) is select
    ]


def _aggregates_of(select: exp.Select, alias: str, context: RepairContext) -> bool:
    """Return `True` if columns of one side of a join are summed, averaged or counted."""
    for node in _list_aggregates(select):
        if not isinstance(node, _REPEATABLE) or isinstance(node.this, exp.Distinct):
            continue
        for column in node.find_all(exp.Column):
            found = find_source(column, context)
            if found is not None and found[0] == alias:
                return True
    return False


def _list_compared_texts(select: exp.Select, context: RepairContext) -> Iterator[tuple[str, str]]:
    """Yield the text columns that a SELECT orders by aggregates, and their tables."""
    for node in _list_aggregates(select):
        column = node.this
        if not isinstance(node, _ORDERS) or not isinstance(column, exp.Column):
            continue
        source = find_source(column, context)
        if source is not None and source[2] == "VARCHAR" and source[1].table is not None:
            yield column.name, source[1].table


def _read_join(select: exp.Select, join: exp.Join, context: RepairContext) -> _Join | None:
    """Return a join with the keys of both sides, or `None` if they are ambiguous."""
    keys = _read_keys(select, join, context)
    if keys is None:
        return None
    left, right = keys
    return _Join(
        left,
        right,
        has_aggregates=bool(_list_aggregates(select)),
        uses_left=_aggregates_of(select, left.alias, context),
        uses_right=_aggregates_of(select, right.alias, context),
    )


def _read_keys(
    select: exp.Select, join: exp.Join, context: RepairContext
) -> tuple[_Key, _Key] | None:
    """Return the keys of a join, of the other and the joined table; `None` if unclear."""
    sources = list_sources(select, context)
    own = join.this.alias_or_name.casefold()
    pairs = [*_list_pairs(join, own, sources, context)]
    others = {left.table.casefold() for left, _ in pairs}
    if len(others) != 1:
        return None
    other = others.pop()
    tables = [sources[it].table if it in sources else None for it in (other, own)]
    if tables[0] is None or tables[1] is None:
        return None
    return (
        _Key(other, tables[0], tuple(left.name for left, _ in pairs)),
        _Key(own, tables[1], tuple(right.name for _, right in pairs)),
    )


def _list_pairs(
    join: exp.Join, own: str, sources: Mapping[str, Source], context: RepairContext
) -> Iterator[tuple[exp.Column, exp.Column]]:
    """Yield pairs of columns that a join equates: of another table, and of the joined one."""
    using = join.args.get("using") or []
    for name in using:
        other = next((it for it in sources if it != own), "")
        yield exp.column(name.name, table=other), exp.column(name.name, table=own)
    condition = join.args.get("on")
    parts = [*condition.flatten()] if isinstance(condition, exp.And) else [condition]
    for part in parts:
        if not isinstance(part, exp.EQ):
            continue
        sides = [_name_source(it, context) for it in (part.this, part.expression)]
        left, right = sides
        if left is None or right is None:
            continue
        if left.table == own and right.table != own:
            left, right = right, left
        if right.table == own and left.table != own:
            yield left, right


def _name_source(node: exp.Expr, context: RepairContext) -> exp.Column | None:
    """Return a column qualified by the lower-case alias of its table, or `None`."""
    found = find_source(node, context) if isinstance(node, exp.Column) else None
    return None if found is None else exp.column(node.name, table=found[0])
