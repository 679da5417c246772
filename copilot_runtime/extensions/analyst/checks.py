"""Check a query result for common mistakes with bounded queries; report each as a sentence."""

import asyncio
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass
from functools import partial
from itertools import islice
from math import isfinite
from types import MappingProxyType
from typing import Any

from sqlglot import exp

from copilot_runtime.base.errors import CopilotError
from copilot_runtime.extensions.analyst.joins import JoinKey, list_aggregates, read_join
from copilot_runtime.extensions.analyst.results import Fix, Table
from copilot_runtime.extensions.analyst.sql.parsing import quote, read_sql
from copilot_runtime.extensions.analyst.sql.repair.casts import build_count, build_null_counts
from copilot_runtime.extensions.analyst.sql.repair.context import (
    RepairContext,
    StepLimitExceeded,
    find_select,
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
    gaps: Collection[str] = (),
    totals: Mapping[str, Mapping[str, Sequence[str]]] = MappingProxyType({}),
) -> Sequence[str]:
    """Return warnings about a result, one sentence each.

    Args:
        tree: The query without row filters.
        table: Its rows.
        context: The schema.
        run: Runs auxiliary queries; without it, only the rows are checked.
        fixes: Repairs of the query.
        gaps: Columns with NULLs, in lower case.
        totals: Table → column of texts → labels of the lines that add up others.
    """
    found = [*_check_rows(tree, table)]
    found += [
        f"{fix.nulls:,} {'value' if fix.nulls == 1 else 'values'} of {fix.before!r} did not "
        "convert and count as NULL."
        for fix in fixes
        if fix.nulls
    ]
    if run is not None and isinstance(tree, exp.Select):
        measure = _Measure(tree, context, run, {fix.after for fix in fixes}, gaps, totals)
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


@dataclass(slots=True)
class _Measure:
    """Checks a query with auxiliary queries on the data."""

    _tree: exp.Select
    _context: RepairContext
    _run: Run
    _repairs: Collection[str]
    _gaps: Collection[str]
    _totals: Mapping[str, Mapping[str, Sequence[str]]]
    _queries: int = 0

    async def list_findings(self) -> AsyncIterator[str]:
        """Yield warnings that the data supports, the most important first."""
        for select in self._tree.find_all(exp.Select):
            for join in select.args.get("joins") or []:
                if self._queries >= _MOST_QUERIES:
                    return
                async for sentence in self._check_join(select, join):
                    yield sentence
        for check in (
            *(self._check_totals, self._check_casts, self._check_fractions),
            *(self._check_gaps, self._check_averages, self._check_texts),
        ):
            async for sentence in check():
                yield sentence

    async def _check_join(self, select: exp.Select, join: exp.Join) -> AsyncIterator[str]:
        read = await read_sql(partial(read_join, select, join, self._context))
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

    async def _count_most(self, key: JoinKey) -> int:
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

    async def _count_matches(self, key: JoinKey, other: JoinKey) -> tuple[int, int]:
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

    async def _check_totals(self) -> AsyncIterator[str]:
        """Yield whether numbers leave out the lines that add up others, or count them, too."""
        exceptions = _list_exceptions(self._tree)
        literals = {it.name for it in self._tree.find_all(exp.Literal)}
        counting = [it for it in self._tree.find_all(exp.Select) if list_aggregates(it)]
        for select in self._tree.find_all(exp.Select) if counting else ():
            sources = list_sources(select, self._context)
            groups = _list_groups([select] if select in counting else counting)
            for alias, source in sources.items():
                for name, labels in self._totals.get((source.table or "").lower(), {}).items():
                    words = ", ".join(map(repr, labels))
                    lines = f"Lines of {source.table!r} with {words} in {name!r}"
                    if not exceptions.isdisjoint(labels):
                        yield f"{lines} are left out."
                    elif name.lower() not in groups and literals.isdisjoint(labels):
                        text = exp.Trim(
                            this=exp.column(quote(name), table=quote(alias)),
                            expression=exp.Literal.string(" :"),
                        )
                        condition = text.isin(*map(exp.Literal.string, labels))
                        row = await self._ask(build_count(select, condition))
                        if row and row[0]:
                            yield f"{lines} are counted, too: {int(row[0]):,}."

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

    async def _check_fractions(self) -> AsyncIterator[str]:
        """Yield a warning for texts such as 1.234 that the query reads as fractions."""
        for cast in self._tree.find_all(exp.Cast):
            column = cast.this.find(exp.Column)
            select = find_select(cast)
            source = find_source(column, self._context) if column else None
            if select is None or source is None or source[2] != "VARCHAR":
                continue
            if cast.to.this not in exp.DataType.REAL_TYPES:
                continue
            text = exp.Trim(this=cast.this.copy())
            is_doubtful = exp.func("regexp_full_match", text, exp.Literal.string(_DOUBTFUL))
            row = await self._ask(build_count(select, is_doubtful))
            if row and row[0]:
                yield (
                    f"{int(row[0]):,} {'value' if row[0] == 1 else 'values'} of {column.name!r} "
                    "may be thousands, such as 1.234, and are read as fractions."
                )

    async def _check_gaps(self) -> AsyncIterator[str]:
        """Yield a warning for each column of which a sum or an average leaves rows out."""
        columns = {
            it.this.name: it.this
            for it in list_aggregates(self._tree)
            if isinstance(it, _SUMS) and isinstance(it.this, exp.Column)
            if it.this.name.lower() in self._gaps
        }
        if not columns:
            return
        query = self._tree.copy()
        for part in ("group", "having", "order", "limit", "offset", "distinct", "qualify"):
            query.set(part, None)
        counts = [exp.Star(), *(it.copy() for it in columns.values())]
        query.set("expressions", [exp.Count(this=it) for it in counts])
        if row := await self._ask(query):
            rows, *filled = map(int, row)
            for name, count in zip(columns, filled, strict=True):
                if count < rows:
                    yield f"{rows - count:,} of {rows:,} rows have no value of {name!r}."

    async def _check_averages(self) -> AsyncIterator[str]:
        """Yield a warning if averages are over few values."""
        averages = [it for it in list_aggregates(self._tree) if isinstance(it, _MEANS)]
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


_DOUBTFUL = r"[+-]?[1-9]\d{0,2}\.\d{3}"
"""A number with a fraction or, where commas are decimal separators, a thousand."""
_MEANS = (exp.Avg, exp.Median, exp.Stddev, exp.StddevSamp, exp.Variance)
_SUMS = (exp.Sum, *_MEANS)
_ORDERS = (exp.Max, exp.Min, exp.Median)


def _list_exceptions(tree: exp.Expr) -> frozenset[str]:
    """Return the texts that conditions of a query exclude."""
    others = [it for it in tree.find_all(exp.Not) if isinstance(it.this, exp.In)]
    conditions = [*others, *tree.find_all(exp.NEQ)]
    return frozenset(literal.name for it in conditions for literal in it.find_all(exp.Literal))


def _list_groups(selects: Iterable[exp.Select]) -> Collection[str]:
    """Return the lower-case names of the columns that SELECTs show or group by."""
    return {
        column.name.lower()
        for select in selects
        for part in (*select.expressions, *filter(None, [select.args.get("group")]))
        for column in part.find_all(exp.Column)
        if column.find_ancestor(exp.AggFunc, exp.Select) is select
    }


def _describe_fan_out(one: JoinKey, other: JoinKey, most: int) -> str:
    return (
        f"{other} is not unique: the join repeats rows of {one.table!r} up to {most:,} times, so "
        f"counts and sums of {one.table!r} may be too high."
    )


def _list_compared_texts(select: exp.Select, context: RepairContext) -> Iterator[tuple[str, str]]:
    """Yield the text columns that a SELECT orders by aggregates, and their tables."""
    for node in list_aggregates(select):
        column = node.this
        if not isinstance(node, _ORDERS) or not isinstance(column, exp.Column):
            continue
        source = find_source(column, context)
        if source is not None and source[2] == "VARCHAR" and source[1].table is not None:
            yield column.name, source[1].table
