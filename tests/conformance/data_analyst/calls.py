"""Tools: what they return and repair, what the person gets, and what comes from their cache."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any

import duckdb

from copilot_runtime.base.jsontext import loads
from copilot_runtime.extensions.analyst.engine.errors import QueryFailed, QueryTimedOut
from copilot_runtime.extensions.analyst.results import Fix, Table, ToolResult, to_plain
from copilot_runtime.extensions.analyst.sql.guard import guard_sql
from copilot_runtime.extensions.analyst.sql.repair.context import RepairContext
from copilot_runtime.extensions.analyst.sql.repair.loop import run_with_repair
from copilot_runtime.extensions.analyst.sql.rules import Scope, SqlRefused
from copilot_runtime.extensions.analyst.sql.syntax_tree import list_functions
from copilot_runtime.extensions.analyst.tools.call import TOOLS, call_tool, render_output
from tests.conformance.data_analyst.cases import Given
from tests.conformance.data_analyst.facts import Facts, Prose, Text
from tests.conformance.data_analyst.world import OpenSession, World, build_rules

ARGUMENTS: Mapping[str, Mapping[str, Any]] = {
    "run_sql": {"sql": "SELECT 1 AS one"},
    "plot_data": {
        "chart_type": "bar",
        "sql": "SELECT environment, count(*) AS n FROM eval_data GROUP BY 1",
        "x_column": "environment",
        "y_column": "n",
        "title": "Rows",
    },
    "compare_data": {"group_column": "environment", "group_a": "dev", "group_b": "staging"},
    "analyze_patterns": {"analysis_type": "correlations"},
    "save_as_dataset": {"name": "One", "sql": "SELECT 1 AS one", "description": ""},
    "download_data": {"sql": "SELECT 1 AS one", "format": "csv", "filename": "one"},
}
"""Arguments of a call where a case names only the tool."""

INSERT = "INSERT INTO eval_data(dataset_id) VALUES ('new')"

_ASKING = ("save_as_dataset", "download_data")
"""Tools that may ask a person first; in cases, they said yes."""


def plain_rows(table: Table) -> list[list[Any]]:
    """Return the rows of a table as JSON has them."""
    return [[to_plain(cell) for cell in row] for row in table.rows]


async def answer_tools(given: Given, world: World) -> Facts:
    """Call a tool as a model does, and return what came of it, for the model and the person."""
    if given.get("tools_registered"):
        return {"names": list(TOOLS), "count": len(TOOLS)}
    name = given["tool"]
    arguments = dict(given.get("args") or ARGUMENTS.get(name, {}))
    drop = ["kpi_data"] if given.get("kpi_table_missing") else []
    async with world.open_session(
        drop=drop,
        agent_name=given.get("agent_name"),
        is_own=name == "save_as_dataset" or bool(given.get("empty")),
    ) as session:
        if given.get("dataset_missing"):
            session.dataset = "missing"
            name = "summarize_data" if name == "any" else name
        result = await call_approved(session, name, arguments)
        facts = describe_result(result)
        thoughts = session.thoughts.thoughts
        facts["thought"] = thoughts[-1].type if thoughts else None
        facts["thoughts"] = [one.type for one in thoughts]
        if name == "save_as_dataset" and not result.is_error:
            facts |= _describe_saved(session, result)
        return facts


async def call_approved(
    session: OpenSession, name: str, arguments: Mapping[str, Any]
) -> ToolResult:
    """Call a tool; a person approves what asks for it."""
    if name in _ASKING:
        session.approve(name, arguments)
    return await call_tool(session, name, arguments)


def describe_result(result: ToolResult) -> dict[str, Any]:
    text = render_output(result)
    output = result.output
    chart, download = result.chart, result.download
    facts: dict[str, Any] = {
        **output,
        "error": result.is_error,
        "text": Text(text),
        "result": Text(text),
        "result_chars": len(text),
        "valid_json": loads(text.encode()) == loads(text.encode()),
        "fields": Text(" ".join(output)),
        "result_has": Text(" ".join(output)),
        "chart_spec": chart and dict(chart.plotly),
        "vega_lite": chart and dict(chart.vega_lite),
        "validates_with": lambda: _validate(result),
        "download_spec": download
        and {
            "id": download.id,
            "filename": download.filename,
            "format": download.format,
            "row_count": download.row_count,
            "columns": list(download.columns),
            "url": download.url,
        },
        "trust": result.lineage.trust if result.lineage else None,
    }
    if result.table is not None and isinstance(output.get("rows"), list):
        facts["rows"] = plain_rows(result.table)
    return {**facts, **_flatten(output)}


def _flatten(output: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return results by metric under the metric's name; those of a single one, by theirs, too."""
    for value in output.values():
        if isinstance(value, Mapping) and value:
            entries = list(value.values())
            if all(isinstance(one, Mapping) and "delta" in one for one in entries):
                only = entries[0] if len(entries) == 1 else {}
                return {**value, "metrics": dict(value), **only}
    return {}


def _validate(result: ToolResult) -> Prose:
    if result.chart is None:
        return Prose(False, "there is no chart")
    import plotly.graph_objects as go  # pyright: ignore[reportMissingTypeStubs]

    try:
        go.Figure(dict(result.chart.plotly))
    except ValueError as error:
        return Prose(False, str(error))
    return Prose(True)


def _describe_saved(session: OpenSession, result: ToolResult) -> Mapping[str, Any]:
    name = str(result.output.get("table"))
    known = {one.name: one for one in session.list_datasets()}
    saved = known.get(name)
    is_apart = saved is not None and saved.is_saved
    return {"table_name": name, "via": Prose(is_apart, "the data set is in no registry")}


async def answer_cache(given: Given, world: World) -> Facts:
    """Call tools one after the other, and count what the second call still did."""
    if "tool" in given:
        given.get("twice")
        name = given["tool"]
        arguments = {"table": "eval_data"} if name == "summarize_data" else ARGUMENTS.get(name, {})
        calls: Sequence[Any] = [[name, arguments], [name, arguments]]
    else:
        calls = given["calls"]
    changes = any(isinstance(one, str) or one[0] == "save_as_dataset" for one in calls)
    async with world.open_session(is_own=changes, agent_name=given.get("agent_name")) as session:
        engine = session.services.engine
        counts = world.count_queries(engine)
        executions: list[int] = []
        thoughts: list[int] = []
        results: list[ToolResult] = []
        for call in calls:
            if isinstance(call, str):
                await _change_data(world, session, call)
                continue
            before = counts.queries, _count_thoughts(session)
            results.append(await call_approved(session, call[0], call[1]))
            executions.append(counts.queries - before[0])
            thoughts.append(_count_thoughts(session) - before[1])
    return {
        "db_executions": executions,
        "db_executions_first": executions[0],
        "db_executions_second": executions[-1],
        "tool_use_thoughts": sum(thoughts),
        "second_from_cache": thoughts[-1] == 0,
        "same_result": render_output(results[0]) == render_output(results[-1]),
    }


def _count_thoughts(session: OpenSession) -> int:
    return sum(thought.type == "tool_use" for thought in session.thoughts.thoughts)


async def _change_data(world: World, session: OpenSession, words: str) -> None:
    """Change the source, and have the engine read it again. `words`: `insert row`, or SQL."""
    statement = (
        "INSERT INTO eval_data(dataset_id) VALUES ('new')" if words == "insert row" else words
    )
    engine = session.services.engine

    def write() -> None:
        with duckdb.connect(engine.sources[0].location) as connection:
            connection.execute(statement)

    await asyncio.to_thread(write)
    await engine.refresh()


_LIMIT = 100
_LITERAL = re.compile(r"'(?:[^']|'')*'")
_KINDS: Mapping[str, str] = {
    "function_not_found": "syntax_or_function",
    "syntax": "syntax_or_function",
    "parse_error": "syntax_or_function",
    "function_not_allowed": "syntax_or_function",
    "table_not_allowed": "table_not_found",
}


async def answer_repairs(given: Given, world: World) -> Facts:
    """Run SQL as the tool does, with repairs; or say what a repair is called."""
    if "fix" in given:
        return await _describe_fix(given["fix"], world)
    return await _run(given, world)


async def _run(given: Given, world: World) -> Facts:
    engine = await world.open_engine()
    rules = build_rules(engine)
    sql = given["sql"]
    words: Mapping[str, Sequence[str]] = given.get("synonyms") or {}
    synonyms = {word.lower(): column for column, others in words.items() for word in others}
    failures: list[str] = []
    attempts: list[str] = []

    class Watch:
        """The engine, of which executions are counted."""

        def __getattr__(self, name: str) -> Any:
            return getattr(engine, name)

        async def run(self, query: Any, **options: Any) -> Any:
            attempts.append(query.sql)
            return await _note(engine.run(query, **options), failures)

    watch: Any = Watch()
    datasets = engine.list_datasets(Scope())
    context = RepairContext(
        tables={one.name: one.columns for one in datasets},
        synonyms=synonyms,
        dataset=given.get("table", "eval_data"),
        functions=list_functions(),
    )

    def guard(text: Any) -> Any:
        try:
            return guard_sql(text, rules, Scope())
        except SqlRefused as refusal:
            failures.append(refusal.reason)
            raise

    try:
        outcome = await run_with_repair(
            sql, guard=guard, engine=watch, context=context, limit=_LIMIT
        )
    except (SqlRefused, QueryFailed, QueryTimedOut) as error:
        return {
            "error": error.message,
            "attempts": len(attempts),
            "fixed": False,
            "error_kind": failures[0] if failures else None,
            "result_has": Text("error"),
            "code": getattr(error, "reason", None),
        }
    fixes = outcome.fixes
    table = outcome.table
    tries = outcome.attempts
    texts = [f"{one.before} → {one.after} {one.description}" for one in fixes]
    kind = failures[0] if failures else None
    facts: dict[str, Any] = {
        "attempts": tries,
        "error_kind": Text(f"{kind} {_KINDS.get(kind or '', '')}"),
        "fixed": table is not None and bool(fixes),
        "fix": Text("\n".join([*texts, outcome.query.sql if outcome.query else ""])),
        "fixes": [one.description for one in fixes],
        "fixes_applied": tries - 1,
        "nulls": sum(one.nulls or 0 for one in fixes),
        "literal_untouched": _keeps_literals(sql, outcome.query.sql if outcome.query else sql),
        "sql": outcome.query.sql if outcome.query else None,
    }
    if table is None:
        error = outcome.describe_error()
        return facts | {
            "result_has": Text(" ".join(error)),
            "error": error.get("error"),
            "result": Text(str(error)),
            "outcome": Prose(tries <= 3, error),
        }
    rows = plain_rows(table)
    return facts | {
        "rows": rows,
        "value": rows[0][0] if rows else None,
        "error": None,
        "outcome": Prose(tries <= 3, "all fixed"),
    }


async def _note(work: Any, failures: list[str]) -> Any:
    try:
        return await work
    except QueryFailed as error:
        failures.append(str(error.kind))
        raise


def _keeps_literals(before: str, after: str) -> bool:
    return set(_LITERAL.findall(before)) <= set(_LITERAL.findall(after))


async def _describe_fix(given: Mapping[str, Any], world: World) -> Facts:
    """Have a repair like the one that is given happen, and find it where it should be."""
    before, after = given["before"], given["after"]
    sql = {
        "column": f"SELECT avg({before}) FROM eval_data",
        "table": f"SELECT count(*) FROM {before}",
        "type": f"SELECT avg(CAST({before} AS DOUBLE)) FROM eval_data",
    }[given["kind"]]
    async with world.open_session() as session:
        await call_tool(session, "run_sql", {"sql": sql})
        fix: Fix | None = next((one for one in session.fixes if one.before == before), None)
        description = fix.description if fix else ""
        thought = next(
            (one for one in session.thoughts.thoughts if description in one.content), None
        )
        stored = await world.record_memory(session)
    return {
        "description": description,
        "after": fix.after if fix else None,
        "emitted_as": f"thought:{thought.type}" if thought and description else None,
        "stored_in_memory": bool(description) and after in stored,
    }
