"""SQL that fails: how often it runs, what is repaired, and what people and memory get of it."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from copilot_runtime.extensions.analyst.engine.errors import QueryFailed, QueryTimedOut
from copilot_runtime.extensions.analyst.results import Fix
from copilot_runtime.extensions.analyst.scope import Scope
from copilot_runtime.extensions.analyst.sql.guard import guard_sql
from copilot_runtime.extensions.analyst.sql.repair.context import RepairContext
from copilot_runtime.extensions.analyst.sql.repair.loop import run_with_repair
from copilot_runtime.extensions.analyst.sql.rules import SqlRefused
from copilot_runtime.extensions.analyst.tools.call import call_tool
from tests.conformance.data_analyst.calls import plain_rows
from tests.conformance.data_analyst.cases import Given
from tests.conformance.data_analyst.facts import Facts, Prose, Text
from tests.conformance.data_analyst.world import World, build_rules

_LIMIT = 100
_LITERAL = re.compile(r"'(?:[^']|'')*'")
_KINDS: Mapping[str, str] = {
    "function_not_found": "syntax_or_function",
    "syntax": "syntax_or_function",
    "parse_error": "syntax_or_function",
    "function_not_allowed": "syntax_or_function",
    "table_not_allowed": "table_not_found",
}


async def answer(given: Given, world: World) -> Facts:
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
        functions=engine.functions,
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
