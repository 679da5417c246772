"""SQL written by a model: guarded, run, and repaired after mistakes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from copilot_runtime.base.errors import CopilotError
from copilot_runtime.base.jsonvalue import JsonObject
from copilot_runtime.extensions.analyst.checks import check_result
from copilot_runtime.extensions.analyst.results import Fix, Lineage, Table
from copilot_runtime.extensions.analyst.sql.guard import GuardedQuery, guard_sql
from copilot_runtime.extensions.analyst.sql.repair.context import RepairContext
from copilot_runtime.extensions.analyst.sql.repair.loop import RepairOutcome, run_with_repair
from copilot_runtime.extensions.analyst.tools.metrics import (
    check_metrics,
    match_metric_values,
    match_metrics,
)
from copilot_runtime.extensions.analyst.tools.queries import (
    as_name,
    build_lineage,
    start_query_span,
)
from copilot_runtime.extensions.analyst.tools.tool import ToolFailed
from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.span import NO_SPAN, Span

if TYPE_CHECKING:
    from copilot_runtime.extensions.analyst.engine.engine import Engine
    from copilot_runtime.extensions.analyst.session import Session

COUNT_SECONDS = 5.0
"""Time limit for counting the rows of a truncated result, in seconds."""

_MOST_TRIES = 2


class SqlFailed(ToolFailed):
    """A model's SQL failed and could not be repaired. `output` is for the model."""

    def __init__(self, output: JsonObject) -> None:
        super().__init__(str(output["error"]))
        self.output = output


@dataclass(frozen=True, kw_only=True)
class Execution:
    """A model's SQL that has run."""

    query: GuardedQuery
    table: Table
    fixes: Sequence[Fix]
    lineage: Lineage


async def execute_sql(
    session: "Session",
    sql: str,
    *,
    limit: int,
    tool: str,
    title: str = "",
    is_measured: bool = True,
) -> Execution:
    """Run a model's SQL for the caller. Raises `SqlFailed`, `SqlRefused` or `QueryTimedOut`.

    `title` is the model's name for the result. With `is_measured`, our own queries check the result
    for common mistakes, for up to two seconds; without it, the rows are only a preview of a result
    that is stored elsewhere.
    """
    if not sql.strip():
        raise ToolFailed("The SQL is empty.", hint="Write one SELECT statement.")
    outcome = await _run(session, sql, limit, tool)
    if outcome.failure is not None or outcome.table is None:
        output = outcome.describe_error()
        if isinstance(code := getattr(outcome.failure, "reason", None), str):
            output["code"] = code
        session.failed_sql.append((sql, str(output["error"])))
        raise SqlFailed(output)
    session.fixes += outcome.fixes
    metrics = match_metrics(session, outcome.query.tree)
    tree = outcome.query.tree
    names = tree.named_selects if isinstance(tree, exp.Query) else []
    computed = metrics or match_metric_values(session, tree)
    doubts = check_metrics(session, computed, title, ", ".join(names))
    metrics = [] if doubts else metrics
    lineage = await build_lineage(
        session,
        [outcome.query],
        trust="verified" if metrics else "free_sql",
        metrics=metrics,
        checks=[
            *doubts,
            *await _check(session, outcome, outcome.table, is_measured=is_measured),
        ],
        fixes=outcome.fixes,
    )
    session.record_sql(outcome.sql, lineage.tables)
    return Execution(query=outcome.query, table=outcome.table, fixes=outcome.fixes, lineage=lineage)


async def _run(session: "Session", sql: str, limit: int, tool: str) -> RepairOutcome:
    rules, scope = session.rules, session.scope

    def report(number: int, fixes: Sequence[Fix]) -> None:
        sentences = "; ".join(fix.description for fix in fixes)
        session.thoughts.emit(
            "observation",
            f"Auto-corrected SQL ({number}/{_MOST_TRIES}): {sentences}",
            tool_name=tool,
            metadata={"fixes": [fix.description for fix in fixes]},
        )

    try:
        return await run_with_repair(
            sql,
            guard=lambda text: guard_sql(text, rules, scope),
            engine=_LimitEngine(session.services.engine),
            context=build_repair_context(session),
            limit=limit,
            timeout=session.services.query_timeout,
            open_span=lambda query, attempt: start_query_span(session, query, attempt),
            on_repair=report,
        )
    except CopilotError as error:
        session.failed_sql.append((sql, error.message))
        raise


class _LimitEngine:
    """Runs queries with a LIMIT in their SQL, so that DuckDB uses a top-N sort."""

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine

    async def run(
        self,
        query: GuardedQuery,
        /,
        *,
        limit: int,
        timeout: float | None = None,
        span: Span = NO_SPAN,
    ) -> Table:
        """Return at most `limit` rows."""
        limited = query.with_limit(limit + 1)
        table = await self._engine.run(limited, limit=limit, timeout=timeout, span=span)
        span.set_attributes({semconv.DB_RESPONSE_RETURNED_ROWS: len(table.rows)})
        return table

    async def explain(self, query: GuardedQuery, /) -> None:
        """Bind names and types."""
        await self._engine.explain(query)


def build_repair_context(session: "Session") -> RepairContext:
    """Return the names and types that the caller's SQL may use."""
    rules = session.rules
    return RepairContext(
        tables={name: rule.columns for name, rule in rules.tables.items()},
        synonyms=session.services.find_synonyms(session.dataset),
        dataset=session.dataset or None,
        functions=rules.functions,
    )


async def _check(
    session: "Session", outcome: RepairOutcome, table: Table, *, is_measured: bool
) -> Sequence[str]:
    """Return warnings about a result, one sentence each."""

    async def run(tree: exp.Expr) -> Table:
        return await _measure(session, await session.guard(tree))

    engine, scope = session.services.engine, session.scope
    columns = [
        column
        for name in (outcome.query.tables if is_measured else ())
        for column in (await engine.describe(name, scope)).columns
    ]
    return await check_result(
        outcome.query.tree,
        table if is_measured else replace(table, is_truncated=False),
        context=build_repair_context(session),
        run=run if is_measured else None,
        fixes=outcome.fixes,
        gaps={it.name.lower() for it in columns if it.null_percent},
        totals={
            name: dataset.totals
            for name in outcome.query.tables
            if (dataset := engine.datasets.get(name)) and dataset.totals
        },
    )


async def count_result(session: "Session", query: GuardedQuery, table: Table) -> int | None:
    """Return the number of rows of a query without our limit, or `None` if counting fails."""
    if not table.is_truncated:
        return len(table.rows)
    counted = query.tree.copy()
    if not isinstance(counted, exp.Query):
        return None
    inner = counted.subquery("counted_rows")
    tree = exp.select(as_name(exp.Count(this=exp.Star()), "total")).from_(inner)
    try:
        found = await _measure(session, await session.guard(tree))
    except CopilotError:
        return None
    return int(found.rows[0][0]) if found.rows else None


async def _measure(session: "Session", query: GuardedQuery) -> Table:
    """Run an auxiliary query without a span; return at most one row."""
    engine = session.services.engine
    return await engine.run(query.with_limit(1), limit=1, timeout=COUNT_SECONDS)
