"""Run SQL, and after a failure choose the repairs, and run it again."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic
from typing import Any, Protocol, TypeVar

from sqlglot import exp

from copilot_runtime.base.errors import CopilotError
from copilot_runtime.base.jsonvalue import JsonObject
from copilot_runtime.extensions.analyst.engine.errors import FailureKind, QueryFailed, QueryTimedOut
from copilot_runtime.extensions.analyst.results import Fix, Table
from copilot_runtime.extensions.analyst.sql.parsing import read_sql
from copilot_runtime.extensions.analyst.sql.repair.casts import build_null_counts, repair_type
from copilot_runtime.extensions.analyst.sql.repair.context import (
    Candidate,
    RepairContext,
    StepLimitExceeded,
    list_texts,
    to_sql,
)
from copilot_runtime.extensions.analyst.sql.repair.names import (
    repair_ambiguous,
    repair_column,
    repair_grouping,
    repair_qualifier,
    repair_table,
)
from copilot_runtime.extensions.analyst.sql.repair.syntax import (
    has_unknown_call,
    parse,
    repair_dialect,
    repair_function,
    repair_syntax,
    repair_text,
    strip_fence,
    to_duckdb,
)
from copilot_runtime.extensions.analyst.sql.rules import SqlCode, SqlRefused
from copilot_runtime.telemetry.span import NO_SPAN, Span, trace_block

REFUSALS: Mapping[SqlCode, FailureKind] = {
    "table_not_allowed": "table_not_found",
    "function_not_allowed": "function_not_found",
    "parse_error": "syntax",
}
"""Codes of the guard that may be mistakes, mapped to the engine's kinds of failure."""


def is_repairable(error: CopilotError) -> bool:
    """Return `True` if a failure may be a mistake instead of a forbidden access."""
    if isinstance(error, SqlRefused):
        is_mistake = error.reason != "function_not_allowed" or error.is_unknown
        return error.reason in REFUSALS and is_mistake
    return isinstance(error, QueryFailed)


def repair_sql(sql: str, error: CopilotError, context: RepairContext) -> Iterator[Candidate]:
    """Yield candidate statements, the likeliest first.

    They are unchecked: the caller must pass each through the guard and EXPLAIN before it runs.

    Args:
        sql: The failed statement.
        error: A `QueryFailed` of the engine, or the `SqlRefused` of the guard.
        context: The schema.
    """
    failure = _read_failure(error)
    tree = parse(sql)
    if tree is None:
        yield from repair_syntax(sql, context)
        return
    message = failure.message
    match failure.kind:
        case "column_not_found":
            yield from repair_column(tree, failure, context)
        case "table_not_found" if "Referenced table" not in message:
            yield from repair_table(tree, failure.name, context)
        case "function_not_found" if message.startswith("Table "):
            yield from repair_table(tree, _find_table(message), context)
        case "function_not_found":
            yield from repair_function(tree, failure.name, context)
        case "type_mismatch":
            yield from repair_type(tree, failure, context)
        case "group_by_missing":
            yield from repair_grouping(tree, context)
        case "ambiguous":
            yield from repair_ambiguous(tree, failure, context)
        case "syntax":
            yield from repair_syntax(sql, context)
            return
        case _:
            yield from repair_qualifier(tree, failure, context)
            yield from repair_type(tree, failure, context)
    yield from repair_text(sql)
    if has_unknown_call(sql, context):
        yield from repair_dialect(sql, context, may_quote_texts=False)


def _find_table(message: str) -> str | None:
    match = re.search(r'Table with name "?([^"\s]+)"?', message)
    return match[1] if match else None


def _read_failure(error: CopilotError) -> QueryFailed:
    """Convert a refusal of the guard to the failure that the engine would report."""
    if isinstance(error, QueryFailed):
        return error
    kind = REFUSALS[error.reason] if isinstance(error, SqlRefused) else "other"
    return QueryFailed(error.message, kind=kind, name=getattr(error, "name", None))


MOST_ATTEMPTS = 3
"""Maximum number of runs of a statement and its repairs."""

_MOST_EXPLAINS = 40
"""Maximum number of candidates that one repair may bind."""
_SEARCH_SECONDS = 10.0
"""Time limit for the search of one repair, in seconds: for its queries, as steps limit the rest."""
_MOST_FIXES = 6
"""Maximum number of mistakes that one repair may fix."""
_PROBE_SECONDS = 5.0
_MOST_COLUMNS = 50

Query = TypeVar("Query")


class QueryEngine(Protocol[Query]):  # pyright: ignore[reportInvalidTypeVarUse]  # as it is used here
    """The engine interface that runs guarded queries."""

    async def run(
        self, query: Query, /, *, limit: int, timeout: float | None = None, span: Span = NO_SPAN
    ) -> Table:
        """Return the rows. Raises `QueryFailed` or `QueryTimedOut`."""
        ...

    async def explain(self, query: Query, /) -> None:
        """Bind the query without running it. Raises `QueryFailed`."""
        ...


@dataclass(kw_only=True)
class RepairOutcome:
    """The outcome of a statement: rows, or the failure that could not be repaired."""

    sql: str
    """The SQL that ran last."""
    query: Any = None
    """`sql` after the guard, or `None` if the guard refused it."""
    table: Table | None = None
    failure: CopilotError | None = None
    fixes: Sequence[Fix] = ()
    """The repairs, in order; also set after a failure."""
    attempts: int = 0
    available_columns: Sequence[str] = ()
    notice: str = ""
    """Why no repair was found, if the search had to stop."""

    def describe_error(self) -> JsonObject:
        """Return the failure as tools report it."""
        assert self.failure is not None
        values: dict[str, Any] = {
            "error": describe_failure(self.failure),
            "sql_attempted": self.sql,
        }
        if self.available_columns:
            values["available_columns"] = [*self.available_columns]
        if self.fixes:
            values["fixes_tried"] = [fix.description for fix in self.fixes]
        if self.notice:
            values["notice"] = self.notice
        return values


async def run_with_repair(
    sql: str,
    *,
    guard: Callable[[str], Query],
    engine: QueryEngine[Query],
    context: RepairContext,
    limit: int,
    timeout: float | None = None,
    open_span: Callable[[Query, int], Span] | None = None,
    on_repair: Callable[[int, Sequence[Fix]], None] | None = None,
) -> RepairOutcome:
    """Run SQL; repair and rerun it after a mistake, with at most three runs.

    Args:
        sql: The SQL to run.
        guard: Refuses SQL, or returns the query for the engine. Each repair passes it, too.
        engine: Runs the query.
        context: The existing names and types.
        limit: Maximum number of rows.
        timeout: Seconds for each attempt.
        open_span: Starts the span of an attempt; attempts are numbered from 1.
        on_repair: Called before a repair runs, with its number and its fixes.

    Raises:
        CopilotError: A refusal of the guard that is not a mistake, or an exceeded time limit.
    """
    outcome = RepairOutcome(sql=strip_fence(sql))
    while outcome.attempts < MOST_ATTEMPTS:
        outcome.attempts += 1
        try:
            outcome.query = None
            outcome.query = query = await read_sql(partial(_guard, outcome.sql, guard))
            span = open_span(query, outcome.attempts) if open_span else NO_SPAN
            with trace_block(span):
                outcome.table = await engine.run(query, limit=limit, timeout=timeout, span=span)
            outcome.failure = None
            break
        except QueryTimedOut:
            raise
        except CopilotError as error:
            if not is_repairable(error):
                raise
            outcome.failure = error
        if outcome.attempts == MOST_ATTEMPTS:
            break
        search = _Search(guard, engine, context)
        try:
            found = await search.find(outcome.sql, outcome.failure)
        except StepLimitExceeded as error:
            outcome.notice = str(error)
            break
        if found is None:
            break
        outcome.sql, fixes = found
        outcome.fixes = [*outcome.fixes, *fixes]
        if on_repair is not None:
            on_repair(outcome.attempts, fixes)
    if outcome.failure is not None:
        list_available = partial(_list_available, outcome.sql, context)
        outcome.available_columns = await read_sql(list_available)
    elif any(fix.kind == "type" for fix in outcome.fixes):
        counts = await _count_nulls(strip_fence(sql), outcome, guard, engine)
        outcome.fixes = [_add_nulls(fix, counts) for fix in outcome.fixes]
    return outcome


def describe_failure(error: CopilotError) -> str:
    """Return a failure as a sentence with a suggestion."""
    text = " ".join(error.message.partition("\n\tCandidate functions:")[0].split())
    text = text if text.endswith((".", "!", "?")) else f"{text}."
    hint = error.hint or (_HINTS.get(error.kind) if isinstance(error, QueryFailed) else None)
    return f"{text} {hint}" if hint else text


_HINTS: Mapping[str, str] = {
    "column_not_found": "Use a column of the schema. Text needs 'single quotes'.",
    "table_not_found": "Use a table of the schema.",
    "function_not_found": "Use a function that DuckDB has.",
    "type_mismatch": "Convert the values with TRY_CAST, or compare with a value of their type.",
    "syntax": "Write one SELECT statement in the dialect of DuckDB.",
    "group_by_missing": "Add the column to GROUP BY, or put it into an aggregate.",
    "ambiguous": "Write the table or its alias before the column.",
}


class _Search:
    """Searches for a repair that passes the guard and binds; it may combine several fixes."""

    def __init__(
        self, guard: Callable[[str], Any], engine: QueryEngine[Any], context: RepairContext
    ) -> None:
        self._guard = guard
        self._engine = engine
        self._context = context
        self._seen: set[str] = set()
        self._end = monotonic() + _SEARCH_SECONDS

    async def find(
        self, sql: str, error: CopilotError, fixes: Sequence[Fix] = ()
    ) -> tuple[str, Sequence[Fix]] | None:
        """Return the repaired SQL and its fixes."""
        if len(fixes) >= _MOST_FIXES:
            return None
        self._seen.add(sql)
        later: list[tuple[str, CopilotError, Sequence[Fix]]] = []
        candidates = self._list_new(sql, error)
        while (found := await read_sql(partial(next, candidates, None))) is not None:
            candidate, text = found
            if len(self._seen) > _MOST_EXPLAINS or monotonic() > self._end:
                return None
            failure = await self._bind(text)
            if isinstance(failure, CopilotError) and not is_repairable(failure):
                continue
            if not await self._is_confirmed(candidate):
                continue
            if failure is None:
                return text, [*fixes, candidate.fix]
            if not (candidate.fix.kind == "syntax" and _is_syntax(failure)):
                later.append((text, failure, [*fixes, candidate.fix]))
        for text, failure, more in later:
            if found := await self.find(text, failure, more):
                return found
        return None

    def _list_new(self, sql: str, error: CopilotError) -> Iterator[tuple[Candidate, str]]:
        """Yield the candidates that have not been tried, and their SQL."""
        tree = parse(sql)
        texts = Counter[str]() if tree is None else list_texts(tree)
        for candidate in repair_sql(sql, error, self._context):
            text = to_sql(candidate.tree)
            self._context.budget.spend(len(text))  # to guard it takes as long
            if text in self._seen:
                continue
            may_change = candidate.fix.kind in ("function", "syntax")  # such as a format
            if may_change or not texts - list_texts(candidate.tree):
                self._seen.add(text)
                yield candidate, text

    async def _bind(self, sql: str) -> CopilotError | None:
        """Return the error of binding SQL, or `None` if it can run."""
        try:
            await self._engine.explain(await read_sql(partial(self._guard, sql)))
        except CopilotError as error:
            return error
        return None

    async def _is_confirmed(self, candidate: Candidate) -> bool:
        """Return `True` if the data confirms the assumption of a candidate."""
        if candidate.probe is None:
            return True
        try:
            query = await read_sql(partial(self._guard, to_sql(candidate.probe)))
            table = await self._engine.run(query, limit=1, timeout=_PROBE_SECONDS)
        except CopilotError:
            return False
        return bool(table.rows)


def _is_syntax(error: CopilotError) -> bool:
    """Return `True` if SQL still has a syntax error after a text repair."""
    if isinstance(error, SqlRefused):
        return error.reason == "parse_error"
    return error.kind == "syntax"


def _guard(sql: str, guard: Callable[[str], Query]) -> Query:
    """Guard SQL; raise `QueryFailed` if the translation to DuckDB would drop an argument."""
    tree = parse(sql)
    if tree is not None and to_duckdb(tree) is None:
        raise QueryFailed("DuckDB has no such form of a function.", kind="function_not_found")
    return guard(sql)


async def _count_nulls(
    before: str,
    outcome: RepairOutcome,
    guard: Callable[[str], Any],
    engine: QueryEngine[Any],
) -> Mapping[str, int]:
    """Return the number of values that each TRY_CAST of a repair turned into NULL."""

    def list_queries() -> Sequence[tuple[str, str]]:
        trees = parse(before), parse(outcome.sql)
        if trees[0] is None or trees[1] is None:
            return ()
        found = build_null_counts(trees[0], trees[1], {fix.after for fix in outcome.fixes})
        return [(text, to_sql(query)) for text, query in found]

    counts: dict[str, int] = {}
    for text, query in await read_sql(list_queries):
        try:
            guarded = await read_sql(partial(guard, query))
            table = await engine.run(guarded, limit=1, timeout=_PROBE_SECONDS)
        except CopilotError:
            continue
        if table.rows:
            counts[text] = int(table.rows[0][0])
    return counts


def _add_nulls(fix: Fix, counts: Mapping[str, int]) -> Fix:
    """Return a fix with its number of new NULLs; other casts of its column count, too."""
    if fix.kind != "type" or fix.after not in counts:
        return fix
    return replace(fix, nulls=counts[fix.after])


def _list_available(sql: str, context: RepairContext) -> Sequence[str]:
    """Return the columns of the tables in a statement, or of the question's table."""
    tree = parse(sql)
    names = [table.name for table in tree.find_all(exp.Table)] if tree is not None else []
    tables = list(dict.fromkeys(it for name in names if (it := context.find_table(name))))
    tables = tables or ([context.dataset] if context.dataset in context.tables else [])
    several = len(tables) > 1
    found = [
        f"{table}.{column.name}" if several else column.name
        for table in tables
        if table is not None
        for column in context.list_columns(table)
    ]
    return found[:_MOST_COLUMNS]
